//! Versions from elsewhere: which of two stays, and how one is taken over.
//!
//! The comparison is a total order on metadata, so that every cluster that has seen the same versions keeps the same
//! one. Source: conflict resolution as the XDCR protocol has it (set and delete "with meta").

use crate::command::{Command, Refusal, Reply};
use crate::vbucket::{Vbucket, Write};
use nacre_types::{Cas, DATATYPE_XATTR, Kind, Meta, Now, Seqno};

/// How far ahead of the clock a CAS may be, in nanoseconds: 65 minutes. Taken over, it would be the least for all that
/// follow.
const DRIFT_NS_MAX: u64 = 65 * 60 * 1_000_000_000;

/// Which of two versions of a document stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The one that was changed more often.
    Seqno,
    /// The one that was changed last.
    LastWriteWins,
}

impl Resolution {
    /// Returns true if `incoming` replaces `local`. If both are equal, `local` stays.
    ///
    /// Where count and time are the same, a document that arrives is also compared by expiry, flags and whether it has attributes, with a
    /// tombstone as well; a deletion that arrives is not. Source: Couchbase's key-value engine.
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

/// A version of a document, as resolvers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The body, without extended attributes; empty when it was deleted.
    pub body: Vec<u8>,
    /// True for a tombstone.
    pub is_deleted: bool,
    /// The version.
    pub cas: Cas,
    /// How often the document was changed.
    pub rev: u64,
    /// Flags of the client about the format of the body.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// True if the body is JSON.
    pub is_json: bool,
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

/// Identifies one version of a document among all that this vBucket has had.
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
    /// It always does.
    Always,
    /// It does if it is the greater version.
    Greater(Resolution),
    /// A resolver has seen both versions, or found no local one, and has decided that it does. If the local version has
    /// changed since, it is refused as a [`Refusal::Conflict`].
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

impl Vbucket {
    pub(crate) fn store_version(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let Command::StoreVersion { version, value, add, cas, rule, regenerate_cas } = *command
        else {
            return Err(Refusal::Invalid);
        };
        let current = self.peek(key, now);
        if add && current.is_some() {
            return Err(Refusal::Exists);
        }
        self.check_cas(key, current.as_ref(), cas, now)?;
        let too_far = version.cas.unix_ns() > now.unix_ns.saturating_add(DRIFT_NS_MAX);
        if version.cas == Cas::ANY || version.cas == Cas::LOCKED || too_far {
            return Err(Refusal::CasInvalid);
        }
        rule.check(&version, self.find(key).map(|local| &local.meta))?;
        if regenerate_cas {
            self.raise_max_cas(version.cas);
        }
        let origin = Some((if regenerate_cas { None } else { Some(version.cas) }, version.rev));
        let Meta { flags, expiry, datatype, kind, .. } = version;
        let expiry = if kind != Kind::Alive && expiry == 0 { now.unix_s() } else { expiry };
        self.write(key, Write { value, flags, expiry, datatype, kind, origin }, now)
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

    /// Whatever the order in which versions arrive, the same one stays.
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
