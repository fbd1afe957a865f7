//! Copies of vBuckets on several nodes.

use crate::nodes::Nodes;
use crate::world::{Connection, durable, request};
use nacre_auth::{Role, User};
use nacre_bucket::{Bucket, BucketEnv, Home};
use nacre_cluster::{
    BucketChange, BucketKind, BucketSettings, Chain, Change, Chosen, EvictionPolicy, Membership,
    NodeChange,
};
use nacre_node::Error;
use nacre_store::Fault;
use nacre_types::{NodeId, Seqno, VbState, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Starts two nodes with a copy of vBucket 0 each, and with "1" at the key `k` in both copies.
fn two_with_one_write() -> Nodes {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    nodes.connect(0).set("k", "1");
    nodes.run();
    nodes
}

/// Returns a node's version of a key in vBucket 0, or `gone` for a tombstone.
fn copy(nodes: &Nodes, index: usize, key: &str) -> Option<String> {
    let bucket = nodes.nodes[index].as_ref()?.bucket("b")?;
    let vbucket = bucket.vbucket(Vbid(0))?;
    let document = vbucket.find(format!("\0{key}").as_bytes())?;
    Some(match document.is_alive() {
        true => String::from_utf8_lossy(document.value()).into_owned(),
        false => "gone".into(),
    })
}

fn high_seqno(nodes: &Nodes, index: usize) -> Seqno {
    nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap().high_seqnos()[0]
}

fn set(value: &str) -> Vec<u8> {
    request(0x01, &[0; 8], b"k", value.as_bytes())
}

#[test]
fn replicas_have_what_the_active_copy_has() {
    let mut nodes = Nodes::new(3, 2);
    nodes.place(&[1, 2, 3]);
    let mut client = nodes.connect(0);
    for round in 0..300 {
        client.set(&format!("k{}", round % 50), &round.to_string());
    }
    assert_eq!(client.ask(&request(0x04, b"", b"k7", b"")).status, 0);
    nodes.run();
    for index in 0..3 {
        assert_eq!(copy(&nodes, index, "k49").as_deref(), Some("299"), "node {index}");
        assert_eq!(copy(&nodes, index, "k7").as_deref(), Some("gone"), "node {index}");
        assert_eq!(high_seqno(&nodes, index), Seqno(301));
    }
    let answer = nodes.connect(1).get("k49");
    assert_eq!(answer.status, 0x07, "a replica serves nobody");
    assert!(!answer.value.is_empty(), "and says who does");
}

#[test]
fn a_durable_write_counts_once_a_majority_has_it() {
    for level in 1..=3 {
        let mut nodes = Nodes::new(2, 1);
        nodes.place(&[1, 2]);
        nodes.run();
        nodes.cut.push((0, 1));
        let mut client = nodes.connect(0);
        client.set("k", "1");
        assert_eq!(client.give(&durable(level, 10_000, &set("2"))).0, []);
        nodes.run();
        assert_eq!(client.resume(), [], "the other copy does not have it");
        assert_eq!(nodes.connect(0).get("k").value, b"1");
        nodes.cut.clear();
        nodes.run();
        assert_eq!(client.resume()[0].status, 0, "level {level}");
        assert_eq!(nodes.connect(0).get("k").value, b"2");
        nodes.run();
        assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("2"));
    }
}

#[test]
fn a_write_without_enough_copies_is_refused() {
    let mut nodes = Nodes::new(2, 2);
    nodes.place(&[1, 0, 0]);
    nodes.run();
    let mut client = nodes.connect(0);
    assert_eq!(client.ask(&durable(1, 1000, &set("1"))).status, 0xa1);
    nodes.place(&[1, 2, 0]);
    nodes.run();
    client.give(&durable(1, 1000, &set("1")));
    nodes.run();
    assert_eq!(client.resume()[0].status, 0, "two of three");
}

#[test]
fn a_copy_is_not_followed_in_a_term_before_its_active_node_has_begun_it() {
    let mut nodes = two_with_one_write();
    let branches = |nodes: &Nodes, index: usize| {
        let bucket = nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap();
        let vbucket = bucket.vbucket(Vbid(0)).unwrap();
        (vbucket.term(), vbucket.failover_log().clone())
    };
    let before = branches(&nodes, 0);
    assert_eq!(branches(&nodes, 1), before);
    // The replica learns of a new term first, while the active copy still writes history in the old one.
    nodes.unaware.insert(0);
    let follower = nodes.nodes[1].as_ref().unwrap();
    let chain = follower.cluster().buckets["b"].chains[0].clone();
    let next = Chain { term: chain.term + 1, ..chain };
    let chains = BTreeMap::from([("b".to_owned(), BTreeMap::from([(0, next)]))]);
    follower
        .change(&Change::Nodes(NodeChange::MoveCopies { memberships: BTreeMap::new(), chains }))
        .unwrap();
    nodes.pass(200);
    nodes.connect(0).set("k", "2");
    nodes.pass(200);
    assert_eq!((branches(&nodes, 0), branches(&nodes, 1)), (before.clone(), before.clone()));
    nodes.unaware.clear();
    nodes.pass(200);
    assert_eq!(branches(&nodes, 0).0, before.0 + 1);
    assert_eq!(branches(&nodes, 1), branches(&nodes, 0));
    assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("2"));
}

