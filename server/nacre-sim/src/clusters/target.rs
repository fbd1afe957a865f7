//! The target side: requests from other clusters, and decisions of resolvers.

use super::ledger::Lineage;
use super::plan::MS;
use super::resolver::decide;
use super::simulation::{Decision, Event, Request, Simulation};
use nacre_types::{Cas, DATATYPE_XATTR, Document, Kind, Meta, Vbid};
use nacre_value::crc32c;
use nacre_value::xattr::Xattrs;
use nacre_vbucket::{Command, Refusal, Rule, Seen};
use nacre_xdcr::{
    Answer, Arriving, Conflict, Found, History, Input, Judge, Known, Lookup, Merge, Operation,
    Outcome, Over, Policy, Relation, Run, SourceId, TargetState, VersionId, Wanted, attribute,
    first_loss, known_here, receive, settle,
};

/// Returns the relation of two versions by their histories, if both have one.
fn relation(incoming: &Arriving, local: &Known) -> Option<Relation> {
    let attributes = incoming.split().ok()?.0;
    let incoming: Option<History> = Known::arriving(&incoming.meta, attributes).ok()?.history;
    Some(incoming?.relation(local.history.as_ref()?))
}

impl Simulation {
    pub(super) fn serve_request(&mut self, pipe: usize, run: Run, request: Request) {
        let input = match request {
            Request::Ask(vbids) => {
                let Some(states) = self.states(pipe, &vbids) else { return };
                Input::Target { run, states }
            }
            Request::LookUp(wanted, lookup) => {
                let found = self.look_up(pipe, wanted, &lookup);
                Input::LookedUp { run, id: lookup.id, number: lookup.number, found }
            }
            Request::Write(operation) => {
                let (id, number) = (operation.id, operation.number);
                match self.take_version(pipe, run, operation) {
                    Some(answer) => Input::Written { run, id, number, answer },
                    None => return,
                }
            }
        };
        self.answer(pipe, &input);
    }

    /// Returns the target's answer; the outer `None` means no answer at all.
    #[allow(clippy::type_complexity, reason = "as the input has it")]
    fn states(
        &mut self,
        pipe: usize,
        vbids: &[Vbid],
    ) -> Option<Option<std::collections::BTreeMap<Vbid, TargetState>>> {
        let target = self.link_of(pipe).1;
        let vbuckets = &self.clusters[target].vbuckets;
        if vbids.iter().any(|vbid| self.now_ns < vbuckets[vbid.index()].moving_until_ns) {
            return self.chance.once_in(2).then_some(None);
        }
        let state = |vbid: &Vbid| {
            let vbucket = &vbuckets[vbid.index()].active;
            let log = vbucket.failover_log().clone();
            (*vbid, TargetState { log, high_seqno: vbucket.high_seqno() })
        };
        Some(Some(vbids.iter().map(state).collect()))
    }

    fn is_moving(&self, cluster: usize, vbid: Vbid) -> bool {
        self.now_ns < self.clusters[cluster].vbuckets[vbid.index()].moving_until_ns
    }

    fn find(&self, cluster: usize, vbid: Vbid, key: &[u8]) -> Option<Document> {
        self.clusters[cluster].vbuckets[vbid.index()].active.find(key).cloned()
    }

    fn look_up(&mut self, pipe: usize, wanted: Wanted, lookup: &Lookup) -> Found {
        let (source, target) = self.link_of(pipe);
        if self.is_moving(target, lookup.vbid) {
            return Found::Failed(Answer::NotMyVbucket);
        }
        let Some(document) = self.find(target, lookup.vbid, &lookup.key) else {
            return Found::Nothing;
        };
        // The source may decide after this look-up that the target's version wins.
        if let Some(incoming) = self.source_version(pipe, &lookup.key, lookup.id.seqno).cloned() {
            let arriving = self.as_sent(source, &incoming);
            let lineage = self.ledger.of(source, &lookup.key, Some(incoming.meta.cas));
            self.note_kept(target, &lookup.key, &document, &arriving, lineage);
        }
        let attributes = Xattrs::parse(document.xattrs()).unwrap_or_default();
        let (bits, value) = match wanted {
            Wanted::Checksum => {
                return Found::Checksum(document.meta.cas, crc32c(document.body()));
            }
            Wanted::Whole => (DATATYPE_XATTR, document.value().to_vec()),
            Wanted::Meta => (DATATYPE_XATTR, Vec::new()),
            Wanted::History => {
                let mut kept = Xattrs::default();
                for name in [attribute::HISTORY, attribute::METADATA_ONLY_UPDATE] {
                    if let Some(value) = attributes.get(name) {
                        kept.set(name, value).expect("it was set before");
                    }
                }
                let value = kept.encode();
                (if value.is_empty() { 0 } else { DATATYPE_XATTR }, value)
            }
        };
        let datatype = document.meta.datatype & (!DATATYPE_XATTR | bits);
        Found::Version(Arriving { meta: Meta { datatype, ..document.meta }, value })
    }

