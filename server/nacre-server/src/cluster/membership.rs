//! How a node joins and leaves. Texts are those that Couchbase's clients show to people.
//!
//! ```text
//! addNode on a member       asks the newcomer who it is, as its administrator       GET  /controller/engage
//!                           gives it a number: Change::PutNode
//!                           gives it the cluster: uuid, secret, nodes               POST /controller/engage
//!                           has the leader let it learn, and then vote
//! doJoinCluster elsewhere   asks a member to add this node
//! ejectNode on a member     has the leader take its vote away: Change::DropNode
//!                           tells it                                                POST /controller/leave
//! ```
//!
//! What breaks off in between leaves a node that `ejectNode` removes.
//!
//! ```text
//! failOver with allowUnsafe on a node that is left, when most nodes are gone
//!                           asks the others that are left what they know            GET  /controller/engage
//!                           goes on alone, with another secret
//!                           tells it to each of them, and lets it vote again        POST /controller/regroup
//!                           has the copies that are left take over: Change::FailOver
//! ```
//!
//! Those who are gone know the old secret only: when they come back, nobody talks to them, and they cannot decide anything.

use super::Consensus;
use super::consensus::Voters;
use super::directory::Directory;
use super::types::Place;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nacre_auth::INTERNAL;
use nacre_cluster::{Change, Cluster, Endpoints, Member, Membership, Refusal, Service};
use nacre_node::{Error, Node};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What nodes must have in common to agree: it changes with the links, the log and the agreed state.
pub const VERSION: u32 = 3;
/// How long a node may take to let itself be connected to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take over a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a member may take to add a node, which takes requests of its own.
const ADD_TIMEOUT: Duration = Duration::from_secs(150);
/// How far the wall clocks of nodes may be apart when one joins.
const CLOCK_DIFFERENCE_S_MAX: u64 = 60;
/// How long to wait before asking a newcomer again.
const SETTLED_PAUSE: Duration = Duration::from_millis(10);
/// The largest answer of another node: a package.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// A node that was not heard for so long is unhealthy.
pub const SILENCE_NS_MAX: u64 = 2_000_000_000;
/// Where a node says who it is, and is given a cluster.
const ENGAGE: &str = "/controller/engage";
/// Where a node is told that it was removed.
const LEAVE: &str = "/controller/leave";
/// Where a node is told that those who are left go on without most of the others.
const REGROUP: &str = "/controller/regroup";
/// Where a node gives packages to others; the digest follows.
const PACKAGES: &str = "/_nacre/packages/";
/// The port that is meant when none is named.
const PORT_DEFAULT: u16 = 8091;
/// Where a host is the machine itself.
const ANYWHERE: [&str; 3] = ["0.0.0.0", "::", ""];

/// A node that may join, as it describes itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// [`VERSION`] of that node.
    pub version: u32,
    /// The cluster it is in.
    pub cluster: String,
    /// How many nodes that has.
    pub nodes: usize,
    /// How many buckets it has.
    pub buckets: usize,
    /// Where it is reached.
    pub endpoints: Endpoints,
    /// How far it has come with what its cluster has decided.
    pub applied: u64,
    /// What its wall clock shows, in seconds since the Unix epoch.
    pub unix_seconds: u64,
}

/// What a newcomer is given.
#[derive(Serialize, Deserialize)]
pub struct Engagement {
    /// Its number.
    pub id: NodeId,
    /// Its identity from now on.
    pub uuid: String,
    /// The cluster, without what comes with the log: buckets, users and all that.
    pub cluster: Cluster,
}

/// A node that is asked, and by whom.
pub struct Login {
    /// `host:port` of its management.
    pub address: String,
    /// User there.
    pub user: String,
    /// Password.
    pub password: String,
}

impl Login {
    /// Sends a request; gives status and body.
    fn call(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        kind: &str,
        patience: Duration,
    ) -> Result<(u16, Vec<u8>), String> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(patience))
            .build()
            .into();
        let login = STANDARD.encode(format!("{}:{}", self.user, self.password));
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("authorization", format!("Basic {login}"))
            .header("content-type", kind)
            .body(body)
            .map_err(|error| error.to_string())?;
        let mut answer = agent.run(request).map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        Ok((answer.status().as_u16(), body))
    }
}

