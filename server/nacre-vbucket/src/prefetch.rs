//! What requests that have arrived will touch, fetched from memory while those before them are carried out.
//!
//! A node that holds more than its caches spends more time on waiting for memory than on anything else: the vBucket, its hash
//! table, the document's metadata and its bytes each have to be there before it is known where the next of them is. A client
//! that sends requests without waiting lets us see them early, and each of these steps can be taken ahead of time:
//!
//! ```text
//! prefetch(&vbucket)   some requests ahead    the vBucket itself; where it is, is known without looking
//! prefetch_slot        a few ahead            where the hash table says where the document is
//! prefetch_document    fewer ahead            metadata, key and the beginning of the value
//! ```
//!
//! Nothing here changes anything or answers a question: without it, all is the same, and slower.

use crate::vbucket::Vbucket;

/// Bytes that a processor fetches at once.
const LINE_BYTES: usize = 64;
/// Of a document, what is fetched. Measured with documents of 1 KB, fetching all of it is worth a tenth more requests than leaving
/// the rest to the processor, which goes on by itself once it sees that it is read in order; with those of 100 B it costs 1 %.
const DOCUMENT_BYTES: usize = 18 * LINE_BYTES;

/// Has the processor fetch `value`, of which nothing is read here.
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_bytes(std::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Has the processor fetch so many bytes, if they are there.
fn prefetch_bytes(start: *const u8, count: usize) {
    for offset in (0..count).step_by(LINE_BYTES) {
        prefetch_line(start.wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which reads nothing that a program could see, and is passed over where nothing can be read.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch_line(_: *const u8) {}

impl Vbucket {
    /// Has the processor fetch what says where the document at `key` is, and what counts its collection.
    pub fn prefetch_slot(&self, key: &[u8]) {
        self.table.prefetch(key);
    }

    /// Has the processor fetch the document at `key`, once its slot is there.
    pub fn prefetch_document(&self, key: &[u8]) {
        if let Some(document) = self.table.guess(key) {
            // How long it is, only the document knows, which is not there yet.
            prefetch_bytes(std::ptr::from_ref(&**document).cast(), DOCUMENT_BYTES);
        }
    }
}