    /// Returns a version with its history, which the target could not compute.
    fn as_sent(&self, source: usize, document: &Document) -> Arriving {
        let known = known_here(document, &self.plan.clusters[source].site);
        let Some(history) = known.history.filter(|_| self.plan.keeps_histories) else {
            return Arriving::of(document);
        };
        let stamped = attribute::stamp(document.xattrs(), &history, document.meta.cas);
        let value = [&stamped.expect("it is well-formed")[..], document.body()].concat();
        let datatype = document.meta.datatype | DATATYPE_XATTR;
        Arriving { meta: Meta { datatype, ..document.meta }, value }
    }

    /// Stores a version. Returns `None` if a resolver is asked first.
    fn take_version(&mut self, pipe: usize, run: Run, operation: Operation) -> Option<Answer> {
        let target = self.link_of(pipe).1;
        if self.is_moving(target, operation.vbid) {
            return Some(Answer::NotMyVbucket);
        }
        let cluster = &self.clusters[target];
        if self.now_ns < cluster.busy_until_ns {
            return Some(Answer::Busy);
        }
        let is_odd = operation.key.last().is_some_and(|digit| digit % 2 == 1);
        let is_refused = self.plan.is_refused(&operation.key);
        if is_refused || (self.now_ns < cluster.refuses_until_ns && is_odd) {
            return Some(Answer::Refused("it is too big".to_owned()));
        }
        let local = self.find(target, operation.vbid, &operation.key);
        match (operation.over, &local) {
            (Over::Nothing, Some(_)) | (Over::Version(_), None) => Some(Answer::Changed),
            (Over::Version(cas), Some(local)) if local.meta.cas != cas => Some(Answer::Changed),
            (Over::Nothing | Over::Version(_), _) => {
                let version = operation.version.clone();
                Some(self.store(pipe, &operation, local.as_ref(), &version, false))
            }
            (Over::Judged(cas), local)
                if local.as_ref().is_none_or(|it| !it.is_alive() || it.meta.cas != cas) =>
            {
                Some(Answer::Changed)
            }
            (Over::Anything | Over::Judged(_), _) => {
                self.check_logged(pipe, &operation, local.as_ref());
                // Under a CAS condition, the answer does not say that the local version wins.
                let is_judged = operation.over != Over::Anything;
                let answer = self.judge(pipe, run, operation, local);
                answer.map(|answer| match answer {
                    Answer::Kept if is_judged => Answer::Changed,
                    answer => answer,
                })
            }
        }
    }

    /// Checks that the conflict is logged that the target is about to decide.
    fn check_logged(&mut self, pipe: usize, operation: &Operation, local: Option<&Document>) {
        let Some(local) = local.filter(|_| self.plan.logs_conflicts) else { return };
        let way = self.link_of(pipe);
        let here = known_here(local, &self.plan.clusters[way.1].site);
        let version = &operation.version;
        let are_deleted = is_deletion(&local.meta.kind) && is_deletion(&version.meta.kind);
        if relation(version, &here) != Some(Relation::Conflict) || are_deleted {
            return;
        }
        let (key, cas) = (&operation.key, version.meta.cas);
        if self.log.has(way, key, cas, local.meta.cas) {
            return;
        }
        // The look-up found nothing or a tombstone, for which a request has no condition; or it found another version with the
        // same CAS, from a clock that showed the same time.
        assert!(
            operation.over == Over::Anything || self.log.is_ambiguous(way.1, key, local.meta.cas),
            "{} of cluster {}: the conflict of {:?} and {here:?} is not logged",
            shown(key),
            way.1,
            version.meta
        );
        self.summary.unlogged += 1;
    }

