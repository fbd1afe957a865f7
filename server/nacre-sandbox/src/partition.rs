//! A partition of a deployment: one writer, and the state that it folds the change stream into.

use crate::abi::World;
use crate::call::{CallView, CurrentItem, Failure};
use crate::capsule::{Call, Capsule};
use crate::context::{Context, Role};
use crate::feed::{CALL_EVENTS_MAX, Cut, Documents, DueTimers, Fed, Projected, Work, Writer};
use crate::instance::{Instance, state_full};
use crate::journal::Journal;
use crate::pool::IDLE_BYTES_MAX;
use crate::reader::{Published, Reader, Shared};
use crate::status::{Report, Status};
use crate::{Account, Error, Limits, Permit, Plugin, Purpose, Setup};
use nacre_dcp::{Batch, ResumePoint};
use nacre_state::{
    Changes, ProgressLog, ProgressStamp, Refused, State, StateStorage, Timer, TimerChanges,
    VbucketProgress, View, Writes,
};
use nacre_types::{Document, Now, Seqno, Vbid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A partition. It has one writer; [`Partition::reader`] creates any number of readers.
pub struct Partition {
    slot: Slot,
    shared: Arc<Shared>,
    storage: Box<dyn StateStorage>,
    /// The vBuckets whose timers fire here, each with the first moment of that.
    served: BTreeMap<Vbid, ProgressStamp>,
    /// Standings of vBuckets that this partition has begun to serve since the last commit.
    begun: BTreeMap<Vbid, VbucketProgress>,
    /// vBuckets with unreported progress.
    moved: BTreeSet<Vbid>,
    status: Status,
    /// Number of documents that were processed of a batch that will be repeated.
    taken: usize,
    documents_cut: Cut,
    timers_cut: Cut,
    /// Permit for the memory of the state.
    permit: Permit,
}

/// The slot of the writer instance, which is replaced over time.
struct Slot {
    context: Arc<Context>,
    instance: Option<Instance>,
    /// Journal of the last lost instance.
    wreck: Journal,
    /// The current item of the last lost instance.
    current_item: Option<(CurrentItem, Vec<Failure>)>,
    /// Returns true if someone waits for the partition to return.
    is_interrupted: Box<dyn Fn() -> bool + Send>,
    /// The account of the deployment.
    account: Arc<Account>,
    /// Bytes of the state in memory, as of the last commit.
    charged_bytes: usize,
}

/// Returns the memory of a state, with an allowance for partly filled tree nodes and allocator blocks.
fn memory_of(state: &State) -> usize {
    let bytes = state.memory_bytes();
    bytes + bytes / 4
}

impl Slot {
    /// Returns the maximum size of the state in bytes: its limit, or less if the node has less memory for it. The part
    /// of a segmented state in memory is bounded by its flushes.
    fn state_bytes_max(&self, state: &State) -> usize {
        if !state.space.is_resident() {
            return self.limits().state_bytes;
        }
        let room = self.account.room().saturating_add(self.charged_bytes);
        // The inverse of `memory_of`.
        self.limits().state_bytes.min(room / 5 * 4)
    }
}

impl Writer for Slot {
    fn limits(&self) -> Limits {
        self.context.setup.limits
    }

    fn call<T>(
        &mut self,
        state: State,
        items_count: usize,
        call: impl FnOnce(&mut Instance, CallView) -> Result<T, Error>,
    ) -> Result<(T, CallView), Error> {
        let clock = Arc::clone(&self.context.plugin.clock);
        let begun_ns = clock.now_ns();
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.context.instance(Role::Writer)?,
        };
        let bytes_max = self.state_bytes_max(&state);
        let view = View::writing(state, bytes_max);
        let view = CallView { items_count, ..view.into() };
        match call(&mut instance, view) {
            Ok(value) => {
                let view = instance.take_view();
                let is_large = instance.memory_bytes() > IDLE_BYTES_MAX;
                // Other deployments wait for memory that this instance does not need before its next batch.
                if !is_large || !self.context.setup.budgets.writers.is_tight() {
                    self.instance = Some(instance);
                }
                Ok((value, view))
            }
            // The instance may contain effects of the failed call, so it is dropped.
            Err(error) => {
                self.wreck = instance.take_journal();
                let CallView { current_item, failures, .. } = instance.take_view();
                self.current_item = current_item.map(|current_item| (current_item, failures));
                drop(instance);
                clock.rest(begun_ns);
                Err(error)
            }
        }
    }

    fn fold<T>(
        &self,
        bytes_max: usize,
        work: impl FnOnce() -> Result<T, Refused>,
    ) -> Result<T, Error> {
        work().map_err(|refused| {
            let deployment = self.context.setup.name.clone();
            match refused {
                Refused::Damaged(damage) => {
                    Error::Storage { deployment, message: damage.to_string() }
                }
                _ => state_full(deployment, self.limits().state_bytes, bytes_max),
            }
        })
    }

    fn take_current_item(&mut self) -> Option<(CurrentItem, Vec<Failure>)> {
        self.current_item.take()
    }

    fn keep(&mut self, call: Call, error: &Error) {
        let journal = std::mem::take(&mut self.wreck);
        self.context.keep(call, &journal, error);
    }

    fn interrupted(&self) -> Option<Error> {
        (self.is_interrupted)().then(|| Error::Busy {
            deployment: self.context.setup.name.clone(),
            message: "it was interrupted".into(),
        })
    }
}

