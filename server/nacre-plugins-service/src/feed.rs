//! Feeds a partition with the history of its bucket: a consumer like the flusher, but with a plugin instead of a store.

use super::deployment::{is_in_subset, keep_capsules};
use super::following::Following;
use super::functions;
use super::history::next_portion;
use super::replay::Replaying;
use super::retrying::Retrying;
use super::spec::Selection;
use super::{Deployment, Progress};
use crate::NodePlugins;
use nacre_auth::UserData;
use nacre_bucket::{Bucket, DirtyVbuckets, Next, Signal, Task};
use nacre_dcp::{Batch, Limit, Portion, Resume, ResumePoint, Stream, resume};
use nacre_node::Platform;
use nacre_sandbox::{Error, Partition, Report};
use nacre_types::{Document, Seqno, VbUuid, Vbid};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of documents in a batch. The cost of a call is negligible from 64 on, but folding many changes into a tree at
/// once is cheaper.
const BATCH_DOCUMENTS_MAX: usize = 8192;
/// Number of documents in a batch from which the overhead of a call is small for any plugin.
const BATCH_DOCUMENTS_CHEAP: usize = 64;
/// Number of documents in the first batch; the cost of the user code is not known yet.
const BATCH_DOCUMENTS_FIRST: usize = 1;
/// Intended duration of a batch in nanoseconds. Batches grow below the range and shrink above it, so that a feed can be stopped
/// soon even if its user code is slow.
const BATCH_NS_WANTED: std::ops::Range<u64> = 100_000_000..400_000_000;
/// Maximum growth factor from one batch to the next, because the time of a few documents predicts little about many.
const BATCH_GROWTH_MAX: u64 = 32;
/// Maximum size of a batch in bytes; the last document may exceed it.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Pause before a busy plugin is called again.
const BUSY_INTERVAL: Duration = Duration::from_millis(50);
/// Pause before due timers are checked again while the node has no lease, in nanoseconds.
const LEASE_INTERVAL_NS: u64 = 50_000_000;
/// Pause before waiting vBuckets are checked again.
const WAITING_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of syncs of a state that must not be rebuilt automatically, in nanoseconds.
const SYNC_INTERVAL_NS: u64 = 5_000_000_000;
/// Number of rebuilds before the deployment is given up.
const REBUILDS_MAX: u32 = 3;
/// Maximum age of an end of history that a new deployment must have reached before it replaces the old one: one second.
const CAUGHT_UP_NS: u64 = 1_000_000_000;
/// Minimum pause between log lines about failed documents.
const FAILURE_LOG_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of documents read from one vBucket at a time.
const PORTION_DOCUMENTS_MAX: usize = 128;

pub(crate) struct Feed {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) deployment: Arc<Deployment>,
    selection: Selection,
    pub(super) partition: Partition,
    /// The lane of the deployment: it reads its share of the vBuckets.
    lane: usize,
    pub(super) dirty: Arc<DirtyVbuckets>,
    pub(super) signal: Signal,
    streams: Vec<Option<Stream<nacre_store::Error>>>,
    /// The history branch of each stream.
    branches: Vec<VbUuid>,
    turn: usize,
    batch_documents: usize,
    /// Monotonic time until which failures are not logged, and the number of failures since the last line.
    quiet_until_ns: u64,
    unlogged: usize,
    /// Counts the plugin's successive requests for a retry.
    retrying: Retrying,
    /// True if the vBucket of `OnDeploy` has been checked.
    pub(super) has_begun: bool,
    /// True if `OnDeploy` has failed: the function will be undeployed and receives no documents.
    launch_failed: bool,
    /// True if the last step fired timers. Documents come next, so that timers that set timers cannot starve them.
    has_fired: bool,
    /// A batch that the plugin has asked to receive again.
    retry: Option<Batch>,
    /// Parts of history to process again, and whether they had the last turn.
    replaying: Replaying,
    has_replayed: bool,
    /// Number of rebuilds of the state because the plugin could not continue with it.
    rebuilds: u32,
    /// End of history when the feed began; `None` once it is reached.
    beginning: Option<Vec<Seqno>>,
    /// Seqnos to reach before the deployment replaces the old one, and the time when they were recorded.
    goal: Option<(u64, Vec<Seqno>)>,
    /// True if they have been reached but the replacement has not taken place.
    is_promotion_due: bool,
    /// For a deployment with a pace: true while it processes new changes until none are left.
    is_following: bool,
    /// Monotonic time at which to check again how many changes have gathered.
    look_at_ns: u64,
    /// vBuckets whose changes must wait: to be stored, or for another node to finish.
    pub(super) waiting: Vec<Vbid>,
    /// Cooperation with the same deployment on other nodes.
    pub(super) others: Following,
    /// Monotonic time of the next sync of the state; `None` if nothing was written since the last.
    sync_at_ns: Option<u64>,
}

