//! One vBucket of one cluster: the copy that serves, one that follows it in another node's memory, and the disk.

use nacre_dcp::{Backfill, Limit, Past, Portion, ResumePoint};
use nacre_types::{Cas, Document, FailoverLog, Seqno, VbRecord, VbState, VbUuid, Vbid};
use nacre_vbucket::Vbucket;
use nacre_xdcr::Run;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// A copy that has a part of the history.
#[derive(Clone, Debug)]
struct Follower {
    documents: BTreeMap<Vec<u8>, Document>,
    log: FailoverLog,
    seqno: Seqno,
    purge_seqno: Seqno,
    purged_rev: u64,
    /// The greatest CAS that it knows of.
    max_cas: Cas,
}

impl Follower {
    /// A copy without documents, which knows of versions up to `max_cas`.
    fn of(active: &Vbucket, max_cas: Cas) -> Follower {
        Follower {
            max_cas,
            documents: BTreeMap::new(),
            log: active.failover_log().clone(),
            seqno: Seqno::ZERO,
            purge_seqno: Seqno::ZERO,
            purged_rev: 0,
        }
    }

    /// Takes in what follows in the history of `active`.
    fn follow(&mut self, active: &Vbucket) {
        // Who stopped below a tombstone that is forgotten may have missed it.
        if self.seqno < active.purge_seqno() {
            *self = Follower::of(active, self.max_cas);
        }
        let scan = || documents_after(active, self.seqno);
        let read = active.checkpoint().read(self.seqno, usize::MAX);
        let documents = read.map_or_else(scan, |drained| drained.documents);
        let cas = documents.iter().map(|it| it.meta.cas).max();
        self.max_cas = self.max_cas.max(cas.unwrap_or(Cas::ANY));
        self.documents.extend(documents.into_iter().map(|it| (it.key().to_vec(), it)));
        self.log = active.failover_log().clone();
        self.seqno = active.high_seqno();
        self.purge_seqno = active.purge_seqno();
        self.purged_rev = active.purged_rev();
    }

    /// The vBucket that it is when it is loaded.
    fn load(&self, vbid: Vbid, state: VbState, term: u64) -> Vbucket {
        let record = VbRecord {
            state,
            failover_log: self.log.clone(),
            term,
            high_seqno: self.seqno,
            snapshot: (self.seqno, self.seqno),
            purge_seqno: self.purge_seqno,
            purged_rev: self.purged_rev,
            max_cas: self.max_cas,
            document_count: 0,
            history_start: None,
        };
        let mut vbucket = Vbucket::new(vbid, record, 0);
        for document in self.documents.values() {
            vbucket.load(document.clone(), true);
        }
        vbucket
    }

    fn forget(&mut self, key: &[u8], seqno: Seqno) {
        if self.documents.get(key).is_some_and(|it| it.meta.seqno == seqno) {
            self.documents.remove(key);
        }
    }
}

/// The versions after `seqno` as a store has them: the newest of each key.
fn documents_after(vbucket: &Vbucket, seqno: Seqno) -> Vec<Document> {
    let newer = vbucket.documents().filter(|it| it.meta.seqno > seqno);
    let mut documents: Vec<Document> = newer.cloned().collect();
    documents.sort_unstable_by_key(|it| it.meta.seqno);
    documents
}

/// What becomes the serving copy after the one before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// The one that follows.
    Replica,
    /// What the same node finds on its disk.
    Disk,
}

/// All copies.
pub struct Copies {
    /// The one that serves.
    pub active: Vbucket,
    /// Until then nobody serves.
    pub moving_until_ns: u64,
    replica: Follower,
    disk: Follower,
}

impl Copies {
    /// An empty vBucket.
    pub fn new(vbid: Vbid, vb_uuid: VbUuid) -> Copies {
        let active = Vbucket::create(vbid, vb_uuid, 0);
        let follower = Follower::of(&active, Cas::ANY);
        Copies { active, moving_until_ns: 0, replica: follower.clone(), disk: follower }
    }

