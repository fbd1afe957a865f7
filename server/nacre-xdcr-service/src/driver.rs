//! Drives one replication on one node: the pipelines of the vBuckets active here, the connections to the target, and
//! timers.
//!
//! ```text
//! agreed state ─► Plan ─┐                       ┌─► ActivePipeline (with its stream) of each active vBucket
//! Scout: the target ────┼─► Driver, one task ───┤
//! Links: answers ───────┘       ▲               └─► Link: 2 threads a node of the target
//!                        history of the bucket
//! ```
//!
//! Every event becomes an input of a pipeline, and the driver carries out the pipeline's effects. The driver makes no
//! decision about a document.

use crate::active_pipeline::{self, ActivePipeline, Found};
use crate::checkpoints::{Checkpoints, Terms};
use crate::conflict_log::{Entry, Logger, Party};
use crate::inbox::{Event, Inbox};
use crate::link::{Job, Link, Work};
use crate::mapping::{Mapped, Rules};
use crate::plan::{Connectivity, Handle, Plan};
use crate::status::{Activity, LISTED_MAX, Status, StuckDocument, Sums};
use crate::target::{self, Scout, Target, Unusable};
use crate::throttle::Throttle;
use nacre_auth::{UserData, unmarked};
use nacre_bucket::{Bucket, DirtyVbuckets, Next, Signal, Task};
use nacre_client::ClusterMap;
use nacre_node::Node;
use nacre_types::{Now, Seqno, Vbid, Vbids};
use nacre_xdcr::{
    Answer, Effect, Epochs, Found as FoundAt, Input, Notice, Operation, Pipeline, Run, TargetState,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest sleep of the driver.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Interval of checks whether the node has regained its lease.
const LEASE_PAUSE: Duration = Duration::from_millis(50);
/// Interval of status updates, in nanoseconds.
const STATUS_NS: u64 = 100_000_000;
/// Maximum number of inputs per step; then the driver yields to other tasks of the processor.
const INPUTS_MAX: usize = 20_000;
/// Limits of the sum of the windows of all pipelines of a replication on a node, in bytes.
const WINDOWS_BYTES: (usize, usize) = (32 << 20, 64 << 20);
/// The smallest window of a pipeline, in bytes.
const WINDOW_BYTES_MIN: usize = 32 << 10;
/// Maximum bytes of history per read.
const PORTION_BYTES_MAX: usize = 512 << 10;

/// A question about several vBuckets of the target, which several nodes answer in parts.
struct Ask {
    run: Run,
    parts_left: usize,
    states: BTreeMap<Vbid, TargetState>,
}

/// The task that drives a replication.
pub(crate) struct Driver {
    node: Arc<Node>,
    bucket: Arc<Bucket>,
    handle: Arc<Handle>,
    inbox: Arc<Inbox>,
    checkpoints: Arc<Checkpoints>,
    plan: Arc<Plan>,
    dirty: Arc<DirtyVbuckets>,
    scout: Option<Scout>,
    target: Option<Target>,
    map: ClusterMap,
    mapped: Mapped,
    links: BTreeMap<String, Vec<Link>>,
    /// Started at the first conflict.
    logger: Option<Logger>,
    pipelines: BTreeMap<Vbid, ActivePipeline>,
    timers: BTreeSet<(u64, Vbid)>,
    pending: VecDeque<(Vbid, Input)>,
    /// vBuckets that may have history to read.
    ready: BTreeSet<Vbid>,
    /// The vBucket read last.
    read_last: Vbid,
    /// True once nothing was left to replicate.
    has_caught_up: bool,
    throttle: Throttle,
    asks: BTreeMap<Vbid, Ask>,
    /// Reasons why documents were put aside, by vBucket and key.
    reasons: BTreeMap<(Vbid, Vec<u8>), String>,
    /// The arrangement number of the bucket for which the pipelines were last created.
    arrangements: Option<u64>,
    /// Epochs of all pipelines of this driver. Late answers to a removed pipeline of the same vBucket may still arrive.
    epochs: Epochs,
    /// Counters of removed pipelines.
    retired: Sums,
    status: Status,
    said_ns: u64,
    /// The reason why the target cannot be used.
    trouble: Option<String>,
}

impl Driver {
    pub fn new(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        handle: &Arc<Handle>,
        checkpoints: &Arc<Checkpoints>,
    ) -> Driver {
        let inbox = Arc::clone(&handle.inbox);
        let dirty = bucket.listeners.listen_to_all(Arc::new(inbox.signal.clone()));
        Driver {
            node: Arc::clone(node),
            bucket: Arc::clone(bucket),
            handle: Arc::clone(handle),
            plan: handle.plan(),
            inbox,
            checkpoints: Arc::clone(checkpoints),
            dirty,
            scout: None,
            target: None,
            map: ClusterMap::default(),
            mapped: Mapped::default(),
            links: BTreeMap::new(),
            logger: None,
            pipelines: BTreeMap::new(),
            timers: BTreeSet::new(),
            pending: VecDeque::new(),
            ready: BTreeSet::new(),
            read_last: Vbid(0),
            has_caught_up: false,
            throttle: Throttle::default(),
            asks: BTreeMap::new(),
            reasons: BTreeMap::new(),
            arrangements: None,
            epochs: Epochs::default(),
            retired: Sums::default(),
            status: Status::default(),
            said_ns: 0,
            trouble: None,
        }
    }

    fn end(&mut self) -> Next {
        for (vbid, mut active) in std::mem::take(&mut self.pipelines) {
            active.close(&self.bucket, vbid);
        }
        self.bucket.listeners.remove(&self.dirty);
        self.links.clear();
        self.logger = None;
        self.scout = None;
        Next::Done
    }

    /// Applies the current plan of the cluster.
    fn follow_plan(&mut self) {
        let plan = self.handle.plan();
        if Arc::ptr_eq(&plan, &self.plan) && self.scout.is_some() {
            return;
        }
        let is_other_place = plan.reference != self.plan.reference || self.scout.is_none();
        let is_other_way = !plan.runs_like(&self.plan);
        let is_adjusted = plan.adjusts(&self.plan);
        let has_other_links = plan.links_per_node() != self.plan.links_per_node();
        self.throttle.set_limit(plan.limit);
        self.plan = plan;
        if is_other_place {
            self.links.clear();
            self.scout = self.plan.reference.as_ref().map(|reference| {
                let bucket = self.plan.replication.target.clone();
                Scout::start(reference.clone(), bucket, Arc::clone(&self.inbox))
            });
            self.target = None;
            self.trouble = match self.plan.reference {
                Some(_) => None,
                None => Some("the reference to the target cluster was deleted".to_owned()),
            };
            self.lose_links();
        }
        if has_other_links && !is_other_place {
            self.links.clear();
            self.lose_links();
        }
        if is_other_way {
            self.retire_all();
        } else if is_adjusted {
            self.adjust();
        }
        self.arrangements = None;
    }

    /// Applies changed settings to the pipelines. The change goes ahead of pending inputs, so that the earlier filter never
    /// judges a document written after the change.
    fn adjust(&mut self) {
        let count = self.pipelines.len();
        let vbids: Vec<Vbid> = self.pipelines.keys().copied().collect();
        for vbid in vbids {
            if let Some(settings) = self.settings(vbid, count) {
                self.pending.push_front((vbid, Input::Adjust(Box::new(settings))));
            }
        }
    }

    fn lose_links(&mut self) {
        let vbids: Vec<Vbid> = self.pipelines.keys().copied().collect();
        self.pending.extend(vbids.into_iter().map(|vbid| (vbid, Input::LinkLost)));
    }

    fn retire_all(&mut self) {
        let vbids: Vec<Vbid> = self.pipelines.keys().copied().collect();
        vbids.into_iter().for_each(|vbid| self.retire(vbid));
        self.arrangements = None;
    }

    fn retire(&mut self, vbid: Vbid) {
        let Some(mut active) = self.pipelines.remove(&vbid) else { return };
        active.close(&self.bucket, vbid);
        self.retired.add(&active.pipeline.counts());
        if let Some(timer_ns) = active.timer_ns {
            self.timers.remove(&(timer_ns, vbid));
        }
        self.asks.remove(&vbid);
        self.ready.remove(&vbid);
        self.reasons.retain(|(of, _), _| *of != vbid);
    }

    /// Applies a new description of the target.
    fn meet_target(&mut self, found: Target, now: Now) {
        let replication = &self.plan.replication;
        let known_as = self.plan.resolution.as_str();
        let trouble = if found.uuid != replication.target_uuid {
            let name = &replication.target;
            Some(format!(
                "the bucket {name} of the target was deleted and made again: delete the replication and create it again to send everything there"
            ))
        } else if found.resolution != known_as {
            Some("the buckets resolve conflicts in different ways".to_owned())
        } else if let Err(reason) = &self.plan.expression {
            Some(format!("filterExpression: {reason}"))
        } else {
            None
        };
        self.handle.set_connectivity(Connectivity::Ok);
        if self.trouble != trouble {
            trouble.iter().for_each(|text| self.note(now, text));
            self.trouble = trouble;
            self.arrangements = None;
        }
        if self.trouble.is_some() {
            return;
        }
        let is_other_size =
            self.target.is_some() && self.map.active().len() != found.map.active().len();
        if self.target.is_none() || is_other_size || found.map.is_newer_than(&self.map) {
            self.map = found.map.clone();
        }
        if is_other_size {
            self.retire_all();
        }
        if self.target.is_none() {
            self.arrangements = None;
        }
        self.target = Some(found);
        self.map_collections(now);
    }

    /// Resolves the mapping of collections, and restarts the pipelines if it has changed.
    fn map_collections(&mut self, now: Now) {
        let Some(target) = &self.target else { return };
        let rules = match Rules::read(&self.plan.replication.chosen()) {
            Ok(rules) => rules,
            Err(reason) => return self.note(now, &reason),
        };
        let mapped = rules.map(&self.bucket.manifest(), &target.collections);
        if mapped == self.mapped {
            return;
        }
        if mapped.missing != self.mapped.missing && !mapped.missing.is_empty() {
            let names: Vec<&str> = mapped.missing.iter().map(String::as_str).collect();
            let text = format!(
                "Found following destination collection(s) missing (and will not get replicated to): {}",
                names.join(", ")
            );
            self.note(now, &text);
        }
        let is_other = !mapped.has_same_targets(&self.mapped);
        self.mapped = mapped;
        if is_other {
            self.retire_all();
        }
    }

    fn note(&mut self, now: Now, text: &str) {
        // The text is for the log; administrators see the keys of documents.
        let shown = unmarked(text);
        // An error that persists is logged once.
        if self.status.errors.front().is_none_or(|(_, last)| *last != shown) {
            tracing::warn!("replication {}: {text}", self.handle.id);
        }
        self.status.note(now.unix_s(), shown);
    }

    fn terms(&self) -> Terms {
        let replication = &self.plan.replication;
        Terms {
            replication: format!("{}/{}", replication.uid, replication.restream),
            collections: self.mapped.terms(),
        }
    }

    /// Returns true if the pipelines should run.
    fn is_wanted(&self) -> bool {
        self.trouble.is_none() && self.target.is_some() && !self.plan.replication.is_paused()
    }

    /// Ensures that exactly the active vBuckets of this node have a pipeline.
    fn follow_arrangement(&mut self, now: Now) {
        let arrangements = self.bucket.arrangements.load(Ordering::Acquire);
        if self.arrangements == Some(arrangements) {
            return;
        }
        self.arrangements = Some(arrangements);
        if !self.is_wanted() {
            let vbids: Vec<Vbid> = self.pipelines.keys().copied().collect();
            self.pending.extend(vbids.into_iter().map(|vbid| (vbid, Input::Pause)));
            return;
        }
        let active: Vbids = self.bucket.active_vbids();
        let gone: Vec<Vbid> =
            self.pipelines.keys().copied().filter(|vbid| !active.contains(*vbid)).collect();
        gone.into_iter().for_each(|vbid| self.retire(vbid));
        let terms = self.terms();
        let count = active.iter().count();
        for vbid in active.iter() {
            let Some(vbucket) = self.bucket.active(vbid) else { continue };
            let state = active_pipeline::state_of(&vbucket);
            drop(vbucket);
            let branch = state.log.current();
            match self.pipelines.get_mut(&vbid) {
                Some(active) if active.branch == branch => {}
                Some(active) => {
                    active.branch = branch;
                    self.pending.push_back((vbid, Input::SourceChanged(state)));
                }
                None => {
                    let records = self.checkpoints.records(&self.handle.id, vbid, &terms);
                    let Some(settings) = self.settings(vbid, count) else { continue };
                    let pipeline = Pipeline::new(settings, records, self.epochs.next_epoch());
                    self.pipelines.insert(vbid, ActivePipeline::new(pipeline, branch));
                    self.pending.push_back((vbid, Input::Start(state)));
                }
            }
        }
        tracing::debug!("replication {}: {} vBuckets at {now:?}", self.handle.id, count);
    }

    fn settings(&self, vbid: Vbid, pipelines: usize) -> Option<nacre_xdcr::Settings> {
        let target = self.target.as_ref()?;
        let count = u16::try_from(self.map.active().len()).ok()?;
        let mut settings = self.plan.settings(vbid, self.bucket.vbucket_count(), target, count);
        settings.mapping = self.mapped.mapping();
        let of = |all: usize| (all / pipelines.max(1)).max(WINDOW_BYTES_MIN);
        settings.window_bytes = (of(WINDOWS_BYTES.0), of(WINDOWS_BYTES.1));
        Some(settings)
    }

    fn take_events(&mut self, now: Now) {
        for event in self.inbox.take() {
            match event {
                Event::Input(vbid, input) => self.pending.push_back((vbid, *input)),
                Event::States { source, run, input } => self.take_states(source, run, *input),
                Event::Linked => self.handle.set_connectivity(Connectivity::Ok),
                Event::LinkLost { address, reason } => {
                    let text = format!("the connection to {address} is lost: {reason}");
                    self.note(now, &text);
                    self.lose_links();
                    self.check_soon();
                }
                Event::Map(map) => self.follow_map(*map),
                Event::Logged(vbid, input, outcome) => {
                    self.count_logged(outcome, now);
                    self.pending.push_back((vbid, *input));
                }
                Event::Target(found) => self.meet_target(*found, now),
                Event::NoTarget(unusable) => {
                    // A nacre node would continue with a new bucket of the same name. New connections check the bucket's UUID.
                    if matches!(unusable, Unusable::NoBucket(_)) {
                        self.links.clear();
                        self.lose_links();
                    }
                    let reason = unusable.to_string();
                    self.handle.set_connectivity(Connectivity::of(&reason));
                    self.note(now, &format!("the target cannot be reached: {reason}"));
                }
            }
        }
    }

    /// Follows a map that a node of the target sent with an answer. Links read such a map with the nodes' own addresses: a
    /// replication that needs the alternate ones asks the management of the target.
    fn follow_map(&mut self, map: ClusterMap) {
        if self.plan.reference.as_ref().is_some_and(|reference| reference.external) {
            self.check_soon();
        } else if map.is_newer_than(&self.map) && map.active().len() == self.map.active().len() {
            self.map = map;
        }
    }

    fn check_soon(&self) {
        if let Some(scout) = &self.scout {
            scout.check_soon();
        }
    }

    /// Combines the answers of several nodes.
    fn take_states(&mut self, source: Vbid, run: Run, input: Input) {
        let Some(ask) = self.asks.get_mut(&source).filter(|ask| ask.run == run) else { return };
        let Input::Target { states, .. } = input else { return };
        match states {
            Some(states) => {
                ask.states.extend(states);
                ask.parts_left = ask.parts_left.saturating_sub(1);
                if ask.parts_left > 0 {
                    return;
                }
            }
            None => ask.parts_left = usize::MAX,
        }
        if let Some(ask) = self.asks.remove(&source) {
            let states = (ask.parts_left == 0).then_some(ask.states);
            self.pending.push_back((source, Input::Target { run, states }));
        }
    }

    /// Passes the pending inputs to the pipelines.
    fn feed(&mut self, now: Now) {
        for _ in 0..INPUTS_MAX {
            let Some((vbid, input)) = self.pending.pop_front() else { return };
            let Some(active) = self.pipelines.get_mut(&vbid) else { continue };
            if matches!(input, Input::Start(_) | Input::SourceChanged(_) | Input::Pause) {
                active.reading = None;
            }
            let read = match &input {
                Input::Portion { documents, .. } => {
                    documents.iter().map(nacre_types::Document::memory_bytes).sum::<usize>()
                }
                _ => 0,
            };
            let counts = active.pipeline.counts();
            let effects = active.pipeline.step(input, now);
            if read > 0 {
                // Charge the bytes when they are read, not when they are sent. While large documents are looked up, the
                // driver would otherwise read much more.
                let later = active.pipeline.counts();
                let received = (later.received - counts.received).max(1);
                let left_out = (later.filtered - counts.filtered).min(received);
                let copies = received - left_out + (later.cloned - counts.cloned);
                let bytes = (read as u128 * u128::from(copies) / u128::from(received)) as usize;
                self.throttle.spend(bytes, now.monotonic_ns);
            }
            let timer_ns = active.pipeline.next_tick_ns();
            let before = std::mem::replace(&mut active.timer_ns, timer_ns);
            if before != timer_ns {
                if let Some(before) = before {
                    self.timers.remove(&(before, vbid));
                }
                self.timers.extend(timer_ns.map(|timer_ns| (timer_ns, vbid)));
            }
            effects.into_iter().for_each(|effect| self.perform(vbid, effect, now));
        }
    }

    fn perform(&mut self, vbid: Vbid, effect: Effect, now: Now) {
        match effect {
            Effect::AskTarget { run, vbids } => self.ask_target(vbid, run, &vbids),
            Effect::Read { run, after } => {
                if let Some(active) = self.pipelines.get_mut(&vbid) {
                    active.reading = Some((run, after));
                    self.ready.insert(vbid);
                }
            }
            Effect::LookUp { run, wanted, keys } => {
                let failed = |lookup: &nacre_xdcr::Lookup| Input::LookedUp {
                    run,
                    id: lookup.id,
                    number: lookup.number,
                    found: FoundAt::Failed(Answer::NotMyVbucket),
                };
                let (parts, lost) = self.by_server(keys, |lookup| lookup.vbid);
                self.pending.extend(lost.iter().map(|lookup| (vbid, failed(lookup))));
                for (server, keys) in parts {
                    self.push(server, Job { source: vbid, run, work: Work::LookUp(wanted, keys) });
                }
            }
            Effect::Write { run, operations } => {
                let failed = |operation: &Operation| Input::Written {
                    run,
                    id: operation.id,
                    number: operation.number,
                    answer: Answer::NotMyVbucket,
                };
                let (parts, lost) = self.by_server(operations, |operation| operation.vbid);
                self.pending.extend(lost.iter().map(|lost| (vbid, failed(lost))));
                for (server, operations) in parts {
                    self.push(server, Job { source: vbid, run, work: Work::Write(operations) });
                }
            }
            Effect::Log { run, id, number, conflict } => {
                self.log(vbid, Input::Logged { run, id, number }, conflict, now);
            }
            // The target judges, and asks its own resolver.
            Effect::Resolve { run, id, .. } => {
                self.pending.push_back((vbid, Input::Resolved { run, id, verdict: None }));
            }
            Effect::Merge { run, id, .. } => {
                self.pending.push_back((vbid, Input::Merged { run, id, is_done: false }));
            }
            Effect::Reroute { .. } => {
                self.status.reroutes += 1;
                self.check_soon();
            }
            Effect::Save(records) => {
                let terms = self.terms();
                let id = &self.handle.id;
                if let Err(error) = self.checkpoints.save(id, vbid, &terms, &records) {
                    self.note(now, &format!("a checkpoint cannot be stored: {error}"));
                }
            }
            Effect::Notify(notice) => self.notify(vbid, &notice, now),
            Effect::Rested => {
                self.retire(vbid);
                // The replication may have been resumed since it was paused.
                if self.is_wanted() {
                    self.arrangements = None;
                }
            }
        }
    }

    /// Groups items by the target node that serves them; returns separately the items that no node serves.
    fn by_server<T>(
        &self,
        items: Vec<T>,
        vbid_of: impl Fn(&T) -> Vbid,
    ) -> (BTreeMap<String, Vec<T>>, Vec<T>) {
        let (mut parts, mut lost) = (BTreeMap::<String, Vec<T>>::new(), Vec::new());
        for item in items {
            match self.map.server_of(vbid_of(&item)) {
                None => lost.push(item),
                Some(server) => match parts.get_mut(server) {
                    Some(part) => part.push(item),
                    None => drop(parts.insert(server.to_owned(), vec![item])),
                },
            }
        }
        (parts, lost)
    }

    fn ask_target(&mut self, source: Vbid, run: Run, vbids: &[Vbid]) {
        let (parts, lost) = self.by_server(vbids.to_vec(), |vbid| *vbid);
        if !lost.is_empty() || parts.is_empty() {
            self.check_soon();
            return self.pending.push_back((source, Input::Target { run, states: None }));
        }
        let ask = Ask { run, parts_left: parts.len(), states: BTreeMap::new() };
        self.asks.insert(source, ask);
        for (server, vbids) in parts {
            self.push(server, Job { source, run, work: Work::States(vbids) });
        }
    }

    fn push(&mut self, server: String, job: Job) {
        let Some(reference) = &self.plan.reference else { return };
        let links = match self.links.get(&server) {
            Some(links) => links,
            None => {
                let replication = &self.plan.replication;
                let (name, uuid) = (&replication.target, &replication.target_uuid);
                let access = match target::access(reference, name, uuid) {
                    Ok(access) => access,
                    Err(reason) => return self.note(self.node.now(), &reason),
                };
                let start =
                    |_| Link::start(server.clone(), access.clone(), Arc::clone(&self.inbox));
                let links = (0..self.plan.links_per_node()).map(start).collect();
                &*self.links.entry(server).or_insert(links)
            }
        };
        // One pipeline always uses the same link, so that its requests arrive in order.
        let link = job.source.index() % links.len();
        links[link].push(job);
    }

    /// Logs a conflict if its collection has a log, then passes `input` to the pipeline.
    fn log(&mut self, vbid: Vbid, input: Input, conflict: Box<nacre_xdcr::Conflict>, now: Now) {
        let parties = self.parties(vbid, &conflict);
        let place = parties.as_ref().and_then(|(here, _)| {
            let (scope, collection) = &here.path;
            self.plan.log.as_ref()?.place_of(scope, collection).cloned()
        });
        let (Some(parties), Some(place)) = (parties, place) else {
            return self.pending.push_back((vbid, input));
        };
        let name = nacre_types::leb128_decode(&conflict.key).map_or(&[][..], |(_, name)| name);
        let (replication, node, name) = (self.handle.id.clone(), self.node.uuid(), name.to_vec());
        let entry = Entry { replication, node, name, parties, conflict };
        let logger = self.logger.get_or_insert_with(|| Logger::start(&self.node, &self.inbox));
        if let Err(input) = logger.log(vbid, input, place, entry) {
            self.count_logged(Err("too many conflicts wait to be logged".to_owned()), now);
            self.pending.push_back((vbid, input));
        }
    }

    fn count_logged(&mut self, outcome: Result<(), String>, now: Now) {
        match outcome {
            Ok(()) => self.status.logged += 1,
            Err(reason) => {
                self.status.not_logged += 1;
                self.note(now, &format!("a conflict is not logged: {reason}"));
            }
        }
    }

    /// Returns the two sides of a conflict; `None` if a collection has been dropped.
    fn parties(&self, vbid: Vbid, conflict: &nacre_xdcr::Conflict) -> Option<(Party, Party)> {
        let (id, name) = nacre_types::leb128_decode(&conflict.key)?;
        let (target_id, _) = nacre_types::leb128_decode(&conflict.target_key)?;
        let path = self.path_of(id)?;
        let target = self.target.as_ref()?;
        let there = target.collections.iter().find(|(_, it)| it.0 == target_id)?.0.clone();
        let replication = &self.plan.replication;
        let here = Party {
            bucket: replication.source_uuid.clone(),
            cluster: self.plan.cluster.clone(),
            path,
            vbid,
        };
        let count = u16::try_from(self.map.active().len()).ok()?;
        let there = Party {
            bucket: target.uuid.clone(),
            cluster: target.cluster.uuid.clone(),
            path: there,
            vbid: Vbid::of(name, count.max(1)),
        };
        Some((here, there))
    }

    /// Returns scope and name of a collection of the source.
    fn path_of(&self, id: u32) -> Option<(String, String)> {
        self.bucket.manifest().scopes.iter().find_map(|scope| {
            let found = scope.collections.iter().find(|it| it.id == id)?;
            Some((scope.name.clone(), found.name.clone()))
        })
    }

    /// Lists up to `most` documents of a line that were put aside.
    fn stuck_of(&self, vbid: Vbid, active: &ActivePipeline, most: usize) -> Vec<StuckDocument> {
        let mut keys: Vec<&[u8]> = active.pipeline.stuck().take(most).collect();
        // One document may have copies for several collections of the target.
        keys.dedup();
        let document = |key: &[u8]| {
            let (id, name) = nacre_types::leb128_decode(key)?;
            let (scope, collection) = self.path_of(id)?;
            let reason = self.reasons.get(&(vbid, key.to_vec())).cloned().unwrap_or_default();
            let (collection, key) =
                (format!("{scope}.{collection}"), String::from_utf8_lossy(name).into_owned());
            Some(StuckDocument { collection, key, reason })
        };
        keys.into_iter().filter_map(document).collect()
    }

    fn notify(&mut self, vbid: Vbid, notice: &Notice, now: Now) {
        let name = |key: &[u8]| {
            let name = nacre_types::leb128_decode(key).map_or(key, |(_, name)| name);
            String::from_utf8_lossy(name).into_owned()
        };
        let text = match notice {
            Notice::FromZero => {
                format!("{vbid} starts again: the clusters have no checkpoint in common")
            }
            Notice::DeletionsForgotten => format!(
                "{vbid} starts again: the source has purged deletions, which may be missing at the target; `nacre xdcr diff` shows them"
            ),
            Notice::SourceRolledBack(seqno) => {
                format!("{vbid} has another history here from seqno {seqno} on")
            }
            Notice::TargetRolledBack => {
                format!(
                    "{vbid}: the target has another history, sending again the versions that it may have lost"
                )
            }
            Notice::Unclear { key, reason } => {
                format!("the filter cannot be applied to \"{}\": {reason}", UserData(name(key)))
            }
            Notice::Stuck { key, reason } => {
                self.reasons.insert((vbid, key.clone()), reason.clone());
                format!("\"{}\" is put aside: {reason}", UserData(name(key)))
            }
            Notice::Freed { key } => {
                self.reasons.remove(&(vbid, key.clone()));
                tracing::info!(
                    "replication {}: the target has accepted {}",
                    self.handle.id,
                    UserData(name(key))
                );
                return;
            }
        };
        self.note(now, &text);
    }

    /// Takes the next vBucket with history to read, in turn, so that busy vBuckets do not starve the others.
    fn next_ready(&mut self) -> Option<Vbid> {
        let later = (Bound::Excluded(self.read_last), Bound::Unbounded);
        let next = self.ready.range(later).next().or_else(|| self.ready.first()).copied()?;
        self.ready.remove(&next);
        self.read_last = next;
        Some(next)
    }

    /// Reads history for the pipelines that request it.
    fn read(&mut self, now: Now) {
        while let Some(vbid) = self.dirty.take(0) {
            if self.pipelines.get(&vbid).is_some_and(|active| active.reading.is_some()) {
                self.ready.insert(vbid);
            }
        }
        let bytes = (WINDOWS_BYTES.0 / self.pipelines.len().max(1))
            .clamp(WINDOW_BYTES_MIN, PORTION_BYTES_MAX);
        let bytes = self.throttle.portion(WINDOW_BYTES_MIN, bytes);
        // The throttle is charged only after a portion was admitted, so read one portion at a time.
        let reads = match self.throttle.is_limited() {
            true => 1,
            false => self.plan.reads_max(self.has_caught_up),
        };
        for _ in 0..reads {
            if self.throttle.wait_ns(now.monotonic_ns).is_some() {
                return;
            }
            let Some(vbid) = self.next_ready() else { return };
            let Some(active) = self.pipelines.get_mut(&vbid) else { continue };
            let Some((run, _)) = active.reading else { continue };
            match active.read(&self.bucket, vbid, bytes) {
                Ok(Found::Portion(portion, purge_seqno)) => {
                    active.reading = None;
                    let (documents, position) = (portion.documents, portion.position);
                    let input = Input::Portion { run, documents, position, purge_seqno };
                    self.pending.push_back((vbid, input));
                }
                Ok(Found::Nothing) => {}
                Ok(Found::Changed(state)) => {
                    active.branch = state.log.current();
                    self.pending.push_back((vbid, Input::SourceChanged(state)));
                }
                Ok(Found::Gone) => self.arrangements = None,
                Err(error) => {
                    self.note(now, &format!("the history of {vbid} cannot be read: {error}"));
                    self.ready.insert(vbid);
                    return;
                }
            }
        }
    }

    fn keep_time(&mut self, now: Now) {
        while let Some((timer_ns, vbid)) = self.timers.first().copied() {
            if timer_ns > now.monotonic_ns {
                return;
            }
            self.timers.pop_first();
            if let Some(active) = self.pipelines.get_mut(&vbid) {
                active.timer_ns = None;
                self.pending.push_back((vbid, Input::Tick));
            }
        }
    }

    /// Publishes the status of the replication on this node.
    fn publish_status(&mut self, now: Now) {
        if now.monotonic_ns < self.said_ns + STATUS_NS {
            return;
        }
        self.said_ns = now.monotonic_ns;
        let mut status = Status { sums: self.retired, ..self.status.clone() };
        let terms = self.terms();
        for vbid in self.bucket.active_vbids().iter() {
            let Some(high) = self.bucket.active_high_seqno(vbid) else { continue };
            let (read, outstanding) = match self.pipelines.get(&vbid) {
                Some(active) => {
                    status.sums.add(&active.pipeline.counts());
                    let stuck = active.pipeline.stuck().count();
                    status.stuck += stuck as u64;
                    let most = LISTED_MAX.saturating_sub(status.stuck_documents.len());
                    if stuck > 0 && most > 0 {
                        status.stuck_documents.extend(self.stuck_of(vbid, active, most));
                    }
                    status.window_bytes += active.pipeline.window().used() as u64;
                    (active.pipeline.read_to(), active.pipeline.outstanding() as u64)
                }
                None => {
                    let records = self.checkpoints.records(&self.handle.id, vbid, &terms);
                    let newest = records.iter().next().map(|record| record.source.seqno);
                    (newest.unwrap_or(Seqno::ZERO), 0)
                }
            };
            status.changes_left += high.0.saturating_sub(read.0) + outstanding;
        }
        self.has_caught_up |= status.changes_left == 0 && !self.pipelines.is_empty();
        let is_paused = self.plan.replication.is_paused();
        let all_stream = self.pipelines.values().all(|active| active.pipeline.is_streaming());
        status.activity = match (is_paused, self.pipelines.is_empty()) {
            (true, true) => Activity::Paused,
            (false, _) if self.is_wanted() && all_stream => Activity::Running,
            (false, false) if self.is_wanted() => Activity::Running,
            _ => Activity::NotRunning,
        };
        self.handle.set_status(status);
    }
}

impl Task for Driver {
    fn name(&self) -> &'static str {
        "xdcr"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if self.handle.is_over() || self.bucket.is_closed() {
            return self.end();
        }
        let now = self.node.now();
        self.follow_plan();
        self.take_events(now);
        self.follow_arrangement(now);
        self.keep_time(now);
        self.feed(now);
        let has_lease = self.bucket.has_lease(now);
        if has_lease {
            self.read(now);
            self.follow_plan();
            self.feed(now);
        }
        self.publish_status(now);
        let wait_ns = self.throttle.wait_ns(now.monotonic_ns);
        let can_read = has_lease && !self.ready.is_empty() && wait_ns.is_none();
        if !self.pending.is_empty() || can_read {
            return Next::Again;
        }
        let next = self.timers.first().map_or(u64::MAX, |(timer_ns, _)| *timer_ns);
        let next = wait_ns.map_or(next, |wait_ns| next.min(now.monotonic_ns + wait_ns));
        let left = Duration::from_nanos(next.saturating_sub(now.monotonic_ns));
        let most = if has_lease { SLEEP_MAX } else { LEASE_PAUSE };
        Next::After(left.clamp(Duration::from_millis(1), most))
    }

    fn signal(&self) -> &Signal {
        &self.inbox.signal
    }
}
