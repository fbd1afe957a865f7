//! Buffers filled by the kernel: a ring of equal buffers, of which each completed read uses one.

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// Identifies the buffer ring to the kernel.
pub(super) const GROUP: u16 = 0;
/// Number of buffers, a power of two. When all are in use, connections take turns.
const COUNT: u16 = 32;
/// Size of a buffer, and the maximum of one read.
pub(super) const BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// The buffers of one thread.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: Box<[u8]>,
    tail: u16,
}

impl Buffers {
    fn layout() -> Layout {
        let bytes = usize::from(COUNT) * size_of::<BufRingEntry>();
        Layout::from_size_align(bytes, PAGE_BYTES).expect("the size is a constant that fits")
    }

    /// Registers the buffers with `ring`. The owner must keep them as long as the ring lives.
    pub fn register(ring: &IoUring) -> io::Result<Buffers> {
        let layout = Buffers::layout();
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(entries) = NonNull::new(memory.cast::<BufRingEntry>()) else {
            handle_alloc_error(layout)
        };
        let memory = vec![0; usize::from(COUNT) * BYTES].into_boxed_slice();
        let mut buffers = Buffers { entries, memory, tail: 0 };
        // SAFETY: the entries are page-aligned, as many as said, and live until the ring is gone.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.entries.as_ptr() as u64,
                COUNT,
                GROUP,
                0,
            )?;
        }
        for id in 0..COUNT {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// Returns the bytes that the kernel wrote into a buffer.
    pub fn filled(&self, id: u16, length: usize) -> &[u8] {
        let begin = usize::from(id) * BYTES;
        &self.memory[begin..begin + length.min(BYTES)]
    }

    /// Returns a buffer to the kernel.
    pub fn give_back(&mut self, id: u16) {
        let address = self.memory[usize::from(id) * BYTES..].as_ptr() as u64;
        // SAFETY: the index is below the number of entries, and the kernel does not read entries beyond the tail.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(usize::from(self.tail & (COUNT - 1)));
            entry.set_addr(address);
            entry.set_len(BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is within the first entry; the kernel reads it concurrently, hence the atomic.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { dealloc(self.entries.as_ptr().cast(), Buffers::layout()) };
    }
}
