//! A database in the process, as an application uses it, and as machines fail it.
#![expect(
    clippy::disallowed_methods,
    reason = "tests read and damage the files of a database, and start processes"
)]

mod changes;
mod clock;
mod crash;
mod disk;
mod documents;
mod keyspaces;
mod process;
mod session;

use nacre::{Db, Options, StoreKind, Sync, Threads};
use std::path::Path;

/// Options without a thread, so that what a test does is all that happens.
fn by_hand() -> Options {
    Options { threads: Threads::None, ..Options::default() }
}

/// Both stores, with every write on disk before it returns.
fn durable() -> [Options; 2] {
    [StoreKind::Log, StoreKind::Sled].map(|store| Options {
        store,
        sync: Sync::Always,
        ..by_hand()
    })
}

fn open(path: &Path, options: &Options) -> Db {
    Db::open_with(path, options.clone()).unwrap()
}

/// The same seed, the same choices.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
