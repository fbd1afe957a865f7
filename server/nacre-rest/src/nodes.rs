//! The nodes of a cluster: descriptions, joining and leaving. Paths and texts are Couchbase's where clients read them.

use super::body::{
    Reply, blocking, done, invalid, json_reply, no_node, not_found, ok, reply, unauthorized,
};
use super::refusal::refused;
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use super::{Call, listeners, pool};
use hyper::StatusCode;
use nacre_auth::{INTERNAL, Privilege};
use nacre_cluster::{
    Change, Endpoints, Fingerprint, GROUP_DEFAULT, Member, Membership, NodeChange, ServiceName,
    bracketed, read_host,
};
use nacre_http::Access;
use nacre_links::cluster::membership::{self, NewMember, Other, SILENCE_NS_MAX};
use nacre_links::cluster::request::Introduction;
use nacre_links::platform::Memory;
use nacre_node::cluster_map::alternates;
use nacre_node::service::ServiceTable;
use nacre_node::{Node, Problem, Usage, problems};
use nacre_plugins_service::packages;
use nacre_types::NodeId;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The server version that nacre reports. Clients compare it with versions of Couchbase to know which requests exist.
///
/// 7.6.4 is the first version whose maps contain the cluster's name and UUID, as nacre's maps do.
pub(super) const COMPATIBLE_VERSION: &str = "7.6.4-0000-enterprise";
/// Compatibility version in the encoding that nodes report: major * 65536 + minor.
const COMPATIBILITY: u32 = 7 * 0x1_0000 + 6;

pub(super) const ROUTES: &[Route] = &[
    get("/nodeStatuses", READ, |call| ready(Ok(ok(&statuses(&call))))),
    get("/nodes/self", READ, |call| ready(Ok(ok(&describe_own(&call))))),
    post("/controller/addNode", ADMINISTER, |call| Box::pin(add(call, GROUP_DEFAULT.to_owned()))),
    post("/controller/ejectNode", ADMINISTER, |call| Box::pin(eject(call))),
    post("/node/controller/doJoinCluster", ADMINISTER, |call| Box::pin(join(call))),
    post("/node/controller/rename", ADMINISTER, |call| {
        Box::pin(async move { rename(&call).await })
    }),
    post("/node/controller/setupServices", ADMINISTER, |call| Box::pin(set_up_services(call))),
    get("/_nacre/packages/{digest}", Access::Handler, |call| Box::pin(package(call))),
    get("/controller/engage", Access::Handler, |call| ready(candidate(&call))),
    post("/controller/engage", Access::Handler, |call| Box::pin(engage(call))),
    post("/controller/regroup", Access::Handler, |call| Box::pin(regroup(call))),
    post("/controller/leave", Access::Handler, |call| Box::pin(leave(call))),
];

/// Describes all nodes, as lists of nodes contain them.
pub(super) fn describe_all(call: &Call) -> Value {
    let here = call.node.local_node();
    let nodes = here.nodes(&call.node.cluster());
    Value::Array(nodes.iter().map(|(id, endpoints)| describe(call, *id, endpoints)).collect())
}

