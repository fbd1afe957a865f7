//! Devices and their hub in one thread, with single failures examined closely. `tests/devices` has random failures.

use crate::{Hand, by_hand, open};
use nacre::{
    Collection, Db, Failure, LineId, Notice, Options, Session, Since, SyncOptions, SyncSession,
    Write,
};
use nacre_store::{Fault, FaultStore, MemoryStore};
use std::collections::BTreeMap;
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LINE: LineId = LineId(0);
const ORDERS: &str = "shop.orders";
const PRICES: &str = "shop.prices";
/// Maximum number of steps until both sides must be in step.
const STEPS: usize = 2_000;

/// Returns options with a separate clock, so that the wall clocks of two sites differ.
fn options(clock: &Arc<Hand>) -> Options {
    Options { clock: Arc::clone(clock) as _, vbuckets: 4, ..by_hand() }
}

fn orders(db: &Db) -> Collection {
    db.collection(ORDERS).unwrap()
}

fn put(db: &Db, key: &str, value: &str) {
    orders(db).upsert(key, value.as_bytes(), Write::new()).unwrap();
}

fn get(db: &Db, key: &str) -> Option<String> {
    let found = orders(db).get(key).unwrap()?;
    Some(String::from_utf8(found.body().to_vec()).unwrap())
}

/// Returns every document with its version.
fn all(db: &Db) -> BTreeMap<String, (String, u64)> {
    let documents = orders(db).scan(nacre::Range::all()).unwrap().map(Result::unwrap);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    documents.map(|found| (text(found.key()), (text(found.body()), found.cas().0))).collect()
}

fn session(db: &Db) -> SyncSession {
    db.sync_session(&SyncOptions::new("").collections([ORDERS, PRICES])).unwrap()
}

/// A device connected to its hub.
struct Link<'h> {
    hub: &'h Db,
    hub_clock: &'h Hand,
    clock: &'h Hand,
    at_hub: Session,
    /// Bytes in flight to the device, and the number that arrive in a step.
    answers: Vec<u8>,
    bytes_max: usize,
    notices: Vec<Notice>,
}

impl<'h> Link<'h> {
    fn new(
        (hub, hub_clock): (&'h Db, &'h Hand),
        clock: &'h Hand,
        device: &mut SyncSession,
    ) -> Link<'h> {
        device.connected(LINE, &hub.hello()).unwrap();
        let at_hub = hub.session(|| {}).unwrap();
        let (answers, notices) = (Vec::new(), Vec::new());
        Link { hub, hub_clock, clock, at_hub, answers, bytes_max: usize::MAX, notices }
    }

    /// Transfers all bytes to the hub, and its answers back.
    fn step(&mut self, device: &mut SyncSession) -> Result<(), Failure> {
        self.step_if(device, |_| true)
    }

    /// Like `step`, but the answers arrive only if the condition is true once the hub has received the bytes.
    fn step_if(
        &mut self,
        device: &mut SyncSession,
        arrives: impl FnOnce(&Db) -> bool,
    ) -> Result<(), Failure> {
        let time = Duration::from_millis(200);
        self.hub_clock.pass(time);
        self.clock.pass(time);
        self.hub.poll().unwrap();
        device.db().poll().unwrap();
        device.advance()?;
        let output = device.output(LINE).map(std::mem::take).unwrap_or_default();
        self.at_hub.receive(&output, &mut self.answers).unwrap();
        self.at_hub.poll(&mut self.answers).unwrap();
        if arrives(self.hub) {
            let count = self.answers.len().min(self.bytes_max);
            let arrived: Vec<u8> = self.answers.drain(..count).collect();
            device.receive(LINE, &arrived)?;
        }
        while let Some(notice) = device.next_notice() {
            self.notices.push(notice);
        }
        Ok(())
    }

    /// Continues until both sides have everything that the other one has.
    fn settle(&mut self, device: &mut SyncSession) {
        let mut quiet = 0;
        for _ in 0..STEPS {
            device.ask();
            for _ in 0..4 {
                self.step(device).unwrap();
            }
            quiet = if device.is_in_step() { quiet + 1 } else { 0 };
            if quiet > 2 {
                return;
            }
        }
        panic!("not in step: {:?}, {:?}", device.status(), self.notices);
    }
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn read(root: &Path, folder: &Path, found: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => read(root, &entry, found),
            false => {
                let name = entry.strip_prefix(root).unwrap().to_owned();
                found.insert(name, std::fs::read(&entry).unwrap());
            }
        }
    }
}