impl Partition {
    /// Opens the partition in `storage`, whether new or existing.
    ///
    /// # Errors
    /// [`Error::Import`] when the plugin needs more than `setup` grants, [`Error::World`] when it keeps no state,
    /// [`Error::Config`] when it refuses its configuration, [`Error::Storage`] when the state cannot be loaded; other
    /// errors as for any call.
    pub fn open(
        plugin: Plugin,
        setup: Setup,
        mut storage: Box<dyn StateStorage>,
    ) -> Result<Partition, Error> {
        let world = match plugin.world() {
            World::IndexType => World::IndexType,
            _ => World::Service,
        };
        let context = Context::new(plugin, setup, world)?;
        let instance = context.instance(Role::Writer)?;
        let unreadable = |message| {
            let deployment = context.setup.name.clone();
            Error::Storage { deployment, message }
        };
        let loaded = storage.load().map_err(unreadable)?;
        let space = loaded.space().map_err(unreadable)?;
        let mut state = State { space, blobs: loaded.blobs.clone(), ..State::default() };
        for (home, name, timer) in loaded.timers {
            state.timers.set(home, name.into(), timer.into());
        }
        let account = context.setup.budgets.of_state(&context.setup.name);
        let mut permit = account.permit(Purpose::State);
        let charged_bytes = memory_of(&state);
        if permit.try_set(charged_bytes).is_err() {
            let (deployment, bytes_max) = (context.setup.name.clone(), account.bytes_max());
            let error = Error::NodeState { deployment, limit_bytes: bytes_max / 5 * 4 };
            drop(state);
            storage
                .stop(&error.to_string(), context.setup.budgets.state.limit())
                .map_err(unreadable)?;
            return Err(error);
        }
        let shared = Arc::new(Shared::new(Arc::clone(&context)));
        let tracks = loaded.progress.into_iter();
        let tracks = tracks.map(|(vbid, standing)| (vbid, ProgressLog::at(standing))).collect();
        *shared.published.write() = Published { state, tracks, ..Published::default() };
        Ok(Partition {
            slot: Slot {
                context,
                instance: Some(instance),
                wreck: Journal::default(),
                current_item: None,
                is_interrupted: Box::new(|| false),
                account,
                charged_bytes,
            },
            shared,
            storage,
            served: BTreeMap::new(),
            begun: BTreeMap::new(),
            moved: BTreeSet::new(),
            status: Status::default(),
            taken: 0,
            documents_cut: Cut::default(),
            timers_cut: Cut::default(),
            permit,
        })
    }

    /// Ends batches and timers between two calls whenever `is_interrupted` returns true. They fail with
    /// [`Error::Busy`], and the results so far are committed.
    pub fn interrupt_when(&mut self, is_interrupted: impl Fn() -> bool + Send + 'static) {
        self.slot.is_interrupted = Box::new(is_interrupted);
    }

    /// Returns the point at which the feed of a vBucket continues.
    pub fn progress(&self, vbid: Vbid) -> ResumePoint {
        self.standing(vbid).point
    }

