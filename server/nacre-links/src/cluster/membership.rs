//! Joining and leaving of nodes. The messages are those that Couchbase's clients show to users.
//!
//! ```text
//! addNode on a member       asks the new node for its TLS port                       GET  /_nacre/node
//!                           records the key that it presents; later requests accept only that key
//!                           asks for its identity, as its administrator             GET  /controller/engage
//!                           assigns its ID: NodeChange::PutNode
//!                           sends it the cluster: uuid, secret, nodes               POST /controller/engage
//!                           asks the leader to admit it as a learner, then as a voter
//! doJoinCluster elsewhere   asks a member to add this node
//! ejectNode on a member     asks the leader to remove its vote: NodeChange::DropNode
//!                           informs it, by its ID: it may have rejoined as another  POST /controller/leave
//! ```
//!
//! A failure between these steps leaves a node that `ejectNode` can remove.
//!
//! ```text
//! failOver with allowUnsafe on a remaining node, when most nodes are lost
//!                           asks the other remaining nodes for their state          GET  /controller/engage
//!                           continues alone, with a new secret
//!                           sends it to each of them, and admits them as voters     POST /controller/regroup
//!                           lets the remaining copies take over: NodeChange::FailOver
//! ```
//!
//! The lost nodes know only the old secret: when they return, no other node accepts them, and they cannot decide
//! anything.

use super::Consensus;
use super::consensus::Voters;
use super::peers::Peers;
use super::request::{CONNECT_TIMEOUT, Call, Caller, Login};
use super::types::Place;
use nacre_cluster::{
    Address, Alternate, Change, Cluster, Endpoints, Fingerprint, Member, Membership, NodeChange,
    Refusal, ServiceName, bracketed,
};
use nacre_node::{Error, Node};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Version of the links, the log and the agreed state. Nodes with different versions cannot form a cluster.
pub const VERSION: u32 = nacre_cluster::FORM_VERSION;
/// Timeout of a joining node to leave its previous cluster.
const LEAVING_PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a member to add a node, which takes several requests.
const ADD_TIMEOUT: Duration = Duration::from_secs(150);
/// Maximum difference between the wall clocks when a node joins.
const CLOCK_DIFFERENCE_S_MAX: u64 = 60;
/// Pause before the new node is polled again.
const SETTLED_PAUSE: Duration = Duration::from_millis(10);
/// Silence after which a node is unhealthy, in nanoseconds.
pub const SILENCE_NS_MAX: u64 = 2_000_000_000;
/// Path at which a node reports its identity, and joins a cluster.
const ENGAGE: &str = "/controller/engage";
/// Path at which a node learns that it was removed.
const LEAVE: &str = "/controller/leave";
/// Path at which a node learns that the remaining nodes continue without a majority.
const REGROUP: &str = "/controller/regroup";
/// Path prefix of packages for other nodes; the digest follows.
const PACKAGES: &str = "/_nacre/packages/";
/// Message about a node that is not a member.
const UNKNOWN: &str = "Server does not exist.";
/// Message about a node with another version.
const INCOMPATIBLE: &str = "Incompatible version: that node cannot join. All nodes of a cluster run the same version of nacre.";

/// A node's description of itself before it joins.
#[derive(Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// [`VERSION`] of that node.
    pub version: u32,
    /// UUID of its cluster.
    pub cluster: String,
    /// Number of nodes in its cluster.
    pub nodes: usize,
    /// Number of buckets in its cluster.
    pub buckets: usize,
    /// Its endpoints.
    pub endpoints: Endpoints,
    /// Its alternate address, if it has one.
    pub alternate: Option<Alternate>,
    /// Index of the last decision of its cluster that it has applied.
    pub applied: u64,
    /// Its wall clock, in seconds since the Unix epoch.
    pub unix_seconds: u64,
}

/// The message that makes a node join.
#[derive(Serialize, Deserialize)]
pub struct Engagement {
    /// ID assigned to the node.
    pub id: NodeId,
    /// UUID assigned to the node.
    pub uuid: String,
    /// The cluster, without buckets, users and other state that arrives with the log.
    pub cluster: Cluster,
}

