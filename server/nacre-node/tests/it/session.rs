//! Tests of one connection at the level of bytes.

use crate::world::{Connection, World, durable, local, nobody, request};
use nacre_auth::{Role, User};
use nacre_bucket::kv::{Next, Peer, Session};
use proptest::prelude::*;
use std::sync::Arc;

#[test]
fn requests_of_one_burst_are_answered_in_order() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let burst = [
        request(0x01, &[0; 8], b"k", b"1"),
        request(0x00, b"", b"k", b""),
        request(0x0a, b"", b"", b""),
        request(0x00, b"", b"missing", b""),
    ]
    .concat();
    for cut in 0..burst.len() {
        let (mut answers, consumed, _) = connection.give(&burst[..cut]);
        let (rest, _, _) = connection.give(&burst[consumed..]);
        answers.extend(rest);
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [0, 0, 0, 1], "cut at {cut}");
    }
}

/// Units of 4 KiB for reads, and of 1 KiB for writes, of key and value.
#[test]
fn a_client_that_meters_requests_receives_the_units_of_each() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let set = |bytes: usize| request(0x01, &[0; 8], b"k", &vec![b'x'; bytes]);
    assert_eq!(connection.ask(&set(1)).framing, b"", "it was not asked for");
    connection.ask(&request(0x1f, b"", b"test", &[0, 0x10, 0, 0x11, 0, 0x1a]));
    let mut used = |frame: &[u8]| {
        let framing = connection.ask(frame).framing;
        let of =
            |kind: u8| framing.chunks(3).find(|info| info[0] == kind).map_or(0, |info| info[2]);
        (of(0x12), of(0x22))
    };
    assert_eq!(used(&set(1022)), (0, 1), "with the key and its collection, a KiB");
    assert_eq!(used(&set(1023)), (0, 2), "what is replaced is not read");
    assert_eq!(used(&durable(1, 1000, &set(1022))), (0, 2), "twice for a durable write");
    assert_eq!(used(&set(4095)), (0, 5));
    assert_eq!(used(&request(0x00, b"", b"k", b"")), (2, 0), "GET");
    assert_eq!(used(&request(0x00, b"", b"none", b"")), (0, 0), "a refusal is free");
    assert_eq!(used(&request(0x0e, b"", b"k", b"y")), (2, 5), "APPEND");
    assert_eq!(used(&request(0x1c, &[0, 0, 1, 0], b"k", b"")), (2, 5), "TOUCH");
    assert_eq!(used(&request(0x04, b"", b"k", b"")), (0, 1), "DELETE");
    let upsert = |key: &[u8]| request(0xc8, &[0, 1, 0, 0x01], key, b"a1");
    assert_eq!((used(&upsert(b"d")), used(&upsert(b"d"))), ((0, 1), (1, 1)), "DICT_UPSERT");
    assert_eq!(used(&request(0xc5, &[0, 1, 0], b"d", b"a")), (1, 0), "SUBDOC_GET");
}

/// Memory of a connection counts against the share of its user, except for the buffer of one read.
#[test]
fn a_frame_without_memory_for_it_is_refused_and_the_connection_continues() {
    const MIB: usize = 1 << 20;
    let world = World::new();
    let node = world.node();
    let budget = &node.memory().budgets().requests;
    budget.set_limit(40 * MIB);
    let mut connection = Connection::open(&node);
    let session = &mut connection.session;
    assert!(session.reserve_input(64 << 10), "that is free");
    assert_eq!(budget.held(), 0);
    assert!(session.reserve_input(10 * MIB) && !session.reserve_input(11 * MIB));
    assert_eq!(budget.held(), 10 * MIB);
    let mut out = Vec::new();
    let set = request(0x01, &[0; 8], b"k", b"1");
    assert!(session.refuse_frame(&set, &mut out));
    assert_eq!((out[1], &out[6..8]), (0x01, &[0, 0x86][..]), "TEMPORARY_FAILURE");
    assert_eq!(budget.held(), 0);
    let response = [0x81, 0x5c].into_iter().chain([0; 22]).collect::<Vec<u8>>();
    assert!(!session.refuse_frame(&response, &mut out), "it waits for no answer");
    assert_eq!(connection.ask(&set).status, 0);
}

