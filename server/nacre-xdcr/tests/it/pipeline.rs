//! A pipeline, step by step.

use nacre_dcp::ResumePoint;
use nacre_types::{
    Cas, CollectionId, DATATYPE_XATTR, DocKey, Document, FailoverLog, Kind, Meta, Now, Seqno,
    VbUuid, Vbid,
};
use nacre_vbucket::{Resolution, Verdict};
use nacre_xdcr::{
    Answer, Arriving, Condition, Echo, Effect, Epoch, Epochs, Found, History, Input, Judge,
    Mapping, Notice, Operation, Over, Pipeline, Policy, Records, Run, Settings, Site, SourceId,
    SourceState, TargetState, VersionId, Wanted, attribute,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const RULE: Policy = Policy::Rule(Resolution::LastWriteWins);
const RESOLVER: Policy = Policy::Resolver(Resolution::LastWriteWins);

fn site(name: &str) -> Site {
    Site { id: SourceId::parse(name).unwrap(), since: Cas::ANY }
}

fn settings(policy: Policy) -> Settings {
    Settings::new(site("here"), site("there"), Vbid(0), 1, policy)
}

fn log(entries: &[(u64, u64)]) -> FailoverLog {
    FailoverLog::from_entries(entries.iter().map(|&(u, s)| (VbUuid(u), Seqno(s))).collect())
        .unwrap()
}

fn source(entries: &[(u64, u64)], high: u64) -> SourceState {
    SourceState { log: log(entries), high_seqno: Seqno(high), purge_seqno: Seqno::ZERO }
}

fn document(name: &str, seqno: u64, bytes: usize) -> Document {
    let meta = Meta { seqno: Seqno(seqno), cas: Cas(seqno), rev: seqno, ..Meta::default() };
    let key = DocKey::new(CollectionId::DEFAULT, name.as_bytes());
    Document::new(meta, key.prefixed(), &vec![b'x'; bytes])
}

/// Returns a version with a history, as if it came from elsewhere.
fn document_of(name: &str, seqno: u64, history: &History) -> Document {
    let plain = document(name, seqno, 0);
    let attributes = attribute::stamp(&[], history, plain.meta.cas).unwrap();
    let meta = Meta { datatype: DATATYPE_XATTR, ..plain.meta };
    Document::new(meta, plain.key(), &[&attributes[..], b"x"].concat())
}

/// A pipeline with its clock and its latest effects.
struct Stage {
    pipeline: Pipeline,
    now_ns: u64,
    effects: Vec<Effect>,
    /// Number of the latest request for each version.
    numbers: BTreeMap<VersionId, u64>,
}

impl Stage {
    fn new(settings: Settings, records: Records) -> Stage {
        Stage::at(Epochs::default().next_epoch(), settings, records)
    }

    fn at(epoch: Epoch, settings: Settings, records: Records) -> Stage {
        let pipeline = Pipeline::new(settings, records, epoch);
        Stage { pipeline, now_ns: 1, effects: Vec::new(), numbers: BTreeMap::new() }
    }

    /// Creates a pipeline that streams from the beginning.
    fn streaming(settings: Settings) -> Stage {
        let mut stage = Stage::new(settings, Records::default());
        stage.feed(Input::Start(source(&[(1, 0)], 0)));
        stage.target(&[(7, 0)], 0);
        assert!(stage.pipeline.is_streaming());
        stage
    }

    fn feed(&mut self, input: Input) -> &[Effect] {
        let now = Now { unix_ns: self.now_ns, monotonic_ns: self.now_ns };
        self.effects = self.pipeline.step(input, now);
        for effect in &self.effects {
            match effect {
                Effect::LookUp { keys, .. } => {
                    self.numbers.extend(keys.iter().map(|key| (key.id, key.number)));
                }
                Effect::Write { operations, .. } => {
                    self.numbers.extend(operations.iter().map(|it| (it.id, it.number)));
                }
                Effect::Log { id, number, .. } => drop(self.numbers.insert(*id, *number)),
                _ => {}
            }
        }
        &self.effects
    }

    fn pass(&mut self, ns: u64) -> &[Effect] {
        self.now_ns += ns;
        self.feed(Input::Tick)
    }

    fn run(&self) -> Run {
        let of = |effect: &Effect| match effect {
            Effect::AskTarget { run, .. } | Effect::Read { run, .. } => Some(*run),
            Effect::LookUp { run, .. } | Effect::Write { run, .. } => Some(*run),
            Effect::Resolve { run, .. } | Effect::Merge { run, .. } => Some(*run),
            Effect::Log { run, .. } => Some(*run),
            _ => None,
        };
        self.effects.iter().find_map(of).expect("something was wanted")
    }

    fn target(&mut self, entries: &[(u64, u64)], high: u64) {
        let state = TargetState { log: log(entries), high_seqno: Seqno(high) };
        let states = Some([(Vbid(0), state)].into());
        let run = self.run();
        self.feed(Input::Target { run, states });
    }

    fn portion(&mut self, documents: Vec<Document>) {
        let after = self.pipeline.read_to();
        let end = documents.last().unwrap().meta.seqno;
        let position = ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: end,
            snapshot_start: after.next(),
            snapshot_end: end,
        };
        let run = self.run();
        let purge_seqno = Seqno::ZERO;
        self.feed(Input::Portion { run, documents, position, purge_seqno });
    }

    /// Returns the number of the latest request for the first copy of a version.
    fn number(&self, seqno: u64) -> u64 {
        self.numbers.get(&Seqno(seqno).into()).copied().unwrap_or(0)
    }

    fn written(&mut self, run: Run, seqno: u64, answer: Answer) -> &[Effect] {
        let number = self.number(seqno);
        self.feed(Input::Written { run, id: Seqno(seqno).into(), number, answer })
    }

    fn found(&mut self, run: Run, seqno: u64, found: Found) -> &[Effect] {
        let number = self.number(seqno);
        self.found_late(run, seqno, number, found)
    }

    fn logged(&mut self, run: Run, seqno: u64) -> &[Effect] {
        let number = self.number(seqno);
        self.feed(Input::Logged { run, id: Seqno(seqno).into(), number })
    }

    /// Responds to the request with this number.
    fn found_late(&mut self, run: Run, seqno: u64, number: u64, found: Found) -> &[Effect] {
        self.feed(Input::LookedUp { run, id: Seqno(seqno).into(), number, found })
    }

    fn asks_target(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::AskTarget { .. }))
    }

    fn operations(&self) -> Vec<Operation> {
        let of = |effect: &Effect| match effect {
            Effect::Write { operations, .. } => operations.clone(),
            _ => Vec::new(),
        };
        self.effects.iter().flat_map(of).collect()
    }

    fn sent(&self) -> Vec<u64> {
        self.operations().iter().map(|operation| operation.id.seqno.0).collect()
    }

    fn looked_up(&self) -> Vec<(u64, Wanted)> {
        let of = |effect: &Effect| match effect {
            Effect::LookUp { keys, wanted, .. } => {
                keys.iter().map(|key| (key.id.seqno.0, *wanted)).collect()
            }
            _ => Vec::new(),
        };
        self.effects.iter().flat_map(of).collect()
    }

    fn notices(&self) -> Vec<&Notice> {
        let of = |effect: &'_ Effect| matches!(effect, Effect::Notify(_));
        let notices = self.effects.iter().filter(|effect| of(effect));
        notices
            .map(|effect| if let Effect::Notify(notice) = effect { notice } else { unreachable!() })
            .collect()
    }

    fn reads_after(&self) -> Option<u64> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Read { after, .. } => Some(after.seqno.0),
            _ => None,
        })
    }

    fn saved(&self) -> Option<&Records> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Save(records) => Some(records),
            _ => None,
        })
    }

    /// Lets the pipeline create a checkpoint record while the target is at `high`.
    fn checkpoint(&mut self, entries: &[(u64, u64)], high: u64) -> Option<(u64, u64)> {
        self.pass(self.pipeline.settings().checkpoint_ns);
        self.target(entries, high);
        let record = self.saved()?.iter().next()?;
        Some((record.source.seqno.0, record.targets[&Vbid(0)].seqno.0))
    }
}

