//! A store that is waited for: requests that it does not answer are sent again, at growing intervals.
//!
//! The library of object stores repeats requests, too (`RetryConfig`), which does for a short fault only. It repeats them with the same
//! credentials, which may have ended after minutes. It does not repeat a conditional write whose answer is late or breaks off, nor a body
//! that breaks off while it is read. It waits as long for an address that leads nowhere as for a store that has answered before.

use nacre_backup::{Store, StoreError};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// First and longest pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Time, as a store that is waited for sees it.
pub(super) trait Pace: Send + Sync {
    /// Returns the time since any moment in the past.
    fn elapsed(&self) -> Duration;

    /// Waits.
    fn pause(&self, time: Duration);
}

/// The clock of the machine.
pub(super) struct RealTime(Instant);

impl RealTime {
    /// Begins now.
    pub fn new() -> RealTime {
        RealTime(Instant::now())
    }
}

impl Pace for RealTime {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A store that is waited for while it is [unavailable](StoreError::Unavailable), once it has answered: an address that leads nowhere is
/// reported at once.
pub(super) struct PatientStore<S, P> {
    store: S,
    pace: P,
    patience: Duration,
    has_answered: AtomicBool,
}

impl<S: Store, P: Pace> PatientStore<S, P> {
    /// Wraps a store. Each request is tried for `patience`.
    pub fn new(store: S, pace: P, patience: Duration) -> PatientStore<S, P> {
        PatientStore { store, pace, patience, has_answered: AtomicBool::new(false) }
    }

    /// Sends a request until it is answered. `send` is told whether it was sent before.
    fn attempt<T>(&self, send: impl Fn(bool) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let (begun, mut pause, mut is_again) = (self.pace.elapsed(), PAUSE, false);
        loop {
            let reason = match send(is_again) {
                Err(StoreError::Unavailable(reason)) => reason,
                answer => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    return answer;
                }
            };
            let waited = self.pace.elapsed().saturating_sub(begun);
            let is_waited_for = self.has_answered.load(Ordering::Relaxed);
            if !is_waited_for || waited.saturating_add(pause) > self.patience {
                return Err(StoreError::Unavailable(match is_waited_for {
                    true => format!("{reason} (tried for {} s)", waited.as_secs()),
                    false => reason,
                }));
            }
            self.pace.pause(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            is_again = true;
        }
    }