#[test]
fn a_replica_that_is_promoted_serves_what_it_has() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let mut client = nodes.connect(0);
    client.set("k", "1");
    client.give(&durable(1, 10_000, &set("2")));
    nodes.run();
    assert_eq!(client.resume()[0].status, 0);
    nodes.run();
    nodes.kill(0);
    nodes.place(&[2, 0]);
    nodes.run();
    let mut client = nodes.connect(1);
    assert_eq!(client.get("k").value, b"2");
    assert_eq!(client.set("k", "3").status, 0);
}

#[test]
fn a_prepare_that_is_inherited_hides_its_key_until_it_is_committed() {
    let mut nodes = Nodes::new(3, 2);
    nodes.place(&[1, 2, 3]);
    let mut client = nodes.connect(0);
    client.set("k", "1");
    nodes.run();
    nodes.cut = vec![(0, 2)];
    client.give(&durable(3, 10_000, &set("2")));
    // The second node receives the prepare, but its acknowledgement is lost with the first node.
    nodes.worlds[1].store().inject(Some(Fault::Full));
    nodes.run();
    assert_eq!(client.resume(), []);
    nodes.kill(0);
    nodes.cut = vec![(1, 2)];
    nodes.worlds[1].store().inject(None);
    nodes.place(&[2, 3, 0]);
    nodes.worlds[1].wait(1);
    nodes.run();
    let mut client = nodes.connect(1);
    assert_eq!(client.get("k").status, 0xa4, "it may have been seen");
    nodes.cut.clear();
    nodes.run();
    assert_eq!(client.get("k").value, b"2");
}

#[test]
fn a_copy_with_another_history_restarts() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let mut client = nodes.connect(0);
    client.set("k", "1");
    nodes.run();
    nodes.cut.push((0, 1));
    client.set("k", "lost");
    client.set("other", "lost");
    nodes.run();
    nodes.place(&[2, 1]);
    nodes.connect(1).set("k", "2");
    nodes.cut.clear();
    nodes.run();
    nodes.worlds[0].wait(1);
    nodes.run();
    assert_eq!(copy(&nodes, 0, "k").as_deref(), Some("2"));
    assert_eq!(copy(&nodes, 0, "other"), None);
    assert_eq!(high_seqno(&nodes, 0), high_seqno(&nodes, 1));
    // The write is also on its disk.
    nodes.kill(0);
    nodes.start(0);
    assert_eq!(copy(&nodes, 0, "k").as_deref(), Some("2"));
    assert_eq!(copy(&nodes, 0, "other"), None);
    nodes.run();
    nodes.connect(1).set("k", "3");
    nodes.run();
    assert_eq!(copy(&nodes, 0, "k").as_deref(), Some("3"), "it follows on");
}

#[test]
fn a_copy_that_cannot_restart_is_never_mixed_with_another_history() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let set_in = |nodes: &Nodes, index: usize, vbid: u8, value: &str| {
        let mut request = set(value);
        request[7] = vbid;
        assert_eq!(nodes.connect(index).ask(&request).status, 0);
    };
    let has = |nodes: &Nodes, index: usize, vbid: u16| {
        let bucket = nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap();
        let vbucket = bucket.vbucket(Vbid(vbid)).unwrap();
        let document = vbucket.find(b"\0k")?;
        Some(String::from_utf8_lossy(document.value()).into_owned())
    };
    nodes.cut.push((0, 1));
    (0..3).for_each(|vbid| set_in(&nodes, 0, vbid, "lost"));
    nodes.run();
    nodes.place(&[2, 1]);
    (0..3).for_each(|vbid| set_in(&nodes, 1, vbid, "2"));
    nodes.worlds[0].store().inject(Some(Fault::Unreadable(Vbid(1))));
    nodes.cut.clear();
    nodes.run();
    (0..3).for_each(|vbid| set_in(&nodes, 1, vbid, "3"));
    nodes.worlds[0].wait(1);
    nodes.run();
    let bucket = nodes.nodes[0].as_ref().unwrap().bucket("b").unwrap();
    let read_only = (0..3).map(|vbid| bucket.vbucket(Vbid(vbid)).unwrap().is_read_only());
    assert_eq!(read_only.collect::<Vec<bool>>(), [false, true, false]);
    nodes.worlds[0].store().inject(None);
    nodes.kill(0);
    nodes.start(0);
    let found: Vec<Option<String>> = (0..3).map(|vbid| has(&nodes, 0, vbid)).collect();
    assert_eq!(found, [Some("3".into()), Some("lost".into()), Some("3".into())]);
    nodes.run();
    assert_eq!(has(&nodes, 0, 1).as_deref(), Some("3"), "what it could not do then it does now");
}

