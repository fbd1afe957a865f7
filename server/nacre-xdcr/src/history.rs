//! Version histories: the versions of a document that went into its current version.
//!
//! A version is identified by its source and the CAS that the source gave it. A history has the current version, the
//! newest known version of each other source, and, for a merge, the merged versions.
//!
//! Worked example: `A` writes 10, `B` receives it and writes 20, while `A` writes 15.
//!
//! ```text
//! at A: (A 15)                          at B: (B 20) previous {A 10}
//! neither history contains the other's version: a conflict. A's resolver decides, at 30:
//! at A: (A 30) merged {A 15, B 20} previous {}
//! B's version does not contain A's. A's contains (B 20), so B takes A's version without asking.
//! ```

use crate::SourceId;
use nacre_types::Cas;
use nacre_vbucket::VersionHistory;
use std::collections::BTreeMap;

/// The newest known version of some sources.
pub type Versions = BTreeMap<SourceId, Cas>;

/// The relation of two histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Each contains the other.
    Equal,
    /// The first contains the second.
    Contains,
    /// The second contains the first.
    Contained,
    /// Neither contains the other.
    Conflict,
}

/// The history of one version of a document.
///
/// Invariant: `previous` has no entry that `merged` covers, or, in a history without a merge, that the current version
/// covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub(crate) source: SourceId,
    pub(crate) version: Cas,
    pub(crate) merged: Versions,
    pub(crate) previous: Versions,
}

impl History {
    /// Returns the history of a document that `source` wrote first.
    pub fn of_write(source: SourceId, version: Cas) -> History {
        History { source, version, merged: Versions::new(), previous: Versions::new() }
    }

    /// Returns the source of the current version.
    pub fn source(&self) -> &SourceId {
        &self.source
    }

    /// Returns the CAS of the current version at its source.
    pub fn version(&self) -> Cas {
        self.version
    }

    /// Returns the merged versions; empty when the current version is no merge.
    pub fn merged(&self) -> &Versions {
        &self.merged
    }

    /// Returns the newest known version of each other source.
    pub fn previous(&self) -> &Versions {
        &self.previous
    }

    /// Returns true if the current version joins others.
    pub fn is_merge(&self) -> bool {
        !self.merged.is_empty()
    }

    /// Returns the newest version of `source` in this history; [`Cas::ANY`] when it has none.
    pub fn newest_of(&self, source: &SourceId) -> Cas {
        let current = if self.source == *source { self.version } else { Cas::ANY };
        let listed = [&self.merged, &self.previous].map(|list| list.get(source).copied());
        listed.into_iter().flatten().fold(current, Cas::max)
    }

    /// Returns the newest listed version of `source`. The version number of a merge is not listed: other histories need
    /// not have it.
    pub(crate) fn listed_of(&self, source: &SourceId) -> Cas {
        let current = if self.is_merge() { Cas::ANY } else { self.version };
        let current = if self.source == *source { current } else { Cas::ANY };
        let listed = [&self.merged, &self.previous].map(|list| list.get(source).copied());
        listed.into_iter().flatten().fold(current, Cas::max)
    }

    /// Returns the version of `source` that represents this history in others; `None` if there is none.
    pub(crate) fn represented_by(&self, source: &SourceId) -> Option<Cas> {
        match self.is_merge() {
            true => self.merged.get(source).copied(),
            false => (self.source == *source).then_some(self.version),
        }
    }

    /// Returns true if this history has everything that went into `other`, including its current version unless that is a
    /// merge.
    ///
    /// The current version alone is not enough. A source that loses a version in a failover gives greater numbers to its
    /// later writes, although those do not account for what went into the lost version.
    pub fn contains(&self, other: &History) -> bool {
        let knows = |source: &SourceId, version: Cas| self.newest_of(source) >= version;
        let mut listed = other.merged.iter().chain(&other.previous);
        listed.all(|(source, version)| knows(source, *version))
            && (other.is_merge() || knows(&other.source, other.version))
    }

