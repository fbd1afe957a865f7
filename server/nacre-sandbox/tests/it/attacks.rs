//! Hostile and broken user code: each is contained and named, and does not prevent other documents from being indexed.

use crate::fixture::*;
use nacre_sandbox::{Error, Limits, Request};
use nacre_state::MemoryStorage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Runs `attack` for the document "bad" and indexes all others. Returns the reported errors.
fn attacked(attack: &str) -> String {
    let map =
        format!("function (doc, meta) {{ if (meta.id === 'bad') {{ {attack} }} emit(meta.id) }}");
    let mut partition = open_in_memory(&map, Some("_count"));
    let keys: Vec<_> = (0..20).map(|number| format!("good{number}")).collect();
    let mut changes: Vec<_> = keys.iter().map(|key| (&key[..], Some("{}"))).collect();
    changes.insert(7, ("bad", Some("{}")));
    let report = partition.on_batch(&Stream::default().batch(changes), NOW).unwrap();
    assert_eq!(query(&partition.reader(), ""), r#"{"rows":[{"key":null,"value":20}]}"#, "{attack}");
    let errors = report.errors.iter().map(|error| (&error.key, error.message.clone()));
    let parked = report.dead_letters.iter().map(|l| (&l.key, format!("parked: {}", l.reason)));
    let told: Vec<_> = errors.chain(parked).collect();
    assert_eq!(told.len(), 1, "{attack}: {told:?}");
    assert_eq!(told[0].0, b"bad");
    told[0].1.clone()
}

#[test]
fn user_code_that_fails_is_a_named_error_of_its_document() {
    let attacks = [
        "throw new Error('no')",
        "while (true) {}",
        "(function f() { return f() + 1 })()",
        "(function f() { return [1].map(f) })()",
        "emit('x'.repeat(5000))",
        "emit('k', 'x'.repeat(1e7))",
        "'x'.repeat(1e9).length",
        "let s = 'x'; for (;;) s += s",
        "const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)",
        "let v = 1; for (let i = 0; i < 1e5; i++) v = [v]; emit(v)",
        "JSON.parse('['.repeat(1e5))",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "new Function('('.repeat(1e5))()",
        "Math.random()",
    ];
    let told: Vec<_> =
        attacks.iter().map(|attack| format!("{attack}\n    {}", attacked(attack))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn documents_that_nest_deep_are_an_error_of_their_own() {
    let mut partition = open_in_memory("function (doc, meta) { emit(meta.id, doc) }", None);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let allowed = format!("{}{}", "[".repeat(512), "]".repeat(512));
    let changes = [("a", "{}"), ("deep", &deep), ("b", "{}"), ("allowed", &allowed)];
    let batch = Stream::default().batch(changes.map(|(key, body)| (key, Some(body))));
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(report.errors.len(), 1);
    assert_eq!(report.errors[0].message, "JSON nests deeper than 512 levels");
    assert!(query(&partition.reader(), "").starts_with("{\"total_rows\":3,"));
}

/// The deadline is shorter than the budget of steps takes, so the sandbox itself must end the call, but not early.
/// `cargo xtask bench plugins` measures how late it ends.
#[test]
fn an_endless_map_is_stopped_at_the_deadline_and_parked() {
    let map = "function (doc, meta) { if (meta.id === 'bad') while (true) 'x'.repeat(1e6).toUpperCase(); emit(meta.id) }";
    let deadline = Duration::from_millis(250);
    let limits = Limits { deadline, ..Limits::default() };
    let mut partition = open(&design(map, Some("_count")), limits, MemoryStorage::default());
    let mut stream = Stream::default();
    let batch = stream.batch([("a", Some("{}")), ("bad", Some("{}")), ("b", Some("{}"))]);
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert_eq!((report.documents, report.dead_letters.len()), (2, 1));
    insta::assert_snapshot!(report.dead_letters[0].reason, @"took longer than 250 ms");
    let status = partition.status();
    assert!(
        status.writer.failures >= 2 && status.dead_letter_count == 1 && status.stopped.is_none()
    );
    assert_eq!(query(&partition.reader(), ""), r#"{"rows":[{"key":null,"value":2}]}"#);

    // Repeats the single document: one call, one deadline.
    let batch = stream.batch([("bad", Some("{}"))]);
    #[expect(clippy::disallowed_methods, reason = "the deadline is about real time")]
    let start = std::time::Instant::now();
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert!(start.elapsed() >= deadline - Duration::from_millis(1), "{:?}", start.elapsed());
    assert_eq!(report.dead_letters.len(), 1);
}

#[test]
fn poison_in_a_row_stops_the_partition_with_the_reason() {
    let limits = Limits { deadline: Duration::from_millis(200), ..Limits::default() };
    let config = design("function (doc) { while (true) 'x'.repeat(1e6).toUpperCase() }", None);
    let mut partition = open(&config, limits, MemoryStorage::default());
    let keys: Vec<_> = (0..30).map(|number| format!("k{number}")).collect();
    let batch = Stream::default().batch(keys.iter().map(|key| (&key[..], Some("{}"))));
    let error = partition.on_batch(&batch, NOW).unwrap_err();
    insta::assert_snapshot!(error, @"travel/_design/d is stopped: 3 documents in a row killed it, the last with: took longer than 200 ms");
    let reader = partition.reader();
    let asked = Request { path: "/v".into(), ..Request::default() };
    assert_eq!(reader.handle(&asked, NOW).err().unwrap(), error);
    assert_eq!(partition.status().dead_letters.len(), 3);
    assert_eq!(partition.progress_of_all().count(), 0, "nothing of the batch was committed");
}

/// Each document takes its deadline and a pause, and ending a deployment waits for its batch.
#[test]
fn a_batch_full_of_poison_can_be_interrupted() {
    let map = "function (doc, meta) { if (meta.id > 'm') while (true) 'x'.repeat(1e6).toUpperCase(); emit(meta.id) }";
    let limits = Limits { deadline: Duration::from_millis(100), ..Limits::default() };
    let mut partition = open(&design(map, Some("_count")), limits, MemoryStorage::default());
    let calls_left = Arc::new(AtomicU32::new(6));
    let counted = Arc::clone(&calls_left);
    let left = move |calls: u32| calls.checked_sub(1);
    let relaxed = Ordering::Relaxed;
    partition.interrupt_when(move || counted.fetch_update(relaxed, relaxed, left).is_err());
    let changes = ["z1", "a1", "z2", "a2", "z3", "a3"].map(|key| (key, Some("{}")));
    let mut batch = Stream::default().batch(changes);
    let error = partition.on_batch(&batch, NOW).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    insta::assert_snapshot!(error, @"travel/_design/d: it was interrupted");
    let taken = partition.taken();
    assert!(0 < taken && taken < changes.len(), "{taken}");
    let parked = partition.status().dead_letter_count;
    assert!(0 < parked && parked < 3, "{parked}");

    calls_left.store(1000, relaxed);
    batch.documents.drain(..taken);
    partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(partition.status().dead_letter_count, 3);
    assert_eq!(query(&partition.reader(), ""), r#"{"rows":[{"key":null,"value":3}]}"#);
}

#[test]
fn the_memory_of_a_plugin_is_limited() {
    let limits = Limits { memory_bytes: 24 << 20, ..Limits::default() };
    let map = "function (doc, meta) { emit(meta.id, doc.length) }";
    let mut partition = open(&design(map, None), limits, MemoryStorage::default());
    let large = format!("[{}0]", "1,".repeat(4_000_000));
    let batch =
        Stream::default().batch([("a", Some("{}")), ("large", Some(&large)), ("b", Some("{}"))]);
    let report = partition.on_batch(&batch, NOW).unwrap();
    let told: Vec<_> = report
        .dead_letters
        .iter()
        .map(|letter| letter.reason.clone())
        .chain(report.errors.iter().map(|error| error.message.clone()))
        .collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("memory"), "{told:?}");
    assert!(query(&partition.reader(), "").starts_with("{\"total_rows\":2,"));
}

#[test]
fn a_state_that_is_full_stops_the_partition() {
    let limits = Limits { state_bytes: 20_000, ..Limits::default() };
    let config = design("function (doc, meta) { emit(meta.id, 'x'.repeat(1000)) }", None);
    let mut partition = open(&config, limits, MemoryStorage::default());
    let keys: Vec<_> = (0..30).map(|number| format!("k{number}")).collect();
    let batch = Stream::default().batch(keys.iter().map(|key| (&key[..], Some("{}"))));
    let error = partition.on_batch(&batch, NOW).unwrap_err();
    insta::assert_snapshot!(error, @"travel/_design/d: the state needs more than 20000 bytes");
}

#[test]
fn answers_that_are_too_large_are_refused() {
    let limits = Limits { result_bytes: 10_000, ..Limits::default() };
    let config = design("function (doc, meta) { emit(meta.id, 'x'.repeat(doc.n)) }", None);
    let mut partition = open(&config, limits, MemoryStorage::default());
    let keys: Vec<_> = (0..30).map(|number| format!("k{number}")).collect();
    let mut stream = Stream::default();
    let batch = stream.batch(keys.iter().map(|key| (&key[..], Some("{\"n\":1000}"))));
    partition.on_batch(&batch, NOW).unwrap();
    let reader = partition.reader();
    let all = Request { method: "GET".into(), path: "/v".into(), ..Request::default() };
    assert!(matches!(reader.handle(&all, NOW), Err(Error::Result { .. })));
    // One piece of the reply, which starts with the earlier rows, now exceeds what a guest may pass to its host at
    // once.
    let large = [("more0", Some("{\"n\":200000}")), ("more1", Some("{\"n\":1000000}"))];
    partition.on_batch(&stream.batch(large), NOW).unwrap();
    assert!(matches!(reader.handle(&all, NOW), Err(Error::Trap { .. })));
    let few = Request { query: "limit=2".into(), ..all };
    assert_eq!(reader.handle(&few, NOW).unwrap().status, 200);
}

/// Wasm may use 4 MiB of native stack. If the thread has less, the host allocates more.
#[test]
fn a_thread_with_a_small_stack_is_as_safe_as_any() {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    let attack = || attacked("(function f() { return [1].map(f) })()");
    let told = thread.spawn(attack).unwrap().join().unwrap();
    assert!(told.contains("Maximum call stack size exceeded"), "{told}");
}

#[test]
fn a_reduce_that_fails_is_an_error_in_the_answer() {
    let map = "function (doc, meta) { emit(doc.a, doc.b) }";
    let documents = [("1", Some(r#"{"a":"x","b":1}"#)), ("2", Some(r#"{"a":"y","b":"text"}"#))];
    for (reduce, expected) in [
        ("_sum", r#"_sum needs numbers or arrays of numbers, and document \"2\" emitted \"text\""#),
        (
            "function (keys, values) { values.forEach(v => v.toFixed(1)); return 1 }",
            r#"reduce: TypeError: not a function (line 1, column 48)"#,
        ),
    ] {
        let mut partition = open_in_memory(map, Some(reduce));
        partition.on_batch(&Stream::default().batch(documents), NOW).unwrap();
        let reader = partition.reader();
        assert_eq!(
            query(&reader, ""),
            format!(r#"{{"rows":[],"errors":[{{"from":"local","reason":"{expected}"}}]}}"#)
        );
        assert!(
            query(&reader, "group=true").starts_with(r#"{"rows":[{"key":"x","value":1}],"errors""#)
        );
        assert!(query(&reader, "reduce=false").starts_with(r#"{"total_rows":2,"#));
    }
}
