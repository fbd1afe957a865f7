//! Commits of transactions into documents in memory, with a crash at each step.

use super::attempt::{Attempt, Stopped};
use super::changes::{Changes, Kind, Place, Staged};
use super::record::{self, Entry, STAGED};
use super::step::{Documents, Durability, Edit, LookupResult, Part, Presence, Step, StepReply};
use super::{COUNT_MAX, COUNT_OF_USER_MAX, Transaction, Transactions};
use nacre_sandbox::{Account, Action, Budgets, DatabaseKeyspace, KvError, Mutation};
use nacre_types::Now;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A document, or a tombstone if it has no body.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stored {
    cas: u64,
    body: Option<Value>,
    attributes: Map<String, Value>,
}

/// Documents in memory that fail at a chosen step, permanently or once.
#[derive(Default)]
struct Memory {
    documents: RefCell<BTreeMap<String, Stored>>,
    cas: Cell<u64>,
    writes: Cell<usize>,
    /// The write at which the process ends.
    ends_at: Option<usize>,
    /// The write that is applied although its answer is lost.
    loses: Option<usize>,
}

fn keyspace() -> DatabaseKeyspace {
    DatabaseKeyspace { bucket: "b".into(), scope: "_default".into(), collection: "_default".into() }
}

fn at<'a>(attributes: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = attributes.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

fn put(attributes: &mut Map<String, Value>, path: &str, value: Value, creates: bool) -> Option<()> {
    let (above, last) =
        path.rsplit_once('.').map_or((None, path), |(above, last)| (Some(above), last));
    let mut map = attributes;
    for name in above.iter().flat_map(|above| above.split('.')) {
        if creates && !map.contains_key(name) {
            map.insert(name.to_owned(), json!({}));
        }
        map = map.get_mut(name)?.as_object_mut()?;
    }
    map.insert(last.to_owned(), value);
    Some(())
}

impl Memory {
    fn with(bodies: &[(&str, i64)]) -> Memory {
        let memory = Memory { cas: Cell::new(100), ..Memory::default() };
        for (id, n) in bodies {
            memory.set(id, json!({"n": n}));
        }
        memory
    }

    fn next_cas(&self) -> u64 {
        self.cas.set(self.cas.get() + 1);
        self.cas.get()
    }

    /// Writes a document like a client without transactions.
    fn set(&self, id: &str, body: Value) -> u64 {
        let cas = self.next_cas();
        let mut documents = self.documents.borrow_mut();
        let document = documents.entry(id.to_owned()).or_default();
        (document.cas, document.body) = (cas, Some(body));
        cas
    }

    fn cas_of(&self, id: &str) -> Option<u64> {
        let documents = self.documents.borrow();
        documents.get(id).filter(|document| document.body.is_some()).map(|document| document.cas)
    }

    /// Returns the documents that clients see.
    fn visible(&self) -> BTreeMap<String, i64> {
        let documents = self.documents.borrow();
        let alive = documents.iter().filter(|(id, _)| !id.starts_with(record::KEY_PREFIX));
        let n = |(id, document): (&String, &Stored)| {
            Some((id.clone(), document.body.as_ref()?["n"].as_i64()?))
        };
        alive.filter_map(n).collect()
    }

