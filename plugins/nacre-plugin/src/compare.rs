//! Compares bytes, eight at a time.
//!
//! The default implementation in components compares one byte after the other, and comparing keys is most of the cost of
//! sorting and finding them. Its `memcmp` and `bcmp` are weak symbols, so those of this crate replace them.

/// Compares two byte strings of the same length. Returns a number below zero, zero, or above zero, as `memcmp` does.
#[inline]
fn compare(left: &[u8], right: &[u8]) -> i32 {
    let ((left, left_rest), (right, right_rest)) = (left.as_chunks(), right.as_chunks());
    for (left, right) in left.iter().zip(right) {
        let (left, right) = (u64::from_le_bytes(*left), u64::from_le_bytes(*right));
        if left != right {
            // The first byte is the most significant.
            return if left.swap_bytes() < right.swap_bytes() { -1 } else { 1 };
        }
    }
    for (left, right) in left_rest.iter().zip(right_rest) {
        if left != right {
            return i32::from(*left) - i32::from(*right);
        }
    }
    0
}

#[cfg(target_arch = "wasm32")]
mod symbols {
    use std::slice::from_raw_parts;

    /// # Safety
    /// As for C's function: `bytes` bytes must be readable at both pointers.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
        if bytes == 0 {
            // The pointers need not be valid.
            return 0;
        }
        // SAFETY: the caller guarantees it.
        let (left, right) = unsafe { (from_raw_parts(left, bytes), from_raw_parts(right, bytes)) };
        super::compare(left, right)
    }

    /// # Safety
    /// As for [`memcmp`].
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
        // SAFETY: the caller guarantees it.
        unsafe { memcmp(left, right, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::compare;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_compare_as_slices_do(
            shared in prop::collection::vec(any::<u8>(), 0..40),
            left in prop::collection::vec(any::<u8>(), 0..12),
            right in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let count = left.len().min(right.len());
            let (left, right) = ([&shared, &left[..count]].concat(), [&shared, &right[..count]].concat());
            prop_assert_eq!(compare(&left, &right).cmp(&0), left.cmp(&right));
        }
    }
}
