//! The allocator of the process: values of about 1 KB fall outside what glibc serves quickly. Measured, this is worth 15-25 % on
//! writes.

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many pages that have no block left a thread keeps, for each size. Source: `mi_option_page_full_retain` of mimalloc, which
/// numbers its options anew with each version.
const PAGE_FULL_RETAIN: c_int = 36;
const ALL: c_long = -1;

/// Has the threads that are started from now on keep pages when their last block is taken.
///
/// Nearly all pages of a node are such: each write would give one away, and take one back for the block that it frees. Measured,
/// this is worth a tenth on pipelined writes.
pub fn keep_full_pages() {
    // SAFETY: takes numbers only.
    unsafe { libmimalloc_sys::mi_option_set(PAGE_FULL_RETAIN, ALL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: takes and gives numbers only.
        let option = |number| unsafe { libmimalloc_sys::mi_option_get(number) };
        // Between `generic_collect`, `page_reclaim_on_free` and `page_max_candidates`.
        let around = [-2, -1, 0, 1].map(|distance| option(PAGE_FULL_RETAIN + distance));
        assert_eq!(around, [10_000, 0, 2, 4]);
    }
}