/// Host and port of a node as operators write them: `host`, `host:port`, or either behind `http://`.
///
/// # Errors
/// What is wrong with it, for people.
pub fn address(text: &str, port_default: u16) -> Result<(String, u16), String> {
    let bare = text.trim().trim_end_matches('/');
    if bare.starts_with("https://") {
        return Err("Nodes are added by their port without TLS: leave out https://".into());
    }
    let bare = bare.strip_prefix("http://").unwrap_or(bare);
    let (host, port) = match bare.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| format!("{port:?} is no port"))?),
        None => (bare, port_default),
    };
    check_host(host)?;
    Ok((host.to_owned(), port))
}

/// Whether other nodes and clients can reach a node by that name.
///
/// # Errors
/// What is wrong with it, for people.
pub fn check_host(host: &str) -> Result<(), String> {
    let fits = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    if ANYWHERE.contains(&host) || host.len() > 253 || !host.chars().all(fits) {
        return Err(format!("Hostname {host:?} is not valid: a name or an IPv4 address is wanted"));
    }
    Ok(())
}

/// The name of a node in REST requests.
pub fn otp_node(endpoints: &Endpoints) -> String {
    format!("ns_1@{}", endpoints.management())
}

/// What this node says when it is to join another cluster.
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
        unix_seconds: node.now().unix_s().into(),
    }
}

/// What a newcomer is to be.
#[derive(Debug)]
pub struct Seat {
    /// What it does for clients.
    pub services: BTreeSet<Service>,
    /// The name of its group.
    pub group: String,
}

/// Adds the node at `to` to the cluster of this one; gives its name. Takes seconds, and is bounded.
///
/// # Errors
/// Why not, for people.
pub fn add(consensus: &Arc<Consensus>, to: &Login, seat: Seat) -> Result<String, String> {
    let Some(_entering) = consensus.entering.try_lock() else {
        return Err("Another node is just being added.".into());
    };
    let node = consensus.node();
    let (host, port) = address(&to.address, PORT_DEFAULT)?;
    let local = reach(&host, port)?;
    let to = Login { address: format!("{host}:{port}"), ..Login::clone_of(to) };
    let newcomer = ask(&to)?;
    let cluster = node.cluster();
    check(&cluster, node.now().unix_s().into(), &newcomer)?;
    let endpoints = Endpoints { host: Some(host), ..newcomer.endpoints };
    if cluster.nodes.values().any(|known| known.endpoints.management() == endpoints.management()) {
        return Err("Prepare join failed. Node is already part of cluster.".into());
    }
    name_this(node, &local)?;
    let member = Member {
        uuid: node.new_uuid(),
        endpoints,
        group: seat.group,
        services: seat.services,
        membership: Membership::Added,
    };
    let (id, cluster) = put(node, &member)?;
    let engaged = engage(&to, id, &member, &cluster)
        .and_then(|()| consensus.change_voters(Voters::Add(id, Place::of(&member))))
        .and_then(|index| wait_until_applied(&to.address, &cluster, index));
    if let Err(reason) = engaged {
        // It is nobody until it votes.
        let removed = consensus.change_voters(Voters::Remove(id));
        if removed.is_ok() {
            let _ = node.change(&Change::DropNode { id });
        }
        return Err(format!("Join completion call failed. {reason}"));
    }
    // It has just answered: who looks now sees it healthy.
    node.hear(id, b"");
    tracing::info!("{id} has joined: {}", member.endpoints.management());
    Ok(otp_node(&member.endpoints))
}

impl Login {
    fn clone_of(other: &Login) -> Login {
        let Login { address, user, password } = other;
        Login { address: address.clone(), user: user.clone(), password: password.clone() }
    }
}

