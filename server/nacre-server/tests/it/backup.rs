//! `nacre backup`, `nacre restore` and `nacre export` from outside: what comes back is what was there, whoever was killed meanwhile.

use crate::eventing;
use crate::process::{BUCKET, PASSWORD, Server, USER, from_env, port_base};
use nacre_client::{
    Bucket, Key, Login, Metadata, PathMutation, PathOperation, StoreOptions, Version,
};
use nacre_conformance::http;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Port of the search service relative to that of management.
const SEARCH: u16 = 3;

/// Runs a command; returns its exit code, and what it has printed and reported.
pub fn nacre(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(server, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

pub fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(arguments).env("NACRE_PASSWORD", PASSWORD);
    command.env("NACRE_SERVER", format!("http://127.0.0.1:{}", server.port_base));
    command.stdin(Stdio::null());
    command
}

/// Runs a command that has to succeed.
pub fn succeed(server: &Server, arguments: &[&str]) -> String {
    let (code, said, errors) = nacre(server, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}{errors}");
    said
}

pub fn create_bucket(server: &Server, name: &str, vbuckets: u16) {
    let form = format!("name={name}&ramQuotaMB=100&numVBuckets={vbuckets}&replicaNumber=0");
    let answer = server.rest("POST", "/pools/default/buckets", &form).unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
}

pub fn open(server: &Server, bucket: &str) -> Bucket {
    let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: bucket.into() };
    Bucket::connect(&[server.kv_address()], None, login).unwrap()
}

pub fn collection(server: &Server, bucket: &str, scope: &str, name: &str) {
    let scopes = format!("/pools/default/buckets/{bucket}/scopes");
    let made = server.rest("POST", &scopes, &format!("name={scope}")).unwrap();
    assert!([200, 400].contains(&made.status), "{}", made.text());
    let made =
        server.rest("POST", &format!("{scopes}/{scope}/collections"), &format!("name={name}"));
    assert_eq!(made.unwrap().status, 200);
}

/// Documents of every kind: with attributes, an expiry, flags, bytes that are no JSON, in collections, and deleted ones.
fn fill(bucket: &mut Bucket, turn: u32) {
    let (hotels, any) = (bucket.collection_id("inventory.hotel").unwrap(), StoreOptions::default());
    for n in 0..200_u32 {
        let (name, value) = (format!("key-{n}"), format!("{{\"n\":{n},\"turn\":{turn}}}"));
        let key = Key { collection: if n % 2 == 0 { 0 } else { hotels }, name: name.as_bytes() };
        if n % 10 < turn {
            // What exists is deleted, every other time.
            let _ = bucket.delete(key, any);
            continue;
        }
        let options = StoreOptions { flags: n, expiry: if n % 7 == 0 { 90_000 } else { 0 }, ..any };
        bucket.set(key, value.as_bytes(), options).unwrap();
        if n % 5 == 0 {
            let change = PathMutation {
                operation: PathOperation::Upsert,
                path: "mark",
                value: b"[1,2]",
                is_xattr: true,
                create_parents: true,
            };
            bucket.mutate_in(key, &[change], options).unwrap();
        }
    }
    bucket.set(Key::of_default(b"bytes"), b"\xff\x00no JSON", any).unwrap();
    let metadata = Metadata {
        is_deleted: false,
        flags: 1,
        expiry: 0,
        rev: 1 << 40,
        cas: u64::from(turn + 1) << 40,
    };
    let version =
        Version { metadata, datatype: 1, value: b"{\"from\":\"elsewhere\"}", by_time: false };
    let _ = bucket.set_version(Key::of_default(b"elsewhere"), version);
}