#[test]
fn the_persisted_seqno_of_a_copy_that_was_replaced_is_that_of_the_new_one() {
    let mut nodes = two_with_one_write();
    let bucket = nodes.nodes[1].as_ref().unwrap().bucket("b").unwrap();
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(1));
    nodes.place(&[1, 0]);
    nodes.run();
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno::ZERO);
    nodes.place(&[1, 2]);
    nodes.run();
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(1));
}

#[test]
fn a_returning_copy_continues_where_it_was() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let mut client = nodes.connect(0);
    (0..40).for_each(|round| assert_eq!(client.set(&format!("k{round}"), "1").status, 0));
    nodes.run();
    nodes.kill(1);
    (0..40).for_each(|round| assert_eq!(client.set(&format!("k{round}"), "2").status, 0));
    nodes.run();
    nodes.start(1);
    nodes.run();
    assert_eq!(copy(&nodes, 1, "k39").as_deref(), Some("2"));
    assert_eq!(high_seqno(&nodes, 1), Seqno(80));
    assert_eq!(restart_count(&nodes, 1), 0, "what it had stored is kept");
}

fn restart_count(nodes: &Nodes, index: usize) -> u32 {
    let bucket = nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap();
    let vbucket = bucket.vbucket(Vbid(0)).unwrap();
    vbucket.generation()
}

/// Moves the copies of some vBuckets to `copies`, in a new term. Node 2 gets the membership `part`.
fn move_copies(
    nodes: &Nodes,
    part: Option<Membership>,
    vbids: std::ops::Range<u16>,
    copies: &[u64],
) {
    let known = nodes.nodes.iter().flatten().next().unwrap().cluster().buckets["b"].chains.clone();
    let copies: Vec<_> = copies.iter().map(|node| (*node > 0).then_some(NodeId(*node))).collect();
    let chain = |vbid: u16| {
        let term = known[usize::from(vbid)].term + 1;
        (vbid, Chain { term, ..Chain::new(copies.clone()) })
    };
    let chains = BTreeMap::from([("b".to_owned(), vbids.map(chain).collect())]);
    let memberships = part.map(|part| (NodeId(2), part)).into_iter().collect();
    nodes.change(&Change::Nodes(NodeChange::MoveCopies { memberships, chains }));
}

#[test]
fn a_failed_over_node_keeps_its_copies_until_a_rebalance_leaves_them_out() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let set_in = |nodes: &Nodes, vbid: u8, value: &str| {
        let mut request = set(value);
        request[7] = vbid;
        assert_eq!(nodes.connect(0).ask(&request).status, 0);
    };
    let stand = |nodes: &Nodes, vbid: u16| {
        let bucket = nodes.nodes[1].as_ref().unwrap().bucket("b").unwrap();
        let vbucket = bucket.vbucket(Vbid(vbid)).unwrap();
        (vbucket.state(), vbucket.high_seqno().0, vbucket.generation())
    };
    (0..2).for_each(|vbid| set_in(&nodes, vbid, "1"));
    nodes.run();
    move_copies(&nodes, Some(Membership::FailedOver), 0..2, &[1, 0]);
    nodes.run();
    (0..2).for_each(|vbid| assert_eq!(stand(&nodes, vbid), (VbState::Dead, 1, 0)));
    set_in(&nodes, 0, "2");
    nodes.kill(1);
    nodes.start(1);
    (0..2).for_each(|vbid| assert_eq!(stand(&nodes, vbid), (VbState::Dead, 1, 0), "on its disk"));
    nodes.change(&Change::Nodes(NodeChange::Recover { id: NodeId(2), full: false }));
    let (id, keep) = ("r".repeat(32), [NodeId(1), NodeId(2)].into());
    let (rest, services) = (Membership::Leaving, BTreeMap::new());
    nodes.change(&Change::Nodes(NodeChange::StartRebalance { id, keep, rest, services }));
    move_copies(&nodes, None, 0..1, &[1, 2]);
    nodes.run();
    assert_eq!(stand(&nodes, 0), (VbState::Replica, 2, 0), "it is sent what it has missed");
    assert_eq!(stand(&nodes, 1), (VbState::Dead, 1, 0), "it may be wanted yet");
    let memberships = [(NodeId(2), Membership::Active)].into();
    nodes.change(&Change::Nodes(NodeChange::EndRebalance { memberships }));
    nodes.run();
    assert_eq!(stand(&nodes, 0), (VbState::Replica, 2, 0));
    assert_eq!(stand(&nodes, 1), (VbState::Dead, 0, 1), "it is not wanted any more");
    move_copies(&nodes, None, 0..1, &[1, 0]);
    nodes.run();
    assert_eq!(stand(&nodes, 0), (VbState::Dead, 0, 1), "it was given to others by a plan");

    // A graceful failover, then a full recovery.
    move_copies(&nodes, None, 0..1, &[1, 2]);
    nodes.run();
    let (id, keep) = ("g".repeat(32), [NodeId(1)].into());
    let (rest, services) = (Membership::FailedOver, BTreeMap::new());
    nodes.change(&Change::Nodes(NodeChange::StartRebalance { id, keep, rest, services }));
    move_copies(&nodes, None, 0..1, &[1, 0]);
    let memberships = [(NodeId(2), Membership::FailedOver)].into();
    nodes.change(&Change::Nodes(NodeChange::EndRebalance { memberships }));
    assert_eq!(stand(&nodes, 0), (VbState::Dead, 2, 1));
    nodes.change(&Change::Nodes(NodeChange::Recover { id: NodeId(2), full: true }));
    assert_eq!(stand(&nodes, 0), (VbState::Dead, 0, 2));
}

