//! The traits of plugins of the worlds `resolver`, `functions` and `index-type`: they have no state, and equal arguments give
//! equal results.

use crate::{DATATYPE_JSON, Events, Fault};
use std::cmp::Ordering;

/// A version of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The body, without extended attributes; empty for a tombstone.
    pub body: Vec<u8>,
    /// True for a tombstone.
    pub deleted: bool,
    /// The CAS.
    pub cas: u64,
    /// The revision: the number of changes of the document.
    pub rev: u64,
    /// The flags by which clients describe the format of the body.
    pub flags: u32,
    /// The expiry in seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// 1 if the body is JSON, else 0.
    pub datatype: u8,
}

impl Version {
    /// Returns true if the body is a JSON object.
    pub fn is_object(&self) -> bool {
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        !self.deleted && self.datatype == DATATYPE_JSON && first == Some(&b'{')
    }
}

/// The version that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The local version.
    KeepLocal,
    /// The incoming version.
    KeepRemote,
    /// A new body, merged from both.
    Merged(Vec<u8>),
}

impl Verdict {
    /// Returns the verdict that keeps the newer version: the one with the greater CAS or, if these are equal, with the greater
    /// revision, other metadata and body. Both sides keep the same version.
    pub fn newer(local: &Version, remote: &Version) -> Verdict {
        let order = |version: &Version| {
            let Version { cas, rev, deleted, flags, expiry, .. } = *version;
            (cas, rev, deleted, flags, expiry)
        };
        match order(local).cmp(&order(remote)).then_with(|| local.body.cmp(&remote.body)) {
            Ordering::Less => Verdict::KeepRemote,
            Ordering::Equal | Ordering::Greater => Verdict::KeepLocal,
        }
    }
}

/// Decides between versions of documents. Both sides of a replication ask, each with its version as `local`, and must reach the
/// same decision.
pub trait Resolver: Sized {
    /// Returns a description of the plugin: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the deployment that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] if the configuration cannot be deployed.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Decides between two versions.
    ///
    /// # Errors
    /// [`Fault`] if it cannot decide; the incoming version is then refused for the time being.
    fn resolve(&mut self, key: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault>;
}

/// Functions for queries.
pub trait Functions: Sized {
    /// Returns a description of the plugin: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the deployment that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] if the configuration cannot be deployed.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Calls the function `name` with `arguments`, a JSON array. Returns its result as JSON.
    ///
    /// # Errors
    /// [`Fault::Reject`] if the function does not exist or refuses its arguments.
    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault>;
}

/// An index entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// The event of its document: [`crate::Event::index`].
    pub event: u32,
    /// The key, at most 8 KiB; keys are compared as bytes.
    pub key: Vec<u8>,
    /// The value of the entry.
    pub value: Vec<u8>,
}

/// A kind of index, defined by the entries that it derives from documents. The host stores the entries, removes those of a
/// document's earlier versions, and scans them.
pub trait IndexType: Sized {
    /// Returns a description of the plugin: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the index that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] if the index is not possible.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Returns all entries of the documents in a batch; deleted documents have none.
    ///
    /// # Errors
    /// [`Fault`] if the batch as a whole could not be processed. A document that cannot be indexed has no entries.
    fn project(&mut self, events: &Events<'_>) -> Result<Vec<IndexEntry>, Fault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_keep_the_newer_version() {
        let version = |cas, body: &str| Version { cas, body: body.into(), ..Version::default() };
        let (older, newer, other) = (version(1, "b"), version(2, "a"), version(2, "b"));
        for (less, greater) in [(&older, &newer), (&newer, &other)] {
            assert_eq!(Verdict::newer(less, greater), Verdict::KeepRemote);
            assert_eq!(Verdict::newer(greater, less), Verdict::KeepLocal);
        }
        assert_eq!(Verdict::newer(&other, &other.clone()), Verdict::KeepLocal);
    }

    #[test]
    fn only_living_json_objects_are_objects() {
        let object = Version { body: b" {}".into(), datatype: 1, ..Version::default() };
        assert!(object.is_object());
        for other in [
            Version { body: b"[{}]".into(), ..object.clone() },
            Version { body: Vec::new(), ..object.clone() },
            Version { datatype: 0, ..object.clone() },
            Version { deleted: true, ..object },
        ] {
            assert!(!other.is_object(), "{other:?}");
        }
    }
}
