//! A running deployment: its progress, its health, and answers from its state.

use super::coverage::Coverage;
use super::history::Range;
use super::kind::Share;
use super::part::Missing;
use super::places::FurthestNodes;
use super::replay::{Replay, Replays};
use super::spec::Spec;
use nacre_bucket::{Bucket, Watermarks};
use nacre_node::Node;
use nacre_node::Platform;
use nacre_sandbox::{
    Account, Answer, Capsule, Error, LOG_LINES_MAX, LogLine, Partition, Reader, Request, Response,
    Status,
};
use nacre_state::IndexSnapshot;
use nacre_types::{Now, Seqno, VbUuid, Vbid, Vbids};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Number of documents above which development views answer from a part of the documents.
const SUBSET_DOCUMENTS_MIN: u64 = 50_000;
/// One of this many vBuckets belongs to that part.
const SUBSET_SHARE: u16 = 16;

/// Returns true if a vBucket is in the part that is indexed first and from which development views answer.
pub(super) fn is_in_subset(vbid: Vbid) -> bool {
    vbid.0.is_multiple_of(SUBSET_SHARE)
}

/// The condition of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Follows the bucket.
    Running,
    /// Takes no documents, and answers from its present state.
    Paused,
    /// Another version continues with its state.
    HandedOver,
    /// Was replaced or removed, together with its state.
    Removed,
    /// Has failed; the reason is for the deployer.
    Failed(String),
    /// Has lost a part of its state, and a rebuild would repeat external effects. The text is the reason and the remedy.
    Damaged(String),
}

/// A deployment on this node.
pub struct Deployment {
    /// Name in messages: `bucket/design document`, or the name of the deployment.
    pub name: String,
    pub(super) spec: Spec,
    pub(super) bucket: Arc<Bucket>,
    /// One reader per lane; empty while the deployment cannot run.
    pub(super) readers: Vec<Reader>,
    /// The last seqno of each vBucket that the state reflects.
    pub processed: Watermarks,
    /// Reports of other nodes about their progress since the feed last checked.
    pub(super) others: Mutex<FurthestNodes>,
    /// The vBuckets that the state should have.
    pub(super) coverage: Coverage,
    /// vBuckets that this node served when the deployment was created, so no client has read them yet; `None` for all.
    served_when_announced: Option<Vbids>,
    /// For a partitioned index: the history branch that it has read of each vBucket.
    pub(super) branches: Mutex<BTreeMap<Vbid, VbUuid>>,
    progress: Mutex<Progress>,
    /// One bit per lane, set when a request needs new changes and the lane has not noticed yet.
    asked: AtomicU64,
    /// True once it has processed all changes that existed when it was opened.
    is_complete: AtomicBool,
    /// Status of the writer of each lane, as of its last report.
    statuses: Mutex<Vec<Status>>,
    pub(super) replays: Replays,
    /// Log lines of the deployment whose state this one continues.
    earlier_log: Mutex<VecDeque<LogLine>>,
    /// Number of feeds that still use the state's spaces.
    feeding: Mutex<usize>,
    fed: Condvar,
    /// Why its state was given up, and how much memory the node had for states at that time.
    given_up: OnceLock<(String, usize)>,
    pub(super) node: Weak<Node>,
}

impl Deployment {
    pub(super) fn new(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        spec: Spec,
        lanes: &[Partition],
        progress: Progress,
        served_when_announced: Option<Vbids>,
    ) -> Deployment {
        let feeds = match progress {
            Progress::Running => true,
            Progress::Paused => spec.keeps_places(),
            _ => false,
        };
        let feeding = if feeds { lanes.len() } else { 0 };
        Deployment {
            name: spec.name.clone(),
            spec,
            bucket: Arc::clone(bucket),
            readers: lanes.iter().map(Partition::reader).collect(),
            processed: Watermarks::new(usize::from(bucket.vbucket_count())),
            others: Mutex::default(),
            coverage: Coverage::new(bucket.vbucket_count()),
            served_when_announced,
            branches: Mutex::default(),
            progress: Mutex::new(progress),
            asked: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
            statuses: Mutex::new(lanes.iter().map(Partition::status).collect()),
            replays: Replays::default(),
            earlier_log: Mutex::default(),
            feeding: Mutex::new(feeding),
            fed: Condvar::new(),
            given_up: OnceLock::new(),
            node: Arc::downgrade(node),
        }
    }

    /// Returns the condition of the deployment.
    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Returns true if the deployment matches `wanted` and should stay as it is.
    pub(super) fn is_as(&self, wanted: &Spec) -> bool {
        self.spec.is_same_as(wanted)
            && self.spec.held == wanted.held
            && match self.progress() {
                Progress::Running => !wanted.paused,
                Progress::Paused => wanted.paused,
                Progress::Failed(_) => self.stays_failed() && self.spec.paused == wanted.paused,
                // Its state has not changed, so opening it again would show the same damage.
                Progress::Damaged(_) => self.spec.paused == wanted.paused,
                Progress::HandedOver | Progress::Removed => false,
            }
    }

