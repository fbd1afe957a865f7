//! The steps of a version: look-up, decision, write, retries, putting aside.

use super::outstanding::{Item, Phase, Task};
use super::{Pipeline, attributes_of};
use crate::message::{Answer, Conflict, Effect, Found, Lookup, Merge, Notice, Operation, Over};
use crate::message::{VersionId, Wanted, without_expiry};
use crate::{Arriving, Echo, Judge, Judgement, Known, Malformed, Policy, Relation, Side};
use crate::{arrival, judge};
use nacre_types::{Cas, Kind, Meta, Now};
use nacre_value::crc32c;
use nacre_vbucket::{Resolution, Verdict};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Bytes that a look-up is charged in the window, without the key.
const LOOKUP_BYTES: usize = 128;
/// How long a version waits for the log: 10 s. The logger itself gives up earlier, but many conflicts may be queued.
const LOG_TIMEOUT_NS: u64 = 10_000_000_000;
/// Number of permanent refusals before a version is put aside.
const REFUSALS_MAX: u32 = 3;

/// A failure to send a version.
enum Trouble {
    /// The target or a resolver cannot handle the version now.
    Busy(&'static str),
    /// The target will never store the version.
    Refused(String),
    /// There is no answer, or the version has to go to another node. The version itself is not the cause.
    Link,
}

impl Pipeline {
    /// Sends as much as the window allows.
    pub(super) fn send(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let (mut keys, mut operations) = (BTreeMap::<Wanted, Vec<Lookup>>::new(), Vec::new());
        while let Some(id) = self.outstanding.next() {
            let Some(item) = self.outstanding.get(id) else { break };
            let task = match item.task {
                Task::Decide => self.first_task(item),
                task => Some(task),
            };
            let Some(task) = task else {
                self.counts.kept_at_source += 1;
                self.finish(id, effects);
                continue;
            };
            let bytes = match task {
                Task::Write(_) => item.document.memory_bytes(),
                _ => item.key.len() + LOOKUP_BYTES,
            };
            if !self.window.has_room(bytes) {
                break;
            }
            self.requests += 1;
            let number = self.requests;
            match task {
                Task::Write(over) => {
                    operations.push(self.operation(number, item, over));
                    self.counts.sent += 1;
                    self.put_on_its_way(id, Phase::Writing, bytes, now);
                }
                Task::LookUp(_) | Task::Decide => {
                    let wanted =
                        if let Task::LookUp(wanted) = task { wanted } else { self.wanted() };
                    let lookup = Lookup { id, number, vbid: item.vbid, key: item.key.clone() };
                    keys.entry(wanted).or_default().push(lookup);
                    self.counts.looked_up += 1;
                    self.put_on_its_way(id, Phase::LookingUp(wanted), bytes, now);
                }
            }
        }
        let (run, most) = (self.run, self.settings.batch_count.max(1));
        for (wanted, keys) in keys {
            let batches = keys.chunks(most).map(<[Lookup]>::to_vec);
            effects.extend(batches.map(|keys| Effect::LookUp { run, wanted, keys }));
        }
        let batches = batches(operations, most, self.settings.batch_bytes);
        effects.extend(batches.into_iter().map(|operations| Effect::Write { run, operations }));
    }

    /// Returns the first step of a version; `None` if it is not sent.
    fn first_task(&self, item: &Item) -> Option<Task> {
        let settings = &self.settings;
        let look_up = Some(Task::LookUp(self.wanted()));
        if settings.judge == Judge::Source {
            return look_up;
        }
        let known = arrival::known_here(&item.document, &settings.source);
        if let Some(history) = known.history.filter(|it| *it.source() == settings.target.id) {
            match settings.echo {
                // Look up merges that the target made: the target may have lost the merge but not the merged versions.
                Echo::Skip if !history.is_merge() => return None,
                Echo::LookUp | Echo::Skip => return look_up,
            }
        }
        if self.logs_conflicts() {
            return look_up;
        }
        let is_small = item.document.memory_bytes() < settings.optimistic_bytes;
        if is_small { Some(Task::Write(Over::Anything)) } else { look_up }
    }