/// The next active copy has all of its history.
#[test]
fn an_active_copy_that_was_killed_follows_the_next_one_from_where_it_was() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    assert_eq!(nodes.connect(0).set("k", "1").status, 0);
    nodes.run();
    nodes.kill(0);
    nodes.place(&[2, 1]);
    nodes.run();
    assert_eq!(nodes.connect(1).set("k", "2").status, 0);
    nodes.start(0);
    nodes.run();
    assert_eq!((copy(&nodes, 0, "k").as_deref(), high_seqno(&nodes, 0)), (Some("2"), Seqno(2)));
    assert_eq!(restart_count(&nodes, 0), 0);
}

#[test]
fn an_unneeded_copy_is_removed() {
    let mut nodes = two_with_one_write();
    assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("1"));
    nodes.place(&[1, 0]);
    nodes.run();
    assert_eq!(copy(&nodes, 1, "k"), None);
    let bucket = nodes.nodes[1].as_ref().unwrap().bucket("b").unwrap();
    assert_eq!(bucket.vbucket(Vbid(0)).unwrap().state(), VbState::Dead);
    nodes.kill(1);
    nodes.start(1);
    assert_eq!(copy(&nodes, 1, "k"), None);
}

#[test]
fn a_replica_returns_its_copy_to_replica_reads() {
    let mut nodes = two_with_one_write();
    let get_replica = request(0x83, b"", b"k", b"");
    assert_eq!(nodes.connect(1).ask(&get_replica).value, b"1");
    assert_eq!(nodes.connect(1).get("k").status, 0x07);
    assert_eq!(nodes.connect(0).ask(&get_replica).status, 0x07, "this is the active copy");
    nodes.cut.push((0, 1));
    nodes.connect(0).set("k", "2");
    nodes.run();
    assert_eq!(nodes.connect(1).ask(&get_replica).value, b"1", "as far as it has come");
}

#[test]
fn a_client_counts_what_a_node_serves() {
    let mut nodes = two_with_one_write();
    let documents = |nodes: &Nodes, index: usize| {
        nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap().usage().0
    };
    assert_eq!((documents(&nodes, 0), documents(&nodes, 1)), (1, 0));
    nodes.place(&[2, 1]);
    nodes.run();
    assert_eq!((documents(&nodes, 0), documents(&nodes, 1)), (0, 1));
}

#[test]
fn dropped_collections_are_removed_from_replicas_too() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let (bucket, scope, collection) = ("b".to_owned(), "_default".to_owned(), "c".to_owned());
    nodes.change(&Change::Buckets(BucketChange::CreateCollection {
        bucket: bucket.clone(),
        scope: scope.clone(),
        collection: collection.clone(),
        max_ttl: 0,
        history: None,
    }));
    let bucket_of = |nodes: &Nodes, index: usize| nodes.nodes[index].as_ref().unwrap().bucket("b");
    let write = |nodes: &Nodes| {
        let command = nacre_vbucket::Command::Store {
            condition: nacre_vbucket::Condition::Always,
            cas: nacre_types::Cas::ANY,
            flags: 0,
            expiry: 0,
            keep_expiry: false,
            body: b"1",
        };
        let node = bucket_of(nodes, 0).unwrap();
        node.apply(Vbid(0), b"\x08k", &command, Default::default()).unwrap().0.unwrap();
        node.wake_listeners();
    };
    write(&nodes);
    nodes.run();
    let count = |nodes: &Nodes, index: usize| {
        let bucket = bucket_of(nodes, index).unwrap();
        let vbucket = bucket.vbucket(Vbid(0)).unwrap();
        vbucket.documents().filter(|document| document.name() == b"k").count()
    };
    assert_eq!((count(&nodes, 0), count(&nodes, 1)), (1, 1));
    nodes.change(&Change::Buckets(BucketChange::DropCollection { bucket, scope, collection }));
    nodes.run();
    assert_eq!((count(&nodes, 0), count(&nodes, 1)), (0, 0));
    assert_eq!(high_seqno(&nodes, 0), high_seqno(&nodes, 1));
}

/// A follower that acknowledged more bytes than it was sent was not believed, and its window closed gradually.
#[test]
fn heartbeats_do_not_count_as_acknowledged_bytes() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    nodes.run();
    // Enough time for several heartbeats.
    nodes.pass(5000);
    let mut client = nodes.connect(0);
    let large = "x".repeat(1 << 20);
    for round in 0..40 {
        assert_eq!(client.set("k", &format!("{round}{large}")).status, 0);
        nodes.run();
    }
    assert_eq!(high_seqno(&nodes, 1), high_seqno(&nodes, 0));
}