    /// Returns true if the deployment has failed and would fail again until the cause is removed and an operator retries
    /// it. A deployment that could not be opened is retried, because the cause may be gone: missing memory for an instance,
    /// or a missing package.
    pub(super) fn stays_failed(&self) -> bool {
        self.spec.tries().is_some() && !self.readers.is_empty()
    }

    /// Returns why it is paused or stopped, unless an operator has paused it.
    pub fn reason(&self) -> Option<String> {
        match self.progress() {
            Progress::Failed(reason) | Progress::Damaged(reason) => Some(reason),
            Progress::Paused => self.spec.held.clone(),
            Progress::Running | Progress::HandedOver | Progress::Removed => None,
        }
    }

    /// Returns true if the deployment was removed, or another one answers in its place.
    pub fn is_replaced(&self) -> bool {
        matches!(self.progress(), Progress::Removed | Progress::HandedOver)
    }

    /// Returns true if the deployment was created while this node served the vBucket; it then started empty, and no client
    /// has read from it.
    pub(super) fn was_news_of(&self, vbid: Vbid) -> bool {
        self.served_when_announced.as_ref().is_none_or(|vbids| vbids.contains(vbid))
    }

    /// Returns the package version; empty for shipped components.
    pub fn version(&self) -> &str {
        self.spec.version()
    }

    /// Returns the instances on this node, one per lane, for profiling; empty while the deployment cannot run.
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Returns the number of documents that are not processed yet, counted by seqnos, so superseded versions count too.
    pub fn lag(&self) -> u64 {
        self.lags().map(|(_, lag)| lag).sum()
    }

    /// Returns the lag of each vBucket that has documents.
    pub fn lags(&self) -> impl Iterator<Item = (Vbid, u64)> {
        self.bucket.served_seqnos().into_iter().enumerate().filter_map(|(index, high)| {
            let vbid = Vbid(index as u16);
            let processed = self.processed.get(vbid);
            (high > Seqno::ZERO).then(|| (vbid, high.0.saturating_sub(processed.0)))
        })
    }

    /// Returns the counters of the plugin's host.
    pub fn status(&self) -> Status {
        let of_writers = self.statuses.lock();
        let lanes = self.readers.iter().zip(&*of_writers);
        let lanes = lanes.map(|(reader, of_writer)| reader.status(of_writer));
        let mut status = lanes.reduce(Status::and).unwrap_or_default();
        drop(of_writers);
        for line in self.earlier_log.lock().iter().rev() {
            if status.log.len() >= LOG_LINES_MAX {
                break;
            }
            status.log.push_front(line.clone());
        }
        status
    }

    /// Returns how many documents could not be processed since the deployment began on this node.
    pub fn document_errors(&self) -> u64 {
        self.statuses.lock().iter().map(|status| status.errors).sum()
    }

    /// Returns the key of the last document that could not be processed, and the reason.
    pub fn last_error(&self) -> Option<(Vec<u8>, String)> {
        let of_writers = self.statuses.lock();
        let last = of_writers.iter().filter_map(|status| status.last_errors.back()).next_back()?;
        Some((last.key.clone(), last.message.clone()))
    }

    /// Requests that parts of history be processed again, up to the present progress, for vBuckets that the node serves.
    /// Returns those parts. The request is lost when the deployment or the node ends.
    pub fn replay(&self, replays: impl IntoIterator<Item = Replay>) -> Vec<Replay> {
        let cut = |replay: Replay| {
            let up_to = replay.range.up_to.min(self.processed.get(replay.range.vbid));
            let range = Range { up_to, ..replay.range };
            (range.after < up_to).then_some(Replay { range, ..replay })
        };
        let known = |replay: &Replay| replay.range.vbid.0 < self.bucket.vbucket_count();
        let replays: Vec<_> = replays.into_iter().filter(known).filter_map(cut).collect();
        self.replays.add(&replays);
        self.bucket.listeners.wake_all();
        replays
    }

    /// Returns how many parts of history wait to be processed again, and how many documents have been.
    pub fn replayed(&self) -> (usize, u64) {
        self.replays.counts()
    }

    /// Returns all vBuckets of the source bucket.
    pub fn vbids(&self) -> impl Iterator<Item = Vbid> + use<> {
        (0..self.bucket.vbucket_count()).map(Vbid)
    }

