//! Capability `kv`: documents.
//!
//! A keyspace is `scope.collection`, or `bucket.scope.collection` in another bucket; the empty string is the deployment's
//! own. What is written takes effect at once: a call that is made again, because it failed or the node did, writes again.

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

/// What is read at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOperation {
    /// The JSON there.
    Get,
    /// Nothing, and an error when there is no value.
    Exists,
    /// How many elements or members there are, in decimal.
    Count,
    /// The whole body. The path is empty.
    Document,
}

/// One part of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSpec {
    /// What is read.
    pub operation: LookupOperation,
    /// Where, as in `a.b[0]`.
    pub path: String,
    /// Whether the path begins with the name of an extended attribute.
    pub xattr: bool,
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The version of the document.
    pub cas: u64,
    /// What each part gives, or why it does not.
    pub results: Vec<Result<Vec<u8>, String>>,
}

/// What is done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutateOperation {
    /// Adds a member that must not be there.
    Insert,
    /// Sets a member.
    Upsert,
    /// Replaces a value that must be there.
    Replace,
    /// Removes a value.
    Remove,
    /// Adds elements at the end of an array.
    ArrayAppend,
    /// Adds elements at the start of an array.
    ArrayPrepend,
    /// Adds elements before the one that the path names.
    ArrayInsert,
    /// Adds an element that is not there yet.
    ArrayAddUnique,
    /// Adds to a number; gives the sum.
    Counter,
    /// Makes the value the whole body. The path is empty.
    SetDocument,
    /// Removes the document; attributes whose names begin with `_` stay. The path is empty.
    RemoveDocument,
}

/// One part of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutateSpec {
    /// What is done.
    pub operation: MutateOperation,
    /// Where.
    pub path: String,
    /// With what: JSON, any bytes for [`MutateOperation::SetDocument`], nothing to remove.
    pub value: Vec<u8>,
    /// Whether the path begins with the name of an extended attribute. Such parts come first.
    pub xattr: bool,
    /// Whether missing parents are made.
    pub create_path: bool,
    /// Whether the value is a macro such as `"${Mutation.CAS}"`; only of attributes.
    pub expand_macros: bool,
}

/// What must be there for a document to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No document.
    Insert,
    /// Anything or nothing.
    Upsert,
    /// A document, of that version when one is given.
    Replace(Option<u64>),
}

/// How a mutation treats the document as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutateOptions {
    /// What must be there.
    pub mode: Mode,
    /// When it expires, as for [`Content::expiry`]; none leaves that as it is.
    pub expiry: Option<u32>,
    /// What is kept beside the body for clients; none leaves that as it is.
    pub flags: Option<u32>,
}

/// What a mutation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The new version of the document.
    pub cas: u64,
    /// The new value of each counter, with the position of its part.
    pub results: Vec<(u8, Vec<u8>)>,
}

/// What a lookup found that also sees deleted documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAny {
    /// The version of the document or of its tombstone.
    pub cas: u64,
    /// True for a tombstone, which has no body and keeps the attributes whose names begin with `_`.
    pub deleted: bool,
    /// The value of each part, or why there is none.
    pub results: Vec<Result<Vec<u8>, String>>,
}

/// Effect of a mutation on a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TombstoneUse {
    /// A tombstone stays one: only its attributes change.
    Keep,
    /// Where there is neither a document nor a tombstone, a tombstone is created; with [`Mode::Insert`].
    Create,
    /// The tombstone becomes a document and keeps its attributes; with [`Mode::Replace`].
    Revive,
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
    /// A part of a mutation cannot be done: why, and which one.
    #[error("{0}")]
    Path(String),
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

/// Sets when a document expires, as for [`Content::expiry`]; gives its new version.
pub fn touch(keyspace: &str, key: &[u8], expiry: u32) -> Result<u64, Error> {
    outside::touch(keyspace, key, expiry)
}

/// Reads parts of a document, 16 at most.
pub fn lookup_in(keyspace: &str, key: &[u8], specs: &[LookupSpec]) -> Result<Looked, Error> {
    outside::lookup_in(keyspace, key, specs)
}

/// Changes parts of a document, 16 at most: all of them or none.
pub fn mutate_in(
    keyspace: &str,
    key: &[u8],
    specs: &[MutateSpec],
    options: MutateOptions,
) -> Result<Mutated, Error> {
    outside::mutate_in(keyspace, key, specs, options)
}

/// Reads parts of a document, or of the tombstone that is left of it until it is purged; 16 at most.
pub fn lookup_in_any(keyspace: &str, key: &[u8], specs: &[LookupSpec]) -> Result<LookedAny, Error> {
    outside::lookup_in_any(keyspace, key, specs)
}

/// Changes parts of a document or of its tombstone, 16 at most: all of them or none. To the mode a tombstone counts as a
/// document.
pub fn mutate_in_any(
    keyspace: &str,
    key: &[u8],
    specs: &[MutateSpec],
    options: MutateOptions,
    tombstone: TombstoneUse,
) -> Result<Mutated, Error> {
    outside::mutate_in_any(keyspace, key, specs, options, tombstone)
}