    /// Returns the points at which the feed continues, for all vBuckets that were ever fed, in order.
    pub fn progress_of_all(&self) -> impl Iterator<Item = (Vbid, ResumePoint)> {
        let published = self.shared.published.read();
        let points = published.tracks.iter().map(|(vbid, track)| (*vbid, track.standing.point));
        points.collect::<Vec<_>>().into_iter()
    }

    /// Returns the progress in a vBucket.
    pub fn standing(&self, vbid: Vbid) -> VbucketProgress {
        let published = self.shared.published.read();
        published.tracks.get(&vbid).map(|track| track.standing).unwrap_or_default()
    }

    /// Returns true if the partition was ever fed, or has a starting point.
    pub fn is_begun(&self) -> bool {
        !self.shared.published.read().tracks.is_empty()
    }

    /// Starts the timers of a vBucket on this node, which serves it under `term` since `begun`. `begun` comes from a
    /// clock that continues after a restart. The change is stored with the next commit: a process that ends earlier
    /// starts again from the same progress.
    ///
    /// # Errors
    /// The reason why the partition is stopped, if it is.
    pub fn serve(&mut self, vbid: Vbid, term: u64, begun: u64) -> Result<(), Error> {
        let mut fed = Fed::new(self.shared.snapshot()?);
        fed.state.timers.serve(vbid, true);
        let VbucketProgress { moment, point } = self.standing(vbid);
        self.served.insert(vbid, moment.begin(term, begun));
        let standing = VbucketProgress { moment: self.next_moment(vbid), point };
        self.begun.insert(vbid, standing);
        self.show(fed, &[(vbid, standing)]);
        Ok(())
    }

    /// Stops the timers of a vBucket on this node; they are kept for followers.
    pub fn release(&mut self, vbid: Vbid) {
        if self.served.remove(&vbid).is_some() {
            self.moved.remove(&vbid);
            self.shared.published.write().state.timers.serve(vbid, false);
        }
    }

    /// Returns true if the timers of a vBucket fire here.
    pub fn serves(&self, vbid: Vbid) -> bool {
        self.served.contains_key(&vbid)
    }

    /// Iterates over the vBuckets whose timers fire here.
    pub fn served(&self) -> impl Iterator<Item = Vbid> {
        self.served.keys().copied()
    }

    /// Returns true if a served vBucket has made progress since [`Partition::take_moved`].
    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Returns the vBuckets with progress since the last call.
    pub fn take_moved(&mut self) -> BTreeSet<Vbid> {
        std::mem::take(&mut self.moved)
    }

    /// Adopts the progress of a vBucket from the node that serves it, with the changes since this partition's own
    /// progress, or with all timers if they are `whole`.
    ///
    /// # Errors
    /// [`Error::Storage`]; the partition is then stopped.
    pub fn follow(
        &mut self,
        vbid: Vbid,
        standing: VbucketProgress,
        timers: TimerChanges,
        whole: bool,
    ) -> Result<(), Error> {
        let mut fed = Fed::new(self.shared.snapshot()?);
        let home = Some(vbid);
        if whole {
            let before = fed.state.timers.after(vbid, None);
            let before: Vec<_> = before.map(|(name, _)| Arc::clone(name)).collect();
            for name in before {
                fed.state.timers.cancel(home, &name);
                fed.writes.timers.insert((home, name), None);
            }
        }
        for (name, timer) in timers {
            let (name, timer): (Arc<str>, _) = (name.into(), timer.map(Arc::new));
            match &timer {
                Some(timer) => fed.state.timers.set(home, Arc::clone(&name), Arc::clone(timer)),
                None => drop(fed.state.timers.cancel(home, &name)),
            }
            fed.writes.timers.insert((home, name), timer);
        }
        self.keep(fed, &[(vbid, standing)])
    }

    /// Sets starting points other than the first mutation of each vBucket.
    ///
    /// # Errors
    /// [`Error::Storage`]; the partition is then stopped.
    pub fn begin_at(&mut self, points: BTreeMap<Vbid, ResumePoint>) -> Result<(), Error> {
        let state = self.shared.snapshot()?;
        self.commit(Fed::new(state), points)
    }

