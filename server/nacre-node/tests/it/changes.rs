//! The changes of a collection over all vBuckets, after a restart of the node or a move of its
//! vBuckets.

use crate::nodes::Nodes;
use crate::world::{Asked, Connection, World, nobody};
use nacre_changes_service::{Changes, Next, Refused, Since, Token, Until, Wanted, start};
use nacre_cluster::{BucketChange, Change as ClusterChange};
use nacre_node::Node;
use nacre_types::CollectionId;
use std::sync::Arc;

fn open(node: &Arc<Node>, since: Since) -> Result<Changes, Refused> {
    let bucket = node.bucket("b").unwrap();
    let wanted = Wanted { since, until: Until::Forever, ids: None, bodies: true, limit: u64::MAX };
    Changes::open(node, &bucket, CollectionId::DEFAULT, wanted, nobody())
}

/// Returns the present changes while the workers run.
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
fn a_token_stays_valid_after_a_crash_that_lost_none_of_its_changes() {
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
    let Err(Refused::Gone(why)) = open(&node, Since::Token(lost.clone())) else {
        panic!("it was lost")
    };
    assert!(why.contains("only seqno 2"), "{why}");

    // The same for a consumer of the whole bucket.
    let bucket = node.bucket("b").unwrap();
    assert!(start(&node, &bucket, Since::Token(lost)).is_err());
    let now = start(&node, &bucket, Since::Now).unwrap();
    assert!(told(&world, &mut open(&node, Since::Token(now)).unwrap()).is_empty());
}

#[test]
fn a_token_taken_within_a_scan_resumes_there() {
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
    node.change(&ClusterChange::Buckets(BucketChange::FlushBucket { name: "b".into() })).unwrap();
    assert!(matches!(changes.next_change(), Next::Broken(_)));
    Connection::open(&node).set("a", "1");
    assert!(open(&node, Since::Token(token)).is_ok(), "it had taken nothing");
}

/// A reader of changes on the first of three nodes.
struct Asker {
    nodes: Nodes,
    changes: Changes,
    told: Vec<String>,
}

impl Asker {
    /// Opens the changes of vBuckets that another node serves.
    fn open(nodes: Nodes) -> Asker {
        let world = Arc::clone(&nodes.worlds[0]);
        *world.asked.lock().unwrap() = Some(Vec::new());
        let peers = nodes.nodes.clone();
        let changes = std::thread::scope(|scope| {
            let opening = scope.spawn(|| open(peers[0].as_ref().unwrap(), Since::Beginning));
            while !opening.is_finished() {
                let asked = std::mem::take(world.asked.lock().unwrap().as_mut().unwrap());
                asked.into_iter().for_each(|asked| answer(&peers, asked));
                std::thread::yield_now();
            }
            opening.join().unwrap().unwrap()
        });
        Asker { nodes, changes, told: Vec::new() }
    }

