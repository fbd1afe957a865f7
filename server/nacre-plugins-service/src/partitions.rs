//! Partitions of an index, which are fed with the changes of its collection on all nodes, not only on this one.
//!
//! The state has the entries of the partitions that the node has (`nacre_cluster::partitions`). A document and its
//! entries may be on different nodes. So the progress is the branch and the seqno of each vBucket, and a consistent
//! reader asks the nodes that serve the vBuckets for their [`End`]s.

use super::deployment::keep_capsules;
use super::feed::consistent;
use super::part::Missing;
use super::retrying::Retrying;
use super::{Deployment, Progress};
use crate::NodePlugins;
use nacre_auth::UserData;
use nacre_bucket::{Bucket, Next, Signal, Task};
use nacre_changes_service::{Changes, Next as NextChange};
use nacre_dcp::{Batch, ResumePoint};
use nacre_node::Platform;
use nacre_node::block;
use nacre_sandbox::{Error, Partition};
use nacre_state::IndexSnapshot;
use nacre_types::{Now, Seqno, VbUuid, Vbid, Vbids};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of documents in a batch, and maximum size in bytes, which the last document may exceed.
const BATCH_DOCUMENTS_MAX: usize = 2048;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause before changes are requested again that no node could send.
const BROKEN_PAUSE: Duration = Duration::from_millis(500);
/// Number of rebuilds before the deployment is given up.
const REBUILDS_MAX: u32 = 3;
/// Maximum wait of a reader for earlier writes. Then the ends are looked up again, because a vBucket may be on
/// another branch by now.
const REACH_PATIENCE: Duration = Duration::from_secs(2);

/// The end of a vBucket's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The vBucket.
    pub vbid: Vbid,
    /// The history branch, if it matters.
    pub branch: Option<u64>,
    /// The last seqno.
    pub seqno: Seqno,
}

/// Feeds the partitions of an index that a node has.
pub(super) struct PartitionsFeed {
    platform: Arc<dyn Platform>,
    bucket: Arc<Bucket>,
    deployment: Arc<Deployment>,
    partition: Partition,
    signal: Signal,
    changes: Option<Changes>,
    /// A batch to repeat.
    retry: Option<Batch>,
    /// vBuckets to read from their beginning once the previous batch is in the state.
    restarted: Vec<Vbid>,
    /// The position of each vBucket in the state.
    known: BTreeMap<Vbid, ResumePoint>,
    rebuilds: u32,
    /// Counts the plugin's successive requests for a retry.
    retrying: Retrying,
}

impl PartitionsFeed {
    pub fn new(
        platform: Arc<dyn Platform>,
        bucket: Arc<Bucket>,
        deployment: Arc<Deployment>,
        partition: Partition,
    ) -> PartitionsFeed {
        PartitionsFeed {
            platform,
            bucket,
            deployment,
            partition,
            signal: Signal::default(),
            changes: None,
            retry: None,
            restarted: Vec::new(),
            known: BTreeMap::new(),
            rebuilds: 0,
            retrying: Retrying::default(),
        }
    }

    /// Begins to read at the position of the state; `None` if that is not possible now.
    fn open(&mut self) -> Option<Changes> {
        let node = self.deployment.node.upgrade()?;
        let collection = self.bucket.manifest().resolve(&self.deployment.spec.keyspace()).ok()?;
        self.known = self.partition.progress_of_all().collect();
        let mut branches = self.deployment.branches.lock();
        for (vbid, point) in &self.known {
            self.deployment.processed.raise(*vbid, consistent(point));
            branches.insert(*vbid, point.vb_uuid);
        }
        drop(branches);
        let (points, waiter) = (self.known.clone(), Arc::new(self.signal.clone()));
        Some(Changes::follow(&node, &self.bucket, collection, points, waiter))
    }

    /// Reads new changes. Also returns true if there are no more for now.
    fn collect(&mut self, changes: &mut Changes) -> Result<(Batch, bool), String> {
        let (mut batch, mut bytes, mut is_all) = (Batch::default(), 0, false);
        while batch.documents.len() < BATCH_DOCUMENTS_MAX && bytes < BATCH_BYTES_MAX {
            match changes.next_change() {
                NextChange::Change(change) => {
                    bytes += change.document.memory_bytes();
                    batch.documents.push((change.vbid, change.document));
                }
                NextChange::Passed => {}
                NextChange::Nothing => is_all = true,
                NextChange::Complete => return Err("the changes have ended".into()),
                NextChange::Broken(why) => return Err(why),
            }
            self.restarted.extend(changes.take_restarted());
            if is_all || !self.restarted.is_empty() {
                break;
            }
        }
        let is_restarted = |vbid: &Vbid| self.restarted.contains(vbid);
        batch.documents.retain(|(vbid, _)| !is_restarted(vbid));
        let moved = changes.points().filter(|(vbid, point)| self.known.get(vbid) != Some(point));
        batch.progress = moved.filter(|(vbid, _)| !is_restarted(vbid)).collect();
        Ok((batch, is_all && self.restarted.is_empty()))
    }

