//! One running deployment: its progress, its health, and answers from its state.

use super::coverage::Coverage;
use super::kind::Share;
use super::part::Missing;
use super::past::Range;
use super::places::Others;
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

/// Collections above this size let development views answer from a part of the documents.
const SUBSET_DOCUMENTS_MIN: u64 = 50_000;
/// That part has one of this many vBuckets.
const SUBSET_SHARE: u16 = 16;

/// Returns true if a vBucket is in the part that is indexed first, and that development views answer from.
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
    /// Another version goes on with its state.
    HandedOver,
    /// Was replaced or removed, and its state is removed.
    Removed,
    /// Cannot go on: the reason, for the deployer.
    Failed(String),
    /// Has lost a part of its state, and building it again would repeat outside effects: the reason, and the remedy.
    Damaged(String),
}

/// One deployment at work.
pub struct Deployment {
    /// Name in messages: `bucket/design document`, or the name of the deployment.
    pub name: String,
    pub(super) spec: Spec,
    pub(super) bucket: Arc<Bucket>,
    /// One reader a lane; none while it cannot run.
    pub(super) readers: Vec<Reader>,
    /// Up to where each vBucket is reflected in the state.
    pub processed: Watermarks,
    /// Reports of other nodes about their progress since the feed looked last.
    pub(super) others: Mutex<Others>,
    /// The vBuckets that the state should have.
    pub(super) coverage: Coverage,
    /// vBuckets that were served here when the deployment was new, so that nobody has had an answer for them; `None`
    /// for all.
    news_of: Option<Vbids>,
    /// For a partitioned index: the branch of each vBucket that it has read.
    pub(super) branches: Mutex<BTreeMap<Vbid, VbUuid>>,
    progress: Mutex<Progress>,
    /// One bit a lane, set when someone needs new changes and the lane has not noticed yet.
    asked: AtomicU64,
    /// True if it has once had all that there was.
    is_complete: AtomicBool,
    /// Status of the writer of each lane, as of its last report.
    statuses: Mutex<Vec<Status>>,
    pub(super) replays: Replays,
    /// Log lines of the deployment whose state this one continues.
    earlier_log: Mutex<VecDeque<LogLine>>,
    /// Number of feeds that still use the spaces.
    feeding: Mutex<usize>,
    fed: Condvar,
    /// Why its state was given up, and how much memory the node had for state then.
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
        news_of: Option<Vbids>,
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
            news_of,
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
                // Its space has not changed, so opening it again would show the same damage.
                Progress::Damaged(_) => self.spec.paused == wanted.paused,
                Progress::HandedOver | Progress::Removed => false,
            }
    }

    /// Returns true if the deployment has failed and would fail again until someone mends the cause and says so. A
    /// deployment that could not even be opened may have lacked something that exists by now, such as memory for an
    /// instance, or the package.
    pub(super) fn stays_failed(&self) -> bool {
        self.spec.tries().is_some() && !self.readers.is_empty()
    }

    /// Returns why it is paused or stopped, unless its operator has paused it.
    pub fn reason(&self) -> Option<String> {
        match self.progress() {
            Progress::Failed(reason) | Progress::Damaged(reason) => Some(reason),
            Progress::Paused => self.spec.held.clone(),
            Progress::Running | Progress::HandedOver | Progress::Removed => None,
        }
    }

    /// Returns true if another deployment answers in its place, or none.
    pub fn is_replaced(&self) -> bool {
        matches!(self.progress(), Progress::Removed | Progress::HandedOver)
    }

    /// Returns true if the deployment began when this node served the vBucket, and so began with nothing: nobody has
    /// had an answer from it.
    pub(super) fn was_news_of(&self, vbid: Vbid) -> bool {
        self.news_of.as_ref().is_none_or(|vbids| vbids.contains(vbid))
    }

    /// Returns the package version; empty for shipped components.
    pub fn version(&self) -> &str {
        self.spec.version()
    }

    /// The instances on this node, to ask for a profile: those of each lane. None while it cannot run.
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Documents that it has yet to process, counted by seqnos: versions that were superseded count too.
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

    /// Returns how many documents could not be processed since the deployment began here.
    pub fn document_errors(&self) -> u64 {
        self.statuses.lock().iter().map(|status| status.errors).sum()
    }

    /// Key of the last document that could not be processed, and why.
    pub fn last_error(&self) -> Option<(Vec<u8>, String)> {
        let of_writers = self.statuses.lock();
        let last = of_writers.iter().filter_map(|status| status.last_errors.back()).next_back()?;
        Some((last.key.clone(), last.message.clone()))
    }

    /// Orders parts of history to be processed again, up to the present progress, for vBuckets that the node serves.
    /// Returns those parts. Orders are forgotten when the deployment or the node ends.
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

    /// Returns how many parts of history wait to be processed again, and how many documents were.
    pub fn replayed(&self) -> (usize, u64) {
        self.replays.counts()
    }

    /// The vBuckets of its source, as many as there are.
    pub fn vbids(&self) -> impl Iterator<Item = Vbid> + use<> {
        (0..self.bucket.vbucket_count()).map(Vbid)
    }

    /// Returns the vBuckets of one lane.
    pub(super) fn vbids_of(&self, lane: usize) -> impl Iterator<Item = Vbid> + use<> {
        self.vbids().skip(lane).step_by(usize::from(self.spec.lanes()))
    }

    /// Takes over the log lines of an earlier deployment.
    pub(super) fn remember(&self, before: &Deployment) {
        *self.earlier_log.lock() = before.status().log;
    }

    pub(super) fn set_status(&self, lane: usize, status: Status) {
        self.statuses.lock()[lane] = status;
    }

    pub(super) fn is_ended(&self) -> bool {
        *self.progress.lock() != Progress::Running
    }

    /// Returns true if its feed has nothing more to do: one that is paused still follows others.
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

    /// The state has grown beyond a limit: all of its lanes give their memory back.
    pub(super) fn give_up(&self, reason: &str) {
        let limit = self.node.upgrade().map(|node| node.memory().budgets().state.limit());
        let _ = self.given_up.set((reason.to_owned(), limit.unwrap_or_default()));
        self.end(Progress::Failed(reason.to_owned()));
    }

    /// Writes the state that a lane has kept back, or removes its state together with those of the other lanes.
    pub(super) fn leave(&self, partition: &mut Partition) {
        if let Some((reason, limit_bytes)) = self.given_up.get() {
            partition.abandon(reason, *limit_bytes);
        } else if let Err(error) = partition.sync() {
            tracing::warn!("{error}: it will be built from what was stored before");
        }
    }

    /// A feed is gone: with the last one the state of a removed deployment goes too.
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

    /// Waits until the feeds of a deployment that was removed have ended, and its state is gone: after the batches at hand.
    /// Do not call it on a thread that others wait for.
    pub fn wait_for_feeds(&self) {
        let mut feeding = self.feeding.lock();
        while *feeding > 0 {
            self.fed.wait(&mut feeding);
        }
    }

    /// Waits until the state reflects everything that the bucket held when this was called.
    ///
    /// # Errors
    /// The reason, when the deployment ends before.
    pub async fn catch_up(&self) -> Result<(), String> {
        self.catch_up_in(None).await
    }

    /// As [`Deployment::catch_up`], for some vBuckets when they are given.
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
        self.goes_on()
    }

    /// Waits until the state reflects some vBuckets up to a seqno each.
    ///
    /// # Errors
    /// The reason, when the deployment ends before.
    pub async fn reach(&self, wanted: &[(Vbid, Seqno)]) -> Result<(), String> {
        self.ask_for_update();
        let known = |(vbid, _): &&(Vbid, Seqno)| vbid.0 < self.bucket.vbucket_count();
        for (vbid, seqno) in wanted.iter().filter(known) {
            if !self.processed.reached(*vbid, *seqno, || self.is_ended()).await {
                return self.goes_on();
            }
        }
        self.goes_on()
    }

    /// Why it does not, if it does not.
    fn goes_on(&self) -> Result<(), String> {
        match self.progress() {
            Progress::Running => Ok(()),
            Progress::Paused => Err("it is paused".into()),
            Progress::Removed | Progress::HandedOver => {
                Err("it was replaced or deleted meanwhile".into())
            }
            Progress::Failed(reason) | Progress::Damaged(reason) => Err(reason),
        }
    }

    /// Lets the feed take new changes now, even if its pace would let it wait.
    pub fn ask_for_update(&self) {
        let all = u64::MAX >> (64 - self.spec.lanes());
        if self.spec.pace().is_some() && self.asked.swap(all, Ordering::AcqRel) != all {
            self.bucket.listeners.wake_all();
        }
    }

    /// Returns true if it has had, once since it was opened, all that there was then: from there on it only follows.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Returns true if it is complete, and has these partitions, if it is an index that has some.
    pub fn has(&self, partitions: &BTreeSet<u16>) -> bool {
        let has_all = |share: &Share| partitions.is_subset(&share.held);
        self.is_complete() && self.spec.share().is_none_or(has_all)
    }

    pub(super) fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// The index that it keeps, as of its last commit.
    ///
    /// # Errors
    /// Why it keeps none.
    pub fn snapshot(&self) -> Result<IndexSnapshot, String> {
        let reader = self.readers.first().ok_or("the index does not run")?;
        reader.index().map_err(|error| error.to_string())
    }

    pub(super) fn is_asked(&self, lane: usize) -> bool {
        self.asked.load(Ordering::Acquire) & 1 << lane != 0
    }

    /// Marks a request for new changes as noticed by a lane, before it looks for them.
    pub(super) fn hear(&self, lane: usize) {
        self.asked.fetch_and(!(1 << lane), Ordering::AcqRel);
    }

    /// The vBuckets that a deployment which is being tried out answers from: some of them, so that its first rows are
    /// there soon. `None` for all: of other deployments, and when there are not many documents.
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

    /// Lets each lane begin to answer a request. Takes as long as the plugin does: do not call it on a thread that
    /// others wait for. With `limit` the answer may take no longer.
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
    /// Begins to make one answer of those of several nodes.
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

/// Calls that failed are kept, so that their author can make them fail again.
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