impl Feed {
    pub fn new(
        platform: Arc<dyn Platform>,
        bucket: Arc<Bucket>,
        deployment: Arc<Deployment>,
        partition: Partition,
        lane: usize,
    ) -> Feed {
        let signal = Signal::default();
        let dirty = bucket.listeners.listen_to(deployment.vbids_of(lane), Arc::new(signal.clone()));
        let streams = (0..bucket.vbucket_count()).map(|_| None).collect();
        let branches = vec![VbUuid::default(); usize::from(bucket.vbucket_count())];
        // If positions are kept, a vBucket counts only after it is taken over from its previous node.
        for vbid in deployment.vbids_of(lane).filter(|_| !deployment.spec.keeps_places()) {
            if let Some(high) = bucket.active_high_seqno(vbid) {
                // A new deployment answers from the part that it has so far. An older one has already answered from complete
                // vBuckets where they were served, so it must catch up first.
                let owed = if deployment.was_news_of(vbid) { Seqno::ZERO } else { high };
                deployment.coverage.cover(vbid, owed);
            }
        }
        let beginning = Some(bucket.served_seqnos());
        Feed {
            platform,
            bucket,
            deployment,
            selection: Selection::default(),
            partition,
            lane,
            dirty,
            signal,
            streams,
            branches,
            turn: 0,
            batch_documents: BATCH_DOCUMENTS_FIRST,
            quiet_until_ns: 0,
            unlogged: 0,
            retrying: Retrying::default(),
            has_begun: false,
            launch_failed: false,
            has_fired: false,
            retry: None,
            replaying: Replaying::default(),
            has_replayed: false,
            rebuilds: 0,
            beginning,
            goal: None,
            is_promotion_due: false,
            is_following: true,
            look_at_ns: 0,
            waiting: Vec::new(),
            others: Following::default(),
            sync_at_ns: None,
        }
    }

    /// Syncs the state from time to time, if a loss of a part of it must not pass unnoticed.
    fn sync_when_due(&mut self) {
        let now_ns = self.platform.now().monotonic_ns;
        if self.sync_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some()
            && let Err(error) = self.partition.sync()
        {
            tracing::warn!("{error}: it may be built from an earlier state after a power cut");
        }
    }

    /// Records that the state was written.
    fn written(&mut self) {
        if self.deployment.spec.has_effects() && self.sync_at_ns.is_none() {
            let now_ns = self.platform.now().monotonic_ns;
            self.sync_at_ns = Some(now_ns.saturating_add(SYNC_INTERVAL_NS));
        }
    }

