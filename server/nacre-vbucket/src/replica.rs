//! Replication: the states of a copy, and history that arrives in snapshots.
//!
//! ```text
//!   active ──► stream ──► Vbucket::receive ──► hash table, checkpoint ──► flusher, as on the active copy
//!      ▲                        │
//!      └──── acknowledgement ◄──┘   up to the first prepare that must be stored and is not
//! ```
//!
//! A replica stores versions unchanged: seqno, CAS and revision are those of the active copy. It makes no mutations and
//! expires nothing; the only commands that it answers are [reads](Vbucket::read_replica). It acknowledges only once it
//! has everything up to the beginning of the active copy's term ([`Vbucket::term`]). Otherwise a failover could choose
//! a copy that has only started to fill.

use crate::command::Level;
use crate::durability::Staging;
use crate::vbucket::Vbucket;
use nacre_types::{CollectionId, Document, FailoverLog, Kind, Seqno, VbState, VbUuid};
use std::collections::BTreeSet;

/// The completeness of a copy, for choosing between copies. Greater is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// The last term for which the copy is complete up to the term's beginning.
    pub term: u64,
    /// The seqno that the copy has acknowledged, or would acknowledge.
    pub prepared: Seqno,
    /// The high seqno of the copy.
    pub high_seqno: Seqno,
}

/// Durable writes that are in progress on the copy that makes history, for a copy that starts to follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// The high seqno of that copy.
    pub high_seqno: Seqno,
    /// The prepares that are neither committed nor given up, among those that the following copy may have.
    pub prepares: BTreeSet<Seqno>,
}

/// Prepares of a copy that are no longer in progress on the active copy.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    /// The active copy's high seqno when it reported its prepares: by then they had been committed or given up.
    known_at: Seqno,
    prepares: Vec<Seqno>,
}

/// The received versions do not continue the history of this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

impl Vbucket {
    /// Returns the term, see [`nacre_types::VbRecord::term`].
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Returns how many times the history was discarded. A version that was read in an earlier generation must not be
    /// stored.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the snapshot that contains `seqno`, as in [`nacre_types::VbRecord::snapshot`].
    pub fn snapshot_at(&self, seqno: Seqno) -> (Seqno, Seqno) {
        let within = |(start, end): &&(Seqno, Seqno)| *start <= seqno && seqno < *end;
        self.received.iter().find(within).copied().unwrap_or((seqno, seqno))
    }

    /// Returns true if other copies may follow this one: it is active, or held for a hand-over.
    pub fn makes_history(&self) -> bool {
        match self.state {
            VbState::Active => true,
            VbState::Pending => self.in_doubt_term.is_none(),
            VbState::Replica | VbState::Dead => false,
        }
    }

    /// Marks the copy as in doubt: it serves nobody until it is [activated](Vbucket::activate) in a later term than
    /// `term`. The previous process was the active copy in that term, or was about to be, and this copy may lack the
    /// end of its history. Other copies may have it.
    pub fn mark_in_doubt(&mut self, term: u64) {
        self.state = VbState::Pending;
        self.in_doubt_term = Some(term);
    }

    /// Returns the term in which the copy is [in doubt](Vbucket::mark_in_doubt), if it is.
    pub fn in_doubt_term(&self) -> Option<u64> {
        self.in_doubt_term
    }

    /// Serves clients from now on, under a new branch of history. An already active copy starts a new branch too.
    pub fn activate(&mut self, term: u64, vb_uuid: VbUuid) {
        if !self.makes_history() {
            self.prepares.inherit();
        }
        self.completes_until_ns = u64::MAX;
        self.state = VbState::Active;
        self.in_doubt_term = None;
        self.term = term;
        self.received.clear();
        self.forget_all_acknowledged();
        self.begin_branch(vb_uuid);
        self.settle_history();
    }

    /// Stops serving clients before a hand-over. Durable writes in progress can still end here until `until_ns`, in
    /// monotonic nanoseconds.
    pub fn hold(&mut self, until_ns: u64) {
        if self.state == VbState::Active {
            self.completes_until_ns = until_ns;
        }
        self.rest(VbState::Pending);
    }

    /// Stops serving clients. The outcome of durable writes in progress is decided elsewhere.
    pub fn deactivate(&mut self, state: VbState) {
        if self.makes_history() {
            self.prepares.inherit();
        }
        self.completes_until_ns = 0;
        self.rest(state);
    }

    fn rest(&mut self, state: VbState) {
        debug_assert!(state != VbState::Active);
        if self.state == VbState::Active {
            self.locks = Default::default();
        }
        self.record_changed |= self.state != state;
        if state != VbState::Pending {
            self.in_doubt_term = None;
        }
        self.state = state;
        self.settle_history();
    }