    /// Returns the vBuckets of one lane.
    pub(super) fn vbids_of(&self, lane: usize) -> impl Iterator<Item = Vbid> + use<> {
        self.vbids().skip(lane).step_by(usize::from(self.spec.lanes()))
    }

    /// Takes over the log lines of an earlier deployment.
    pub(super) fn adopt_log(&self, before: &Deployment) {
        *self.earlier_log.lock() = before.status().log;
    }

    pub(super) fn set_status(&self, lane: usize, status: Status) {
        self.statuses.lock()[lane] = status;
    }

    pub(super) fn is_ended(&self) -> bool {
        *self.progress.lock() != Progress::Running
    }

    /// Returns true if its feed has nothing more to do. A paused deployment still follows other nodes.
    pub(super) fn is_over(&self) -> bool {
        self.bucket.is_closed()
            || !matches!(*self.progress.lock(), Progress::Running | Progress::Paused)
    }

    pub(super) fn end(&self, progress: Progress) {
        let mut current = self.progress.lock();
        if matches!(*current, Progress::Running | Progress::Paused) {
            *current = progress;
        }
        drop(current);
        self.processed.publish();
        self.bucket.listeners.wake_all();
        self.forget_if_idle();
    }

    /// Gives up the state because it exceeds a limit; all of its lanes release their memory.
    pub(super) fn give_up(&self, reason: &str) {
        let limit = self.node.upgrade().map(|node| node.memory().budgets().state.limit());
        let _ = self.given_up.set((reason.to_owned(), limit.unwrap_or_default()));
        self.end(Progress::Failed(reason.to_owned()));
    }

    /// Writes the state that a lane has held back, or removes the state together with those of the other lanes if it was
    /// given up.
    pub(super) fn close(&self, partition: &mut Partition) {
        if let Some((reason, limit_bytes)) = self.given_up.get() {
            partition.abandon(reason, *limit_bytes);
        } else if let Err(error) = partition.sync() {
            tracing::warn!("{error}: it will be built from the last stored state");
        }
    }

    /// Reports the end of a feed. The last one removes the state of a removed deployment.
    pub(super) fn feed_ended(&self) {
        *self.feeding.lock() -= 1;
        self.forget_if_idle();
        self.fed.notify_all();
    }

    fn forget_if_idle(&self) {
        let feeding = self.feeding.lock();
        let gone = *feeding == 0 && *self.progress.lock() == Progress::Removed;
        if let (true, Some(node)) = (gone, self.node.upgrade()) {
            for space in self.spec.spaces() {
                if let Err(error) = super::reconcile::remove_state(&node, &space) {
                    tracing::warn!("{}: its state could not be removed: {error}", self.name);
                }
            }
        }
    }

    pub(super) fn is_feeding(&self) -> bool {
        *self.feeding.lock() > 0
    }

    /// Waits until the feeds of a removed deployment have finished their current batches and ended, and its state is
    /// removed. Do not call it on a thread for which others wait.
    pub fn wait_for_feeds(&self) {
        let mut feeding = self.feeding.lock();
        while *feeding > 0 {
            self.fed.wait(&mut feeding);
        }
    }

    /// Waits until the state reflects everything that the bucket contains at the time of the call.
    ///
    /// # Errors
    /// The reason, if the deployment ends before.
    pub async fn catch_up(&self) -> Result<(), String> {
        self.catch_up_in(None).await
    }

    /// As [`Deployment::catch_up`], limited to `vbids` if they are given.
    ///
    /// # Errors
    /// The reason, if the deployment ends before.
    pub async fn catch_up_in(&self, vbids: Option<&Vbids>) -> Result<(), String> {
        self.ask_for_update();
        for (index, high_seqno) in self.bucket.served_seqnos().into_iter().enumerate() {
            let vbid = Vbid(index as u16);
            if high_seqno > Seqno::ZERO
                && vbids.is_none_or(|vbids| vbids.contains(vbid))
                && !self.processed.reached(vbid, high_seqno, || self.is_ended()).await
            {
                break;
            }
        }
        self.require_running()
    }

    /// Waits until the state reflects each listed vBucket up to its seqno.
    ///
    /// # Errors
    /// The reason, if the deployment ends before.
    pub async fn reach(&self, wanted: &[(Vbid, Seqno)]) -> Result<(), String> {
        self.ask_for_update();
        let known = |(vbid, _): &&(Vbid, Seqno)| vbid.0 < self.bucket.vbucket_count();
        for (vbid, seqno) in wanted.iter().filter(known) {
            if !self.processed.reached(*vbid, *seqno, || self.is_ended()).await {
                return self.require_running();
            }
        }
        self.require_running()
    }