    /// Begins to read a vBucket where the partition stopped, or where the two histories diverge. Returns false while another node
    /// has not finished with it.
    fn open(&mut self, vbid: Vbid) -> Result<bool, Error> {
        let Some(mut from) = self.place(vbid)? else { return Ok(false) };
        let mut has_nothing = false;
        loop {
            // A deployment may begin later than history, at a token of a consumer that may be older than a failover. So its start
            // is compared with the failover log like any other position. The loop ends because a rollback only lowers the seqno.
            if from.seqno == Seqno::ZERO && !std::mem::replace(&mut has_nothing, true) {
                from = self.deployment.spec.beginning(vbid);
            }
            let Some(mut vbucket) = self.bucket.vbucket(vbid) else { return Ok(true) };
            let (log, high) = (vbucket.failover_log(), vbucket.high_seqno());
            // A consumer's token has short branch IDs.
            from.vb_uuid = nacre_changes_service::resolve(from.vb_uuid, log);
            // A consumer without data cannot miss a deletion.
            let purged = if has_nothing { Seqno::ZERO } else { vbucket.purge_seqno() };
            let verdict = resume(&from, log, high, purged);
            let to = match verdict {
                Resume::Continue => {
                    let mut stream = Stream::resume(&mut vbucket, &from);
                    self.branches[vbid.index()] = vbucket.failover_log().current();
                    drop(vbucket);
                    if self.deployment.spec.old {
                        stream = stream.with_history();
                    }
                    // Must follow the rollback: a watermark above the state would let a consistent query read too early.
                    self.deployment.processed.reset(vbid, consistent(&from));
                    self.streams[vbid.index()] = Some(stream);
                    return Ok(true);
                }
                Resume::Rollback(to) => {
                    ResumePoint { seqno: to, snapshot_start: to, snapshot_end: to, ..from }
                }
                Resume::Invalid => ResumePoint::default(),
            };
            drop(vbucket);
            tracing::info!(
                "{}: {vbid} rolls back from {} to {}",
                self.deployment.name,
                from.seqno,
                to.seqno
            );
            from = if has_nothing { to } else { self.roll_back(vbid, to)? };
        }
    }

    /// Removes history beyond `to` from the state. Readers do not see the vBucket until it is read again.
    fn roll_back(&mut self, vbid: Vbid, to: ResumePoint) -> Result<ResumePoint, Error> {
        if !self.deployment.spec.keeps_places() {
            self.deployment.coverage.begin_removal(vbid);
        }
        self.partition.rollback(vbid, to)
    }

    /// Continues to read a vBucket on its current history branch. Returns false while another node has not finished with it.
    fn follow_branch(&mut self, vbid: Vbid, branch: VbUuid) -> Result<bool, Error> {
        if branch != self.branches[vbid.index()] {
            // The documents that were read may not be part of the new history.
            self.close(vbid);
        }
        if self.streams[vbid.index()].is_none() && !self.open(vbid)? {
            return Ok(false);
        }
        if !self.deployment.coverage.is_known(vbid) {
            // Readers may expect everything that this copy has when it begins to serve; before that it may have little.
            match self.bucket.active_high_seqno(vbid) {
                Some(high) => self.deployment.coverage.cover(vbid, high),
                None => self.deployment.coverage.enter(vbid),
            }
        }
        Ok(true)
    }