    /// The copy that follows catches up.
    pub fn replicate(&mut self) {
        self.replica.follow(&self.active);
    }

    /// All there is is stored; `keeps` has memory keep it as well.
    pub fn flush(&mut self, keeps: bool) {
        self.disk.follow(&self.active);
        self.disk.max_cas = self.active.max_cas();
        let high_seqno = self.active.high_seqno();
        for (key, seqno) in self.active.take_graves(high_seqno) {
            self.disk.forget(&key, seqno);
        }
        if !keeps {
            self.active.set_persisted(high_seqno, usize::MAX);
        }
    }

    /// Forgets tombstones of before `unix_s`. Gives how many.
    pub fn purge(&mut self, unix_s: u32) -> usize {
        let tombstones = self.active.documents().filter(|it| !it.is_alive());
        let before: Vec<Document> = tombstones.cloned().collect();
        let count = self.active.purge(unix_s);
        for tombstone in before.iter().filter(|it| self.active.find(it.key()).is_none()) {
            self.replica.forget(tombstone.key(), tombstone.meta.seqno);
            self.disk.forget(tombstone.key(), tombstone.meta.seqno);
        }
        for follower in [&mut self.replica, &mut self.disk] {
            if follower.seqno >= self.active.purge_seqno() {
                follower.purge_seqno = self.active.purge_seqno();
                follower.purged_rev = self.active.purged_rev();
            }
        }
        count
    }

    /// The serving copy ends, and another one takes its place under a new branch of history. Gives the last seqno that is left.
    pub fn succeed(&mut self, successor: Successor, vb_uuid: VbUuid) -> Seqno {
        let (vbid, term) = (self.active.id(), self.active.term());
        match successor {
            Successor::Replica => {
                self.active = self.replica.load(vbid, VbState::Replica, term);
                self.active.activate(term + 1, vb_uuid);
                self.disk = self.replica.clone();
                self.replica.seqno
            }
            Successor::Disk => {
                self.active = self.disk.load(vbid, VbState::Active, term);
                self.active.begin_branch(vb_uuid);
                self.replica = self.disk.clone();
                self.disk.seqno
            }
        }
    }

    /// All documents are thrown away.
    pub fn throw_away(&mut self, vb_uuid: VbUuid) {
        self.active.clear(VbState::Active, vb_uuid);
        for follower in [&mut self.replica, &mut self.disk] {
            *follower = Follower::of(&self.active, follower.max_cas);
        }
    }
}

/// A reader of the history, as a stream of the bucket is one: what left memory comes from the store.
#[derive(Default)]
pub struct Reader(Option<(Run, Backfill<Infallible>)>);

impl Reader {
    /// The next part after `after`; `None` when there is nothing yet.
    pub fn read(
        &mut self,
        vbucket: &Vbucket,
        (run, after): (Run, ResumePoint),
        limit: usize,
    ) -> Option<Portion> {
        let limit = Limit { count: limit, bytes: usize::MAX };
        let vb_uuid = vbucket.failover_log().current();
        if self.0.as_ref().is_none_or(|(of, _)| *of != run) {
            self.0 = None;
            if vbucket.high_seqno() <= after.seqno {
                return None;
            }
            if let Some(drained) = vbucket.checkpoint().read(after.seqno, limit.count) {
                let position = ResumePoint {
                    vb_uuid,
                    seqno: drained.snapshot_end,
                    snapshot_start: drained.snapshot_start,
                    snapshot_end: drained.snapshot_end,
                };
                return Some(Portion { documents: drained.documents, position, is_history: false });
            }
            let documents = documents_after(vbucket, after.seqno).into_iter().map(Ok);
            let end = vbucket.high_seqno();
            let past = Past { documents: Box::new(documents), end, history_start: None };
            self.0 = Some((run, Backfill::new(past, vb_uuid, after.seqno)));
        }
        let (_, backfill) = self.0.as_mut().expect("it was begun");
        let portion = backfill.read(limit).unwrap_or_else(|never| match never {});
        if portion.position.seqno >= portion.position.snapshot_end {
            self.0 = None;
        }
        Some(portion)
    }
}