/// Describes a node. The C++ core aborts the process if a node of a bucket has no services.
fn describe(call: &Call, id: NodeId, endpoints: &Endpoints) -> Value {
    let node = &call.node;
    let own = id == node.id();
    let mut ports = json!({"direct": endpoints.plain.kv()});
    if let Some(tls) = &endpoints.tls {
        ports["httpsMgmt"] = json!(tls.mgmt());
        ports["httpsCAPI"] = json!(tls.get("views"));
    }
    let cluster = node.cluster();
    let problems = if own { problems(node) } else { Vec::new() };
    let is_well = !problems.iter().any(Problem::is_lasting);
    let member = cluster.nodes.get(&id);
    let membership = member.map_or(Membership::Active, |node| node.membership);
    let mut described = json!({
        "hostname": call.authority(endpoints, endpoints.plain.mgmt()),
        "configuredHostname": endpoints.management(),
        "addressFamily": listeners::family(endpoints),
        "addressFamilyOnly": false,
        "externalListeners": [{
            "afamily": listeners::family(endpoints),
            "nodeEncryption": endpoints.fingerprint.is_some(),
        }],
        "couchApiBase": endpoints.plain.get("views").map(|port| {
            format!("http://{}/", call.authority(endpoints, port))
        }),
        "recoveryType": match cluster.recovering.get(&id) {
            None => "none",
            Some(false) => "delta",
            Some(true) => "full",
        },
        "otpNode": membership::otp_node(endpoints),
        "nodeUUID": member.map(|node| &node.uuid),
        "nodeEncryption": endpoints.fingerprint.is_some(),
        "fingerprint": endpoints.fingerprint,
        "status": if is_reachable(node, id) || own && is_well { "healthy" } else { "unhealthy" },
        "clusterMembership": match membership {
            Membership::Added | Membership::Leaving => "inactiveAdded",
            Membership::Active => "active",
            Membership::FailedOver => "inactiveFailed",
        },
        // The data of the node has moved, and the node is about to be removed.
        "leaving": membership == Membership::Leaving,
        "clusterCompatibility": COMPATIBILITY,
        "version": COMPATIBLE_VERSION,
        "os": std::env::consts::OS,
        "serverGroup": member.map_or(GROUP_DEFAULT, |node| &node.group),
        "ports": ports,
        "services": member.map(Member::service_names).unwrap_or_default(),
    });
    if let Some(port) = endpoints.tls.as_ref().and_then(|tls| tls.get("views")) {
        let base = call.authority(endpoints, port);
        described["couchApiBaseHTTPS"] = json!(format!("https://{base}/"));
    }
    if let Some(alternate) = member.and_then(|node| node.alternate.as_ref()) {
        described["alternateAddresses"] = alternates(alternate);
    }
    if own {
        described["thisNode"] = json!(true);
        described["problems"] = problems.iter().map(ToString::to_string).collect();
        described["cpuCount"] = json!(std::thread::available_parallelism().map_or(1, usize::from));
        described["uptime"] = json!((node.now().monotonic_ns / 1_000_000_000).to_string());
        describe_machine(&mut described);
        described["interestingStats"] = interesting_stats(node);
    }
    described
}

/// Adds the machine's memory, as the operating system reports it.
fn describe_machine(described: &mut Value) {
    let Some(memory) = Memory::of_machine() else { return };
    described["memoryTotal"] = json!(memory.total_bytes);
    // In MiB. A Couchbase node reports here the memory that it reserves for documents, and how much of that its buckets
    // have.
    described["mcdMemoryReserved"] = json!(memory.total_bytes >> 20);
    described["memoryFree"] = json!(memory.free_bytes);
    described["systemStats"] =
        json!({"mem_total": memory.total_bytes, "mem_free": memory.free_bytes});
}

/// Returns a node's totals over all buckets.
fn interesting_stats(node: &Node) -> Value {
    let usage = Usage::of_node(node);
    let sum = |of: fn(&Usage) -> u64| usage.values().map(of).sum::<u64>();
    json!({
        "curr_items": sum(|usage| usage.documents),
        "mem_used": sum(|usage| usage.memory_bytes),
        "couch_docs_data_size": sum(|usage| usage.live_bytes),
        "couch_docs_actual_disk_size": sum(|usage| usage.disk_bytes),
    })
}

fn is_reachable(node: &Node, id: NodeId) -> bool {
    node.silence_ns(id).is_some_and(|silence| silence <= SILENCE_NS_MAX)
}

/// Returns the health of each node, keyed by its management address: `GET /nodeStatuses`.
fn statuses(call: &Call) -> Value {
    let nodes = describe_all(call);
    let nodes = nodes.as_array().into_iter().flatten();
    let statuses = nodes.filter_map(|node| {
        let status = json!({"status": node["status"], "otpNode": node["otpNode"]});
        Some((node["hostname"].as_str()?.to_owned(), status))
    });
    Value::Object(statuses.collect())
}

/// Describes this node, including the paths of its data: `GET /nodes/self`.
pub(super) fn describe_own(call: &Call) -> Value {
    let here = call.node.local_node();
    let mut described = describe(call, here.id, &here.endpoints);
    let storage = pool::own_storage(call, &call.node);
    if let (Value::Object(described), Value::Object(storage)) = (&mut described, storage) {
        described.extend(storage);
    }
    described
}

/// Returns the ID of the node with that OTP name.
pub(super) fn find(node: &Node, otp: &str) -> Option<NodeId> {
    let cluster = node.cluster();
    let mut nodes = cluster.nodes.iter();
    nodes.find(|(_, known)| membership::is_named(&known.endpoints, otp)).map(|(id, _)| *id)
}

/// Returns an error of joining or leaving, which is a list of sentences.
fn failed(reason: String) -> Reply {
    json_reply(StatusCode::BAD_REQUEST, &json!([reason]))
}

/// The fields of a form.
pub(super) struct Form(pub Vec<(String, String)>);

