//! Sessions of the key-value protocol in the process.

use crate::{by_hand, open};
use nacre::{Db, Error, Options, Session, Sync, Write};
use nacre_protocol::{Feature, Magic, Opcode, Status, decode};

/// Returns a request as clients encode it.
fn request(opcode: Opcode, vbid: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode as u8];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0]);
    bytes.extend(vbid.to_be_bytes());
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend(7u32.to_be_bytes());
    bytes.extend(0u64.to_be_bytes());
    [&bytes[..], extras, key, value].concat()
}

/// Returns the status and value of each response.
fn responses(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((frame, length)) = decode(bytes).unwrap() {
        assert_eq!(frame.magic, Magic::Response);
        found.push((frame.vbid, frame.value.to_vec()));
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "responses are whole");
    found
}

fn begin(db: &Db) -> Session {
    let mut session = db.session(|| {}).unwrap();
    let features = [Feature::Collections, Feature::SelectBucket, Feature::Json, Feature::Xerror];
    let features: Vec<u8> = features.iter().flat_map(|one| (*one as u16).to_be_bytes()).collect();
    let mut out = Vec::new();
    let hello = request(Opcode::Hello, 0, b"", b"test", &features);
    let select = request(Opcode::SelectBucket, 0, b"", b"default", b"");
    session.receive(&[hello, select].concat(), &mut out).unwrap();
    let statuses: Vec<u16> = responses(&out).iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [Status::Success as u16; 2]);
    session
}

#[test]
fn a_client_writes_and_reads_through_frames_cut_anywhere() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let mut session = begin(&db);
    let vbid = nacre_types::Vbid::of(b"a", 16).0;
    let set = request(Opcode::Set, vbid, &[0; 8], b"\0a", b"{\"n\":1}");
    let get = request(Opcode::Get, vbid, b"", b"\0a", b"");
    let bytes = [set, get].concat();
    let mut out = Vec::new();
    for byte in bytes.chunks(1) {
        session.receive(byte, &mut out).unwrap();
    }
    let success = Status::Success as u16;
    assert_eq!(responses(&out), [(success, Vec::new()), (success, b"{\"n\":1}".to_vec())]);
    assert_eq!(db.default_collection().get("a").unwrap().unwrap().body(), b"{\"n\":1}");
}

#[test]
fn the_map_sends_clients_here_and_collections_have_numbers() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    db.collection("shop.orders").unwrap();
    let mut session = begin(&db);
    let mut out = Vec::new();
    session.receive(&request(Opcode::GetClusterConfig, 0, b"", b"", b""), &mut out).unwrap();
    session
        .receive(&request(Opcode::GetCollectionId, 0, b"", b"", b"shop.orders"), &mut out)
        .unwrap();
    session.receive(&request(Opcode::GetCollectionsManifest, 0, b"", b"", b""), &mut out).unwrap();
    let found = responses(&out);
    let map: serde_json::Value = serde_json::from_slice(&found[0].1).unwrap();
    assert_eq!(map["vBucketServerMap"]["vBucketMap"].as_array().unwrap().len(), 16);
    assert_eq!(found[1].0, Status::Success as u16);
    let manifest: serde_json::Value = serde_json::from_slice(&found[2].1).unwrap();
    assert_eq!(manifest["scopes"][1]["collections"][0]["name"], "orders");
}

#[test]
fn work_that_a_request_waits_for_runs_on_the_calling_thread() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &Options { quota_mib: 4, ..by_hand() });
    let docs = db.default_collection();
    for number in 0..600 {
        docs.upsert(format!("k{number}"), &vec![b'v'; 10_000], Write::new()).unwrap();
    }
    let mut session = begin(&db);
    let mut out = Vec::new();
    for number in 0..600 {
        let key = format!("k{number}");
        let vbid = nacre_types::Vbid::of(key.as_bytes(), 16).0;
        let key = [b"\0", key.as_bytes()].concat();
        session.receive(&request(Opcode::Get, vbid, b"", &key, b""), &mut out).unwrap();
    }
    let found = responses(&out);
    assert_eq!(found.len(), 600, "also those that had left memory");
    assert!(found.iter().all(|(status, value)| *status == 0 && value.len() == 10_000));
}

#[test]
fn responses_of_a_database_that_is_always_synced_come_after_the_sync() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &Options { sync: Sync::Always, ..by_hand() });
    let mut session = begin(&db);
    let vbid = nacre_types::Vbid::of(b"a", 16).0;
    let mut out = Vec::new();
    session.receive(&request(Opcode::Set, vbid, &[0; 8], b"\0a", b"1"), &mut out).unwrap();
    assert_eq!(responses(&out), [(0, Vec::new())]);
    assert_eq!(db.status().unsaved, 0);
}

#[test]
fn malformed_frames_end_only_their_session() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let mut session = begin(&db);
    let mut out = Vec::new();
    let refused = session.receive(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &mut out);
    assert!(matches!(refused, Err(Error::SessionEnded(_))));
    assert!(matches!(session.poll(&mut out), Err(Error::SessionEnded(_))));
    begin(&db);
    let mut session = begin(&db);
    let quit = session.receive(&request(Opcode::Quit, 0, b"", b"", b""), &mut out);
    assert!(matches!(quit, Err(Error::SessionEnded(_))));
    db.close().unwrap();
    assert!(matches!(db.session(|| {}).map(drop), Err(Error::Closed)));
}
