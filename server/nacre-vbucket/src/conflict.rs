//! Conflict resolution: decides which of two versions from different clusters is kept.
//!
//! The comparison is a total order on metadata, so every cluster that has seen the same versions keeps the same one.
//! Source: conflict resolution of the XDCR protocol (set and delete "with meta").

use crate::command::Refusal;
use nacre_types::{Cas, DATATYPE_XATTR, Document, Kind, Meta, Now, Seqno};
use nacre_value::crc32c;
use nacre_value::xattr::{self, Xattrs};

/// Maximum difference between a CAS and the clock, in nanoseconds: 65 minutes. An accepted CAS is a lower bound for all
/// later ones.
const DRIFT_NS_MAX: u64 = 65 * 60 * 1_000_000_000;

/// The rule that decides which of two versions of a document is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The version with more changes is kept.
    Seqno,
    /// The version that was changed last is kept.
    LastWriteWins,
}

impl Resolution {
    /// Returns true if `incoming` replaces `local`. If both are equal, `local` is kept.
    ///
    /// If count and time are equal, an incoming document is also compared by expiry, by flags and by whether it has
    /// attributes, even with a tombstone; an incoming deletion is not. Source: Couchbase's key-value engine.
    pub fn takes(self, incoming: &Meta, local: &Meta) -> bool {
        let (counts, clocks) = (incoming.rev.cmp(&local.rev), incoming.cas.cmp(&local.cas));
        let first = match self {
            Resolution::Seqno => counts.then(clocks),
            Resolution::LastWriteWins => clocks.then(counts),
        };
        if incoming.kind != Kind::Alive {
            return first.is_gt();
        }
        let attributes = |meta: &Meta| meta.datatype & DATATYPE_XATTR != 0;
        let order = first.then(incoming.expiry.cmp(&local.expiry));
        let order = order.then(incoming.flags.cmp(&local.flags));
        order.then(attributes(incoming).cmp(&attributes(local))).is_gt()
    }
}

/// A version of a document as resolvers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The body without extended attributes; empty for a tombstone.
    pub body: Vec<u8>,
    /// True for a tombstone.
    pub is_deleted: bool,
    /// CAS of the version.
    pub cas: Cas,
    /// Number of changes of the document.
    pub rev: u64,
    /// Format of the body, set by clients.
    pub flags: u32,
    /// Expiry in seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// True if the body is JSON.
    pub is_json: bool,
}

/// The versions that went into a version, as resolvers see them. A source is a bucket of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionHistory {
    /// Source of the version.
    pub source: String,
    /// CAS that the source gave it.
    pub cas: Cas,
    /// Versions that were merged into it, by source; empty unless it is a merge.
    pub merged: Vec<(String, Cas)>,
    /// The newest known version of each other source.
    pub previous: Vec<(String, Cas)>,
}

/// Facts about a conflict for resolvers, besides the key and the two versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConflictContext {
    /// Scope of the document; empty if the collection was dropped.
    pub scope: String,
    /// Collection of the document; empty if it was dropped.
    pub collection: String,
    /// The bucket that asks, as a source in histories; empty if it keeps no histories.
    pub here: String,
    /// History of the local version, if known.
    pub local: Option<VersionHistory>,
    /// History of the incoming version, if known.
    pub remote: Option<VersionHistory>,
    /// The newest version that went into both, if the bucket still keeps it.
    pub base: Option<Version>,
}

impl ConflictContext {
    /// Returns the facts as the other side of the replication sees them, whose bucket is `there`.
    #[must_use]
    pub fn swapped(&self, there: &str) -> ConflictContext {
        ConflictContext {
            here: there.to_owned(),
            local: self.remote.clone(),
            remote: self.local.clone(),
            ..self.clone()
        }
    }
}

/// A resolver's decision between two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keep the local version.
    KeepLocal,
    /// Keep the incoming version.
    KeepRemote,
    /// Keep a body merged from both.
    Merged(Vec<u8>),
}

/// A version that is compared by value, because its metadata equal those of another version.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The metadata.
    pub meta: &'a Meta,
    /// The section of extended attributes; empty if there are none.
    pub xattrs: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