    /// Sets a timer from outside. Replaces a timer of the same name.
    ///
    /// # Errors
    /// [`Error::Storage`]; the partition is then stopped.
    pub fn set_timer(&mut self, name: &str, timer: Timer) -> Result<(), Error> {
        let mut fed = Fed::new(self.shared.snapshot()?);
        let (name, timer): (Arc<str>, Arc<Timer>) = (name.into(), timer.into());
        fed.state.timers.set(None, Arc::clone(&name), Arc::clone(&timer));
        fed.writes.timers.insert((None, name), Some(timer));
        self.commit(fed, BTreeMap::new())
    }

    /// Folds a batch into the state: its writes and its progress become visible in one commit.
    ///
    /// Documents that fail are listed in the report, and documents that kill the plugin are parked and skipped; both
    /// are part of the commit.
    ///
    /// # Errors
    /// [`Error::Retry`] or [`Error::Busy`]: try again with the part of the batch after [`Partition::taken`]. Any other
    /// error has stopped the partition, without any effect of this batch.
    pub fn on_batch(&mut self, batch: &Batch, now: Now) -> Result<Report, Error> {
        self.taken = 0;
        let mut fed = Fed::new(self.shared.snapshot()?);
        let mut report = Report::default();
        let work = Documents { documents: &batch.documents, previous: &batch.previous, now };
        let (cut, slot) = (&mut self.documents_cut, &mut self.slot);
        let (done, outcome) = match slot.context.plugin.world() {
            World::IndexType => {
                let form = slot.context.setup.index.clone();
                cut.feed(slot, &Projected(work, &form), &mut fed, &mut report)
            }
            _ => cut.feed(slot, &work, &mut fed, &mut report),
        };
        let progress = match &outcome {
            Err(_) => progress_of(batch, done, |vbid| self.progress(vbid)),
            Ok(()) => batch.progress.clone(),
        };
        debug_assert!(
            progress.iter().all(|(vbid, point)| point.seqno >= self.progress(*vbid).seqno),
            "only a rollback takes a place back"
        );
        self.finish(fed, progress, report, done, outcome)
    }

    /// Returns the number of leading documents of the last refused batch that are in the state nevertheless. They must
    /// not be passed again.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Calls the plugin with due timers, 8192 at most. Its writes and the removal of the timers become visible in one
    /// commit. [`Partition::next_timer_us`] shows whether there are more.
    ///
    /// # Errors
    /// The errors of [`Partition::on_batch`]. Fired timers do not fire again.
    pub fn on_timers(&mut self, now: Now) -> Result<Report, Error> {
        let mut fed = Fed::new(self.shared.snapshot()?);
        let mut report = Report::default();
        let now_us = now.unix_ns / 1000;
        let work = DueTimers { timers: fed.state.timers.due(now_us, CALL_EVENTS_MAX), now_us };
        if work.count() == 0 {
            return Ok(report);
        }
        let (done, outcome) = self.timers_cut.feed(&mut self.slot, &work, &mut fed, &mut report);
        self.finish(fed, BTreeMap::new(), report, done, outcome)
    }

    /// Returns the time at which the next timer is due, in microseconds since the Unix epoch; `None` if there is none,
    /// or if the partition is stopped.
    pub fn next_timer_us(&self) -> Option<u64> {
        let published = self.shared.published.read();
        published.state.timers.next().filter(|_| published.stopped.is_none())
    }

    /// Commits the results of `done` items, unless the partition must stop.
    fn finish(
        &mut self,
        fed: Fed,
        progress: BTreeMap<Vbid, ResumePoint>,
        report: Report,
        done: usize,
        outcome: Result<(), Error>,
    ) -> Result<Report, Error> {
        match outcome {
            Ok(()) => {
                self.commit(fed, progress)?;
                self.status.add(&report);
                Ok(report)
            }
            Err(error) if error.is_retryable() && done > 0 => {
                self.commit(fed, progress)?;
                self.taken = done;
                self.status.add(&report);
                Err(error)
            }
            Err(error) => {
                // No document was processed, but the failures count.
                self.status.add(&Report { documents: 0, timers: 0, ..report });
                Err(self.stop_unless_retryable(error))
            }
        }
    }