    /// Reads new history until the batch is full.
    fn collect(&mut self) -> Result<Batch, Failure> {
        self.waiting.drain(..).for_each(|vbid| self.dirty.mark(vbid));
        let mut batch = Batch::default();
        let mut bytes = 0;
        while batch.documents.len() < self.batch_documents && bytes < BATCH_BYTES_MAX {
            let Some(vbid) = self.next_vbucket() else { break };
            self.turn = vbid.index() + 1;
            let branch = self.bucket.served(vbid).map(|vbucket| vbucket.failover_log().current());
            if batch.progress.contains_key(&vbid) && branch != Some(self.branches[vbid.index()]) {
                // Collected documents must be in the state before a rollback can remove them.
                self.dirty.mark(vbid);
                break;
            }
            let is_ready = match branch {
                Some(branch) => self.follow_branch(vbid, branch),
                None => self.release(vbid).map(|()| true),
            };
            match is_ready {
                Ok(true) => {}
                Ok(false) => {
                    self.waiting.push(vbid);
                    continue;
                }
                Err(error) => {
                    self.dirty.mark(vbid);
                    // The batch's documents of other vBuckets must not be lost.
                    if error.is_retryable() && !batch.progress.is_empty() {
                        break;
                    }
                    return Err(Failure::Plugin(error));
                }
            }
            let room = self.batch_documents - batch.documents.len();
            let limit = Limit {
                count: room.min(PORTION_DOCUMENTS_MAX),
                bytes: BATCH_BYTES_MAX.saturating_sub(bytes),
            };
            let portion = self.read(vbid, limit).map_err(Failure::Store)?;
            let Some(portion) = portion else { continue };
            // There may be more: check again after the other vBuckets had their turn.
            self.dirty.mark(vbid);
            bytes +=
                portion.documents.iter().map(|document| document.memory_bytes()).sum::<usize>();
            self.selection.follow_spec(&self.bucket.manifest(), &self.deployment.spec);
            if self.deployment.spec.old && portion.is_history {
                bytes += self.find_previous(vbid, &portion, &mut batch).map_err(Failure::Store)?;
            }
            let ours = portion.documents.into_iter().filter(|document| self.is_ours(document));
            batch.documents.extend(ours.map(|document| (vbid, document)));
            batch.progress.insert(vbid, portion.position);
        }
        Ok(batch)
    }

    /// Adds the versions that the documents of a portion replaced, as far as they are kept. Returns their size in bytes.
    fn find_previous(
        &self,
        vbid: Vbid,
        portion: &Portion,
        batch: &mut Batch,
    ) -> Result<usize, nacre_store::Error> {
        let mut bytes = 0;
        for document in portion.documents.iter().filter(|document| self.is_ours(document)) {
            let seqno = document.meta.seqno;
            if let Some(previous) = self.bucket.previous(vbid, seqno)? {
                bytes += previous.memory_bytes();
                batch.previous.insert((vbid, seqno), previous);
            }
        }
        Ok(bytes)
    }

    fn is_ours(&self, document: &Document) -> bool {
        self.selection.holds(document.collection())
    }

    /// Releases a vBucket that another node now serves; that node shows its rows from now on. Deployments that must not repeat
    /// effects keep the position.
    pub(super) fn release(&mut self, vbid: Vbid) -> Result<(), Error> {
        self.close(vbid);
        // A batch that waits for a retry may contain documents of the vBucket; its next node processes them.
        if let Some(batch) = &mut self.retry {
            batch.documents.retain(|(of, _)| *of != vbid);
            batch.progress.remove(&vbid);
        }
        self.stop_serving(vbid);
        self.deployment.processed.reset(vbid, Seqno::ZERO);
        let is_kept = self.deployment.spec.keeps_places();
        if !is_kept && self.partition.progress(vbid).seqno > Seqno::ZERO {
            self.partition.rollback(vbid, ResumePoint::default())?;
        }
        self.deployment.coverage.finish_removal(vbid);
        Ok(())
    }

    fn close(&mut self, vbid: Vbid) {
        if let (Some(stream), Some(mut vbucket)) =
            (self.streams[vbid.index()].take(), self.bucket.vbucket(vbid))
        {
            stream.close(&mut vbucket);
        }
    }

    /// Returns a vBucket with changes. A development deployment first reads the vBuckets from which it answers.
    pub(super) fn next_vbucket(&self) -> Option<Vbid> {
        if self.deployment.spec.is_development() {
            let first = (0..64).filter(|bit| is_in_subset(Vbid(*bit)));
            let wanted = first.fold(0u64, |bits, bit| bits | 1 << bit);
            if let Some(vbid) = self.dirty.take_among(self.turn, wanted) {
                return Some(vbid);
            }
        }
        self.dirty.take(self.turn)
    }