fn on_disk(folder: &Path) -> Files {
    let mut found = Files::new();
    read(folder, folder, &mut found);
    found
}

/// Restores the content of a folder. The folder itself, and so its inode, stays the same.
fn put_back(folder: &Path, files: &Files) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => std::fs::remove_dir_all(entry).unwrap(),
            false => std::fs::remove_file(entry).unwrap(),
        }
    }
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// A hub, and the folder and the clock of a device.
struct Sites {
    hub: Db,
    hub_clock: Arc<Hand>,
    clock: Arc<Hand>,
    folder: tempfile::TempDir,
    _hub_folder: tempfile::TempDir,
}

impl Sites {
    fn new() -> Sites {
        let (hub_clock, clock) = (Arc::new(Hand::default()), Arc::new(Hand::default()));
        let (hub_folder, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hub = open(hub_folder.path(), &options(&hub_clock));
        hub.collection(ORDERS).unwrap();
        hub.collection(PRICES).unwrap();
        Sites { hub, hub_clock, clock, folder, _hub_folder: hub_folder }
    }

    fn device(&self) -> Db {
        open(self.folder.path(), &options(&self.clock))
    }

    fn link(&self, device: &mut SyncSession) -> Link<'_> {
        Link::new((&self.hub, &*self.hub_clock), &self.clock, device)
    }

    /// Brings a device in step; returns its notices.
    fn settle(&self, db: &Db) -> Vec<Notice> {
        let mut device = session(db);
        let mut link = self.link(&mut device);
        link.settle(&mut device);
        device.save().unwrap();
        link.notices
    }
}

// Case 1: the hub returns what a device lost in a power cut, and refuses a token of the lost history.
#[test]
fn versions_lost_by_a_device_in_a_power_cut_come_back_from_the_hub() {
    let sites = Sites::new();
    let db = sites.device();
    put(&db, "kept", "1");
    sites.settle(&db);
    db.flush().unwrap();
    let before = on_disk(sites.folder.path());
    put(&db, "lost", "2");
    sites.settle(&db);
    let mut changes = db.changes(Since::Start).unwrap();
    while changes.try_next().unwrap().is_some() {}
    let token = changes.token();
    drop(changes);
    drop(db);
    put_back(sites.folder.path(), &before);
    let db = sites.device();
    assert_eq!(get(&db, "lost"), None, "the power cut has taken it");
    let refused = db.changes(Since::Token(&token)).map(drop);
    assert!(matches!(refused, Err(nacre::Error::Gone(_))), "{refused:?}");
    sites.settle(&db);
    assert_eq!(all(&db), all(&sites.hub));
    assert_eq!(get(&db, "lost").as_deref(), Some("2"));
    assert!(db.parked().unwrap().is_empty());
}

// Case 2: a device is killed in the middle of a pull.
#[test]
fn a_device_that_was_killed_in_the_middle_of_a_pull_takes_the_rest_once() {
    let sites = Sites::new();
    let db = sites.device();
    put(&db, "both", "device");
    db.flush().unwrap();
    for number in 0..300 {
        put(&sites.hub, &format!("k{number}"), &number.to_string());
    }
    put(&sites.hub, "both", "hub");
    let at_hub = all(&sites.hub);
    let mut device = session(&db);
    let mut link = sites.link(&mut device);
    link.bytes_max = 1000;
    for _ in 0..STEPS {
        link.step(&mut device).unwrap();
        if device.status().pulled > 20 {
            break;
        }
    }
    assert!((21..300).contains(&device.status().pulled), "{:?}", device.status());
    // Some of it is on disk and some is not.
    let killed = on_disk(sites.folder.path());
    drop((link, device, db));
    put_back(sites.folder.path(), &killed);
    let db = sites.device();
    sites.settle(&db);
    let after = all(&sites.hub);
    assert_eq!(all(&db), after);
    for (key, found) in at_hub.iter().filter(|(key, _)| *key != "both") {
        assert_eq!(after.get(key), Some(found), "the hub has {key} as before");
    }
    assert_eq!(db.parked().unwrap().len(), 1, "the conflict counts once");
    // No work is left.
    sites.settle(&db);
    assert_eq!((all(&db), db.parked().unwrap().len()), (after, 1));
}

