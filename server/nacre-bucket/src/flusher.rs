//! The flusher: a regular consumer of history, which writes history to the store.

use crate::bucket::Bucket;
use crate::listeners::DirtyVbuckets;
use crate::{BucketEnv, Next, Signal, Task};
use nacre_store::{COMMIT_DOCUMENTS_MAX, Commit, Error, Store, Which};
use nacre_types::{Seqno, VbRecord, Vbid, Vbids};
use nacre_vbucket::Vbucket;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of documents in one group commit; the others wait for the next one.
const GROUP_DOCUMENTS_MAX: usize = 4096;
/// Target maximum of bytes in one group commit. The last vBucket of a group may exceed it.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Retry interval of a commit after the store lacked space or descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct Flusher {
    bucket: Arc<Bucket>,
    store: Arc<dyn Store>,
    env: Arc<dyn BucketEnv>,
    dirty: Arc<DirtyVbuckets>,
    signal: Signal,
    /// Commits that failed for lack of space or descriptors. They are retried before new commits.
    held: Vec<Commit>,
    /// vBuckets whose commit failed; their stored state is unknown.
    failed: BTreeSet<Vbid>,
    /// The generation of each vBucket that the store holds.
    generations: Vec<u32>,
    /// vBuckets whose history was discarded; the stored history must be erased first.
    restarted: BTreeSet<Vbid>,
    /// The vBucket to start from next, so that busy vBuckets do not starve others.
    turn: usize,
}

/// Returns the record that the store keeps of a vBucket, in its current state. The store computes the document count
/// itself.
pub(crate) fn record_of(vbucket: &Vbucket) -> VbRecord {
    VbRecord {
        state: vbucket.state(),
        term: vbucket.term(),
        snapshot: vbucket.snapshot_at(vbucket.high_seqno()),
        failover_log: vbucket.failover_log().clone(),
        high_seqno: vbucket.high_seqno(),
        purge_seqno: vbucket.purge_seqno(),
        purged_rev: vbucket.purged_rev(),
        max_cas: vbucket.max_cas(),
        document_count: 0,
        history_start: vbucket.history_start(),
    }
}

impl Flusher {
    pub fn new(bucket: Arc<Bucket>, store: Arc<dyn Store>, env: Arc<dyn BucketEnv>) -> Flusher {
        let signal = Signal::default();
        let vbids = (0..bucket.vbucket_count()).map(Vbid);
        let dirty = bucket.listeners.listen_to(vbids, Arc::new(signal.clone()));
        let generations = vec![0; usize::from(bucket.vbucket_count())];
        Flusher {
            bucket,
            store,
            env,
            dirty,
            signal,
            held: Vec::new(),
            failed: BTreeSet::new(),
            generations,
            restarted: BTreeSet::new(),
            turn: 0,
        }
    }

    /// Collects the mutations of dirty vBuckets into commits of the size that the store prefers.
    fn collect(&mut self) -> Vec<Commit> {
        let mut commits: Vec<Commit> = Vec::new();
        let mut taken = Vbids::default();
        let (mut documents, mut bytes) = (0, 0);
        while documents < GROUP_DOCUMENTS_MAX && bytes < GROUP_BYTES_MAX {
            let Some(vbid) = self.dirty.take(self.turn) else { break };
            if taken.contains(vbid) {
                // Every dirty vBucket was read once: newer writes wait until this group is stored.
                self.dirty.mark(vbid);
                break;
            }
            taken.insert(vbid);
            self.turn = vbid.index() + 1;
            if self.failed.contains(&vbid) {
                continue;
            }
            let Some(mut vbucket) = self.bucket.vbucket(vbid) else { continue };
            if vbucket.generation() != self.generations[vbid.index()] {
                self.restarted.insert(vbid);
                continue;
            }
            let mut position = vbucket.persisted();
            let mut record_changed = vbucket.take_record_changed();
            while (record_changed || position < vbucket.high_seqno() || vbucket.has_graves())
                && bytes < GROUP_BYTES_MAX
            {
                record_changed = false;
                let before = position;
                let history = Arc::clone(vbucket.history_collections());
                let drained =
                    vbucket.checkpoint().read_keeping(position, COMMIT_DOCUMENTS_MAX, &history);
                let mut drained = drained.expect("what is not persisted stays in memory");
                position = drained.snapshot_end;
                let snapshot = vbucket.snapshot_at(position);
                let record = VbRecord { high_seqno: position, snapshot, ..record_of(&vbucket) };
                // Skip versions that are both new and to be erased, such as a prepare that is already committed.
                let is_new = |(_, seqno): &mut (Box<[u8]>, Seqno)| *seqno > before;
                let mut erased = vbucket.take_graves(position);
                let unborn: BTreeSet<Seqno> =
                    erased.extract_if(.., is_new).map(|(_, seqno)| seqno).collect();
                drained.documents.retain(|document| !unborn.contains(&document.meta.seqno));
                documents += drained.documents.len();
                bytes +=
                    drained.documents.iter().map(|document| document.memory_bytes()).sum::<usize>();
                bytes += erased.len() * size_of::<Commit>();
                commits.push(Commit {
                    vbid,
                    record,
                    documents: drained.documents,
                    erased,
                    history,
                });
            }
            if position < vbucket.high_seqno() {
                self.dirty.mark(vbid);
            }
        }
        commits
    }