    /// Returns true, and resets the flag, if the record must be stored although history has not grown.
    pub fn take_record_changed(&mut self) -> bool {
        std::mem::take(&mut self.record_changed)
    }

    /// Discards the history and starts again as `state`.
    pub fn clear(&mut self, state: VbState, vb_uuid: VbUuid) {
        let mut checkpoint = std::mem::take(&mut self.checkpoint);
        checkpoint.clear();
        let eviction = self.table.eviction;
        let fresh = Vbucket::create(self.id, vb_uuid, self.seed);
        *self = Vbucket {
            state,
            term: 0,
            generation: self.generation + 1,
            // Other clusters have versions of the discarded history: no later version may reuse one of their CAS
            // values.
            max_cas: self.max_cas,
            // The store stays failed, whatever the history.
            read_only: self.read_only,
            copies: std::mem::take(&mut self.copies),
            retention: self.retention.restarted(),
            checkpoint,
            ..fresh
        };
        self.table.eviction = eviction;
        self.settle_history();
    }

    /// Takes over the failover log of the active copy, which shares a part of its history with this copy, and its list
    /// of prepares in progress. The list matters because the active copy no longer streams prepares that it gave up and
    /// erased; committed ones arrive with history.
    pub fn adopt(&mut self, log: FailoverLog, under_way: &UnderWay) {
        self.record_changed |= self.failover_log != log;
        self.failover_log = log;
        let seqnos = self.prepares.documents().map(|document| document.meta.seqno);
        let given_up = seqnos.filter(|seqno| !under_way.prepares.contains(seqno)).collect();
        self.given_up = GivenUp { known_at: under_way.high_seqno, prepares: given_up };
        self.forget_given_up();
    }

    /// Returns the durable writes up to `seqno` that are in progress here, for a copy that has history up to `seqno`.
    pub fn under_way(&self, seqno: Seqno) -> UnderWay {
        let seqnos = self.prepares.documents().map(|document| document.meta.seqno);
        let prepares = seqnos.take_while(|prepare| *prepare <= seqno).collect();
        UnderWay { high_seqno: self.high_seqno(), prepares }
    }

    /// Erases prepares that have ended elsewhere, once their commits would have arrived here.
    fn forget_given_up(&mut self) {
        let GivenUp { known_at, prepares } = &self.given_up;
        let has_commits = || self.high_seqno() >= *known_at && self.is_consistent();
        if prepares.is_empty() || !has_commits() {
            return;
        }
        for seqno in std::mem::take(&mut self.given_up.prepares) {
            if let Some(key) = self.prepares.end(seqno) {
                self.graveyard.erase_later(&key, seqno, seqno.next());
                self.record_changed = true;
            }
        }
    }

    /// Applies consecutive versions of the active copy's history. Afterwards the copy is at `seqno` in the snapshot
    /// `start..=end`.
    ///
    /// # Errors
    /// [`OutOfOrder`], with nothing changed.
    pub fn receive(
        &mut self,
        documents: Vec<Document>,
        seqno: Seqno,
        (start, end): (Seqno, Seqno),
    ) -> Result<(), OutOfOrder> {
        let mut last = self.high_seqno();
        for document in &documents {
            if document.meta.seqno <= last || document.meta.seqno > seqno {
                return Err(OutOfOrder);
            }
            last = document.meta.seqno;
        }
        if self.state == VbState::Active || self.read_only || seqno < last || seqno > end {
            return Err(OutOfOrder);
        }
        match self.received.back_mut() {
            // Portions of one snapshot have the same end; only the first portion opens the snapshot.
            Some(known) if known.1 == end => {}
            _ => self.received.push_back((start, end)),
        }
        for document in documents {
            self.receive_one(document);
        }
        self.checkpoint.advance_to(seqno);
        self.forget_given_up();
        Ok(())
    }

    fn receive_one(&mut self, document: Document) {
        self.max_cas = self.max_cas.max(document.meta.cas);
        match document.collection() {
            CollectionId::PREPARED => self.receive_prepare(document),
            _ => {
                let published = self.publish(document, true);
                // While a write is prepared, no other write touches its key: this is its commit.
                if let Some(prepare) = self.prepares.remove_key(published.key()) {
                    let key = crate::durability::prepared_key(published.key());
                    self.graveyard.erase_later(&key, prepare, published.meta.seqno);
                }
            }
        }
    }

    fn receive_prepare(&mut self, document: Document) {
        let seqno = document.meta.seqno;
        self.checkpoint.push(document.clone());
        if let Some(before) = self.prepares.remove_key(document.name()) {
            self.graveyard.erase_later(document.key(), before, seqno);
        }
        if document.meta.kind == Kind::Aborted {
            self.graveyard.erase_later(document.key(), seqno, seqno.next());
        } else {
            let level = Level::of_prepare(&document);
            self.prepares.insert(document, Staging::inherited(level));
        }
    }

