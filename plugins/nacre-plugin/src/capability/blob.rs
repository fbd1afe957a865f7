//! Capability `blob`: named files of bytes that are too large for entries, such as segments of an index.
//!
//! A blob is made, grows by appending, and is sealed: from then on it never changes, and is read through the cache of the node. What a
//! call does to blobs is committed with its writes to the state, or not at all. Writing for a reader ends the call, as does appending
//! to a blob that is sealed or not there. Only a state that is segmented (`state = "segmented"` in `plugin.toml`) has blobs.
//!
//! ```no_run
//! use nacre_plugin::blob;
//! blob::create("segments/7");
//! blob::append("segments/7", b"postings");
//! blob::seal("segments/7");
//! assert_eq!(blob::read("segments/7", 4, 100).as_deref(), Some(&b"ings"[..]));
//! ```

use super::outside;

/// Length and state of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Bytes of its content.
    pub length: u64,
    /// Whether it never changes any more.
    pub sealed: bool,
}

/// Begins an empty blob, in place of one of that name. A name has 1 to 256 bytes.
pub fn create(name: &str) {
    outside::create_blob(name);
}

/// Adds bytes at the end of a blob that is not sealed.
pub fn append(name: &str, bytes: &[u8]) {
    outside::append_blob(name, bytes);
}

/// Ends a blob: it never changes any more.
pub fn seal(name: &str) {
    outside::seal_blob(name);
}

/// Removes a blob; returns true if there was one.
pub fn delete(name: &str) -> bool {
    outside::delete_blob(name)
}

/// Returns length and state of a blob.
pub fn stat(name: &str) -> Option<Info> {
    outside::stat_blob(name)
}

/// Bytes of a blob from `offset` on: `length` of them, fewer at its end, 4 MiB at most. None when there is no such blob.
pub fn read(name: &str, offset: u64, length: u32) -> Option<Vec<u8>> {
    outside::read_blob(name, offset, length)
}

/// The blobs whose names begin with `prefix` and come after `after`, in order: at most `limit`, and at most 1000.
pub fn list(prefix: &str, after: &str, limit: u32) -> Vec<Info> {
    outside::list_blobs(prefix, after, limit)
}
