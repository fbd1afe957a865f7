//! Folders that earlier versions have left: this version opens each of them.
//!
//! `samples/VERSION` is a folder that [`fill`] has filled, after a clean close. With `NACRE_WRITE_SAMPLE=1` the test writes that of
//! this version first; samples of released versions are never written again.

use crate::by_hand;
use crate::disk::copy;
use nacre::{Db, Lookup, MutateIn, Mutation, Options, Range, Sync, Write};
use std::path::{Path, PathBuf};

const SAMPLES: &str = "tests/it/samples";
const DOCUMENTS: usize = 20;
const FLAGS: u32 = 7;
/// 2096-10-02, in seconds since 1970.
const EXPIRY: u32 = 4_000_000_000;

fn options() -> Options {
    Options {
        sync: Sync::Always,
        vbuckets: 4,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        ..by_hand()
    }
}

/// Leaves something of each kind that a folder stores.
fn fill(folder: &Path) {
    let db = Db::open_with(folder, options()).unwrap();
    let docs = db.default_collection();
    for number in 0..DOCUMENTS {
        let body = format!("{{\"n\":{number}}}");
        docs.upsert(format!("doc-{number}"), body.as_bytes(), Write::new()).unwrap();
    }
    docs.remove("doc-0", Write::new()).unwrap();
    docs.upsert("bytes", &[0, 159, 146, 150], Write::new().flags(FLAGS).expiry(EXPIRY)).unwrap();
    let owner = [Mutation::upsert("owner", br#""ann""#).xattr()];
    docs.mutate_in("doc-1", &owner, MutateIn::replace()).unwrap();
    db.collection("shop.orders").unwrap().upsert("o1", br#"{"total":12}"#, Write::new()).unwrap();
    db.close().unwrap();
}

/// Finds what [`fill`] has left.
fn check(db: &Db) {
    assert_eq!(db.vbucket_count(), 4);
    let docs = db.default_collection();
    // All but the removed one, and one that is not JSON.
    assert_eq!(docs.scan(Range::all()).unwrap().count(), DOCUMENTS);
    assert!(docs.get("doc-0").unwrap().is_none());
    assert_eq!(docs.get("doc-7").unwrap().unwrap().body(), br#"{"n":7}"#);
    let bytes = docs.get("bytes").unwrap().unwrap();
    assert_eq!((bytes.body(), bytes.is_json()), (&[0, 159, 146, 150][..], false));
    assert_eq!((bytes.flags(), bytes.expiry()), (FLAGS, EXPIRY));
    let owner = docs.lookup_in("doc-1", &[Lookup::get("owner").xattr()]).unwrap();
    assert_eq!(owner.parts[0].as_ref().unwrap(), br#""ann""#);
    let orders = db.find_collection("shop.orders").unwrap().unwrap();
    assert_eq!(orders.get("o1").unwrap().unwrap().body(), br#"{"total":12}"#);
}

#[test]
fn a_folder_of_each_earlier_version_is_opened() {
    if std::env::var_os("NACRE_WRITE_SAMPLE").is_some() {
        let sample = Path::new(SAMPLES).join(env!("CARGO_PKG_VERSION"));
        let _ = std::fs::remove_dir_all(&sample);
        std::fs::create_dir_all(SAMPLES).unwrap();
        fill(&sample);
        // A process that opens the folder makes another one.
        std::fs::remove_file(sample.join("lock")).unwrap();
    }
    let entries = std::fs::read_dir(SAMPLES).expect("NACRE_WRITE_SAMPLE=1 writes one");
    let samples: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!samples.is_empty());
    for sample in samples {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        copy(&sample, &path);
        let options = Options { create: false, ..options() };
        let db = Db::open_with(&path, options.clone()).unwrap();
        check(&db);
        db.default_collection().upsert("later", b"1", Write::new()).unwrap();
        db.close().unwrap();
        let db = Db::open_with(&path, options).unwrap();
        assert!(db.default_collection().exists("later").unwrap(), "{}", sample.display());
        db.close().unwrap();
    }
}
