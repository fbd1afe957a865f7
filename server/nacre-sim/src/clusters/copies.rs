//! One vBucket of one cluster: the active copy, a replica in another node's memory, and the disk.

use nacre_dcp::{Backfill, Limit, Portion, ResumePoint, StoreScan};
use nacre_types::{Cas, Document, FailoverLog, Seqno, VbRecord, VbState, VbUuid, Vbid};
use nacre_vbucket::Vbucket;
use nacre_xdcr::Run;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// A copy with a prefix of the history.
#[derive(Clone, Debug)]
struct Follower {
    documents: BTreeMap<Vec<u8>, Document>,
    log: FailoverLog,
    seqno: Seqno,
    purge_seqno: Seqno,
    purged_rev: u64,
    /// The greatest CAS that it has seen.
    max_cas: Cas,
}

impl Follower {
    /// Creates a copy without documents that has seen versions up to `max_cas`.
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

    /// Receives the next part of the history of `active`.
    fn follow(&mut self, active: &Vbucket) {
        // A copy that stopped below a purged tombstone may have missed the deletion.
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

    /// Loads the copy as a vBucket.
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

/// Returns the versions after `seqno` as a store would: the newest version of each key.
fn documents_after(vbucket: &Vbucket, seqno: Seqno) -> Vec<Document> {
    let newer = vbucket.documents().filter(|it| it.meta.seqno > seqno);
    let mut documents: Vec<Document> = newer.cloned().collect();
    documents.sort_unstable_by_key(|it| it.meta.seqno);
    documents
}

/// The copy that becomes active after the previous one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// The replica.
    Replica,
    /// The disk of the same node.
    Disk,
}

/// All copies of the vBucket.
pub struct Copies {
    /// The active copy.
    pub active: Vbucket,
    /// The vBucket is not served until this time.
    pub moving_until_ns: u64,
    replica: Follower,
    disk: Follower,
}

impl Copies {
    /// Creates an empty vBucket.
    pub fn new(vbid: Vbid, vb_uuid: VbUuid) -> Copies {
        let active = Vbucket::create(vbid, vb_uuid, 0);
        let follower = Follower::of(&active, Cas::ANY);
        Copies { active, moving_until_ns: 0, replica: follower.clone(), disk: follower }
    }

    /// Lets the replica catch up.
    pub fn replicate(&mut self) {
        self.replica.follow(&self.active);
    }

    /// Stores the whole history. With `keeps`, memory keeps it as well.
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

    /// Purges tombstones from before `unix_s`. Returns their number.
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

    /// Ends the active copy, and activates another one on a new branch of history. Returns the last remaining seqno.
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

    /// Discards all documents.
    pub fn throw_away(&mut self, vb_uuid: VbUuid) {
        self.active.clear(VbState::Active, vb_uuid);
        for follower in [&mut self.replica, &mut self.disk] {
            *follower = Follower::of(&self.active, follower.max_cas);
        }
    }
}

/// A reader of the history, equivalent to a stream of the bucket: history that has left memory comes from the store.
#[derive(Default)]
pub struct Reader(Option<(Run, Backfill<Infallible>)>);

impl Reader {
    /// Reads the next part after `after`; `None` if there is none yet.
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
            let past = StoreScan { documents: Box::new(documents), end, history_start: None };
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