    /// Returns the relation of this history to `other`.
    pub fn relation(&self, other: &History) -> Relation {
        match (self.contains(other), other.contains(self)) {
            (true, true) => Relation::Equal,
            (true, false) => Relation::Contains,
            (false, true) => Relation::Contained,
            (false, false) => Relation::Conflict,
        }
    }

    /// Returns the versions that represent this history in its successor: the merged versions, or else the current
    /// version.
    fn represented(&self) -> Versions {
        match self.is_merge() {
            true => self.merged.clone(),
            false => Versions::from([(self.source.clone(), self.version)]),
        }
    }

    fn make(source: SourceId, version: Cas, merged: Versions, mut previous: Versions) -> History {
        // A history that contains a merge need not have the version number of the merge, so that number covers nothing of
        // its source.
        let is_own = |of: &SourceId, known: Cas| *of == source && version >= known;
        let is_merged = |of: &SourceId, known: Cas| merged.get(of).is_some_and(|v| *v >= known);
        let is_covered = |of: &SourceId, known: Cas| match merged.is_empty() {
            true => is_own(of, known),
            false => is_merged(of, known),
        };
        previous.retain(|of, known| !is_covered(of, *known));
        History { source, version, merged, previous }
    }

    /// Returns the history after `source` has written over this version.
    #[must_use]
    pub fn written_over(&self, source: SourceId, version: Cas) -> History {
        let mut previous = self.previous.clone();
        add_all(&mut previous, &self.represented());
        History::make(source, version, Versions::new(), previous)
    }

    /// Returns the history of a merge by `source` of this version and `other`.
    #[must_use]
    pub fn merge(&self, other: &History, source: SourceId, version: Cas) -> History {
        let mut merged = self.represented();
        add_all(&mut merged, &other.represented());
        let mut previous = self.previous.clone();
        add_all(&mut previous, &other.previous);
        History::make(source, version, merged, previous)
    }

    /// Returns the history of a decision by `source` between this version and `other`, as a write that accounts for both.
    ///
    /// A merge lists only one version of each source. That fails when both sides have a version of the same source from
    /// different branches, each unaware of the other: a history with the later version does not account for the merge.
    #[must_use]
    pub fn decided(&self, other: &History, source: SourceId, version: Cas) -> History {
        let mut previous = self.previous.clone();
        for versions in [&self.represented(), &other.previous, &other.represented()] {
            add_all(&mut previous, versions);
        }
        History::make(source, version, Versions::new(), previous)
    }

    /// Returns the history of this version when `source` stores it over `other`, which it contains, under a new CAS: a
    /// merge with one side only.
    #[must_use]
    pub fn adopted(&self, other: &History, source: SourceId, version: Cas) -> History {
        let mut previous = self.previous.clone();
        add_all(&mut previous, &other.previous);
        add_all(&mut previous, &other.represented());
        History::make(source, version, self.represented(), previous)
    }

    /// Returns the history in the form that resolvers receive.
    pub fn shown(&self) -> VersionHistory {
        let listed = |versions: &Versions| {
            versions.iter().map(|(source, cas)| (source.to_string(), *cas)).collect()
        };
        VersionHistory {
            source: self.source.to_string(),
            cas: self.version,
            merged: listed(&self.merged),
            previous: listed(&self.previous),
        }
    }

    /// Forgets the versions of other sources that are older than `before`.
    ///
    /// A forgotten version can look like a conflict later, so `before` must be older than the lag of any replication.
    pub fn prune(&mut self, before: Cas) {
        self.previous.retain(|_, version| *version >= before);
    }
}