    /// Returns how long to let changes gather; `None` if it is time to process them.
    fn pause(&mut self) -> Option<Next> {
        let pace = self.deployment.spec.pace()?;
        if self.is_following || self.deployment.is_asked(self.lane) {
            self.deployment.accept_update_request(self.lane);
            self.is_following = true;
            return None;
        }
        let now_ns = self.platform.now().monotonic_ns;
        if now_ns < self.look_at_ns {
            return Some(Next::After(Duration::from_nanos(self.look_at_ns - now_ns)));
        }
        self.look_at_ns = now_ns.saturating_add(pace.interval.as_nanos() as u64);
        if self.deployment.lag() < pace.changes_min {
            return Some(if self.dirty.is_empty() {
                Next::Wait
            } else {
                Next::After(pace.interval)
            });
        }
        self.is_following = true;
        None
    }

    /// Returns the next portion of one vBucket; `None` if there is nothing new.
    fn read(&mut self, vbid: Vbid, limit: Limit) -> Result<Option<Portion>, nacre_store::Error> {
        let Some(stream) = &mut self.streams[vbid.index()] else { return Ok(None) };
        let mut limit = limit;
        if self.deployment.spec.old
            && !stream.is_backfilling()
            && let Some(vbucket) = self.bucket.vbucket(vbid)
            && vbucket.history_start().is_some()
        {
            // The replaced version can be found only after the new one is stored.
            let stored = vbucket.persisted().0.saturating_sub(stream.position().0) as usize;
            if stored == 0 && vbucket.high_seqno() > stream.position() {
                self.waiting.push(vbid);
                return Ok(None);
            }
            limit.count = limit.count.min(stored.max(1));
        }
        let (bucket, deployment, selection) = (&self.bucket, &self.deployment, &mut self.selection);
        next_portion(bucket, stream, limit, |collection| {
            selection.follow_spec(&bucket.manifest(), &deployment.spec);
            selection.holds(collection)
        })
    }

    /// Drops the state and starts again from the deployment's beginning.
    fn rebuild(&mut self) -> Next {
        self.rebuilds += 1;
        for vbid in self.deployment.vbids_of(self.lane) {
            self.deployment.coverage.begin_removal(vbid);
        }
        if let Err(error) = self.partition.clear() {
            self.deployment.end(Progress::Failed(error.to_string()));
            return Next::Done;
        }
        self.retry = None;
        for vbid in self.deployment.vbids_of(self.lane) {
            self.close(vbid);
            self.deployment.processed.reset(vbid, Seqno::ZERO);
            if !self.deployment.spec.keeps_places()
                && let Some(high) = self.bucket.active_high_seqno(vbid)
            {
                self.deployment.coverage.cover(vbid, high);
            }
            self.dirty.mark(vbid);
        }
        Next::Again
    }

    /// Adjusts the size of the next batch to the duration of the last one.
    fn adapt(&mut self, batch_ns: u64) {
        if self.batch_documents < BATCH_DOCUMENTS_CHEAP && BATCH_NS_WANTED.contains(&batch_ns) {
            // The time may be that of the call itself: a search index writes a segment per call, however small.
            self.batch_documents *= 2;
        } else if batch_ns < BATCH_NS_WANTED.start {
            let times = (BATCH_NS_WANTED.start / batch_ns.max(1)).clamp(2, BATCH_GROWTH_MAX);
            self.batch_documents = (self.batch_documents * times as usize).min(BATCH_DOCUMENTS_MAX);
        } else if batch_ns >= BATCH_NS_WANTED.end {
            self.batch_documents = (self.batch_documents / 2).max(1);
        }
    }