    /// Rolls the state back to `to` in the history of `vbid`. Returns the point at which the feed continues: `to` or
    /// earlier.
    ///
    /// # Errors
    /// The errors of [`Partition::on_batch`].
    pub fn rollback(&mut self, vbid: Vbid, to: ResumePoint) -> Result<ResumePoint, Error> {
        let mut fed = Fed::new(self.shared.snapshot()?);
        let reached = loop {
            match self.rollback_part(vbid, to.seqno, &mut fed) {
                Ok(Some(reached)) => break reached,
                Ok(None) => {}
                Err(error) => return Err(self.stop_unless_retryable(error)),
            }
        };
        let point = match reached {
            Seqno::ZERO => ResumePoint::default(),
            reached if reached == to.seqno => to,
            reached if reached < to.seqno => {
                ResumePoint { seqno: reached, snapshot_start: reached, snapshot_end: reached, ..to }
            }
            beyond => {
                let message = format!("rolled back {vbid} to {beyond}, not to {}", to.seqno);
                let deployment = self.slot.context.setup.name.clone();
                return Err(self.stop_unless_retryable(Error::Fatal { deployment, message }));
            }
        };
        self.commit(fed, BTreeMap::from([(vbid, point)]))?;
        Ok(point)
    }

    /// Makes one call of a rollback. Returns the seqno that was reached, or `None` if more calls are needed.
    fn rollback_part(
        &mut self,
        vbid: Vbid,
        to: Seqno,
        fed: &mut Fed,
    ) -> Result<Option<Seqno>, Error> {
        if self.slot.context.plugin.world() == World::IndexType {
            // Entries do not contain the seqno of their document, so the vBucket starts over.
            let bytes_max = self.slot.state_bytes_max(&fed.state);
            let mut view = View::writing(fed.state.clone(), bytes_max);
            self.slot.fold(bytes_max, || nacre_state::forget(&mut view, vbid))?;
            fed.take_view(view);
            return Ok(Some(Seqno::ZERO));
        }
        let called = self.slot.call(fed.state.clone(), 0, |instance, view| {
            instance.call(view, |exports, store| exports.feed()?.call_rollback(store, vbid.0, to.0))
        });
        let (reached, view) = match called {
            Ok(called) => called,
            Err(error) => {
                self.slot.keep(Call::Rollback { vb: vbid.0, seqno: to.0 }, &error);
                return Err(error);
            }
        };
        if reached.is_none() && view.writes.as_ref().is_none_or(Writes::is_empty) {
            let message = format!("the rollback of {vbid} makes no progress");
            let deployment = self.slot.context.setup.name.clone();
            return Err(Error::Fatal { deployment, message });
        }
        fed.take(view);
        Ok(reached.map(Seqno))
    }

    /// Drops state and progress, so that the feed starts over. A stopped partition runs again.
    ///
    /// # Errors
    /// [`Error::Storage`] when the storage could not be cleared; the partition is then stopped.
    pub fn clear(&mut self) -> Result<(), Error> {
        if let Err(message) = self.storage.clear() {
            let deployment = self.slot.context.setup.name.clone();
            return Err(self.stop_unless_retryable(Error::Storage { deployment, message }));
        }
        self.served.clear();
        self.begun.clear();
        self.moved.clear();
        self.documents_cut = Cut::default();
        self.timers_cut = Cut::default();
        let name = &self.slot.context.setup.name;
        let unreadable = |message| Error::Storage { deployment: name.clone(), message };
        let empty = self.storage.load().and_then(|loaded| {
            let space = loaded.space()?;
            Ok(State { space, blobs: loaded.blobs, ..State::default() })
        });
        let state = match empty.map_err(unreadable) {
            Ok(state) => state,
            Err(error) => return Err(self.stop_unless_retryable(error)),
        };
        *self.shared.published.write() = Published { state, ..Published::default() };
        self.charge(0);
        Ok(())
    }

