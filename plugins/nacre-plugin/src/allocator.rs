//! The allocator of a component: free lists for small block sizes, in front of the allocator of the standard library.
//!
//! The standard allocator searches for the best fit, splits and merges. In the sandbox this costs more than elsewhere,
//! because each call and each iteration of a loop checks the deadline, and parsers and interpreters allocate little but
//! small blocks. Here both operations take a few instructions: a block is taken from the list of its size or cut off a
//! chunk, and returns to that list when it is freed. Larger blocks come from the standard library.
//!
//! Invariants: a block is either in one list or in use, and never changes its size. Chunks are never returned, so a
//! component keeps its peak memory of each size; this loses nothing, because WebAssembly cannot return memory.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;

/// Granularity of sizes and alignment of blocks.
const GRANULE_BYTES: usize = 16;
/// Size of the largest small block.
const SMALL_BYTES_MAX: usize = 1024;
/// Size of the chunks from which blocks are cut.
const CHUNK_BYTES: usize = 16 << 10;

const SIZES: usize = SMALL_BYTES_MAX / GRANULE_BYTES;

const _: () = assert!(CHUNK_BYTES.is_multiple_of(GRANULE_BYTES) && CHUNK_BYTES >= SMALL_BYTES_MAX);

/// The content of a free block.
struct Free {
    next: *mut Free,
}

/// Takes small blocks from lists, and all others from `large`.
pub(crate) struct Allocator<L> {
    large: L,
    free: [Cell<*mut Free>; SIZES],
    /// Start and size of the rest of the last chunk.
    rest: Cell<*mut u8>,
    rest_bytes: Cell<usize>,
}

// SAFETY: a component has one thread. Each test keeps its allocator on one thread.
unsafe impl<L> Sync for Allocator<L> {}

impl<L: GlobalAlloc> Allocator<L> {
    pub const fn new(large: L) -> Allocator<L> {
        Allocator {
            large,
            free: [const { Cell::new(null_mut()) }; SIZES],
            rest: Cell::new(null_mut()),
            rest_bytes: Cell::new(0),
        }
    }

    /// Returns the list for `layout` if it is small.
    #[inline]
    fn list(&self, layout: Layout) -> Option<&Cell<*mut Free>> {
        let is_small = layout.size() <= SMALL_BYTES_MAX && layout.align() <= GRANULE_BYTES;
        if !is_small {
            return None;
        }
        self.free.get(layout.size().saturating_sub(1) / GRANULE_BYTES)
    }

    /// Cuts a block off the last chunk, or off a new one. The rest of the previous chunk becomes a free block.
    #[cold]
    #[inline(never)]
    fn cut(&self, bytes: usize) -> *mut u8 {
        let bytes = bytes.max(1).next_multiple_of(GRANULE_BYTES);
        if self.rest_bytes.get() < bytes {
            const CHUNK: Layout = match Layout::from_size_align(CHUNK_BYTES, GRANULE_BYTES) {
                Ok(layout) => layout,
                Err(_) => unreachable!(),
            };
            // SAFETY: the layout has a nonzero size.
            let chunk = unsafe { self.large.alloc(CHUNK) };
            if chunk.is_null() {
                return null_mut();
            }
            if self.rest_bytes.get() > 0 {
                // The rest is smaller than a small block, and a list of its size exists.
                let list = &self.free[self.rest_bytes.get() / GRANULE_BYTES - 1];
                push(list, self.rest.get());
            }
            self.rest.set(chunk);
            self.rest_bytes.set(CHUNK_BYTES);
        }
        let block = self.rest.get();
        self.rest.set(block.wrapping_add(bytes));
        self.rest_bytes.set(self.rest_bytes.get() - bytes);
        block
    }
}

#[inline]
fn push(list: &Cell<*mut Free>, block: *mut u8) {
    let block: *mut Free = block.cast();
    // SAFETY: the block is unused, aligned, and large enough for a pointer.
    unsafe { block.write(Free { next: list.get() }) };
    list.set(block);
}

