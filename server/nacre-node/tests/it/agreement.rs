//! Changes, storage and transfer of a node's agreed state.

use crate::world::{World, local, nobody, other_node, request, services};
use nacre_auth::{Group, Refused, Role, User};
use nacre_bucket::kv::{Peer, Session};
use nacre_cluster::{
    BucketChange, BucketSettings, Change, ClusterChange, Expected, Membership, RecordChange,
    ServiceRecord,
};
use nacre_node::agreement::Proposal;
use nacre_node::{Error, Node, PeerMessageHandler, Platform};
use nacre_types::NodeId;
use std::sync::{Arc, Mutex};

fn create(node: &Node, name: &str) -> Change {
    let settings = BucketSettings { vbucket_count: 4, ..BucketSettings::default() };
    Change::Buckets(BucketChange::CreateBucket {
        name: name.into(),
        uuid: node.new_uuid(),
        settings,
    })
}

fn reopen(world: &Arc<World>, node: &Node) -> Arc<Node> {
    world.crash();
    Node::open_with(Arc::clone(world) as Arc<_>, node.endpoints(), services()).unwrap()
}

#[test]
fn a_state_that_was_stored_before_nodes_knew_each_other_is_that_of_the_first_node() {
    let world = World::new();
    let stored = br#"{"uuid":"c","rev":7,"buckets":{}}"#.to_vec();
    let rows = [(b"cluster".to_vec(), Some(stored))];
    world.spaces().open("node").unwrap().apply(&rows, true).unwrap();
    let node = world.node();
    let cluster = node.cluster();
    assert_eq!((cluster.uuid.as_str(), node.id()), ("c", NodeId(1)));
    let member = &cluster.nodes[&NodeId(1)];
    assert_eq!((member.uuid.as_str(), member.membership), (&*node.uuid(), Membership::Active));
    assert!(!cluster.secret.is_empty());
    let again = reopen(&world, &node);
    assert_eq!((again.cluster(), again.uuid()), (cluster, node.uuid()), "it stays what it is");
}

#[test]
fn the_state_and_its_position_are_stored_together_also_when_nothing_changed() {
    let world = World::new();
    let node = world.node();
    assert_eq!(node.position().unwrap(), None);
    let change = Proposal::Change(create(&node, "c"));
    node.apply(&change, Some(b"1")).unwrap();
    let refused = node.apply(&change, Some(b"2")).unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    let unknown = Proposal::RemoveUser("nobody".into());
    assert!(matches!(
        node.apply(&unknown, Some(b"3")),
        Err(Error::Users(Refused::UserNotFound(_)))
    ));
    let node = reopen(&world, &node);
    assert_eq!(node.position().unwrap().as_deref(), Some(&b"3"[..]));
    assert!(node.bucket("c").is_some());
}

#[test]
fn a_state_of_another_node_is_taken_over_with_its_buckets_and_users() {
    let (world, other_world) = (World::new(), World::new());
    let (node, other) = (world.node(), other_world.node());
    for name in ["c", "d"] {
        other.change(&create(&other, name)).unwrap();
    }
    other.change(&Change::Buckets(BucketChange::DropBucket { name: "b".into() })).unwrap();
    let ann = User::new("ann", "secret", vec![Role::admin()], other.new_salt());
    other.put_user(ann).unwrap();
    let before = node.users_version();
    node.install(&other.agreed(), b"9").unwrap();
    assert_eq!(node.cluster(), other.cluster());
    assert!(node.bucket("b").is_none() && node.bucket("c").is_some() && node.bucket("d").is_some());
    assert!(node.users().verify("ann", "secret").is_some());
    let secret = other.cluster().secret.reveal().to_owned();
    assert!(node.users().verify("@nacre", &secret).is_some(), "nodes log in by the new secret");
    assert!(node.users_version() > before, "connections look again who their users are");
    // Buckets that both nodes have are kept unchanged.
    let kept = node.bucket("c").unwrap();
    other.change(&Change::Buckets(BucketChange::DropBucket { name: "d".into() })).unwrap();
    node.install(&other.agreed(), b"10").unwrap();
    assert!(Arc::ptr_eq(&kept, &node.bucket("c").unwrap()) && node.bucket("d").is_none());
    assert!(matches!(node.install(b"{}", b"11"), Err(Error::Settings(_))));
    assert_eq!(node.position().unwrap().as_deref(), Some(&b"10"[..]));
}

#[test]
fn a_node_with_a_replaced_cluster_keeps_nothing_of_the_old_one() {
    let world = World::new();
    let node = world.node();
    node.apply(&Proposal::Change(create(&node, "c")), Some(b"1")).unwrap();
    let (before, (id, uuid, cluster)) = (node.uuid(), node.new_cluster());
    node.replace_cluster(id, uuid, cluster).unwrap();
    let node = reopen(&world, &node);
    assert!(node.uuid() != before && node.position().unwrap().is_none());
    assert!(node.bucket("b").is_none() && node.bucket("c").is_none());
    assert!(node.users().iter().next().is_none());
}

#[test]
fn reserved_names_are_not_available_to_users() {
    let node = World::new().node();
    let user = User::new("@nacre", "secret", vec![Role::admin()], node.new_salt());
    assert!(matches!(node.put_user(user), Err(Error::Users(Refused::ReservedName))));
    assert!(node.users().verify("@nacre", "secret").is_none());
    assert!(!format!("{:?}", node.cluster()).contains(node.cluster().secret.reveal()));
}