    /// Releases the memory of the state, and stops the partition for `reason`, also after it is opened again, until the
    /// node has more than `limit_bytes` for the state. Called after an error for which [`Error::is_state_full`] returns
    /// true, and then also for the other partitions of the same deployment.
    pub fn abandon(&mut self, reason: &str, limit_bytes: usize) {
        self.slot.instance = None;
        let mut published = self.shared.published.write();
        (published.state, published.stopped) = (State::default(), Some(reason.to_owned()));
        drop(published);
        self.charge(0);
        if let Err(message) = self.storage.stop(reason, limit_bytes) {
            // It is stopped in any case. If the reason was not stored, it stops again after the next open.
            self.shared.published.write().stopped = Some(format!("{reason} ({message})"));
        }
    }

    /// Makes the storage write everything that it delays. Called when there is nothing else to do, and before another
    /// deployment takes over.
    ///
    /// # Errors
    /// [`Error::Storage`]; the partition is then stopped.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.storage.settle().map_err(|message| {
            let deployment = self.slot.context.setup.name.clone();
            self.stop_unless_retryable(Error::Storage { deployment, message })
        })
    }

    /// Like [`Partition::settle`], and also waits until everything survives a power cut.
    ///
    /// # Errors
    /// [`Error::Storage`]; the partition continues.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.storage.sync().map_err(|message| Error::Storage {
            deployment: self.slot.context.setup.name.clone(),
            message,
        })
    }

    /// Returns a reader of this partition. It outlives the partition.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Returns counters and recent events.
    pub fn status(&self) -> Status {
        self.shared.status(&self.status)
    }

    /// Takes the most recent capsules of failed calls since the last call of this function.
    pub fn take_capsules(&self) -> Vec<Capsule> {
        self.slot.context.take_capsules()
    }

    /// Commits changes, with the new positions.
    fn commit(&mut self, fed: Fed, mut points: BTreeMap<Vbid, ResumePoint>) -> Result<(), Error> {
        for (home, _) in fed.writes.timers.keys() {
            if let Some(vbid) = home {
                points.entry(*vbid).or_insert_with(|| self.progress(*vbid));
            }
        }
        let standings: Vec<_> = points
            .into_iter()
            .map(|(vbid, point)| (vbid, VbucketProgress { moment: self.next_moment(vbid), point }))
            .collect();
        self.keep(fed, &standings)
    }

    /// Returns the moment for the next commit; the current moment if other nodes serve the vBucket.
    fn next_moment(&self, vbid: Vbid) -> ProgressStamp {
        let moment = self.standing(vbid).moment;
        match self.served.get(&vbid) {
            Some(first) if moment < *first => *first,
            Some(_) => moment.next(),
            None => moment,
        }
    }

    fn keep(&mut self, mut fed: Fed, standings: &[(Vbid, VbucketProgress)]) -> Result<(), Error> {
        let setup = &self.slot.context.setup;
        // The state must not reflect documents that a crash can still undo.
        if let Err(error) = setup.documents.settle() {
            let (deployment, message) = (setup.name.clone(), error.to_string());
            return Err(Error::Retry { deployment, message });
        }
        let Fed { state, writes } = &fed;
        let mut progress = self.begun.clone();
        progress.extend(standings.iter().copied());
        let changes = Changes {
            state: state.space.clone(),
            touched: writes.touched.clone(),
            blobs: writes.blobs.then(|| state.blobs.clone()),
            timers: writes
                .timers
                .iter()
                .map(|((home, name), timer)| ((*home, name.to_string()), timer.as_deref().cloned()))
                .collect(),
            progress: progress.into_iter().collect(),
        };
        if let Err(message) = self.storage.commit(&changes) {
            let deployment = self.slot.context.setup.name.clone();
            return Err(self.stop_unless_retryable(Error::Storage { deployment, message }));
        }
        self.begun.clear();
        match self.storage.rebase(&fed.state.space) {
            Ok(None) => {}
            Ok(Some(space)) => fed.state.space = space,
            Err(message) => {
                let deployment = self.slot.context.setup.name.clone();
                return Err(self.stop_unless_retryable(Error::Storage { deployment, message }));
            }
        }
        self.show(fed, standings);
        Ok(())
    }

    /// Publishes changes to readers and other nodes.
    fn show(&mut self, fed: Fed, standings: &[(Vbid, VbucketProgress)]) {
        let is_served = |vbid| self.served.contains_key(&vbid);
        self.moved.extend(standings.iter().map(|(vbid, _)| *vbid).filter(|vbid| is_served(*vbid)));
        let charged_bytes = memory_of(&fed.state);
        self.shared.published.write().take(fed, standings, is_served);
        self.charge(charged_bytes);
    }

    fn charge(&mut self, bytes: usize) {
        self.permit.set(bytes);
        self.slot.charged_bytes = bytes;
    }

    fn stop_unless_retryable(&mut self, error: Error) -> Error {
        if !error.is_retryable() {
            self.slot.instance = None;
            self.shared.published.write().stopped = Some(error.reason());
        }
        error
    }
}