    /// Returns the reason if the deployment is not running.
    fn require_running(&self) -> Result<(), String> {
        match self.progress() {
            Progress::Running => Ok(()),
            Progress::Paused => Err("it is paused".into()),
            Progress::Removed | Progress::HandedOver => {
                Err("it was replaced or deleted meanwhile".into())
            }
            Progress::Failed(reason) | Progress::Damaged(reason) => Err(reason),
        }
    }

    /// Lets the feed take new changes now, even if its pace makes it wait.
    pub fn ask_for_update(&self) {
        let all = u64::MAX >> (64 - self.spec.lanes());
        if self.spec.pace().is_some() && self.asked.swap(all, Ordering::AcqRel) != all {
            self.bucket.listeners.wake_all();
        }
    }

    /// Returns true once the deployment has processed all changes that existed when it was opened; from then on it only
    /// follows.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Returns true if the deployment is complete and, for a partitioned index, has these partitions.
    pub fn has(&self, partitions: &BTreeSet<u16>) -> bool {
        let has_all = |share: &Share| partitions.is_subset(&share.held);
        self.is_complete() && self.spec.share().is_none_or(has_all)
    }

    pub(super) fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Returns a snapshot of its index as of the last commit.
    ///
    /// # Errors
    /// The reason why there is no index.
    pub fn snapshot(&self) -> Result<IndexSnapshot, String> {
        let reader = self.readers.first().ok_or("the index does not run")?;
        reader.index().map_err(|error| error.to_string())
    }

    pub(super) fn is_asked(&self, lane: usize) -> bool {
        self.asked.load(Ordering::Acquire) & 1 << lane != 0
    }

    /// Marks a request for new changes as noticed by a lane, before it looks for them.
    pub(super) fn accept_update_request(&self, lane: usize) {
        self.asked.fetch_and(!(1 << lane), Ordering::AcqRel);
    }

    /// Returns the vBuckets from which a development deployment answers: a part of them, so that its first rows are
    /// available soon. `None` for all vBuckets: for other deployments, and if there are few documents.
    pub fn development_subset(&self) -> Option<Vbids> {
        if !self.spec.is_development() {
            return None;
        }
        let source = self.spec.source.as_ref().ok()?;
        let collections = self
            .bucket
            .manifest()
            .collections(source.scope.as_deref(), source.collection.as_deref())
            .ok()?;
        let counts = |collection| self.bucket.counts_of(collection).documents;
        let is_large = collections.into_iter().map(counts).sum::<u64>() > SUBSET_DOCUMENTS_MIN;
        let vbids = (0..self.bucket.vbucket_count()).map(Vbid);
        is_large.then(|| vbids.filter(|vbid| is_in_subset(*vbid)).collect())
    }

    /// Lets each lane begin to answer a request, within `limit` if it is given. Blocks while the plugin runs: do not call
    /// it on a thread for which others wait.
    ///
    /// # Errors
    /// The failure of the plugin, or the reason why it cannot answer.
    pub(super) fn handle(
        &self,
        request: &Request,
        now: Now,
        account: Option<&Arc<Account>>,
        limit: Option<Duration>,
    ) -> Result<Vec<Answer>, Missing> {
        if let Progress::Failed(reason) = self.progress() {
            return Err(Missing::Failed(reason));
        }
        if self.readers.is_empty() {
            return Err(Missing::Failed("the plugin does not run".into()));
        }
        let answer = |reader: &Reader| {
            reader.handle_within(request, now, account.cloned(), limit).map_err(|error| {
                if let Some(node) = self.node.upgrade() {
                    keep_capsules(&*node.platform, &self.name, reader.take_capsules());
                }
                match error {
                    Error::Deadline { .. } if limit.is_some() => {
                        Missing::TimedOut(error.to_string())
                    }
                    error => Missing::from(&error),
                }
            })
        };
        self.readers.iter().map(answer).collect()
    }
}

impl Deployment {
    /// Begins to merge the answers of several nodes into one.
    pub(super) fn merge(
        &self,
        request: &Request,
        parts: &[Response],
        now: Now,
        account: Option<Arc<Account>>,
    ) -> Result<Answer, Missing> {
        let not_running = || Missing::Failed("the plugin does not run".into());
        let reader = self.readers.first().ok_or_else(not_running)?;
        reader.merge(request, parts, now, account).map_err(|error| Missing::from(&error))
    }
}

/// Stores the inputs of failed calls, so that the plugin's author can repeat them.
pub(super) fn keep_capsules(platform: &dyn Platform, name: &str, capsules: Vec<Capsule>) {
    for capsule in capsules {
        match platform.keep_capsule(&capsule) {
            Ok(place) => tracing::warn!(
                "{name}: {}; `nacre plugin test --replay {place}` makes the call again",
                capsule.reason
            ),
            Err(error) => {
                tracing::warn!("{name}: {}; the call could not be kept: {error}", capsule.reason);
            }
        }
    }
}
