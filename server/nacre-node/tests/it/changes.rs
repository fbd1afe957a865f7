//! The changes of a collection over all vBuckets, where the node is not the one it was.

use crate::world::{Connection, World, nobody};
use nacre_cluster::Change as ClusterChange;
use nacre_node::Node;
use nacre_node::changes::{Changes, Gone, Next, Since, Token, Until};
use nacre_types::CollectionId;
use std::sync::Arc;

fn open(node: &Arc<Node>, since: Since) -> Result<Changes, Gone> {
    let bucket = node.bucket("b").unwrap();
    Changes::open(bucket, CollectionId::DEFAULT, since, Until::Forever, nobody())
}

/// What there is, while workers work.
fn told(world: &World, changes: &mut Changes) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        match changes.next_change() {
            Next::Change(change) => {
                told.push(String::from_utf8_lossy(change.document.name()).into_owned());
            }
            Next::Nothing if changes.is_caught_up() => return told,
            Next::Nothing => world.run_tasks(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_token_is_good_after_a_crash_that_lost_nothing_of_it() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("a", "1");
    connection.set("b", "1");
    world.run_tasks();
    let mut changes = open(&node, Since::Beginning).unwrap();
    assert_eq!(told(&world, &mut changes), ["a", "b"]);
    let stored: Token = changes.token().to_string().parse().unwrap();
    connection.set("lost", "1");
    assert_eq!(told(&world, &mut changes), ["lost"]);
    let lost = changes.token();
    drop(changes);
    world.crash();

    let node = world.node();
    Connection::open(&node).set("c", "1");
    let mut changes = open(&node, Since::Token(stored)).unwrap();
    assert_eq!(told(&world, &mut changes), ["c"]);
    let Err(Gone(why)) = open(&node, Since::Token(lost)) else { panic!("it was lost") };
    assert!(why.contains("only seqno 2"), "{why}");
}

#[test]
fn a_token_taken_between_two_changes_of_a_scan_is_gone_on_from_there() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let names: Vec<String> = (0..700).map(|n| format!("k{n}")).collect();
    names.iter().for_each(|name| assert_eq!(connection.set(name, "1").status, 0));
    world.run_tasks();
    let mut all = Vec::new();
    let mut since = Since::Beginning;
    while all.len() < names.len() {
        let mut changes = open(&node, since).unwrap();
        let mut taken = 0;
        while taken < 99 && all.len() < names.len() {
            match changes.next_change() {
                Next::Change(change) => {
                    all.push(String::from_utf8_lossy(change.document.name()).into_owned());
                    taken += 1;
                }
                Next::Nothing => world.run_tasks(),
                other => panic!("{other:?}"),
            }
        }
        since = Since::Token(changes.token());
    }
    assert_eq!(all, names, "each once");
}

#[test]
fn changes_end_with_their_bucket() {
    let world = World::new();
    let node = world.node();
    let mut changes = open(&node, Since::Now).unwrap();
    assert!(matches!(changes.next_change(), Next::Nothing));
    let token = changes.token();
    node.change(&ClusterChange::FlushBucket { name: "b".into() }).unwrap();
    assert!(matches!(changes.next_change(), Next::Broken(_)));
    Connection::open(&node).set("a", "1");
    assert!(open(&node, Since::Token(token)).is_ok(), "it had taken nothing");
}
