//! Restores that are interrupted, that lack memory, and that find other collections than those of the backup.

use crate::backup::{collection, command, create_bucket, nacre, open, succeed, until};
use crate::process::Server;
use nacre_client::{Key, StoreOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(60);
/// Documents of 1 MiB: more than a bucket of 100 MiB holds.
const LARGE_DOCUMENTS: u32 = 130;

fn count(server: &Server, bucket: &str) -> u64 {
    let answer = server.rest("GET", &format!("/pools/default/buckets/{bucket}"), "").unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
    answer["basicStats"]["itemCount"].as_u64().unwrap_or(0)
}

#[test]
fn case_16_17_24_a_restore_is_run_again_waits_for_memory_and_keeps_its_backup() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    let create = |form: &str| {
        let answer = server.rest("POST", "/pools/default/buckets", form).unwrap();
        assert_eq!(answer.status, 202, "{}", answer.text());
    };
    create("name=shop&ramQuotaMB=400&numVBuckets=16&replicaNumber=0");
    create("name=copy&ramQuotaMB=100&numVBuckets=16&replicaNumber=0&bucketType=ephemeral");
    let mut bucket = open(&server, "shop");
    let filler: String = (0..1 << 18)
        .map(|n: u32| format!("{:04x}", n.wrapping_mul(40_503) >> 3 & 0xffff))
        .collect();
    for n in 0..LARGE_DOCUMENTS {
        let (name, value) =
            (format!("key-{n}"), format!("{{\"n\":{n},\"filler\":\"{}\"}}", &filler[..1 << 20]));
        bucket
            .set(Key::of_default(name.as_bytes()), value.as_bytes(), StoreOptions::default())
            .unwrap();
    }
    let repository = directory.path().join("backups").display().to_string();
    succeed(&server, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);
    let restore = || {
        command(&server, &["restore", &repository, "--mapping", "shop=copy", "--quiet"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };

    let mut killed = restore();
    until(PATIENCE, || count(&server, "copy") >= 3);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = count(&server, "copy");
    assert!((3..u64::from(LARGE_DOCUMENTS)).contains(&before), "{before}");

    // The next one fills the bucket, and waits for memory.
    let mut waiting = restore();
    let mut last = (0, 0);
    until(PATIENCE, || {
        let now = count(&server, "copy");
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        now > 50 && last.1 > 20
    });
    assert!(last.0 < u64::from(LARGE_DOCUMENTS), "{last:?}: the bucket holds all of them");
    assert!(waiting.try_wait().unwrap().is_none(), "it waits");

    // Nobody removes what it reads.
    let listed = succeed(&server, &["backup", "list", &repository, "--output", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    let create = ["backup", "create", &repository, "--bucket", "shop", "--full", "--quiet"];
    succeed(&server, &create);
    let said = succeed(&server, &["backup", "prune", &repository, "--keep-last", "1"]);
    assert!(said.contains(&format!("kept {id}: it is being read")), "{said}");
    assert!(said.ends_with("\nkept 2 backups\n"), "{said}");
    let (code, _, errors) = nacre(&server, &["backup", "remove", &repository, &id]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("is being read"), "{errors}");
    let more = server.rest("POST", "/pools/default/buckets/copy", "ramQuotaMB=400").unwrap();
    assert_eq!(more.status, 200, "{}", more.text());
    let done = waiting.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains(&format!("restored {LARGE_DOCUMENTS} documents")), "{said}");
    let (code, said, errors) =
        nacre(&server, &["backup", "diff", &repository, &id, "--bucket", "shop", "--with", "copy"]);
    assert_eq!(code, Some(0), "{said}{errors}");

    // The lock of the one that was killed is left; that of the other one has gone with it.
    let prune = ["backup", "prune", &repository, "--keep-last", "1"];
    let said = succeed(&server, &prune);
    assert!(said.contains("`nacre backup unlock`"), "{said}");
    let said = succeed(&server, &["backup", "unlock", &repository]);
    assert_eq!(said, "released 1 lock\n");
    let said = succeed(&server, &prune);
    assert!(
        said.contains(&format!("removed {id}\nkept 1 backup, removed 1 backup with ")),
        "{said}"
    );
}

#[test]
fn case_18_19_collections_that_were_made_again_get_their_documents_by_name_and_keep_their_own_expiry()
 {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    create_bucket(&server, "shop", 16);
    collection(&server, "shop", "s", "again");
    let unix_s = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut bucket = open(&server, "shop");
    let id = bucket.collection_id("s.again").unwrap();
    let set = |bucket: &mut nacre_client::Bucket, name: &str, expiry: u32| {
        let options = StoreOptions { expiry, ..StoreOptions::default() };
        bucket.set(Key { collection: id, name: name.as_bytes() }, b"1", options).unwrap();
    };
    set(&mut bucket, "for ever", 0);
    set(&mut bucket, "for a month", 30 * 86_400);
    set(&mut bucket, "for a moment", 2);
    let repository = directory.path().join("backups").display().to_string();
    succeed(&server, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);

    let path = "/pools/default/buckets/shop/scopes/s/collections";
    assert_eq!(server.rest("DELETE", &format!("{path}/again"), "").unwrap().status, 200);
    assert_eq!(server.rest("POST", path, "name=again&maxTTL=3600").unwrap().status, 200);
    let begun = unix_s();
    until(PATIENCE, || unix_s() > begun + 2);
    let restore = ["restore", &repository, "--bucket", "shop", "--quiet"];
    let (code, _, errors) = nacre(&server, &[&restore[..], &["--only-same-uid"]].concat());
    assert_eq!(code, Some(1));
    assert!(errors.contains("shop.s.again is not the collection of the backup"), "{errors}");
    let said = succeed(&server, &restore);
    assert!(said.contains("restored 2 documents"), "{said}");
    assert!(said.contains("1 expired"), "{said}");

    let mut bucket = open(&server, "shop");
    let new = bucket.collection_id("s.again").unwrap();
    assert_ne!(new, id);
    let latest = u32::try_from(unix_s() + 3600).unwrap();
    for name in ["for ever", "for a month"] {
        let key = Key { collection: new, name: name.as_bytes() };
        let metadata = bucket.metadata(key).unwrap().unwrap();
        assert!((1..=latest).contains(&metadata.expiry), "{name}: {}", metadata.expiry);
    }
    let gone = Key { collection: new, name: b"for a moment" };
    assert!(bucket.get(gone).unwrap().is_none());
}

#[test]
fn case_07_a_bucket_that_was_flushed_is_taken_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    let form = "name=shop&ramQuotaMB=100&numVBuckets=16&replicaNumber=0&flushEnabled=1";
    assert_eq!(server.rest("POST", "/pools/default/buckets", form).unwrap().status, 202);
    let mut bucket = open(&server, "shop");
    let mut set = |name: &str| {
        bucket.set(Key::of_default(name.as_bytes()), b"1", StoreOptions::default()).unwrap();
    };
    (0..50).for_each(|n| set(&format!("old-{n}")));
    let repository = directory.path().join("backups").display().to_string();
    let create = ["backup", "create", &repository, "--bucket", "shop", "--quiet"];
    succeed(&server, &create);
    let flush = "/pools/default/buckets/shop/controller/doFlush";
    assert_eq!(server.rest("POST", flush, "").unwrap().status, 200);
    (0..20).for_each(|n| set(&format!("new-{n}")));
    let said = succeed(&server, &create);
    assert!(said.contains("20 documents and 0 deletions"), "{said}");
    let said = succeed(&server, &["backup", "diff", &repository, "--bucket", "shop"]);
    assert_eq!(said, "20 documents the same, 0 different\n");
    // The older one still has what was there before.
    let listed = succeed(&server, &["backup", "list", &repository, "--output", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    create_bucket(&server, "copy", 16);
    let first = listed[0]["id"].as_str().unwrap();
    let said =
        succeed(&server, &["restore", &repository, first, "--mapping", "shop=copy", "--quiet"]);
    assert!(said.contains("restored 50 documents"), "{said}");
}

#[test]
fn case_11_a_damaged_vbucket_is_named_and_the_others_are_restored_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    create_bucket(&server, "shop", 4);
    create_bucket(&server, "copy", 16);
    let mut bucket = open(&server, "shop");
    for n in 0..100 {
        let name = format!("key-{n}");
        bucket.set(Key::of_default(name.as_bytes()), b"1", StoreOptions::default()).unwrap();
    }
    let repository = directory.path().join("backups");
    let place = repository.display().to_string();
    let create = ["backup", "create", &place, "--bucket", "shop", "--quiet", "--threads", "1"];
    succeed(&server, &[&create[..], &["--limit-mb", "100"]].concat());
    let id = std::fs::read_dir(repository.join("backups")).unwrap().next().unwrap().unwrap();
    // One object with a block for each vBucket: the last byte is that of the last one.
    let object = id.path().join("data/0.nbk");
    let mut bytes = std::fs::read(&object).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&object, bytes).unwrap();
    let restore = ["restore", &place, "--mapping", "shop=copy", "--quiet", "--threads", "1"];
    let (code, _, errors) = nacre(&server, &restore);
    assert_eq!(code, Some(1));
    assert!(errors.contains("0.nbk is damaged: vBucket 3, block at byte"), "{errors}");
    let (code, said, errors) = nacre(&server, &[&restore[..], &["--skip-damaged"]].concat());
    assert_eq!(code, Some(1), "{said}{errors}");
    assert!(errors.contains("left out the vBucket 3: "), "{errors}");
    assert!(errors.contains("1 vBucket left out, as they are damaged"), "{errors}");
    let (restored, lost) = (count(&server, "copy"), 100 - count(&server, "copy"));
    assert!(restored > 50 && lost > 5, "{said}");
    let restored = format!("restored {restored} documents");
    assert!(said.contains(&restored), "{said}");
}

/// The tests of each case of a failure: their names begin with the numbers of their cases.
fn tests_of_cases() -> BTreeMap<u8, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: BTreeMap<u8, BTreeSet<String>> = BTreeMap::new();
    for tests in [
        "tests/it",
        "../nacre-backup/src",
        "../nacre-backup/tests/it",
        "../nacre-backup-tools/src/backup",
    ] {
        for file in std::fs::read_dir(folder.join(tests)).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap_or_default();
            for rest in text.split("fn case_").skip(1) {
                let is_in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                let name: String = rest.chars().take_while(is_in_name).collect();
                for number in name.split('_').map_while(|part| part.parse::<u8>().ok()) {
                    found.entry(number).or_default().insert(format!("case_{name}"));
                }
            }
        }
    }
    found
}

/// The tests that the documentation names for each case.
fn documented_cases() -> BTreeMap<u8, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/backups.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, .., tests, _] = cells[..] else { continue };
        let Ok(number) = number.parse::<u8>() else { continue };
        let names = tests.split('`').filter(|name| name.starts_with("case_"));
        found.insert(number, names.map(str::to_owned).collect::<BTreeSet<String>>());
    }
    found
}

#[test]
fn every_case_has_a_test() {
    let tests = tests_of_cases();
    assert_eq!(tests.keys().copied().collect::<Vec<u8>>(), (1..=24).collect::<Vec<u8>>());
    for (number, documented) in documented_cases() {
        assert_eq!(tests.get(&number), Some(&documented), "case {number}");
    }
    assert_eq!(documented_cases().len(), tests.len());
}
