//! Random numbers for crates that need them: a sequence that a seed determines. Nothing secret depends on it; tantivy uses it to name
//! segments.

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// Seeds the sequence, unless it has a seed already.
pub fn seed(seed: u64) {
    // Ignored: the sequence already has a seed.
    _ = STATE.compare_exchange(0, seed | 1, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns the next number of the sequence (splitmix64).
#[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "elsewhere there is chance"))]
fn next() -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut z = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Source of random bytes for the crate getrandom in the sandbox.
///
/// # Safety
/// `destination` is valid for `length` bytes.
#[cfg(target_arch = "wasm32")]
#[expect(unsafe_code, reason = "the crate getrandom names the function and its arguments")]
// SAFETY: No other function has that name.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    destination: *mut u8,
    length: usize,
) -> Result<(), getrandom::Error> {
    for at in 0..length {
        // SAFETY: The caller has that many bytes there.
        unsafe { destination.add(at).write((next() >> 56) as u8) };
    }
    Ok(())
}