#[test]
fn versions_are_sent_and_recorded_once_answered() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    assert_eq!(stage.reads_after(), Some(0));
    stage.portion(vec![document("a", 1, 1), document("b", 2, 1), document("c", 3, 1)]);
    assert_eq!(stage.sent(), [1, 2, 3]);
    let first = &stage.operations()[0];
    assert_eq!((first.over, first.by_time, &first.key[..]), (Over::Anything, true, &b"\0a"[..]));
    assert_eq!(stage.reads_after(), Some(3));
    stage.written(run, 1, Answer::Stored);
    stage.written(run, 3, Answer::Kept);
    // The request is repeated after a second without a response. The response to either request counts.
    assert_eq!(stage.checkpoint(&[(7, 0)], 40), Some((1, 40)), "the second is not answered");
    stage.written(run, 2, Answer::Stored);
    assert_eq!(stage.checkpoint(&[(7, 0)], 41), Some((3, 41)));
    assert_eq!(stage.checkpoint(&[(7, 0)], 42), None, "nothing is new");
    let counts = stage.pipeline.counts();
    assert_eq!((counts.stored, counts.kept_at_target, counts.done), (2, 1, 3));
    assert_eq!(stage.pipeline.window().used(), 0);
}

#[test]
fn a_target_that_lost_something_is_sent_it_again() {
    let mut stage = Stage::streaming(settings(RULE));
    for seqno in 1..=2 {
        let run = stage.run();
        stage.portion(vec![document("a", seqno, 1)]);
        stage.written(run, seqno, Answer::Stored);
        assert_eq!(stage.checkpoint(&[(7, 0)], 10 * seqno), Some((seqno, 10 * seqno)));
        stage.pass(0);
        stage.effects = vec![Effect::Read { run, after: ResumePoint::default() }];
    }
    let old = stage.run();
    // The pipeline notices the loss even if it sends nothing.
    stage.pass(stage.pipeline.settings().checkpoint_ns);
    stage.target(&[(8, 15), (7, 0)], 15);
    assert_eq!(stage.notices(), [&Notice::TargetRolledBack]);
    assert_eq!(stage.reads_after(), Some(1), "what it had at 20 is lost, what it had at 10 is not");
    stage.portion(vec![document("a", 2, 1)]);
    assert_eq!(stage.sent(), [2]);
    stage.written(old, 2, Answer::Stored);
    assert_eq!(stage.pipeline.outstanding(), 1, "the answer of the time before means nothing");
}

