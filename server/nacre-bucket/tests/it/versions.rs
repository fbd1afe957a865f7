//! Versions from another cluster, range scans, and pushed cluster maps.

use crate::world::{Connection, World, request};
use nacre_cluster::{BucketSettings, Change, ClusterChange, ConflictResolution};

const EXISTS: u16 = 0x02;
const INVALID: u16 = 0x04;
const CAS_INVALID: u16 = 0x0f;
/// A CAS of a time before the test's clock.
const CAS: u64 = 1_600_000_000_000_000_000;

/// Opcodes of writes with metadata.
pub const SET: u8 = 0xa2;
pub const ADD: u8 = 0xa4;
pub const DELETE: u8 = 0xa8;

/// Returns a write with metadata: opcode, value, revision, CAS and options.
pub fn version(opcode: u8, value: &[u8], rev: u64, cas: u64, options: u32) -> Vec<u8> {
    let mut extras = vec![0, 0, 0, 7, 0, 0, 0, 0];
    extras.extend(rev.to_be_bytes());
    extras.extend(cas.to_be_bytes());
    if options != 0 {
        extras.extend(options.to_be_bytes());
    }
    request(opcode, &extras, b"k", value)
}

#[test]
fn the_version_that_was_changed_more_often_stays() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    assert_eq!(connection.ask(&version(SET, b"there", 5, CAS, 0)).status, 0);
    let found = connection.get("k");
    assert_eq!(
        (&found.value[..], found.cas, &found.extras[..]),
        (&b"there"[..], CAS, &[0, 0, 0, 7][..])
    );
    assert_eq!(connection.ask(&version(SET, b"same", 5, CAS, 0)).status, EXISTS);
    assert_eq!(connection.ask(&version(SET, b"older", 4, CAS + (1 << 16), 0)).status, EXISTS);
    assert_eq!(connection.ask(&version(ADD, b"newer", 9, CAS, 0)).status, EXISTS, "it exists");
    assert_eq!(connection.ask(&version(DELETE, b"", 6, CAS, 0)).status, 0);
    assert_eq!(connection.get("k").status, 0x01);
    assert_eq!(
        connection.ask(&version(SET, b"late", 5, CAS, 0)).status,
        EXISTS,
        "the tombstone won"
    );
    assert_eq!(connection.ask(&version(ADD, b"again", 7, CAS, 0)).status, 0);
    let meta = connection.ask(&request(0xa0, &[2], b"k", b""));
    assert_eq!(meta.extras[12..20], 7u64.to_be_bytes(), "the revision is that of the version");
    assert_eq!(connection.set("k", "here").status, 0);
    let meta = connection.ask(&request(0xa0, &[2], b"k", b""));
    assert_eq!(meta.extras[12..20], 8u64.to_be_bytes(), "and counts on from there");
}

#[test]
fn a_bucket_that_resolves_by_time_keeps_the_later_version() {
    let world = World::new();
    let resolution = ConflictResolution::LastWriteWins;
    let settings = BucketSettings { conflict_resolution: resolution, ..BucketSettings::default() };
    let node = world.node_with(settings);
    let mut connection = Connection::open(&node);
    assert_eq!(connection.ask(&version(SET, b"1", 9, CAS, 0)).status, INVALID, "not by mistake");
    let force = 0x02;
    assert_eq!(connection.ask(&version(SET, b"1", 9, CAS, force)).status, 0);
    assert_eq!(connection.ask(&version(SET, b"2", 1, CAS + (1 << 16), force)).status, 0);
    assert_eq!(connection.ask(&version(SET, b"3", 10, CAS, force)).status, EXISTS);
    assert_eq!(connection.get("k").value, b"2");
}

#[test]
fn options_and_clocks_are_checked() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let (regenerate, skip, expiration) = (0x04, 0x08, 0x10);
    assert_eq!(connection.ask(&version(SET, b"1", 1, CAS, regenerate)).status, INVALID);
    assert_eq!(connection.ask(&version(SET, b"1", 1, CAS, expiration)).status, INVALID);
    assert_eq!(connection.ask(&version(DELETE, b"body", 1, CAS, 0)).status, INVALID);
    let by_time = connection.ask(&version(SET, b"1", 1, CAS, 0x02));
    assert_eq!(by_time.status, INVALID, "this bucket counts changes");
    assert_eq!(connection.ask(&version(SET, b"1", 1, 0, 0)).status, CAS_INVALID);
    let two_hours = 7_200_000_000_000;
    let ahead = world_now() + two_hours;
    assert_eq!(connection.ask(&version(SET, b"1", 1, ahead, 0)).status, CAS_INVALID);
    assert_eq!(connection.ask(&version(SET, b"1", 5, CAS, 0)).status, 0);
    let answer = connection.ask(&version(SET, b"2", 1, CAS, skip | regenerate));
    assert_eq!(answer.status, 0, "whatever is there");
    assert!(answer.cas > CAS, "with a CAS of this cluster");
    let short = request(SET, &[0; 16], b"k", b"1");
    assert_eq!(connection.ask(&short).status, INVALID);
}