#[test]
fn case_15_20_a_bucket_is_restored_to_a_cluster_with_another_number_of_vbuckets() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    create_bucket(&server, "shop", 64);
    collection(&server, "shop", "inventory", "hotel");
    collection(&server, "shop", "inventory", "gone");
    let mut bucket = open(&server, "shop");
    let repository = directory.path().join("backups").display().to_string();
    let create =
        || succeed(&server, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);
    fill(&mut bucket, 0);
    let gone = bucket.collection_id("inventory.gone").unwrap();
    bucket.set(Key { collection: gone, name: b"x" }, b"1", StoreOptions::default()).unwrap();
    let said = create();
    assert!(said.contains(", full: 203 documents and 0 deletions"), "{said}");
    fill(&mut bucket, 3);
    let dropped = "/pools/default/buckets/shop/scopes/inventory/collections/gone";
    assert_eq!(server.rest("DELETE", dropped, "").unwrap().status, 200);
    let said = create();
    assert!(said.contains("an increment: 142 documents and 60 deletions"), "{said}");
    let said = create();
    assert!(said.contains("an increment: 0 documents and 0 deletions, 0 bytes"), "{said}");

    let diff = |with: &str| {
        nacre(&server, &["backup", "diff", &repository, "--bucket", "shop", "--with", with])
    };
    assert_eq!(diff("shop").1, "142 documents the same, 0 different\n");
    create_bucket(&server, "copy", 16);
    let restore = |options: &[&str]| {
        let own = ["restore", &repository, "--mapping", "shop=copy", "--quiet"];
        succeed(&server, &[&own[..], options].concat())
    };
    let said = restore(&["--dry-run", "--filter", "META().id LIKE 'key-1_' AND n IS NOT MISSING"]);
    assert!(said.contains("would restore 7 documents and 0 tombstones into copy"), "{said}");
    let said = restore(&["--dry-run", "--include", "shop.inventory", "--filter-keys", "9$"]);
    assert!(said.contains("would restore 20 documents and 0 tombstones into copy"), "{said}");
    let said = restore(&["--dry-run", "--exclude", "shop.inventory"]);
    let expected = "would restore 62 documents and 40 tombstones into copy; 100 not selected; 1 of dropped collections\n";
    assert_eq!(said, expected);
    let misspelt = ["restore", &repository, "--include", "shop.inventory,shop.hotel"];
    let (code, _, errors) = nacre(&server, &misspelt);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no bucket, scope or collection shop.hotel"), "{errors}");
    let said = restore(&["--dry-run"]);
    assert_eq!(
        said,
        "would restore 142 documents and 60 tombstones into copy; 1 of dropped collections\n"
    );
    let list = succeed(&server, &["backup", "list", &repository, "--output", "json"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    for (place, expected) in [
        (0, "142 documents and 60 tombstones into copy; 1 of dropped collections"),
        (1, "142 documents and 60 tombstones into copy"),
        (2, "0 documents and 0 tombstones into copy"),
    ] {
        let id = list[place]["id"].as_str().unwrap();
        let said = restore(&["--dry-run", "--from", id]);
        assert_eq!(said, format!("would restore {expected}\n"), "from {id}");
    }
    let first = list[0]["id"].as_str().unwrap();
    let newer = ["restore", &repository, first, "--from", "latest"];
    let (code, _, errors) = nacre(&server, &newer);
    assert_eq!(code, Some(1));
    assert!(errors.contains(&format!("is newer than {first}")), "{errors}");
    assert_eq!(diff("copy").0, Some(1), "nothing was written");
    let said = restore(&[]);
    let expected =
        "restored 142 documents and 60 tombstones into copy: 202 written, 0 there already or newer";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(
        diff("copy"),
        (Some(0), "142 documents the same, 0 different\n".into(), String::new())
    );
    let said = restore(&[]);
    assert!(said.contains("0 written, 202 there already or newer"), "{said}");

    // A newer document stays, unless the backup is to win.
    let mut copy = open(&server, "copy");
    copy.set(Key::of_default(b"key-8"), b"\"newer\"", StoreOptions::default()).unwrap();
    copy.delete(Key::of_default(b"bytes"), StoreOptions::default()).unwrap();
    restore(&[]);
    assert_eq!(copy.get(Key::of_default(b"key-8")).unwrap().unwrap().value, b"\"newer\"");
    restore(&["--force"]);
    assert_eq!(
        copy.get(Key::of_default(b"key-8")).unwrap().unwrap().value,
        b"{\"n\":8,\"turn\":3}"
    );
    assert_eq!(copy.get(Key::of_default(b"bytes")).unwrap().unwrap().value, b"\xff\x00no JSON");

    // A bucket that is missing is created as it was.
    let said = succeed(
        &server,
        &["restore", &repository, "--mapping", "shop=third", "--create-buckets", "--quiet"],
    );
    assert!(said.contains("into third: 202 written"), "{said}");
    assert_eq!(diff("third").1, "142 documents the same, 0 different\n");

    check_and_prune(&server, &repository);
    server.kill();
}

/// Verifies the three backups, and removes all but one by rules.
fn check_and_prune(server: &Server, repository: &str) {
    let said = succeed(server, &["backup", "verify", repository, "--read-data"]);
    assert!(said.starts_with("3 manifests, ") && said.ends_with(", 405 records\n"), "{said}");
    let said = succeed(server, &["backup", "verify", repository, "--restore-sample", "100%"]);
    assert!(said.contains("shop: restored 142 documents of "), "{said}");
    let said = succeed(server, &["backup", "verify", repository, "--restore-sample", "10"]);
    assert!(said.contains("shop: restored 10 documents of "), "{said}");
    let said = succeed(server, &["backup", "examine", repository, "key-8", "--in", "shop"]);
    assert_eq!(said.lines().count(), 2, "{said}");
    let prune =
        |options: &[&str]| succeed(server, &[&["backup", "prune", repository], options].concat());
    let said = prune(&["--keep-last", "1"]);
    assert!(said.ends_with("\nkept 3 backups\n"), "the first is the base of the last: {said}");
    succeed(server, &["backup", "create", repository, "--bucket", "shop", "--full", "--quiet"]);
    let planned = prune(&["--keep-daily", "1", "--dry-run", "--output", "json"]);
    let planned: serde_json::Value = serde_json::from_str(&planned).unwrap();
    let actions: Vec<_> = planned.as_array().unwrap().iter().map(|row| &row["action"]).collect();
    assert_eq!(actions, ["remove", "remove", "remove", "keep"]);
    let said = prune(&["--keep-within", "1h", "--dry-run"]);
    assert!(said.ends_with("\nwould keep 4 backups\n"), "{said}");
    let said = prune(&["--keep-daily", "1", "--keep-weekly", "1"]);
    assert!(said.contains("\nkept 1 backup, removed 3 backups with "), "{said}");
    let (code, _, errors) = nacre(server, &["backup", "prune", repository, "--dry-run"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no rule says what is kept"), "{errors}");
}

#[test]
fn case_14_an_encrypted_repository_and_mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    let repository = directory.path().join("backups").display().to_string();
    let (right, wrong) = (directory.path().join("right"), directory.path().join("wrong"));
    std::fs::write(&right, "open sesame\n").unwrap();
    std::fs::write(&wrong, "open\n").unwrap();
    let (right, wrong) = (right.display().to_string(), wrong.display().to_string());
    open(&server, BUCKET)
        .set(Key::of_default(b"k"), b"\"visible\"", StoreOptions::default())
        .unwrap();
    succeed(&server, &["backup", "create", &repository, "--passphrase-file", &right, "--quiet"]);
    let failed = |arguments: &[&str]| {
        let (code, _, errors) = nacre(&server, arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        errors
    };
    assert!(failed(&["backup", "list", &repository]).contains("--passphrase-file"));
    let said = failed(&["backup", "list", &repository, "--passphrase-file", &wrong]);
    assert!(said.contains("the passphrase is wrong"), "{said}");
    succeed(
        &server,
        &["backup", "verify", &repository, "--read-data", "--passphrase-file", &right],
    );
    let seen = Command::new("grep").args(["-rl", "visible", &repository]).output().unwrap();
    assert!(seen.stdout.is_empty(), "{}", String::from_utf8_lossy(&seen.stdout));
    let nowhere = directory.path().join("nowhere").display().to_string();
    assert!(failed(&["restore", &nowhere]).contains("there is no repository"));
    assert!(
        failed(&["restore", &repository, "01A", "--passphrase-file", &right])
            .contains("backup list")
    );
    let said = failed(&["backup", "create", &nowhere, "--bucket", "none", "--quiet"]);
    assert!(said.contains("no such bucket"), "{said}");
    let said = failed(&["backup", "create", &nowhere, "--resume"]);
    assert!(said.contains("no interrupted backup"), "{said}");
    server.kill();
}

#[test]
fn collections_that_were_dropped_between_backups_are_dropped_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    for name in ["shop", "copy"] {
        create_bucket(&server, name, 16);
        ["kept", "gone", "other"].iter().for_each(|own| collection(&server, name, "s", own));
    }
    let repository = directory.path().join("backups").display().to_string();
    let create =
        || succeed(&server, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);
    create();
    for name in ["gone", "other"] {
        let path = format!("/pools/default/buckets/shop/scopes/s/collections/{name}");
        assert_eq!(server.rest("DELETE", &path, "").unwrap().status, 200);
    }
    let set = |name: &str| {
        let mut bucket = open(&server, "shop");
        let collection = bucket.collection_id("s.kept").unwrap();
        let key = Key { collection, name: name.as_bytes() };
        bucket.set(key, b"{}", StoreOptions::default()).unwrap();
    };
    set("a");
    create();
    let restore = |options: &[&str]| {
        let own = ["restore", &repository, "--mapping", "shop=copy", "--quiet"];
        succeed(&server, &[&own[..], options].concat())
    };
    let left = || {
        let scopes = server.rest("GET", "/pools/default/buckets/copy/scopes", "").unwrap().text();
        let scopes: serde_json::Value = serde_json::from_str(&scopes).unwrap();
        let scope =
            scopes["scopes"].as_array().unwrap().iter().find(|scope| scope["name"] == "s").unwrap();
        let names = scope["collections"].as_array().unwrap().iter();
        let mut names: Vec<_> = names.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    };
    restore(&[]);
    restore(&["--drop-collections", "--dry-run"]);
    // The last backup alone has never had them.
    restore(&["--drop-collections", "--from", "latest"]);
    assert_eq!(left(), ["gone", "kept", "other"]);
    restore(&["--drop-collections", "--include", "shop.s.kept"]);
    assert_eq!(left(), ["gone", "kept", "other"]);
    // Into one of them, another collection is restored.
    let said = restore(&["--drop-collections", "--mapping", "shop.s.kept=copy.s.other"]);
    assert!(said.contains("dropped the collection copy.s.gone\n"), "{said}");
    assert_eq!(left(), ["kept", "other"]);
    let said = restore(&["--drop-collections"]);
    assert!(said.contains("dropped the collection copy.s.other\n"), "{said}");
    assert_eq!(left(), ["kept"]);
}

#[test]
fn collections_that_were_dropped_before_a_full_backup_of_their_bucket_stay() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    for name in ["shop", "copy", "other"] {
        create_bucket(&server, name, 16);
        collection(&server, name, "s", "gone");
    }
    let repository = directory.path().join("backups").display().to_string();
    let create = |options: &[&str]| {
        let own = ["backup", "create", &repository, "--quiet"];
        succeed(&server, &[&own[..], options].concat())
    };
    let both = ["--bucket", "shop", "--bucket", "other"];
    create(&both);
    let path = "/pools/default/buckets/shop/scopes/s/collections/gone";
    assert_eq!(server.rest("DELETE", path, "").unwrap().status, 200);
    create(&["--bucket", "shop", "--full"]);
    // This backup needs the first one, but only for the other bucket.
    create(&both);
    let own = ["restore", &repository, "--bucket", "shop", "--mapping", "shop=copy", "--quiet"];
    let said = succeed(&server, &[&own[..], &["--drop-collections"]].concat());
    assert!(!said.contains("dropped the collection"), "{said}");
    let scopes = server.rest("GET", "/pools/default/buckets/copy/scopes", "").unwrap().text();
    assert!(scopes.contains("\"gone\""), "{scopes}");
}

#[test]
fn a_backup_is_read_in_the_background_unless_it_must_not_wait() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    create_bucket(&server, "shop", 16);
    let mut bucket = open(&server, "shop");
    for n in 0..50 {
        let key = format!("key-{n}");
        bucket.set(Key::of_default(key.as_bytes()), b"{}", StoreOptions::default()).unwrap();
    }
    let repository = directory.path().join("backups").display().to_string();
    let create = |options: &[&str]| {
        let own = ["backup", "create", &repository, "--bucket", "shop", "--full", "--quiet"];
        succeed(&server, &[&own[..], options].concat())
    };
    let said = create(&["--priority", "usual"]);
    assert!(said.contains("full: 50 documents"), "{said}");
    assert_eq!(server.threads("scanner"), 0);
    for _ in 0..2 {
        let said = create(&[]);
        assert!(said.contains("full: 50 documents"), "{said}");
        assert_eq!(server.threads("scanner"), 2);
    }
}

