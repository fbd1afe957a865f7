//! Commits in the middle of compaction and of writing the table of locations. The disk makes a commit whenever a file
//! for these is created.

use crate::model::{Chance, Model, read};
use nacre_store::{Disk, DiskFile, LogOptions, LogStore, Loss, SimDisk, Store};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

struct World {
    disk: Arc<SimDisk>,
    store: OnceLock<Weak<LogStore>>,
    /// The writes to the store, and the random numbers for the next ones.
    given: Mutex<(Model, Chance)>,
    intrusions: Mutex<Vec<String>>,
}

impl World {
    fn commit(&self, store: &LogStore) {
        let (model, chance) = &mut *self.given.lock().unwrap();
        let mut commits = model.commits(chance);
        model.begin(&mut commits, self.disk.operation_count());
        store.commit(&commits).unwrap();
        model.acknowledge(self.disk.operation_count());
    }

    fn judge(&self, store: &dyn Store) {
        let (model, _) = &*self.given.lock().unwrap();
        model.judge(&read(store).unwrap(), self.disk.operation_count()).unwrap();
        model.check_keys(store);
    }
}

/// The disk of a [`World`], which commits during other operations.
struct Intruder(Arc<World>);

impl Disk for Intruder {
    fn path(&self) -> &Path {
        self.0.disk.path()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.0.disk.open(name)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let created = self.0.disk.create(name, bytes);
        let store = self.0.store.get().and_then(Weak::upgrade);
        if let Some(store) = store.filter(|_| !name.ends_with(".log")) {
            self.0.intrusions.lock().unwrap().push(name.to_owned());
            (0..3).for_each(|_| self.0.commit(&store));
        }
        created
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.disk.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.0.disk.names()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.disk.sync_names()
    }
}

#[test]
fn commits_in_the_middle_of_compaction_and_of_saving_are_neither_lost_nor_doubled() {
    let options = LogOptions { segment_bytes: 64 << 10, seed: 3 };
    for seed in 0..8 {
        let world = Arc::new(World {
            disk: SimDisk::new(),
            store: OnceLock::new(),
            given: Mutex::new((Model::new(), Chance(seed))),
            intrusions: Mutex::default(),
        });
        let disk = Arc::new(Intruder(Arc::clone(&world)));
        let store = Arc::new(LogStore::open_on(disk, true, options).unwrap());
        world.store.set(Arc::downgrade(&store)).unwrap();
        for _ in 0..30 {
            (0..3).for_each(|_| world.commit(&store));
            // This is not a loop until everything is compacted, because the interrupting commits give each step new
            // work.
            store.compact(5).unwrap();
            store.compact(5).unwrap();
            world.judge(&*store);
            for loss in [Loss::Everything, Loss::Some(seed)] {
                let found = LogStore::open_on(world.disk.cut(loss), false, options).unwrap();
                world.judge(&found);
            }
        }
        let intrusions = world.intrusions.lock().unwrap();
        for kind in ["locations.unfinished", ".copy"] {
            assert!(intrusions.iter().any(|name| name.ends_with(kind)), "seed {seed}: no {kind}");
        }
    }
}