    /// Returns a CAS greater than that of all versions involved.
    fn next_cas(&self, cluster: usize, vbid: Vbid, beside: Cas) -> Cas {
        let vbucket = &self.clusters[cluster].vbuckets[vbid.index()].active;
        vbucket.cas_above(beside, self.clock(cluster))
    }

    fn judge(
        &mut self,
        pipe: usize,
        run: Run,
        operation: Operation,
        local: Option<Document>,
    ) -> Option<Answer> {
        let (source, target) = self.link_of(pipe);
        let next_cas = self.next_cas(target, operation.vbid, operation.version.meta.cas);
        let site = self.plan.clusters[target].site.clone();
        let version = &operation.version;
        let log = self.clusters[target].vbuckets[operation.vbid.index()].active.failover_log();
        let (policy, lost) = (self.plan.policy, first_loss(log));
        match receive(local.as_ref(), version, &site, policy, next_cas, lost) {
            Err(malformed) => Some(Answer::Refused(malformed.to_string())),
            Ok(Outcome::Keep) => {
                let lineage = self.ledger.of(source, &operation.key, Some(version.meta.cas));
                let local = local.expect("something was kept");
                self.note_kept(target, &operation.key, &local, version, lineage);
                Some(Answer::Kept)
            }
            Ok(Outcome::Store(taken)) => {
                if taken.meta.cas != version.meta.cas {
                    self.note_made();
                }
                Some(self.store(pipe, &operation, local.as_ref(), &taken, false))
            }
            Ok(Outcome::Ask) => {
                let local = local.expect("there is something to decide about");
                let is_down = self.now_ns < self.clusters[target].fails_until_ns;
                let resolver = self.plan.clusters[target].resolver;
                let sides = (Arriving::of(&local).shown(), operation.version.shown());
                let verdict = (!is_down).then(|| decide(resolver, &sides.0, &sides.1));
                let decision = Box::new(Decision { operation, local, verdict });
                let delay_ns = self.chance.below(20 * MS);
                self.after(delay_ns, Event::Decided { pipe, run, decision });
                None
            }
        }
    }

    pub(super) fn finish_decision(&mut self, pipe: usize, run: Run, of: Decision) {
        let Decision { operation, local, verdict } = of;
        let (id, number) = (operation.id, operation.number);
        let target = self.link_of(pipe).1;
        let answer = match verdict {
            None => Some(Answer::Busy),
            Some(_) if self.is_moving(target, operation.vbid) => Some(Answer::NotMyVbucket),
            Some(verdict) => {
                let current = self.find(target, operation.vbid, &operation.key);
                let seen = |it: &Document| Seen::from(&it.meta);
                if current.as_ref().map(seen) == Some(seen(&local)) {
                    self.summary.decisions += 1;
                    let next_cas =
                        self.next_cas(target, operation.vbid, operation.version.meta.cas);
                    let site = self.plan.clusters[target].site.clone();
                    let merge = settle(&local, &operation.version, &verdict, &site, next_cas);
                    let merge = merge.expect("it was read before");
                    self.note_made();
                    Some(self.store(pipe, &operation, Some(&local), &merge, true))
                } else {
                    // The local version has changed since the resolver saw it: start over.
                    self.take_version(pipe, run, operation)
                }
            }
        };
        if let Some(answer) = answer {
            self.answer(pipe, &Input::Written { run, id, number, answer });
        }
    }

    /// Stores `taken` for `operation` over `local`.
    fn store(
        &mut self,
        pipe: usize,
        operation: &Operation,
        local: Option<&Document>,
        taken: &Arriving,
        is_decided: bool,
    ) -> Answer {
        let (source, target) = self.link_of(pipe);
        let key = &operation.key;
        let lineage = self.ledger.of(source, key, Some(operation.version.meta.cas));
        let known = self.lineage_over(target, key, local, &operation.version, is_decided, &lineage);
        let stored = self.write_version(target, operation.vbid, key, local, taken);
        self.say(|| {
            let cas = operation.version.meta.cas.0;
            let (before, after) = (self.history_of(&operation.version), self.history_of(taken));
            format!(
                "{source} to {target} {}: {cas} {stored:?} as {:?}: {before} as {after}",
                shown(key),
                taken.meta
            )
        });
        match stored {
            Ok(()) => {
                let joined = lineage.into_iter().chain(known).collect();
                self.ledger.note(target, key, taken.meta.cas, joined);
                Answer::Stored
            }
            Err(Refusal::Conflict) => Answer::Changed,
            Err(refusal) => Answer::Refused(format!("{refusal:?}")),
        }
    }

