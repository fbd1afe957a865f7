//! A database in a folder, with operations to kill its process and copy its folder.

use super::chance::Chance;
use super::ledger::{EditId, Ledger, body_of, edits_of};
use nacre::{Clock, Collection, Db, Now, Options, Sync, Threads, Write};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A wall clock that may be wrong and a correct monotonic clock, with repeatable random numbers.
#[derive(Default)]
pub(crate) struct SiteClock {
    pub now_ns: Arc<AtomicU64>,
    pub skew_s: AtomicI64,
    /// The clock shows multiples of this. With a coarse one, edits on several devices have the same CAS.
    pub tick_ns: u64,
    /// No two sites begin at the same number, so that the names of their histories differ.
    pub random: Mutex<Chance>,
}

/// The second at which runs begin.
const BEGIN_S: u64 = 1_800_000_000;

impl Clock for SiteClock {
    fn now(&self) -> Now {
        let monotonic_ns = self.now_ns.load(Ordering::Relaxed);
        let skew_ns = self.skew_s.load(Ordering::Relaxed) * 1_000_000_000;
        let unix_ns = BEGIN_S * 1_000_000_000 + monotonic_ns;
        let unix_ns = unix_ns.saturating_add_signed(skew_ns);
        let unix_ns = unix_ns - unix_ns % self.tick_ns.max(1);
        Now { unix_ns, monotonic_ns }
    }

    fn random(&self) -> u64 {
        self.random.lock().expect("no test panics with it").number()
    }
}

/// The collections that are in step.
pub(crate) const PATHS: [&str; 2] = ["_default._default", "shop.orders"];

/// A device or the hub.
pub(crate) struct Site {
    pub name: String,
    pub clock: Arc<SiteClock>,
    vbuckets: u16,
    folder: PathBuf,
    /// Number of copies of the folder, so that each copy has a unique name.
    copies: u32,
    /// `None` only while the process is replaced.
    db: Option<Db>,
    /// Edits that may not be stored yet.
    unstored: Vec<EditId>,
}

impl Site {
    pub fn new(name: &str, vbuckets: u16, place: &Path, clock: Arc<SiteClock>) -> Site {
        let folder = place.join(name);
        let mut site = Site {
            name: name.to_owned(),
            clock,
            vbuckets,
            folder,
            copies: 0,
            db: None,
            unstored: Vec::new(),
        };
        site.open();
        site
    }

    fn open(&mut self) {
        let options = Options {
            sync: Sync::Never,
            quota_mib: 4,
            vbuckets: self.vbuckets,
            segment_bytes: Options::SEGMENT_BYTES_MIN,
            threads: Threads::None,
            clock: Arc::clone(&self.clock) as _,
            ..Options::default()
        };
        let db = Db::open_with(&self.folder, options).expect("a folder opens after a kill");
        for path in PATHS {
            db.collection(path).expect("a collection is there or is created");
        }
        self.db = Some(db);
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the process runs")
    }

    fn docs(&self, collection: usize) -> Collection {
        self.db().collection(PATHS[collection]).expect("it was created")
    }

    pub fn read(&self, collection: usize, key: &str) -> Option<(BTreeSet<EditId>, u64)> {
        let found = self.docs(collection).get(key).expect("documents can be read")?;
        Some((edits_of(found.body()), found.cas().0))
    }

    /// Reads a document, then writes or deletes it.
    pub fn edit(&mut self, (collection, key): (usize, &str), deletes: bool, ledger: &mut Ledger) {
        let over = self.read(collection, key).map(|(edits, _)| edits);
        let docs = self.docs(collection);
        if deletes && over.is_none() {
            return;
        }
        let deleted = if deletes { ", deleted" } else { "" };
        let what = format!("{collection}/{key} at {}{deleted}", self.name);
        let id = ledger.edit(over.unwrap_or_default(), deletes, what);
        let written = match deletes {
            true => docs.remove(key, Write::new()),
            false => docs.upsert(key, &body_of(&BTreeSet::from([id])), Write::new()),
        };
        written.expect("the database takes writes");
        self.unstored.push(id);
    }

    pub fn flush(&mut self) {
        self.db().flush().expect("the disk is well");
        self.unstored.clear();
    }

    /// Clears the list of unstored edits if the database has stored everything by now.
    pub fn look(&mut self) {
        if self.db().status().unsaved == 0 {
            self.unstored.clear();
        }
    }

    /// Kills the process: unstored edits are lost.
    pub fn kill(&mut self, ledger: &mut Ledger) {
        self.look();
        self.copies += 1;
        let next = self.folder.with_file_name(format!("{}-{}", self.name, self.copies));
        copy(&self.folder, &next);
        self.db = None;
        fs::remove_dir_all(&self.folder).expect("nobody has it open");
        self.folder = next;
        ledger.excuse(&self.unstored);
        self.unstored.clear();
        self.open();
    }

    /// Copies the folder as it is on disk to another device.
    pub fn copied_as(&mut self, name: &str, clock: Arc<SiteClock>) -> Site {
        let folder = self.folder.with_file_name(name);
        copy(&self.folder, &folder);
        let mut site = Site {
            name: name.to_owned(),
            clock,
            vbuckets: self.vbuckets,
            folder,
            copies: 0,
            db: None,
            unstored: Vec::new(),
        };
        site.open();
        site
    }

    /// Returns the edits parked on this site.
    pub fn parked(&self) -> BTreeSet<EditId> {
        let mut edits = BTreeSet::new();
        for record in self.db().parked().expect("documents can be read") {
            let record: serde_json::Value = serde_json::from_slice(&record).expect("it is JSON");
            assert!(record["reason"].is_string(), "{record}");
            if record["deleted"] == false {
                edits.extend(super::ledger::edits_in(&record["body"]));
            }
        }
        edits
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("there is room for a folder");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("the folder can be read");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("there is room for a file");
        }
    }
}