/// A vBucket moves to another node and back, or its replication gets another mapping. Responses to the previous pipeline are
/// then still in flight, with the same run numbers as responses to the new one. Each kind of response would do harm: a
/// version would count as replicated, and a checkpoint record would say so.
#[test]
fn answers_to_the_pipeline_before_mean_nothing() {
    let mut epochs = Epochs::default();
    let begin = |epoch| {
        let mut stage = Stage::at(epoch, settings(RULE), Records::default());
        stage.feed(Input::Start(source(&[(1, 0)], 0)));
        let asked = stage.run();
        stage.target(&[(7, 0)], 0);
        let run = stage.run();
        stage.portion(vec![document("small", 1, 1), document("large", 2, 1000)]);
        assert_eq!((stage.sent(), stage.looked_up().len()), (vec![1], 1));
        (stage, asked, run)
    };
    let (_, asked_before, run_before) = begin(epochs.next_epoch());
    let (mut stage, asked, run) = begin(epochs.next_epoch());
    stage.written(run_before, 1, Answer::Stored);
    stage.found(run_before, 2, Found::Nothing);
    assert_eq!((stage.sent(), stage.pipeline.outstanding()), (vec![], 2));
    let position = ResumePoint { vb_uuid: VbUuid(1), seqno: Seqno(9), ..ResumePoint::default() };
    let (documents, purge_seqno) = (Vec::new(), Seqno::ZERO);
    stage.feed(Input::Portion { run: run_before, documents, position, purge_seqno });
    assert_eq!(stage.pipeline.read_to(), Seqno(2), "it goes on where it was");

    // The same for a request for the target's history.
    let mut third = Stage::at(epochs.next_epoch(), settings(RULE), Records::default());
    third.feed(Input::Start(source(&[(1, 0)], 0)));
    let states: BTreeMap<Vbid, TargetState> =
        [(Vbid(0), TargetState { log: log(&[(6, 0)]), high_seqno: Seqno(50) })].into();
    for run in [asked_before, asked] {
        third.feed(Input::Target { run, states: Some(states.clone()) });
        assert!(!third.pipeline.is_streaming());
    }
    stage.written(run, 1, Answer::Stored);
    assert_eq!(stage.pipeline.outstanding(), 1);
}

#[test]
fn a_source_that_lost_something_goes_back_to_what_it_has() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1)]);
    stage.written(run, 1, Answer::Stored);
    assert_eq!(stage.checkpoint(&[(7, 0)], 5), Some((1, 5)));
    stage.effects = vec![Effect::Read { run, after: ResumePoint::default() }];
    stage.portion(vec![document("b", 2, 1), document("c", 3, 1)]);
    stage.written(run, 2, Answer::Stored);
    stage.written(run, 3, Answer::Stored);
    assert_eq!(stage.checkpoint(&[(7, 0)], 8), Some((3, 8)));
    stage.feed(Input::SourceChanged(source(&[(2, 2), (1, 0)], 2)));
    assert_eq!(stage.notices(), [&Notice::SourceRolledBack(Seqno(2))]);
    stage.target(&[(7, 0)], 8);
    assert_eq!(stage.reads_after(), Some(1));
    let records = stage.pipeline.records().clone();
    let mut elsewhere = Stage::new(settings(RULE), records);
    elsewhere.feed(Input::Start(source(&[(2, 2), (1, 0)], 2)));
    elsewhere.target(&[(7, 0)], 8);
    assert_eq!(elsewhere.reads_after(), Some(1), "another node goes on from the same record");
}

#[test]
fn purged_deletions_are_reported_and_everything_is_sent_again() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1)]);
    stage.written(run, 5, Answer::Stored);
    assert_eq!(stage.checkpoint(&[(7, 0)], 5), Some((5, 5)));
    let position = ResumePoint {
        vb_uuid: VbUuid(1),
        seqno: Seqno(20),
        snapshot_start: Seqno(6),
        snapshot_end: Seqno(20),
    };
    let documents = vec![document("b", 20, 1)];
    stage.feed(Input::Portion { run, documents, position, purge_seqno: Seqno(9) });
    assert_eq!(stage.notices(), [&Notice::DeletionsForgotten]);
    stage.target(&[(7, 0)], 5);
    assert_eq!(stage.reads_after(), Some(0));
    // The same for a checkpoint record that is too old to resume from.
    let records = {
        let mut stage = Stage::streaming(settings(RULE));
        let run = stage.run();
        stage.portion(vec![document("a", 5, 1)]);
        stage.written(run, 5, Answer::Stored);
        stage.checkpoint(&[(7, 0)], 5).unwrap();
        stage.pipeline.records().clone()
    };
    let mut stage = Stage::new(settings(RULE), records);
    let state = SourceState { purge_seqno: Seqno(9), ..source(&[(1, 0)], 20) };
    stage.feed(Input::Start(state));
    assert_eq!(stage.notices(), [&Notice::DeletionsForgotten]);
}

#[test]
fn large_documents_are_sent_only_when_they_would_be_taken() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1000), document("b", 2, 1000), document("c", 3, 1000)]);
    assert!(stage.sent().is_empty());
    let metas = [(1, Wanted::Meta), (2, Wanted::Meta), (3, Wanted::Meta)];
    assert_eq!(stage.looked_up(), metas);
    let there = |cas| {
        let meta = Meta { cas: Cas(cas), rev: 1, ..Meta::default() };
        Found::Version(Arriving { meta, value: Vec::new() })
    };
    for (seqno, found, is_sent) in
        [(1, Found::Nothing, true), (2, there(2), true), (3, there(9), false)]
    {
        stage.found(run, seqno, found);
        assert_eq!(stage.sent() == [seqno], is_sent, "{seqno}");
    }
    assert_eq!((stage.pipeline.counts().kept_at_source, stage.pipeline.outstanding()), (1, 2));
}