    /// Returns true if the copy is at the end of a snapshot.
    pub fn is_consistent(&self) -> bool {
        let high_seqno = self.high_seqno();
        self.snapshot_at(high_seqno) == (high_seqno, high_seqno)
    }

    /// Returns the last seqno up to `seqno` that is at the end of a complete snapshot.
    fn whole_until(&self, seqno: Seqno) -> Seqno {
        let (start, end) = self.snapshot_at(seqno);
        if start == end { seqno } else { Seqno(start.0.saturating_sub(1)) }
    }

    /// Returns the seqno up to which the stored history is complete. A partly stored snapshot does not count, because
    /// it may lack a version that a later one in the snapshot supersedes.
    pub fn stored_whole(&self) -> Seqno {
        self.whole_until(self.persisted)
    }

    /// Returns true if the copy has stored everything up to the beginning of the current branch.
    pub fn reaches_branch(&self) -> bool {
        self.stored_whole() >= self.failover_log.began()
    }

    /// Records that this copy is complete for `term`, if it is: the term starts with the current branch.
    pub fn reach_term(&mut self, term: u64) {
        if self.state != VbState::Active && self.reaches_branch() {
            self.record_changed |= self.term < term;
            self.term = self.term.max(term);
        }
    }

    /// Returns the seqno that a replica acknowledges: everything before the first prepare that a majority must store
    /// and that is not stored here, and nothing of an incomplete snapshot.
    pub fn prepared(&self) -> Seqno {
        let whole = self.whole_until(self.high_seqno());
        let fence = self.prepares.first_fence(self.persisted);
        fence.map_or(whole, |fence| whole.min(Seqno(fence.0 - 1)))
    }