/// The write was committed. Neither a later lack of copies nor a lost right of the user undoes it.
#[test]
fn a_durable_write_that_counts_is_never_refused() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    nodes.run();
    let mut client = nodes.connect(0);
    client.give(&durable(1, 1000, &set("1")));
    nodes.run();
    nodes.place(&[1, 0]);
    assert_eq!(client.resume()[0].status, 0);
    assert_eq!(copy(&nodes, 0, "k").as_deref(), Some("1"));

    nodes.place(&[1, 2]);
    nodes.run();
    client.give(&durable(1, 1000, &set("2")));
    nodes.run();
    let node = nodes.nodes[0].as_ref().unwrap();
    // A user with all rights must remain.
    node.put_user(User::new("root", "password", vec![Role::admin()], node.new_salt())).unwrap();
    node.put_user(User::new("admin", "password", Vec::new(), node.new_salt())).unwrap();
    assert_eq!(client.resume()[0].status, 0xa3, "nobody tells a stranger more");
    assert_eq!(copy(&nodes, 0, "k").as_deref(), Some("2"));
}

/// Starts three nodes with a durable write that the second node has not stored.
fn with_a_copy_in_memory_only() -> Nodes {
    let mut nodes = Nodes::new(3, 2);
    nodes.place(&[1, 2, 3]);
    nodes.run();
    nodes.worlds[1].store().inject(Some(Fault::Full));
    let mut client = nodes.connect(0);
    client.give(&durable(1, 1000, &set("1")));
    nodes.run();
    assert_eq!(client.resume()[0].status, 0);
    nodes.run();
    nodes
}

/// Its stored record did not even state that it was the active copy.
#[test]
fn a_promoted_copy_that_stored_nothing_since_does_not_serve_after_a_crash() {
    let mut nodes = with_a_copy_in_memory_only();
    nodes.kill(0);
    nodes.place(&[2, 3, 0]);
    nodes.run();
    assert_eq!(nodes.connect(1).get("k").value, b"1");
    nodes.kill(1);
    nodes.worlds[1].store().inject(None);
    nodes.start(1);
    nodes.run();
    let mut client = nodes.connect(1);
    assert_eq!(
        client.give(&request(0x00, b"", b"k", b"")).0,
        [],
        "the third node has what is lost"
    );
    nodes.place(&[3, 2, 0]);
    assert_eq!(client.resume()[0].status, 0x07);
    nodes.run();
    assert_eq!(nodes.connect(2).get("k").value, b"1");
}

fn chain(nodes: &Nodes) -> Chain {
    nodes.nodes.iter().flatten().next().unwrap().cluster().buckets["b"].chains[0].clone()
}

/// Makes the first node of `copies` serve the first vBucket in the next term, with `chosen`. Returns the term.
fn begin_term(nodes: &Nodes, copies: &[u64], chosen: Option<Chosen>) -> u64 {
    let copies = copies.iter().map(|node| Some(NodeId(*node))).collect();
    let after = Chain { term: chain(nodes).term + 1, chosen, ..Chain::new(copies) };
    let term = after.term;
    let chains = BTreeMap::from([("b".to_owned(), BTreeMap::from([(0, after)]))]);
    nodes.change(&Change::Nodes(NodeChange::MoveCopies { memberships: BTreeMap::new(), chains }));
    term
}

fn in_doubt_term(nodes: &Nodes, index: usize) -> Option<u64> {
    let bucket = nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap();
    let vbucket = bucket.vbucket(Vbid(0)).unwrap();
    vbucket.in_doubt_term()
}

/// The state at its choice is lost: the node was killed afterwards without having stored it.
#[test]
fn a_copy_that_lost_data_since_it_was_chosen_does_not_serve() {
    let mut nodes = with_a_copy_in_memory_only();
    let chosen = Chosen { term: chain(&nodes).term, high_seqno: high_seqno(&nodes, 1).0 };
    nodes.kill(1);
    nodes.worlds[1].store().inject(None);
    nodes.kill(0);
    nodes.start(1);
    let term = begin_term(&nodes, &[2, 3], Some(chosen));
    assert_eq!(in_doubt_term(&nodes, 1), Some(term));
    let mut client = nodes.connect(1);
    assert_eq!(
        client.give(&request(0x00, b"", b"k", b"")).0,
        [],
        "the third node has what is lost"
    );
    begin_term(&nodes, &[3, 2], Some(chosen));
    assert_eq!(client.resume()[0].status, 0x07);
    nodes.run();
    assert_eq!(in_doubt_term(&nodes, 1), None);
    assert_eq!(nodes.connect(2).get("k").value, b"1");
}

/// Starts two nodes. The active one was killed and restarted.
fn with_a_copy_in_doubt() -> Nodes {
    let mut nodes = two_with_one_write();
    nodes.kill(0);
    nodes.start(0);
    nodes
}