#[test]
fn one_document_never_holds_up_the_others() {
    let mut stage = Stage::streaming(Settings { attempts_max: 4, ..settings(RULE) });
    let run = stage.run();
    stage.portion((1..=3).map(|n| document(&format!("k{n}"), n, 1)).collect());
    stage.written(run, 1, Answer::Refused("too big".to_owned()));
    stage.written(run, 2, Answer::Busy);
    stage.written(run, 3, Answer::Stored);
    let mut stuck = Vec::new();
    for _ in 0..60 {
        stage.pass(50 * MS);
        for seqno in stage.sent() {
            let refused = Answer::Refused("too big".to_owned());
            stage.written(run, seqno, if seqno == 1 { refused } else { Answer::Busy });
            let notices = stage.notices().into_iter().cloned();
            stuck.extend(notices);
        }
    }
    let put_aside = |name: &str, reason: &str| Notice::Stuck {
        key: format!("\0{name}").into_bytes(),
        reason: reason.to_owned(),
    };
    assert_eq!(
        stuck,
        [put_aside("k1", "too big"), put_aside("k2", "the target cannot take it now")]
    );
    assert_eq!(stage.pipeline.stuck().count(), 2);
    stage.effects = vec![Effect::Read { run, after: ResumePoint::default() }];
    stage.portion(vec![document("k2", 4, 1)]);
    assert_eq!(stage.notices(), [&Notice::Freed { key: b"\0k2".to_vec() }]);
    assert_eq!(stage.sent(), [4]);
    stage.written(run, 4, Answer::Stored);
    stage.pass(60 * SECOND);
    assert!(stage.sent().contains(&1), "it is tried again after a rest");
    stage.feed(Input::Skip { key: b"\0k1".to_vec() });
    assert_eq!((stage.pipeline.outstanding(), stage.pipeline.counts().skipped), (0, 1));
}

#[test]
fn trouble_of_all_puts_nothing_aside() {
    let mut stage = Stage::streaming(Settings { attempts_max: 2, ..settings(RULE) });
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1), document("b", 2, 1)]);
    let mut sent = stage.sent();
    for _ in 0..200 {
        sent.iter().for_each(|seqno| drop(stage.written(run, *seqno, Answer::Busy).to_vec()));
        stage.pass(50 * MS);
        sent = stage.sent();
    }
    assert_eq!(stage.pipeline.stuck().count(), 0);
    assert!(stage.pipeline.counts().retried < 40, "it waits longer each time");
}

#[test]
fn a_vbucket_that_has_moved_is_looked_for_and_its_history_looked_at() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1)]);
    stage.written(run, 1, Answer::NotMyVbucket);
    assert!(matches!(stage.effects[..], [Effect::Reroute { vbid: Vbid(0) }, ..]));
    stage.pass(20 * MS);
    assert!(stage.asks_target());
    assert_eq!(stage.sent(), [1]);
    stage.target(&[(7, 0)], 1);
    stage.written(run, 1, Answer::Stored);
    assert_eq!(stage.pipeline.outstanding(), 0, "nothing was lost, and nothing begins anew");
}

#[test]
fn unanswered_versions_are_sent_again_with_growing_delays() {
    let mut stage = Stage::streaming(settings(RULE));
    stage.portion(vec![document("a", 1, 1)]);
    let mut times = Vec::new();
    for tick in 0..200 {
        stage.pass(100 * MS);
        times.extend((!stage.sent().is_empty()).then_some(tick));
        if stage.asks_target() {
            stage.target(&[(7, 0)], 0);
        }
    }
    assert!(times.len() >= 3 && times.len() <= 5, "{times:?}");
    assert!(times.windows(3).all(|w| w[2] - w[1] > w[1] - w[0]), "{times:?}");
}

#[test]
fn a_pause_makes_a_record_and_nothing_after_it() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1), document("b", 2, 1)]);
    stage.written(run, 1, Answer::Stored);
    stage.feed(Input::Pause);
    assert!(stage.asks_target() && stage.effects.len() == 1);
    stage.target(&[(7, 0)], 4);
    assert!(matches!(stage.effects[..], [Effect::Save(_), Effect::Rested]));
    assert!(stage.pipeline.is_resting() && stage.pipeline.next_tick_ns().is_none());
    assert!(stage.written(run, 2, Answer::Stored).is_empty());
    assert!(stage.pass(1000 * SECOND).is_empty());
    stage.feed(Input::Start(source(&[(1, 0)], 2)));
    stage.target(&[(7, 0)], 4);
    assert_eq!(stage.reads_after(), Some(1));
    // A target that does not respond does not delay a pause.
    stage.feed(Input::Pause);
    stage.pass(10 * SECOND);
    assert!(stage.pipeline.is_resting());
}

/// Documents that were already read pass the earlier filter, are not reread, and are recorded immediately.
#[test]
fn another_filter_decides_about_what_is_read_later() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1), document("b", 2, 1)]);
    assert_eq!(stage.sent(), [1, 2]);
    stage.written(run, 1, Answer::Stored);
    let mut later = settings(RULE);
    later.filter.drops_binary = true;
    stage.feed(Input::Adjust(Box::new(later)));
    assert!(stage.asks_target() && stage.sent().is_empty() && stage.reads_after().is_none());
    stage.target(&[(7, 0)], 5);
    let record = stage.saved().and_then(|records| records.iter().next()).cloned().unwrap();
    assert_eq!(record.source.seqno, Seqno(1), "the second is not answered");
    stage.written(run, 2, Answer::Busy);
    stage.pass(SECOND);
    assert_eq!(stage.sent(), [2], "it passed the earlier filter");
    stage.written(run, 2, Answer::Stored);
    let position = ResumePoint {
        vb_uuid: VbUuid(1),
        seqno: Seqno(3),
        snapshot_start: Seqno(3),
        snapshot_end: Seqno(3),
    };
    let (documents, purge_seqno) = (vec![document("c", 3, 1)], Seqno::ZERO);
    stage.feed(Input::Portion { run, documents, position, purge_seqno });
    assert!(stage.sent().is_empty(), "the later filter leaves it out");
    assert_eq!(stage.checkpoint(&[(7, 0)], 6), Some((3, 6)));
}