impl Content<'_> {
    /// Returns true if this version replaces `local`, although neither [takes](Resolution::takes) the place of the
    /// other.
    ///
    /// Two clusters that write the same document at the same time give it the same CAS, because clocks tick every 65
    /// µs. A deletion ranks above a document. Deletions are ordered by their times; documents are ordered by the
    /// checksum of the body, then by the body, then by the attributes of clients. Every cluster that compares values
    /// therefore keeps the same version.
    pub fn outranks(self, local: Content<'_>) -> bool {
        let order = self.rank().cmp(&local.rank());
        order.then_with(|| self.attributes().cmp(&local.attributes())).is_gt()
    }

    fn rank(&self) -> (u8, u32, u32, u32, &[u8]) {
        let Meta { kind, expiry, flags, .. } = *self.meta;
        match kind {
            Kind::Alive => (0, expiry, flags, crc32c(self.body), self.body),
            Kind::Deleted => (1, expiry, flags, 0, &[]),
            Kind::Expired | Kind::Aborted => (2, expiry, flags, 0, &[]),
        }
    }

    /// Returns the attributes of clients. Attributes that servers write about a version are excluded.
    fn attributes(&self) -> Vec<u8> {
        if self.meta.kind != Kind::Alive {
            return Vec::new();
        }
        let all = Xattrs::parse(self.xattrs).unwrap_or_default();
        let mut kept = Xattrs::default();
        for (name, value) in all.iter().filter(|(name, _)| !xattr::is_system(name)) {
            kept.set(name, value).expect("they were attributes before");
        }
        kept.encode()
    }
}

/// Identifies one version of a document among all versions that this vBucket has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    seqno: Seqno,
    cas: Cas,
    rev: u64,
}

impl From<&Meta> for Seen {
    fn from(&Meta { seqno, cas, rev, .. }: &Meta) -> Seen {
        Seen { seqno, cas, rev }
    }
}

/// Decides whether a version from another cluster replaces the local one, tombstones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The incoming version always replaces the local one.
    Always,
    /// The incoming version replaces the local one if it is greater.
    Greater(Resolution),
    /// A resolver saw the local version, or saw that there was none, and decided that the incoming version replaces it.
    /// If the local version has changed since, the incoming one is refused with [`Refusal::Conflict`].
    Over(Option<Seen>),
}

impl Rule {
    fn check(self, incoming: &Meta, local: Option<&Meta>) -> Result<(), Refusal> {
        match (self, local) {
            (Rule::Greater(resolution), Some(local)) if !resolution.takes(incoming, local) => {
                Err(Refusal::Exists)
            }
            (Rule::Over(seen), local) if seen != local.map(Seen::from) => Err(Refusal::Conflict),
            _ => Ok(()),
        }
    }
}

/// Returns true if a version may be stored with its own CAS.
pub(crate) fn has_valid_cas(version: &Meta, now: Now) -> bool {
    let is_too_far = version.cas.unix_ns() > now.unix_ns.saturating_add(DRIFT_NS_MAX);
    version.cas != Cas::ANY && version.cas != Cas::LOCKED && !is_too_far
}

/// Decides whether a version with this value replaces the local one.
pub(crate) fn admit(
    rule: Rule,
    version: &Meta,
    value: &[u8],
    local: Option<&Document>,
) -> Result<(), Refusal> {
    match rule.check(version, local.map(|local| &local.meta)) {
        Err(Refusal::Exists) => outranks(rule, version, value, local),
        checked => checked,
    }
}