/// A node that is not a member, with the credentials for it.
pub struct Other {
    /// Address as entered by the operator: see [`Address::parse`].
    pub address: String,
    /// Fingerprint of its key, if the operator knows it.
    pub fingerprint: Option<Fingerprint>,
    /// User there.
    pub user: String,
    /// Password.
    pub password: String,
}

/// The management port, which names of nodes omit. Source: node names of Couchbase have no port.
const MANAGEMENT_PORT: u16 = 8091;

/// Returns the name of a node in REST requests: its host, and its port unless it is the usual one, as for several nodes on one
/// machine.
pub fn otp_node(endpoints: &Endpoints) -> String {
    let whole = format!("ns_1@{}", endpoints.management());
    match whole.strip_suffix(&format!(":{MANAGEMENT_PORT}")) {
        Some(short) => short.to_owned(),
        None => whole,
    }
}

/// Returns true if `otp` names the node. The usual port may be omitted.
pub fn is_named(endpoints: &Endpoints, otp: &str) -> bool {
    otp == otp_node(endpoints) || otp.strip_prefix("ns_1@") == Some(&*endpoints.management())
}

/// Returns this node's description before it joins another cluster.
pub fn candidate(consensus: &Consensus) -> Candidate {
    let node = consensus.node();
    let cluster = node.cluster();
    Candidate {
        applied: consensus.applied_index(),
        version: VERSION,
        cluster: cluster.uuid.clone(),
        nodes: cluster.nodes.len(),
        buckets: cluster.buckets.len(),
        endpoints: node.endpoints(),
        alternate: cluster.nodes.get(&node.id()).and_then(|member| member.alternate.clone()),
        unix_seconds: node.now().unix_s().into(),
    }
}

/// The role of a new node.
#[derive(Debug)]
pub struct NewMember {
    /// Its services.
    pub services: BTreeSet<ServiceName>,
    /// The name of its server group.
    pub group: String,
}

/// Adds the node at `to` to this node's cluster. Returns the name of the new node. Takes seconds; every step has a
/// timeout.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn add(
    consensus: &Arc<Consensus>,
    to: &Other,
    new_member: NewMember,
) -> Result<String, String> {
    let Some(_entering) = consensus.entering.try_lock() else {
        return Err("Another node is being added: try again later.".into());
    };
    let (node, caller) = (consensus.node(), consensus.caller());
    let address = Address::parse(&to.address)?;
    let local = reach(&address)?;
    let mut to = secured(caller, &address, to)?;
    let (newcomer, key) =
        ask(caller, &to).map_err(|reason| format!("Prepare join failed. {reason}"))?;
    // Later requests must reach the node that was trusted first.
    to.fingerprint = Some(key);
    let cluster = node.cluster();
    check_not_member(&cluster, node.id(), &newcomer)?;
    check(&cluster, node.now().unix_s().into(), &newcomer)?;
    check_key(&cluster, &newcomer, &key)?;
    let endpoints = Endpoints { host: Some(address.host), ..newcomer.endpoints };
    if cluster.nodes.values().any(|known| known.endpoints.management() == endpoints.management()) {
        return Err("Prepare join failed. Node is already part of cluster.".into());
    }
    name_this(node, &local)?;
    let member = Member {
        uuid: node.new_uuid(),
        endpoints,
        group: new_member.group,
        services: new_member.services,
        membership: Membership::Added,
        alternate: newcomer.alternate,
    };
    let (id, cluster) = put(node, &member)?;
    let place = Place::of(&member);
    let engaged = engage(caller, &to, id, &member, &cluster)
        .and_then(|()| consensus.change_voters(Voters::Add(id, place.clone())))
        .and_then(|index| wait_until_applied(caller, &place, &cluster, index));
    if let Err(reason) = engaged {
        // The node is not a member before it votes.
        let removed = consensus.change_voters(Voters::Remove(id));
        if removed.is_ok() {
            let _ = node.change(&Change::Nodes(NodeChange::DropNode { id }));
        }
        return Err(format!("Join completion call failed. {reason}"));
    }
    // The node has just answered, so it counts as healthy at once.
    node.receive(id, b"");
    tracing::info!("{id} has joined: {}, with the key {key}", member.endpoints.management());
    Ok(otp_node(&member.endpoints))
}

