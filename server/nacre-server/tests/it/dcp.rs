//! Consumers of history on real sockets: all vBuckets of a bucket, at full speed and at none.

use crate::process::{BUCKET, PASSWORD, Server, USER, port_base};
use nacre_conformance::kv::dcp::{Consumer, Event, PRODUCER, Range};
use nacre_conformance::kv::{KvClient, Request};
use std::collections::BTreeMap;
use std::io::ErrorKind;

const VBUCKETS: u16 = 1024;
/// Bytes that a consumer lets be on their way.
const WINDOW: usize = 64 << 10;

fn consumer(server: &Server, name: &str) -> Consumer {
    let client = KvClient::connect(server.kv_address(), USER, PASSWORD, BUCKET).unwrap();
    Consumer::open(client, name, PRODUCER).unwrap()
}

fn stream_all(consumer: &mut Consumer) {
    for vbid in 0..VBUCKETS {
        assert!(consumer.stream(vbid, Range::ALL, "").unwrap().is_success());
    }
}

/// Writes `count` documents in bursts; those with a number that three divides are deleted again.
fn write(client: &mut KvClient, from: u32, count: u32, body: &str) {
    for burst in (from..from + count).collect::<Vec<_>>().chunks(500) {
        let mut sent = 0;
        for n in burst {
            let name = format!("key-{n}").into_bytes();
            let (vbid, key) = (client.vbid(&name), client.wire_key(0, &name));
            let set = Request {
                opcode: 0x01,
                vbid,
                key: key.clone(),
                extras: vec![0; 8],
                value: format!("{{\"n\":{n},\"body\":\"{body}\"}}").into_bytes(),
                ..Request::default()
            };
            client.send(&set).unwrap();
            sent += 1;
            if n % 3 == 0 {
                client.send(&Request { opcode: 0x04, vbid, key, ..Request::default() }).unwrap();
                sent += 1;
            }
        }
        (0..sent).for_each(|_| assert!(client.receive().unwrap().is_success()));
    }
}

fn expected(count: u32) -> BTreeMap<String, String> {
    let body = |n: u32| (format!("key-{n}"), format!("{{\"n\":{n},\"body\":\"\"}}"));
    (0..count).filter(|n| n % 3 != 0).map(body).collect()
}

/// Reads on until `documents` equals `expected`, with acknowledgements; seqnos ascend in each vBucket, within
/// snapshots.
fn follow(
    consumer: &mut Consumer,
    documents: &mut BTreeMap<String, String>,
    expected: &BTreeMap<String, String>,
) {
    let mut positions: BTreeMap<u16, (u64, u64, u64)> = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut taken = 0;
    // Comparing maps costs more than receiving.
    while documents.len() != expected.len() || documents != expected {
        let (vbid, event, bytes) = consumer.next_event().unwrap();
        taken += bytes;
        if taken > WINDOW / 2 {
            consumer.acknowledge(std::mem::take(&mut taken)).unwrap();
        }
        let position = positions.entry(vbid).or_default();
        let seqno = match event {
            Event::Snapshot(start, end) => {
                (position.1, position.2) = (start, end);
                continue;
            }
            Event::Mutation { seqno, key, value } => {
                documents.insert(text(&key[1..]), text(&value));
                seqno
            }
            Event::Deletion { seqno, key } => {
                documents.remove(&text(&key[1..]));
                seqno
            }
            other => panic!("{other:?}"),
        };
        assert!(seqno > position.0 && (position.1..=position.2).contains(&seqno), "{position:?}");
        position.0 = seqno;
    }
    consumer.acknowledge(taken).unwrap();
}

fn a_consumer_follows_a_bucket(arguments: &[&str]) {
    const COUNT: u32 = 6000;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_with(directory.path(), port_base(), arguments);
    let mut client = server.client();
    write(&mut client, 0, COUNT, "");
    let mut consumer = consumer(&server, "follower");
    let window = WINDOW.to_string();
    assert!(consumer.control("connection_buffer_size", &window).unwrap().is_success());
    stream_all(&mut consumer);
    let mut documents = BTreeMap::new();
    follow(&mut consumer, &mut documents, &expected(COUNT));
    // From now on as it is written, while others write.
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut client, COUNT, COUNT, ""));
        follow(&mut consumer, &mut documents, &expected(2 * COUNT));
    });
}

#[test]
fn a_consumer_receives_existing_and_then_new_writes() {
    a_consumer_follows_a_bucket(&[]);
}

#[test]
fn a_consumer_is_served_without_io_uring_too() {
    a_consumer_follows_a_bucket(&["--no-io-uring"]);
}

/// One of the statistics of a group.
fn stat(client: &mut KvClient, group: &[u8], name: &[u8]) -> u64 {
    client.send(&Request { opcode: 0x10, key: group.to_vec(), ..Request::default() }).unwrap();
    let mut found = 0;
    loop {
        let reply = client.receive().unwrap();
        if reply.key.is_empty() {
            return found;
        }
        if reply.key == name {
            found = reply.text().parse().unwrap();
        }
    }
}

#[test]
fn a_stalled_consumer_costs_little_memory_and_delays_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let mut client = server.client();
    let mut stuck = consumer(&server, "stuck");
    stream_all(&mut stuck);
    assert_eq!(stat(&mut client, b"dcp", b"ep_dcp_count"), 1);
    // 150 MiB; a fifth of the bucket's 256 MiB is for history, once it is stored.
    let body = "x".repeat(16 << 10);
    (0..20).for_each(|_| write(&mut client, 0, 500, &body));
    server.wait_for("history to go", |_| {
        (stat(&mut client, b"memory", b"ep_checkpoint_memory") < 64 << 20).then_some(())
    });
    let mut other = consumer(&server, "other");
    stream_all(&mut other);
    let mut found = 0;
    while found < 333 {
        let (_, event, _) = other.next_event().unwrap();
        found += usize::from(matches!(event, Event::Mutation { .. }));
    }
    drop((stuck, other));
    server.wait_for("the consumers to go", |_| {
        (stat(&mut client, b"dcp", b"ep_dcp_count") == 0).then_some(())
    });
}

fn a_stuck_connection_is_closed_when_its_client_comes_back(arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_with(directory.path(), port_base(), arguments);
    let mut client = server.client();
    let mut stuck = consumer(&server, "consumer");
    stream_all(&mut stuck);
    // More than sockets hold.
    let body = "x".repeat(16 << 10);
    (0..4).for_each(|round| write(&mut client, round * 500, 500, &body));
    let mut back = consumer(&server, "consumer");
    stream_all(&mut back);
    let end = loop {
        match stuck.next_event() {
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert!(
        matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset),
        "what was on its way, and the end: {end:?}"
    );
    assert!(matches!(back.next_event(), Ok((_, Event::Snapshot(..), _))));
}

#[test]
fn a_reconnecting_client_replaces_its_stuck_connection() {
    a_stuck_connection_is_closed_when_its_client_comes_back(&[]);
    a_stuck_connection_is_closed_when_its_client_comes_back(&["--no-io-uring"]);
}
