//! Server groups: nodes that probably fail together. Paths and members of answers are Couchbase's.

use super::Call;
use super::body::{Reply, form, json_reply, not_found, ok};
use super::nodes::{self, Form};
use super::routes::{ADMINISTER, READ, Route, delete, get, post, put, ready};
use hyper::StatusCode;
use nacre_cluster::{Change, Cluster, NodeChange};
use nacre_types::NodeId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PATH: &str = "/pools/default/serverGroups";

/// All groups with their nodes, as in the body of `PUT`.
#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    uri: String,
    nodes: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "otpNode")]
    otp_node: String,
}

pub(super) const ROUTES: &[Route] = &[
    get(PATH, READ, |call| ready(Ok(ok(&describe(&call))))),
    post(PATH, ADMINISTER, |call| Box::pin(create(call))),
    put(PATH, ADMINISTER, |call| Box::pin(move_nodes(call))),
    put("/pools/default/serverGroups/{uuid}", ADMINISTER, |call| Box::pin(rename(call))),
    delete("/pools/default/serverGroups/{uuid}", ADMINISTER, |call| Box::pin(drop_group(call))),
    post("/pools/default/serverGroups/{uuid}/addNode", ADMINISTER, |call| Box::pin(add_node(call))),
];

/// Returns the UUID and the name of the group that the path names.
fn group_of(call: &Call) -> Result<(String, String), Reply> {
    let uuid = call.segment("uuid");
    let name = call.node.cluster().groups.get(uuid).cloned();
    Ok((uuid.to_owned(), name.ok_or_else(not_found)?))
}

async fn create(call: Call) -> Result<Reply, Reply> {
    let (uuid, name) = (call.node.new_uuid(), Form(call.form()).required("name")?);
    change(&call, Change::Nodes(NodeChange::PutGroup { uuid, name })).await
}

async fn move_nodes(call: Call) -> Result<Reply, Reply> {
    let groups = read(&call)?;
    change(&call, Change::Nodes(NodeChange::MoveToGroups { groups })).await
}

async fn rename(call: Call) -> Result<Reply, Reply> {
    let (uuid, _) = group_of(&call)?;
    let name = Form(call.form()).required("name")?;
    change(&call, Change::Nodes(NodeChange::PutGroup { uuid, name })).await
}

async fn drop_group(call: Call) -> Result<Reply, Reply> {
    let (uuid, _) = group_of(&call)?;
    change(&call, Change::Nodes(NodeChange::DropGroup { uuid })).await
}

async fn add_node(call: Call) -> Result<Reply, Reply> {
    let (_, name) = group_of(&call)?;
    nodes::add(call, name).await
}

async fn change(call: &Call, change: Change) -> Result<Reply, Reply> {
    call.change(change).await.map(|_| ok(&json!([])))
}

fn describe(call: &Call) -> Value {
    let cluster = call.node.cluster();
    let described = nodes::describe_all(call);
    let described = described.as_array().map(Vec::as_slice).unwrap_or_default();
    let group = |(uuid, name): (&String, &String)| {
        let inside = described.iter().filter(|node| node["serverGroup"] == name.as_str());
        json!({
            "name": name,
            "uri": format!("{PATH}/{uuid}"),
            "addNodeURI": format!("{PATH}/{uuid}/addNode"),
            "nodes": inside.collect::<Vec<_>>(),
        })
    };
    let groups: Vec<Value> = cluster.groups.iter().map(group).collect();
    json!({"groups": groups, "uri": format!("{PATH}?rev={}", cluster.rev)})
}

/// Reads the group of each node from a body, which must name all present groups and nodes.
fn read(call: &Call) -> Result<BTreeMap<NodeId, String>, Reply> {
    let cluster = call.node.cluster();
    let query = form(call.query.as_bytes());
    if !query.contains(&("rev".to_owned(), cluster.rev.to_string())) {
        // The operator must have seen the present groups.
        return Err(json_reply(StatusCode::CONFLICT, &describe(call)));
    }
    let wrong = |reason: &str| json_reply(StatusCode::BAD_REQUEST, &json!(reason));
    let Groups { groups } = serde_json::from_slice(&call.body)
        .map_err(|error| wrong(&format!("The groups cannot be read: {error}")))?;
    let mut moved = BTreeMap::new();
    let mut named = BTreeSet::new();
    for Group { uri, nodes } in groups {
        let uuid = uri.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/'));
        let uuid = uuid.filter(|uuid| cluster.groups.contains_key(*uuid));
        let uuid = uuid.ok_or_else(|| wrong(&format!("There is no group {uri}.")))?;
        named.insert(uuid.to_owned());
        for Named { otp_node } in nodes {
            let id = nodes::find(&call.node, &otp_node);
            let id = id.ok_or_else(|| wrong(&format!("There is no node {otp_node}.")))?;
            if moved.insert(id, uuid.to_owned()).is_some() {
                return Err(wrong(&format!("{otp_node} is in two groups.")));
            }
        }
    }
    if !named_all(&cluster, &named, &moved) {
        return Err(wrong("All groups and all nodes have to be named."));
    }
    Ok(moved)
}

fn named_all(
    cluster: &Cluster,
    groups: &BTreeSet<String>,
    nodes: &BTreeMap<NodeId, String>,
) -> bool {
    groups.iter().eq(cluster.groups.keys()) && nodes.keys().eq(cluster.nodes.keys())
}
