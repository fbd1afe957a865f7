//! Version histories: which versions of a document went into the one at hand.
//!
//! A version is named by its source and the CAS that it was given there. A history has the current version, the newest
//! version that it knows of each other source, and, when it is a merge, the versions that were joined.
//!
//! Worked example: `A` writes 10, `B` takes it over and writes 20, while `A` writes 15.
//!
//! ```text
//! at A: (A 15)                          at B: (B 20) previous {A 10}
//! neither knows the other's version: a conflict. A's resolver decides, at 30:
//! at A: (A 30) merged {A 15, B 20} previous {}
//! B's version contains neither; A's contains (B 20): B takes it over without asking.
//! ```

use crate::SourceId;
use nacre_types::Cas;
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
/// Invariants: `previous` has no entry that `merged` covers, or that the current version covers if it is no merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub(crate) source: SourceId,
    pub(crate) version: Cas,
    pub(crate) merged: Versions,
    pub(crate) previous: Versions,
}

impl History {
    /// The history of a document that `source` wrote first.
    pub fn of_write(source: SourceId, version: Cas) -> History {
        History { source, version, merged: Versions::new(), previous: Versions::new() }
    }

    /// Returns the source of the current version.
    pub fn source(&self) -> &SourceId {
        &self.source
    }

    /// The CAS of the current version at its source.
    pub fn version(&self) -> Cas {
        self.version
    }

    /// The versions that were joined; empty when this is no merge.
    pub fn merged(&self) -> &Versions {
        &self.merged
    }

    /// The newest version known of other sources.
    pub fn previous(&self) -> &Versions {
        &self.previous
    }

    /// Returns true if the current version joins others.
    pub fn is_merge(&self) -> bool {
        !self.merged.is_empty()
    }

    /// The newest version of `source` that it knows; [`Cas::ANY`] when it knows none.
    pub fn newest_of(&self, source: &SourceId) -> Cas {
        let current = if self.source == *source { self.version } else { Cas::ANY };
        let listed = [&self.merged, &self.previous].map(|list| list.get(source).copied());
        listed.into_iter().flatten().fold(current, Cas::max)
    }

    /// The newest version of `source` that it lists: without the version of a merge, which nobody need know.
    pub(crate) fn listed_of(&self, source: &SourceId) -> Cas {
        let current = if self.is_merge() { Cas::ANY } else { self.version };
        let current = if self.source == *source { current } else { Cas::ANY };
        let listed = [&self.merged, &self.previous].map(|list| list.get(source).copied());
        listed.into_iter().flatten().fold(current, Cas::max)
    }

    /// The version of `source` that represents this one for others; `None` if there is none.
    pub(crate) fn represented_by(&self, source: &SourceId) -> Option<Cas> {
        match self.is_merge() {
            true => self.merged.get(source).copied(),
            false => (self.source == *source).then_some(self.version),
        }
    }

    /// Returns true if it knows all that went into `other`, and its current version unless that is a merge.
    ///
    /// That it knows the current version is not enough: a source that loses a version by a failover gives greater numbers to
    /// what it writes afterwards, although that has not taken account of what went into the lost one.
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

    /// Returns the versions that represent this one in the history of its successor: the merged versions, or else its
    /// own.
    fn represented(&self) -> Versions {
        match self.is_merge() {
            true => self.merged.clone(),
            false => Versions::from([(self.source.clone(), self.version)]),
        }
    }

    fn make(source: SourceId, version: Cas, merged: Versions, mut previous: Versions) -> History {
        // Whoever contains a merge need not know the version of the merge itself, so that it covers nothing of its source.
        let is_own = |of: &SourceId, known: Cas| *of == source && version >= known;
        let is_merged = |of: &SourceId, known: Cas| merged.get(of).is_some_and(|v| *v >= known);
        let is_covered = |of: &SourceId, known: Cas| match merged.is_empty() {
            true => is_own(of, known),
            false => is_merged(of, known),
        };
        previous.retain(|of, known| !is_covered(of, *known));
        History { source, version, merged, previous }
    }

    /// The history after `source` has written over it.
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

    /// Returns the history of a decision of `source` between this version and `other`, as a write that takes account of both.
    ///
    /// A merge lists one version of each source. That is not enough where both sides have versions of one source of which
    /// neither knows the other one, because they are of different branches: who knows the later one does not know the merge.
    #[must_use]
    pub fn decided(&self, other: &History, source: SourceId, version: Cas) -> History {
        let mut previous = self.previous.clone();
        for versions in [&self.represented(), &other.previous, &other.represented()] {
            add_all(&mut previous, versions);
        }
        History::make(source, version, Versions::new(), previous)
    }

    /// The history of this version when `source` takes it over `other`, which it contains, under a CAS of its own: a merge
    /// of one side.
    #[must_use]
    pub fn adopted(&self, other: &History, source: SourceId, version: Cas) -> History {
        let mut previous = self.previous.clone();
        add_all(&mut previous, &other.previous);
        add_all(&mut previous, &other.represented());
        History::make(source, version, self.represented(), previous)
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
    fn a_version_taken_over_under_a_cas_of_its_own_is_equal_to_what_it_was() {
        let (a, b) = (first("A", 30), first("B", 20));
        let joined = a.merge(&b, id("A"), Cas(50));
        let other = first("A", 30).written_over(id("B"), Cas(40));
        assert_eq!(other.relation(&joined), Relation::Contains);
        let adopted = other.adopted(&joined, id("C"), Cas(60));
        assert_eq!(adopted.relation(&other), Relation::Equal);
        assert_eq!(adopted.relation(&joined), Relation::Contains);
    }

    /// A hub has merged version 20 of B, has lost the merge, and has made another one with A since.
    #[test]
    fn what_went_into_a_lost_version_is_not_known_to_later_ones_of_its_source() {
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

    /// B has lost its version 30, in which it had taken account of A's 20, and has written 40 and 50 over A's 10 since. A has
    /// decided between 30 and 40.
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
    fn what_is_forgotten_looks_like_a_conflict() {
        let first = first("A", 10);
        let mut second = first.written_over(id("B"), Cas(20));
        second.prune(Cas(10));
        assert_eq!(second.relation(&first), Relation::Contains);
        second.prune(Cas(11));
        assert_eq!(second.relation(&first), Relation::Conflict);
    }
}
