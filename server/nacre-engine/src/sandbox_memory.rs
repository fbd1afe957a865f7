//! Memory of sandboxes: the address range that the plugin host reserves for all of them.

/// Minimum size of the range in bytes. Nothing else in the process reserves as much.
const RESERVED_BYTES_MIN: usize = 16 << 30;

/// Asks the kernel to use huge pages for the memory of sandboxes, if the process may have them. Must be called before
/// the first sandbox is created.
///
/// Without huge pages the kernel adds memory page by page while a batch of documents is copied into a sandbox, which
/// takes a tenth of the time of an index. The memory usage of a sandbox smaller than a huge page does not grow.
pub fn use_huge_pages() {
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return };
    for (start, end) in mappings.lines().filter_map(reserved) {
        if end - start >= RESERVED_BYTES_MIN {
            // SAFETY: this is advice about memory that is reserved but unused.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        }
    }
}

/// Parses a line of `/proc/self/maps`. Returns start and end of a mapping that is reserved but unused.
fn reserved(mapping: &str) -> Option<(usize, usize)> {
    let (range, rest) = mapping.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    rest.starts_with("---p").then(|| Some((address(start)?, address(end)?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_memory_is_distinguished_from_memory_in_use() {
        let line = "7f0000000000-7f8000000000 ---p 00000000 00:00 0 ";
        assert_eq!(reserved(line), Some((0x7f00_0000_0000, 0x7f80_0000_0000)));
        assert_eq!(reserved("7f0000000000-7f8000000000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(reserved("no mapping"), None);
    }
}
