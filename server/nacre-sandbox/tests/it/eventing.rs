//! The eventing component in the sandbox.

use crate::fixture::*;
use nacre_sandbox::{
    DocumentCall, DocumentReply, Documents, Failure, Grants, Http, HttpError, HttpRequest,
    HttpResponse, KeyspaceGrant, KvError, Limits, MemoryDocuments, Partition, Queries, Query,
    QueryRows, Setup, replay, validate,
};
use nacre_state::{MemoryStorage, Timer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn setup(source: &str, documents: &Arc<MemoryDocuments>) -> Setup {
    let config = serde_json::json!({
        "name": "f", "id": "f00d", "source": source,
        "keyspace": {"bucket": "b", "scope": "_default", "collection": "_default"},
        "collections": {"8": "_default._default"},
        "buckets": [{"alias": "dst", "scope": "s", "collection": "c", "writes": true}],
        "urls": [{"alias": "slow", "url": "http://slow"}],
        "launch": {"number": 1, "reason": "deploy", "delay_ms": 0},
    });
    Setup {
        runs_script: true,
        grants: Grants {
            kv: vec![KeyspaceGrant { keyspace: "s.c".into(), write: true }],
            http_out: vec!["slow".into()],
            ..Grants::own()
        },
        documents: Arc::clone(documents) as Arc<dyn Documents>,
        ..Setup::new("f", config.to_string())
    }
}

fn open(setup: Setup) -> Partition {
    Partition::open(plugin("eventing"), setup, Box::new(MemoryStorage::default())).unwrap()
}

fn keys(documents: &MemoryDocuments) -> Vec<String> {
    let all = documents.all().into_iter();
    all.map(|(_, key, _)| String::from_utf8(key).unwrap()).collect()
}

#[test]
fn a_function_is_launched_follows_documents_and_fires_timers() {
    let source = "function OnDeploy(action) { dst.deploy = action }
        function Late(id) { dst['late ' + id] = 1 }
        function OnUpdate(doc, meta) { dst[meta.id] = doc; createTimer(Late, new Date(Date.now() + 5), meta.id, meta.id) }
        function OnDelete(meta) { delete dst[meta.id]; log('gone', meta.id) }";
    let documents = Arc::new(MemoryDocuments::default());
    let mut partition = open(setup(source, &documents));
    partition.set_timer(":launch", Timer::default()).unwrap();
    partition.on_timers(NOW).unwrap();
    let mut stream = Stream::default();
    let report = partition.on_batch(&stream.batch([("a", Some("1")), ("b", Some("2"))]), NOW);
    assert_eq!(report.unwrap().errors, []);
    partition.on_batch(&stream.batch([("b", None)]), NOW).unwrap();
    partition.on_timers(later(5000)).unwrap();
    assert_eq!(keys(&documents), ["a", "deploy", "late a", "late b"]);
    let status = partition.status();
    assert!(status.log[0].message.ends_with("[INFO] \"gone\" \"b\""), "{:?}", status.log);
    assert_eq!(status.metrics["on_update_success"], 2.0);
    // The function is launched once, however often it is opened.
    partition.set_timer(":launch", Timer::default()).unwrap();
    partition.on_timers(later(6000)).unwrap();
    assert_eq!(partition.status().metrics["on_deploy_success"], 1.0);
}

/// A server that never replies in time.
struct Slow;

impl Http for Slow {
    fn send(&self, _: &HttpRequest, _: usize, left: Duration) -> Result<HttpResponse, HttpError> {
        #[expect(clippy::disallowed_methods, reason = "waiting is what is tested")]
        std::thread::sleep(left * 2);
        Err(HttpError::Timeout)
    }
}

#[test]
fn documents_that_take_too_long_are_skipped_one_by_one_and_the_others_continue() {
    let source =
        "function OnUpdate(doc, meta) { if (doc.slow) curl('GET', slow); dst[meta.id] = 1 }";
    let documents = Arc::new(MemoryDocuments::default());
    let deadline = Duration::from_millis(150);
    let mut partition = open(Setup {
        limits: Limits { deadline, errors_max: u32::MAX, ..Limits::default() },
        http: Arc::new(Slow),
        ..setup(source, &documents)
    });
    let slow = Some(r#"{"slow":1}"#);
    let batch = [
        ("a", Some("{}")),
        ("s1", slow),
        ("s2", slow),
        ("s3", slow),
        ("s4", slow),
        ("z", Some("{}")),
    ];
    let report = partition.on_batch(&Stream::default().batch(batch), NOW).unwrap();
    assert_eq!(report.dead_letters.len(), 4);
    assert_eq!(keys(&documents), ["a", "z"]);
}

/// Counts how often each document is handled. Some handlers never end, one of them in an operation that
/// the engine cannot interrupt.
const COUNTING: &str = "function Again(context) { OnUpdate(context, { id: 'late ' + context.id }) }
    function OnUpdate(doc, meta) {
        if (doc.fails) throw new Error('it fails');
        if (doc.stuck === 'loop') for (;;);
        if (doc.stuck === 'regex') /^(a+)+$/.test('a'.repeat(60) + 'b');
        if (doc.stuck === 'native') 'a'.repeat(2 ** 24).indexOf('a'.repeat(2 ** 20) + 'b');
        if (doc.later) return createTimer(Again, new Date(0), meta.id, { id: meta.id, stuck: doc.later });
        dst[meta.id] = (dst[meta.id] || 0) + 1;
    }";

/// The setup for [`COUNTING`]: 200 ms for a handler.
fn counting(documents: &Arc<MemoryDocuments>) -> Setup {
    let setup = setup(COUNTING, documents);
    let mut config: serde_json::Value = serde_json::from_str(&setup.config).unwrap();
    config["timeout_ms"] = 200.into();
    let (deadline, grace) = (Duration::from_millis(200), Duration::from_millis(100));
    let limits = Limits { deadline, grace, errors_max: u32::MAX, ..Limits::default() };
    Setup { config: config.to_string(), limits, ..setup }
}

fn counts(documents: &MemoryDocuments) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let all = documents.all().into_iter();
    all.map(|(_, key, found)| (text(key), text(found.body.clone()))).collect()
}

#[test]
fn endless_handlers_cause_no_other_document_to_be_handled_twice() {
    let documents = Arc::new(MemoryDocuments::default());
    let mut partition = open(counting(&documents));
    let names: Vec<_> = (0..300).map(|number| format!("{number:03}")).collect();
    let body = |number: usize| match number {
        40 => r#"{"stuck":"loop"}"#,
        100 => r#"{"stuck":"regex"}"#,
        150 => r#"{"stuck":"native"}"#,
        _ => "{}",
    };
    let batch = names.iter().enumerate().map(|(number, name)| (&name[..], Some(body(number))));
    let report = partition.on_batch(&Stream::default().batch(batch), NOW).unwrap();
    // Documents that failed before the one that ended the call are reported.
    let failed: Vec<_> = report.errors.iter().map(|error| &error.key[..]).collect();
    assert_eq!((failed, report.dead_letters.len()), (vec![&b"040"[..], b"100"], 1));
    assert_eq!(report.dead_letters[0].key, b"150");
    let capsules = partition.take_capsules();
    assert_eq!(capsules.len(), 1);
    let again = replay(&plugin("eventing"), &capsules[0]).unwrap_err().to_string();
    assert!(again.ends_with(&report.dead_letters[0].reason), "{again}");
    let counts = counts(&documents);
    assert_eq!(counts.len(), 297);
    assert!(counts.iter().all(|(_, count)| count == "1"), "{counts:?}");
}

#[test]
fn endless_timers_cause_no_other_timer_to_fire_twice() {
    let documents = Arc::new(MemoryDocuments::default());
    let mut partition = open(counting(&documents));
    let later = |number: usize| match number {
        3 => r#"{"later":"native"}"#,
        5 => r#"{"later":"loop"}"#,
        _ => r#"{"later":"no"}"#,
    };
    let names: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    let batch = names.iter().enumerate().map(|(number, name)| (&name[..], Some(later(number))));
    partition.on_batch(&Stream::default().batch(batch), NOW).unwrap();
    let report = partition.on_timers(NOW).unwrap();
    assert_eq!((report.timers, report.dead_timers.len()), (9, 1), "{report:?}");
    let again = replay(&plugin("eventing"), &partition.take_capsules()[0]).unwrap_err();
    assert!(again.to_string().ends_with(&report.dead_timers[0].reason), "{again}");
    let counts = counts(&documents);
    assert_eq!(counts.len(), 8);
    assert!(counts.iter().all(|(_, count)| count == "1"), "{counts:?}");
    assert_eq!(partition.next_timer_us(), None);
}

/// Documents, one of which is locked for a while.
struct Locked {
    documents: Arc<MemoryDocuments>,
    is_locked: AtomicBool,
}

impl Documents for Locked {
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Result<DocumentReply, KvError> {
        if key == b"locked" && self.is_locked.load(Ordering::Relaxed) {
            return Err(KvError::Locked);
        }
        self.documents.call(keyspace, key, call, left)
    }
}

#[test]
fn a_batch_that_waits_for_a_document_continues_where_it_stopped() {
    let memory = Arc::new(MemoryDocuments::default());
    let is_locked = AtomicBool::new(true);
    let locked = Arc::new(Locked { documents: Arc::clone(&memory), is_locked });
    let setup = counting(&memory);
    let mut partition =
        open(Setup { documents: Arc::clone(&locked) as Arc<dyn Documents>, ..setup });
    let names = ["a", "b", "fails", "c", "locked", "d", "fails too", "e"];
    let body = |name: &str| if name.starts_with("fails") { r#"{"fails":1}"# } else { "{}" };
    let mut batch = Stream::default().batch(names.map(|name| (name, Some(body(name)))));
    for _ in 0..3 {
        let error = partition.on_batch(&batch, NOW).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        batch.documents.drain(..partition.taken());
        assert_eq!(batch.documents.len(), 4);
        // A processed document is reported once.
        let told = partition.status();
        let told: Vec<_> = told.last_errors.iter().map(|error| &error.key[..]).collect();
        assert_eq!(told, [b"fails"]);
    }
    // A restarted feed omits the processed documents.
    let place = |partition: &Partition| {
        batch.progress.keys().map(|vbid| partition.progress(*vbid).seqno.0).sum::<u64>()
    };
    assert_eq!(place(&partition), 4);
    locked.is_locked.store(false, Ordering::Relaxed);
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert_eq!((report.documents, report.errors.len()), (4, 1));
    assert_eq!((&report.errors[0].key[..], place(&partition)), (&b"fails too"[..], 8));
    let counts = counts(&memory);
    assert!(counts.len() == 6 && counts.iter().all(|(_, count)| count == "1"), "{counts:?}");
    assert_eq!(partition.status().metrics["on_update_success"], 6.0);
}

/// Endless rows that are read slowly, and the number of open queries.
#[derive(Default)]
struct Numbers(Arc<AtomicUsize>);

struct Counted(u64, Arc<AtomicUsize>);

impl Queries for Numbers {
    fn begin(&self, query: &Query, left: Duration) -> Result<Box<dyn QueryRows>, Failure> {
        assert!(left <= Limits::default().deadline);
        match &query.text[..] {
            "wrong" => Err(Failure { code: 3000, message: "syntax".into(), retry: false }),
            _ => {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(Box::new(Counted(0, Arc::clone(&self.0))))
            }
        }
    }
}

impl QueryRows for Counted {
    fn next(&mut self) -> Result<Vec<String>, Failure> {
        self.0 += 1;
        Ok(vec![self.0.to_string()])
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn queries_are_asked_when_they_are_granted_and_end_with_the_call() {
    let source = "function OnUpdate(doc, meta) {
        const told = [];
        const attempt = (f) => { try { told.push(f()) } catch (e) { told.push(e.code + ' ' + e.message) } };
        attempt(() => { let sum = 0; for (const n of N1QL('numbers')) { sum += n; if (n === 4) return sum } });
        attempt(() => N1QL('wrong'));
        for (let i = 0; i < 17; i++) attempt(() => N1QL('numbers').next().value);
        dst[meta.id] = told;
    }";
    let documents = Arc::new(MemoryDocuments::default());
    let open_count = Arc::new(AtomicUsize::new(0));
    let queries = Arc::new(Numbers(Arc::clone(&open_count)));
    let told = |grants: Grants| {
        let setup = setup(source, &documents);
        let grants = Grants { kv: setup.grants.kv.clone(), ..grants };
        let mut partition = open(Setup { grants, queries: queries.clone(), ..setup });
        let report = partition.on_batch(&Stream::default().batch([("a", Some("1"))]), NOW).unwrap();
        assert_eq!(report.errors, []);
        String::from_utf8(documents.all()[0].2.body.clone()).unwrap()
    };
    let granted = told(Grants { query: true, ..Grants::own() });
    assert!(granted.starts_with(r#"[10,"3000 syntax",1,1"#), "{granted}");
    assert!(
        granted.ends_with(r#"1,"5000 a call has at most 16 queries open: close some"]"#),
        "{granted}"
    );
    assert_eq!(open_count.load(Ordering::Relaxed), 0, "none is left");
    assert!(told(Grants::own()).starts_with(r#"["5000 queries are not granted""#));
}

#[test]
fn code_that_cannot_run_is_refused_with_its_place() {
    let documents = Arc::new(MemoryDocuments::default());
    let check = |source: &str| {
        validate(&plugin("eventing"), setup(source, &documents)).unwrap_err().to_string()
    };
    insta::assert_snapshot!(check("function OnUpdate(doc) {\n  doc..x\n}"), @"f: SyntaxError: expecting field name (line 2, column 7)");
    insta::assert_snapshot!(check("feefifofum"), @"f: ReferenceError: feefifofum is not defined (line 1, column 1)");
}
