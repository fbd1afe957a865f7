//! Capability `blob`: named files of bytes that are too large for entries, such as the segments of an index.
//!
//! A blob is created, grows by appending, and is then sealed; a sealed blob never changes and is read through the cache of the
//! node. Changes of blobs are committed with the call's writes to the state, or not at all. A write during a reader call ends the
//! call, and so does appending to a blob that is sealed or does not exist. Blobs need segmented state (`state = "segmented"` in
//! `plugin.toml`).
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
    /// The name.
    pub name: String,
    /// The length of its content in bytes.
    pub length: u64,
    /// True if the blob is sealed.
    pub sealed: bool,
}

/// Creates an empty blob and replaces an existing blob with the same name. A name has 1 to 256 bytes.
pub fn create(name: &str) {
    outside::create_blob(name);
}

/// Appends bytes to a blob that is not sealed.
pub fn append(name: &str, bytes: &[u8]) {
    outside::append_blob(name, bytes);
}

/// Seals a blob, which then never changes.
pub fn seal(name: &str) {
    outside::seal_blob(name);
}

/// Removes a blob. Returns true if it existed.
pub fn delete(name: &str) -> bool {
    outside::delete_blob(name)
}

/// Returns length and state of a blob; `None` if it does not exist.
pub fn stat(name: &str) -> Option<Info> {
    outside::stat_blob(name)
}

/// Reads bytes of a blob from `offset`: `length` bytes or up to the end of the blob, at most 4 MiB. Returns `None` if the blob
/// does not exist.
pub fn read(name: &str, offset: u64, length: u32) -> Option<Vec<u8>> {
    outside::read_blob(name, offset, length)
}

/// Returns the blobs whose names begin with `prefix` and sort after `after`, in order: at most `limit`, and at most 1000.
pub fn list(prefix: &str, after: &str, limit: u32) -> Vec<Info> {
    outside::list_blobs(prefix, after, limit)
}
