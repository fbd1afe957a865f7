//! What nodes tell each other of indexes.

use crate::world::World;
use nacre_cluster::{Change, Index, Member, Membership, Service};
use nacre_types::NodeId;

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
    // Without plugins it is never built.
    node.change(&Change::CreateIndex { bucket: "b".into(), index: index.clone() }).unwrap();
    let member = Member {
        uuid: "2".repeat(32),
        endpoints: other_world.endpoints(),
        group: node.cluster().groups.keys().next().unwrap().clone(),
        services: Service::ALL.into(),
        membership: Membership::Added,
        alternate: None,
    };
    let (id, uuid) = (NodeId(2), member.uuid.clone());
    let cluster = node.change(&Change::PutNode { id, member }).unwrap();
    other.begin_anew(id, uuid, (*cluster).clone()).unwrap();
    assert_eq!(node.state_of("b", &index), "building");
    assert_eq!(other.state_of("b", &index), "online", "who uses it asks those that have it");
    *other_world.asked.lock().unwrap() = Some(Vec::new());
    let unbuilt = std::thread::scope(|scope| {
        let asking = scope.spawn(|| other.unbuilt());
        while !asking.is_finished() {
            let asked = std::mem::take(other_world.asked.lock().unwrap().as_mut().unwrap());
            for (to, question, told) in asked {
                assert_eq!(to, node.id());
                told(Ok(node.answer(&question)));
            }
            std::thread::yield_now();
        }
        asking.join().unwrap()
    });
    assert_eq!(unbuilt, [index.uuid].into());
    assert_eq!(node.unbuilt(), unbuilt, "and so says who has them");
}