impl Form {
    pub fn optional(&self, name: &str) -> Option<&str> {
        let field = self.0.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Refuses fields that are not among `known`, because an ignored field would be lost.
    pub fn only(&self, known: &[&str]) -> Result<(), Reply> {
        match self.0.iter().find(|(field, _)| !known.contains(&field.as_str())) {
            Some((field, _)) => Err(invalid(field, "Unsupported key")),
            None => Ok(()),
        }
    }

    /// Returns a field, which may be empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub fn required(&self, name: &str) -> Result<String, Reply> {
        let missing = || failed(format!("{name} is missing"));
        self.optional(name).map(str::to_owned).ok_or_else(missing)
    }

    /// Returns the fingerprint of the other node, if the operator has named it.
    fn fingerprint(&self) -> Result<Option<Fingerprint>, Reply> {
        let named = self.optional("fingerprint").map(str::parse).transpose();
        named.map_err(|error: nacre_cluster::NoFingerprint| failed(format!("fingerprint: {error}")))
    }

    /// Returns the services that the request names for the node. By default, these are all services except those that an
    /// operator must request explicitly.
    fn services(&self, known: &ServiceTable) -> Result<BTreeSet<ServiceName>, Reply> {
        let Some(named) = self.optional("services") else { return Ok(known.first_names()) };
        let known = known.names();
        let mut services = BTreeSet::new();
        for name in named.split(',').map(str::trim) {
            match known.iter().find(|service| service.as_str() == name) {
                Some(service) => drop(services.insert(*service)),
                None => {
                    let reason = format!("a node has any of {}", listed(&known));
                    return Err(failed(format!("Unknown services: {name:?}: {reason}.")));
                }
            }
        }
        Ok(services)
    }
}

/// Formats the names of services as a sentence lists them: `a, b and c`.
pub(super) fn listed(services: &BTreeSet<ServiceName>) -> String {
    let names: Vec<&str> = services.iter().map(ServiceName::as_str).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// `POST /node/controller/setupServices`: sets the services of this node, as long as it is not part of a cluster.
async fn set_up_services(call: Call) -> Result<Reply, Reply> {
    // The quotas always have their default values.
    Form(call.form()).only(&["services", "setDefaultMemQuotas"])?;
    give_services(&call).await
}

/// Sets the services of this node from the form.
pub(super) async fn give_services(call: &Call) -> Result<Reply, Reply> {
    let services = Form(call.form()).services(call.node.service_table())?;
    let node = Arc::clone(&call.node);
    let change = Change::Nodes(NodeChange::SetServices { id: node.id(), services });
    let changed = blocking("the change", move || node.change(&change)).await?;
    changed.map(|_| done()).map_err(|error| failed(error.to_string()))
}

/// `POST /controller/addNode`, or `/pools/default/serverGroups/{uuid}/addNode`, which adds the node to the group
/// `group`.
pub(super) async fn add(call: Call, group: String) -> Result<Reply, Reply> {
    let form = Form(call.form());
    form.only(&["hostname", "user", "password", "services", "fingerprint"])?;
    let new_member = NewMember { services: form.services(call.node.service_table())?, group };
    let to = Other {
        address: form.required("hostname")?,
        fingerprint: form.fingerprint()?,
        user: form.required("user")?,
        password: form.required("password")?,
    };
    let consensus = Arc::clone(&call.consensus);
    let added =
        blocking("adding the node", move || membership::add(&consensus, &to, new_member)).await?;
    Ok(ok(&json!({"otpNode": added.map_err(failed)?})))
}

/// `POST /node/controller/doJoinCluster`.
async fn join(call: Call) -> Result<Reply, Reply> {
    let form = Form(call.form());
    form.services(call.node.service_table())?;
    let services = form.optional("services").unwrap_or_default().to_owned();
    let host = form.required("clusterMemberHostIp")?;
    let address = match form.optional("clusterMemberPort") {
        Some(port) => format!("{}:{port}", bracketed(&host)),
        None => host,
    };
    let member = Other {
        address,
        fingerprint: form.fingerprint()?,
        user: form.required("user")?,
        password: form.required("password")?,
    };
    let Some((user, password)) = call.login.clone() else {
        return Err(failed("Log in with a password: the member needs it to add this node.".into()));
    };
    let consensus = Arc::clone(&call.consensus);
    let work = move || membership::join(&consensus, &member, (&user, &password), &services);
    let joined = blocking("joining", work).await?;
    match joined.map_err(failed)? {
        (200, _) => Ok(done()),
        (401, _) => Err(failed(
            "Prepare join failed. Authentication failed. Verify username and password.".into(),
        )),
        (status, body) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            Err(reply(status, "application/json", body))
        }
    }
}

