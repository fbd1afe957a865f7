//! Groups of nodes that are expected to fail together. Paths and members of answers are Couchbase's.

use super::Call;
use super::body::{Reply, form, json_reply, not_found, ok};
use super::nodes::{self, Form};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_cluster::{Change, Cluster};
use nacre_types::NodeId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PATH: &str = "/pools/default/serverGroups";

/// All groups with their nodes, as `PUT` takes them.
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

/// `path` is what follows `/pools/default/serverGroups`.
pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    let reads = call.method == "GET";
    let need = if reads { Privilege::ReadCluster } else { Privilege::AdministerCluster };
    call.require(need, None)?;
    match (call.method.as_str(), path) {
        ("GET", []) => Ok(ok(&describe(&call))),
        ("POST", []) => {
            let (uuid, name) = (call.node.new_uuid(), Form(call.form()).required("name")?);
            change(&call, Change::PutGroup { uuid, name }).await
        }
        ("PUT", []) => {
            let groups = read(&call)?;
            change(&call, Change::MoveToGroups { groups }).await
        }
        (_, [uuid, ..]) if !call.node.cluster().groups.contains_key(*uuid) => Err(not_found()),
        ("PUT", [uuid]) => {
            let (uuid, name) = ((*uuid).to_owned(), Form(call.form()).required("name")?);
            change(&call, Change::PutGroup { uuid, name }).await
        }
        ("DELETE", [uuid]) => {
            let uuid = (*uuid).to_owned();
            change(&call, Change::DropGroup { uuid }).await
        }
        ("POST", [uuid, "addNode"]) => {
            let name = call.node.cluster().groups[*uuid].clone();
            nodes::add(call, name).await
        }
        _ => Err(not_found()),
    }
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

/// The group of each node, from a body that names all groups and all nodes as they are now.
fn read(call: &Call) -> Result<BTreeMap<NodeId, String>, Reply> {
    let cluster = call.node.cluster();
    let query = form(call.query.as_bytes());
    if !query.contains(&("rev".to_owned(), cluster.rev.to_string())) {
        // What the operator has seen must be what there is.
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