// Case 3: a device is killed in the middle of a push, and the answers are lost.
#[test]
fn versions_whose_answers_were_lost_are_sent_again_without_any_effect() {
    let sites = Sites::new();
    let db = sites.device();
    sites.settle(&db);
    for number in 0..60 {
        put(&db, &format!("k{number}"), &number.to_string());
    }
    db.flush().unwrap();
    let killed = on_disk(sites.folder.path());
    let mut device = session(&db);
    let mut link = sites.link(&mut device);
    for _ in 0..STEPS {
        // Answers arrive until the streams are open.
        link.step_if(&mut device, |hub| all(hub).is_empty()).unwrap();
        if all(&sites.hub).len() > 20 {
            break;
        }
    }
    let first = all(&sites.hub);
    assert!(first.len() > 20, "{} of 60 have arrived", first.len());
    assert_eq!(device.status().pushed, 0, "no answer has arrived");
    drop((link, device, db));
    put_back(sites.folder.path(), &killed);
    let db = sites.device();
    sites.settle(&db);
    let second = all(&sites.hub);
    assert_eq!(second.len(), 60);
    assert_eq!(all(&db), second);
    for (key, found) in &first {
        assert_eq!(second.get(key), Some(found), "{key} has no second version");
    }
    assert!(db.parked().unwrap().is_empty());
}

// Case 6: the disk of a device is full while it is in step.
#[test]
fn sync_pauses_on_a_full_disk_and_continues_by_itself() {
    let sites = Sites::new();
    let store = Arc::new(FaultStore::new(MemoryStore::default()));
    let db = Db::open_over(Arc::clone(&store) as Arc<_>, true, options(&sites.clock)).unwrap();
    sites.settle(&db);
    for number in 0..50 {
        put(&sites.hub, &format!("k{number}"), "1");
    }
    let mut device = session(&db);
    let mut link = sites.link(&mut device);
    store.inject(Some(Fault::Full));
    let failure = (0..STEPS).find_map(|_| {
        let stepped = link.step(&mut device).err();
        stepped.or_else(|| device.save().err())
    });
    let failure = failure.expect("positions cannot be stored");
    assert!(failure.is_temporary(), "{failure}");
    assert!(failure.to_string().contains("full"), "{failure}");
    device.disconnected(LINE);
    assert!(db.status().is_full);
    store.inject(None);
    let mut link = sites.link(&mut device);
    link.settle(&mut device);
    assert_eq!(all(&db), all(&sites.hub));
}

// Case 8: a folder is restored from a backup that is older than what was sent.
#[test]
fn a_restored_folder_loses_nothing_that_it_sent_and_nothing_that_it_writes() {
    let sites = Sites::new();
    let db = sites.device();
    put(&db, "a", "1");
    sites.settle(&db);
    db.close().unwrap();
    drop(db);
    let backup = on_disk(sites.folder.path());
    let db = sites.device();
    put(&db, "a", "2");
    put(&db, "sent", "2");
    sites.settle(&db);
    db.close().unwrap();
    drop(db);
    put_back(sites.folder.path(), &backup);
    let db = sites.device();
    assert_eq!(get(&db, "a").as_deref(), Some("1"));
    put(&db, "new", "3");
    sites.settle(&db);
    assert_eq!(all(&db), all(&sites.hub));
    assert_eq!(get(&db, "a").as_deref(), Some("2"), "what was sent comes back");
    assert_eq!(get(&db, "sent").as_deref(), Some("2"));
    assert_eq!(get(&sites.hub, "new").as_deref(), Some("3"));
}

