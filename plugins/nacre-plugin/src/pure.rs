//! What plugins of the worlds `resolver`, `functions` and `index-type` implement: no state, and equal arguments give equal results.

use crate::{Events, Fault};

/// One of two versions of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The body, without extended attributes; empty when it was deleted.
    pub body: Vec<u8>,
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The version.
    pub cas: u64,
    /// How often the document was changed.
    pub rev: u64,
    /// What clients say about the format of the body.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// 1 when the body is JSON, else 0.
    pub datatype: u8,
}

/// Which version is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The one that is here.
    KeepLocal,
    /// The one that arrived.
    KeepRemote,
    /// A body made of both.
    Merged(Vec<u8>),
}

/// Decides between versions of documents. Both sides of a replication ask, each with its own version as `local`: they
/// must come to the same.
pub trait Resolver: Sized {
    /// What this plugin is: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the deployment that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] when the configuration cannot be deployed.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Decides.
    ///
    /// # Errors
    /// [`Fault`] when it cannot: the version that arrives is refused for the time being.
    fn resolve(&mut self, key: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault>;
}

/// Functions for queries.
pub trait Functions: Sized {
    /// What this plugin is: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the deployment that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] when the configuration cannot be deployed.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Calls the function `name` with `arguments`, a JSON array; gives its result as JSON.
    ///
    /// # Errors
    /// [`Fault::Reject`] when there is no such function, or it refuses its arguments.
    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault>;
}

/// An entry of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// The event whose document it comes from: [`crate::Event::index`].
    pub event: u32,
    /// Where it stands: keys are compared as bytes. At most 8 KiB.
    pub key: Vec<u8>,
    /// What is kept beside the key.
    pub value: Vec<u8>,
}

/// A kind of index: what it makes of documents. The host keeps the entries, removes those of a document's earlier
/// versions, and scans them.
pub trait IndexType: Sized {
    /// What this plugin is: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the index that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] when there can be no such index.
    fn init(config: &str) -> Result<Self, Fault>;

    /// All entries of some documents; those that are gone have none.
    ///
    /// # Errors
    /// [`Fault`] when the batch as a whole could not be taken. A document that cannot be indexed has no entries.
    fn project(&mut self, events: &Events<'_>) -> Result<Vec<IndexEntry>, Fault>;
}
