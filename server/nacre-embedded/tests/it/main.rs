//! Tests of an embedded database: use by an application, and failures of machines.
#![expect(
    clippy::disallowed_methods,
    reason = "tests read and damage the files of a database, and start processes"
)]

mod cases;
mod changes;
mod clock;
mod crash;
mod disk;
mod documents;
mod encryption;
mod formats;
mod keyspaces;
mod process;
#[cfg(feature = "query")]
mod query;
mod session;
#[cfg(feature = "query")]
mod statements;
#[cfg(feature = "sync")]
mod sync;
#[cfg(feature = "views")]
mod views;

use nacre::{Clock, Db, Key, Now, Options, StoreKind, Sync, Threads};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Returns options without a thread, so that a test controls all work.
fn by_hand() -> Options {
    Options { threads: Threads::None, ..Options::default() }
}

/// Returns options for both stores, with every write on disk before it returns.
fn durable() -> [Options; 2] {
    [StoreKind::Log, StoreKind::Sled].map(|store| Options {
        store,
        sync: Sync::Always,
        ..by_hand()
    })
}

/// Returns the options of [`durable`], and those of an encrypted folder.
fn durable_and_encrypted() -> [Options; 3] {
    let [log, sled] = durable();
    let encrypted = Options { key: Some(Key::Bytes([7; 32])), ..log.clone() };
    [log, sled, encrypted]
}

fn open(path: &Path, options: &Options) -> Db {
    Db::open_with(path, options.clone()).unwrap()
}

/// A clock that a test moves: a monotonic time, and a wall clock ahead of it by a given offset.
#[derive(Default)]
struct Hand {
    ns: AtomicU64,
    ahead_s: AtomicI64,
}

impl Hand {
    /// The Unix second at which the clock begins.
    const BEGIN_S: u64 = 1_800_000_000;

    fn ns(&self) -> u64 {
        self.ns.load(Ordering::Relaxed)
    }

    fn pass(&self, time: Duration) {
        self.ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Now {
        let monotonic_ns = self.ns();
        let ahead_ns = self.ahead_s.load(Ordering::Relaxed) * 1_000_000_000;
        let unix_ns = Hand::BEGIN_S * 1_000_000_000 + monotonic_ns;
        Now { unix_ns: unix_ns.saturating_add_signed(ahead_ns), monotonic_ns }
    }
}

/// A random generator that makes the same choices for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