// Case 9: a folder is copied to a second device.
#[test]
fn a_copy_on_a_second_device_has_a_name_of_its_own() {
    let sites = Sites::new();
    let db = sites.device();
    put(&db, "shared", "0");
    sites.settle(&db);
    db.close().unwrap();
    drop(db);
    let copy = tempfile::tempdir().unwrap();
    put_back(copy.path(), &on_disk(sites.folder.path()));
    let (first, second) = (sites.device(), open(copy.path(), &options(&sites.clock)));
    // At the same time, according to their clocks.
    put(&first, "shared", "first");
    put(&second, "shared", "second");
    put(&first, "of first", "1");
    put(&second, "of second", "2");
    for db in [&first, &second, &first] {
        sites.settle(db);
    }
    assert_eq!(all(&first), all(&sites.hub));
    assert_eq!(all(&second), all(&sites.hub));
    assert_eq!(get(&sites.hub, "of first").as_deref(), Some("1"));
    assert_eq!(get(&sites.hub, "of second").as_deref(), Some("2"));
    let kept = get(&sites.hub, "shared").unwrap();
    let parked = [first.parked().unwrap(), second.parked().unwrap()].concat();
    assert_eq!(parked.len(), 1, "one of both is put aside");
    let parked = String::from_utf8(parked[0].clone()).unwrap();
    for edit in ["first", "second"] {
        assert!(kept == edit || parked.contains(edit) || parked.contains("base64"), "{parked}");
    }
}

// Case 10: the clock of a device is a year ahead.
#[test]
fn a_device_whose_clock_is_a_year_ahead_does_not_win_for_a_year() {
    let sites = Sites::new();
    sites.clock.ahead_s.store(365 * 86_400, Ordering::Relaxed);
    let db = sites.device();
    put(&db, "a", "ahead");
    sites.settle(&db);
    let (_, cas) = all(&sites.hub)["a"].clone();
    let limit_ns = (Hand::BEGIN_S + 3600) * 1_000_000_000 + sites.hub_clock.ns();
    assert!(cas < limit_ns, "the hub got a version of its own time: {cas}");
    assert_eq!(all(&db), all(&sites.hub));
    // A later edit at the hub wins.
    sites.hub_clock.pass(Duration::from_secs(60));
    put(&sites.hub, "a", "later");
    sites.settle(&db);
    assert_eq!(get(&db, "a").as_deref(), Some("later"));
    assert!(db.parked().unwrap().is_empty(), "nobody has edited it meanwhile");
}

// Case 12: a device was away for longer than the hub keeps deletions.
#[test]
fn a_device_that_was_away_too_long_compares_and_brings_nothing_back() {
    let sites = Sites::new();
    let db = sites.device();
    for key in ["gone", "edited", "stays"] {
        put(&sites.hub, key, "0");
    }
    sites.settle(&db);
    let mut changes = sites.hub.changes(Since::Start).unwrap();
    while changes.try_next().unwrap().is_some() {}
    let token = changes.token();
    drop(changes);
    orders(&sites.hub).remove("gone", Write::new()).unwrap();
    // The history of each vBucket continues.
    for number in 0..20 {
        put(&sites.hub, &format!("more{number}"), "0");
    }
    sites.hub.flush().unwrap();
    put(&db, "edited", "1");
    put(&db, "new", "1");
    // The hub has purged the deletion once it refuses positions before it.
    sites.hub_clock.pass(Duration::from_secs(61 * 86_400));
    let forgotten = (0..STEPS).any(|_| {
        sites.hub_clock.pass(Duration::from_secs(600));
        sites.hub.poll().unwrap();
        sites.hub.flush().unwrap();
        matches!(sites.hub.changes(Since::Token(&token)), Err(nacre::Error::Gone(_)))
    });
    assert!(forgotten, "the hub purges tombstones");
    let notices = sites.settle(&db);
    assert!(notices.contains(&Notice::Again { lost: false }), "{notices:?}");
    let at_hub = all(&sites.hub);
    assert_eq!(all(&db), at_hub);
    let keys: Vec<&String> = at_hub.keys().filter(|key| !key.starts_with("more")).collect();
    assert_eq!(keys, ["edited", "new", "stays"]);
    assert_eq!(get(&sites.hub, "edited").as_deref(), Some("1"));
}