    /// Logs one line per kind of failure, however many documents failed, and then none for a while, because user code may fail on
    /// all documents in batches of one. The status has the number.
    fn log(&mut self, report: &Report) {
        let now_ns = self.platform.now().monotonic_ns;
        let has_failures = !report.errors.is_empty() || !report.dead_letters.is_empty();
        if has_failures && now_ns < self.quiet_until_ns {
            self.unlogged += report.errors.len() + report.dead_letters.len();
            return;
        }
        let unlogged = std::mem::take(&mut self.unlogged);
        if has_failures {
            self.quiet_until_ns = now_ns + FAILURE_LOG_PAUSE.as_nanos() as u64;
        } else {
            self.unlogged = unlogged;
        }
        let name = &self.deployment.name;
        let others = |count: usize| {
            let count = count.saturating_sub(1) + if has_failures { unlogged } else { 0 };
            if count > 0 { format!(" (and {count} others)") } else { String::new() }
        };
        if let Some(error) = report.errors.first() {
            let key = String::from_utf8_lossy(&error.key);
            tracing::warn!(
                "{name}: document {}{}: {}",
                UserData(key),
                others(report.errors.len()),
                UserData(&error.message)
            );
        }
        for dead in &report.dead_timers {
            let (timer, reason) = (UserData(&dead.name), &dead.reason);
            tracing::warn!("{name}: timer {timer} was removed: {reason}");
        }
        if let Some(dead) = report.dead_letters.first() {
            let (key, count) = (String::from_utf8_lossy(&dead.key), report.dead_letters.len());
            tracing::warn!(
                "{name}: document {}{} was skipped: {}",
                UserData(key),
                others(count),
                dead.reason
            );
        }
    }

    /// Publishes the progress, after checking whether the feed has processed all changes that existed when it began.
    fn publish(&mut self) {
        if self.beginning.as_ref().is_some_and(|goal| self.has_reached(goal)) {
            self.beginning = None;
            self.deployment.complete();
        }
        self.deployment.processed.publish();
    }

    /// Checks whether a deployment that is built next to another has caught up, that is, has reached the end that history had a
    /// moment ago. Continuous writes cannot delay this forever.
    fn race(&mut self) {
        let Some(node) = self.deployment.node.upgrade() else { return };
        let is_building = |building: Arc<Deployment>| Arc::ptr_eq(&building, &self.deployment);
        if !node.plugins().building(&self.deployment.name).is_some_and(is_building) {
            return;
        }
        let now = self.platform.now().monotonic_ns;
        let (set_at, goal) = self.goal.take().unwrap_or_else(|| (now, self.bucket.served_seqnos()));
        if !self.has_reached(&goal) {
            self.goal = Some((set_at, goal));
        } else {
            let took_ns = now.saturating_sub(set_at);
            // Reaching the end took long, so more history may have arrived.
            self.is_promotion_due =
                took_ns > CAUGHT_UP_NS || !node.plugins().promote(&self.deployment);
        }
    }

    fn has_reached(&self, goal: &[Seqno]) -> bool {
        let mut seqnos = goal.iter().enumerate();
        seqnos.all(|(index, seqno)| self.deployment.processed.get(Vbid(index as u16)) >= *seqno)
    }

    /// Calls the plugin with the due timers. Returns false if there were none, or if the node has no lease: it may have been
    /// replaced, and the timers then fire on another node.
    fn fire_timers(&mut self) -> Result<bool, Failure> {
        let now = self.platform.now();
        if self.partition.next_timer_us().is_none_or(|due_us| due_us > now.unix_ns / 1000)
            || !self.has_lease()
        {
            return Ok(false);
        }
        let outcome = self.partition.on_timers(now);
        self.keep_capsules();
        let report = outcome.map_err(Failure::Plugin)?;
        if self.retry.is_none() {
            self.retrying.end();
        }
        self.log(&report);
        let status = self.partition.status();
        if functions::launch_failed(&self.deployment.spec, &status, &report) {
            self.launch_failed = true;
            functions::undeploy(&*self.platform, &self.deployment);
        }
        self.deployment.set_status(self.lane, status);
        Ok(true)
    }

