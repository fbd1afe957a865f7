//! Tests of passes over a vBucket of a hub that has lost versions.

use super::*;
use crate::{Branch, Engine, Hello, Saved, Settings, State};
use nacre_types::Seqno;

const LINE: LineId = LineId(0);
const KEY: &[u8] = b"\0k";
/// The hub's history left the branch that the device knew after this version.
const BEGAN: u64 = 5;
/// The hub has used this CAS twice: for the version that was edited on the device, and for another one after the loss.
const TWICE: u64 = 50;

/// A device with one document, and its parked versions.
struct Fake {
    document: Document,
    parked: Vec<Parked>,
    rows: Vec<(String, String)>,
    /// True while the device reads its history from disk.
    is_reading: bool,
}

impl Fake {
    /// Returns a device on which the application has edited a version of the hub that was lost.
    fn edited() -> Fake {
        let hub = SourceId::of("bucket", "cluster");
        let lost = received(&version(3, TWICE, "lost"), &hub).expect("it has no attributes");
        let (section, _) = lost.split().expect("it has attributes");
        let meta = Meta { seqno: Seqno(8), cas: Cas(60), rev: 2, ..lost.meta };
        let document = Document::new(meta, KEY, &[section, b"edit"].concat());
        Fake { document, parked: Vec::new(), rows: Vec::new(), is_reading: false }
    }

    /// Returns a device on which the application has created the document.
    fn created(cas: u64) -> Fake {
        let meta = Meta { seqno: Seqno(8), cas: Cas(cas), rev: 1, ..Meta::default() };
        let document = Document::new(meta, KEY, b"new");
        Fake { document, parked: Vec::new(), rows: Vec::new(), is_reading: false }
    }
}

impl Replica for Fake {
    fn read(&mut self, _: usize, _: &[u8]) -> Result<Local, Fault> {
        let name = SourceId::parse("device").expect("it is a name");
        let own = vec![Branch { name, began: Seqno::ZERO }];
        Ok(Local { document: Some(self.document.clone()), own })
    }

    fn store(
        &mut self,
        _: usize,
        _: &[u8],
        version: &Arriving,
        over: Option<Seen>,
        _: u64,
    ) -> Result<Outcome, Fault> {
        if over != Some(Seen::from(&self.document.meta)) {
            return Ok(Outcome::Changed);
        }
        let seqno = Seqno(self.document.meta.seqno.0 + 1);
        self.document = Document::new(Meta { seqno, ..version.meta }, KEY, &version.value);
        Ok(Outcome::Stored)
    }

    fn next_change(&mut self) -> Result<Option<(usize, Vec<u8>)>, Fault> {
        Ok(None)
    }

    fn is_reading(&self) -> bool {
        self.is_reading
    }

