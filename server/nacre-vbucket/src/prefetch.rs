//! Fetches into the caches what waiting requests will touch, while the requests before them are carried out.
//!
//! A node that holds more than its caches spends more time on waiting for memory than on anything else: the vBucket,
//! its hash table, the document's metadata and its bytes each hold the address of the next. A client that sends
//! requests without waiting shows them early, so that each step can be taken ahead of time:
//!
//! ```text
//! prefetch(&vbucket)   some requests ahead    the vBucket itself, whose address is known
//! prefetch_slot        a few ahead            the slot of the hash table
//! prefetch_document    fewer ahead            metadata, key and the beginning of the value
//! ```
//!
//! Nothing here changes or answers anything: without it, the results are the same and slower.

use nacre_types::Document;

/// Bytes that a processor fetches at once.
const LINE_BYTES: usize = 64;
/// Bytes of a document to fetch. Measured with documents of 1 KB, fetching all of it is worth a tenth more requests
/// than leaving the rest to the processor, which continues by itself once it detects a sequential read; with documents
/// of 100 B it costs 1 %.
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
    // SAFETY: a prefetch is a hint. It reads nothing that the program can see, and the processor ignores it where
    // nothing can be read.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch_line(_: *const u8) {}

/// Has the processor fetch a document.
pub(crate) fn prefetch_document(document: &Document) {
    // How long it is, only the document knows, which is not there yet.
    prefetch_bytes(std::ptr::from_ref(&**document).cast(), DOCUMENT_BYTES);
}