/// Returns the login for requests over TLS. If the operator named the plain port, asks there only for the TLS port.
fn secured(caller: Caller<'_>, at: &Address, other: &Other) -> Result<Login, String> {
    let failed = |reason: &str| format!("Prepare join failed. {reason}");
    let mut port = at.port;
    if !at.encrypted {
        let authority = at.authority();
        let introduction = caller.introduction(&authority).map_err(|reason| {
            failed(&format!("{authority} does not answer as the management of a node: {reason}"))
        })?;
        let introduction = introduction.filter(|known| known.version == VERSION);
        port = introduction.ok_or_else(|| failed(INCOMPATIBLE))?.port;
    }
    Ok(Login {
        address: format!("{}:{port}", bracketed(&at.host)),
        fingerprint: other.fingerprint,
        user: other.user.clone(),
        password: other.password.clone(),
    })
}

/// Connects, and returns the local address of the connection.
fn reach(Address { host, port, .. }: &Address) -> Result<String, String> {
    let failed = || {
        format!(
            "Prepare join failed. Could not connect to \"{host}\" on port {port}.  This could be due to an incorrect host/port combination or a firewall in place between the servers."
        )
    };
    let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|_| {
        format!("Prepare join failed. Failed to resolve address for {host:?}.  The hostname may be incorrect or not resolvable.")
    })?;
    for address in addresses {
        if let Ok(stream) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            return stream.local_addr().map(|local| local.ip().to_string()).map_err(|_| failed());
        }
    }
    Err(failed())
}

/// Asks a node for its description. Returns that and the key that the node has presented.
fn ask(caller: Caller<'_>, to: &Login) -> Result<(Candidate, Fingerprint), String> {
    let answer = caller.ask(to, Call::get(ENGAGE, TIMEOUT));
    let answer = answer?;
    let incompatible = || INCOMPATIBLE.to_owned();
    match answer.status {
        200 => {}
        401 => return Err("Authentication failed. Verify username and password.".into()),
        403 => return Err("The user may not administer that node.".into()),
        _ => return Err(incompatible()),
    }
    let candidate = serde_json::from_slice(&answer.body).map_err(|_| incompatible())?;
    Ok((candidate, answer.key))
}

/// Refuses a node that is or was in this cluster. `own` is the node that adds it.
fn check_not_member(cluster: &Cluster, own: NodeId, newcomer: &Candidate) -> Result<(), String> {
    if newcomer.cluster != cluster.uuid {
        return Ok(());
    }
    let key = newcomer.endpoints.fingerprint;
    let problem = match key.and_then(|key| cluster.node_with_key(&key)) {
        Some(id) if id == own => "Joining node to itself is not allowed.",
        Some(_) => "Node is already part of cluster.",
        None => {
            "The node was removed from this cluster while it could not be reached, and still considers itself a member. Stop it, empty its data directory, and start it again."
        }
    };
    Err(format!("Prepare join failed. {problem}"))
}

/// Checks that a node may join `cluster`.
fn check(cluster: &Cluster, unix_seconds: u64, newcomer: &Candidate) -> Result<(), String> {
    let ahead_s = newcomer.unix_seconds.cast_signed() - unix_seconds.cast_signed();
    let problem = if newcomer.cluster == cluster.uuid {
        "Joining node to itself is not allowed."
    } else if newcomer.version != VERSION {
        INCOMPATIBLE
    } else if newcomer.nodes > 1 {
        "The node is already part of another cluster: remove it there first."
    } else if newcomer.buckets > 0 {
        "The node has buckets: it would lose them. Drop them first."
    } else if ahead_s.unsigned_abs() > CLOCK_DIFFERENCE_S_MAX {
        return Err(format!(
            "Prepare join failed. The clock of that node is {} s {} this one's: documents would expire at the wrong time. Set the clocks first.",
            ahead_s.unsigned_abs(),
            if ahead_s > 0 { "ahead of" } else { "behind" }
        ));
    } else {
        return Ok(());
    };
    Err(format!("Prepare join failed. {problem}"))
}

/// Checks that the presented key is the node's own and unique.
fn check_key(cluster: &Cluster, newcomer: &Candidate, key: &Fingerprint) -> Result<(), String> {
    let problem = if newcomer.endpoints.fingerprint != Some(*key) {
        "Another node answers at this address: it does not have the key that it announced."
    } else if cluster.node_with_key(key).is_some() {
        "The node has the key of another one: its data directory is a copy. Remove tls/node-key.pem there, and start it again."
    } else {
        return Ok(());
    };
    Err(format!("Prepare join failed. {problem}"))
}