    /// Returns the part of a version to look up first.
    fn wanted(&self) -> Wanted {
        match (self.settings.policy, self.settings.keeps_histories) {
            (Policy::Rule(_), false) => Wanted::Meta,
            _ => Wanted::History,
        }
    }

    fn logs_conflicts(&self) -> bool {
        self.settings.logs_conflicts && self.settings.keeps_histories
    }

    fn put_on_its_way(&mut self, id: VersionId, phase: Phase, bytes: usize, now: Now) {
        let attempts = self.outstanding.get(id).map_or(0, |item| item.attempts);
        let deadline_ns = now.monotonic_ns + self.timeout_ns(attempts);
        if let Some(item) = self.outstanding.get_mut(id) {
            item.request = self.requests;
        }
        self.set_phase(id, phase, Some(deadline_ns));
        self.window.send(bytes);
        self.outstanding.charge(id, bytes);
    }

    fn set_phase(&mut self, id: VersionId, phase: Phase, timer_ns: Option<u64>) {
        let freed = self.outstanding.set_phase(id, phase, timer_ns);
        self.window.free(freed);
    }

    fn operation(&self, number: u64, item: &Item, over: Over) -> Operation {
        let by_time = self.settings.policy.rule() == Resolution::LastWriteWins;
        let version = self.outgoing(item);
        let compresses = self.settings.compresses && !version.value.is_empty();
        let (id, vbid, key) = (item.id, item.vbid, item.key.clone());
        Operation { id, number, vbid, key, version, over, by_time, compresses }
    }

    /// Returns the version to send, with its history added. The target could not compute the history.
    fn outgoing(&self, item: &Item) -> Arriving {
        let document = &item.document;
        let strips = self.settings.filter.strips_expiry && document.is_alive();
        let meta = if strips { without_expiry(document.meta) } else { document.meta };
        let known = arrival::known_here(document, &self.settings.source);
        // A metadata-only update is sent with its own attribute instead.
        let is_written = known.cas == document.meta.cas;
        let history = known.history.filter(|_| self.settings.keeps_histories && is_written);
        let body = if document.is_alive() { document.body() } else { &[] };
        let plain = || Arriving { meta, value: document.value().to_vec() };
        arrival::joined(meta, &attributes_of(item), body, history.as_ref())
            .unwrap_or_else(|_| plain())
    }