#[test]
fn a_target_out_of_reach_is_asked_again() {
    let mut stage = Stage::new(settings(RULE), Records::default());
    stage.feed(Input::Start(source(&[(1, 0)], 0)));
    let run = stage.run();
    stage.feed(Input::Target { run, states: None });
    assert!(!stage.asks_target());
    stage.pass(100 * MS);
    assert!(stage.asks_target());
    stage.pass(20 * SECOND);
    stage.pass(SECOND);
    assert!(stage.asks_target(), "no answer is none, too");
    stage.target(&[(7, 0)], 0);
    assert!(stage.pipeline.is_streaming());
}

/// A response from before the last write would produce a checkpoint record that matches the target even after the target
/// has lost the write.
#[test]
fn a_late_answer_to_an_earlier_question_means_nothing() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 1, 1)]);
    stage.pass(stage.pipeline.settings().checkpoint_ns);
    assert!(stage.asks_target());
    let earlier = stage.run();
    // There is no response in time. Meanwhile the version is written, and the target is asked again.
    stage.pass(10 * SECOND);
    stage.written(run, 1, Answer::Stored);
    stage.pass(stage.pipeline.settings().checkpoint_ns);
    assert!(stage.asks_target());
    let later = stage.effects.clone();
    let state = TargetState { log: log(&[(7, 0)]), high_seqno: Seqno(4) };
    let states = Some([(Vbid(0), state)].into());
    stage.feed(Input::Target { run: earlier, states });
    assert_eq!(stage.saved(), None);
    stage.effects = later;
    stage.target(&[(7, 0)], 5);
    let record = stage.saved().and_then(|records| records.iter().next()).unwrap();
    assert_eq!((record.source.seqno, record.targets[&Vbid(0)].seqno), (Seqno(1), Seqno(5)));
}

#[test]
fn a_window_bounds_what_is_read() {
    let window_bytes = (2000, 4000);
    let mut stage = Stage::streaming(Settings { window_bytes, ..settings(RULE) });
    let run = stage.run();
    stage.portion((1..=40).map(|n| document(&format!("k{n}"), n, 100)).collect());
    let sent = stage.sent();
    assert!(sent.len() > 5 && sent.len() < 20, "{sent:?}");
    assert_eq!(stage.reads_after(), None);
    let mut all = sent.clone();
    let mut on_their_way = sent;
    while let Some(seqno) = on_their_way.pop() {
        stage.written(run, seqno, Answer::Stored);
        all.extend(stage.sent());
        on_their_way.extend(stage.sent());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=40).collect::<Vec<_>>());
    assert_eq!(stage.pipeline.window().used(), 0);
}

#[test]
fn merges_of_the_target_are_looked_up_and_sent_if_lost() {
    let there = SourceId::parse("there").unwrap();
    let history = History::of_write(there, Cas(1));
    for echo in [Echo::LookUp, Echo::Skip] {
        let mut stage = Stage::streaming(Settings { echo, ..settings(RESOLVER) });
        let run = stage.run();
        stage.portion(vec![document_of("a", 1, &history)]);
        assert!(stage.sent().is_empty());
        if echo == Echo::Skip {
            assert_eq!((stage.looked_up().len(), stage.pipeline.outstanding()), (0, 0));
            continue;
        }
        assert_eq!(stage.looked_up(), [(1, Wanted::History)]);
        stage.found(run, 1, Found::Nothing);
        assert_eq!(stage.sent(), [1]);
    }
}

#[test]
fn versions_leave_with_their_history() {
    let mut stage = Stage::streaming(settings(RESOLVER));
    stage.portion(vec![document("a", 3, 1)]);
    let version = &stage.operations()[0].version;
    let (attributes, body) = version.split().unwrap();
    let attributes = nacre_value::xattr::Xattrs::parse(attributes).unwrap();
    let (history, cas) = attribute::parse(attributes.get(attribute::HISTORY).unwrap()).unwrap();
    assert_eq!((cas, body), (Cas(3), &b"x"[..]));
    assert_eq!(history, History::of_write(site("here").id, Cas(3)));
}

#[test]
fn a_source_that_judges_asks_its_resolver_and_writes_over_what_it_saw() {
    let judge = Judge::Source;
    let mut stage = Stage::streaming(Settings { judge, ..settings(RESOLVER) });
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1), document("b", 6, 1)]);
    assert_eq!(stage.looked_up(), [(5, Wanted::History), (6, Wanted::History)]);
    stage.found(run, 6, Found::Nothing);
    assert_eq!(stage.operations()[0].over, Over::Nothing);
    stage.written(run, 6, Answer::Changed);
    assert_eq!(stage.looked_up(), [(6, Wanted::History)], "somebody was faster");
    let meta = Meta { cas: Cas(4), rev: 1, ..Meta::default() };
    let rival = Arriving { meta, value: b"other".to_vec() };
    let found = Found::Version(rival.clone());
    stage.found(run, 5, found.clone());
    assert_eq!(stage.looked_up(), [(5, Wanted::Whole)], "a resolver sees bodies");
    stage.found(run, 5, found);
    let [Effect::Resolve { conflict, .. }] = &stage.effects[..] else {
        panic!("{:?}", stage.effects)
    };
    assert_eq!((&conflict.key[..], conflict.target.shown()), (&b"\0a"[..], rival.shown()));
    let (attributes, _) = conflict.target.split().unwrap();
    assert!(!attributes.is_empty(), "it says whose version it is");
    let verdict = Some(Verdict::KeepLocal);
    stage.feed(Input::Resolved { run, id: Seqno(5).into(), verdict });
    let [Effect::Merge { merge, .. }] = &stage.effects[..] else { panic!("{:?}", stage.effects) };
    assert_eq!((merge.verdict.clone(), merge.target.shown()), (Verdict::KeepLocal, rival.shown()));
    stage.feed(Input::Merged { run, id: Seqno(5).into(), is_done: true });
    assert_eq!(stage.pipeline.outstanding(), 1, "the merge comes with history");
}