    /// Returns the standing of this copy.
    pub fn standing(&self) -> Standing {
        Standing { term: self.term, prepared: self.prepared(), high_seqno: self.high_seqno() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use nacre_types::{Cas, DocKey, Meta, Now, Vbid};

    #[test]
    fn a_copy_that_cannot_be_stored_stays_so_after_a_restart_of_its_history() {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
        vbucket.make_read_only();
        vbucket.clear(VbState::Replica, VbUuid(2));
        assert!(vbucket.is_read_only());
    }

    /// Other clusters may have versions that this cluster lost, and identify them by their CAS.
    #[test]
    fn a_new_branch_assigns_no_cas_that_a_lost_one_may_have_assigned() {
        let version = Meta { seqno: Seqno(1), cas: Cas(1 << 40), rev: 1, ..Meta::default() };
        let version = Document::new(version, b"\0k", b"1");
        let copy = || {
            let mut copy = Vbucket::create(Vbid(0), VbUuid(1), 0);
            copy.clear(VbState::Replica, VbUuid(1));
            copy.receive(vec![version.clone()], Seqno(1), (Seqno(1), Seqno(1))).unwrap();
            copy
        };
        // The clock is behind the received version, so CAS values increase one by one. Two copies lose their writes,
        // and a third one takes over.
        let mut known = BTreeSet::new();
        for (term, vb_uuid) in [(2, 0x1234_5678), (3, 0x2345_6789), (4, 0x3456_789a)] {
            let mut copy = copy();
            copy.activate(term, VbUuid(vb_uuid));
            for _ in 0..100 {
                copy.record_event(b"e", false, b"{}", Now::default());
                assert!(known.insert(copy.max_cas()), "term {term}");
            }
        }
        let mut copy = copy();
        let max_cas = copy.max_cas();
        copy.begin_branch(VbUuid(3));
        assert!(copy.max_cas().0 >= max_cas.0 + (1 << 24), "an unclean stop is one as well");
    }

    /// Two copies that become active one after the other receive the same version from a cluster whose clock is ahead,
    /// and continue from its CAS. The writes of the first copy are lost here and known elsewhere.
    #[test]
    fn branches_that_receive_the_same_version_count_on_from_different_places() {
        let ahead = Meta { cas: Cas(1 << 50), rev: 1, ..Meta::default() };
        let receive = Command::StoreVersion {
            version: ahead,
            value: b"1",
            add: false,
            cas: Cas::ANY,
            rule: crate::Rule::Always,
            regenerate_cas: false,
        };
        let now = Now { unix_ns: 1 << 50, monotonic_ns: 0 };
        let mut known = BTreeSet::new();
        for (term, vb_uuid) in [(2, 0x1234_5678), (3, 0x2345_6789), (4, 0x3456_789a)] {
            let mut copy = Vbucket::create(Vbid(0), VbUuid(1), 0);
            copy.clear(VbState::Replica, VbUuid(1));
            copy.activate(term, VbUuid(vb_uuid));
            copy.apply(b"\0k", &receive, now).0.unwrap();
            assert!(copy.cas_above(Cas::ANY, now) > ahead.cas);
            for _ in 0..100 {
                copy.record_event(b"e", false, b"{}", Now::default());
                assert!(known.insert(copy.max_cas()), "term {term}");
            }
            let newest = copy.max_cas();
            assert!(newest.0 - ahead.cas.0 < 1 << 19, "that is close to the version");
            assert_eq!(
                copy.cas_above(Cas::ANY, Now::default()).0,
                newest.0 + 1,
                "its own are close"
            );
        }
    }

    #[test]
    fn a_restarted_history_assigns_no_cas_of_the_one_before() {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
        vbucket.record_event(b"e", false, b"{}", Now { unix_ns: 1 << 40, monotonic_ns: 0 });
        let max_cas = vbucket.max_cas();
        vbucket.clear(VbState::Active, VbUuid(2));
        vbucket.record_event(b"e", false, b"{}", Now::default());
        assert!(vbucket.max_cas() > max_cas);
    }

    fn version(collection: CollectionId, seqno: u64) -> Document {
        let key = DocKey::new(CollectionId::DEFAULT, b"k");
        let key = match collection {
            CollectionId::PREPARED => DocKey::new(collection, key.prefixed()),
            _ => key,
        };
        let datatype = Level::Majority.mark(0);
        let meta =
            Meta { seqno: Seqno(seqno), cas: Cas(seqno), rev: 1, datatype, ..Meta::default() };
        Document::new(meta, key.prefixed(), b"1")
    }

    /// Until the commit arrives, the prepare is the only trace on this copy of a write that may have been acknowledged.
    #[test]
    fn a_prepare_that_ended_on_the_active_copy_stays_until_its_commit_would_have_arrived() {
        for is_committed in [true, false] {
            let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
            vbucket.clear(VbState::Replica, VbUuid(1));
            let prepare = version(CollectionId::PREPARED, 1);
            vbucket.receive(vec![prepare], Seqno(1), (Seqno(0), Seqno(1))).unwrap();
            let under_way = UnderWay { high_seqno: Seqno(3), prepares: BTreeSet::new() };
            vbucket.adopt(vbucket.failover_log().clone(), &under_way);
            assert_eq!(vbucket.prepare_count(), 1);
            vbucket.receive(Vec::new(), Seqno(2), (Seqno(2), Seqno(3))).unwrap();
            assert_eq!(vbucket.prepare_count(), 1, "half of what there was then is not enough");
            let commit = is_committed.then(|| version(CollectionId::DEFAULT, 3));
            vbucket.receive(commit.into_iter().collect(), Seqno(3), (Seqno(2), Seqno(3))).unwrap();
            assert_eq!(vbucket.prepare_count(), 0);
            let key = DocKey::new(CollectionId::DEFAULT, b"k");
            assert_eq!(vbucket.find(key.prefixed()).is_some(), is_committed);
        }
    }

    /// A partly stored snapshot may lack a version that a later one supersedes, and the later one is only in memory.
    #[test]
    fn a_copy_counts_as_one_of_the_term_once_what_it_has_stored_is_whole() {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
        vbucket.clear(VbState::Replica, VbUuid(1));
        let mut log = vbucket.failover_log().clone();
        log.begin(VbUuid(2), Seqno(2));
        vbucket.adopt(log, &UnderWay { high_seqno: Seqno(4), prepares: BTreeSet::new() });
        let documents = vec![version(CollectionId::DEFAULT, 4)];
        vbucket.receive(documents, Seqno(4), (Seqno(0), Seqno(4))).unwrap();
        for (stored, counts) in [(3, false), (4, true)] {
            vbucket.set_persisted(Seqno(stored), usize::MAX);
            vbucket.reach_term(2);
            assert_eq!(vbucket.term() == 2, counts, "stored to {stored}");
        }
    }

    #[test]
    fn a_prepare_in_progress_on_the_active_copy_stays() {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
        vbucket.clear(VbState::Replica, VbUuid(1));
        let prepare = version(CollectionId::PREPARED, 1);
        vbucket.receive(vec![prepare], Seqno(1), (Seqno(0), Seqno(1))).unwrap();
        let under_way = vbucket.under_way(Seqno(1));
        assert_eq!((under_way.high_seqno, under_way.prepares.len()), (Seqno(1), 1));
        assert!(vbucket.under_way(Seqno::ZERO).prepares.is_empty(), "who has less knows of none");
        vbucket.adopt(vbucket.failover_log().clone(), &under_way);
        assert_eq!(vbucket.prepare_count(), 1);
    }
}