/// Compares a version by value if its metadata are neither greater nor less than the local ones.
fn outranks(
    rule: Rule,
    version: &Meta,
    value: &[u8],
    local: Option<&Document>,
) -> Result<(), Refusal> {
    let (Rule::Greater(resolution), Some(local)) = (rule, local) else {
        return Err(Refusal::Exists);
    };
    if resolution.takes(&local.meta, version) {
        return Err(Refusal::Exists);
    }
    if !local.is_resident() {
        return Err(Refusal::NotResident);
    }
    let (xattrs, body) = match version.datatype & DATATYPE_XATTR {
        0 => (&[][..], value),
        _ => xattr::split(value).ok_or(Refusal::Invalid)?,
    };
    let content = Content { meta: version, xattrs, body };
    let (xattrs, body) = (local.xattrs(), local.body());
    match content.outranks(Content { meta: &local.meta, xattrs, body }) {
        true => Ok(()),
        false => Err(Refusal::Exists),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(rev: u64, cas: u64, expiry: u32, kind: Kind) -> Meta {
        Meta { rev, cas: Cas(cas), expiry, kind, ..Meta::default() }
    }

    #[test]
    fn a_decision_holds_for_the_version_that_was_seen() {
        let (incoming, local) = (meta(2, 5, 0, Kind::Alive), meta(1, 9, 0, Kind::Alive));
        let later = Meta { seqno: Seqno(7), ..local };
        let over =
            |seen: Option<&Meta>, there| Rule::Over(seen.map(Seen::from)).check(&incoming, there);
        assert_eq!(over(None, None), Ok(()));
        assert_eq!(over(Some(&local), Some(&local)), Ok(()));
        for (seen, there) in
            [(None, Some(&local)), (Some(&local), None), (Some(&local), Some(&later))]
        {
            assert_eq!(over(seen, there), Err(Refusal::Conflict));
        }
    }

    /// Two clusters wrote the same document within one tick of their clocks.
    #[test]
    fn versions_with_equal_metadata_are_ordered_by_their_values() {
        let alive = meta(2, 5, 0, Kind::Alive);
        let attributed = Meta { datatype: DATATYPE_XATTR, ..alive };
        let (deleted, later) = (meta(2, 5, 7, Kind::Deleted), meta(2, 5, 8, Kind::Deleted));
        let section = |name: &str, value: &str| {
            let mut attributes = Xattrs::default();
            attributes.set(name, value.as_bytes()).unwrap();
            attributes.encode()
        };
        let (one, two, system) = (section("a", "1"), section("a", "2"), section("_a", "3"));
        let plain =
            |body: &'static str| Content { meta: &alive, xattrs: &[], body: body.as_bytes() };
        let with = |xattrs| Content { meta: &attributed, xattrs, body: b"x" };
        let versions = [
            plain("x"),
            plain("y"),
            plain(""),
            with(&one),
            with(&two),
            Content { meta: &deleted, xattrs: &[], body: b"" },
            Content { meta: &later, xattrs: &[], body: b"" },
        ];
        for (number, left) in versions.iter().enumerate() {
            for (other, right) in versions.iter().enumerate() {
                let replaced = [left.outranks(*right), right.outranks(*left)];
                assert_eq!(replaced.contains(&true), number != other, "{left:?} {right:?}");
                assert_ne!(replaced, [true, true], "{left:?} {right:?}");
            }
        }
        assert!(!with(&system).outranks(plain("x")) && !plain("x").outranks(with(&system)));
    }

    /// The same version is kept, regardless of the order in which versions arrive.
    #[test]
    fn versions_that_arrive_in_any_order_leave_the_same_one() {
        let versions = [
            meta(1, 9, 0, Kind::Alive),
            meta(2, 5, 0, Kind::Deleted),
            meta(2, 5, 7, Kind::Alive),
            meta(2, 5, 8, Kind::Alive),
            Meta { datatype: DATATYPE_XATTR, ..meta(2, 5, 8, Kind::Alive) },
            meta(2, 4, 0, Kind::Alive),
        ];
        for resolution in [Resolution::Seqno, Resolution::LastWriteWins] {
            for first in &versions {
                for second in &versions {
                    assert!(
                        !(resolution.takes(first, second) && resolution.takes(second, first)),
                        "{resolution:?}: {first:?} and {second:?} replace each other for ever"
                    );
                }
                assert!(!resolution.takes(first, first), "the same version changes nothing");
            }
        }
        let flagged = Meta { flags: 1, ..meta(2, 5, 0, Kind::Alive) };
        assert!(Resolution::Seqno.takes(&flagged, &versions[1]), "flags count against a tombstone");
        let with_attributes = |kind| Meta { datatype: DATATYPE_XATTR, ..meta(2, 5, 8, kind) };
        let (deleted, set) = (with_attributes(Kind::Deleted), with_attributes(Kind::Alive));
        assert!(
            !Resolution::Seqno.takes(&deleted, &versions[3]),
            "attributes of a deletion do not"
        );
        assert!(Resolution::Seqno.takes(&set, &versions[3]));
        assert!(Resolution::Seqno.takes(&versions[2], &versions[0]));
        assert!(!Resolution::LastWriteWins.takes(&versions[2], &versions[0]));
    }
}