    /// Returns the IDs of documents with staged changes.
    fn staged(&self) -> Vec<String> {
        let documents = self.documents.borrow();
        let staged =
            documents.iter().filter(|(_, document)| document.attributes.contains_key(STAGED));
        staged.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the entry of an attempt, as a cleanup finds it.
    fn entry(&self, attempt: &Attempt) -> Option<Entry> {
        let documents = self.documents.borrow();
        let record = documents.get(&attempt.record.as_ref()?.id)?;
        Entry::read(at(&record.attributes, &record::entry_path(&attempt.id))?)
    }

    fn edit(&self, id: &str, edit: &Edit) -> Result<u64, KvError> {
        let mut documents = self.documents.borrow_mut();
        let known = documents.get(id).cloned();
        let is_alive = known.as_ref().is_some_and(|document| document.body.is_some());
        match edit.presence {
            Presence::Absent if is_alive || edit.sees_tombstones && known.is_some() => {
                return Err(KvError::Exists);
            }
            Presence::Present if !(is_alive || edit.sees_tombstones && known.is_some()) => {
                return Err(KvError::NotFound);
            }
            _ => {}
        }
        let known = known.filter(|_| is_alive || edit.sees_tombstones).unwrap_or_default();
        if edit.cas != 0 && edit.cas != known.cas {
            return Err(KvError::Exists);
        }
        assert!(!edit.revives || !is_alive, "only a tombstone can be revived");
        let creates = edit.presence != Presence::Present;
        let mut made = known.clone();
        if !is_alive && !edit.hides && !edit.sees_tombstones {
            made.body = Some(Value::Null);
        }
        let cas = self.next_cas();
        for part in &edit.parts {
            let missing = || KvError::Path("path not found".into());
            match part {
                Part::Add(path, value) => {
                    if at(&made.attributes, path).is_some() {
                        return Err(KvError::Path("path exists".into()));
                    }
                    let value = serde_json::from_slice(value).unwrap();
                    put(&mut made.attributes, path, value, creates).ok_or_else(missing)?;
                }
                Part::Set(path, value) | Part::SetWhole(path, value) => {
                    let value = serde_json::from_slice(value).unwrap();
                    put(&mut made.attributes, path, value, creates).ok_or_else(missing)?;
                }
                Part::SetComputed(path, value) => {
                    assert!(value.starts_with("\"${"), "{value} is no macro");
                    let value = json!(format!("0x{:016x}", cas.swap_bytes()));
                    put(&mut made.attributes, path, value, creates).ok_or_else(missing)?;
                }
                Part::Remove(path) => {
                    at(&made.attributes, path).ok_or_else(missing)?;
                    match path.rsplit_once('.') {
                        None => drop(made.attributes.remove(path)),
                        Some((above, last)) => {
                            let above =
                                made.attributes.get_mut(above).and_then(Value::as_object_mut);
                            above.unwrap().remove(last);
                        }
                    }
                }
                Part::Body(_) => made.body = Some(Value::Null),
                Part::BodyFrom(path, _) => {
                    made.body = Some(at(&made.attributes, path).ok_or_else(missing)?.clone());
                }
            }
        }
        made.cas = cas;
        documents.insert(id.to_owned(), made);
        Ok(cas)
    }

    fn remove(&self, id: &str, cas: u64) -> Result<u64, KvError> {
        let found = self.cas_of(id).ok_or(KvError::NotFound)?;
        if found != cas {
            return Err(KvError::Exists);
        }
        let cas = self.next_cas();
        self.documents.borrow_mut().insert(id.to_owned(), Stored { cas, ..Stored::default() });
        Ok(cas)
    }
}

impl Documents for Memory {
    fn step(&self, place: &Place, step: Step) -> Result<StepReply, KvError> {
        let lost = || KvError::Temporary("nobody answers".into());
        if self.ends_at.is_some_and(|end| self.writes.get() >= end) {
            return Err(lost());
        }
        let written = match &step {
            Step::Look(paths) => {
                let documents = self.documents.borrow();
                let found = documents.get(&place.id).ok_or(KvError::NotFound)?;
                let one =
                    |path: &String| Some(at(&found.attributes, path)?.to_string().into_bytes());
                return Ok(StepReply::Looked(LookupResult {
                    cas: found.cas,
                    is_tombstone: found.body.is_none(),
                    found: paths.iter().map(one).collect(),
                }));
            }
            Step::Edit(edit, _) => self.edit(&place.id, edit),
            Step::Remove(cas, _) => self.remove(&place.id, *cas),
        };
        self.writes.set(self.writes.get() + 1);
        if self.loses == Some(self.writes.get()) {
            return Err(lost());
        }
        written.map(StepReply::Written)
    }
}

fn attempt(id: &str) -> Attempt {
    Attempt {
        transaction: format!("t-{id}"),
        id: id.into(),
        records: None,
        record: None,
        durability: Durability::Majority,
    }
}

/// One change of each kind: `old` is removed, `kept` becomes 2, `new` is inserted.
fn changes(memory: &Memory) -> Changes {
    let mut changes = Changes::new(0);
    let made =
        [(Action::Remove, "old", 0), (Action::Replace, "kept", 2), (Action::Insert, "new", 3)];
    for (action, id, n) in made {
        let body = format!("{{\"n\":{n}}}").into_bytes();
        let mutation = Mutation { action, id: id.into(), body, cas: 0, expiry: None };
        changes.apply(&keyspace(), mutation, memory.cas_of(id)).unwrap();
    }
    changes
}

const BEFORE: [(&str, i64); 2] = [("kept", 1), ("old", 0)];

fn before() -> BTreeMap<String, i64> {
    BEFORE.map(|(id, n)| (id.to_owned(), n)).into()
}

fn after() -> BTreeMap<String, i64> {
    [("kept", 2), ("new", 3)].map(|(id, n)| (id.to_owned(), n)).into()
}

fn an_hour() -> Duration {
    Duration::from_secs(3600)
}

#[test]
fn a_commit_makes_all_changes_and_leaves_nothing_behind() {
    let memory = Memory::with(&BEFORE);
    let mut attempt = attempt("a");
    assert_eq!(attempt.commit(&changes(&memory), &memory, &an_hour), Ok(true));
    assert_eq!(memory.visible(), after());
    assert_eq!(memory.staged(), [""; 0]);
    assert_eq!(memory.entry(&attempt), None);
}

/// The process ends after each write in turn, and a cleanup finds the rest.
#[test]
fn a_crash_at_any_step_leaves_all_or_nothing_after_the_cleanup() {
    let whole = Memory::with(&BEFORE);
    attempt("a").commit(&changes(&whole), &whole, &an_hour).unwrap();
    let (mut committed, mut undone) = (0, 0);
    for end in 0..whole.writes.get() {
        let mut memory = Memory { ends_at: Some(end), ..Memory::with(&BEFORE) };
        let mut ended = attempt("a");
        let outcome = ended.commit(&changes(&memory), &memory, &an_hour);
        memory.ends_at = None;
        let entry = memory.entry(&ended);
        let is_committed =
            entry.as_ref().is_some_and(|entry| entry.state == record::state::COMMITTED);
        // The record is edited last, so an empty record means that all documents are done.
        let is_done = entry.is_none() && outcome == Ok(true);
        if !is_committed && !is_done {
            assert_eq!(memory.visible(), before(), "after {end} writes");
        }
        if let Some(entry) = &entry {
            assert!(ended.finish(entry, &memory), "after {end} writes");
        }
        assert_eq!(memory.entry(&ended), None, "after {end} writes");
        let expected = if is_committed || is_done { after() } else { before() };
        assert_eq!(memory.visible(), expected, "after {end} writes: {outcome:?}");
        *(if is_committed { &mut committed } else { &mut undone }) += 1;
        // A leftover of a forgotten transaction does not block another one.
        assert_eq!(attempt("b").commit(&changes_again(&memory), &memory, &an_hour), Ok(true));
        assert_eq!(memory.staged(), [""; 0], "after {end} writes");
    }
    assert!(committed >= 3 && undone >= 4, "{committed} and {undone}");
}

/// Another transaction that changes all documents.
fn changes_again(memory: &Memory) -> Changes {
    let mut changes = Changes::new(0);
    for id in ["kept", "new", "old"] {
        let body = b"{\"n\":9}".to_vec();
        let mutation =
            Mutation { action: Action::Upsert, id: id.into(), body, cas: 0, expiry: None };
        changes.apply(&keyspace(), mutation, memory.cas_of(id)).unwrap();
    }
    changes
}

/// The answer to each write in turn is lost, although the write was applied.
#[test]
fn a_lost_answer_does_not_change_the_outcome() {
    let whole = Memory::with(&BEFORE);
    attempt("a").commit(&changes(&whole), &whole, &an_hour).unwrap();
    for lost in 1..=whole.writes.get() {
        let memory = Memory { loses: Some(lost), ..Memory::with(&BEFORE) };
        let mut attempt = attempt("a");
        let outcome = attempt.commit(&changes(&memory), &memory, &an_hour);
        if let Some(entry) = memory.entry(&attempt) {
            assert!(attempt.finish(&entry, &memory), "{lost}");
        }
        let expected = if outcome.is_ok() { after() } else { before() };
        assert_eq!(memory.visible(), expected, "{lost}: {outcome:?}");
    }
}

#[test]
fn the_first_of_two_conflicting_transactions_to_commit_wins() {
    let memory = Memory::with(&BEFORE);
    let (mut one, mut other) = (attempt("a"), attempt("b"));
    let (first, second) = (changes(&memory), changes_again(&memory));
    assert_eq!(one.commit(&first, &memory, &an_hour), Ok(true));
    let refused = other.commit(&second, &memory, &an_hour);
    assert!(matches!(refused, Err(Stopped::Conflict(_))), "{refused:?}");
    assert_eq!((memory.visible(), memory.staged()), (after(), Vec::new()));
    assert_eq!(memory.entry(&other), None);
}

#[test]
fn documents_staged_by_a_live_transaction_are_left_alone() {
    // The process ends when everything is staged but nothing is decided.
    let mut memory = Memory { ends_at: Some(4), ..Memory::with(&BEFORE) };
    let mut waiting = attempt("a");
    assert!(waiting.commit(&changes(&memory), &memory, &an_hour).is_err());
    memory.ends_at = None;
    assert_eq!(memory.staged(), ["kept", "new", "old"]);
    for id in ["kept", "new", "old"] {
        let mut changes = Changes::new(0);
        let body = b"{\"n\":9}".to_vec();
        let mutation =
            Mutation { action: Action::Upsert, id: id.into(), body, cas: 0, expiry: None };
        changes.apply(&keyspace(), mutation, memory.cas_of(id)).unwrap();
        let refused = attempt("b").commit(&changes, &memory, &an_hour);
        assert!(matches!(refused, Err(Stopped::Conflict(_))), "{id}: {refused:?}");
    }
    assert_eq!((memory.visible(), memory.staged().len()), (before(), 3));
}

#[test]
fn a_late_commit_is_refused_and_undone() {
    let memory = Memory::with(&BEFORE);
    let asked = Cell::new(0);
    // The transaction expires when two documents are staged.
    let left = || {
        asked.set(asked.get() + 1);
        if asked.get() > 3 { Duration::ZERO } else { Duration::from_secs(1) }
    };
    let refused = attempt("a").commit(&changes(&memory), &memory, &left);
    assert_eq!(refused, Err(Stopped::Expired));
    assert_eq!((memory.visible(), memory.staged()), (before(), Vec::new()));
}

#[test]
fn a_transaction_that_was_cleaned_up_cannot_commit() {
    let mut memory = Memory { ends_at: Some(4), ..Memory::with(&BEFORE) };
    let mut slow = attempt("a");
    let changes = changes(&memory);
    assert!(slow.commit(&changes, &memory, &an_hour).is_err());
    memory.ends_at = None;
    let entry = memory.entry(&slow).unwrap();
    assert!(slow.finish(&entry, &memory));
    assert!(slow.commit(&changes, &memory, &an_hour).is_err(), "its entry is gone");
    assert_eq!((memory.visible(), memory.entry(&slow)), (before(), None));
}

/// Changes that an SDK has staged are taken over: each is committed unchanged, changed once more, or
/// removed.
#[test]
fn documents_that_were_already_staged_commit_and_roll_back_with_the_rest() {
    for commits in [true, false] {
        // The SDK has staged an insertion and a replacement, and hands over here.
        let memory = Memory::with(&BEFORE);
        let record = record::record_of(&Place { keyspace: keyspace(), id: "new".into() }, None);
        let mut attempt = attempt("a");
        let names = record::Names { transaction: "t-a", attempt: "a", record: &record };
        memory.edit(&record.id, &names.pending(an_hour(), Durability::Majority)).unwrap();
        let mut changes = Changes::new(0);
        for (id, kind, body) in
            [("new", Kind::Insert, "{\"n\":3}"), ("kept", Kind::Replace, "{\"n\":5}")]
        {
            let cas = memory.cas_of(id).unwrap_or(0);
            let cas = memory.edit(id, &names.staged(kind, body.as_bytes(), "o", cas)).unwrap();
            let staged = Staged {
                kind,
                body: body.into(),
                expiry: None,
                cas,
                stored_cas: cas,
                stored: Some(kind),
                is_dirty: false,
            };
            changes.take_over(Place { keyspace: keyspace(), id: id.into() }, staged);
        }
        attempt.record = Some(record);
        for (action, id) in [(Action::Replace, "kept"), (Action::Remove, "old")] {
            let body = b"{\"n\":2}".to_vec();
            let mutation = Mutation { action, id: id.into(), body, cas: 0, expiry: None };
            changes.apply(&keyspace(), mutation, memory.cas_of(id)).unwrap();
        }
        let expected = match commits {
            true => {
                assert_eq!(attempt.commit(&changes, &memory, &an_hour), Ok(true));
                after()
            }
            false => {
                attempt.roll_back(&changes, &memory);
                before()
            }
        };
        assert_eq!((memory.visible(), memory.staged()), (expected, Vec::new()));
        assert_eq!(memory.entry(&attempt), None);
    }
}

/// Returns the account of a user without a memory limit.
fn ann() -> Arc<Account> {
    Budgets::default().of_user("ann")
}

fn now(seconds: u64) -> Now {
    let ns = seconds * 1_000_000_000;
    Now { monotonic_ns: ns, unix_ns: ns }
}

fn transaction(id: &str, ends: u64) -> Box<Transaction> {
    let ends_ns = now(ends).monotonic_ns;
    Box::new(Transaction { attempt: attempt(id), changes: Changes::new(0), ends_ns })
}

#[test]
fn a_transaction_belongs_to_one_user_and_one_request_at_a_time() {
    let all = Transactions::default();
    all.add(transaction("a", 10), &ann(), Duration::from_secs(10), now(0)).unwrap();
    let code =
        |user: &str, id: &str, number| all.join(id, number, user, now(1)).err().map(|e| e.code);
    assert_eq!(code("bob", "a", None), Some(17004));
    assert_eq!(code("ann", "b", None), Some(17004));
    let joined = all.join("a", Some(4), "ann", now(1)).unwrap();
    assert_eq!(code("ann", "a", None), Some(17013));
    all.leave(joined, now(1));
    assert_eq!(code("ann", "a", Some(4)), Some(17005));
    assert_eq!(code("ann", "a", Some(5)), None);
    let begun = all.add(transaction("a", 10), &ann(), Duration::from_secs(10), now(0));
    assert_eq!(begun.err().map(|error| error.code), Some(17006), "one of this id has begun");
}

#[test]
fn an_expired_transaction_is_released_and_later_removed() {
    let all = Transactions::default();
    all.add(transaction("a", 10), &ann(), Duration::from_secs(10), now(0)).unwrap();
    assert_eq!(all.rows(None, "n", now(9)).len(), 1);
    assert_eq!(all.rows(Some("bob"), "n", now(9)).len(), 0);
    // A request keeps the transaction that it uses until it leaves.
    let joined = all.join("a", None, "ann", now(9)).unwrap();
    all.leave(joined, now(11));
    assert!(all.0.lock()["a"].at_rest.is_none());
    assert_eq!(all.rows(None, "n", now(11)).len(), 0);
    assert_eq!(all.join("a", None, "ann", now(11)).err().map(|e| e.code), Some(17010));
    all.prune(now(71));
    assert_eq!(all.0.lock().len(), 0);
}

#[test]
fn one_user_leaves_transactions_to_others() {
    let (all, budgets) = (Transactions::default(), Budgets::default());
    let begin = |user: &str, number: usize| {
        let begun = transaction(&format!("{user}-{number}"), 10);
        all.add(begun, &budgets.of_user(user), Duration::from_secs(10), now(0))
    };
    for number in 0..COUNT_OF_USER_MAX {
        begin("ann", number).unwrap();
    }
    let refused = begin("ann", COUNT_MAX).unwrap_err();
    let message = "ann has 256 transactions on this node already";
    assert_eq!((refused.code, refused.message.as_str(), refused.retry), (17006, message, true));
    begin("bob", 0).unwrap();
    all.end("ann-0");
    begin("ann", COUNT_MAX).unwrap();
}

#[test]
fn changes_take_memory_of_their_user() {
    let (all, budgets) = (Transactions::default(), Budgets::default());
    budgets.requests.set_limit(80 << 20);
    let user = budgets.of_user("ann");
    all.add(transaction("a", 10), &user, Duration::from_secs(10), now(0)).unwrap();
    let mut joined = all.join("a", None, "ann", now(1)).unwrap();
    let mut change = |id: &str| {
        let body = vec![b'1'; 6 << 20];
        let (action, id) = (Action::Upsert, id.to_owned());
        let mutation = Mutation { action, id, body, cas: 0, expiry: None };
        joined.changes.apply(&keyspace(), mutation, None).unwrap();
        all.check_size(&joined, &user)
    };
    for id in ["a", "b", "c"] {
        change(id).unwrap();
    }
    let refused = change("d").unwrap_err();
    assert_eq!(refused.code, 17016, "the share of a user is 20 MiB: {}", refused.message);
    all.leave(joined, now(1));
    assert!(user.held() > 24 << 20);
    all.prune(now(71));
    assert_eq!(user.held(), 0);
}
