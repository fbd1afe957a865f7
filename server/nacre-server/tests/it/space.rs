//! Disk space: the space of overwritten documents is given back, and writes without space wait for it.

use crate::process::{BUCKET, Server};
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Write};

/// Bytes on disk, and those of them that are current.
fn usage(server: &Server) -> (u64, u64) {
    let answer = server.rest("GET", &format!("/pools/default/buckets/{BUCKET}"), "").unwrap();
    let bucket: Value = serde_json::from_str(&answer.text()).unwrap();
    let stat = |name: &str| bucket["basicStats"][name].as_u64().unwrap();
    (stat("diskUsed"), stat("dataUsed"))
}

#[test]
fn a_compaction_frees_the_space_of_overwritten_documents() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let mut client = server.client();
    let body = vec![b'x'; 20 << 10];
    for round in 0..4 {
        for n in 0..500 {
            let key = format!("k{n}");
            assert!(client.set(key.as_bytes(), &body).unwrap().is_success(), "{key} in {round}");
        }
    }
    server.wait_for("everything to be stored", |server| {
        (usage(server).1 > 500 * (20 << 10)).then_some(())
    });
    let path = format!("/pools/default/buckets/{BUCKET}/controller/compactBucket");
    assert_eq!(server.rest("POST", &path, "").unwrap().status, 200);
    server.wait_for("the disk to hold less than twice the data", |server| {
        let (disk, live) = usage(server);
        (disk < 2 * live).then_some(())
    });
    assert_eq!(
        server
            .rest("POST", "/pools/default/buckets/missing/controller/compactBucket", "")
            .unwrap()
            .status,
        404
    );
    server.kill();
    let server = Server::start(directory.path());
    let mut client = server.client();
    for n in 0..500 {
        assert_eq!(client.get(format!("k{n}").as_bytes()).unwrap().value.len(), body.len(), "{n}");
    }
}

/// Writes a file that leaves no space on its disk.
fn fill(disk: &std::path::Path) -> std::path::PathBuf {
    let path = disk.join("filler");
    let mut file = File::create(&path).unwrap();
    for piece in [64 << 10, 1] {
        let full = std::iter::repeat_with(|| file.write_all(&vec![1; piece])).find_map(Result::err);
        assert_eq!(full.unwrap().kind(), ErrorKind::StorageFull);
    }
    path
}

#[test]
fn agreed_changes_wait_for_disk_space_and_continue() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start_on_disk(directory.path(), 96);
    let add = |server: &Server, name: &str| {
        let path = format!("/settings/rbac/users/local/{name}");
        let form = "password=a-long-password&roles=admin";
        let answer = server.rest("PUT", &path, form).unwrap();
        (answer.status, answer.text())
    };
    assert_eq!(add(&server, "before").0, 200);
    let filler = fill(&server.disk(directory.path()));
    // There is some room left in the files themselves.
    let mut names = (0..1000).map(|number| format!("user{number}"));
    let (name, (status, reason)) = names
        .by_ref()
        .map(|name| (name.clone(), add(&server, &name)))
        .find(|(_, (status, _))| *status != 200)
        .unwrap();
    assert_eq!(status, 503, "{reason}");
    assert!(reason.contains("no space left") && reason.contains("may still be made"), "{reason}");
    let (status, reason) = add(&server, "later");
    assert_eq!(status, 503, "{reason}");
    assert!(reason.contains("nothing was changed"), "{reason}");
    // The documents are served all the while.
    assert!(server.client().get(b"none").unwrap().value.is_empty());
    std::fs::remove_file(filler).unwrap();
    server.wait_for("space", |server| (add(server, "after").0 == 200).then_some(()));
    let users = server.rest("GET", "/settings/rbac/users", "").unwrap().text();
    let is_there = |name: &str| users.contains(&format!("\"{name}\""));
    assert!(is_there("before") && is_there("after") && is_there(&name), "{users}");
    assert!(!is_there("later"), "{users}");
}