/// Gives this node a name and a key in the agreed state; a single node needs neither.
fn name_this(node: &Arc<Node>, local: &str) -> Result<(), String> {
    let mut endpoints = node.endpoints();
    endpoints.host.get_or_insert_with(|| local.to_owned());
    let known = node.cluster().nodes.get(&node.id()).map(|known| known.endpoints.clone());
    if known.as_ref() == Some(&endpoints) {
        return Ok(());
    }
    let change = Change::Nodes(NodeChange::MoveNode { id: node.id(), endpoints });
    node.change(&change).map(drop).map_err(|error| error.to_string())
}

/// Assigns the next ID to a new member.
fn put(node: &Arc<Node>, member: &Member) -> Result<(NodeId, Arc<Cluster>), String> {
    loop {
        let id = node.cluster().next_node();
        match node.change(&Change::Nodes(NodeChange::PutNode { id, member: member.clone() })) {
            Ok(cluster) => return Ok((id, cluster)),
            // Another node was faster; this node has applied that change by now.
            Err(Error::Refused(Refusal::NodeNumberTaken { .. })) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Sends a new node its cluster.
fn engage(
    caller: Caller<'_>,
    to: &Login,
    id: NodeId,
    member: &Member,
    cluster: &Cluster,
) -> Result<(), String> {
    let mut given = Cluster::new(cluster.uuid.clone());
    given.name = cluster.name.clone();
    given.rev = cluster.rev;
    given.secret = cluster.secret.clone();
    given.nodes = cluster.nodes.clone();
    given.groups = cluster.groups.clone();
    given.last_gone = cluster.last_gone;
    let engagement = Engagement { id, uuid: member.uuid.clone(), cluster: given };
    let body = serde_json::to_vec(&engagement).map_err(|error| error.to_string())?;
    let answer = caller.ask(to, Call::post(ENGAGE, &body, TIMEOUT))?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!("{status}: {}", String::from_utf8_lossy(&answer.body))),
    }
}

/// Waits until a new node has the state, because only then the cluster's users can log in there.
fn wait_until_applied(
    caller: Caller<'_>,
    place: &Place,
    cluster: &Cluster,
    index: u64,
) -> Result<(), String> {
    let to = Login::of_node(place, cluster)?;
    let begun = Instant::now();
    loop {
        if ask(caller, &to).is_ok_and(|(newcomer, _)| newcomer.applied >= index) {
            return Ok(());
        }
        if begun.elapsed() > TIMEOUT {
            return Err("The node did not take the state of the cluster in time.".into());
        }
        std::thread::sleep(SETTLED_PAUSE);
    }
}

/// Returns the bytes of a package from the first node that has them.
///
/// # Errors
/// Fails when no node has the package or can be asked.
pub fn fetch_package(peers: &Peers, digest: &str) -> Result<Vec<u8>, String> {
    let directory = peers.directory();
    let cluster = directory.node().cluster();
    let path = format!("{PACKAGES}{digest}");
    for place in directory.others().into_iter().filter_map(|id| directory.place(id)) {
        let address = &place.address;
        let asked = Login::of_node(&place, &cluster)
            .and_then(|other| peers.caller().ask(&other, Call::get(&path, TIMEOUT)));
        match asked {
            Ok(answer) if answer.status == 200 => return Ok(answer.body),
            Ok(answer) => tracing::debug!("{address} has no package {digest}: {}", answer.status),
            Err(error) => tracing::warn!("cannot fetch the package from {address}: {error}"),
        }
    }
    Err(format!("no node that answers has the package {digest}: upload it again"))
}

/// Handles a message of [`add`] from another node, which has presented `key`: this node joins that cluster.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn engaged(consensus: &Arc<Consensus>, key: &Fingerprint, body: &[u8]) -> Result<(), String> {
    // This node may be about to leave another cluster. The wait is limited, because two nodes may add each other.
    let Some(_entering) = consensus.entering.try_lock_for(LEAVING_PATIENCE) else {
        return Err("This node is adding another node: try again later.".into());
    };
    let given: Engagement =
        serde_json::from_slice(body).map_err(|error| format!("it cannot be read: {error}"))?;
    let Engagement { id, uuid, cluster } = given;
    let own = candidate(consensus);
    check(&cluster, own.unix_seconds, &own)?;
    let member =
        cluster.nodes.get(&id).ok_or("the state of the cluster does not contain this node")?;
    if member.uuid != uuid || cluster.secret.is_empty() || !cluster.buckets.is_empty() {
        return Err("the cluster is not complete".into());
    }
    if cluster.node_with_key(key).is_none() {
        return Err("the node that sent the state of the cluster is not in it".into());
    }
    if member.endpoints.fingerprint != Some(consensus.directory().key().fingerprint()) {
        return Err("the cluster knows another key of this node".into());
    }
    tracing::info!("joining the cluster {} as {id}", cluster.uuid);
    consensus.enter(id, uuid, cluster)
}

