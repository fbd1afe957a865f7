//! Replicates one active vBucket of the source to a bucket of another cluster.
//!
//! ```text
//!            Start                    a record that both sides have, or zero
//! Resting ──────────► Checking ─────────────────────────────────────────────► Streaming
//!    ▲                  │  ▲  the target does not answer: retry later              │
//!    │                  └──┘      ▲                                               │
//!    │ Pause: make a record       │ the history of the source or target changed   │
//!    └────────────────────────────┴───────────────────────────────────────────────┘
//! ```
//!
//! Each check begins a new [`Run`]: answers to earlier requests are ignored, and their versions are sent again from the
//! record. Answers to a previous pipeline of the vBucket are ignored as well, because no two pipelines share a run.
//!
//! The pipeline asks the target for its position at each checkpoint even if it sent nothing. Otherwise it would not
//! notice a failover with losses during a quiet period.

mod outstanding;
mod progress;
mod sending;

use crate::message::{Effect, Epoch, Input, Notice, Run, VersionId};
use crate::{Filter, Passage, Record, Records, Settings, SourceState, TargetPoint, TargetState};
use crate::{TargetPoints, Window, arrival};
use nacre_dcp::ResumePoint;
use nacre_types::{DocKey, Document, Now, Seqno, VbUuid, Vbid};
use outstanding::{Item, Outstanding};
use progress::Progress;
use std::collections::BTreeMap;

/// The first back-off after trouble: 10 ms. It doubles each time.
const BACKOFF_NS: u64 = 10_000_000;
/// The longest back-off: 30 s.
const BACKOFF_NS_MAX: u64 = 30_000_000_000;
/// The longest timeout of an answer: 300 s.
const TIMEOUT_NS_MAX: u64 = 300_000_000_000;
/// The pipeline stops reading history when it has put aside this many versions.
const STUCK_MAX: usize = 1000;

/// Counters since the pipeline was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Versions read from history.
    pub received: u64,
    /// Versions received that the filter does not let through.
    pub filtered: u64,
    /// Extra copies of versions that go to several collections; the first copy does not count.
    pub cloned: u64,
    /// Versions looked up at the target.
    pub looked_up: u64,
    /// Looked-up versions that were not sent because the target has the same or a winning version.
    pub kept_at_source: u64,
    /// Versions sent, including repetitions.
    pub sent: u64,
    /// Versions that the target stored.
    pub stored: u64,
    /// Versions that the target refused because its own version wins.
    pub kept_at_target: u64,
    /// Conflicts resolved by the source.
    pub resolved: u64,
    /// Conflicts passed to the log.
    pub logged: u64,
    /// Logged conflicts whose version continued before the log answered.
    pub log_timeouts: u64,
    /// Versions that were superseded before they were sent.
    pub superseded: u64,
    /// Versions that a user skipped.
    pub skipped: u64,
    /// Versions completed, with any outcome.
    pub done: u64,
    /// Retries of sending or looking up a version.
    pub retried: u64,
    /// Checkpoint records made.
    pub checkpoints: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Resting,
    Checking,
    Streaming,
    Pausing,
}

/// Purpose of a question to the target.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// To find the position to resume from.
    Begin,
    /// To check that the target's histories are unchanged.
    Verify,
    /// To make a checkpoint record: everything up to here is done.
    Record(ResumePoint),
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    number: Run,
    purpose: Purpose,
    deadline_ns: u64,
}

/// The state machine of one vBucket's replication to one bucket.
#[derive(Debug)]
pub struct Pipeline {
    settings: Settings,
    state: State,
    run: Run,
    source: Option<SourceState>,
    records: Records,
    /// The branches of the target's histories in this run.
    branches: BTreeMap<Vbid, VbUuid>,
    progress: Progress,
    outstanding: Outstanding,
    window: Window,
    is_reading: bool,
    asked: Option<Asked>,
    /// Number of requests for single versions.
    requests: u64,
    /// Run number of the last question to the target. Answers to earlier questions must not count: a record is valid only if
    /// the target had everything when it reported its position.
    questions: Run,
    /// Time of the next question to the target, for any purpose.
    ask_at_ns: u64,
    /// When a record is due.
    record_at_ns: u64,
    /// Number of consecutive failed questions.
    unreachable: u32,
    counts: Counts,
}