// SAFETY: a block has one owner at a time, is at least as large as requested, and begins at a multiple of the granule,
// which is the largest alignment of small blocks. Nothing here panics.
unsafe impl<L: GlobalAlloc> GlobalAlloc for Allocator<L> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(list) = self.list(layout) else {
            // SAFETY: the caller's layout.
            return unsafe { self.large.alloc(layout) };
        };
        let block = list.get();
        if block.is_null() {
            return self.cut(layout.size());
        }
        // SAFETY: blocks in a list are free and contain the pointer to the next one.
        list.set(unsafe { (*block).next });
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.list(layout) {
            Some(list) => push(list, block),
            // SAFETY: the caller's block, which `large` allocated.
            None => unsafe { self.large.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.list(layout).is_none() {
            // SAFETY: the caller's layout.
            return unsafe { self.large.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's layout.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees the size.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (self.list(layout), self.list(wanted)) {
            (Some(list), Some(other)) if std::ptr::eq(list, other) => return block,
            // SAFETY: the caller's block, which `large` allocated.
            (None, None) => return unsafe { self.large.realloc(block, layout, bytes) },
            _ => {}
        }
        // SAFETY: the caller's layout with another size.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both blocks have at least that many bytes, and they do not overlap because one is new.
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::alloc::System;

    /// Counts the requests that reach the underlying allocator.
    #[derive(Default)]
    struct Counting {
        calls: Cell<usize>,
        bytes_max: usize,
    }

    // SAFETY: it forwards to the system's allocator or refuses.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.calls.set(self.calls.get() + 1);
            if layout.size() > self.bytes_max {
                return null_mut();
            }
            // SAFETY: the caller's layout.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller's block.
            unsafe { System.dealloc(block, layout) }
        }
    }

    fn allocator(bytes_max: usize) -> Allocator<Counting> {
        Allocator::new(Counting { calls: Cell::new(0), bytes_max })
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).unwrap()
    }

    /// A block in use: address, layout, and the byte with which it is filled.
    type Used = (*mut u8, Layout, u8);

    fn check((block, layout, fill): Used) {
        assert!((block as usize).is_multiple_of(layout.align()));
        // SAFETY: the block has that many bytes, and all of them were written.
        let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
        assert!(bytes.iter().all(|byte| *byte == fill), "somebody else wrote into a block");
    }

    proptest! {
        #[test]
        fn blocks_are_complete_and_disjoint(
            steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>(), 1usize..3000, 0u32..6), 1..300)
        ) {
            let heap = allocator(usize::MAX);
            let mut used: Vec<Used> = Vec::new();
            for (fill, (what, which, bytes, align)) in steps.into_iter().enumerate() {
                let fill = fill as u8;
                let layout = Layout::from_size_align(bytes, 1 << align).unwrap();
                match what {
                    0 | 1 => {
                        // SAFETY: the layout has a nonzero size; the block is written before it is read.
                        unsafe {
                            let block = if what == 0 { heap.alloc(layout) } else { heap.alloc_zeroed(layout) };
                            if what == 1 {
                                check((block, layout, 0));
                            }
                            block.write_bytes(fill, bytes);
                            used.push((block, layout, fill));
                        }
                    }
                    _ if used.is_empty() => {}
                    2 => {
                        let (block, layout, fill) = used.swap_remove(which.index(used.len()));
                        check((block, layout, fill));
                        // SAFETY: the block is in use with that layout.
                        unsafe { heap.dealloc(block, layout) };
                    }
                    _ => {
                        let at = which.index(used.len());
                        let (block, layout, fill) = used[at];
                        // SAFETY: the block is in use with that layout; new bytes are written before they are read.
                        unsafe {
                            let moved = heap.realloc(block, layout, bytes);
                            let kept = layout.size().min(bytes);
                            check((moved, Layout::from_size_align(kept, layout.align()).unwrap(), fill));
                            moved.write_bytes(fill, bytes);
                            used[at] = (moved, Layout::from_size_align(bytes, layout.align()).unwrap(), fill);
                        }
                    }
                }
            }
            used.into_iter().for_each(check);
        }
    }

    #[test]
    fn freed_memory_is_reused() {
        let heap = allocator(usize::MAX);
        // SAFETY: each block is freed once, with its layout.
        unsafe {
            for round in 0..10_000 {
                let blocks = [1, 16, 17, 400, SMALL_BYTES_MAX]
                    .map(|bytes| (heap.alloc(layout(bytes)), layout(bytes)));
                assert!(blocks.iter().all(|(block, _)| !block.is_null()), "round {round}");
                blocks.into_iter().for_each(|(block, layout)| heap.dealloc(block, layout));
            }
        }
        assert_eq!(heap.large.calls.get(), 1, "one chunk is enough");
    }

    #[test]
    fn exhausted_memory_is_reported() {
        let heap = allocator(0);
        // SAFETY: no memory is returned.
        unsafe {
            assert!(heap.alloc(layout(8)).is_null() && heap.alloc_zeroed(layout(8)).is_null());
            assert!(heap.alloc(layout(SMALL_BYTES_MAX + 1)).is_null());
        }
        let heap = allocator(CHUNK_BYTES);
        // SAFETY: the block is in use with that layout until it is freed.
        unsafe {
            let block = heap.alloc(layout(8));
            assert!(heap.realloc(block, layout(8), 1 << 20).is_null());
            block.write_bytes(1, 8);
            heap.dealloc(block, layout(8));
        }
    }
}