/// The other nodes decided about something else that kept it active, and it was killed meanwhile.
#[test]
fn a_copy_in_doubt_does_not_serve_because_others_think_that_it_does() {
    let nodes = with_a_copy_in_doubt();
    let before = chain(&nodes).term;
    assert_eq!(in_doubt_term(&nodes, 0), Some(before));
    let term = begin_term(&nodes, &[1, 2], None);
    assert_eq!(in_doubt_term(&nodes, 0), Some(term));
    let all = Chosen { term: before, high_seqno: high_seqno(&nodes, 0).0 };
    begin_term(&nodes, &[1, 2], Some(all));
    assert_eq!(in_doubt_term(&nodes, 0), None);
}

/// The leader is about to poll the copies. A refusal would make clients wait long before they retry.
#[test]
fn requests_wait_while_their_vbucket_is_in_doubt() {
    let mut nodes = with_a_copy_in_doubt();
    let all = Chosen { term: chain(&nodes).term, high_seqno: high_seqno(&nodes, 0).0 };
    let [mut reader, mut writer] = [nodes.connect(0), nodes.connect(0)];
    assert_eq!(reader.give(&request(0x00, b"", b"k", b"")).0, []);
    assert_eq!(writer.give(&durable(1, 1000, &set("2"))).0, []);
    assert_eq!((reader.resume(), writer.resume()), (vec![], vec![]));
    begin_term(&nodes, &[1, 2], Some(all));
    assert_eq!(reader.resume()[0].value, b"1");
    assert_eq!(writer.resume(), [], "it is under way");
    nodes.run();
    assert_eq!(writer.resume()[0].status, 0);
    assert_eq!(reader.get("k").value, b"2");
}

/// Clients give up a connection for seconds if half of their requests take too long.
#[test]
fn fewer_requests_wait_on_a_connection_than_it_has_answered() {
    let nodes = with_a_copy_in_doubt();
    let mut reader = nodes.connect(0);
    // Unordered execution; otherwise all requests would wait behind the first.
    reader.ask(&request(0x1f, b"", b"test", &[0, 0x0e]));
    let (mut waiting, mut refused) = (0, 0);
    for _ in 0..60 {
        match reader.give(&request(0x00, b"", b"k", b"")).0.as_slice() {
            [] => waiting += 1,
            answers => {
                assert_eq!(answers[0].status, 0x07);
                refused += 1;
            }
        }
        assert!(waiting * 2 <= refused + 4, "{waiting} wait, {refused} were refused");
    }
    assert!(waiting >= 15, "{waiting}");
}

/// Everything that it has is stored, but it may have lost something before.
#[test]
fn a_copy_in_doubt_stays_in_doubt_after_a_clean_stop() {
    let mut nodes = with_a_copy_in_doubt();
    nodes.run();
    let term = chain(&nodes).term;
    let marked = nodes.nodes[0].as_ref().unwrap().mark_clean();
    assert!(matches!(marked, Err(Error::InDoubt { .. })), "{marked:?}");
    nodes.kill(0);
    nodes.start(0);
    assert_eq!(in_doubt_term(&nodes, 0), Some(term));
}

#[test]
fn the_last_copy_commits_what_it_inherits_without_waiting_for_others() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let mut client = nodes.connect(0);
    client.set("k", "1");
    nodes.run();
    // The prepare arrives, but its acknowledgement is lost.
    nodes.worlds[1].store().inject(Some(Fault::Full));
    client.give(&durable(3, 10_000, &set("2")));
    nodes.run();
    assert_eq!(client.resume(), []);
    nodes.kill(0);
    nodes.worlds[1].store().inject(None);
    nodes.place(&[2, 0]);
    nodes.worlds[1].wait(1);
    nodes.run();
    let mut client = nodes.connect(1);
    assert_eq!(client.get("k").value, b"2");
    assert_eq!(client.set("k", "3").status, 0);
}

/// The store erases only versions that it already had: when a prepare and its commit were in one batch, the prepare
/// stayed in the store and was loaded again at the next start.
#[test]
fn a_durable_write_that_was_stored_with_its_commit_does_not_come_back() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    nodes.run();
    let mut client = nodes.connect(0);
    nodes.worlds[1].store().inject(Some(Fault::Full));
    client.set("other", "1");
    nodes.run();
    client.give(&durable(1, 10_000, &set("durable")));
    nodes.run();
    assert_eq!(client.resume()[0].status, 0);
    nodes.run();
    assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("durable"));
    nodes.worlds[1].store().inject(None);
    nodes.worlds[1].wait(1);
    nodes.run();
    client.set("k", "later");
    nodes.run();
    nodes.kill(0);
    nodes.kill(1);
    nodes.start(1);
    nodes.place(&[2, 0]);
    nodes.run();
    assert_eq!(nodes.connect(1).get("k").value, b"later");
}