/// Asks a member of another cluster to add this node with `services` as given in the request, with the name and
/// password of that cluster's administrator. Returns the response.
///
/// # Errors
/// The reason why the member could not be asked, as a sentence.
pub fn join(
    consensus: &Arc<Consensus>,
    member: &Other,
    (user, password): (&str, &str),
    services: &str,
) -> Result<(u16, Vec<u8>), String> {
    let address = Address::parse(&member.address)?;
    let local = reach(&address)?;
    let member = secured(consensus.caller(), &address, member)?;
    let endpoints = consensus.node().endpoints();
    let name = endpoints.host.clone().unwrap_or(local);
    let field = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let form = format!(
        "hostname={}&fingerprint={}&user={}&password={}&services={}",
        field(&format!("{}:{}", bracketed(&name), endpoints.plain.mgmt())),
        consensus.directory().key().fingerprint(),
        field(user),
        field(password),
        field(services),
    );
    let call = Call::form("/controller/addNode", &form, ADD_TIMEOUT);
    let answer = consensus.caller().ask(&member, call);
    let answer = answer.map_err(|error| format!("Prepare join failed. {error}"))?;
    Ok((answer.status, answer.body))
}

/// Removes the node with this name from the cluster. An active node must be failed over first.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn eject(consensus: &Arc<Consensus>, otp: &str) -> Result<(), String> {
    let cluster = consensus.node().cluster();
    let found = cluster.nodes.iter().find(|(_, known)| is_named(&known.endpoints, otp));
    remove(consensus, *found.ok_or(UNKNOWN)?.0)
}

/// Removes the node with this ID. A node that rejoins has another ID, so a late request does not remove it.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn remove(consensus: &Arc<Consensus>, id: NodeId) -> Result<(), String> {
    let node = consensus.node();
    let cluster = node.cluster();
    let member = cluster.nodes.get(&id).ok_or(UNKNOWN)?;
    if cluster.nodes.len() == 1 {
        return Err("Can't remove the last node.".into());
    }
    let holds_data = member.membership == Membership::Active
        || cluster
            .buckets
            .values()
            .flat_map(|bucket| &bucket.chains)
            .any(|chain| chain.involves(id));
    if holds_data && !cluster.buckets.is_empty() {
        return Err("Cannot remove active server.".into());
    }
    let login = Login::of_node(&Place::of(member), &cluster);
    consensus.change_voters(Voters::Remove(id))?;
    if id == node.id() {
        // The others must know before this node forgets them.
        return leave_by_others(consensus.caller(), id, &cluster);
    }
    node.change(&Change::Nodes(NodeChange::DropNode { id })).map_err(|error| error.to_string())?;
    tracing::info!("{id} was removed: {}", member.endpoints.management());
    let body = serde_json::to_vec(&id).map_err(|error| error.to_string())?;
    // A lost node cannot be informed; it is refused when it returns.
    let informed =
        login.and_then(|node| consensus.caller().ask(&node, Call::post(LEAVE, &body, TIMEOUT)));
    if let Err(error) = informed {
        tracing::warn!("cannot inform {id} of its removal: {error}");
    }
    Ok(())
}