    /// Passes a part of the history to process again to the plugin. Returns false if there was none.
    fn replay(&mut self) -> Result<bool, Failure> {
        let Feed { replaying, deployment, bucket, partition, selection, .. } = self;
        selection.follow_spec(&bucket.manifest(), &deployment.spec);
        let is_ours = |document: &Document| selection.holds(document.collection());
        let serves = |vbid| partition.serves(vbid);
        let next = replaying.next(&deployment.replays, bucket, serves, is_ours);
        let Some(batch) = next.map_err(Failure::Store)? else { return Ok(false) };
        if batch.documents.is_empty() {
            return Ok(true);
        }
        let outcome = self.partition.on_batch(&batch, self.platform.now());
        self.keep_capsules();
        match outcome {
            Ok(report) => self.log(&report),
            Err(error) => {
                if error.is_retryable() {
                    let taken = self.partition.taken();
                    self.replaying.mark_partly_processed(&self.deployment.replays, batch, taken);
                }
                return Err(Failure::Plugin(error));
            }
        }
        self.replaying.mark_processed(&self.deployment.replays, batch.documents.len());
        self.deployment.set_status(self.lane, self.partition.status());
        Ok(true)
    }

    fn has_lease(&self) -> bool {
        self.deployment.node.upgrade().is_some_and(|node| self.bucket.has_lease(node.now()))
    }

    /// Waits until the next timer is due, other nodes must be informed, or new history arrives.
    fn idle(&self) -> Next {
        if self.is_promotion_due {
            return Next::After(BUSY_INTERVAL);
        }
        if !self.deployment.spec.paused && self.deployment.replayed().0 > 0 {
            return Next::Again;
        }
        if !self.waiting.is_empty() {
            return Next::After(WAITING_INTERVAL);
        }
        let now = self.platform.now();
        let due = self.partition.next_timer_us().filter(|_| !self.deployment.spec.paused);
        let due = due.map(|due_us| due_us.saturating_sub(now.unix_ns / 1000) * 1000);
        // Without a lease, timers stay due.
        let due = due.map(|ns| if self.has_lease() { ns } else { ns.max(LEASE_INTERVAL_NS) });
        let report = self.next_report_ns().map(|at_ns| at_ns.saturating_sub(now.monotonic_ns));
        let sync = self.sync_at_ns.map(|at_ns| at_ns.saturating_sub(now.monotonic_ns));
        let next = due.into_iter().chain(report).chain(sync).min();
        next.map_or(Next::Wait, |nanoseconds| Next::After(Duration::from_nanos(nanoseconds)))
    }

    fn keep_capsules(&self) {
        let capsules = self.partition.take_capsules();
        keep_capsules(&*self.platform, &self.deployment.name, capsules);
    }

    fn work(&mut self) -> Result<Next, Failure> {
        if !self.follow().map_err(Failure::Plugin)? {
            return Ok(self.idle());
        }
        if !self.begins().map_err(Failure::Plugin)? {
            return Ok(Next::After(WAITING_INTERVAL));
        }
        self.sync_when_due();
        if self.launch_failed {
            return Ok(Next::Wait);
        }
        self.has_fired = !self.has_fired && self.fire_timers()?;
        if self.has_fired {
            self.written();
            return Ok(Next::Again);
        }
        self.has_replayed = !self.has_replayed && self.replay()?;
        if self.has_replayed {
            return Ok(Next::Again);
        }
        if let Some(next) = self.pause() {
            return Ok(next);
        }
        let batch = match self.retry.take() {
            Some(batch) => batch,
            None => self.collect()?,
        };
        if batch.progress.is_empty() {
            self.is_following = false;
            self.partition.settle().map_err(Failure::Plugin)?;
            // Opening a stream may have shown that a vBucket is up to date.
            self.publish();
            self.race();
            return Ok(self.idle());
        }
        let begun = self.platform.now();
        let outcome = self.partition.on_batch(&batch, begun);
        self.written();
        self.keep_capsules();
        self.adapt(self.platform.now().monotonic_ns.saturating_sub(begun.monotonic_ns));
        match outcome {
            Ok(report) => {
                self.retrying.end();
                self.log(&report);
            }
            Err(error) if error.is_retryable() => {
                let mut batch = batch;
                batch.documents.drain(..self.partition.taken());
                self.retry = Some(batch);
                return Err(Failure::Plugin(error));
            }
            Err(error) => return Err(Failure::Plugin(error)),
        }
        // Must be last: a reader that sees no remaining documents must also see the failures.
        self.deployment.set_status(self.lane, self.partition.status());
        for (vbid, position) in &batch.progress {
            self.deployment.processed.raise(*vbid, consistent(position));
        }
        self.publish();
        self.race();
        Ok(Next::Again)
    }
}