    /// Handles the result of a look-up.
    pub(super) fn looked_up(
        &mut self,
        id: VersionId,
        number: u64,
        found: Found,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(item) = self.outstanding.get(id) else { return };
        // Ignore late answers to earlier requests. Such an answer may lack the body asked for now, and would look like an empty
        // body. It may also show the target before a write was refused, so that a version that has since gone would seem to win.
        if item.request != number {
            return;
        }
        let Phase::LookingUp(wanted) = item.phase() else { return };
        let by_source = self.settings.judge == Judge::Source;
        let is_logging = self.logs_conflicts();
        let over = |known| match known {
            known if by_source => known,
            Over::Version(cas) if is_logging => Over::Judged(cas),
            _ => Over::Anything,
        };
        let version = match found {
            Found::Failed(answer) => return self.written(id, number, answer, now, effects),
            Found::Nothing => return self.queue(id, Task::Write(over(Over::Nothing))),
            Found::Checksum(cas, checksum) => return self.compare(id, cas, checksum, effects),
            Found::Version(version) => version,
        };
        let source = arrival::known_here(&item.document, &self.settings.source);
        let attributes = version.split().map_or(&[][..], |(attributes, _)| attributes);
        // An unreadable history counts as absent, as it does on the target itself.
        let known = |attributes| Known::of(&version.meta, attributes, &self.settings.target);
        let Ok(target) = known(attributes).or_else(|Malformed| known(&[])) else {
            let reason = "the attributes at the target are malformed".to_owned();
            return self.retry_or_put_aside(id, Trouble::Refused(reason), now, effects);
        };
        let was_whole = wanted == Wanted::Whole;
        let is_alive = |meta: &Meta| meta.kind == Kind::Alive;
        if item.refused_over == Some(version.meta.cas) {
            // The target refused a write over this version and still has it: the target's version wins.
            self.counts.kept_at_target += 1;
            return self.finish(id, effects);
        }
        if is_logging && item.logged_with != Some(version.meta.cas) {
            let are_alive = is_alive(&version.meta) || is_alive(&item.document.meta);
            let relation = source.history.as_ref().zip(target.history.as_ref());
            let relation = relation.map(|(here, there)| here.relation(there));
            if are_alive && relation == Some(Relation::Conflict) {
                return match was_whole {
                    true => self.log(id, completed(version, &target), now, effects),
                    false => self.queue(id, Task::LookUp(Wanted::Whole)),
                };
            }
        }
        let body = version.split().ok().filter(|_| was_whole).map(|(_, body)| body);
        let sides = (
            Side {
                meta: &item.document.meta,
                known: &source,
                xattrs: item.document.xattrs(),
                body: Some(item.document.body()),
            },
            Side { meta: &version.meta, known: &target, xattrs: attributes, body },
        );
        match judge(self.settings.policy, sides.0, sides.1) {
            Judgement::Keep => {
                self.counts.kept_at_source += 1;
                self.finish(id, effects);
            }
            Judgement::Ask if by_source && was_whole => {
                let version = completed(version.clone(), &target);
                self.ask_resolver(id, version, effects);
            }
            Judgement::Ask if by_source => self.queue(id, Task::LookUp(Wanted::Whole)),
            Judgement::Compare => {
                if let Some(item) = self.outstanding.get_mut(id) {
                    item.tied_with = Some(version.meta.cas);
                }
                self.queue(id, Task::LookUp(Wanted::Checksum));
            }
            Judgement::Ask | Judgement::Take | Judgement::TakeAnew => {
                let known = Over::Version(version.meta.cas);
                // A target that judges accepts no CAS condition for tombstones.
                let known =
                    if by_source || is_alive(&version.meta) { known } else { Over::Anything };
                self.queue(id, Task::Write(over(known)));
            }
        }
    }

    /// Handles the checksum of a target's body whose metadata tie with this version. Applies the order of
    /// [`Content::outranks`](nacre_vbucket::Content::outranks) as far as checksums allow.
    fn compare(&mut self, id: VersionId, cas: Cas, checksum: u32, effects: &mut Vec<Effect>) {
        let Some(item) = self.outstanding.get_mut(id) else { return };
        if item.tied_with.take() != Some(cas) {
            return self.queue(id, Task::Decide);
        }
        let known = arrival::known_here(&item.document, &self.settings.source);
        let is_kept = match checksum.cmp(&crc32c(item.document.body())) {
            Ordering::Less => false,
            // The target has both sets of attributes, so it compares them.
            Ordering::Equal => !known.has_others,
            Ordering::Greater => true,
        };
        if is_kept {
            self.counts.kept_at_source += 1;
            return self.finish(id, effects);
        }
        let over = match self.settings.judge {
            Judge::Source => Over::Version(cas),
            Judge::Target if self.logs_conflicts() => Over::Judged(cas),
            Judge::Target => Over::Anything,
        };
        self.queue(id, Task::Write(over));
    }

    /// Logs a conflict. The version continues once the conflict is logged.
    fn log(&mut self, id: VersionId, target: Arriving, now: Now, effects: &mut Vec<Effect>) {
        let Some(item) = self.outstanding.get(id) else { return };
        let (source, key) = (self.outgoing(item), item.document.key().to_vec());
        let (cas, target_key) = (target.meta.cas, item.key.clone());
        let conflict = Box::new(Conflict { key, target_key, source, target });
        self.requests += 1;
        let number = self.requests;
        effects.push(Effect::Log { run: self.run, id, number, conflict });
        self.counts.logged += 1;
        if let Some(item) = self.outstanding.get_mut(id) {
            item.logged_with = Some(cas);
            item.request = number;
        }
        // The logger may have stopped, so the version continues after a timeout.
        let until_ns = now.monotonic_ns + LOG_TIMEOUT_NS;
        self.set_phase(id, Phase::Logging, Some(until_ns));
    }