/// Connects and says by which address of this machine.
fn reach(host: &str, port: u16) -> Result<String, String> {
    let failed = || {
        format!(
            "Prepare join failed. Could not connect to \"{host}\" on port {port}.  This could be due to an incorrect host/port combination or a firewall in place between the servers."
        )
    };
    let addresses = (host, port).to_socket_addrs().map_err(|_| {
        format!("Prepare join failed. Failed to resolve address for {host:?}.  The hostname may be incorrect or not resolvable.")
    })?;
    for address in addresses {
        if let Ok(stream) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            return stream.local_addr().map(|local| local.ip().to_string()).map_err(|_| failed());
        }
    }
    Err(failed())
}

/// Asks a node who it is.
fn ask(to: &Login) -> Result<Candidate, String> {
    let (status, body) = to
        .call("GET", ENGAGE, b"", "application/json", TIMEOUT)
        .map_err(|error| format!("Prepare join failed. {error}"))?;
    match status {
        200 => {}
        401 => {
            return Err(
                "Prepare join failed. Authentication failed. Verify username and password.".into(),
            );
        }
        403 => return Err("Prepare join failed. The user may not administer that node.".into()),
        _ => return Err("Prepare join failed. Incompatible version: that node cannot join.".into()),
    }
    serde_json::from_slice(&body)
        .map_err(|_| "Prepare join failed. Incompatible version: that node cannot join.".into())
}

