//! Capability `kv`: documents.
//!
//! A keyspace is `scope.collection`, or `bucket.scope.collection` in another bucket; the empty string is the
//! deployment's own. Writes take effect immediately: a call that is repeated because it or the node failed writes
//! again.

use super::outside;

/// A document that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The body, without extended attributes.
    pub body: Vec<u8>,
    /// The CAS.
    pub cas: u64,
    /// The flags by which clients describe the format of the body.
    pub flags: u32,
    /// The expiry in seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// True if the body is JSON.
    pub is_json: bool,
}

/// A document to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The body; the host recognises JSON.
    pub body: Vec<u8>,
    /// The flags, which are stored with the body for clients.
    pub flags: u32,
    /// The expiry: up to 30 days in seconds from now, or seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
}

impl From<&str> for Content {
    fn from(body: &str) -> Content {
        Content { body: body.into(), ..Content::default() }
    }
}

/// A counter after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The value.
    pub value: u64,
    /// The CAS of the document.
    pub cas: u64,
}

/// The operation of a lookup at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOperation {
    /// The JSON at the path.
    Get,
    /// An empty value, or an error if the path does not exist.
    Exists,
    /// The number of elements or members, in decimal.
    Count,
    /// The whole body. The path must be empty.
    Document,
}

/// One part of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSpec {
    /// The operation.
    pub operation: LookupOperation,
    /// The path, such as `a.b[0]`.
    pub path: String,
    /// True if the path begins with the name of an extended attribute.
    pub xattr: bool,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The CAS of the document.
    pub cas: u64,
    /// The result of each part, or the reason why it failed.
    pub results: Vec<Result<Vec<u8>, String>>,
}

/// The operation of a mutation at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutateOperation {
    /// Adds a member that must not exist.
    Insert,
    /// Sets a member.
    Upsert,
    /// Replaces a value that must exist.
    Replace,
    /// Removes a value.
    Remove,
    /// Appends elements to an array.
    ArrayAppend,
    /// Prepends elements to an array.
    ArrayPrepend,
    /// Inserts elements before the element at the path.
    ArrayInsert,
    /// Adds an element unless the array has it.
    ArrayAddUnique,
    /// Adds to a number and returns the sum.
    Counter,
    /// Replaces the whole body by the value. The path must be empty.
    SetDocument,
    /// Removes the document and keeps attributes whose names begin with `_`. The path must be empty.
    RemoveDocument,
}

/// One part of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutateSpec {
    /// The operation.
    pub operation: MutateOperation,
    /// The path.
    pub path: String,
    /// The operand: JSON; any bytes for [`MutateOperation::SetDocument`]; empty to remove.
    pub value: Vec<u8>,
    /// True if the path begins with the name of an extended attribute. Such parts must come first.
    pub xattr: bool,
    /// True to create missing parents.
    pub create_path: bool,
    /// True to expand a macro such as `"${Mutation.CAS}"` in the value; only for extended attributes.
    pub expand_macros: bool,
}

/// The condition that a write sets on the existing document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No document may exist.
    Insert,
    /// No condition.
    Upsert,
    /// A document must exist, with this CAS if one is given.
    Replace(Option<u64>),
}

/// Options of a mutation that apply to the whole document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutateOptions {
    /// The condition on the existing document.
    pub mode: Mode,
    /// The expiry, as in [`Content::expiry`]; `None` keeps the current one.
    pub expiry: Option<u32>,
    /// The flags, as in [`Content::flags`]; `None` keeps the current ones.
    pub flags: Option<u32>,
}

/// The result of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The new CAS of the document.
    pub cas: u64,
    /// The new value of each counter, with the position of its part.
    pub results: Vec<(u8, Vec<u8>)>,
}

/// The result of a lookup that also sees deleted documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAny {
    /// The CAS of the document or of its tombstone.
    pub cas: u64,
    /// True for a tombstone, which has no body and keeps the attributes whose names begin with `_`.
    pub deleted: bool,
    /// The result of each part, or the reason why it failed.
    pub results: Vec<Result<Vec<u8>, String>>,
}