    /// Returns the commits that erase discarded histories. They are stored before the new histories are read. vBuckets
    /// that could not be read for lack of descriptors stay in `restarted`.
    fn erasures(&mut self) -> Vec<Commit> {
        let mut commits = Vec::new();
        for vbid in std::mem::take(&mut self.restarted) {
            match self.erasure(vbid) {
                Ok(commit) => commits.extend(commit),
                Err(error) if error.is_temporary() => drop(self.restarted.insert(vbid)),
                Err(error) => {
                    tracing::error!(
                        "bucket {}, vBucket {vbid}: cannot discard its history, it is read-only now: {error}",
                        self.bucket.name
                    );
                    self.fail(&[vbid]);
                }
            }
        }
        commits
    }

    /// Returns the commit that erases the stored history of a vBucket, and marks that history as erased.
    fn erasure(&mut self, vbid: Vbid) -> Result<Option<Commit>, Error> {
        let mut erased: Vec<(Box<[u8]>, Seqno)> = Vec::new();
        for document in self.store.scan(vbid, Seqno::ZERO, Which::Current)?.documents {
            let document = document?;
            erased.push((document.key().into(), document.meta.seqno));
        }
        let Some(vbucket) = self.bucket.vbucket(vbid) else { return Ok(None) };
        self.generations[vbid.index()] = vbucket.generation();
        self.dirty.mark(vbid);
        let nothing = (Seqno::ZERO, Seqno::ZERO);
        let record = VbRecord {
            high_seqno: Seqno::ZERO,
            snapshot: nothing,
            term: 0,
            purge_seqno: Seqno::ZERO,
            history_start: None,
            ..record_of(&vbucket)
        };
        let (documents, history) = (Vec::new(), Arc::default());
        Ok(Some(Commit { vbid, record, documents, erased, history }))
    }

    fn acknowledge(&self, commits: &[Commit]) {
        let now = self.env.now();
        // The last commit of each vBucket has its highest seqno.
        for (index, commit) in commits.iter().enumerate() {
            let furthest = commits.get(index + 1).is_none_or(|next| next.vbid != commit.vbid);
            if furthest {
                let generation = self.generations[commit.vbid.index()];
                self.bucket.set_persisted(commit.vbid, commit.record.high_seqno, generation, now);
            }
        }
        // Commits may have completed durable writes.
        self.bucket.wake_listeners();
        self.bucket.persisted.publish();
    }

    /// Makes vBuckets read-only because they cannot be stored any more.
    fn fail(&mut self, vbids: &[Vbid]) {
        self.failed.extend(vbids);
        self.bucket.read_only.lock().extend(vbids);
        for vbid in vbids {
            if let Some(mut vbucket) = self.bucket.vbucket(*vbid) {
                vbucket.make_read_only();
            }
        }
        self.bucket.waits.give_up(vbids);
    }

    /// Poisons vBuckets whose commit failed. Their stored state is unknown, so nothing may build upon it.
    fn poison(&mut self, commits: &[Commit], error: &Error) {
        let mut vbids: Vec<Vbid> = commits.iter().map(|commit| commit.vbid).collect();
        vbids.dedup();
        self.fail(&vbids);
        let first =
            commits.first().map_or((Vbid(0), Seqno::ZERO), |c| (c.vbid, c.record.high_seqno));
        tracing::error!(
            "bucket {}: cannot persist {} vBuckets (first {} to seqno {}), they are read-only now: {error}",
            self.bucket.name,
            vbids.len(),
            first.0,
            first.1
        );
    }
}

impl Task for Flusher {
    fn name(&self) -> &'static str {
        "flusher"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if self.bucket.is_discarded() {
            return Next::Done;
        }
        let held = std::mem::take(&mut self.held);
        let waited = !held.is_empty();
        let erases = !waited && !self.restarted.is_empty();
        let commits = match (waited, erases) {
            (true, _) => held,
            (false, true) => self.erasures(),
            (false, false) => self.collect(),
        };
        if commits.is_empty() {
            if erases && !self.restarted.is_empty() {
                return Next::After(RETRY_INTERVAL);
            }
            if erases || !self.restarted.is_empty() {
                return Next::Again;
            }
            return if self.bucket.is_closed() { Next::Done } else { Next::Wait };
        }
        match self.store.commit(&commits) {
            Ok(()) => {
                if waited {
                    tracing::info!("bucket {}: documents are stored again", self.bucket.name);
                    self.bucket.set_store_waiting(false);
                }
                self.acknowledge(&commits);
            }
            Err(error) if error.is_temporary() && !self.bucket.is_closed() => {
                if !waited {
                    tracing::error!(
                        "bucket {}: documents cannot be stored for the time being, writes are refused until they can: {error}",
                        self.bucket.name
                    );
                }
                self.bucket.set_store_waiting(true);
                self.held = commits;
                return Next::After(RETRY_INTERVAL);
            }
            // The files of a discarded bucket may already be deleted.
            Err(_) if self.bucket.is_discarded() => {}
            Err(error) => self.poison(&commits, &error),
        }
        let is_done =
            self.dirty.is_empty() && self.restarted.is_empty() && !self.bucket.is_closed();
        if is_done { Next::Wait } else { Next::Again }
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.bucket.listeners.remove(&self.dirty);
    }
}