    /// Returns the lineage that a version gains when it is stored over `local`.
    fn lineage_over(
        &mut self,
        target: usize,
        key: &[u8],
        local: Option<&Document>,
        incoming: &Arriving,
        is_decided: bool,
        lineage: &Lineage,
    ) -> Lineage {
        let Some(local) = local else { return self.ledger.of(target, key, None) };
        let known = self.ledger.of(target, key, Some(local.meta.cas));
        let here = known_here(local, &self.plan.clusters[target].site);
        let is_rule = matches!(self.plan.policy, Policy::Rule(_));
        let relation = if is_decided || is_rule { None } else { relation(incoming, &here) };
        if relation == Some(Relation::Conflict) {
            assert!(
                is_deletion(&local.meta.kind) && is_deletion(&incoming.meta.kind),
                "{} of cluster {target}: nobody decided between {:?} and {here:?}",
                shown(key),
                incoming.meta
            );
            self.ledger.settle(key, known);
            return Lineage::new();
        }
        if relation == Some(Relation::Contains) {
            let missed = self.ledger.missed(key, &known, lineage);
            let are_deleted = [local.meta.kind, incoming.meta.kind].iter().all(is_deletion);
            if self.excuse(key, &missed, are_deleted) {
                return Lineage::new();
            }
            assert!(
                missed.is_empty(),
                "{} of cluster {target}: writes {missed:?} are replaced by {:?}, which never heard of them: {here:?}",
                shown(key),
                incoming.meta
            );
        }
        known
    }

    /// Returns true if writes may be replaced by a version that does not account for them. That holds if each write was lost
    /// where it was made, so that later writes of its cluster supersede it; or if its cluster has lost a version that counts as
    /// later, and decides when it meets that one. Writes of the second kind are not settled: at the end they exist or were
    /// decided against, unless both versions are deletions, about which no resolver is asked.
    fn excuse(&mut self, key: &[u8], missed: &[u32], are_deleted: bool) -> bool {
        let may_be =
            |number: &u32| self.ledger.is_lost(*number) || self.ledger.is_outdated(*number);
        if missed.is_empty() || !missed.iter().all(may_be) {
            return false;
        }
        // A target that does not judge never asks about it.
        let is_by_source = self.plan.judge == Judge::Source;
        let is_settled = |number: &u32| is_by_source || are_deleted || self.ledger.is_lost(*number);
        let settled: Lineage = missed.iter().copied().filter(is_settled).collect();
        self.summary.excused += settled.len() as u64;
        self.ledger.settle(key, settled);
        true
    }

    /// Records that a version was not stored, because the local one accounts for it.
    fn note_kept(
        &mut self,
        target: usize,
        key: &[u8],
        local: &Document,
        incoming: &Arriving,
        lineage: Lineage,
    ) {
        let here = known_here(local, &self.plan.clusters[target].site);
        let known = self.ledger.of(target, key, Some(local.meta.cas));
        let are_deleted = local.meta.kind != Kind::Alive && incoming.meta.kind != Kind::Alive;
        let outranks = local.meta.cas >= incoming.meta.cas;
        match (self.plan.policy, relation(incoming, &here)) {
            (Policy::Resolver(_), Some(Relation::Contained)) => {
                let missed = self.ledger.missed(key, &lineage, &known);
                if self.excuse(key, &missed, are_deleted) {
                    return;
                }
                assert!(
                    missed.is_empty(),
                    "{} of cluster {target}: writes {missed:?} of {:?} count as known, and are not: {here:?}",
                    shown(key),
                    incoming.meta
                );
            }
            (Policy::Resolver(_), Some(Relation::Equal)) if outranks => {
                self.ledger.note(target, key, local.meta.cas, lineage);
            }
            (Policy::Resolver(_), Some(Relation::Conflict)) if are_deleted && outranks => {
                self.ledger.settle(key, lineage);
            }
            _ => {}
        }
    }