/// Keeps the newer of two versions of each source.
fn add_all(into: &mut Versions, from: &Versions) {
    for (source, version) in from {
        let known = into.entry(source.clone()).or_default();
        *known = (*known).max(*version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SourceId {
        SourceId::parse(name).unwrap()
    }

    fn first(name: &str, version: u64) -> History {
        History::of_write(id(name), Cas(version))
    }

    #[test]
    fn the_example_of_the_module_holds() {
        let at_a = first("A", 10);
        let at_b = at_a.written_over(id("B"), Cas(20));
        assert_eq!(at_b.relation(&at_a), Relation::Contains);
        let at_a = at_a.written_over(id("A"), Cas(15));
        assert!(at_a.previous().is_empty(), "a source has one entry");
        assert_eq!(at_a.relation(&at_b), Relation::Conflict);
        let joined = at_a.merge(&at_b, id("A"), Cas(30));
        assert_eq!(joined.merged(), &Versions::from([(id("A"), Cas(15)), (id("B"), Cas(20))]));
        assert!(joined.previous().is_empty(), "{joined:?}");
        assert_eq!(joined.relation(&at_b), Relation::Contains);
        assert_eq!(at_b.relation(&joined), Relation::Contained);
    }

    #[test]
    fn merges_of_the_same_pair_are_equal() {
        let (a, b) = (first("A", 15), first("B", 20));
        let (at_a, at_b) = (a.merge(&b, id("A"), Cas(30)), b.merge(&a, id("B"), Cas(40)));
        assert_eq!(at_a.relation(&at_b), Relation::Equal);
        let later = at_a.written_over(id("A"), Cas(50));
        assert_eq!(later.relation(&at_b), Relation::Contains);
        assert_eq!(later.newest_of(&id("B")), Cas(20));
        assert!(!later.is_merge());
    }

    #[test]
    fn a_version_taken_over_under_its_own_cas_equals_the_original() {
        let (a, b) = (first("A", 30), first("B", 20));
        let joined = a.merge(&b, id("A"), Cas(50));
        let other = first("A", 30).written_over(id("B"), Cas(40));
        assert_eq!(other.relation(&joined), Relation::Contains);
        let adopted = other.adopted(&joined, id("C"), Cas(60));
        assert_eq!(adopted.relation(&other), Relation::Equal);
        assert_eq!(adopted.relation(&joined), Relation::Contains);
    }

    /// A hub merged version 20 of B, lost that merge, and then made another one with A.
    #[test]
    fn parents_of_a_lost_version_are_unknown_to_later_ones_of_its_source() {
        let before = first("hub", 10);
        let lost = before.merge(&before.written_over(id("B"), Cas(20)), id("hub"), Cas(30));
        let since = before.merge(&before.written_over(id("A"), Cas(35)), id("hub"), Cas(40));
        assert_eq!(since.relation(&lost), Relation::Conflict);
        let lost = before.written_over(id("B"), Cas(20)).written_over(id("hub"), Cas(30));
        let since = before.written_over(id("hub"), Cas(40));
        assert_eq!(since.relation(&lost), Relation::Conflict, "it was written over B's version");
        let joined = since.merge(&lost, id("A"), Cas(50));
        assert_eq!(joined.relation(&lost), Relation::Contains);
        assert_eq!(joined.relation(&since), Relation::Contains);
    }

    /// B lost its version 30, which accounted for A's 20, and then wrote 40 and 50 over A's 10. A decided between 30 and 40.
    #[test]
    fn a_merge_of_two_versions_of_one_source_still_lists_what_went_into_the_lost_one() {
        let lost = first("A", 20).written_over(id("B"), Cas(30));
        let since = first("A", 10).written_over(id("B"), Cas(40));
        let decision = lost.merge(&since, id("A"), Cas(45));
        assert_eq!(decision.merged(), &Versions::from([(id("B"), Cas(40))]));
        assert_eq!(decision.previous(), &Versions::from([(id("A"), Cas(20))]));
        let later = since.written_over(id("B"), Cas(50));
        assert_eq!(later.relation(&decision), Relation::Conflict, "it does not know A's 20");
        assert_eq!(decision.relation(&since), Relation::Contains);
        assert_eq!(decision.relation(&lost), Relation::Contains);
    }

    #[test]
    fn a_forgotten_history_looks_like_a_conflict() {
        let first = first("A", 10);
        let mut second = first.written_over(id("B"), Cas(20));
        second.prune(Cas(10));
        assert_eq!(second.relation(&first), Relation::Contains);
        second.prune(Cas(11));
        assert_eq!(second.relation(&first), Relation::Conflict);
    }
}
