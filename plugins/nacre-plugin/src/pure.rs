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
    /// Returns a version with a JSON body and this CAS, for tests.
    pub fn json(body: &str, cas: u64) -> Version {
        Version { body: body.into(), cas, datatype: DATATYPE_JSON, ..Version::default() }
    }

    /// Returns true if the body is a JSON object.
    pub fn is_object(&self) -> bool {
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        !self.deleted && self.datatype == DATATYPE_JSON && first == Some(&b'{')
    }
}

/// The versions that went into a version. A source is a bucket of a cluster, identified by 22 characters; a source identifies
/// each of its versions by the CAS that it gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The source of the version.
    pub source: String,
    /// The CAS that the source gave it.
    pub cas: u64,
    /// The versions that were merged into it, by source; empty unless it is a merge.
    pub merged: Vec<(String, u64)>,
    /// The newest known version of each other source.
    pub previous: Vec<(String, u64)>,
}

/// Two versions between which a resolver decides, and where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    /// The key of the document.
    pub key: Vec<u8>,
    /// The scope of the document; empty if the collection was dropped.
    pub scope: String,
    /// The collection of the document; empty if it was dropped.
    pub collection: String,
    /// The bucket that asks, as a source in histories; empty if the bucket keeps no histories.
    pub here: String,
    /// The local version.
    pub local: Version,
    /// The incoming version.
    pub remote: Version,
    /// The history of the local version; `None` if the version is older than histories.
    pub local_history: Option<History>,
    /// The history of the incoming version; `None` if it arrived without one.
    pub remote_history: Option<History>,
    /// The common ancestor: the newest version that went into both. `None` unless the bucket still keeps it, so one side can
    /// have it when the other one does not.
    pub base: Option<Version>,
}

impl Conflict {
    /// Returns the conflict between two versions without histories.
    pub fn between(local: &Version, remote: &Version) -> Conflict {
        Conflict { local: local.clone(), remote: remote.clone(), ..Conflict::default() }
    }

    /// Returns the conflict with this common ancestor.
    #[must_use]
    pub fn since(self, base: &Version) -> Conflict {
        Conflict { base: Some(base.clone()), ..self }
    }

    /// Returns the conflict as the other side sees it. Its bucket is the source of the incoming version.
    #[must_use]
    pub fn swapped(&self) -> Conflict {
        let there = self.remote_history.as_ref().map(|history| history.source.clone());
        Conflict {
            here: there.unwrap_or_default(),
            local: self.remote.clone(),
            remote: self.local.clone(),
            local_history: self.remote_history.clone(),
            remote_history: self.local_history.clone(),
            ..self.clone()
        }
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
    /// Returns the body that is kept: that of `local` or `remote`, or the merged one.
    pub fn body<'a>(&'a self, local: &'a Version, remote: &'a Version) -> &'a [u8] {
        match self {
            Verdict::KeepLocal => &local.body,
            Verdict::KeepRemote => &remote.body,
            Verdict::Merged(body) => body,
        }
    }

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

    /// Decides a conflict, of which the resolver also sees the histories of both versions and, if the bucket keeps it, their
    /// common ancestor. The host calls this method; without an implementation, [`Resolver::resolve`] decides.
    ///
    /// # Errors
    /// As [`Resolver::resolve`].
    fn resolve_conflict(&mut self, conflict: &Conflict) -> Result<Verdict, Fault> {
        self.resolve(&conflict.key, &conflict.local, &conflict.remote)
    }
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
    fn a_verdict_names_the_body_that_is_kept() {
        let (local, remote) = (Version::json("1", 1), Version::json("2", 2));
        let kept = |verdict: Verdict| verdict.body(&local, &remote).to_vec();
        assert_eq!(kept(Verdict::KeepLocal), b"1");
        assert_eq!(kept(Verdict::KeepRemote), b"2");
        assert_eq!(kept(Verdict::Merged(b"3".to_vec())), b"3");
    }

    #[test]
    fn the_other_side_sees_a_conflict_the_other_way_round() {
        let history =
            |source: &str| Some(History { source: source.into(), cas: 7, ..History::default() });
        let conflict = Conflict {
            here: "a".into(),
            local_history: history("a"),
            remote_history: history("b"),
            ..Conflict::between(&Version::json("1", 1), &Version::json("2", 2))
        };
        let conflict = conflict.since(&Version::json("0", 0));
        let swapped = conflict.swapped();
        assert_eq!((&swapped.here[..], &swapped.local), ("b", &conflict.remote));
        assert_eq!(swapped.base, conflict.base);
        assert_eq!(swapped.swapped(), conflict);
    }

    /// A resolver that does not look at histories decides conflicts too.
    #[test]
    fn a_resolver_without_histories_decides_by_the_versions() {
        struct Newer;
        impl Resolver for Newer {
            fn describe() -> String {
                String::new()
            }
            fn init(_: &str) -> Result<Newer, Fault> {
                Ok(Newer)
            }
            fn resolve(
                &mut self,
                _: &[u8],
                local: &Version,
                remote: &Version,
            ) -> Result<Verdict, Fault> {
                Ok(Verdict::newer(local, remote))
            }
        }
        let conflict = Conflict::between(&Version::json("1", 1), &Version::json("2", 2));
        assert_eq!(Newer.resolve_conflict(&conflict), Ok(Verdict::KeepRemote));
        assert_eq!(Newer.resolve_conflict(&conflict.swapped()), Ok(Verdict::KeepLocal));
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