// Case 17: a collection is dropped at the hub while a device has edits for it.
#[test]
fn edits_of_a_collection_that_was_dropped_stay_and_are_put_aside_once_sent() {
    let sites = Sites::new();
    let db = sites.device();
    put(&db, "a", "1");
    let mut device = session(&db);
    let mut link = sites.link(&mut device);
    link.settle(&mut device);
    sites.hub.drop_collection("shop", "orders").unwrap();
    // Sent before the device learns of it.
    put(&db, "late", "2");
    for _ in 0..40 {
        if link.step(&mut device).is_err() {
            break;
        }
    }
    device.disconnected(LINE);
    drop((link, device));
    let notices = sites.settle(&db);
    assert!(notices.contains(&Notice::NoCollection(ORDERS.into())), "{notices:?}");
    assert_eq!(get(&db, "a").as_deref(), Some("1"), "what is on the device stays");
    assert_eq!(get(&db, "late").as_deref(), Some("2"));
    let parked = db.parked().unwrap();
    let parked: Vec<serde_json::Value> =
        parked.iter().map(|record| serde_json::from_slice(record).unwrap()).collect();
    assert!(parked.iter().all(|record| record["reason"] == "collection_gone"), "{parked:?}");
    assert!(db.find_collection(ORDERS).unwrap().is_some());
}

// Case 20: not the hub answers, but the login page of a captive portal.
#[test]
fn a_login_page_in_place_of_the_hub_changes_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/default", listener.local_addr().unwrap());
    let (sender, attempts) = mpsc::channel();
    std::thread::spawn(move || {
        let page = "Content-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>";
        for status in ["200 OK", "401 Unauthorized", "302 Found\r\nLocation: /login"] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /_sync/default"));
            sender.send(Instant::now()).unwrap();
            write!(stream, "HTTP/1.1 {status}\r\n{page}").unwrap();
        }
    });
    let db = Db::open(":memory:").unwrap();
    put(&db, "a", "1");
    let options = SyncOptions::new(url).login("user", "secret").collections([ORDERS]);
    let sync = db.sync(options).unwrap();
    let patience = Duration::from_secs(30);
    let times: Vec<Instant> = (0..3).map(|_| attempts.recv_timeout(patience).unwrap()).collect();
    // 1 s and 2 s, each a quarter more or less.
    assert!(times[1] - times[0] >= Duration::from_millis(700), "{times:?}");
    assert!(times[2] - times[1] >= Duration::from_millis(1400), "{times:?}");
    let status = sync.status();
    assert!(matches!(status.state, nacre::SyncState::Offline | nacre::SyncState::Connecting));
    assert_eq!((status.pulled, status.pushed, status.parked), (0, 0, 0));
    drop(sync);
    let rows = db.collection("nacre-sync.state").unwrap().scan(nacre::Range::all()).unwrap();
    assert_eq!(rows.count(), 0, "no position was stored");
    assert_eq!(get(&db, "a").as_deref(), Some("1"));
}

// Case 19: a document that the hub never takes.
#[test]
fn a_document_that_the_hub_refuses_is_put_aside_and_others_continue() {
    let sites = Sites::new();
    let db = sites.device();
    sites.settle(&db);
    // The largest allowed document; with its history it is larger.
    let large = vec![b'x'; nacre_types::VALUE_BYTES_MAX];
    orders(&db).upsert("large", &large, Write::new()).unwrap();
    put(&db, "small", "1");
    sites.settle(&db);
    assert_eq!(get(&sites.hub, "small").as_deref(), Some("1"));
    assert!(orders(&sites.hub).get("large").unwrap().is_none());
    let parked = db.parked().unwrap();
    assert_eq!(parked.len(), 1);
    let record: serde_json::Value = serde_json::from_slice(&parked[0]).unwrap();
    assert!(record["reason"].as_str().unwrap().starts_with("refused: "), "{}", record["reason"]);
    let bodies = db.collection(nacre::PARKED_BODIES_COLLECTION).unwrap();
    let stored = bodies.get(record["stored"].as_str().unwrap()).unwrap().unwrap();
    assert_eq!(stored.body(), large, "a record of it would be larger than a document may be");
    assert!(orders(&db).get("large").unwrap().is_some(), "it stays on the device");
}
