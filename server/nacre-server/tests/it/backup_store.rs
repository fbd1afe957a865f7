//! Backups in stores that fail: object stores that are overloaded, lose answers and are down, and disks that are full.

use crate::backup::{command, create_bucket, nacre, open, succeed};
use crate::object_store::{BUCKET, ObjectStore, Trouble};
use crate::process::Server;
use nacre_client::{Key, StoreOptions};
use std::process::Command;

const DOCUMENTS: u32 = 2000;

/// Runs a command on a repository in the object store; returns its exit code, and all that it has said.
fn remote(server: &Server, store: &ObjectStore, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = command(server, arguments);
    let done = command.envs(store.variables()).output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(text).unwrap())
}

fn done(server: &Server, store: &ObjectStore, arguments: &[&str]) -> String {
    let (code, said) = remote(server, store, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
    said
}

fn fill(server: &Server, turn: u32) {
    let mut bucket = open(server, "shop");
    for n in 0..DOCUMENTS {
        let (name, value) = (format!("key-{n}"), format!("{{\"turn\":{turn}}}"));
        let key = Key::of_default(name.as_bytes());
        bucket.set(key, value.as_bytes(), StoreOptions::default()).unwrap();
    }
}

#[test]
fn case_09_an_object_store_that_fails_is_waited_for_and_a_backup_that_has_given_up_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    create_bucket(&server, "shop", 512);
    let store = ObjectStore::start();
    let repository = format!("s3://{BUCKET}/nacre/daily");
    let said = done(&server, &store, &["backup", "check", &repository]);
    assert!(said.contains("can have backups"), "{said}");
    assert_eq!(store.names(), [""; 0], "nothing is left");

    fill(&server, 1);
    let create = ["backup", "create", &repository, "--bucket", "shop", "--quiet"];
    done(&server, &store, &create);
    fill(&server, 2);
    // Answers with 503, answers that are lost, and requests that are.
    store.set(Trouble { answers: 3, failures: 12, ..Trouble::default() });
    let said = done(&server, &store, &create);
    assert!(said.contains(&format!("an increment: {DOCUMENTS} documents")), "{said}");
    assert_eq!((store.trouble().failures, store.failed()), (0, 12));

    // Down for longer than it is waited for, while objects are written.
    fill(&server, 3);
    store.set(Trouble { objects_until_down: Some(3), ..Trouble::default() });
    let (code, said) = remote(&server, &store, &[&create[..], &["--store-timeout", "3"]].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("tried for") && said.contains("--resume continues it"), "{said}");
    let value = open(&server, "shop").get(Key::of_default(b"key-7")).unwrap().unwrap().value;
    assert_eq!(value, b"{\"turn\":3}", "the node is unharmed");
    store.set(Trouble::default());
    let listed = done(&server, &store, &["backup", "list", &repository]);
    assert!(listed.contains("interrupted"), "{listed}");
    let before = store.names();
    let said = done(&server, &store, &[&create[..], &["--resume"]].concat());
    assert!(said.contains(&format!("an increment: {DOCUMENTS} documents")), "{said}");
    let after = store.names();
    let mut blocks = before.iter().filter(|name| name.ends_with(".nbk"));
    assert!(blocks.all(|name| after.contains(name)), "what was written stays");

    done(&server, &store, &["backup", "verify", &repository, "--read-data"]);
    let said = done(&server, &store, &["backup", "diff", &repository, "--bucket", "shop"]);
    assert_eq!(said, format!("{DOCUMENTS} documents the same, 0 different\n"));
    create_bucket(&server, "copy", 16);
    let restore = ["restore", &repository, "--mapping", "shop=copy", "--quiet"];
    done(&server, &store, &restore);
    let diff = ["backup", "diff", &repository, "--bucket", "shop", "--with", "copy"];
    done(&server, &store, &diff);
    // What is removed is gone: the locks of those that have read, too.
    done(&server, &store, &["backup", "merge", &repository, "--remove"]);
    done(&server, &store, &["backup", "verify", &repository, "--read-data"]);
    assert!(!store.names().iter().any(|name| name.contains("locks/")), "{:?}", store.names());
}

#[test]
fn case_08_a_full_disk_ends_a_backup_that_is_resumed_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    create_bucket(&server, "shop", 64);
    fill(&server, 1);
    let mut bucket = open(&server, "shop");
    let large: String = (0..1 << 18)
        .map(|n: u32| format!("{:04x}", n.wrapping_mul(40_503) >> 3 & 0xffff))
        .collect();
    for n in 0..4 {
        let name = format!("large-{n}");
        bucket
            .set(Key::of_default(name.as_bytes()), large.as_bytes(), StoreOptions::default())
            .unwrap();
    }
    let repository = directory.path().join("small").join("backups");
    let small = directory.path().join("small").display().to_string();
    std::fs::create_dir(&small).unwrap();
    // A small disk, which then gets larger.
    let repository = repository.display().to_string();
    let create = format!("\"$0\" backup create {repository} --bucket shop --quiet");
    let script = format!(
        "mount -t tmpfs -o size=160k tmpfs {small} && {{ {create} 2>{small}.said; echo $? >{small}.code; \
         mount -o remount,size=64m {small} && {create} --resume && \"$0\" backup verify {repository} --read-data && \
         \"$0\" backup diff {repository} --bucket shop; }}"
    );
    let own = command(&server, &[]);
    let mut shell = Command::new("unshare");
    shell.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(own.get_program());
    shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = shell.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let read = |end: &str| std::fs::read_to_string(format!("{small}.{end}")).unwrap_or_default();
    let (said, errors) = (text(ended.stdout), text(ended.stderr));
    assert!(ended.status.success(), "{said}{errors}{}", read("said"));
    assert_eq!(read("code").trim(), "1", "{}", read("said"));
    assert!(read("said").contains("No space left on device"), "{}", read("said"));
    assert!(said.contains("2004 documents the same, 0 different"), "{said}{errors}");
    succeed(&server, &["bucket", "list"]);
    assert_eq!(nacre(&server, &["backup", "list", &repository]).0, Some(1), "the disk is gone");
}