/// Whether a node may join `cluster` now.
fn check(cluster: &Cluster, unix_seconds: u64, newcomer: &Candidate) -> Result<(), String> {
    let ahead_s = newcomer.unix_seconds.cast_signed() - unix_seconds.cast_signed();
    let problem = if newcomer.cluster == cluster.uuid {
        "Joining node to itself is not allowed."
    } else if newcomer.version != VERSION {
        "Incompatible version: that node cannot join."
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

/// A node that is alone needs no name; one that others know does.
fn name_this(node: &Arc<Node>, local: &str) -> Result<(), String> {
    let endpoints = node.endpoints();
    if endpoints.host.is_some() {
        return Ok(());
    }
    let endpoints = Endpoints { host: Some(local.to_owned()), ..endpoints };
    let change = Change::MoveNode { id: node.id(), endpoints };
    node.change(&change).map(drop).map_err(|error| error.to_string())
}

/// Gives a new member the next number.
fn put(node: &Arc<Node>, member: &Member) -> Result<(NodeId, Arc<Cluster>), String> {
    loop {
        let id = node.cluster().next_node();
        match node.change(&Change::PutNode { id, member: member.clone() }) {
            Ok(cluster) => return Ok((id, cluster)),
            // Another node was faster; this one has applied that by now.
            Err(Error::Refused(Refusal::NodeNumberTaken { .. })) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Gives a newcomer its new cluster.
fn engage(to: &Login, id: NodeId, member: &Member, cluster: &Cluster) -> Result<(), String> {
    let mut given = Cluster::new(cluster.uuid.clone());
    given.name = cluster.name.clone();
    given.rev = cluster.rev;
    given.secret = cluster.secret.clone();
    given.nodes = cluster.nodes.clone();
    given.groups = cluster.groups.clone();
    given.last_gone = cluster.last_gone;
    let engagement = Engagement { id, uuid: member.uuid.clone(), cluster: given };
    let body = serde_json::to_vec(&engagement).map_err(|error| error.to_string())?;
    match to.call("POST", ENGAGE, &body, "application/json", TIMEOUT)? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body))),
    }
}

/// Waits until a newcomer has the state: then the cluster's users can log in there.
fn wait_until_applied(address: &str, cluster: &Cluster, index: u64) -> Result<(), String> {
    let to = internal_login(address.to_owned(), cluster);
    let begun = Instant::now();
    loop {
        if ask(&to).is_ok_and(|newcomer| newcomer.applied >= index) {
            return Ok(());
        }
        if begun.elapsed() > TIMEOUT {
            return Err("The node did not take the state of the cluster in time.".into());
        }
        std::thread::sleep(SETTLED_PAUSE);
    }
}

/// A node of the same cluster, asked by this one.
fn internal_login(address: String, cluster: &Cluster) -> Login {
    Login { address, user: INTERNAL.into(), password: cluster.secret.reveal().to_owned() }
}

/// The bytes of a package, from the first node that has them.
///
/// # Errors
/// That none has them, or cannot be asked.
pub fn fetch_package(directory: &Directory, digest: &str) -> Result<Vec<u8>, String> {
    let cluster = directory.node().cluster();
    for place in directory.others().into_iter().filter_map(|id| directory.place(id)) {
        let other = internal_login(place.management, &cluster);
        let path = format!("{PACKAGES}{digest}");
        match other.call("GET", &path, b"", "application/octet-stream", TIMEOUT) {
            Ok((200, archive)) => return Ok(archive),
            Ok((status, _)) => {
                tracing::debug!("{} has no package {digest}: {status}", other.address)
            }
            Err(error) => tracing::warn!("{} gives no package: {error}", other.address),
        }
    }
    Err(format!("no node that answers has the package {digest}: upload it again"))
}

/// Takes what [`add`] gives on another node: from now on this node is in that cluster.
///
/// # Errors
/// Why not, for people.
pub fn engaged(consensus: &Arc<Consensus>, body: &[u8]) -> Result<(), String> {
    let Some(_entering) = consensus.entering.try_lock() else {
        return Err("This node is just adding another one.".into());
    };
    let given: Engagement =
        serde_json::from_slice(body).map_err(|error| format!("it cannot be read: {error}"))?;
    let Engagement { id, uuid, cluster } = given;
    let own = candidate(consensus);
    check(&cluster, own.unix_seconds, &own)?;
    let member = cluster.nodes.get(&id).ok_or("the cluster does not have this node")?;
    if member.uuid != uuid || cluster.secret.is_empty() || !cluster.buckets.is_empty() {
        return Err("the cluster is not complete".into());
    }
    tracing::info!("joining the cluster {} as {id}", cluster.uuid);
    consensus.enter(id, uuid, cluster)
}

/// Has a member of another cluster add this node, with `services` as the request names them; gives that member's answer.
///
/// # Errors
/// Why it could not be asked, for people.
pub fn join(
    consensus: &Arc<Consensus>,
    member: &Login,
    own: &Login,
    services: &str,
) -> Result<(u16, Vec<u8>), String> {
    let (host, port) = address(&member.address, PORT_DEFAULT)?;
    let local = reach(&host, port)?;
    let endpoints = consensus.node().endpoints();
    let name = endpoints.host.clone().unwrap_or(local);
    let field = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let form = format!(
        "hostname={}&user={}&password={}&services={}",
        field(&format!("{name}:{}", endpoints.plain.mgmt)),
        field(&own.user),
        field(&own.password),
        field(services),
    );
    let member = Login { address: format!("{host}:{port}"), ..Login::clone_of(member) };
    let kind = "application/x-www-form-urlencoded";
    member
        .call("POST", "/controller/addNode", form.as_bytes(), kind, ADD_TIMEOUT)
        .map_err(|error| format!("Prepare join failed. {error}"))
}

/// Removes the node with that name from the cluster. One that serves has to be failed over first.
///
/// # Errors
/// Why not, for people.
pub fn eject(consensus: &Arc<Consensus>, otp: &str) -> Result<(), String> {
    let node = consensus.node();
    let cluster = node.cluster();
    let found = cluster.nodes.iter().find(|(_, known)| otp_node(&known.endpoints) == otp);
    let (id, member) = found.ok_or("Server does not exist.")?;
    if cluster.nodes.len() == 1 {
        return Err("Can't remove the last node.".into());
    }
    let holds_data = member.membership == Membership::Active
        || cluster
            .buckets
            .values()
            .flat_map(|bucket| &bucket.chains)
            .any(|chain| chain.involves(*id));
    if holds_data && !cluster.buckets.is_empty() {
        return Err("Cannot remove active server.".into());
    }
    let told = internal_login(member.endpoints.management(), &cluster);
    consensus.change_voters(Voters::Remove(*id))?;
    if *id == node.id() {
        // The others must know before this one forgets them.
        return leave_by_others(*id, &cluster);
    }
    node.change(&Change::DropNode { id: *id }).map_err(|error| error.to_string())?;
    tracing::info!("{id} was removed: {}", told.address);
    // One that is gone is not told; it is refused when it comes back.
    if let Err(error) = told.call("POST", LEAVE, b"", "application/json", TIMEOUT) {
        tracing::warn!("{id} does not know that it was removed: {error}");
    }
    Ok(())
}

/// Has another member drop this node, which agrees with nobody any more.
fn leave_by_others(id: NodeId, cluster: &Cluster) -> Result<(), String> {
    let otp = otp_node(&cluster.nodes[&id].endpoints);
    let form = format!(
        "otpNode={}",
        percent_encoding::utf8_percent_encode(&otp, percent_encoding::NON_ALPHANUMERIC)
    );
    let mut problem = "no other node answers".to_owned();
    for (_, member) in cluster.nodes.iter().filter(|(other, _)| **other != id) {
        let other = internal_login(member.endpoints.management(), cluster);
        let kind = "application/x-www-form-urlencoded";
        match other.call("POST", "/controller/ejectNode", form.as_bytes(), kind, ADD_TIMEOUT) {
            Ok((200, _)) => return Ok(()),
            Ok((_, body)) => problem = String::from_utf8_lossy(&body).into_owned(),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Goes on with the nodes that are left, though they are not most of them, and has them take over from `lost`. What only
/// those had is lost.
///
/// # Errors
/// Why not, for people; nothing has changed then, unless a node does not answer any more that just did.
pub fn regroup(consensus: &Arc<Consensus>, lost: &BTreeSet<NodeId>) -> Result<(), String> {
    let Some(_entering) = consensus.entering.try_lock() else {
        return Err("Another node is just being added.".into());
    };
    let (node, before) = (consensus.node(), consensus.node().cluster());
    if lost.contains(&node.id()) {
        return Err("This node is to be failed over: ask one that is left.".into());
    }
    let is_left = |id: &&NodeId| !lost.contains(*id) && **id != node.id();
    let left: Vec<(NodeId, Login)> = before
        .nodes
        .keys()
        .filter(is_left)
        .filter_map(|id| Some((*id, consensus.directory().place(*id)?.management)))
        .map(|(id, address)| (id, internal_login(address, &before)))
        .collect();
    let own = candidate(consensus);
    for (_, other) in &left {
        let address = &other.address;
        let known = ask(other).map_err(|reason| {
            format!("{address} does not answer: fail it over too, or bring it back. {reason}")
        })?;
        if known.applied > own.applied {
            return Err(format!("{address} knows of later decisions than this node: ask it"));
        }
    }
    let secret = node.new_secret();
    tracing::warn!("going on without {lost:?}: what only they had is lost");
    consensus.regroup(secret.clone(), true)?;
    let told = serde_json::to_vec(&secret).map_err(|error| error.to_string())?;
    for (id, other) in &left {
        match other.call("POST", REGROUP, &told, "application/json", TIMEOUT)? {
            (200, _) => {}
            (status, body) => {
                let reason = String::from_utf8_lossy(&body);
                return Err(format!("{} does not go on: {status}: {reason}", other.address));
            }
        }
        let member = before.nodes.get(id).ok_or("it was there before")?;
        consensus.change_voters(Voters::Add(*id, Place::of(member)))?;
    }
    let nodes = lost.iter().copied().collect();
    node.change(&Change::FailOver { nodes }).map(drop).map_err(|error| error.to_string())
}

/// Takes what [`regroup`] tells on another node.
///
/// # Errors
/// Why not, for people.
pub fn regrouped(consensus: &Arc<Consensus>, body: &[u8]) -> Result<(), String> {
    let _entering = consensus.entering.lock();
    let secret =
        serde_json::from_slice(body).map_err(|error| format!("it is no secret: {error}"))?;
    tracing::warn!("going on without most of the other nodes, as one of those that are left says");
    consensus.regroup(secret, false)
}

/// Leaves the cluster: this node begins one of its own, without buckets and users.
///
/// # Errors
/// What the disk reports.
pub fn leave(consensus: &Arc<Consensus>) -> Result<(), String> {
    let _entering = consensus.entering.lock();
    let (id, uuid, cluster) = consensus.node().new_cluster();
    tracing::info!("left the cluster {}", consensus.node().cluster().uuid);
    consensus.enter(id, uuid, cluster)
}
