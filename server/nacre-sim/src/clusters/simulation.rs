//! One run: all events, determined by one seed.

use super::conflict_log::ConflictLog;
use super::copies::{Copies, Reader};
use super::ledger::{Ledger, Write};
use super::plan::{MS, Plan, SECOND};
use super::target::shown;
use super::{check, faults};
use crate::Chance;
use nacre_dcp::ResumePoint;
use nacre_types::{Cas, CollectionId, DocKey, Document, Now, Seqno, VbUuid, Vbid};
use nacre_value::multi::{Flags, MutationOperation, MutationSpec};
use nacre_value::subdoc::Mutation;
use nacre_vbucket::{Command, Condition, Verdict};
use nacre_xdcr::{
    Effect, Epochs, Input, Lookup, Notice, Operation, Pipeline, Records, Run, SourceState,
    VersionId, Wanted, known_here,
};
use std::collections::{BTreeMap, BTreeSet};

/// Start of the wall clocks.
const EPOCH_UNIX_NS: u64 = 1_700_000_000_000_000_000;
/// Maximum time to come to rest after all faults are repaired.
const REST_NS_MAX: u64 = 600 * SECOND;

/// A future event.
pub(super) enum Event {
    /// A client writes.
    Write,
    /// A fault is injected.
    Break,
    /// All faults are repaired.
    Heal,
    /// Periodic work: a replica catches up, a disk stores, documents expire.
    Chore,
    /// A vBucket is served again, and its pipelines start.
    Serve { cluster: usize, vbid: Vbid },
    /// A paused pipeline resumes.
    Resume { pipe: usize },
    /// A timer of a pipeline is due.
    Tick { pipe: usize },
    /// A pipeline may read.
    Read { pipe: usize, run: Run },
    /// An answer reaches the current pipeline; the request may be of a previous one.
    Input { pipe: usize, input: Box<Input> },
    /// A request reaches a target.
    Request { pipe: usize, run: Run, request: Box<Request> },
    /// A resolver at the target has decided.
    Decided { pipe: usize, run: Run, decision: Box<Decision> },
}

/// A request to a target.
#[derive(Clone)]
pub(super) enum Request {
    Ask(Vec<Vbid>),
    LookUp(Wanted, Lookup),
    Write(Operation),
}

/// The input of a resolver at the target, and its answer.
pub(super) struct Decision {
    pub operation: Operation,
    pub local: Document,
    /// `None` if the resolver failed.
    pub verdict: Option<Verdict>,
}

/// One cluster.
pub(super) struct Cluster {
    pub vbuckets: Vec<Copies>,
    pub skew_ns: i64,
    /// Until this time writes are refused for lack of memory.
    pub busy_until_ns: u64,
    /// Until this time documents with odd numbers are refused permanently.
    pub refuses_until_ns: u64,
    /// Until this time the resolver fails.
    pub fails_until_ns: u64,
}

/// Replication in one direction between two clusters.
pub(super) struct Link {
    pub from: usize,
    pub to: usize,
    pub requests_lost_until_ns: u64,
    pub answers_lost_until_ns: u64,
}

/// A pipeline with its simulated driver.
pub(super) struct Pipe {
    pub link: usize,
    pub vbid: Vbid,
    pub pipeline: Pipeline,
    /// Stored records, oldest first.
    pub saved: Vec<Records>,
    reader: Reader,
    /// The pending read.
    reading: Option<(Run, ResumePoint)>,
    armed_ns: u64,
    pub is_resting: bool,
    /// True if a user has paused it.
    pub is_paused: bool,
    /// The last progress request to the target.
    asked: Option<Run>,
    /// Times of the target's last two answers.
    heard_ns: (u64, u64),
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Writes of clients.
    pub writes: u64,
    /// Versions sent.
    pub messages: u64,
    /// Versions sent after the repair and the last write.
    pub messages_at_end: u64,
    /// Versions at that time that were unread, or read and not done.
    pub pending_at_end: u64,
    /// Versions made since then by resolvers, or by merges with one side.
    pub made_at_end: u64,
    /// Writes that were replaced without a question because of the lost end of a history.
    pub excused: u64,
    /// Number of keys times number of clusters.
    pub places: u64,
    /// Answers of resolvers.
    pub decisions: u64,
    /// Conflicts that were logged.
    pub logged: u64,
    /// Conflicts that were decided without being logged, because the look-up found no document at the target.
    pub unlogged: u64,
    /// Failovers of vBuckets.
    pub failovers: u64,
    /// Writes lost by their cluster.
    pub lost: u64,
    /// Versions put aside.
    pub stuck: u64,
    /// Simulated duration in nanoseconds.
    pub virtual_ns: u64,
}

