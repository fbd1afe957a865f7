//! Nodes that orchestrate their copies themselves: failover, leases, rebalance.

use crate::nodes::Nodes;
use crate::world::{Connection, durable, request};
use nacre_cluster::orchestrator::{Fence, LEASE_NS, Message};
use nacre_cluster::{Change, Cluster, Membership, NodeChange};
use nacre_types::{NodeId, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

const HELLO: u8 = 0x1f;
const UNORDERED: u8 = 0x0e;
const GET_CLUSTER_CONFIG: u8 = 0xb5;
const TEMPORARY_FAILURE: u16 = 0x86;
const NOT_MY_VBUCKET: u16 = 0x07;

fn set(value: &str) -> Vec<u8> {
    request(0x01, &[0; 8], b"k", value.as_bytes())
}

fn cluster(nodes: &Nodes) -> Arc<Cluster> {
    nodes.nodes.iter().flatten().next().unwrap().cluster()
}

/// Returns the index of the node that serves vBucket 0.
fn active(nodes: &Nodes) -> usize {
    cluster(nodes).buckets["b"].chains[0].active().unwrap().0 as usize - 1
}

/// Opens a connection to the node that serves vBucket 0.
fn client(nodes: &Nodes) -> Connection {
    nodes.connect(active(nodes))
}

/// Makes a durable write to vBucket 0. Returns true if it was acknowledged.
fn write_durably(nodes: &mut Nodes, level: u8, value: &str) -> bool {
    let mut client = client(nodes);
    let (refused, ..) = client.give(&durable(level, 10_000, &set(value)));
    if !refused.is_empty() {
        return false;
    }
    nodes.run();
    client.resume().first().is_some_and(|answer| answer.status == 0)
}

/// Starts three nodes that orchestrate copies on `copies`; the first node is active.
fn three_with(copies: &[u64]) -> Nodes {
    let mut nodes = Nodes::new(3, copies.len() as u8 - 1);
    nodes.place(copies);
    nodes.orchestrate();
    nodes.pass(1000);
    nodes
}

fn three() -> Nodes {
    three_with(&[2, 1, 3])
}

/// SDKs that process two maps at a time may keep the older one and ignore all others of the newer revision.
#[test]
fn a_map_that_a_client_does_not_follow_is_given_another_revision() {
    let mut nodes = three();
    let mut client = nodes.connect(0);
    let once = 0x1e;
    assert_eq!(client.ask(&request(HELLO, b"", b"test", &[0, once])).value, [0, once]);
    let mut go_astray = |nodes: &mut Nodes, times: usize| {
        for _ in 0..times {
            assert_eq!(client.get("k").status, NOT_MY_VBUCKET);
            nodes.pass(1000);
        }
        cluster(nodes).rev
    };
    let rev = cluster(&nodes).rev;
    assert_eq!(go_astray(&mut nodes, 2), rev, "it may have been slow");
    assert_eq!(go_astray(&mut nodes, 1), rev + 1);
    assert_eq!(go_astray(&mut nodes, 6), rev + 1, "all others have to read that, too");
    assert_eq!(go_astray(&mut nodes, 6), rev + 2);
}

#[test]
fn a_node_that_is_gone_is_replaced_and_nothing_durable_is_lost() {
    let mut nodes = three();
    assert!(write_durably(&mut nodes, 1, "1"));
    nodes.kill(1);
    nodes.pass(4000);
    assert_eq!(active(&nodes), 1, "its time is not over yet");
    nodes.pass(3000);
    assert_ne!(active(&nodes), 1);
    assert_eq!(client(&nodes).get("k").value, b"1");
    assert!(write_durably(&mut nodes, 3, "2"), "two of three copies are left");
    assert_eq!(cluster(&nodes).nodes[&NodeId(2)].membership, Membership::FailedOver);
}

#[test]
fn a_node_that_is_cut_off_stops_serving_before_it_is_replaced() {
    let mut nodes = three();
    client(&nodes).set("k", "1");
    nodes.run();
    nodes.cut = vec![(1, 0), (1, 2)];
    nodes.pass(4500);
    assert_eq!(active(&nodes), 1);
    assert_eq!(client(&nodes).get("k").status, TEMPORARY_FAILURE, "its lease has ended");
    assert_eq!(client(&nodes).set("k", "lost").status, TEMPORARY_FAILURE);
    nodes.pass(6000);
    let new = nodes.nodes[0].as_ref().unwrap().cluster().buckets["b"].chains[0].active();
    assert_ne!(new, Some(NodeId(2)));
    let mut client = nodes.connect(new.unwrap().0 as usize - 1);
    assert_eq!(client.get("k").value, b"1");
    nodes.cut.clear();
    nodes.pass(1000);
    // A map without the node itself would make an SDK wait for itself.
    let answer = nodes.connect(1).get("k");
    assert_eq!((answer.status, answer.value.len()), (NOT_MY_VBUCKET, 0));
}

/// Messages wait while a node is away, and its clock starts again with its process.
#[test]
fn a_lease_requested_by_an_earlier_process_does_not_count() {
    let mut nodes = three();
    client(&nodes).set("k", "1");
    nodes.run();
    nodes.cut = vec![(1, 0), (1, 2)];
    nodes.pass(4500);
    let node = Arc::clone(nodes.nodes[1].as_ref().unwrap());
    let status_after_grant = |start| {
        let (at, for_ns) = (node.now().monotonic_ns, LEASE_NS);
        let (rev, fence) = (node.cluster().rev, Fence::default());
        let grant = Message::Grant { at, start, for_ns, rev, fence };
        node.receive(NodeId(1), &postcard::to_stdvec(&grant).unwrap());
        client(&nodes).get("k").status
    };
    assert_eq!(status_after_grant(0), TEMPORARY_FAILURE);
    assert_eq!(status_after_grant(1), 0, "its only process has asked");
}

/// A decision may take many seconds if a disk is slow.
#[test]
fn a_leader_that_waits_for_a_decision_serves_on() {
    let mut nodes = three_with(&[1, 2]);
    nodes.worlds[0].hold_up("failover");
    nodes.pass(5000);
    assert_eq!((active(&nodes), client(&nodes).set("k", "1").status), (0, 0));
}

/// A client that learns of a newer map asks any node for it. A node that can no longer complete a durable write must
/// not delay that answer.
#[test]
fn a_node_that_is_cut_off_sends_its_map_and_refuses_reads_behind_a_durable_write() {
    let mut nodes = three();
    let mut client = client(&nodes);
    assert_eq!(client.ask(&request(HELLO, b"", b"test", &[0, UNORDERED])).value, [0, UNORDERED]);
    nodes.cut = vec![(1, 0), (1, 2)];
    let (answers, ..) = client.give(&durable(1, 10_000, &set("v")));
    assert!(answers.is_empty(), "it waits for the others");
    nodes.pass(4500);
    client.now = nodes.nodes[1].as_ref().unwrap().now();
    let map = client.ask(&request(GET_CLUSTER_CONFIG, b"", b"", b""));
    assert_eq!((map.status, map.value.is_empty()), (0, false));
    assert_eq!(client.get("k").status, TEMPORARY_FAILURE);
}

#[test]
fn a_crashed_node_asks_before_it_serves_again() {
    let mut nodes = three();
    // The last write is only in memory, on the active copy and on the replicas.
    assert!(write_durably(&mut nodes, 1, "0"));
    nodes.worlds[1].store().inject(Some(nacre_store::Fault::Full));
    assert!(write_durably(&mut nodes, 1, "1"));
    nodes.worlds[1].store().inject(None);
    nodes.kill(1);
    nodes.start(1);
    nodes.pass(1000);
    assert_ne!(active(&nodes), 1, "others have what it lost");
    assert_eq!(client(&nodes).get("k").value, b"1");
    nodes.pass(2000);
    let bucket = nodes.nodes[1].as_ref().unwrap().bucket("b").unwrap();
    let document = bucket.vbucket(Vbid(0)).unwrap().find(b"\0k").cloned().unwrap();
    assert_eq!(document.value(), b"1", "it follows them");
}

#[test]
fn another_leader_continues_where_the_first_was() {
    let mut nodes = three();
    assert!(write_durably(&mut nodes, 1, "1"));
    nodes.kill(0);
    nodes.elect(2);
    nodes.pass(8000);
    assert_eq!(cluster(&nodes).nodes[&NodeId(1)].membership, Membership::FailedOver);
    assert!(write_durably(&mut nodes, 1, "2"));
    assert_eq!(client(&nodes).get("k").value, b"2");
}

#[test]
fn a_rebalance_moves_everything_while_clients_write() {
    let mut nodes = three_with(&[1, 2]);
    for round in 0..600 {
        assert_eq!(client(&nodes).set(&format!("k{}", round % 100), "0").status, 0);
    }
    let keep = [2, 3].map(NodeId).into();
    nodes.change(&Change::Nodes(NodeChange::StartRebalance {
        id: "r".into(),
        keep,
        rest: Membership::Leaving,
        services: BTreeMap::new(),
    }));
    let mut written = [0; 100];
    let mut under_way: Vec<(usize, Connection)> = Vec::new();
    for round in 1..2000_usize {
        let mut writer = client(&nodes);
        let key = format!("k{}", round % 100);
        let set = request(0x01, &[0; 8], key.as_bytes(), round.to_string().as_bytes());
        let (answers, _, _) = writer.give(&set);
        let mut note = |round: usize, status| match status {
            0 => written[round % 100] = round,
            status => assert_eq!(status, NOT_MY_VBUCKET, "while it is handed over"),
        };
        match answers.first() {
            Some(answer) => note(round, answer.status),
            None => under_way.push((round, writer)),
        }
        nodes.pass(10);
        under_way.retain_mut(|(round, writer)| {
            let answers = writer.resume();
            answers.first().inspect(|answer| note(*round, answer.status)).is_none()
        });
        if cluster(&nodes).rebalance.is_none() {
            break;
        }
    }
    assert_eq!(cluster(&nodes).rebalance, None, "it has come to its end");
    assert!(under_way.is_empty(), "nobody waits for ever");
    assert_eq!(cluster(&nodes).nodes[&NodeId(1)].membership, Membership::Leaving);
    for chain in &cluster(&nodes).buckets["b"].chains {
        assert!(!chain.involves(NodeId(1)));
        assert_eq!(chain.copies.iter().flatten().count(), 2);
    }
    nodes.pass(1000);
    for (key, value) in written.iter().enumerate() {
        let value = value.to_string();
        assert_eq!(client(&nodes).get(&format!("k{key}")).value, value.as_bytes(), "k{key}");
    }
    assert!(write_durably(&mut nodes, 3, "end"));
}

#[test]
fn a_rebalance_that_loses_a_node_leaves_the_copies_where_they_are() {
    let mut nodes = three_with(&[1, 2]);
    assert!(write_durably(&mut nodes, 1, "1"));
    let keep = [1, 2, 3].map(NodeId).into();
    let rest = Membership::Leaving;
    nodes.kill(2);
    nodes.change(&Change::Nodes(NodeChange::StartRebalance {
        id: "r".into(),
        keep,
        rest,
        services: BTreeMap::new(),
    }));
    nodes.pass(15_000);
    assert_eq!(cluster(&nodes).rebalance, None);
    assert_eq!(cluster(&nodes).nodes[&NodeId(3)].membership, Membership::FailedOver);
    let chains = &cluster(&nodes).buckets["b"].chains;
    assert!(chains.iter().all(|chain| !chain.involves(NodeId(3)) && !chain.held), "{chains:?}");
    assert_eq!(client(&nodes).get("k").value, b"1");
    assert!(write_durably(&mut nodes, 3, "2"));
}

/// A node without a lease serves no requests, and asks for one more often than a node with a lease.
#[test]
fn a_node_that_lost_its_lease_has_one_soon_after_there_is_a_leader() {
    let mut nodes = three_with(&[2, 1]);
    assert_eq!(client(&nodes).set("k", "1").status, 0);
    nodes.elect(None);
    nodes.pass(3000);
    assert_eq!(client(&nodes).set("k", "2").status, TEMPORARY_FAILURE);
    nodes.elect(0);
    nodes.pass(150);
    assert_eq!(client(&nodes).set("k", "2").status, 0);
}

/// Two nodes need no lease, and a third node may leave and return within a moment.
#[test]
fn a_lease_holds_that_was_not_needed_meanwhile() {
    let nodes = three_with(&[2, 1]);
    let member = cluster(&nodes).nodes[&NodeId(3)].clone();
    nodes.change(&Change::Nodes(NodeChange::DropNode { id: NodeId(3) }));
    assert_eq!(client(&nodes).set("k", "1").status, 0);
    nodes.change(&Change::Nodes(NodeChange::PutNode { id: NodeId(4), member }));
    assert_eq!(client(&nodes).set("k", "2").status, 0);
}

/// The SDK learned of a newer map from other nodes, and would take this map for the newer one.
#[test]
fn a_node_that_is_cut_off_sends_no_older_map_to_clients_with_a_newer_one() {
    let mut nodes = three();
    let mut client = client(&nodes);
    let known = [1_u64.to_be_bytes(), 1_u64.to_be_bytes()].concat();
    let ask = request(GET_CLUSTER_CONFIG, &known, b"", b"");
    let mut is_given = |nodes: &Nodes| {
        client.now = nodes.nodes[1].as_ref().unwrap().now();
        !client.ask(&ask).value.is_empty()
    };
    assert!(is_given(&nodes));
    nodes.elect(None);
    nodes.pass(3000);
    assert!(!is_given(&nodes), "others may have decided more");
    nodes.change(&Change::Nodes(NodeChange::RenewMap));
    assert!(is_given(&nodes), "it has heard what was decided, and tells its clients of that");
    nodes.elect(0);
    nodes.pass(150);
    assert!(is_given(&nodes));
}
