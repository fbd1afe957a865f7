//! Messages between nodes about indexes.

use crate::world::World;
use nacre_auth::{Role, User};
use nacre_cluster::{Change, Index, IndexChange, Member, Membership, NodeChange, ServiceName};
use nacre_node::Node;
use nacre_query_service::{Session, state_of, unbuilt};
use nacre_sandbox::Database;
use nacre_types::NodeId;
use serde_json::Value;
use std::sync::Arc;

#[test]
fn a_node_without_documents_asks_the_others_whether_an_index_is_built() {
    let (world, other_world) = (World::new(), World::at(4));
    let (node, other) = (world.node(), other_world.bare_node());
    let index = Index {
        uuid: "i".repeat(32),
        scope: "_default".into(),
        collection: "_default".into(),
        name: "by_n".into(),
        definition: "CREATE INDEX by_n ON b(n)".into(),
        keys: vec!["n".into()],
        condition: None,
        built: true,
        partitioning: None,
    };
    // Without plugins the index is never built.
    node.change(&Change::Indexes(IndexChange::CreateIndex {
        bucket: "b".into(),
        index: index.clone(),
    }))
    .unwrap();
    let member = Member {
        uuid: "2".repeat(32),
        endpoints: other_world.endpoints(),
        group: node.cluster().groups.keys().next().unwrap().clone(),
        services: ServiceName::FIRST.into(),
        membership: Membership::Added,
        alternate: None,
    };
    let (id, uuid) = (NodeId(2), member.uuid.clone());
    let cluster = node.change(&Change::Nodes(NodeChange::PutNode { id, member })).unwrap();
    other.replace_cluster(id, uuid, (*cluster).clone()).unwrap();
    assert_eq!(state_of(&node, "b", &index), "building");
    assert_eq!(state_of(&other, "b", &index), "online", "who uses it asks those that have it");
    let seen_elsewhere = while_asked(&other_world, &node, || unbuilt(&other));
    assert_eq!(seen_elsewhere, [index.uuid].into());
    assert_eq!(unbuilt(&node), seen_elsewhere, "and so says who has them");

    let admin = User::new("admin", "password", vec![Role::admin()], other.new_salt());
    other.put_user(admin).unwrap();
    let rows = while_asked(&other_world, &node, || {
        let session = Session::new(&other, "admin", Arc::new(|| false));
        session.catalog("indexes").unwrap().unwrap()
    });
    let rows: Vec<Value> = rows.iter().map(|(_, row)| serde_json::from_str(row).unwrap()).collect();
    let states: Vec<_> = rows.iter().map(|row| (&row["name"], &row["state"])).collect();
    assert_eq!(states, [(&"by_n".into(), &"building".into())], "as at any node");
}

/// Returns the result of `ask`, while the other node answers all questions of this world's node.
fn while_asked<T: Send>(world: &World, other: &Arc<Node>, ask: impl FnOnce() -> T + Send) -> T {
    *world.asked.lock().unwrap() = Some(Vec::new());
    std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            let asked = std::mem::take(world.asked.lock().unwrap().as_mut().unwrap());
            for (to, question, told) in asked {
                assert_eq!(to, other.id());
                told(Ok(other.answer(&question)));
            }
            std::thread::yield_now();
        }
        asking.join().unwrap()
    })
}