/// A world and its current state.
pub struct Simulation {
    pub(super) plan: Plan,
    pub(super) chance: Chance,
    pub(super) now_ns: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pub(super) clusters: Vec<Cluster>,
    pub(super) links: Vec<Link>,
    pub(super) pipes: Vec<Pipe>,
    epochs: Epochs,
    pub(super) ledger: Ledger,
    pub(super) log: ConflictLog,
    pub(super) summary: Summary,
    /// Time of the last event outside replication.
    disturbed_ns: u64,
    /// Time of the last event.
    active_ns: u64,
    pub(super) is_healed: bool,
    is_traced: bool,
    /// Versions that clusters have adopted or made since the last event outside replication.
    pub(super) spread: BTreeSet<(Vec<u8>, Cas)>,
    /// vBuckets for which a pipeline has reported possibly missing deletions.
    pub(super) noticed: BTreeSet<(usize, Vbid)>,
}

impl Simulation {
    /// Creates the world of a seed, with `clusters.0` to `clusters.1` clusters.
    pub fn new(seed: u64, clusters: (u64, u64)) -> Simulation {
        let mut chance = Chance::new(seed);
        let mut plan = Plan::draw(&mut chance, clusters);
        // Not drawn at random, so that other seeds keep their worlds.
        plan.logs_conflicts = plan.keeps_histories && seed.is_multiple_of(3);
        plan.sends_own_only = plan.needs_no_forwarding() && seed.is_multiple_of(5);
        Simulation::with(plan, chance)
    }

    /// Creates a world from a plan.
    pub fn with(plan: Plan, mut chance: Chance) -> Simulation {
        let clusters = plan.clusters.iter().map(|cluster| Cluster {
            vbuckets: (0..cluster.vbuckets)
                .map(|number| Copies::new(Vbid(number), VbUuid::of_random(chance.number())))
                .collect(),
            skew_ns: cluster.skew_ns,
            busy_until_ns: 0,
            refuses_until_ns: 0,
            fails_until_ns: 0,
        });
        let clusters = clusters.collect();
        let link = |&(from, to): &(usize, usize)| Link {
            from,
            to,
            requests_lost_until_ns: 0,
            answers_lost_until_ns: 0,
        };
        let links: Vec<Link> = plan.links().iter().map(link).collect();
        let mut simulation = Simulation {
            summary: Summary {
                places: (plan.keys.len() * plan.clusters.len()) as u64,
                ..Summary::default()
            },
            plan,
            chance,
            now_ns: 1,
            order: 0,
            queue: BTreeMap::new(),
            clusters,
            links,
            pipes: Vec::new(),
            epochs: Epochs::default(),
            ledger: Ledger::default(),
            log: ConflictLog::default(),
            disturbed_ns: 0,
            active_ns: 0,
            is_healed: false,
            is_traced: false,
            spread: BTreeSet::new(),
            noticed: BTreeSet::new(),
        };
        simulation.connect();
        simulation
    }

    /// Prints all events.
    pub fn trace(&mut self) {
        self.is_traced = true;
        eprintln!("{:#?}", self.plan);
    }