/// Why the feed cannot continue.
enum Failure {
    Plugin(Error),
    Store(nacre_store::Error),
}

/// Returns the last seqno at which a consumer at `point` shows a state that the vBucket actually had.
pub(super) fn consistent(point: &ResumePoint) -> Seqno {
    // A consumer with only the first change of a snapshot misses no version that a later one replaced. After a crash, that change
    // may be all that is left of the snapshot, and readers would wait for a change that never comes.
    if point.seqno == point.snapshot_end || point.seqno == point.snapshot_start {
        point.seqno
    } else {
        Seqno(point.snapshot_start.0.saturating_sub(1))
    }
}

impl Task for Feed {
    fn name(&self) -> &'static str {
        "plugin"
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
        match self.work() {
            Ok(next) => next,
            Err(Failure::Plugin(error)) if error.is_retryable() => {
                let now_ns = self.platform.now().monotonic_ns;
                if let Some(line) = self.retrying.again(&error, now_ns) {
                    tracing::warn!("{line}");
                }
                Next::After(BUSY_INTERVAL)
            }
            Err(Failure::Plugin(error @ Error::Fatal { .. })) if self.rebuilds < REBUILDS_MAX => {
                tracing::warn!("{error}: rebuilding it");
                self.rebuild()
            }
            Err(failure) => {
                let (reason, is_state_full) = match failure {
                    Failure::Plugin(error) => (error.to_string(), error.is_state_full()),
                    Failure::Store(error) => (error.to_string(), false),
                };
                tracing::error!("{} has stopped: {reason}", self.deployment.name);
                self.deployment.set_status(self.lane, self.partition.status());
                match is_state_full {
                    true => self.deployment.give_up(&reason),
                    false => self.deployment.end(Progress::Failed(reason)),
                }
                Next::Done
            }
        }
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.deployment
                .end(Progress::Failed("the node could not continue: see its log".into()));
        } else {
            self.deployment.close(&mut self.partition);
        }
        self.bucket.listeners.remove(&self.dirty);
        for stream in self.streams.drain(..).flatten() {
            if let Some(mut vbucket) = self.bucket.vbucket(stream.vbid()) {
                stream.close(&mut vbucket);
            }
        }
        self.deployment.feed_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::FailoverLog;

    /// A state that may continue with a history that ends at its seqno has all of that history, so no reader waits for more.
    #[test]
    fn a_state_that_resumes_at_the_end_of_history_is_consistent() {
        let log = FailoverLog::from_entries(vec![(VbUuid(1), Seqno(0))]).unwrap();
        for (seqno, start, end) in (0..6).flat_map(|seqno| {
            (0..=seqno).flat_map(move |start| (seqno..8).map(move |end| (seqno, start, end)))
        }) {
            let point = ResumePoint {
                vb_uuid: VbUuid(1),
                seqno: Seqno(seqno),
                snapshot_start: Seqno(start),
                snapshot_end: Seqno(end),
            };
            if resume(&point, &log, point.seqno, Seqno::ZERO) == Resume::Continue {
                assert_eq!(consistent(&point), point.seqno, "{start}..={end}");
            }
        }
    }

    #[test]
    fn a_state_within_a_snapshot_is_consistent_up_to_its_start() {
        let point = |seqno, start, end| ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
        };
        assert_eq!(consistent(&point(6, 5, 9)), Seqno(4));
        assert_eq!(consistent(&point(9, 5, 9)), Seqno(9));
        assert_eq!(consistent(&point(5, 5, 9)), Seqno(5));
    }
}
