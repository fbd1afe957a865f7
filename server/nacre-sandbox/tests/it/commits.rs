//! Writes and progress are committed together or not at all, and readers never see a part of a
//! commit.

use crate::fixture::*;
use nacre_sandbox::{Error, Limits};
use nacre_state::{Changes, Loaded, MemoryStorage, StateStorage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAP: &str = "function (doc, meta) { emit(doc.n, null) }";

/// A storage whose commits can be made to fail.
#[derive(Clone, Default)]
pub struct Failing {
    pub inner: MemoryStorage,
    pub fails: Arc<AtomicBool>,
}

impl StateStorage for Failing {
    fn load(&mut self) -> Result<Loaded, String> {
        self.inner.load()
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err("no space left on device".into()),
            false => self.inner.commit(changes),
        }
    }

    fn clear(&mut self) -> Result<(), String> {
        self.inner.clear()
    }
}

#[test]
fn a_failed_commit_stops_the_partition_and_leaves_no_trace() {
    let storage = Failing::default();
    let config = design(MAP, Some("_count"));
    let mut partition = open(&config, Limits::default(), storage.clone());
    let mut stream = Stream::default();
    let first = stream.batch([("a", Some(r#"{"n":1}"#))]);
    partition.on_batch(&first, NOW).unwrap();
    let before = storage.clone().load().unwrap();

    storage.fails.store(true, Ordering::Relaxed);
    let second = stream.batch([("b", Some(r#"{"n":2}"#))]);
    let error = partition.on_batch(&second, NOW).unwrap_err();
    insta::assert_snapshot!(error, @"travel/_design/d: storage: no space left on device");
    assert_eq!(storage.clone().load().unwrap(), before);
    let error = partition.on_batch(&second, NOW).unwrap_err();
    insta::assert_snapshot!(error, @"travel/_design/d is stopped: storage: no space left on device");
    let request = nacre_sandbox::Request { path: "/v".into(), ..Default::default() };
    assert!(matches!(partition.reader().handle(&request, NOW), Err(Error::Stopped { .. })));
    assert_eq!(partition.status().stopped.as_deref(), Some("storage: no space left on device"));

    storage.fails.store(false, Ordering::Relaxed);
    let mut reopened = open(&config, Limits::default(), storage);
    let vbid = first.documents[0].0;
    assert_eq!(reopened.progress(vbid), point(1), "resumes where the last commit stood");
    reopened.on_batch(&second, NOW).unwrap();
    assert_eq!(query(&reopened.reader(), ""), r#"{"rows":[{"key":null,"value":2}]}"#);
}

#[test]
fn a_reopened_partition_continues_where_it_was() {
    let storage = MemoryStorage::default();
    let config = design(MAP, None);
    let mut stream = Stream::default();
    let bodies: Vec<_> = (0..300).map(|n| (format!("k{n}"), format!(r#"{{"n":{n}}}"#))).collect();
    for chunk in bodies.chunks(50) {
        // A new partition for each batch.
        let mut partition = open(&config, Limits::default(), storage.clone());
        let batch = stream.batch(chunk.iter().map(|(key, body)| (&key[..], Some(&body[..]))));
        partition.on_batch(&batch, NOW).unwrap();
    }
    let partition = open(&config, Limits::default(), storage);
    assert!(query(&partition.reader(), "limit=0").contains("\"total_rows\":300"));
}

#[test]
fn a_cleared_partition_starts_over_even_when_it_was_stopped() {
    let storage = Failing::default();
    let mut partition = open(&design(MAP, Some("_count")), Limits::default(), storage.clone());
    let batch = Stream::default().batch([("a", Some(r#"{"n":1}"#)), ("b", Some(r#"{"n":2}"#))]);
    partition.on_batch(&batch, NOW).unwrap();
    storage.fails.store(true, Ordering::Relaxed);
    partition.on_batch(&batch, NOW).unwrap_err();
    storage.fails.store(false, Ordering::Relaxed);
    partition.clear().unwrap();
    assert_eq!(storage.clone().load().unwrap(), Loaded::default());
    assert_eq!(partition.progress_of_all().count(), 0);
    assert_eq!(query(&partition.reader(), ""), r#"{"rows":[]}"#);
    partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(query(&partition.reader(), ""), r#"{"rows":[{"key":null,"value":2}]}"#);
}

/// Readers send requests while a writer adds documents in pairs: no reply may ever contain half a
/// pair.
#[test]
fn readers_see_whole_commits_only() {
    let mut partition = open_in_memory("function (doc, meta) { emit(doc.n) }", Some("_count"));
    let reader = partition.reader();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asks = || {
            let mut answers = 0;
            while !done.load(Ordering::Relaxed) {
                let answer = query(&reader, "");
                let count =
                    answer.split("\"value\":").nth(1).map(|rest| rest.trim_end_matches("}]}"));
                let count: u64 = count.map_or(0, |count| count.parse().unwrap());
                assert_eq!(count % 2, 0, "{answer}");
                answers += 1;
            }
            answers
        };
        let readers = [scope.spawn(asks), scope.spawn(asks)];
        let mut stream = Stream::default();
        for n in 0..200 {
            let (left, right) = (format!("left{n}"), format!("right{n}"));
            let batch = stream.batch([(&left[..], Some("{}")), (&right[..], Some("{}"))]);
            partition.on_batch(&batch, NOW).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        let answers: u32 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(answers > 0);
    });
}

/// For eight documents with a poison one, calls with eight, four, two and one documents fail.
#[test]
fn a_writer_rests_after_each_call_that_fails() {
    let mut partition = open_probe(granted(""));
    let before = RESTS.get();
    tell(&mut partition, &["[]"; 8]).unwrap();
    assert_eq!(RESTS.get(), before, "nothing has failed");
    let mut scripts = ["[]"; 8];
    scripts[0] = r#"[["panic","poison"]]"#;
    tell(&mut partition, &scripts).unwrap();
    assert_eq!(RESTS.get() - before, 4);
}

/// The poison fails before its first write, between two, or after the last, alone or among other
/// documents.
#[test]
fn poison_anywhere_in_a_batch_costs_only_itself() {
    let good = r#"[["put","a","1"],["delete","b"],["put","c","1"]]"#;
    for position in 0..7 {
        for writes_before in 0..3 {
            let mut steps = vec![r#"["put","x","1"]"#; writes_before];
            steps.push(r#"["panic","poison"]"#);
            let poison = format!("[{}]", steps.join(","));
            let scripts: Vec<_> =
                (0..7).map(|at| if at == position { &poison[..] } else { good }).collect();
            let mut partition = open_probe(granted(""));
            let report = tell(&mut partition, &scripts).unwrap();
            assert_eq!((report.documents, report.dead_letters.len()), (6, 1));
            assert_eq!(report.dead_letters[0].key, format!("k{position}").as_bytes());
            assert_eq!(partition.status().state_bytes, 4, "a and c, and nothing of the poison");
        }
    }
}