    pub(super) fn say(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{:>9.3} {}", self.now_ns as f64 / 1e9, text());
        }
    }

    fn connect(&mut self) {
        for (index, link) in self.plan.links().into_iter().enumerate() {
            for number in 0..self.plan.clusters[link.0].vbuckets {
                let settings = self.plan.settings(link, Vbid(number));
                let epoch = self.epochs.next_epoch();
                self.pipes.push(Pipe {
                    link: index,
                    vbid: Vbid(number),
                    pipeline: Pipeline::new(settings, Records::default(), epoch),
                    saved: vec![Records::default()],
                    reader: Reader::default(),
                    reading: None,
                    armed_ns: u64::MAX,
                    is_resting: true,
                    is_paused: false,
                    asked: None,
                    heard_ns: (0, 0),
                });
            }
        }
        for pipe in 0..self.pipes.len() {
            self.start(pipe);
        }
        self.after(0, Event::Write);
        self.after(50 * MS, Event::Chore);
        if self.plan.mix.total() > 0 {
            self.after(200 * MS, Event::Break);
        }
        self.after(self.plan.writes_ns, Event::Heal);
    }

    /// Runs to the end.
    ///
    /// # Panics
    /// Panics if a condition is violated.
    pub fn run(mut self) -> Summary {
        while let Some(((at_ns, _), event)) = self.queue.pop_first() {
            self.now_ns = at_ns.max(self.now_ns);
            self.happen(event);
            if self.is_healed && self.is_at_rest() {
                break;
            }
            let since_ns = self.now_ns - self.disturbed_ns.min(self.now_ns);
            assert!(
                !self.is_healed || since_ns < REST_NS_MAX,
                "the clusters do not come to rest: {:?}",
                self.pipes.iter().map(|it| it.pipeline.counts()).collect::<Vec<_>>()
            );
        }
        self.summary.virtual_ns = self.now_ns;
        self.summary.lost = self.ledger.writes().filter(|(_, write)| write.is_lost).count() as u64;
        check::converged(&self);
        check::bounded(&self);
        self.summary
    }

    /// Returns true if nothing is in flight, and each pipeline has asked its target since the last event, by which it notices
    /// losses of the target. Two answers are needed, because the first may be older.
    fn is_at_rest(&self) -> bool {
        self.now_ns > self.active_ns + 5 * self.plan.delay_ns_max
            && self.pipes.iter().all(|pipe| {
                let source = self.source_of(pipe);
                pipe.heard_ns.1 > self.active_ns
                    && pipe.pipeline.is_streaming()
                    && pipe.pipeline.outstanding() == pipe.pipeline.stuck().count()
                    // Versions that were put aside for another reason are retried.
                    && pipe.pipeline.stuck().all(|key| self.plan.is_refused(key))
                    && pipe.pipeline.read_to() == source.active.high_seqno()
            })
            && !self.has_expiring()
    }

    fn has_expiring(&self) -> bool {
        let vbuckets = self.clusters.iter().flat_map(|cluster| &cluster.vbuckets);
        let mut documents = vbuckets.flat_map(|copies| copies.active.documents());
        documents.any(|it| it.is_alive() && it.meta.expiry != 0)
    }

    pub(super) fn after(&mut self, delay_ns: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now_ns + delay_ns, self.order), event);
    }

    /// Returns the clocks of a cluster.
    pub(super) fn clock(&self, cluster: usize) -> Now {
        let skew_ns = self.clusters[cluster].skew_ns;
        let unix_ns = (EPOCH_UNIX_NS + self.now_ns).saturating_add_signed(skew_ns);
        let step_ns = self.plan.clock_step_ns;
        Now { unix_ns: unix_ns / step_ns * step_ns, monotonic_ns: self.now_ns }
    }

    pub(super) fn link_of(&self, pipe: usize) -> (usize, usize) {
        let link = &self.links[self.pipes[pipe].link];
        (link.from, link.to)
    }

    fn source_of(&self, pipe: &Pipe) -> &Copies {
        &self.clusters[self.links[pipe.link].from].vbuckets[pipe.vbid.index()]
    }

    pub(super) fn source_state(&self, pipe: usize) -> SourceState {
        let vbucket = &self.source_of(&self.pipes[pipe]).active;
        SourceState {
            log: vbucket.failover_log().clone(),
            high_seqno: vbucket.high_seqno(),
            purge_seqno: vbucket.purge_seqno(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Write => self.client_writes(),
            Event::Break => faults::inject(self),
            Event::Heal => faults::heal(self),
            Event::Chore => self.do_chores(),
            Event::Serve { cluster, vbid } => self.serve(cluster, vbid),
            Event::Resume { pipe } => {
                // The pipeline may take as long as an answer to come to rest.
                match (self.pipes[pipe].is_paused, self.pipes[pipe].is_resting) {
                    (true, true) => self.start(pipe),
                    (true, false) => self.after(100 * MS, Event::Resume { pipe }),
                    (false, _) => {}
                }
            }
            Event::Tick { pipe } => {
                self.pipes[pipe].armed_ns = u64::MAX;
                self.feed(pipe, Input::Tick);
            }
            Event::Read { pipe, run } => self.read(pipe, run),
            Event::Input { pipe, input } => self.feed(pipe, *input),
            Event::Request { pipe, run, request } => self.serve_request(pipe, run, *request),
            Event::Decided { pipe, run, decision } => self.finish_decision(pipe, run, *decision),
        }
    }

    /// Starts a pipeline.
    pub(super) fn start(&mut self, pipe: usize) {
        self.pipes[pipe].is_resting = false;
        self.pipes[pipe].is_paused = false;
        let state = self.source_state(pipe);
        self.feed(pipe, Input::Start(state));
    }

    /// Passes an input to a pipeline, and carries out its effects.
    pub(super) fn feed(&mut self, pipe: usize, input: Input) {
        let now = self.clock(self.link_of(pipe).0);
        let it = &mut self.pipes[pipe];
        if let Input::Target { run, states: Some(_) } = input
            && it.asked.take_if(|asked| *asked == run).is_some()
        {
            it.heard_ns = (self.now_ns, it.heard_ns.0);
        }
        let effects = it.pipeline.step(input, now);
        assert!(!it.is_resting || effects.is_empty(), "a pipeline that rests wants {effects:?}");
        let window = it.pipeline.window();
        assert!(window.used() == 0 || it.pipeline.is_streaming(), "something is on its way");
        for effect in effects {
            self.carry_out(pipe, effect);
        }
        self.arm(pipe);
    }

    fn arm(&mut self, pipe: usize) {
        let Some(next_ns) = self.pipes[pipe].pipeline.next_tick_ns() else { return };
        let next_ns = next_ns.max(self.now_ns + 1);
        if next_ns < self.pipes[pipe].armed_ns {
            self.pipes[pipe].armed_ns = next_ns;
            self.after(next_ns - self.now_ns, Event::Tick { pipe });
        }
    }

    fn carry_out(&mut self, pipe: usize, effect: Effect) {
        match effect {
            Effect::AskTarget { run, vbids } => {
                self.pipes[pipe].asked = Some(run);
                self.request(pipe, run, Request::Ask(vbids));
            }
            Effect::Read { run, after } => {
                self.pipes[pipe].reading = Some((run, after));
                self.wake(pipe);
            }
            Effect::LookUp { run, wanted, keys } => {
                for lookup in keys {
                    if !self.plan.is_refused(&lookup.key) {
                        self.note_activity();
                    }
                    self.request(pipe, run, Request::LookUp(wanted, lookup));
                }
            }
            Effect::Write { run, operations } => {
                for operation in operations {
                    if self.plan.is_refused(&operation.key) {
                        self.request(pipe, run, Request::Write(operation));
                        continue;
                    }
                    self.note_activity();
                    self.say(|| {
                        let VersionId { seqno, .. } = operation.id;
                        format!("pipe {pipe} sends {seqno} of {}", shown(&operation.key))
                    });
                    self.count_message();
                    self.request(pipe, run, Request::Write(operation));
                }
            }
            Effect::Log { run, id, number, conflict } => {
                self.log.add(self.link_of(pipe), &conflict);
                self.summary.logged += 1;
                let delay_ns = self.chance.below(20 * MS);
                self.after(
                    delay_ns,
                    Event::Input { pipe, input: Box::new(Input::Logged { run, id, number }) },
                );
            }
            Effect::Resolve { run, id, conflict } => self.resolve_here(pipe, run, id, &conflict),
            Effect::Merge { run, id, merge } => self.merge_here(pipe, run, id, &merge),
            Effect::Save(records) => self.pipes[pipe].saved.push(records),
            Effect::Notify(notice) => self.record_notice(pipe, &notice),
            Effect::Rested => self.pipes[pipe].is_resting = true,
            Effect::Reroute { .. } => {}
        }
    }

    fn record_notice(&mut self, pipe: usize, notice: &Notice) {
        self.say(|| format!("pipe {pipe}: {notice:?}"));
        let (from, vbid) = (self.link_of(pipe).0, self.pipes[pipe].vbid);
        match notice {
            Notice::DeletionsForgotten => drop(self.noticed.insert((from, vbid))),
            Notice::Stuck { .. } => self.summary.stuck += 1,
            // Everything is sent again.
            Notice::TargetRolledBack | Notice::FromZero => {
                let source = self.source_of(&self.pipes[pipe]);
                self.summary.pending_at_end += source.active.high_seqno().0;
            }
            _ => {}
        }
    }

    fn count_message(&mut self) {
        self.summary.messages += 1;
        if self.is_healed {
            self.summary.messages_at_end += 1;
        }
    }

    pub(super) fn note_activity(&mut self) {
        self.active_ns = self.now_ns;
    }

    /// Records that replication has made a version.
    pub(super) fn note_made(&mut self) {
        self.summary.made_at_end += 1;
    }

    /// Records an event outside replication.
    pub(super) fn note_disturbance(&mut self) {
        self.disturbed_ns = self.now_ns;
        self.summary.messages_at_end = 0;
        self.summary.made_at_end = 0;
        self.spread.clear();
        let pending = |pipe: &Pipe| {
            let high_seqno = self.source_of(pipe).active.high_seqno();
            let is_streaming = pipe.pipeline.is_streaming();
            let read_to = if is_streaming { pipe.pipeline.read_to() } else { Seqno::ZERO };
            high_seqno.0.saturating_sub(read_to.0) + pipe.pipeline.outstanding() as u64
        };
        self.summary.pending_at_end = self.pipes.iter().map(pending).sum();
        self.note_activity();
    }

    /// Returns the delays of a message sent now: none if it is lost, two if it is duplicated.
    pub(super) fn ways(&mut self, pipe: usize, is_answer: bool) -> Vec<u64> {
        let mix = self.plan.mix;
        let link = &self.links[self.pipes[pipe].link];
        let until_ns =
            if is_answer { link.answers_lost_until_ns } else { link.requests_lost_until_ns };
        if self.now_ns < until_ns || (!self.is_healed && self.chance.once_in(mix.loses_one_in)) {
            return Vec::new();
        }
        let repeats = !self.is_healed && self.chance.once_in(mix.repeats_one_in);
        let most_ns = self.plan.delay_ns_max;
        let mut ways = vec![self.chance.between(most_ns / 4, most_ns)];
        if repeats {
            ways.push(self.chance.between(most_ns, 4 * most_ns));
        }
        ways
    }

    fn request(&mut self, pipe: usize, run: Run, request: Request) {
        for way_ns in self.ways(pipe, false) {
            let request = Box::new(request.clone());
            self.after(way_ns, Event::Request { pipe, run, request });
        }
    }

    /// Sends an answer to a pipeline.
    pub(super) fn answer(&mut self, pipe: usize, input: &Input) {
        for way_ns in self.ways(pipe, true) {
            let input = Box::new(input.clone());
            self.after(way_ns, Event::Input { pipe, input });
        }
    }

    /// Schedules the pending read of a pipeline.
    fn wake(&mut self, pipe: usize) {
        let Some((run, _)) = self.pipes[pipe].reading else { return };
        let delay_ns = self.chance.below(3 * MS);
        self.after(delay_ns, Event::Read { pipe, run });
    }

    fn read(&mut self, pipe: usize, run: Run) {
        let reading = self.pipes[pipe].reading.filter(|(wanted, _)| *wanted == run);
        let Some((_, after)) = reading else { return };
        let limit = self.chance.between(1, 8) as usize;
        let it = &mut self.pipes[pipe];
        let link = &self.links[it.link];
        let vbucket = &self.clusters[link.from].vbuckets[it.vbid.index()].active;
        let Some(portion) = it.reader.read(vbucket, (run, after), limit) else { return };
        it.reading = None;
        let purge_seqno = vbucket.purge_seqno();
        self.note_activity();
        let (documents, position) = (portion.documents, portion.position);
        self.feed(pipe, Input::Portion { run, documents, position, purge_seqno });
    }

    /// Wakes the pipelines that wait for new history of a vBucket.
    pub(super) fn wake_readers(&mut self, cluster: usize, vbid: Vbid) {
        for pipe in 0..self.pipes.len() {
            let it = &self.pipes[pipe];
            let is_of = it.vbid == vbid && self.links[it.link].from == cluster;
            if is_of && it.reading.is_some() {
                self.wake(pipe);
            }
        }
    }

    /// Ends the pipelines of a vBucket, because their process has ended or the vBucket is not served.
    pub(super) fn end_pipes(&mut self, cluster: usize, vbid: Vbid) {
        for pipe in self.pipes_of(cluster, vbid) {
            // The last stored records may be lost with the process.
            let age = self.chance.below(3) as usize;
            let it = &mut self.pipes[pipe];
            let records = it.saved[it.saved.len().saturating_sub(1 + age)].clone();
            let (settings, epoch) = (it.pipeline.settings().clone(), self.epochs.next_epoch());
            it.pipeline = Pipeline::new(settings, records, epoch);
            it.asked = None;
            it.reading = None;
            it.reader = Reader::default();
            it.armed_ns = u64::MAX;
            it.is_resting = true;
            it.is_paused = false;
        }
    }

    pub(super) fn pipes_of(&self, cluster: usize, vbid: Vbid) -> Vec<usize> {
        let is_of = |pipe: &usize| {
            let it = &self.pipes[*pipe];
            it.vbid == vbid && self.links[it.link].from == cluster
        };
        (0..self.pipes.len()).filter(is_of).collect()
    }

    fn serve(&mut self, cluster: usize, vbid: Vbid) {
        for pipe in self.pipes_of(cluster, vbid) {
            if self.pipes[pipe].is_resting {
                self.start(pipe);
            }
        }
    }

    /// Changes a vBucket as its own cluster does, and updates the lineages: a version accounts for the one that it replaces.
    /// `write` is the number of a client's write.
    pub(super) fn change<T>(
        &mut self,
        cluster: usize,
        vbid: Vbid,
        write: Option<u32>,
        change: impl FnOnce(&mut Copies, Now) -> T,
    ) -> T {
        let now = self.clock(cluster);
        let copies = &mut self.clusters[cluster].vbuckets[vbid.index()];
        let versions = |copies: &Copies| -> BTreeMap<Vec<u8>, Cas> {
            copies.active.documents().map(|it| (it.key().to_vec(), it.meta.cas)).collect()
        };
        let before = versions(copies);
        let result = change(copies, now);
        let after = versions(copies);
        for (key, cas) in &after {
            let old = before.get(key).copied();
            if old == Some(*cas) {
                continue;
            }
            let mut lineage = self.ledger.of(cluster, key, old);
            assert!(!self.ledger.knows(cluster, key, *cas), "the CAS {} was used before", cas.0);
            if let Some(number) = write {
                let copies = &self.clusters[cluster].vbuckets[vbid.index()];
                let meta = copies.active.find(key).expect("it was written").meta;
                let (seqno, rev) = (meta.seqno, meta.rev);
                let (key, cas, is_lost) = (key.clone(), *cas, false);
                self.ledger.add(Write { cluster, vbid, key, seqno, cas, rev, is_lost });
                lineage.insert(number);
            }
            self.ledger.note(cluster, key, *cas, lineage);
            self.note_stored(cluster, vbid, key);
        }
        for (key, cas) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
            self.ledger.forget(cluster, key, *cas);
        }
        if before != after {
            self.note_disturbance();
            self.wake_readers(cluster, vbid);
        }
        result
    }

    /// Records which version of the cluster itself went into the version just stored.
    pub(super) fn note_stored(&mut self, cluster: usize, vbid: Vbid, key: &[u8]) {
        let site = &self.plan.clusters[cluster].site;
        let stored = self.clusters[cluster].vbuckets[vbid.index()].active.find(key);
        let Some(stored) = stored else { return };
        if self.plan.logs_conflicts {
            self.log.note_stored(cluster, stored);
        }
        let Some(history) = known_here(stored, site).history else { return };
        self.ledger.store(cluster, vbid, key, stored.meta.seqno, history.newest_of(&site.id));
    }

    fn client_writes(&mut self) {
        if self.is_healed {
            return;
        }
        let pause_ns = self.chance.between(1, 2 * self.plan.pause_ns);
        self.after(pause_ns, Event::Write);
        let cluster = self.chance.below(self.clusters.len() as u64) as usize;
        let number = self.chance.below(self.plan.keys.len() as u64) as usize;
        let name = self.plan.keys[number].clone();
        let vbid = Vbid::of(name.as_bytes(), self.plan.clusters[cluster].vbuckets);
        let copies = &self.clusters[cluster].vbuckets[vbid.index()];
        if self.now_ns < copies.moving_until_ns {
            return;
        }
        let key = DocKey::new(CollectionId::DEFAULT, name.as_bytes());
        let write = self.ledger.next();
        let current = copies.active.find(key.prefixed()).filter(|it| it.is_alive());
        let kept = current.map(|it| it.body().to_vec()).filter(|_| self.chance.once_in(2));
        let kept = kept.filter(|body| body.len() < 1000);
        let part = format!("w{write}{}", "x".repeat(self.chance.one_of(&[0, 0, 0, 300])));
        let body = match kept {
            Some(body) => [&body[..], b",", part.as_bytes()].concat(),
            None => part.into_bytes(),
        };
        let unix_s = self.clock(cluster).unix_s();
        let expires = self.chance.once_in(8);
        let expiry = if expires { unix_s + self.chance.between(1, 5) as u32 } else { 0 };
        let flags = self.chance.below(3) as u32;
        let value = write.to_string();
        let attribute = [MutationSpec {
            operation: MutationOperation::Path(Mutation::DictUpsert),
            flags: Flags { xattr: true, create_path: true, ..Flags::default() },
            path: b"user",
            value: value.as_bytes(),
        }];
        let command = match self.chance.below(10) {
            0 | 1 => Command::Delete { cas: Cas::ANY },
            2 => Command::Touch { expiry },
            3 => Command::Mutate {
                specs: &attribute,
                condition: Condition::Present,
                access_deleted: false,
                create_as_deleted: false,
                revive: false,
                cas: Cas::ANY,
                expiry: None,
                expiry_when_new: 0,
                flags: None,
                keep_expiry: true,
            },
            _ => Command::Store {
                condition: Condition::Always,
                cas: Cas::ANY,
                flags,
                expiry,
                keep_expiry: false,
                body: &body,
            },
        };
        let done = self.change(cluster, vbid, Some(write), |copies, now| {
            copies.active.apply(key.prefixed(), &command, now).0.is_ok()
        });
        self.summary.writes += u64::from(done);
        self.say(|| {
            let copies = &self.clusters[cluster].vbuckets[vbid.index()];
            let meta = copies.active.find(key.prefixed()).map(|it| it.meta);
            format!("cluster {cluster} {name}: write {write} {done} {meta:?}")
        });
    }

    fn do_chores(&mut self) {
        let pause_ns = self.chance.between(20, 200) * MS;
        self.after(pause_ns, Event::Chore);
        for cluster in 0..self.clusters.len() {
            for number in 0..self.plan.clusters[cluster].vbuckets {
                let vbid = Vbid(number);
                if self.now_ns < self.clusters[cluster].vbuckets[vbid.index()].moving_until_ns {
                    continue;
                }
                if self.chance.once_in(3) {
                    self.clusters[cluster].vbuckets[vbid.index()].replicate();
                }
                if self.chance.once_in(3) {
                    let keeps = self.chance.once_in(2);
                    self.clusters[cluster].vbuckets[vbid.index()].flush(keeps);
                }
                if self.chance.once_in(3) {
                    self.change(cluster, vbid, None, |copies, now| copies.active.expire(now));
                }
            }
        }
    }

    /// Returns the current version of a key at the source of a pipeline, if it has this seqno.
    pub(super) fn source_version(
        &self,
        pipe: usize,
        key: &[u8],
        seqno: Seqno,
    ) -> Option<&Document> {
        let source = self.source_of(&self.pipes[pipe]);
        source.active.find(key).filter(|it| it.meta.seqno == seqno)
    }
}