    /// Takes the present changes. Returns the new questions.
    fn take(&mut self) -> Vec<Asked> {
        loop {
            match self.changes.next_change() {
                Next::Change(change) => {
                    let document = change.document;
                    let told = [document.name(), b"=", document.body()].concat();
                    self.told.push(String::from_utf8(told).unwrap());
                }
                Next::Nothing => {
                    let mut asked = self.nodes.worlds[0].asked.lock().unwrap();
                    return std::mem::take(asked.as_mut().unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Answers questions, and takes the resulting changes. Returns the new questions.
    fn answer(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        asked.into_iter().for_each(|asked| answer(&self.nodes.nodes, asked));
        self.take()
    }

    fn set(&mut self, index: usize, keys: &[&str], value: &str) {
        let mut connection = self.nodes.connect(index);
        keys.iter().for_each(|key| assert_eq!(connection.set(key, value).status, 0));
        self.nodes.run();
    }

    /// Moves all vBuckets to another node by way of a replica.
    fn hand_over(&mut self, from: u64, to: u64) {
        for copies in [[from, to], [to, from]] {
            self.nodes.place(&copies);
            self.nodes.run();
        }
    }
}

fn answer(nodes: &[Option<Arc<Node>>], (to, question, told): Asked) {
    told(Ok(nodes[to.0 as usize - 1].as_ref().unwrap().answer(&question)));
}

/// Returns the receivers of questions.
fn receivers(asked: &[Asked]) -> Vec<u64> {
    asked.iter().map(|(to, ..)| to.0).collect()
}

#[test]
fn changes_arrive_once_despite_moves_and_late_answers() {
    let mut nodes = Nodes::new(3, 1);
    nodes.place(&[2, 3]);
    nodes.run();
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    keys.iter().for_each(|key| assert_eq!(nodes.connect(1).set(key, "1").status, 0));
    nodes.run();
    let mut asker = Asker::open(nodes);
    let asked = asker.take();
    assert_eq!(receivers(&asked), [2]);
    let waiting = asker.answer(asked);
    let mut told = std::mem::take(&mut asker.told);
    told.sort();
    let mut expected: Vec<String> = keys.iter().map(|key| format!("{key}=1")).collect();
    expected.sort();
    assert_eq!(told, expected);
    assert!(asker.changes.is_caught_up());
    assert_eq!(receivers(&waiting), [2], "it is asked for news");

    // Another node serves the vBuckets before there is news.
    asker.hand_over(2, 3);
    asker.set(2, &["a", "b", "c"], "2");
    let asked = asker.take();
    assert_eq!(receivers(&asked), [3]);
    let asked = asker.answer(asked);
    asker.told.sort();
    assert_eq!(asker.told, ["a=2", "b=2", "c=2"]);
    asker.told.clear();
    let asked = [waiting, asked].into_iter().flatten().collect::<Vec<_>>();
    assert_eq!(receivers(&asked), [2, 3]);
    asker.set(2, &["a", "d"], "3");
    let waiting = asker.answer(asked);
    asker.told.sort();
    assert_eq!(
        (&asker.told[..], receivers(&waiting)),
        (&["a=3".into(), "d=3".into()][..], vec![3])
    );
    asker.told.clear();

    // Now this node serves them.
    asker.hand_over(3, 1);
    asker.set(0, &["a", "e"], "4");
    assert_eq!(receivers(&asker.take()), [0; 0]);
    asker.told.sort();
    assert_eq!(asker.told, ["a=4", "e=4"]);
    asker.told.clear();
    assert_eq!(receivers(&asker.answer(waiting)), [0; 0]);
    // This node gets no changes of vBuckets that it does not serve, except from the node that
    // serves them.
    asker.hand_over(1, 2);
    asker.set(1, &["a"], "5");
    let asked = asker.take();
    assert_eq!((receivers(&asked), asker.told.len()), (vec![2], 0));
    asker.answer(asked);
    assert_eq!(asker.told, ["a=5"]);
    let token = asker.changes.token();
    asker.hand_over(2, 1);
    let mut changes = open(asker.nodes.nodes[0].as_ref().unwrap(), Since::Token(token)).unwrap();
    assert!(matches!(changes.next_change(), Next::Nothing));
}

#[test]
fn changes_end_when_no_node_answers_for_long() {
    let mut nodes = Nodes::new(3, 0);
    nodes.place(&[2]);
    nodes.run();
    let mut asker = Asker::open(nodes);
    let mut asked = asker.take();
    for _ in 0..300 {
        for (_, _, told) in asked {
            told(Err(nacre_node::PeerError::NotAsked("it is away".into())));
        }
        match asker.changes.next_change() {
            Next::Nothing => {}
            Next::Broken(why) => return assert_eq!(why, "it is away"),
            other => panic!("{other:?}"),
        }
        asker.nodes.worlds[0].pass(50);
        asked = asker.nodes.worlds[0].asked.lock().unwrap().replace(Vec::new()).unwrap();
    }
    panic!("it goes on for ever");
}