#[test]
fn another_node_logs_in_to_the_key_value_port_by_its_key_and_the_secret_of_the_cluster() {
    let node = World::new().node();
    let login = |peer: Peer, password: &str| {
        let mut session = Session::new(Arc::clone(&node) as _, peer, nobody());
        let message = format!("\0@nacre\0{password}");
        let (mut answers, mut bytes) =
            (Vec::new(), request(0x21, b"", b"PLAIN", message.as_bytes()));
        bytes.extend(request(0x89, b"", b"b", b""));
        session.receive(&bytes, &mut answers, node.now());
        // The status of the login, and that of selecting a bucket after it.
        let status = |at: usize| u16::from_be_bytes([answers[at + 6], answers[at + 7]]);
        let second = answers.len() - 24;
        (status(0), answers[second..].len() == 24 && status(second) == 0)
    };
    let secret = node.cluster().secret.reveal().to_owned();
    assert_eq!(login(other_node(), &secret), (0, true));
    for wrong in ["", "x", &node.cluster().uuid] {
        assert_eq!(login(other_node(), wrong).0, 0x20, "{wrong:?}");
    }
    assert_eq!(login(local(), &secret).0, 0x20, "whoever has the secret alone is no node");
}

#[derive(Default)]
struct Inbox(Mutex<Vec<(NodeId, Vec<u8>)>>);

impl PeerMessageHandler for Inbox {
    fn receive(&self, from: NodeId, message: &[u8]) {
        self.0.lock().unwrap().push((from, message.to_vec()));
    }
}

#[test]
fn messages_reach_the_handler_and_show_that_a_node_is_alive() {
    let world = World::new();
    let node = world.node();
    assert_eq!(node.silence_ns(NodeId(2)), None);
    node.receive(NodeId(2), b"lost");
    let handler = Arc::new(Inbox::default());
    node.listen(Arc::clone(&handler) as Arc<_>);
    node.receive(NodeId(2), b"a");
    world.wait(3);
    node.receive(NodeId(3), b"");
    assert_eq!(*handler.0.lock().unwrap(), [(NodeId(2), b"a".to_vec())]);
    assert_eq!(node.silence_ns(NodeId(2)), Some(3_000_000_000));
    assert_eq!(node.silence_ns(NodeId(3)), Some(0));
}

#[test]
fn roles_on_dropped_keyspaces_are_removed() {
    let world = World::new();
    let node = world.node();
    let (bucket, scope) = ("b".to_owned(), "s".to_owned());
    node.change(&Change::Buckets(BucketChange::CreateScope {
        bucket: bucket.clone(),
        scope: scope.clone(),
    }))
    .unwrap();
    let roles = ["data_reader[b]", "data_writer[b:s]", "data_reader[*]"];
    let roles: Vec<Role> = roles.iter().map(|role| role.parse().unwrap()).collect();
    node.put_user(User::new("ann", "secret", roles, node.new_salt())).unwrap();
    let left = |node: &Node| {
        let users = node.users();
        let roles: Vec<String> =
            users.get("ann").unwrap().roles.iter().map(Role::to_string).collect();
        roles.join(" ")
    };
    // A proposer that read the user earlier, as a change of the password does.
    let stale = node.users().get("ann").unwrap().clone();
    node.change(&Change::Buckets(BucketChange::DropScope { bucket, scope })).unwrap();
    assert_eq!(left(&node), "data_reader[b] data_reader[*]");
    let roles = stale.roles.clone();
    node.put_user(stale).unwrap();
    assert_eq!(left(&node), "data_reader[b] data_reader[*]");
    let (name, description) = ("g".to_owned(), String::new());
    node.put_group(Group { name, description, roles, ldap_group: None }).unwrap();
    assert_eq!(node.users().group("g").unwrap().roles.len(), 2);
    let before = node.users_version();
    node.change(&Change::Buckets(BucketChange::DropBucket { name: "b".into() })).unwrap();
    assert!(node.users_version() > before, "connections look again what their users may");
    let node = reopen(&world, &node);
    assert_eq!(left(&node), "data_reader[*]");
}

#[test]
fn definitions_have_a_size_and_can_be_dropped_when_there_is_no_room() {
    let world = World::new();
    let node = world.node();
    let put = |number: usize, bytes: usize| {
        let record = ServiceRecord {
            version: format!("{number:016x}"),
            bucket: None,
            scope: None,
            body: "x".repeat(bytes),
        };
        node.change(&Change::Records(RecordChange::PutServiceRecord {
            service: "echo".into(),
            name: format!("r{number}"),
            record: Box::new(record),
            expected: Expected::Anything,
        }))
    };
    let full = (0..64).find(|number| put(*number, 1 << 20).is_err());
    let full = full.expect("1 MiB each is too much at some time");
    assert!((28..=32).contains(&full), "{full} MiB");
    let refused = put(full, 1 << 20).unwrap_err();
    assert!(refused.to_string().contains("32 MiB at most"), "{refused}");
    // A definition smaller than the one it replaces is accepted, and so are changes that keep the
    // cluster running.
    put(0, 10).unwrap();
    node.change(&Change::Cluster(ClusterChange::NameCluster { name: "another".into() })).unwrap();
    node.change(&Change::Records(RecordChange::DropServiceRecord {
        service: "echo".into(),
        name: "r1".into(),
        expected: Expected::Anything,
    }))
    .unwrap();
    put(full, 1 << 20).unwrap();
}