    /// Handles the log's answer. A late answer belongs to an earlier conflict of the version.
    pub(super) fn logged(&mut self, id: VersionId, number: u64) {
        let Some(item) = self.outstanding.get(id) else { return };
        if item.phase() == Phase::Logging && item.request == number {
            self.queue(id, Task::Decide);
        }
    }

    fn queue(&mut self, id: VersionId, task: Task) {
        if let Some(item) = self.outstanding.get_mut(id) {
            item.task = task;
        }
        self.set_phase(id, Phase::Queued, None);
    }

    fn ask_resolver(&mut self, id: VersionId, target: Arriving, effects: &mut Vec<Effect>) {
        let Some(item) = self.outstanding.get(id) else { return };
        let source = self.outgoing(item);
        let (key, target_key) = (item.document.key().to_vec(), item.key.clone());
        let conflict = Box::new(Conflict { key, target_key, source, target: target.clone() });
        effects.push(Effect::Resolve { run: self.run, id, conflict });
        if let Some(item) = self.outstanding.get_mut(id) {
            item.rival = Some(target);
        }
        self.set_phase(id, Phase::Resolving, None);
    }

    /// Handles the resolver's answer.
    pub(super) fn resolved(
        &mut self,
        id: VersionId,
        verdict: Option<Verdict>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(item) = self.outstanding.get_mut(id) else { return };
        if item.phase() != Phase::Resolving {
            return;
        }
        let (Some(verdict), Some(target)) = (verdict, item.rival.take()) else {
            return self.retry_or_put_aside(
                id,
                Trouble::Busy("the resolver has not decided"),
                now,
                effects,
            );
        };
        let merge = Box::new(Merge { local: item.document.clone(), target, verdict });
        self.counts.resolved += 1;
        effects.push(Effect::Merge { run: self.run, id, merge });
        self.set_phase(id, Phase::Merging, None);
    }

    /// Handles the result of a merge. A merge is done if the decision was written at the source, or if the version has
    /// been superseded; a later version follows in both cases.
    pub(super) fn merged(
        &mut self,
        id: VersionId,
        is_done: bool,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let phase = self.outstanding.get(id).map(Item::phase);
        match (phase, is_done) {
            (Some(Phase::Merging), true) => self.finish(id, effects),
            (Some(Phase::Merging), false) => {
                self.retry_or_put_aside(
                    id,
                    Trouble::Busy("the merge was not written"),
                    now,
                    effects,
                );
            }
            _ => {}
        }
    }

    /// Handles the target's answer to a write, or the failure of a look-up.
    pub(super) fn written(
        &mut self,
        id: VersionId,
        number: u64,
        answer: Answer,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(item) = self.outstanding.get(id) else { return };
        let bytes = item.document.memory_bytes();
        match answer {
            Answer::Stored | Answer::Kept => {
                let counts = &mut self.counts;
                let is_stored = answer == Answer::Stored;
                let count = if is_stored { &mut counts.stored } else { &mut counts.kept_at_target };
                *count += 1;
                self.window.grow(bytes);
                self.finish(id, effects);
            }
            // Answers to an earlier attempt do not affect the attempt in flight.
            _ if item.request != number || !item.phase().is_on_its_way() => {}
            Answer::Changed => {
                if let Some(item) = self.outstanding.get_mut(id)
                    && let Task::Write(Over::Judged(cas)) = item.task
                {
                    item.refused_over = Some(cas);
                }
                self.queue(id, Task::Decide);
            }
            Answer::NotMyVbucket => {
                effects.push(Effect::Reroute { vbid: item.vbid });
                self.retry_or_put_aside(id, Trouble::Link, now, effects);
                self.verify_soon(now);
            }
            Answer::Busy => {
                self.window.shrink(now.monotonic_ns);
                let reason = match self.settings.policy {
                    Policy::Rule(_) => "the target cannot take it now",
                    // A resolver that fails has the same answer as a target without memory.
                    Policy::Resolver(_) => "the target, or its resolver, cannot take it now",
                };
                self.retry_or_put_aside(id, Trouble::Busy(reason), now, effects);
            }
            Answer::NoCollection => {
                let reason = "the target has no such collection".to_owned();
                self.retry_or_put_aside(id, Trouble::Refused(reason), now, effects);
            }
            Answer::Refused(reason) => {
                self.retry_or_put_aside(id, Trouble::Refused(reason), now, effects)
            }
        }
    }