    fn rewind(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn position(&self) -> String {
        String::new()
    }

    fn names(&mut self, _: usize) -> Result<Vec<Vec<u8>>, Fault> {
        Ok(vec![b"k".to_vec()])
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn save(&mut self, rows: &[(String, String)]) -> Result<(), Fault> {
        self.rows.retain(|(known, _)| rows.iter().all(|(name, _)| name != known));
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    fn park(&mut self, parked: &Parked) -> Result<(), Fault> {
        self.parked.push(parked.clone());
        Ok(())
    }

    fn resolve(&mut self, _: &Conflict<'_>) -> Verdict {
        Verdict::KeepRemote
    }
}

fn version(seqno: u64, cas: u64, body: &str) -> Arriving {
    let meta = Meta { seqno: Seqno(seqno), cas: Cas(cas), rev: 1, ..Meta::default() };
    Arriving { meta, value: body.as_bytes().to_vec() }
}

fn now() -> Now {
    Now { unix_ns: 1_000_000_000, monotonic_ns: 1_000_000_000 }
}

/// Returns an engine in a pass over the hub's only vBucket. The hub has lost versions and has the high seqno `high` now.
fn in_pass(high: u64) -> Engine {
    let settings = Settings {
        collections: vec!["_default._default".into()],
        conflicts: ConflictMode::Log,
        direction: Direction::Both,
    };
    let mut engine = Engine::new(settings, "device", Saved::default());
    let hello = Hello {
        cluster_uuid: "cluster".into(),
        bucket: "b".into(),
        bucket_uuid: "bucket".into(),
        vbuckets: 1,
        by_time: false,
        unix_ns: now().unix_ns,
        nodes: Vec::new(),
    };
    engine.connected(LINE, &hello, now()).expect("the hello is well-formed");
    engine.collections[0].hub_id = Some(0);
    let line = engine.lines.get_mut(&LINE).expect("it is connected");
    (line.has_manifest, line.has_seqnos) = (true, true);
    line.output.clear();
    engine.vbuckets[0] = VbucketState {
        line: Some(LINE),
        point: Point { vb_uuid: 2, ..Point::default() },
        high,
        goal: high,
        stream: Stream::Open,
        branch: 1,
        sweeps: true,
        sweep: Some(Sweep { is_loss: true, began: BEGAN, seen: BTreeSet::new() }),
        ..VbucketState::default()
    };
    engine
}

fn arrives(engine: &mut Engine, fake: &mut Fake, version: Arriving) {
    let event = Event::Version { key: KEY.to_vec(), version };
    engine.happened(LINE, 0, event, fake, now()).expect("it is well-formed");
}

/// Answers the only write in flight as the hub.
fn answers(engine: &mut Engine, fake: &mut Fake, status: Status) {
    let opaque = *engine.pushes.first_key_value().expect("a write is on its way").0;
    let mut bytes = [0; 24];
    (bytes[0], bytes[1]) = (0x81, 0xa2);
    bytes[6..8].copy_from_slice(&(status as u16).to_be_bytes());
    bytes[12..16].copy_from_slice(&opaque.to_be_bytes());
    engine.receive(LINE, &bytes, fake, now()).expect("it is well-formed");
}

/// Returns true if both versions still exist: the device has decided and has parked the loser.
fn is_decided(engine: &Engine, fake: &Fake) -> bool {
    let parked = fake.parked.iter().map(|it| (it.is_hubs, it.version.split().expect("it is").1));
    engine.status.conflicts == 1 && parked.eq([(true, &b"since"[..])])
}

/// The version from before the loss arrived in the pass, and the one written after the loss arrived after the pass. Its CAS is
/// not above that of the lost version, so the edit seemed to contain it.
#[test]
fn a_version_written_since_a_loss_is_in_doubt_after_the_pass_too() {
    for cas in [TWICE - 1, TWICE] {
        let (mut engine, mut fake) = (in_pass(4), Fake::edited());
        arrives(&mut engine, &mut fake, version(4, 10, "before"));
        assert!(!engine.is_sweeping() && engine.status.conflicts == 0);
        arrives(&mut engine, &mut fake, version(7, cas, "since"));
        answers(&mut engine, &mut fake, Status::KeyExists);
        assert!(is_decided(&engine, &fake), "{:?}", fake.parked);
        answers(&mut engine, &mut fake, Status::Success);
        assert!(engine.doubtful.is_empty(), "it is in step");
    }
}

/// The hub did not have the document when the pass ended.
#[test]
fn an_edit_of_a_lost_version_replaces_nothing_that_has_its_cas() {
    let (mut engine, mut fake) = (in_pass(6), Fake::edited());
    engine.examine((0, b"k".to_vec()), &mut fake, now()).unwrap();
    assert!(engine.pushes.is_empty(), "the hub may have another version with that CAS");
    engine.happened(LINE, 0, Event::Advanced(6), &mut fake, now()).unwrap();
    let over: Vec<Over> = engine.pushes.values().map(|push| push.over()).collect();
    assert_eq!(over, [Over::Nothing]);
    answers(&mut engine, &mut fake, Status::KeyExists);
    arrives(&mut engine, &mut fake, version(7, TWICE, "since"));
    assert!(is_decided(&engine, &fake), "{:?}", fake.parked);
}

#[test]
fn an_edit_waits_until_the_hub_is_known_to_have_what_was_edited() {
    let (mut engine, mut fake) = (in_pass(6), Fake::edited());
    engine.examine((0, b"k".to_vec()), &mut fake, now()).unwrap();
    assert!(engine.pushes.is_empty());
    arrives(&mut engine, &mut fake, version(6, TWICE, "since"));
    assert!(is_decided(&engine, &fake), "{:?}", fake.parked);
}

/// The wait ended while a new session had no stream yet, and was forgotten: device and hub stayed different.
#[test]
fn a_version_that_does_not_arrive_is_read_again_once_there_is_a_stream() {
    let (mut engine, mut fake) = (in_pass(6), Fake::edited());
    let vbucket = &mut engine.vbuckets[0];
    (vbucket.sweeps, vbucket.sweep, vbucket.stream) = (false, None, Stream::Asked);
    let key = (0, b"k".to_vec());
    engine.awaited.insert(key.clone(), now().monotonic_ns);
    engine.advance(&mut fake, now()).unwrap();
    assert!(engine.awaited[&key] > now().monotonic_ns);
    engine.vbuckets[0].stream = Stream::Open;
    let later = Now { monotonic_ns: engine.awaited[&key], ..now() };
    engine.advance(&mut fake, later).unwrap();
    assert!(engine.awaited.is_empty() && engine.vbuckets[0].stream == Stream::Closing);
}

/// Returns the CAS of the only document in flight to the hub.
fn sent(engine: &Engine) -> Cas {
    let push = engine.pushes.first_key_value().expect("a write is on its way").1;
    push.version().meta.cas
}

/// A document is sent 9 s ahead of the hub's clock. The process restarts, the hub's clock is 20 s behind its earlier time, and
/// the document has been deleted and created again, so that its history does not name the version before.
#[test]
fn numbers_ascend_from_one_process_to_the_next() {
    const SECOND: u64 = 1_000_000_000;
    let at = |second: u64| Now { unix_ns: second * SECOND, monotonic_ns: SECOND };
    let begin = |rows: &[(String, String)], second: u64| {
        let mut engine = in_pass(0);
        let vbucket = &mut engine.vbuckets[0];
        (vbucket.sweeps, vbucket.sweep) = (false, None);
        let saved = Saved::read(rows);
        (engine.issued, engine.saved) = (saved.issued, saved);
        let hub = engine.hub.as_mut().expect("it has said hello");
        hub.set_clock(second * SECOND, SECOND);
        engine
    };
    let key = || (0, b"k".to_vec());
    let mut fake = Fake::created(1009 * SECOND);
    let mut engine = begin(&[], 1000);
    engine.examine(key(), &mut fake, at(1009)).unwrap();
    let first = sent(&engine);
    assert_eq!(first, Cas(1009 * SECOND));
    let mut later = Fake { rows: fake.rows, ..Fake::created(500_000 * SECOND) };
    let mut engine = begin(&later.rows, 980);
    engine.examine(key(), &mut later, at(500_000)).unwrap();
    let second = sent(&engine);
    assert!(second > first && second.unix_ns() < 1012 * SECOND, "{second:?}");
}

#[test]
fn a_branch_is_left_where_the_next_one_begins() {
    let branches = [(3, 50), (2, 20), (1, 0)];
    let left: Vec<_> = [3, 2, 1, 9, 0].map(|branch| left_at(&branches, branch)).into();
    assert_eq!(left, [None, Some(50), Some(20), Some(0), Some(0)]);
}

/// A device that had written before its last end was in step before it had read its own history from disk.
#[test]
fn a_device_is_not_in_step_while_it_reads_its_history() {
    let (mut engine, mut fake) = (in_pass(0), Fake::created(5));
    let vbucket = &mut engine.vbuckets[0];
    (vbucket.sweeps, vbucket.sweep) = (false, None);
    fake.is_reading = true;
    engine.advance(&mut fake, now()).unwrap();
    assert!(engine.status.state == State::Live && !engine.is_in_step());
    fake.is_reading = false;
    engine.advance(&mut fake, now()).unwrap();
    assert!(engine.is_in_step());
}