/// Effect of a mutation on a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TombstoneUse {
    /// A tombstone remains a tombstone; only its attributes change.
    Keep,
    /// A tombstone is created if neither a document nor a tombstone exists; requires [`Mode::Insert`].
    Create,
    /// The tombstone becomes a document and keeps its attributes; requires [`Mode::Replace`].
    Revive,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The document does not exist.
    #[error("there is no such document")]
    NotFound,
    /// The document exists.
    #[error("there is such a document already")]
    Exists,
    /// The document has another CAS.
    #[error("the document has another version")]
    CasMismatch,
    /// The key or the body is too large.
    #[error("key or body are too large")]
    TooLarge,
    /// A client has locked the document.
    #[error("the document is locked")]
    Locked,
    /// The same call may succeed later.
    #[error("{0}")]
    Temporary(String),
    /// The keyspace does not exist or is not granted.
    #[error("{0}")]
    Denied(String),
    /// The document or key is not valid for the call.
    #[error("{0}")]
    Invalid(String),
    /// A part of a mutation cannot be carried out; the text has the reason and the part.
    #[error("{0}")]
    Path(String),
}

/// Returns the document at `key`.
///
/// # Errors
/// Fails as described by [`Error`]; the same applies to all functions here.
pub fn get(keyspace: &str, key: &[u8]) -> Result<Document, Error> {
    outside::get(keyspace, key)
}

/// Returns the documents at `keys`, in the same order; at most 1024 keys.
pub fn get_many(keyspace: &str, keys: &[Vec<u8>]) -> Vec<Result<Document, Error>> {
    outside::get_many(keyspace, keys)
}

/// Stores a document that must not exist. Returns its CAS.
pub fn insert(keyspace: &str, key: &[u8], content: &Content) -> Result<u64, Error> {
    outside::insert(keyspace, key, content)
}

/// Stores a document and replaces an existing one. Returns its CAS.
pub fn upsert(keyspace: &str, key: &[u8], content: &Content) -> Result<u64, Error> {
    outside::upsert(keyspace, key, content)
}

/// Stores a document that must exist, with CAS `cas` if it is given. Returns the new CAS.
pub fn replace(
    keyspace: &str,
    key: &[u8],
    content: &Content,
    cas: Option<u64>,
) -> Result<u64, Error> {
    outside::replace(keyspace, key, content, cas)
}

/// Deletes a document, which must have CAS `cas` if it is given. Returns the CAS of the tombstone.
pub fn remove(keyspace: &str, key: &[u8], cas: Option<u64>) -> Result<u64, Error> {
    outside::remove(keyspace, key, cas)
}

/// Adds `delta` to a counter, which never falls below 0. A missing counter is created with the value `initial` and
/// `expiry`.
pub fn counter(
    keyspace: &str,
    key: &[u8],
    delta: i64,
    initial: Option<u64>,
    expiry: u32,
) -> Result<Counted, Error> {
    outside::counter(keyspace, key, delta, initial, expiry)
}

/// Sets the expiry of a document, as in [`Content::expiry`]. Returns the new CAS.
pub fn touch(keyspace: &str, key: &[u8], expiry: u32) -> Result<u64, Error> {
    outside::touch(keyspace, key, expiry)
}

/// Reads parts of a document; at most 16.
pub fn lookup_in(keyspace: &str, key: &[u8], specs: &[LookupSpec]) -> Result<Looked, Error> {
    outside::lookup_in(keyspace, key, specs)
}

/// Changes parts of a document, at most 16: either all of them or none.
pub fn mutate_in(
    keyspace: &str,
    key: &[u8],
    specs: &[MutateSpec],
    options: MutateOptions,
) -> Result<Mutated, Error> {
    outside::mutate_in(keyspace, key, specs, options)
}

/// Reads parts of a document, or of its tombstone until that is purged; at most 16.
pub fn lookup_in_any(keyspace: &str, key: &[u8], specs: &[LookupSpec]) -> Result<LookedAny, Error> {
    outside::lookup_in_any(keyspace, key, specs)
}

/// Changes parts of a document or of its tombstone, at most 16: either all of them or none. For the mode, a tombstone
/// counts as a document.
pub fn mutate_in_any(
    keyspace: &str,
    key: &[u8],
    specs: &[MutateSpec],
    options: MutateOptions,
    tombstone: TombstoneUse,
) -> Result<Mutated, Error> {
    outside::mutate_in_any(keyspace, key, specs, options, tombstone)
}