    /// Adds a batch to the state.
    fn take(&mut self, batch: Batch) -> Result<(), Error> {
        let outcome = self.partition.on_batch(&batch, self.platform.now());
        keep_capsules(&*self.platform, &self.deployment.name, self.partition.take_capsules());
        let report = match outcome {
            Ok(report) => report,
            Err(error) => {
                if error.is_retryable() {
                    let mut batch = batch;
                    batch.documents.drain(..self.partition.taken());
                    self.retry = Some(batch);
                }
                return Err(error);
            }
        };
        if let Some(error) = report.errors.first() {
            let (name, count) = (&self.deployment.name, report.errors.len());
            let key = String::from_utf8_lossy(&error.key);
            tracing::warn!(
                "{name}: document {} and {} more: {}",
                UserData(key),
                count - 1,
                UserData(&error.message)
            );
        }
        self.deployment.set_status(0, self.partition.status());
        let mut branches = self.deployment.branches.lock();
        for (vbid, point) in batch.progress {
            self.deployment.processed.raise(vbid, consistent(&point));
            branches.insert(vbid, point.vb_uuid);
            self.known.insert(vbid, point);
        }
        Ok(())
    }

    /// Removes a vBucket from the state.
    fn forget(&mut self, vbid: Vbid) -> Result<(), Error> {
        tracing::info!("{}: {vbid} is read from its beginning", self.deployment.name);
        self.deployment.coverage.begin_removal(vbid);
        self.deployment.branches.lock().remove(&vbid);
        self.deployment.processed.reset(vbid, Seqno::ZERO);
        self.partition.rollback(vbid, ResumePoint::default())?;
        self.known.remove(&vbid);
        Ok(())
    }

    fn work(&mut self) -> Result<Next, Error> {
        if let Some(batch) = self.retry.take() {
            self.take(batch)?;
        }
        while let Some(vbid) = self.restarted.last().copied() {
            self.forget(vbid)?;
            self.restarted.pop();
        }
        let opened = self.changes.take().or_else(|| self.open());
        let Some(mut changes) = opened else { return Ok(Next::After(BROKEN_PAUSE)) };
        let (batch, is_all) = match self.collect(&mut changes) {
            Ok(collected) => collected,
            Err(why) => {
                tracing::warn!("{}: {why}: reading continues soon", self.deployment.name);
                return Ok(Next::After(BROKEN_PAUSE));
            }
        };
        let (pause, is_caught_up) = (changes.pause(), is_all && changes.is_caught_up());
        self.changes = Some(changes);
        if !batch.progress.is_empty() {
            self.take(batch)?;
        }
        if !is_all {
            self.deployment.processed.publish();
            return Ok(Next::Again);
        }
        self.partition.settle()?;
        let is_promoted = !is_caught_up || self.cover();
        self.deployment.processed.publish();
        let pause = pause.into_iter().chain((!is_promoted).then_some(PAUSE)).min();
        Ok(pause.map_or(Next::Wait, Next::After))
    }

    /// Marks the state as complete. Returns false if the deployment could not yet replace the one that it was built
    /// for.
    fn cover(&self) -> bool {
        for vbid in (0..self.bucket.vbucket_count()).map(Vbid) {
            if !self.deployment.coverage.is_known(vbid) {
                self.deployment.coverage.cover(vbid, Seqno::ZERO);
            }
        }
        self.deployment.complete();
        let Some(node) = self.deployment.node.upgrade() else { return true };
        let is_this = |building: Arc<Deployment>| Arc::ptr_eq(&building, &self.deployment);
        let is_building = node.plugins().building(&self.deployment.name).is_some_and(is_this);
        !is_building || node.plugins().promote(&self.deployment)
    }