fn world_now() -> u64 {
    1_700_000_000_000_000_000
}

/// Begins a scan with options in JSON.
fn scan(world: &World, connection: &mut Connection, options: &str) -> (u16, Vec<u8>) {
    connection.give(&request(0xda, b"", b"", options.as_bytes()));
    world.run_tasks();
    let answer = connection.resume().pop().unwrap();
    (answer.status, answer.value)
}

fn read_on(world: &World, connection: &mut Connection, id: &[u8], items: u32) -> (u16, Vec<u8>) {
    let extras = [id, &items.to_be_bytes(), &[0; 8]].concat();
    connection.give(&request(0xdb, &extras, b"", b""));
    world.run_tasks();
    let answer = connection.resume().pop().unwrap();
    (answer.status, answer.value)
}

#[test]
fn a_scan_gives_the_keys_of_a_range_in_pieces() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    for key in ["a", "b", "c", "d", "e"] {
        connection.set(key, "1");
    }
    // From "b" (inclusive) to "d" (exclusive); YQ== would be "a".
    let range = r#"{"key_only":true,"range":{"start":"Yg==","excl_end":"ZA=="}}"#;
    let (status, id) = scan(&world, &mut connection, range);
    assert_eq!((status, id.len()), (0, 16));
    connection.set("bb", "too late");
    assert_eq!(read_on(&world, &mut connection, &id, 1), (0xa6, b"\x01b".to_vec()));
    assert_eq!(read_on(&world, &mut connection, &id, 9), (0xa7, b"\x01c".to_vec()));
    assert_eq!(read_on(&world, &mut connection, &id, 9).0, 0x01, "it is over");

    let (_, id) = scan(&world, &mut connection, range);
    assert_eq!(connection.ask(&request(0xdc, &id, b"", b"")).status, 0);
    assert_eq!(read_on(&world, &mut connection, &id, 9).0, 0x01);
    assert_eq!(connection.ask(&request(0xdc, &id, b"", b"")).status, 0x01);
}

#[test]
fn an_invalid_scan_is_refused() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("a", "1");
    for options in [
        "",
        "[]",
        r#"{"range":{"start":"YQ=="}}"#,
        r#"{"range":{"start":"YQ==","excl_start":"YQ==","end":"YQ=="}}"#,
        r#"{"range":{"start":"not base64","end":"YQ=="}}"#,
        r#"{"range":{"start":"YQ==","end":"YQ=="},"sampling":{"samples":1}}"#,
        r#"{"sampling":{"samples":-1}}"#,
        r#"{"collection":"1","sampling":{"samples":1}}"#,
        r#"{"collection":"zz","sampling":{"samples":1}}"#,
    ] {
        let answer = connection.ask(&request(0xda, b"", b"", options.as_bytes()));
        assert_eq!(answer.status, INVALID, "{options}");
    }
    let unknown = r#"{"collection":"99","sampling":{"samples":1}}"#;
    assert_eq!(connection.ask(&request(0xda, b"", b"", unknown.as_bytes())).status, 0x88);
    let nothing = r#"{"range":{"start":"eA==","end":"eg=="}}"#;
    assert_eq!(scan(&world, &mut connection, nothing).0, 0x01);
    let history = r#"{"sampling":{"samples":1},"snapshot_requirements":{"vb_uuid":"1","seqno":1}}"#;
    assert_eq!(scan(&world, &mut connection, history).0, 0xa8);
}

#[test]
fn clients_that_request_it_receive_new_maps() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let features = [0, 0x0c, 0, 0x1f];
    assert_eq!(connection.ask(&request(0x1f, b"", b"test", &features)).value, features);
    assert_eq!(connection.resume(), []);
    node.change(&Change::Cluster(ClusterChange::NameCluster { name: "pearl".into() })).unwrap();
    let pushed = connection.resume();
    let revision = (node.cluster().rev as i64).to_be_bytes();
    assert_eq!(pushed.len(), 1);
    assert_eq!((&pushed[0].extras[8..], &pushed[0].value[..]), (&revision[..], &b""[..]));
    assert_eq!(connection.resume(), [], "once");
}