    /// Returns true if an object is there with this content.
    fn has(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        Ok(self.store.size(name)? == bytes.len() as u64
            && self.store.read(name, 0..u64::MAX)? == bytes)
    }
}

impl<S: Store, P: Pace> Store for PatientStore<S, P> {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.attempt(|is_again| match self.store.create(name, bytes) {
            // A request whose answer was lost may have stored the object.
            Err(StoreError::Exists(_)) if is_again && self.has(name, bytes)? => Ok(()),
            created => created,
        })
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.attempt(|_| self.store.read(name, range.clone()))
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        self.attempt(|_| self.store.size(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.attempt(|_| self.store.list(prefix))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.attempt(|_| self.store.remove(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_backup::{
        BackupId, BucketSource, MemoryStore, Record, RecordKind, Repository, Task, TaskOptions,
        verify,
    };
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const PATIENCE: Duration = Duration::from_secs(300);

    /// A clock that is moved by pauses, and by requests that are not answered.
    #[derive(Clone, Default)]
    struct Clock(Arc<Mutex<(Duration, Vec<Duration>)>>);

    impl Pace for Clock {
        fn elapsed(&self) -> Duration {
            self.0.lock().0
        }

        fn pause(&self, time: Duration) {
            let mut state = self.0.lock();
            state.0 += time;
            state.1.push(time);
        }
    }

    /// A store that is down from one moment to another. What it is asked for then may happen all the same.
    #[derive(Clone, Default)]
    struct Down {
        objects: Arc<MemoryStore>,
        clock: Clock,
        time: Arc<Mutex<Range<Duration>>>,
        loses_answers: bool,
    }

    impl Down {
        fn goes_down(&self, time: Duration) {
            let now = self.clock.elapsed();
            *self.time.lock() = now..now + time;
        }

        fn answer<T>(&self, does: impl Fn() -> T) -> Result<T, StoreError> {
            if !self.time.lock().contains(&self.clock.elapsed()) {
                return Ok(does());
            }
            if self.loses_answers {
                does();
            }
            self.clock.0.lock().0 += Duration::from_secs(1);
            Err(StoreError::Unavailable("503 Slow Down".to_owned()))
        }
    }

    impl Store for Down {
        fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
            self.answer(|| self.objects.create(name, bytes))?
        }

        fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
            self.answer(|| self.objects.read(name, range.clone()))?
        }

        fn size(&self, name: &str) -> Result<u64, StoreError> {
            self.answer(|| self.objects.size(name))?
        }

        fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
            self.answer(|| self.objects.list(prefix))?
        }

        fn remove(&self, name: &str) -> Result<(), StoreError> {
            self.answer(|| self.objects.remove(name))?
        }
    }

    /// Opens a new repository in a store that is waited for.
    fn repository(store: &Down) -> Repository {
        if !Repository::exists(store).unwrap() {
            Repository::create(store, BackupId::new(1, 1, None), None).unwrap();
        }
        let patient = PatientStore::new(store.clone(), store.clock.clone(), PATIENCE);
        Repository::open(Arc::new(patient), None).unwrap()
    }

    /// Takes the vBuckets that remain, with one document each; the store goes down before the second one.
    fn take(task: &Task<'_>, before_second: impl Fn()) -> Result<(), String> {
        let mut worker = task.worker();
        for (turn, vbid) in task.remaining(0).into_iter().enumerate() {
            if turn == 1 {
                before_second();
            }
            let mut vbucket = worker.begin(0, vbid, 1);
            vbucket.accepted(&[(9, 0)])?;
            vbucket.snapshot(1, false)?;
            let record = Record {
                kind: RecordKind::Set,
                seqno: 1,
                cas: 1,
                rev: 1,
                flags: 0,
                expiry: 0,
                datatype: 0,
                collection: 0,
                key: b"k",
                value: b"v",
            };
            vbucket.record(&record, &mut worker)?;
            worker.finish(0, vbucket)?;
            worker.flush()?;
        }
        Ok(())
    }

    fn options(now_ms: u64) -> TaskOptions {
        TaskOptions { now_ms, random: [now_ms as u8; 16], is_full: false }
    }

    fn source() -> BucketSource {
        BucketSource { name: "b".into(), uuid: "u".into(), vbuckets: 3 }
    }

    fn complete(repository: &Repository, task: &Task<'_>) {
        let done = task.complete(9, "test", BTreeMap::new(), BTreeMap::new()).unwrap();
        assert_eq!(verify(repository, done.id, true).unwrap().findings, []);
    }

    #[test]
    fn case_09_a_store_that_is_down_for_five_minutes_is_waited_for() {
        for loses_answers in [false, true] {
            let store = Down { loses_answers, ..Down::default() };
            let repository = repository(&store);
            let task = Task::begin(&repository, &[source()], options(5)).unwrap();
            take(&task, || store.goes_down(Duration::from_secs(290))).unwrap();
            complete(&repository, &task);
            let pauses = store.clock.0.lock().1.clone();
            assert!(pauses.is_sorted() && pauses.contains(&PAUSE_MAX), "{pauses:?}");
            assert!(pauses.len() < 40, "{} requests in five minutes", pauses.len());
        }
    }

    #[test]
    fn case_09_a_backup_that_has_given_up_on_its_store_is_resumed() {
        let store = Down::default();
        let own = repository(&store);
        let task = Task::begin(&own, &[source()], options(5)).unwrap();
        let refused = take(&task, || store.goes_down(Duration::from_secs(3600))).unwrap_err();
        assert!(refused.starts_with("503 Slow Down (tried for 2"), "{refused}");
        *store.time.lock() = Range::default();
        let own = repository(&store);
        let task = Task::resume(&own, task.id(), &[source()], options(6)).unwrap();
        assert_eq!(task.remaining(0), [1, 2], "what was complete is not taken again");
        take(&task, || ()).unwrap();
        complete(&own, &task);
    }

    #[test]
    fn case_09_a_store_that_has_never_answered_is_not_waited_for() {
        let store = Down::default();
        store.goes_down(Duration::from_secs(10));
        let patient = PatientStore::new(store.clone(), store.clock.clone(), PATIENCE);
        let refused = patient.list("").unwrap_err();
        assert_eq!(refused, StoreError::Unavailable("503 Slow Down".to_owned()));
        assert_eq!(store.clock.0.lock().1, []);
    }

    #[test]
    fn an_object_of_another_writer_is_not_mistaken_for_ones_own() {
        let store = Down::default();
        let patient = PatientStore::new(store.clone(), store.clock.clone(), PATIENCE);
        patient.create("a", b"one").unwrap();
        store.goes_down(Duration::from_secs(2));
        assert_eq!(patient.create("a", b"two"), Err(StoreError::Exists("a".into())));
        assert_eq!(patient.read("a", 0..9).unwrap(), b"one");
    }
}