#[test]
fn large_answers_are_refused_while_those_before_fill_the_memory() {
    const MIB: usize = 1 << 20;
    let world = World::new();
    let node = world.node();
    node.memory().budgets().requests.set_limit(40 * MIB);
    let (mut reader, mut other) = (Connection::open(&node), Connection::open(&node));
    let (large, small) = (vec![b'x'; MIB], b"small");
    other.ask(&request(0x01, &[0; 8], b"large", &large));
    other.ask(&request(0x01, &[0; 8], b"small", small));
    assert!(!reader.session.hold_output(10 * MIB), "the share of a user is 10 MiB");
    let get = |key: &[u8]| request(0x00, b"", key, b"");
    assert_eq!(other.ask(&get(b"large")).status, 0x86);
    assert_eq!(other.ask(&get(b"small")).status, 0, "that costs little");
    assert_eq!(other.ask(&request(0x1d, &[0; 4], b"large", b"")).status, 0, "it was touched");
    assert!(reader.session.hold_output(0));
    assert_eq!(other.ask(&get(b"large")).status, 0);
}

#[test]
fn statistics_are_of_all_or_of_one_part() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let mut ask = |group: &str| {
        let (answers, _, _) = connection.give(&request(0x10, b"", group.as_bytes(), b""));
        (answers.last().unwrap().status, answers.len() - 1)
    };
    for group in ["vbucket", "vbucket-seqno", "vbucket-details", "failovers", "durability-monitor"]
    {
        let (all, one) = (ask(group), ask(&format!("{group} 0")));
        assert!(
            all.0 == 0 && one.0 == 0 && one.1 > 0 && all.1 % one.1 == 0,
            "{group}: {all:?} {one:?}"
        );
        assert_eq!(ask(&format!("{group} 70000")).0, 0x04, "{group}");
        assert_eq!(ask(&format!("{group} 1024")).0, 0x07, "{group}");
    }
    assert_eq!(ask("collections _default._default"), (0, 5));
    assert_eq!(ask("collections _default.none").0, 0x88);
    assert_eq!((ask("scopes _default"), ask("scopes none").0), ((0, 3), 0x8c));
    assert_eq!((ask("uuid"), ask("none").0, ask("memory 1").0), ((0, 1), 0x01, 0x01));
}

#[test]
fn quiet_requests_answer_only_unusual_results() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let burst = [
        request(0x11, &[0; 8], b"k", b"1"),
        request(0x12, &[0; 8], b"k", b"2"),
        request(0x09, b"", b"missing", b""),
        request(0x09, b"", b"k", b""),
        request(0x0a, b"", b"", b""),
    ]
    .concat();
    let (answers, _, _) = connection.give(&burst);
    let shown: Vec<(u16, &[u8])> =
        answers.iter().map(|answer| (answer.status, &answer.value[..])).collect();
    assert_eq!(shown, [(2, &b""[..]), (0, &b"1"[..]), (0, &b""[..])]);
}

#[test]
fn a_password_is_refused_on_an_unencrypted_connection() {
    let world = World::new();
    let node = world.node();
    let login = |confidential: bool, opcode: u8, key: &[u8], value: &[u8]| {
        let mut session = Session::new(
            Arc::clone(&node) as _,
            Peer { confidential, ..Peer::default() },
            nobody(),
        );
        let mut out = Vec::new();
        session.receive(&request(opcode, b"", key, value), &mut out, node.now());
        world.run_tasks();
        session.resume(&mut out, node.now());
        (u16::from_be_bytes([out[6], out[7]]), String::from_utf8_lossy(&out[24..]).into_owned())
    };
    let plain = |confidential| login(confidential, 0x21, b"PLAIN", b"\0admin\0password").0;
    assert_eq!((plain(true), plain(false)), (0x00, 0x20));
    let listed = |confidential| login(confidential, 0x20, b"", b"").1;
    assert_eq!(listed(true), "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN");
    assert_eq!(listed(false), "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1");
}

#[test]
fn a_certificate_logs_in_the_user_it_names_if_there_is_one() {
    let world = World::new();
    let node = world.node();
    let select = |user: &str| {
        let peer = Peer { confidential: true, user: Some(user.to_owned()), ..Peer::default() };
        let mut session = Session::new(Arc::clone(&node) as _, peer, nobody());
        let mut out = Vec::new();
        session.receive(&request(0x89, b"", b"b", b""), &mut out, node.now());
        u16::from_be_bytes([out[6], out[7]])
    };
    assert_eq!((select("admin"), select("nobody")), (0x00, 0x24));
}

#[test]
fn a_client_without_a_login_cannot_send_a_large_frame() {
    let world = World::new();
    let node = world.node();
    let header = |body: usize| {
        let mut header = request(0x21, b"", b"", b"");
        header[8..12].copy_from_slice(&(body as u32).to_be_bytes());
        header
    };
    let mut stranger = Session::new(Arc::clone(&node) as _, local(), nobody());
    let mut out = Vec::new();
    let (_, next) = stranger.receive(&header(16 << 10), &mut out, node.now());
    assert!(matches!(next, Next::More), "{next:?}");
    let (_, next) = stranger.receive(&header((16 << 10) + 1), &mut out, node.now());
    assert!(matches!(next, Next::Close(Some(_))), "{next:?}");
    let (_, _, next) = Connection::open(&node).give(&header(20 << 20));
    assert!(matches!(next, Next::More), "{next:?}");
}