/// The first lookup gets no response in time, and the second one is answered. The late response to the first lookup has no body: the
/// resolver would decide as if the target's document were empty, and the target's content would be lost.
#[test]
fn a_late_answer_without_the_body_is_not_what_a_resolver_sees() {
    let judge = Judge::Source;
    let mut stage = Stage::streaming(Settings { judge, ..settings(RESOLVER) });
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1)]);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)]);
    let first = stage.number(5);
    stage.pass(stage.pipeline.settings().timeout_ns);
    stage.pass(SECOND);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)], "asked again");
    let meta = Meta { cas: Cas(4), rev: 1, ..Meta::default() };
    let without_body = Found::Version(Arriving { meta, value: Vec::new() });
    stage.found(run, 5, without_body.clone());
    assert_eq!(stage.looked_up(), [(5, Wanted::Whole)]);
    stage.found_late(run, 5, first, without_body);
    assert!(stage.effects.is_empty(), "{:?}", stage.effects);
    let rival = Arriving { meta, value: b"other".to_vec() };
    stage.found(run, 5, Found::Version(rival));
    let [Effect::Resolve { conflict, .. }] = &stage.effects[..] else {
        panic!("{:?}", stage.effects)
    };
    assert_eq!(conflict.target.shown().body, b"other");
}

/// The target lies about the ancestors of its version, or its clients have written the attribute. The version then counts as one
/// without a history, as it does at the target. Such a version was once set aside forever.
#[test]
fn an_unreadable_history_at_the_target_counts_as_none() {
    let mut stage = Stage::streaming(Settings { optimistic_bytes: 0, ..settings(RESOLVER) });
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1)]);
    let mut attributes = nacre_value::xattr::Xattrs::default();
    let endless = vec!["\"01@s\""; 5000].join(",");
    let text = format!(r#"{{"cvCas":"0x01","src":"s","ver":"0x01","pv":[{endless}]}}"#);
    attributes.set(attribute::HISTORY, text.as_bytes()).unwrap();
    let meta = Meta { cas: Cas(4), rev: 1, datatype: DATATYPE_XATTR, ..Meta::default() };
    let lie = Found::Version(Arriving { meta, value: attributes.encode() });
    stage.found(run, 5, lie);
    assert_eq!((stage.sent(), stage.notices().len()), (vec![5], 0));
}

/// Returns a version of another source, with its history and this body.
fn of_target(cas: u64, body: &[u8]) -> Arriving {
    let history = History::of_write(SourceId::parse("there").unwrap(), Cas(cas));
    let attributes = attribute::stamp(&[], &history, Cas(cas)).unwrap();
    let meta = Meta { cas: Cas(cas), rev: 1, datatype: DATATYPE_XATTR, ..Meta::default() };
    Arriving { meta, value: [&attributes[..], body].concat() }
}

/// Returns a pipeline that has found a conflict, whose log entry is in flight.
fn logging(policy: Policy) -> (Stage, Run) {
    let settings = Settings { logs_conflicts: true, keeps_histories: true, ..settings(policy) };
    let mut stage = Stage::streaming(settings);
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1)]);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)], "small documents, too");
    stage.found(run, 5, Found::Version(of_target(4, b"")));
    assert_eq!(stage.looked_up(), [(5, Wanted::Whole)], "both bodies are logged");
    stage.found(run, 5, Found::Version(of_target(4, b"other")));
    let [Effect::Log { conflict, .. }] = &stage.effects[..] else { panic!("{:?}", stage.effects) };
    let body = |version: &Arriving| version.shown().body;
    assert_eq!((body(&conflict.source), body(&conflict.target)), (b"x".into(), b"other".into()));
    assert_eq!((&conflict.key[..], &conflict.target_key[..]), (&b"\0a"[..], &b"\0a"[..]));
    assert!(stage.sent().is_empty(), "it is logged before it is decided");
    (stage, run)
}

#[test]
fn a_conflict_is_logged_before_it_is_decided_and_the_target_decides_about_no_other() {
    for policy in [RESOLVER, RULE] {
        let (mut stage, run) = logging(policy);
        stage.logged(run, 5);
        assert_eq!(stage.looked_up(), [(5, Wanted::History)]);
        stage.found(run, 5, Found::Version(of_target(4, b"")));
        assert_eq!(stage.operations()[0].over, Over::Judged(Cas(4)));
        stage.written(run, 5, Answer::Changed);
        assert_eq!(stage.looked_up(), [(5, Wanted::History)], "another version, or it stays");
        stage.found(run, 5, Found::Version(of_target(4, b"")));
        let counts = stage.pipeline.counts();
        assert_eq!((counts.logged, counts.kept_at_target, counts.done), (1, 1, 1));
    }
}