impl Pipeline {
    /// Creates a resting pipeline with its stored records. No other pipeline may have this `epoch`.
    pub fn new(settings: Settings, records: Records, epoch: Epoch) -> Pipeline {
        let (least, most) = settings.window_bytes;
        let run = epoch.before_first_run();
        Pipeline {
            settings,
            state: State::Resting,
            run,
            source: None,
            records,
            branches: BTreeMap::new(),
            progress: Progress::default(),
            outstanding: Outstanding::default(),
            window: Window::new(least, most),
            is_reading: false,
            asked: None,
            requests: 0,
            questions: run,
            ask_at_ns: u64::MAX,
            record_at_ns: u64::MAX,
            unreachable: 0,
            counts: Counts::default(),
        }
    }

    /// Takes an input and returns the effects.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.take(input, now, &mut effects);
        self.keep_time(now, &mut effects);
        if self.state == State::Streaming {
            self.send(now, &mut effects);
            self.read_on(&mut effects);
        }
        debug_assert!(self.state == State::Streaming || self.outstanding.len() == 0);
        effects
    }

    /// Returns the time of the next [`Input::Tick`] in monotonic nanoseconds.
    pub fn next_tick_ns(&self) -> Option<u64> {
        // Only one question is in flight at a time.
        let asks = match self.asked {
            Some(asked) => asked.deadline_ns,
            None => self.ask_at_ns.min(self.record_at_ns),
        };
        let timer = self.outstanding.next_timer_ns().unwrap_or(u64::MAX);
        let next = asks.min(timer);
        (self.state != State::Resting && next != u64::MAX).then_some(next)
    }

    /// Counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the records in their present state.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the last seqno read.
    pub fn read_to(&self) -> Seqno {
        self.progress.read().seqno
    }

    /// Returns the number of versions read but not done.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The keys that were put aside, collection prefix first.
    pub fn stuck(&self) -> impl Iterator<Item = &[u8]> {
        let stuck = self.outstanding.iter().filter(|(_, item)| item.is_stuck);
        stuck.map(|(_, item)| item.document.key())
    }

    /// Returns true if the pipeline rests.
    pub fn is_resting(&self) -> bool {
        self.state == State::Resting
    }

    /// Returns true if the pipeline has found its position and streams.
    pub fn is_streaming(&self) -> bool {
        self.state == State::Streaming
    }

    /// Returns the window of bytes in flight.
    pub fn window(&self) -> &Window {
        &self.window
    }

    fn take(&mut self, input: Input, now: Now, effects: &mut Vec<Effect>) {
        match input {
            Input::Start(source) => self.begin(source, now, effects),
            Input::SourceChanged(source) => {
                if matches!(self.state, State::Checking | State::Streaming) {
                    self.begin(source, now, effects);
                }
            }
            Input::Target { run, states } if self.asked.is_some_and(|it| it.number == run) => {
                self.receive_histories(states, now, effects);
            }
            Input::Portion { run, documents, position, purge_seqno }
                if run == self.run && self.is_reading =>
            {
                self.receive(documents, position, purge_seqno, now, effects);
            }
            Input::LookedUp { run, id, number, found } if run == self.run => {
                self.looked_up(id, number, found, now, effects);
            }
            Input::Written { run, id, number, answer } if run == self.run => {
                self.written(id, number, answer, now, effects);
            }
            Input::Resolved { run, id, verdict } if run == self.run => {
                self.resolved(id, verdict, now, effects);
            }
            Input::Logged { run, id, number } if run == self.run => self.logged(id, number),
            Input::Merged { run, id, is_done } if run == self.run => {
                self.merged(id, is_done, now, effects);
            }
            Input::LinkLost => self.lose_link(now),
            Input::Skip { key } => self.skip(&key, effects),
            Input::Adjust(settings) => self.adjust(*settings, now),
            Input::Pause => self.pause(now, effects),
            Input::Target { .. }
            | Input::Portion { .. }
            | Input::LookedUp { .. }
            | Input::Written { .. }
            | Input::Resolved { .. }
            | Input::Logged { .. }
            | Input::Merged { .. }
            | Input::Tick => {}
        }
    }

    /// Begins a run: finds the position to resume from.
    fn begin(&mut self, source: SourceState, now: Now, effects: &mut Vec<Effect>) {
        if let Some(newest) = self.records.iter().next().filter(|it| !it.fits_source(&source)) {
            let seqno = newest.source.seqno;
            effects.push(Effect::Notify(if seqno < source.purge_seqno {
                Notice::DeletionsForgotten
            } else {
                Notice::SourceRolledBack(source.log.began())
            }));
        }
        self.records.roll_back(&source);
        self.source = Some(source);
        self.state = State::Checking;
        self.leave_run();
        self.ask(Purpose::Begin, now, effects);
    }

    /// Ends the run: answers to its requests are ignored.
    fn leave_run(&mut self) {
        self.run.advance();
        self.outstanding.clear();
        self.window.clear();
        self.is_reading = false;
        self.asked = None;
        (self.ask_at_ns, self.record_at_ns) = (u64::MAX, u64::MAX);
    }

    fn ask(&mut self, purpose: Purpose, now: Now, effects: &mut Vec<Effect>) {
        let deadline_ns = now.monotonic_ns + self.timeout_ns(self.unreachable);
        self.questions.advance();
        let number = self.questions;
        self.asked = Some(Asked { number, purpose, deadline_ns });
        self.ask_at_ns = u64::MAX;
        let vbids = self.settings.targets().collect();
        effects.push(Effect::AskTarget { run: number, vbids });
    }

    /// Handles the target's report of its histories, or the lack of one.
    fn receive_histories(
        &mut self,
        states: Option<BTreeMap<Vbid, TargetState>>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Asked { purpose, .. }) = self.asked.take() else { return };
        let Some(states) = states else {
            if self.state == State::Pausing {
                return self.rest(effects);
            }
            self.unreachable += 1;
            self.ask_at_ns =
                now.monotonic_ns + self.backoff_ns(self.unreachable, VersionId::default());
            return;
        };
        self.unreachable = 0;
        let branches = states.iter().map(|(vbid, state)| (*vbid, state.log.current()));
        let is_same = branches.eq(self.branches.iter().map(|(vbid, branch)| (*vbid, *branch)));
        match purpose {
            Purpose::Begin => self.start_stream(&states, now, effects),
            Purpose::Verify | Purpose::Record(_) if !is_same && self.state == State::Pausing => {}
            Purpose::Verify | Purpose::Record(_) if !is_same => {
                effects.push(Effect::Notify(Notice::TargetRolledBack));
                self.leave_run();
                self.start_stream(&states, now, effects);
            }
            Purpose::Verify => {}
            Purpose::Record(source) => self.record(source, &states, now, effects),
        }
        if self.state == State::Pausing {
            self.rest(effects);
        }
    }

    /// Streams from the newest record that both sides have.
    fn start_stream(
        &mut self,
        states: &BTreeMap<Vbid, TargetState>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(source) = &self.source else { return };
        let had_records = self.records.iter().next().is_some();
        let record = self.records.newest_shared(source, states).cloned();
        if record.is_none() && had_records {
            effects.push(Effect::Notify(Notice::FromZero));
        }
        self.records.forget_others(source, states);
        let from = record.map_or_else(ResumePoint::default, |record| record.source);
        self.branches = states.iter().map(|(vbid, state)| (*vbid, state.log.current())).collect();
        self.progress = Progress::starting_at(from);
        self.state = State::Streaming;
        self.record_at_ns = now.monotonic_ns + self.settings.checkpoint_ns;
    }

    fn record(
        &mut self,
        source: ResumePoint,
        states: &BTreeMap<Vbid, TargetState>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let point = |state: &TargetState| TargetPoint {
            vb_uuid: state.log.current(),
            seqno: state.high_seqno,
        };
        let targets: TargetPoints =
            states.iter().map(|(vbid, state)| (*vbid, point(state))).collect();
        let newest = self.records.iter().next();
        if source.seqno == Seqno::ZERO || newest.is_some_and(|newest| newest.source == source) {
            return;
        }
        self.records.add(Record { source, targets, made_s: now.unix_s() });
        self.counts.checkpoints += 1;
        effects.push(Effect::Save(self.records.clone()));
    }

    /// Admits a portion of the source's history.
    fn receive(
        &mut self,
        documents: Vec<Document>,
        position: ResumePoint,
        purge_seqno: Seqno,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.is_reading = false;
        let before = self.progress.read().seqno;
        if before != Seqno::ZERO && before < purge_seqno {
            effects.push(Effect::Notify(Notice::DeletionsForgotten));
            self.records = Records::default();
            if let Some(source) = self.source.clone() {
                self.begin(SourceState { purge_seqno, ..source }, now, effects);
            }
            return;
        }
        self.counts.received += documents.len() as u64;
        for document in documents {
            self.admit(document, effects);
        }
        self.progress.advance(position);
        if let Some(source) = &mut self.source {
            source.high_seqno = source.high_seqno.max(position.snapshot_end);
        }
    }

    /// Admits a version: one copy for each collection that receives it.
    fn admit(&mut self, document: Document, effects: &mut Vec<Effect>) {
        let passage = match self.is_left_to_others(&document) {
            true => Passage::Dropped,
            false => self.settings.filter.pass(&document),
        };
        let collections = match &passage {
            Passage::Dropped => Ok(Vec::new()),
            Passage::Unclear(reason) => Err(reason.clone()),
            Passage::Whole | Passage::WithoutTransaction => self.settings.mapping.of(&document),
        };
        let collections = collections.unwrap_or_else(|reason| {
            let key = document.key().to_vec();
            effects.push(Effect::Notify(Notice::Unclear { key, reason }));
            Vec::new()
        });
        self.counts.filtered += u64::from(collections.is_empty());
        self.counts.cloned += collections.len().saturating_sub(1) as u64;
        let vbid = Vbid::of(document.name(), self.settings.target_vbuckets);
        for (copy, collection) in (0..).zip(collections) {
            let key = DocKey::new(collection, document.name()).prefixed().to_vec();
            let mut item = Item::new(copy, document.clone(), key, vbid);
            item.without_transaction = passage == Passage::WithoutTransaction;
            if let Some(older) = self.outstanding.add(item) {
                self.counts.superseded += 1;
                self.counts.done += 1;
                notify_freed(&older, effects);
            }
        }
    }

    /// Returns true if the version comes from another cluster, and only the source's own versions are sent. A merge belongs to the
    /// cluster that made it.
    fn is_left_to_others(&self, document: &Document) -> bool {
        let source = &self.settings.source;
        self.settings.sends_own_only
            && arrival::known_here(document, source)
                .history
                .is_some_and(|history| *history.source() != source.id)
    }

    /// Requests more of the source's history when there is room.
    fn read_on(&mut self, effects: &mut Vec<Effect>) {
        let is_full = self.outstanding.held_bytes() >= self.window.limit()
            || self.outstanding.stuck() >= STUCK_MAX;
        if !self.is_reading && !is_full {
            self.is_reading = true;
            effects.push(Effect::Read { run: self.run, after: self.progress.read() });
        }
    }

    /// Handles timers that are due.
    fn keep_time(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.state == State::Resting {
            return;
        }
        let now_ns = now.monotonic_ns;
        if self.asked.is_some_and(|asked| asked.deadline_ns <= now_ns) {
            self.receive_histories(None, now, effects);
        }
        while let Some(id) = self.outstanding.due(now_ns) {
            self.time_is_up(id, now);
        }
        if self.asked.is_some() || self.state == State::Resting {
            return;
        }
        if self.state == State::Streaming && self.record_at_ns <= now_ns {
            self.record_at_ns = now_ns + self.settings.checkpoint_ns;
            let through = self.progress.through(self.outstanding.first().map(|id| id.seqno));
            self.ask(Purpose::Record(through), now, effects);
        } else if self.ask_at_ns <= now_ns {
            let is_checking = self.state == State::Checking;
            let purpose = if is_checking { Purpose::Begin } else { Purpose::Verify };
            self.ask(purpose, now, effects);
        }
    }

    /// Applies other settings and makes a record due at once. Otherwise, a pipeline that ends before the next regular record
    /// would read versions again that the earlier filter judged, and judge them by the later filter.
    fn adjust(&mut self, settings: Settings, now: Now) {
        self.settings.adjust(settings);
        if self.state == State::Streaming {
            self.record_at_ns = now.monotonic_ns;
        }
    }

    fn pause(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let through = self.progress.through(self.outstanding.first().map(|id| id.seqno));
        let was_streaming = self.state == State::Streaming;
        self.leave_run();
        if was_streaming {
            self.state = State::Pausing;
            self.ask(Purpose::Record(through), now, effects);
        } else {
            self.rest(effects);
        }
    }

    fn rest(&mut self, effects: &mut Vec<Effect>) {
        self.leave_run();
        self.state = State::Resting;
        effects.push(Effect::Rested);
    }

    /// Handles a lost link: requests may stay unanswered, and the target may have lost earlier versions.
    fn lose_link(&mut self, now: Now) {
        for id in self.outstanding.on_their_way() {
            self.wait_after_trouble(id, now);
        }
        self.window.shrink(now.monotonic_ns);
        if let Some(asked) = &mut self.asked {
            asked.deadline_ns = asked.deadline_ns.min(now.monotonic_ns + BACKOFF_NS);
        }
        self.verify_soon(now);
    }

    /// Schedules a check of the target's histories.
    fn verify_soon(&mut self, now: Now) {
        if self.state == State::Streaming {
            self.ask_at_ns = self.ask_at_ns.min(now.monotonic_ns + BACKOFF_NS);
        }
    }

    fn skip(&mut self, key: &[u8], effects: &mut Vec<Effect>) {
        let is_meant = |item: &Item| item.is_stuck && item.document.key() == key;
        let stuck = self.outstanding.iter().filter(|(_, item)| is_meant(item));
        let ids: Vec<VersionId> = stuck.map(|(id, _)| id).collect();
        for id in ids {
            self.counts.skipped += 1;
            self.finish(id, effects);
        }
    }

    /// Completes a version.
    fn finish(&mut self, id: VersionId, effects: &mut Vec<Effect>) {
        if let Some((item, charged)) = self.outstanding.remove(id) {
            self.window.free(charged);
            self.counts.done += 1;
            notify_freed(&item, effects);
        }
    }

    /// Returns the timeout of an answer.
    fn timeout_ns(&self, attempts: u32) -> u64 {
        let factor = 1u64 << attempts.min(16);
        self.settings.timeout_ns.saturating_mul(factor).min(TIMEOUT_NS_MAX)
    }

    /// Returns a back-off with jitter that depends on the version.
    fn backoff_ns(&self, attempts: u32, id: VersionId) -> u64 {
        let whole = (BACKOFF_NS << attempts.saturating_sub(1).min(16)).min(BACKOFF_NS_MAX);
        let mixed = (self.settings.seed ^ id.seqno.0.rotate_left(32) ^ u64::from(attempts))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        whole - whole / 4 + mixed % (whole / 2)
    }
}

fn notify_freed(item: &Item, effects: &mut Vec<Effect>) {
    if item.is_stuck {
        effects.push(Effect::Notify(Notice::Freed { key: item.document.key().to_vec() }));
    }
}

/// Returns the attributes of a document to send, before its history is added.
fn attributes_of(item: &Item) -> Vec<u8> {
    match item.without_transaction {
        true => Filter::without_transaction(item.document.xattrs()),
        false => item.document.xattrs().to_vec(),
    }
}