/// Ends the writer when it is dropped, also by a test that fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes documents until it is stopped; a node that is down is waited for.
pub fn write_on(server_address: &str, is_over: &AtomicBool) {
    let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: "shop".into() };
    let mut bucket = None;
    let mut n = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        let connected = match bucket.take() {
            Some(bucket) => Ok(bucket),
            None => Bucket::connect(&[server_address.to_owned()], None, login.clone()),
        };
        let Ok(mut open) = connected else {
            std::thread::yield_now();
            continue;
        };
        open.set_patience(Duration::ZERO);
        n += 1;
        let (name, value) = (format!("key-{}", n % 3000), format!("{{\"n\":{n}}}"));
        let key = Key::of_default(name.as_bytes());
        let done = match n % 5 {
            0 => open.delete(key, StoreOptions::default()),
            _ => open.set(key, value.as_bytes(), StoreOptions::default()),
        };
        // Of a connection that broke nothing is known.
        if done.is_ok() || done.is_err_and(|error| !error.is_ambiguous() && !error.is_retryable()) {
            bucket = Some(open);
        }
    }
}

#[test]
fn case_01_a_complete_backup_equals_the_bucket_whichever_process_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (data, port_base) = (directory.path().join("node"), port_base());
    let mut node = Some(Server::start_at(&data, port_base));
    let server = node.as_ref().unwrap();
    create_bucket(server, "shop", 64);
    create_bucket(server, "copy", 16);
    let repository = directory.path().join("backups").display().to_string();
    let create = ["backup", "create", &repository, "--bucket", "shop", "--quiet"];
    let (is_over, address) = (AtomicBool::new(false), server.kv_address());
    let mut complete = 0;
    std::thread::scope(|scope| {
        let _ends_with_the_scope = Over(&is_over);
        scope.spawn(|| write_on(&address, &is_over));
        for turn in 0..12_u64 {
            let server = node.as_ref().unwrap();
            let has_unfinished = turn > 0 && is_interrupted(server, &repository);
            let more: &[&str] = match (has_unfinished, turn % 3) {
                (false, _) => &[],
                (true, 0) => &["--discard"],
                (true, _) => &["--resume"],
            };
            let mut process = command(server, &[&create[..], more].concat())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            match turn % 4 {
                0 | 3 => assert!(process.wait().unwrap().success()),
                1 => {
                    until(Duration::from_millis(5 + 20 * turn), || {
                        process.try_wait().unwrap().is_some()
                    });
                    let _ = process.kill();
                    process.wait().unwrap();
                }
                _ => {
                    // The node is gone for a moment. The backup goes on with it, if it had begun by then.
                    node.take().unwrap().kill();
                    node = Some(Server::start_at(&data, port_base));
                    process.wait().unwrap();
                }
            }
        }
    });
    let server = node.as_ref().unwrap();
    let more: &[&str] = if is_interrupted(server, &repository) { &["--discard"] } else { &[] };
    succeed(server, &[&create[..], more].concat());
    let list = succeed(server, &["backup", "list", &repository, "--output", "json"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    for backup in list.as_array().unwrap() {
        assert_eq!(backup["state"], "complete", "{backup}");
        complete += 1;
        let id = backup["id"].as_str().unwrap();
        succeed(server, &["backup", "verify", &repository, id, "--read-data"]);
    }
    assert!(complete >= 7, "{list}");
    succeed(server, &["backup", "diff", &repository, "--bucket", "shop"]);
    succeed(server, &["restore", &repository, "--mapping", "shop=copy", "--quiet"]);
    succeed(server, &["backup", "diff", &repository, "--bucket", "shop", "--with", "copy"]);
    node.unwrap().kill();
}

pub fn is_interrupted(server: &Server, repository: &str) -> bool {
    Path::new(repository).exists()
        && nacre(server, &["backup", "list", repository]).1.contains("interrupted")
}

/// Waits until something is true, or the time is over.
pub fn until(time: Duration, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !is_true() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_export_with_metadata_is_imported_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    for (name, vbuckets) in [("shop", 64), ("copy", 16)] {
        create_bucket(&server, name, vbuckets);
        collection(&server, name, "inventory", "hotel");
    }
    fill(&mut open(&server, "shop"), 3);
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (lines, packed, csv) = (file("all.jsonl"), file("all.jsonl.gz"), file("all.csv"));
    let export = |options: &[&str]| {
        succeed(&server, &[&["export"], options, &["--bucket", "shop", "--quiet"]].concat())
    };
    export(&["json", "--with-meta", "-o", &lines]);
    export(&["json", "--with-meta", "-o", &packed]);
    let text = std::fs::read_to_string(&lines).unwrap();
    assert_eq!(text.lines().count(), 142);
    assert!(std::fs::metadata(&packed).unwrap().len() < text.len() as u64 / 2);
    let said = succeed(
        &server,
        &["import", "json", &packed, "--with-meta", "--bucket", "copy", "--quiet"],
    );
    assert!(said.starts_with("imported 142 documents into copy"), "{said}");
    let repository = file("backups");
    succeed(&server, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);
    let said =
        succeed(&server, &["backup", "diff", &repository, "--bucket", "shop", "--with", "copy"]);
    assert_eq!(said, "142 documents the same, 0 different\n");

    let array: Vec<serde_json::Value> =
        serde_json::from_str(&export(&["json", "--array", "--collection", "inventory.hotel"]))
            .unwrap();
    assert_eq!(array.len(), 80);
    let one = ["--collection", "inventory.hotel", "--include-key", "_id"];
    let said = export(&[&["json"], &one[..]].concat());
    assert_eq!(said.lines().count(), 80);
    assert!(said.lines().all(|line| line.starts_with("{\"_id\":\"key-")), "{said}");
    export(&[&["csv", "--fields", "_id,n", "-o", &csv], &one[..]].concat());
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert!(
        rows.starts_with("_id,n\n") && rows.contains("key-9,9\n") && rows.lines().count() == 81,
        "{rows}"
    );
    server.kill();
}

/// Moments to which a bucket goes back, if `NACRE_BACKUP_MOMENTS` does not say how many.
const MOMENTS: u64 = 6;

/// Writes and deletions with the CAS of each.
type Log = Vec<(u64, Vec<u8>, Option<String>)>;

/// Writes and deletes by chance.
fn change(bucket: &mut Bucket, chance: &mut StdRng, log: &mut Log) {
    let any = StoreOptions::default();
    for _ in 0..120 {
        let name = format!("key-{}", chance.random_range(0..20)).into_bytes();
        let key = Key::of_default(&name);
        let value = format!("{{\"n\":{}}}", log.len());
        let (cas, value) = match chance.random_bool(0.3) && bucket.get(key).unwrap().is_some() {
            true => (bucket.delete(key, any).unwrap().cas, None),
            false => (bucket.set(key, value.as_bytes(), any).unwrap().cas, Some(value)),
        };
        log.push((cas, name, value));
    }
}

#[test]
fn a_bucket_is_restored_to_any_time_whose_versions_were_kept() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    let form = "name=shop&ramQuotaMB=256&storageBackend=magma&historyRetentionSeconds=3600";
    let made = server.rest("POST", "/pools/default/buckets", form).unwrap();
    assert_eq!(made.status, 202, "{}", made.text());
    let plain = "/pools/default/buckets/shop/scopes/_default/collections";
    assert_eq!(server.rest("POST", plain, "name=plain&history=false").unwrap().status, 200);
    let mut bucket = open(&server, "shop");
    let repository = directory.path().join("backups").display().to_string();
    let create = ["backup", "create", &repository, "--quiet", "--history", "--bucket"];
    let create = |bucket| nacre(&server, &[&create[..], &[bucket]].concat());
    let (mut chance, mut log) = (StdRng::seed_from_u64(60), Log::new());
    for _ in 0..3 {
        change(&mut bucket, &mut chance, &mut log);
        let (code, said, errors) = create("shop");
        assert_eq!(code, Some(0), "{said}{errors}");
    }
    let shown = succeed(&server, &["backup", "show", &repository]);
    assert!(shown.contains("can go back to any moment up to 2"), "{shown}");
    let described = succeed(&server, &["backup", "describe", &repository, "--output", "json"]);
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    assert_eq!((&described[0]["bucket"], &described[0]["backups"]), (&"shop".into(), &3.into()));
    let moments = described[0]["moments"].as_array().unwrap();
    assert!(moments.len() == 1 && moments[0].as_str().unwrap().starts_with("..2"), "{moments:?}");

    let time = |cas: u64| jiff::Timestamp::from_nanosecond(cas.into()).unwrap().to_string();
    for turn in 0..from_env("NACRE_BACKUP_MOMENTS", MOMENTS) {
        let moment = log[chance.random_range(0..log.len())].0;
        let mut expected = BTreeMap::new();
        for (_, name, value) in log.iter().filter(|(cas, ..)| *cas <= moment) {
            expected.insert(name.clone(), value.clone());
        }
        let target = format!("then-{turn}");
        create_bucket(&server, &target, 16);
        let mapping = format!("shop={target}");
        let at = time(moment);
        let (code, said, errors) = nacre(
            &server,
            &["restore", &repository, "--at", &at, "--mapping", &mapping, "--quiet"],
        );
        assert_eq!(code, Some(0), "{at}: {said}{errors}");
        assert!(errors.contains("shop._default.plain keeps no versions"), "{errors}");
        let mut restored = open(&server, &target);
        for (name, value) in expected {
            let found = restored.get(Key::of_default(&name)).unwrap();
            let found = found.map(|document| String::from_utf8(document.value).unwrap());
            assert_eq!(found, value, "{} at {at}", String::from_utf8_lossy(&name));
        }
        let path = format!("/pools/default/buckets/{target}");
        assert_eq!(server.rest("DELETE", &path, "").unwrap().status, 200);
    }

    // A collection without versions is created as such.
    let again = ["restore", &repository, "--mapping", "shop=again", "--create-buckets", "--quiet"];
    succeed(&server, &again);
    let scopes = server.rest("GET", "/pools/default/buckets/again/scopes", "").unwrap().text();
    let scopes: serde_json::Value = serde_json::from_str(&scopes).unwrap();
    let keeps = |name: &str| {
        let all = scopes["scopes"].as_array().unwrap().iter();
        let mut all = all.flat_map(|scope| scope["collections"].as_array().unwrap());
        all.find(|found| found["name"] == name).unwrap()["history"] == true
    };
    assert!(keeps("_default") && !keeps("plain"), "{scopes}");
    let (code, _, errors) = create("default");
    assert_eq!(code, Some(1));
    assert!(errors.contains("the bucket default keeps no versions"), "{errors}");
    // An increment without versions hides those that it replaces.
    change(&mut bucket, &mut chance, &mut log);
    let hidden = log[log.len() - 60].0;
    succeed(&server, &["backup", "create", &repository, "--quiet", "--bucket", "shop"]);
    let (code, _, errors) = nacre(&server, &["restore", &repository, "--at", &time(hidden)]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("shop can go back to any moment from 2"), "{errors}");
    let (code, _, errors) =
        nacre(&server, &["restore", &repository, "--at", "2500-01-01T00:00:00Z"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no backup was begun after that moment"), "{errors}");
}

#[test]
fn functions_search_indexes_and_users_are_restored_to_another_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let server = searching(&directory.path().join("node"));
    let function = eventing::function("audit", "function OnUpdate(doc, meta) {}", "_default", &[]);
    let search = |server: &Server, method: &str, path: &str, body: &str| {
        let address = format!("127.0.0.1:{}", server.port_base + SEARCH);
        let login = Some((USER, PASSWORD));
        let answer =
            http::request(&address, method, path, login, "application/json", body.as_bytes());
        answer.unwrap()
    };
    eventing::collections(&server, &["meta"]);
    eventing::define(&server, &function);
    let index = format!(
        "{{\"type\": \"fulltext-index\", \"sourceType\": \"couchbase\", \"sourceName\": \"{BUCKET}\"}}"
    );
    let alias = "{\"type\": \"fulltext-alias\", \"params\": {\"targets\": {\"words\": {}}}}";
    for (name, definition) in [("words", index.as_str()), ("all", alias)] {
        let made = search(&server, "PUT", &format!("/api/index/{name}"), definition);
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let put = |path: &str, form: &str| server.rest("PUT", path, form).unwrap().status;
    assert_eq!(put("/settings/rbac/users/local/ann", "password=secret1&roles=ro_admin"), 200);
    let repository = directory.path().join("backups").display().to_string();
    succeed(&server, &["backup", "create", &repository, "--with-users", "--quiet"]);
    let without = directory.path().join("without").display().to_string();
    succeed(&server, &["backup", "create", &without, "--quiet"]);

    let other = searching(&directory.path().join("other"));
    eventing::collections(&other, &["meta"]);
    let restore = ["restore", &repository, "--definitions", "--users", "--quiet"];
    let said = succeed(&other, &restore);
    assert!(said.contains("created 3 definitions of the cluster"), "{said}");
    assert!(said.contains("created 1 user and 0 groups, replaced 0 users"), "{said}");
    let restored = eventing::get(&other, "/api/v1/functions/audit");
    assert_eq!(restored["appcode"], function["appcode"]);
    assert_eq!(restored["settings"]["deployment_status"], false);
    for name in ["words", "all"] {
        let found = search(&other, "GET", &format!("/api/index/{name}"), "");
        assert_eq!(found.status, 200, "{}", found.text());
    }
    let address = format!("127.0.0.1:{}", other.port_base);
    let ann = Some(("ann", "secret1"));
    let who = http::request(&address, "GET", "/whoami", ann, "application/json", b"").unwrap();
    assert_eq!(who.status, 200, "ann has her password");
    let said = succeed(&other, &restore);
    assert!(said.contains("created 0 definitions of the cluster"), "{said}");
    assert!(said.contains("left 2 users and 0 groups as they are"), "{said}");
    let (code, _, errors) = nacre(&other, &["restore", &without, "--users", "--quiet"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("take it with --with-users"), "{errors}");
}

/// Starts a node and waits for its search service.
fn searching(data_dir: &Path) -> Server {
    let server = Server::start(data_dir);
    until(Duration::from_secs(60), || {
        let address = format!("127.0.0.1:{}", server.port_base + SEARCH);
        let login = Some((USER, PASSWORD));
        http::request(&address, "GET", "/api/index", login, "application/json", b"")
            .is_ok_and(|answer| answer.status == 200)
    });
    server
}