/// The lookup for the history gets no response in time and is repeated. Its late response has no body, and arrives during the lookup for
/// the body: the log entry would show an empty document.
#[test]
fn a_late_answer_without_the_body_is_not_logged() {
    let mut stage = Stage::streaming(Settings { logs_conflicts: true, ..settings(RESOLVER) });
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1)]);
    let first = stage.number(5);
    stage.pass(stage.pipeline.settings().timeout_ns);
    stage.pass(SECOND);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)], "asked again");
    stage.found_late(run, 5, first, Found::Version(of_target(4, b"")));
    assert!(stage.effects.is_empty(), "{:?}", stage.effects);
    stage.found(run, 5, Found::Version(of_target(4, b"")));
    assert_eq!(stage.looked_up(), [(5, Wanted::Whole)]);
    stage.found_late(run, 5, first, Found::Version(of_target(4, b"")));
    assert!(stage.effects.is_empty(), "{:?}", stage.effects);
    stage.found(run, 5, Found::Version(of_target(4, b"other")));
    let [Effect::Log { conflict, .. }] = &stage.effects[..] else { panic!("{:?}", stage.effects) };
    assert_eq!(conflict.target.shown().body, b"other");
}

/// The target refuses a write over the logged version, because it has another version by then. A late response from before shows the
/// logged version again: it would seem to have won, and the source's version would count as done.
#[test]
fn a_late_answer_does_not_show_what_stays_at_the_target() {
    let (mut stage, run) = logging(RESOLVER);
    stage.logged(run, 5);
    let first = stage.number(5);
    stage.pass(stage.pipeline.settings().timeout_ns);
    stage.pass(SECOND);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)], "asked again");
    stage.found(run, 5, Found::Version(of_target(4, b"")));
    assert_eq!(stage.operations()[0].over, Over::Judged(Cas(4)));
    stage.written(run, 5, Answer::Changed);
    stage.found_late(run, 5, first, Found::Version(of_target(4, b"")));
    assert_eq!(stage.pipeline.outstanding(), 1, "it is not done");
    stage.found(run, 5, Found::Version(of_target(6, b"")));
    assert_eq!(stage.looked_up(), [(5, Wanted::Whole)], "another conflict");
}

/// The same for a refusal: that of the first attempt says nothing about the second attempt, which may be lost in the
/// network.
#[test]
fn a_late_refusal_does_not_count_for_the_next_attempt() {
    let (mut stage, run) = logging(RESOLVER);
    stage.logged(run, 5);
    stage.found(run, 5, Found::Version(of_target(4, b"")));
    let first = stage.number(5);
    stage.pass(stage.pipeline.settings().timeout_ns);
    stage.pass(SECOND);
    assert_eq!(stage.sent(), [5], "sent again");
    let id = Seqno(5).into();
    stage.feed(Input::Written { run, id, number: first, answer: Answer::Changed });
    assert!(stage.effects.is_empty(), "{:?}", stage.effects);
    stage.feed(Input::Written { run, id, number: first, answer: Answer::Stored });
    assert_eq!(stage.pipeline.outstanding(), 0, "what is stored is done, whichever attempt it was");
}

#[test]
fn a_conflict_with_another_version_is_logged_as_well() {
    let (mut stage, run) = logging(RESOLVER);
    let first = stage.number(5);
    stage.logged(run, 5);
    stage.found(run, 5, Found::Version(of_target(3, b"")));
    assert_eq!(stage.looked_up(), [(5, Wanted::Whole)]);
    stage.found(run, 5, Found::Version(of_target(3, b"third")));
    assert!(matches!(&stage.effects[..], [Effect::Log { .. }]), "{:?}", stage.effects);
    assert_eq!(stage.pipeline.counts().logged, 2);
    let id = Seqno(5).into();
    stage.feed(Input::Logged { run, id, number: first });
    assert!(stage.effects.is_empty(), "that is the first conflict: {:?}", stage.effects);
    stage.logged(run, 5);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)]);
}

#[test]
fn a_log_that_does_not_answer_holds_no_version_up() {
    let (mut stage, run) = logging(RESOLVER);
    let (id, number) = (Seqno(5).into(), stage.number(5));
    stage.pass(9 * SECOND);
    assert!(stage.looked_up().is_empty(), "it may take some time");
    stage.pass(SECOND);
    assert_eq!(stage.looked_up(), [(5, Wanted::History)]);
    assert_eq!(stage.pipeline.counts().log_timeouts, 1);
    stage.feed(Input::Logged { run, id, number });
    assert!(stage.effects.is_empty(), "it is too late: {:?}", stage.effects);
    stage.found(run, 5, Found::Version(of_target(4, b"")));
    assert_eq!(stage.sent(), [5]);
}

/// The source's version includes that of the target; both are deleted; or one of them has no history.
#[test]
fn versions_without_conflict_are_not_logged() {
    let settings = || Settings { logs_conflicts: true, ..settings(RESOLVER) };
    let known = History::of_write(SourceId::parse("there").unwrap(), Cas(4));
    let later = known.written_over(site("here").id, Cas(5));
    let mut stage = Stage::streaming(settings());
    let run = stage.run();
    stage.portion(vec![document_of("a", 5, &later)]);
    stage.found(run, 5, Found::Version(of_target(4, b"")));
    assert_eq!(stage.operations()[0].over, Over::Judged(Cas(4)));

    let mut stage = Stage::streaming(settings());
    let run = stage.run();
    let deleted = document("a", 5, 0);
    let meta = Meta { kind: Kind::Deleted, ..deleted.meta };
    stage.portion(vec![Document::new(meta, deleted.key(), b"")]);
    let mut there = of_target(4, b"");
    there.meta.kind = Kind::Deleted;
    stage.found(run, 5, Found::Version(there));
    assert_eq!(stage.operations()[0].over, Over::Anything, "a tombstone is no condition");

    let mut stage = Stage::streaming(Settings { keeps_histories: false, ..settings() });
    stage.portion(vec![document("a", 5, 1)]);
    assert_eq!(stage.sent(), [5], "it costs nothing where nobody keeps histories");
}