    /// Drops the state and starts again.
    fn rebuild(&mut self) -> Result<(), Error> {
        self.rebuilds += 1;
        for vbid in (0..self.bucket.vbucket_count()).map(Vbid) {
            self.deployment.coverage.begin_removal(vbid);
            self.deployment.processed.reset(vbid, Seqno::ZERO);
        }
        self.deployment.branches.lock().clear();
        (self.changes, self.retry) = (None, None);
        self.restarted.clear();
        self.partition.clear()
    }
}

impl Task for PartitionsFeed {
    fn name(&self) -> &'static str {
        "partitions"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if self.deployment.is_over() {
            return Next::Done;
        }
        let error = match self.work() {
            Ok(next) => {
                self.retrying.end();
                return next;
            }
            Err(error) if error.is_retryable() => {
                let now_ns = self.platform.now().monotonic_ns;
                if let Some(line) = self.retrying.again(&error, now_ns) {
                    tracing::warn!("{line}");
                }
                return Next::After(PAUSE);
            }
            Err(error) => error,
        };
        let is_given_up = !matches!(error, Error::Fatal { .. }) || self.rebuilds >= REBUILDS_MAX;
        tracing::warn!("{error}");
        if !is_given_up && self.rebuild().is_ok() {
            return Next::Again;
        }
        self.deployment.set_status(0, self.partition.status());
        match error.is_state_full() {
            true => self.deployment.give_up(&error.to_string()),
            false => self.deployment.end(Progress::Failed(error.to_string())),
        }
        Next::Done
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl Drop for PartitionsFeed {
    fn drop(&mut self) {
        self.deployment.close(&mut self.partition);
        self.deployment.feed_ended();
    }
}

impl Deployment {
    /// Returns the index if it has all of a partition, and reflects the wanted end of each vBucket.
    ///
    /// # Errors
    /// [`Missing`]: `NotOwner` if this node does not have the partition.
    pub fn partition(
        &self,
        partition: u16,
        wanted: &[End],
        left: Duration,
    ) -> Result<IndexSnapshot, Missing> {
        let held = self.spec.share().map(|share| &share.held);
        if !held.is_some_and(|held| held.contains(&partition)) {
            return Err(Missing::NotOwner);
        }
        let node = self.node.upgrade().ok_or(Missing::NotYet("the node ends".into()))?;
        let begun_ns = node.now().monotonic_ns;
        let all = Vbids::first(self.bucket.vbucket_count());
        loop {
            let moved = self.processed.moved();
            match self.progress() {
                Progress::Running => {}
                Progress::Failed(reason) | Progress::Damaged(reason) => {
                    return Err(Missing::Stopped(reason));
                }
                _ => return Err(Missing::NotYet("it was replaced or deleted meanwhile".into())),
            }
            let covered = self.coverage.covers(&all, &self.processed);
            let covered =
                covered.ok_or_else(|| Missing::NotYet("the index is being built".into()))?;
            if self.has_reached(wanted) {
                let snapshot = self.snapshot().map_err(Missing::Failed)?;
                if self.coverage.is_still(covered) {
                    return Ok(snapshot);
                }
                continue;
            }
            let passed = Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
            let left = left.min(REACH_PATIENCE).saturating_sub(passed);
            if left.is_zero() {
                return Err(Missing::NotYet("the index lags behind the writes".into()));
            }
            block::on(&*node.platform, moved, left.min(PAUSE));
        }
    }

    fn has_reached(&self, wanted: &[End]) -> bool {
        let branches = self.branches.lock();
        wanted.iter().all(|end| {
            let is_there = end.vbid.0 < self.bucket.vbucket_count();
            if end.seqno == Seqno::ZERO || !is_there {
                return true;
            }
            let branch = branches.get(&end.vbid);
            let is_branch = end.branch.is_none_or(|wanted| branch == Some(&VbUuid(wanted)));
            is_branch && self.processed.get(end.vbid) >= end.seqno
        })
    }
}

/// Returns the ends of the histories of vBuckets, if this node serves all of them.
pub fn ends(bucket: &Bucket, now: Now, vbids: &Vbids) -> Option<Vec<End>> {
    let end = |vbid: Vbid| {
        let vbucket = bucket.vbucket(vbid)?;
        let branch = Some(vbucket.failover_log().current().0);
        Some(End { vbid, branch, seqno: vbucket.high_seqno() })
    };
    let ends = vbids.iter().map(end).collect::<Option<Vec<_>>>()?;
    // It suffices to check this afterwards, because an end does not move back while a vBucket is served.
    bucket.serves(vbids, now).then_some(ends)
}
