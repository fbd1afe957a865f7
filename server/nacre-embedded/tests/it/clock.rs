//! Databases with wrong clocks.

use crate::{durable, open};
use nacre::{Clock, Now, Options, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const YEAR_S: u64 = 365 * 86_400;
const TODAY_S: u64 = 1_800_000_000;

struct Manual(AtomicU64);

impl Clock for Manual {
    fn now(&self) -> Now {
        let unix_ns = self.0.load(Ordering::Relaxed) * 1_000_000_000;
        Now { unix_ns, monotonic_ns: unix_ns }
    }
}

fn at(options: &Options, unix_s: u64) -> Options {
    Options { clock: Arc::new(Manual(AtomicU64::new(unix_s))), ..options.clone() }
}

#[test]
fn versions_never_go_back_though_the_clock_was_a_year_ahead() {
    for options in durable() {
        let folder = tempfile::tempdir().unwrap();
        let mut last = nacre::Cas(0);
        for unix_s in [TODAY_S, TODAY_S + YEAR_S, TODAY_S, TODAY_S - YEAR_S] {
            let db = open(folder.path(), &at(&options, unix_s));
            let docs = db.default_collection();
            // Only versions of the key's vBucket are compared.
            for _ in 0..3 {
                let made = docs.upsert("a", b"1", Write::new()).unwrap().cas;
                assert!(made > last, "{made:?} after {last:?} at {unix_s}");
                last = made;
            }
            docs.upsert("a", b"2", Write::new().cas(last)).unwrap();
            last = docs.get("a").unwrap().unwrap().cas();
        }
    }
}

#[test]
fn documents_expire_by_the_clock_of_the_database() {
    for options in durable() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(folder.path(), &at(&options, TODAY_S));
        db.default_collection().upsert("a", b"1", Write::new().expiry(60)).unwrap();
        drop(db);
        let db = open(folder.path(), &at(&options, TODAY_S + 59));
        assert!(db.default_collection().exists("a").unwrap());
        drop(db);
        let db = open(folder.path(), &at(&options, TODAY_S + 61));
        assert!(!db.default_collection().exists("a").unwrap());
    }
}