/// `POST /controller/ejectNode`. A node that leaves may name itself as `id`, with its number.
async fn eject(call: Call) -> Result<Reply, Reply> {
    let form = Form(call.form());
    let consensus = Arc::clone(&call.consensus);
    let ejected = match form.optional("id") {
        Some(id) => {
            let id = id.parse().map_err(|_| failed("A number is expected as id.".into()))?;
            blocking("the removal", move || membership::remove(&consensus, NodeId(id))).await?
        }
        None => {
            let otp = form.required("otpNode")?;
            blocking("the removal", move || membership::eject(&consensus, &otp)).await?
        }
    };
    // This error is not a list.
    let problem =
        |reason: String| reply(StatusCode::BAD_REQUEST, "text/plain", format!("{reason}\n"));
    ejected.map(|()| done()).map_err(problem)
}

/// `POST /node/controller/rename`: sets the name by which the other nodes reach this node.
pub(super) async fn rename(call: &Call) -> Result<Reply, Reply> {
    let host = read_host(&Form(call.form()).required("hostname")?).map_err(failed)?;
    if call.node.cluster().nodes.len() > 1 {
        let reason = "Renaming is disallowed for nodes that are already part of a cluster";
        return Err(failed(reason.into()));
    }
    let endpoints = Endpoints { host: Some(host), ..call.node.endpoints() };
    call.change(Change::Nodes(NodeChange::MoveNode { id: call.node.id(), endpoints }))
        .await
        .map(|_| done())
}

/// Sends the bytes of a package to another node.
async fn package(call: Call) -> Result<Reply, Reply> {
    if call.user != INTERNAL {
        return Err(unauthorized());
    }
    let (node, digest) = (Arc::clone(&call.node), call.segment("digest").to_owned());
    let archive = blocking("reading the package", move || packages::archive(&node, &digest));
    let archive = archive.await?.map_err(|error| refused(&error))?;
    archive
        .map(|bytes| reply(StatusCode::OK, "application/octet-stream", bytes))
        .ok_or_else(not_found)
}

/// Returns what another node must know before it opens a link to this node.
pub(super) fn introduce(node: &Node) -> Reply {
    let endpoints = node.endpoints();
    let Some((tls, fingerprint)) = endpoints.tls.zip(endpoints.fingerprint) else {
        return not_found();
    };
    let version = membership::VERSION;
    ok(&json!(Introduction { version, port: tls.mgmt(), fingerprint }))
}

/// Describes this node to the node that wants to add it and has logged in as this node's administrator.
fn candidate(call: &Call) -> Result<Reply, Reply> {
    call.key.ok_or_else(no_node)?;
    call.require(Privilege::AdministerCluster, None)?;
    Ok(ok(&json!(membership::candidate(&call.consensus))))
}

/// Joins the cluster of the node that asks, with the permission of this node's administrator.
async fn engage(call: Call) -> Result<Reply, Reply> {
    let key = call.key.ok_or_else(no_node)?;
    call.require(Privilege::AdministerCluster, None)?;
    let consensus = Arc::clone(&call.consensus);
    // From here on, the cluster's administrator is this node's administrator.
    let was_open = call.claim.close();
    let body = call.body;
    let engaged = blocking("joining", move || membership::engaged(&consensus, &key, &body)).await?;
    if engaged.is_err() && was_open {
        call.claim.open();
    }
    engaged.map(|()| done()).map_err(failed)
}

/// Refuses requests that do not come from a node of the cluster.
fn require_member(call: &Call) -> Result<(), Reply> {
    call.key.ok_or_else(no_node)?;
    if call.user == INTERNAL { Ok(()) } else { Err(unauthorized()) }
}

async fn regroup(call: Call) -> Result<Reply, Reply> {
    require_member(&call)?;
    let (consensus, body) = (Arc::clone(&call.consensus), call.body);
    let work = move || membership::regrouped(&consensus, &body);
    blocking("going on", work).await?.map_err(failed)?;
    Ok(done())
}

async fn leave(call: Call) -> Result<Reply, Reply> {
    require_member(&call)?;
    let (consensus, body) = (Arc::clone(&call.consensus), call.body);
    let work = move || membership::leave(&consensus, &body);
    blocking("leaving", work).await?.map_err(failed)?;
    Ok(done())
}
