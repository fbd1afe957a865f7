//! Capability `kv`: documents of the deployment's bucket.
//!
//! A keyspace is `scope.collection`; the empty string is the deployment's own. What is written takes effect at once: a
//! call that is made again, because it failed or the node did, writes again.

use super::outside;

/// A document as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The body, without extended attributes.
    pub body: Vec<u8>,
    /// The version.
    pub cas: u64,
    /// What clients say about the format of the body.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// Whether the body is JSON.
    pub is_json: bool,
}

/// A document to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The body; JSON is recognised.
    pub body: Vec<u8>,
    /// What is kept beside it for clients.
    pub flags: u32,
    /// Seconds from now up to 30 days, or since the Unix epoch; 0 for never.
    pub expiry: u32,
}

impl From<&str> for Content {
    fn from(body: &str) -> Content {
        Content { body: body.into(), ..Content::default() }
    }
}

/// A counter after it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its value.
    pub value: u64,
    /// The version of its document.
    pub cas: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such document.
    #[error("there is no such document")]
    NotFound,
    /// There is one already.
    #[error("there is such a document already")]
    Exists,
    /// The document has another version.
    #[error("the document has another version")]
    CasMismatch,
    /// Key or body are too large.
    #[error("key or body are too large")]
    TooLarge,
    /// A client holds the lock of the document.
    #[error("the document is locked")]
    Locked,
    /// The same call may succeed later.
    #[error("{0}")]
    Temporary(String),
    /// The keyspace does not exist or is not granted.
    #[error("{0}")]
    Denied(String),
    /// The document or key is not of the kind that is needed.
    #[error("{0}")]
    Invalid(String),
}

/// The document at `key`.
///
/// # Errors
/// Why there is none; so for all functions here.
pub fn get(keyspace: &str, key: &[u8]) -> Result<Document, Error> {
    outside::get(keyspace, key)
}

/// The documents at `keys`, in that order; at most 1024 of them.
pub fn get_many(keyspace: &str, keys: &[Vec<u8>]) -> Vec<Result<Document, Error>> {
    outside::get_many(keyspace, keys)
}

/// Stores a document where there is none; gives its version.
pub fn insert(keyspace: &str, key: &[u8], content: &Content) -> Result<u64, Error> {
    outside::insert(keyspace, key, content)
}

/// Stores a document, whatever is there; gives its version.
pub fn upsert(keyspace: &str, key: &[u8], content: &Content) -> Result<u64, Error> {
    outside::upsert(keyspace, key, content)
}

/// Stores a document where there is one, of the version `cas` when that is given; gives its new version.
pub fn replace(
    keyspace: &str,
    key: &[u8],
    content: &Content,
    cas: Option<u64>,
) -> Result<u64, Error> {
    outside::replace(keyspace, key, content, cas)
}

/// Deletes a document, of the version `cas` when that is given; gives the version of its tombstone.
pub fn remove(keyspace: &str, key: &[u8], cas: Option<u64>) -> Result<u64, Error> {
    outside::remove(keyspace, key, cas)
}

/// Adds `delta` to a counter, which stops at 0. Where there is none, `initial` becomes one with `expiry`.
pub fn counter(
    keyspace: &str,
    key: &[u8],
    delta: i64,
    initial: Option<u64>,
    expiry: u32,
) -> Result<Counted, Error> {
    outside::counter(keyspace, key, delta, initial, expiry)
}