/// An earlier follower of the bucket prevented the next one from starting. The abort is erased where it is stored, so a
/// copy that was away does not receive it.
#[test]
fn a_durable_write_aborted_during_the_absence_of_a_copy_is_removed_there() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    nodes.run();
    nodes.worlds[0].store().inject(Some(Fault::Full));
    let mut client = nodes.connect(0);
    client.give(&durable(3, 100, &set("1")));
    nodes.run();
    let prepares = |nodes: &Nodes, index: usize| {
        let bucket = nodes.nodes[index].as_ref().unwrap().bucket("b").unwrap();
        let vbucket = bucket.vbucket(Vbid(0)).unwrap();
        vbucket.prepare_count()
    };
    assert_eq!((prepares(&nodes, 0), prepares(&nodes, 1)), (1, 1), "it is stored on one only");
    nodes.kill(1);
    nodes.pass(500);
    assert_eq!(client.resume()[0].status, 0xa3);
    nodes.worlds[0].store().inject(None);
    nodes.pass(1500);
    for _ in 0..2 {
        // The next commit erases an ended prepare.
        assert_eq!(nodes.connect(0).set("other", "1").status, 0);
        nodes.pass(500);
    }
    nodes.start(1);
    assert_eq!((prepares(&nodes, 0), prepares(&nodes, 1)), (0, 1));
    nodes.pass(500);
    assert_eq!(high_seqno(&nodes, 1), high_seqno(&nodes, 0));
    assert_eq!(prepares(&nodes, 1), 0);
    nodes.kill(1);
    nodes.start(1);
    assert_eq!(prepares(&nodes, 1), 0, "on its disk as well");
}

#[test]
fn a_bucket_that_was_flushed_is_followed_again() {
    let mut nodes = two_with_one_write();
    nodes.change(&Change::Buckets(BucketChange::FlushBucket { name: "b".into() }));
    nodes.run();
    let mut client = nodes.connect(0);
    assert_eq!(client.get("k").status, 0x01);
    client.give(&durable(1, 10_000, &set("2")));
    nodes.run();
    assert_eq!(client.resume()[0].status, 0);
    nodes.run();
    assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("2"));
}

#[test]
fn a_node_of_an_ephemeral_bucket_serves_nothing_after_a_restart_until_others_were_asked() {
    for is_clean in [false, true] {
        let mut nodes = Nodes::with(
            2,
            BucketSettings {
                kind: BucketKind::Ephemeral,
                eviction_policy: EvictionPolicy::None,
                replicas: 1,
                ..BucketSettings::default()
            },
        );
        nodes.place(&[1, 2]);
        nodes.run();
        let mut client = nodes.connect(0);
        client.give(&durable(1, 1000, &set("1")));
        nodes.run();
        assert_eq!(client.resume()[0].status, 0);
        if is_clean {
            nodes.nodes[0].as_ref().unwrap().mark_clean().unwrap();
        }
        nodes.kill(0);
        nodes.start(0);
        nodes.run();
        let mut client = nodes.connect(0);
        let get = request(0x00, b"", b"k", b"");
        assert_eq!(client.give(&get).0, [], "the other node has it still");
        nodes.place(&[2, 1]);
        assert_eq!(client.resume()[0].status, 0x07);
        nodes.run();
        assert_eq!(nodes.connect(1).get("k").value, b"1");
    }
}

/// Holds all vBuckets for a move to `next`.
fn hold(nodes: &mut Nodes, next: [u64; 2]) {
    let node = nodes.nodes.iter().flatten().next().unwrap();
    let cluster = node.cluster();
    if cluster.rebalance.is_none() {
        let (id, keep, rest) = ("r".into(), next.map(NodeId).into(), Membership::Leaving);
        nodes.change(&Change::Nodes(NodeChange::StartRebalance {
            id,
            keep,
            rest,
            services: BTreeMap::new(),
        }));
    }
    let chains = cluster.buckets["b"].chains.clone();
    let next = next.map(|node| Some(NodeId(node))).to_vec();
    let held = chains.into_iter().map(|it| Chain { held: true, next: next.clone(), ..it });
    let chains = BTreeMap::from([("b".to_owned(), (0..).zip(held).collect())]);
    nodes.change(&Change::Nodes(NodeChange::MoveCopies { memberships: BTreeMap::new(), chains }));
    nodes.run();
}

#[test]
fn a_durable_write_that_is_under_way_ends_where_its_vbucket_is_held() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    nodes.run();
    let mut client = nodes.connect(0);
    assert_eq!(client.give(&durable(1, 5000, &set("1"))).0, [], "nobody else has it yet");
    hold(&mut nodes, [2, 1]);
    assert_eq!(client.resume()[0].status, 0);
    nodes.place(&[2, 1]);
    nodes.run();
    assert_eq!(nodes.connect(1).get("k").value, b"1");
    // If the write does not end in time, other nodes end it.
    nodes.kill(0);
    let mut client = nodes.connect(1);
    assert_eq!(client.give(&durable(1, 5000, &set("2"))).0, []);
    hold(&mut nodes, [1, 2]);
    nodes.pass(400);
    assert_eq!(client.resume(), []);
    nodes.pass(200);
    assert_eq!(client.resume()[0].status, 0xa3, "it may be there, or not");
}