/// The metadata are equal, and the pipeline asks for the checksum of the body. A late response with metadata says nothing about the
/// body.
#[test]
fn a_late_answer_is_not_taken_for_a_checksum() {
    let mut stage = Stage::streaming(settings(RULE));
    let run = stage.run();
    stage.portion(vec![document("a", 5, 1000)]);
    let meta = Meta { cas: Cas(5), rev: 5, ..Meta::default() };
    let same = Found::Version(Arriving { meta, value: Vec::new() });
    let first = stage.number(5);
    stage.found(run, 5, same.clone());
    assert_eq!(stage.looked_up(), [(5, Wanted::Checksum)]);
    stage.found_late(run, 5, first, same);
    assert!(stage.effects.is_empty(), "it is not asked a second time: {:?}", stage.effects);
    stage.found(run, 5, Found::Checksum(Cas(5), 0));
    assert_eq!(stage.sent(), [5]);
}

#[derive(Debug)]
struct NameHas(&'static str);

impl Condition for NameHas {
    fn holds(&self, document: &Document) -> Result<bool, String> {
        match document.name() {
            b"bad" => Err("it is bad".to_owned()),
            name => Ok(String::from_utf8_lossy(name).contains(self.0)),
        }
    }
}

/// Each copy is sent, retried and finished separately; the checkpoint record waits for all copies.
#[test]
fn a_document_goes_to_each_collection_whose_condition_holds() {
    let rule = |part, id| (Some(Arc::new(NameHas(part)) as Arc<dyn Condition>), CollectionId(id));
    let rules = vec![rule("a", 8), rule("b", 9), (None, CollectionId(10))];
    let mapping = Mapping::Migration(rules);
    let mut stage = Stage::streaming(Settings { mapping, ..settings(RULE) });
    let run = stage.run();
    let other = DocKey::new(CollectionId(11), b"ab").prefixed().to_vec();
    let other = Document::new(Meta { seqno: Seqno(5), ..Meta::default() }, &other, b"");
    let deleted = document("x", 4, 0);
    let deleted = Document::new(Meta { kind: Kind::Deleted, ..deleted.meta }, deleted.key(), b"");
    let names = [document("ab", 1, 1), document("b", 2, 1), document("bad", 3, 1), deleted, other];
    stage.portion(names.into());
    let sent: Vec<(u64, u8)> =
        stage.operations().iter().map(|it| (it.id.seqno.0, it.key[0])).collect();
    let copies = [(1, 8), (1, 9), (1, 10), (2, 9), (2, 10), (4, 8), (4, 9), (4, 10)];
    assert_eq!(sent, copies);
    assert_eq!(stage.notices().len(), 1, "a condition that fails is reported");
    let counts = stage.pipeline.counts();
    assert_eq!((counts.cloned, counts.filtered), (5, 2));
    let ids: Vec<VersionId> = stage.operations().iter().map(|it| it.id).collect();
    for id in ids.iter().filter(|id| **id != VersionId { seqno: Seqno(1), copy: 1 }) {
        stage.feed(Input::Written { run, id: *id, number: 0, answer: Answer::Stored });
    }
    assert_eq!(stage.checkpoint(&[(7, 0)], 40), None, "one copy is not answered");
    let late = VersionId { seqno: Seqno(1), copy: 1 };
    stage.feed(Input::Written { run, id: late, number: 0, answer: Answer::Stored });
    assert_eq!(stage.checkpoint(&[(7, 0)], 41), Some((5, 41)));
}

/// A merge belongs to the cluster that made it, a version that was received to the cluster that wrote it.
#[test]
fn versions_of_other_clusters_are_left_to_them_if_only_own_ones_are_sent() {
    let mut stage = Stage::streaming(Settings {
        sends_own_only: true,
        keeps_histories: true,
        optimistic_bytes: 1 << 20,
        ..settings(RULE)
    });
    let run = stage.run();
    let received = History::of_write(site("third").id, Cas(2));
    let written = History::of_write(site("here").id, Cas(1));
    let merge = received.merge(&written, site("here").id, Cas(3));
    stage.portion(vec![
        document("own", 1, 1),
        document_of("received", 2, &received),
        document_of("merged", 3, &merge),
    ]);
    assert_eq!((stage.sent(), stage.pipeline.counts().filtered), (vec![1, 3], 1));
    stage.written(run, 1, Answer::Stored);
    stage.written(run, 3, Answer::Stored);
    assert_eq!(stage.checkpoint(&[(7, 0)], 9), Some((3, 9)), "the received one is done");
}

#[test]
fn a_batch_ends_by_count_or_by_size() {
    for (batch_count, batch_bytes, expected) in [
        (500, 1 << 20, vec![5]),
        (2, 1 << 20, vec![2, 2, 1]),
        // A document has 100 bytes, and 3 of key.
        (500, 150, vec![2, 2, 1]),
        (500, 1, vec![1; 5]),
    ] {
        let optimistic_bytes = 1 << 20;
        let of = Settings { batch_count, batch_bytes, optimistic_bytes, ..settings(RULE) };
        let mut stage = Stage::streaming(of);
        stage.portion((1..=5).map(|seqno| document(&format!("k{seqno}"), seqno, 100)).collect());
        let size = |effect: &Effect| match effect {
            Effect::Write { operations, .. } => Some(operations.len()),
            _ => None,
        };
        let sizes: Vec<usize> = stage.effects.iter().filter_map(size).collect();
        assert_eq!(sizes, expected, "{batch_count} {batch_bytes}");
    }
}