    /// Formats the history of a version for the trace, with the numbers of clusters: `0:30 merged 0:10 1:20 previous
    /// 2:5`.
    fn history_of(&self, version: &Arriving) -> String {
        let known = version
            .split()
            .ok()
            .and_then(|(attributes, _)| Known::arriving(&version.meta, attributes).ok()?.history);
        let Some(history) = known else { return "no history".to_owned() };
        let number = |source: &SourceId| {
            self.plan.clusters.iter().position(|it| it.site.id == *source).unwrap_or(usize::MAX)
        };
        let mut text = format!("{}:{}", number(history.source()), history.version().0);
        for (name, versions) in [("merged", history.merged()), ("previous", history.previous())] {
            if !versions.is_empty() {
                text += &format!(" {name}");
            }
            versions.iter().for_each(|(of, cas)| text += &format!(" {}:{}", number(of), cas.0));
        }
        text
    }

    /// Writes a version with its metadata over exactly `local`.
    fn write_version(
        &mut self,
        cluster: usize,
        vbid: Vbid,
        key: &[u8],
        local: Option<&Document>,
        version: &Arriving,
    ) -> Result<(), Refusal> {
        let now = self.clock(cluster);
        let command = Command::StoreVersion {
            version: version.meta,
            value: &version.value,
            add: false,
            cas: Cas::ANY,
            rule: Rule::Over(local.map(|it| Seen::from(&it.meta))),
            regenerate_cas: false,
        };
        let vbucket = &mut self.clusters[cluster].vbuckets[vbid.index()].active;
        vbucket.apply(key, &command, now).0?;
        self.note_stored(cluster, vbid, key);
        self.spread.insert((key.to_vec(), version.meta.cas));
        self.note_activity();
        self.wake_readers(cluster, vbid);
        Ok(())
    }

    /// Asks the source's own resolver, for targets without one.
    pub(super) fn resolve_here(&mut self, pipe: usize, run: Run, id: VersionId, of: &Conflict) {
        let way @ (source, _) = self.link_of(pipe);
        if self.plan.logs_conflicts {
            let cas = (of.source.meta.cas, of.target.meta.cas);
            let is_logged = self.log.has(way, &of.target_key, cas.0, cas.1);
            assert!(is_logged, "{} is decided at cluster {source}, and not logged", shown(&of.key));
        }
        let is_down = self.now_ns < self.clusters[source].fails_until_ns;
        let resolver = self.plan.clusters[source].resolver;
        let verdict = (!is_down).then(|| decide(resolver, &of.source.shown(), &of.target.shown()));
        let delay_ns = self.chance.below(20 * MS);
        let input = Box::new(Input::Resolved { run, id, verdict });
        self.after(delay_ns, Event::Input { pipe, input });
    }

    /// Writes a decision at the source.
    pub(super) fn merge_here(&mut self, pipe: usize, run: Run, id: VersionId, of: &Merge) {
        let (source, target) = self.link_of(pipe);
        let vbid = self.pipes[pipe].vbid;
        let site = self.plan.clusters[source].site.clone();
        let next_cas = self.next_cas(source, vbid, of.target.meta.cas);
        let merge = settle(&of.local, &of.target, &of.verdict, &site, next_cas);
        let merge = merge.expect("it was read before");
        let key = of.local.key().to_vec();
        let result = self.write_version(source, vbid, &key, Some(&of.local), &merge);
        if result.is_ok() {
            self.note_made();
            self.summary.decisions += 1;
            let mut lineage = self.ledger.of(source, &key, Some(of.local.meta.cas));
            lineage.extend(self.ledger.of(target, &key, Some(of.target.meta.cas)));
            self.ledger.note(source, &key, merge.meta.cas, lineage);
        }
        self.say(|| format!("{source} decides {}: {result:?} {:?}", shown(&key), merge.meta));
        let delay_ns = self.chance.below(MS);
        let is_done = matches!(result, Ok(()) | Err(Refusal::Conflict));
        let input = Box::new(Input::Merged { run, id, is_done });
        self.after(delay_ns, Event::Input { pipe, input });
    }
}

fn is_deletion(kind: &Kind) -> bool {
    *kind != Kind::Alive
}

/// Formats a key without its collection prefix.
pub(super) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[1..]).into_owned()
}