/// A refusal would send clients back and forth between two nodes that do not serve.
#[test]
fn requests_wait_while_their_vbucket_is_handed_over() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let mut clients = [nodes.connect(0), nodes.connect(1)];
    clients[0].set("k", "1");
    nodes.run();
    let get = request(0x00, b"", b"k", b"");
    hold(&mut nodes, [2, 1]);
    for client in &mut clients {
        assert_eq!(client.give(&get).0, [], "nobody serves it");
        assert_eq!(client.resume(), []);
    }
    nodes.place(&[2, 1]);
    let statuses = clients.each_mut().map(|client| client.resume()[0].status);
    assert_eq!(statuses, [0x07, 0], "it is served where it came to");

    hold(&mut nodes, [1, 2]);
    for client in &mut clients {
        assert_eq!(client.give(&durable(1, 1000, &set("2"))).0, []);
    }
    nodes.pass(500);
    assert!(clients.iter_mut().all(|client| client.resume().is_empty()));
    nodes.pass(1000);
    let statuses = clients.each_mut().map(|client| client.resume()[0].status);
    assert_eq!(statuses, [0x07, 0x07], "not for ever");
    assert_eq!(copy(&nodes, 0, "k").as_deref(), Some("1"));
}

/// A client must read each map before it sees the replies behind it. When vBuckets move, there would be many equal
/// maps.
#[test]
fn a_misdirected_client_receives_each_map_once_on_request() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[2, 1]);
    nodes.run();
    let mut client = nodes.connect(0);
    let stray = |client: &mut Connection| {
        let answer = client.get("k");
        assert_eq!(answer.status, 0x07);
        answer.value.starts_with(b"{")
    };
    assert_eq!([stray(&mut client), stray(&mut client)], [true, true], "it did not ask for less");
    let hello = request(0x1f, b"", b"test", &[0, 0x1e]);
    assert_eq!(client.ask(&hello).value, [0, 0x1e]);
    assert!(!stray(&mut client), "it has that map");
    nodes.worlds[0].wait(1);
    assert_eq!([stray(&mut client), stray(&mut client)], [true, false], "it seems not to have it");
    // The same copies in a newer map.
    nodes.place(&[2, 1]);
    assert_eq!([stray(&mut client), stray(&mut client)], [true, false]);
    nodes.place(&[2, 1]);
    let map = client.ask(&request(0xb5, b"", b"", b""));
    assert!(map.value.starts_with(b"{"));
    assert!(stray(&mut client), "it may not have looked at that yet");
    client.ask(&request(0x89, b"", b"b", b""));
    assert!(stray(&mut client), "what it was given may have been of another bucket");
}

/// Both changes are decided before the follower looks again: nothing has changed except that the copy is empty.
#[test]
fn a_dropped_and_reassigned_copy_has_everything() {
    let mut nodes = Nodes::new(2, 1);
    nodes.place(&[1, 2]);
    let mut client = nodes.connect(0);
    client.set("k", "1");
    nodes.run();
    assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("1"));
    let chains = || nodes.nodes[0].as_ref().unwrap().cluster().buckets["b"].chains.clone();
    let (with, term) = (chains(), chains()[0].term);
    nodes.place(&[1, 0]);
    assert_eq!((chains()[0].term, copy(&nodes, 1, "k")), (term, None));
    let with = BTreeMap::from([("b".to_owned(), (0..).zip(with).collect())]);
    nodes.change(&Change::Nodes(NodeChange::MoveCopies {
        memberships: BTreeMap::new(),
        chains: with,
    }));
    client.set("other", "2");
    nodes.run();
    assert_eq!(copy(&nodes, 1, "k").as_deref(), Some("1"));
    assert_eq!(high_seqno(&nodes, 1), high_seqno(&nodes, 0));
}

/// A copy that became the active one may have served requests, and may have been killed before anything was stored.
#[test]
fn a_killed_node_that_may_have_served_yields_to_the_others() {
    let mut nodes = two_with_one_write();
    let mut config = nodes.nodes[0].as_ref().unwrap().cluster().buckets["b"].clone();
    let chosen = Chosen { term: config.chains[0].term, high_seqno: 1 };
    nodes.kill(1);
    let env: Arc<dyn BucketEnv> = Arc::clone(&nodes.worlds[1]) as _;
    for (replica, clean, expected) in [
        (Some(NodeId(1)), false, VbState::Pending),
        (Some(NodeId(1)), true, VbState::Active),
        (None, false, VbState::Active),
    ] {
        let chain = &mut config.chains[0];
        (chain.copies, chain.term) = (vec![Some(NodeId(2)), replica], chosen.term + 1);
        chain.chosen = Some(chosen);
        let (store, home) = (nodes.worlds[1].store() as _, Home::alone(NodeId(2)));
        let bucket = Bucket::open(&config, &env, Some(store), clean, home).unwrap();
        let vbucket = bucket.vbucket(Vbid(0)).unwrap();
        let in_doubt = (expected == VbState::Pending).then_some(chosen.term + 1);
        assert_eq!((vbucket.state(), vbucket.in_doubt_term()), (expected, in_doubt), "{replica:?}");
    }
}