    /// Handles the timeout or the end of the back-off of a version.
    pub(super) fn time_is_up(&mut self, id: VersionId, now: Now) {
        match self.outstanding.get(id).map(Item::phase) {
            Some(Phase::LookingUp(_) | Phase::Writing) => {
                self.window.shrink(now.monotonic_ns);
                self.wait_after_trouble(id, now);
                self.verify_soon(now);
            }
            Some(Phase::Logging) => {
                self.counts.log_timeouts += 1;
                self.queue(id, Task::Decide);
            }
            _ => self.set_phase(id, Phase::Queued, None),
        }
    }

    /// Backs off before the next attempt of a version.
    pub(super) fn wait_after_trouble(&mut self, id: VersionId, now: Now) {
        let Some(item) = self.outstanding.get_mut(id) else { return };
        if item.attempts == 0 {
            item.done_before = self.counts.done;
        }
        item.attempts = item.attempts.saturating_add(1);
        // If the source judges, its decision depends on the target's version, which must be looked up again.
        if self.settings.judge == Judge::Source {
            item.task = Task::Decide;
        }
        let (attempts, is_stuck) = (item.attempts, item.is_stuck);
        let pause_ns = if is_stuck { self.settings.rest_ns } else { self.backoff_ns(attempts, id) };
        self.counts.retried += 1;
        self.set_phase(id, Phase::Waiting, Some(now.monotonic_ns + pause_ns));
    }

    /// Schedules a retry of a version. Puts the version aside if it was refused permanently, or failed repeatedly while
    /// other versions succeeded.
    fn retry_or_put_aside(
        &mut self,
        id: VersionId,
        trouble: Trouble,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.wait_after_trouble(id, now);
        let Some(item) = self.outstanding.get(id) else { return };
        let others_went = self.counts.done > item.done_before;
        let reason = match trouble {
            Trouble::Refused(reason) if item.attempts >= REFUSALS_MAX => reason,
            Trouble::Busy(reason) if item.attempts >= self.settings.attempts_max && others_went => {
                reason.to_owned()
            }
            _ => return,
        };
        let key = item.document.key().to_vec();
        if self.outstanding.put_aside(id) {
            effects.push(Effect::Notify(Notice::Stuck { key, reason }));
            let until_ns = now.monotonic_ns + self.settings.rest_ns;
            self.set_phase(id, Phase::Waiting, Some(until_ns));
        }
    }
}

/// Divides operations into batches. A batch ends with the operation that fills it, by count or by size.
fn batches(operations: Vec<Operation>, count_max: usize, bytes_max: usize) -> Vec<Vec<Operation>> {
    let (mut batches, mut bytes) = (Vec::<Vec<Operation>>::new(), 0);
    for operation in operations {
        let size = operation.key.len() + operation.version.value.len();
        match batches.last_mut() {
            Some(batch) if batch.len() < count_max && bytes < bytes_max => {
                bytes += size;
                batch.push(operation);
            }
            _ => {
                bytes = size;
                batches.push(vec![operation]);
            }
        }
    }
    batches
}

/// Adds the history to the target's version, as the target itself would send it. Only this side knows which bucket made
/// the version.
fn completed(version: Arriving, target: &Known) -> Arriving {
    let (attributes, body) = version.split().unwrap_or((&[], &version.value));
    let stamped = arrival::joined(version.meta, attributes, body, target.history.as_ref());
    stamped.unwrap_or(version)
}