#[test]
fn only_a_login_is_possible_before_the_login() {
    let world = World::new();
    let node = world.node();
    let mut session = Session::new(Arc::clone(&node) as _, local(), nobody());
    let mut status = |bytes: &[u8]| {
        let mut out = Vec::new();
        session.receive(bytes, &mut out, node.now());
        world.run_tasks();
        session.resume(&mut out, node.now());
        u16::from_be_bytes([out[6], out[7]])
    };
    assert_eq!(status(&request(0x0a, b"", b"", b"")), 0x00);
    assert_eq!(status(&request(0x00, b"", b"k", b"")), 0x24);
    assert_eq!(status(&request(0x89, b"", b"b", b"")), 0x24);
    assert_eq!(status(&request(0xb5, b"", b"", b"")), 0x24);
    assert_eq!(status(&request(0x21, b"", b"PLAIN", b"\0admin\0wrong")), 0x20);
    assert_eq!(status(&request(0x22, b"", b"PLAIN", b"x")), 0x20);
    assert_eq!(status(&request(0x21, b"", b"PLAIN", b"\0admin\0password")), 0x00);
    assert_eq!(status(&request(0x00, b"", b"k", b"")), 0x08, "no bucket yet");
}

#[test]
fn a_burst_for_large_documents_is_answered_piece_by_piece() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("large", &"x".repeat(1 << 20));
    let burst = request(0x00, b"", b"large", b"").repeat(100);
    let (answers, consumed, next) = connection.give(&burst);
    assert!(matches!(next, Next::Flush), "{next:?}");
    assert!(answers.len() <= 2 && consumed < burst.len(), "{} answers in memory", answers.len());
}

#[test]
fn a_wait_for_persistence_ends_when_the_store_has_the_seqno() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    let wait = request(0xb7, &1u64.to_be_bytes(), b"", b"");
    assert_eq!(connection.give(&wait).0, [], "not yet");
    let ping = request(0x0a, b"", b"", b"");
    let (answers, consumed, next) = connection.give(&ping);
    assert!(answers.is_empty() && consumed == 0 && matches!(next, Next::Wait), "{next:?}");
    assert_eq!(connection.resume(), []);
    world.run_tasks();
    assert_eq!(connection.resume()[0].status, 0);
    assert_eq!(connection.ask(&ping).status, 0);
    assert_eq!(connection.ask(&wait).status, 0, "asked again, it is there");
    assert_eq!(
        connection.ask(&request(0xb7, &2u64.to_be_bytes(), b"", b"")).status,
        0x22,
        "never written"
    );
}

#[test]
fn a_lock_ends_with_its_time() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    assert_eq!(connection.ask(&request(0x94, &5u32.to_be_bytes(), b"k", b"")).status, 0);
    assert_eq!(connection.set("k", "2").status, 0x09);
    world.wait(5);
    let mut later = Connection::open(&node);
    assert_eq!(later.set("k", "2").status, 0);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_a_session(
        frames in prop::collection::vec(
            (any::<u8>(), prop::collection::vec(any::<u8>(), 0..30), prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..60)),
            1..20,
        ),
    ) {
        let world = World::new();
        let node = world.node();
        let mut connection = Connection::open(&node);
        for (opcode, extras, key, value) in frames {
            let (_, _, next) = connection.give(&request(opcode, &extras, &key, &value));
            if matches!(next, Next::Close(_)) {
                break;
            }
        }
        world.run_tasks();
    }
}

#[test]
fn connections_end_when_their_node_has_left_the_cluster_that_knew_user_and_bucket() {
    for knows_the_user in [false, true] {
        let world = World::new();
        let node = world.node();
        let mut connection = Connection::open(&node);
        assert_eq!(connection.set("k", "1").status, 0);
        let (id, uuid, cluster) = node.new_cluster();
        node.replace_cluster(id, uuid, cluster).unwrap();
        if knows_the_user {
            let admin = User::new("admin", "password", vec![Role::admin()], node.new_salt());
            node.put_user(admin).unwrap();
        }
        let (answers, _, next) = connection.give(&request(0x00, b"", b"k", b""));
        assert!(answers.is_empty() && matches!(next, Next::Close(_)), "{next:?}");
    }
}