/// Returns the positions of a batch's vBuckets after its first `count` documents. `before` returns the positions before
/// the batch.
fn progress_of(
    batch: &Batch,
    count: usize,
    before: impl Fn(Vbid) -> ResumePoint,
) -> BTreeMap<Vbid, ResumePoint> {
    let (taken, left) = batch.documents.split_at(count);
    let is_whole = |vbid: Vbid| left.iter().all(|(other, _)| *other != vbid);
    let last = |vbid: Vbid| taken.iter().rfind(|(other, _)| *other == vbid);
    let point = |(vbid, point): (&Vbid, &ResumePoint)| {
        if is_whole(*vbid) {
            return Some((*vbid, *point));
        }
        let seqno = last(*vbid).map(|(_, document): &(Vbid, Document)| document.meta.seqno)?;
        // The snapshots within the batch are unknown: the position is not at the end of a snapshot, and is consistent
        // only up to the position before the batch, because the batch omits versions that a later one in it replaced.
        let before = before(*vbid);
        let is_between = before.seqno == before.snapshot_end;
        let since = if is_between { before.seqno.next() } else { before.snapshot_start };
        let snapshot_start = point.snapshot_start.min(since);
        Some((*vbid, ResumePoint { seqno, snapshot_start, ..*point }))
    };
    batch.progress.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_dcp::{Resume, resume};
    use nacre_types::{CollectionId, DocKey, FailoverLog, Meta, VbUuid};

    fn point(seqno: u64, start: u64, end: u64) -> ResumePoint {
        let (snapshot_start, snapshot_end) = (Seqno(start), Seqno(end));
        ResumePoint { vb_uuid: VbUuid(1), seqno: Seqno(seqno), snapshot_start, snapshot_end }
    }

    /// Two portions: up to 10, which omits the version with seqno 3 because the version with seqno 9 replaced it, and
    /// up to 20.
    fn two_portions() -> Batch {
        let document = |seqno| {
            let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
            let key = DocKey::new(CollectionId(0), &[seqno as u8]);
            (Vbid(0), Document::new(meta, key.prefixed(), b"1"))
        };
        let progress = BTreeMap::from([(Vbid(0), point(20, 11, 20))]);
        let documents = [1, 2, 4, 5, 9, 10, 12, 20].map(document).into();
        Batch { documents, progress, ..Batch::default() }
    }

    /// Returns the reply of a node that has the history up to 7, and another history from there.
    fn after_failover(place: &ResumePoint) -> Resume {
        let log = vec![(VbUuid(2), Seqno(7)), (VbUuid(1), Seqno(0))];
        resume(place, &FailoverLog::from_entries(log).unwrap(), Seqno(30), Seqno::ZERO)
    }

    #[test]
    fn a_partition_stopped_within_a_batch_rolls_back_if_history_diverges_there() {
        let taken = |count, before| progress_of(&two_portions(), count, |_| before)[&Vbid(0)];
        let nothing = ResumePoint::default();
        assert_eq!(taken(4, nothing), point(5, 1, 20));
        assert_eq!(after_failover(&taken(4, nothing)), Resume::Rollback(Seqno::ZERO));
        assert_eq!(taken(4, point(2, 1, 2)), point(5, 3, 20), "it stood between two snapshots");
        assert_eq!(after_failover(&taken(4, point(2, 1, 2))), Resume::Rollback(Seqno(2)));
        assert_eq!(taken(4, point(2, 1, 8)), point(5, 1, 20), "it stood within one");
        assert_eq!(taken(8, nothing), point(20, 11, 20), "all of it");
        assert!(progress_of(&two_portions(), 0, |_| nothing).is_empty());
    }
}
