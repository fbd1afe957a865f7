//! Transactions whose client is gone: their records are finished as an SDK would do it.

use crate::world::{Connection, World, request};
use nacre_node::Node;
use nacre_query_service::finish_lost_transactions;
use nacre_types::Vbid;
use serde_json::{Value, json};
use std::sync::Arc;

const OP_GET: u8 = 0x00;
const OP_SET: u8 = 0x01;
const OP_MULTI_MUTATION: u8 = 0xd1;
const OP_DICT_UPSERT: u8 = 0xc8;
/// Flags of a path: create the parent; an attribute; the value is a macro.
const CREATE: u8 = 0x01;
const ATTRIBUTE: u8 = 0x04;
const MACRO: u8 = 0x10;
/// Flags of a document: create it; access tombstones; create it as a tombstone.
const MAKE: u8 = 0x01;
const SEE_TOMBSTONES: u8 = 0x04;
const AS_TOMBSTONE: u8 = 0x08;
/// The record of a transaction whose first document is in vBucket 9 of 1024.
const RECORD: &str = "_txn:atr-9-#0";
/// Time limit of the transactions, in milliseconds.
const LASTS_MS: u64 = 2000;

/// Sends a request for a key to the key's vBucket.
fn ask(
    connection: &mut Connection,
    opcode: u8,
    extras: &[u8],
    key: &str,
    value: &[u8],
) -> (u16, Vec<u8>) {
    let mut frame = request(opcode, extras, key.as_bytes(), value);
    frame[6..8].copy_from_slice(&Vbid::of(key.as_bytes(), 4).0.to_be_bytes());
    let answer = connection.ask(&frame);
    (answer.status, answer.value)
}

fn edit(connection: &mut Connection, key: &str, flags: u8, paths: &[(&str, u8, Value)]) {
    let mut body = Vec::new();
    for (path, flags, value) in paths {
        let value = value.to_string().into_bytes();
        body.extend([OP_DICT_UPSERT, *flags | ATTRIBUTE]);
        body.extend((path.len() as u16).to_be_bytes());
        body.extend((value.len() as u32).to_be_bytes());
        body.extend_from_slice(path.as_bytes());
        body.extend(value);
    }
    let (status, _) = ask(connection, OP_MULTI_MUTATION, &[flags], key, &body);
    assert!([0x00, 0xcd].contains(&status), "{key}: {status:#x}");
}

fn staged(kind: &str, body: Option<Value>) -> Value {
    let mut staged = json!({
        "id": {"txn": "t", "atmpt": "a", "op": "o"},
        "atr": {"id": RECORD, "bkt": "b", "scp": "_default", "coll": "_default"},
        "op": {"type": kind},
    });
    if let Some(body) = body {
        staged["op"]["stgd"] = body;
    }
    staged
}

/// Starts a node with `kept` and `old`, and with a transaction in `state` that changes one, removes the other, and
/// inserts `new`.
fn with_transaction(world: &Arc<World>, state: &str, lists: bool) -> (Arc<Node>, Connection) {
    let node = world.node();
    let mut connection = Connection::open(&node);
    for key in ["kept", "old"] {
        assert_eq!(ask(&mut connection, OP_SET, &[0; 8], key, b"{\"n\":1}").0, 0);
    }
    let told = |id: &str| json!([{"bkt": "b", "scp": "_default", "col": "_default", "id": id}]);
    let mut entry = json!({"st": state, "tid": "t", "exp": LASTS_MS, "d": "n"});
    if lists {
        for (list, id) in [("ins", "new"), ("rep", "kept"), ("rem", "old")] {
            entry[list] = told(id);
        }
    }
    let begun = json!("${Mutation.CAS}");
    let record = [("attempts.a", CREATE, entry), ("attempts.a.tst", CREATE | MACRO, begun)];
    edit(&mut connection, RECORD, MAKE, &record);
    for (key, flags, kind, body) in [
        ("kept", 0, "replace", Some(json!({"n": 2}))),
        ("old", 0, "remove", None),
        ("new", MAKE | SEE_TOMBSTONES | AS_TOMBSTONE, "insert", Some(json!({"n": 3}))),
    ] {
        edit(&mut connection, key, flags, &[("txn", CREATE, staged(kind, body))]);
    }
    (node, connection)
}

fn stored(connection: &mut Connection) -> [Option<Value>; 3] {
    ["kept", "old", "new"].map(|key| {
        let (status, body) = ask(connection, OP_GET, b"", key, b"");
        (status == 0).then(|| serde_json::from_slice(&body).unwrap())
    })
}

#[test]
fn an_abandoned_transaction_is_finished_as_its_record_requires() {
    let before = [Some(json!({"n": 1})), Some(json!({"n": 1})), None];
    let after = [Some(json!({"n": 2})), None, Some(json!({"n": 3}))];
    for (state, lists, expected) in [
        ("COMMITTED", true, &after),
        ("ABORTED", true, &before),
        ("PENDING", false, &before),
        ("COMPLETED", true, &before),
    ] {
        let world = World::new();
        let (node, mut connection) = with_transaction(&world, state, lists);
        assert_eq!(stored(&mut connection), before, "{state}");
        assert_eq!(finish_lost_transactions(&node), 0, "{state}: its time is not over");
        world.pass(LASTS_MS + 1000);
        assert_eq!(finish_lost_transactions(&node), 0, "{state}: its client may be late");
        world.pass(10_000);
        connection.now = node.now();
        assert_eq!(finish_lost_transactions(&node), 1, "{state}");
        assert_eq!(stored(&mut connection), *expected, "{state}");
        assert_eq!(finish_lost_transactions(&node), 0, "{state}: once");
    }
}

#[test]
fn a_write_over_a_staged_document_stays() {
    let world = World::new();
    let (node, mut connection) = with_transaction(&world, "COMMITTED", true);
    // Another client has already done the rest, and has changed the document afterwards.
    edit(&mut connection, "kept", 0, &[("txn", CREATE, json!({"id": {"atmpt": "another"}}))]);
    assert_eq!(ask(&mut connection, OP_SET, &[0; 8], "new", b"{\"n\":7}").0, 0);
    world.pass(LASTS_MS + 10_000);
    connection.now = node.now();
    assert_eq!(finish_lost_transactions(&node), 1);
    let [kept, old, new] = stored(&mut connection);
    assert_eq!((kept, old), (Some(json!({"n": 1})), None));
    assert_eq!(new, Some(json!({"n": 7})));
}