/// Asks another member to remove this node.
fn leave_by_others(caller: Caller<'_>, id: NodeId, cluster: &Cluster) -> Result<(), String> {
    let form = format!("id={}", id.0);
    let mut problem = "no other node answers".to_owned();
    for (_, member) in cluster.nodes.iter().filter(|(other, _)| **other != id) {
        let call = Call::form("/controller/ejectNode", &form, ADD_TIMEOUT);
        let asked = Login::of_node(&Place::of(member), cluster);
        match asked.and_then(|other| caller.ask(&other, call)) {
            Ok(answer) if answer.status == 200 => return Ok(()),
            Ok(answer) => problem = String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Continues with the remaining nodes without a majority, and fails over the `lost` nodes. Writes that only those had
/// are lost.
///
/// # Errors
/// The reason of the failure, as a sentence. Nothing has changed in that case, unless a node stopped answering in
/// between.
pub fn regroup(consensus: &Arc<Consensus>, lost: &BTreeSet<NodeId>) -> Result<(), String> {
    let Some(_entering) = consensus.entering.try_lock() else {
        return Err("Another node is being added: try again later.".into());
    };
    let (node, before) = (consensus.node(), consensus.node().cluster());
    if lost.contains(&node.id()) {
        return Err(
            "This node is one of those to fail over: send the request to a node that stays.".into(),
        );
    }
    let is_left = |id: &&NodeId| !lost.contains(*id) && **id != node.id();
    let left: Result<Vec<(NodeId, Login)>, String> = before
        .nodes
        .keys()
        .filter(is_left)
        .filter_map(|id| Some((*id, consensus.directory().place(*id)?)))
        .map(|(id, place)| Ok((id, Login::of_node(&place, &before)?)))
        .collect();
    let (left, caller) = (left?, consensus.caller());
    let own = candidate(consensus);
    for (_, other) in &left {
        let address = &other.address;
        let (known, _) = ask(caller, other).map_err(|reason| {
            format!("{address} does not answer: fail it over too, or bring it back. {reason}")
        })?;
        if known.applied > own.applied {
            return Err(format!(
                "{address} has newer settings of the cluster than this node: send the request to it"
            ));
        }
    }
    let secret = node.new_secret();
    tracing::warn!("continuing without {lost:?}: what only they had is lost");
    consensus.regroup(secret.clone(), true)?;
    let body = serde_json::to_vec(&secret).map_err(|error| error.to_string())?;
    for (id, other) in &left {
        let answer = caller.ask(other, Call::post(REGROUP, &body, TIMEOUT))?;
        if answer.status != 200 {
            let reason = String::from_utf8_lossy(&answer.body);
            let (address, status) = (&other.address, answer.status);
            return Err(format!("{address} cannot continue: {status}: {reason}"));
        }
        let member = before.nodes.get(id).ok_or("it was there before")?;
        consensus.change_voters(Voters::Add(*id, Place::of(member)))?;
    }
    let nodes = lost.iter().copied().collect();
    node.change(&Change::Nodes(NodeChange::FailOver { nodes }))
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Handles a message of [`regroup`] from another node.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn regrouped(consensus: &Arc<Consensus>, body: &[u8]) -> Result<(), String> {
    let _entering = consensus.entering.lock();
    let secret = serde_json::from_slice(body)
        .map_err(|error| format!("the secret is malformed: {error}"))?;
    tracing::warn!(
        "continuing without most of the other nodes, at the request of a node that stays"
    );
    consensus.regroup(secret, false)
}

/// Leaves the cluster in which this node has the ID in `body`, and begins a new cluster without buckets and users.
///
/// # Errors
/// Fails when this node has another ID by now, or with the error of the disk.
pub fn leave(consensus: &Arc<Consensus>, body: &[u8]) -> Result<(), String> {
    let _entering = consensus.entering.lock();
    let named =
        serde_json::from_slice(body).map_err(|error| format!("it is not a number: {error}"))?;
    if consensus.node().id() != named {
        return Err(UNKNOWN.into());
    }
    let (id, uuid, cluster) = consensus.node().new_cluster();
    tracing::info!("left the cluster {}", consensus.node().cluster().uuid);
    consensus.enter(id, uuid, cluster)
}

/// Resets a single node: removes its state including buckets and users.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn reset(consensus: &Arc<Consensus>) -> Result<(), String> {
    let _entering = consensus.entering.lock();
    let (id, uuid, cluster) = consensus.node().new_cluster();
    tracing::info!("starting again as a new node, without its previous data");
    consensus.enter(id, uuid, cluster)
}
