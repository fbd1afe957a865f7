//! Space on the disk: what is overwritten is given back.

use crate::process::{BUCKET, Server};
use serde_json::Value;

/// Bytes on disk, and those of them that are current.
fn usage(server: &Server) -> (u64, u64) {
    let answer = server.rest("GET", &format!("/pools/default/buckets/{BUCKET}"), "").unwrap();
    let bucket: Value = serde_json::from_str(&answer.text()).unwrap();
    let stat = |name: &str| bucket["basicStats"][name].as_u64().unwrap();
    (stat("diskUsed"), stat("dataUsed"))
}

#[test]
fn a_compaction_gives_back_what_was_overwritten() {
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
