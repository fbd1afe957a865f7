//! Huge pages, for nodes that hold enough to gain from them.
//!
//! A huge page is taken whole, 2 MiB, by whoever touches a byte of it: a node that holds next to nothing would take 30 MB
//! more than it needs. One that holds documents serves 5 to 10 % more requests a second with them.

use std::time::Duration;

/// Memory in use from which on a node gets huge pages, in bytes.
const LARGE_BYTES: u64 = 64 << 20;
/// What is reserved for sandboxes at least, in bytes; nothing else reserves as much.
const SANDBOXES_BYTES_MIN: usize = 16 << 30;
/// How often that is looked at: a node that is being filled passes it soon after.
const INTERVAL: Duration = Duration::from_millis(50);

/// Does without huge pages, from now on and until [`allow_when_large`] finds that the process has grown.
pub fn keep_off() {
    set_off(true);
}

/// Allows huge pages once the process has grown.
pub async fn allow_when_large() {
    while resident_bytes().is_some_and(|bytes| bytes < LARGE_BYTES) {
        tokio::time::sleep(INTERVAL).await;
    }
    set_off(false);
}

/// Has the memory of sandboxes be of huge pages, where these are allowed: what comes into one at once, as a batch of documents does,
/// is otherwise given to it page by page, which takes a tenth of the time of an index. Only whole huge pages are, so that a sandbox of
/// less does not grow. To be called before there is any.
pub fn take_for_sandboxes() {
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return };
    for (start, end) in mappings.lines().filter_map(reserved) {
        if end - start >= SANDBOXES_BYTES_MIN {
            // SAFETY: this is advice about memory that was reserved and is not in use.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        }
    }
}

/// Where a mapping begins and ends that is reserved and not in use, by its line.
fn reserved(mapping: &str) -> Option<(usize, usize)> {
    let (range, rest) = mapping.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    rest.starts_with("---p").then(|| Some((address(start)?, address(end)?)))?
}

fn set_off(off: bool) {
    // SAFETY: the call takes numbers only. Kernels without huge pages refuse it, which is as good.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(off), 0, 0, 0) };
}

fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let resident: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: the call takes a number only.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(resident * u64::try_from(page_bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_told_from_what_is_in_use() {
        let line = "7f0000000000-7f8000000000 ---p 00000000 00:00 0 ";
        assert_eq!(reserved(line), Some((0x7f00_0000_0000, 0x7f80_0000_0000)));
        assert_eq!(reserved("7f0000000000-7f8000000000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(reserved("no mapping"), None);
    }
}
