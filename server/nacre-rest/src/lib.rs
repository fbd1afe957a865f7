//! The REST interface of a node: cluster management on one port, and views and functions on a port each. Paths, parameters and texts
//! are Couchbase's where clients read them.
//!
//! [`serve()`] answers the requests that arrive at a [`Port`]; a [`Front`] holds the state that all ports share. The requests at the
//! port of a registered service ([`Service::Registered`]) are answered by the routes of the node's services.
//!
//! *Invariants:* a handler runs only after the check of the privilege that its row names. This crate opens no socket: the caller of
//! `serve` brings the listener.

mod absent;
mod alternate;
mod answer;
mod api;
mod audit_settings;
mod audited;
pub mod bucket_form;
mod bucket_stats;
mod buckets;
mod certificates;
mod changes;
mod cluster;
mod collections;
mod compaction_settings;
mod console;
mod documents;
mod events;
mod fixed;
mod groups;
mod health;
mod indexes;
mod libraries;
mod listeners;
mod login;
mod manifest;
mod metrics;
mod nodes;
mod origin;
mod outgoing;
mod permissions;
mod plugins;
mod pool;
mod preview;
mod profile;
mod query;
mod random_key;
mod rebalance;
mod refusal;
mod registered;
pub mod routes;
mod security_settings;
mod settings;
mod setup;
mod stats_range;
mod sync;
mod user_backup;
mod users;
mod views;

use answer::{Desk, Reader};
use api::cors::Allowed;
use audited::Audited;
use console::Renewal;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderValue, PROXY_AUTHORIZATION, SERVER};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nacre_auth::{BrowserSession, INTERNAL, Keyspace, Login, Privilege, User, Users, person};
use nacre_cluster::{Change, Cluster, Endpoints, Fingerprint, Ports};
use nacre_http::body::{Reply, error_reply, no_node, unauthorized, wrong_login};
use nacre_http::dates::date;
use nacre_http::linger::Lingering;
use nacre_http::patient::Patient;
use nacre_http::request_target::Lenient;
use nacre_http::streams::{STALLED_MAX, Streams};
use nacre_http::{
    HEADER_BYTES_MAX, Table, blocking_yield, body, dates, memory, pieces, problem, streams,
};
use nacre_links::STACK_BYTES;
use nacre_links::cluster::request::INTRODUCTION;
use nacre_links::cluster::{Consensus, link};
use nacre_links::kv::web::WebSessions;
use nacre_links::records::Records;
use nacre_links::strangers::{Connections, Permit};
use nacre_links::tls::{Purpose, Shown, Tls};
use nacre_node::Node;
use nacre_node::service::PortSpec;
use nacre_sandbox::USER_HEADER;
use nacre_sandbox::{Account, Permit as MemoryPermit};
pub use origin::Hosts;
use refusal::in_background;
use routes::Handler;
pub use setup::Claim;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

/// Timeout of reading a request's headers, and of an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Header by which a request to a plugin asks for a state at least as new as the request (`request_plus`).
const CONSISTENCY: &str = "nacre-consistency";

/// Requests that a node sends, as an administrator, to another node that does not know its key yet.
const JOINING: [&str; 2] = ["/controller/engage", "/controller/addNode"];

/// The kind of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Cluster management, 8091.
    Management,
    /// Views, 8092.
    Views,
    /// Queries, 8093.
    Query,
    /// Functions, 8096.
    Eventing,
    /// The port with that ID of a registered service, which lists its routes in a table.
    Registered(&'static str),
}

impl Service {
    /// Returns the kind of a port in the service table.
    pub fn at(port: &PortSpec) -> Service {
        match port.id {
            Ports::MGMT => Service::Management,
            "views" => Service::Views,
            "query" => Service::Query,
            "eventing" => Service::Eventing,
            id => Service::Registered(id),
        }
    }
}

/// A port that accepts connections.
pub struct Port {
    /// The listener.
    pub listener: TcpListener,
    /// The kind of the port.
    pub service: Service,
    /// True if its connections are encrypted.
    pub encrypted: bool,
}

/// A parsed request of a user who has logged in.
pub struct Call {
    front: Arc<Front>,
    /// The port at which the request arrived.
    service: Service,
    /// The port whose routes answer the request.
    target: Service,
    /// Address of the client or proxy.
    pub from: IpAddr,
    /// The node.
    pub node: Arc<Node>,
    /// The consensus of the nodes.
    pub consensus: Arc<Consensus>,
    /// Certificates and keys of the node.
    pub tls: Arc<Tls>,
    /// The setup of a node without an administrator.
    pub claim: Arc<Claim>,
    /// Audit log and collections of logs.
    pub records: Arc<Records>,
    /// Name of the user, or the name under which a token of the user acts. Empty during the setup of a node without an administrator.
    pub user: String,
    /// The login. `None` during the setup of a node without an administrator.
    pub identity: Option<Login>,
    /// The browser session, if the user logged in with one.
    pub session: Option<BrowserSession>,
    /// Fingerprint of the peer's key, if it is a node.
    pub key: Option<Fingerprint>,
    /// Name and password, if the user logged in with them.
    pub login: Option<(String, String)>,
    /// Method of the request.
    pub method: Method,
    /// Path segments, percent-decoded.
    pub path: Vec<String>,
    /// Segments that matched the parameters of the route.
    segments: Vec<(&'static str, String)>,
    /// Segments that matched the rest of the route.
    pub rest: Vec<String>,
    /// Query string without `?`.
    pub query: String,
    /// Headers that a plugin may see, without credentials. Names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// Account that is charged for the memory of the body and the answer.
    pub account: Arc<Account>,
    /// Holds the memory of the body.
    _permit: MemoryPermit,
    /// True if the answer must reflect all earlier agreed changes.
    pub consistent: bool,
    /// The connection after the answer, if the client asks for another protocol.
    upgrade: Option<OnUpgrade>,
}

impl Call {
    /// Refuses users who lack `privilege` on `bucket` (on the cluster if `bucket` is `None`).
    pub fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), Reply> {
        if self.user.is_empty() && self.claim.is_open() {
            return Ok(());
        }
        let keyspace = Keyspace { bucket, ..Keyspace::default() };
        if self.holder(&self.node.users()).is_some_and(|user| user.may(privilege, keyspace)) {
            return Ok(());
        }
        Err(login::forbidden(privilege))
    }

    /// Returns the user of the request, as long as the login is valid.
    pub fn holder<'u>(&self, users: &'u Users) -> Option<&'u User> {
        users.holder(self.identity.as_ref()?)
    }

    /// Returns the name of the user, even if the user acts through a token.
    pub fn person(&self) -> &str {
        person(&self.user)
    }

    /// Returns the desk for a long answer.
    fn desk(&self) -> Desk {
        let threads = match self.service {
            Service::Query => Handle::current(),
            _ => self.front.threads.answers.clone(),
        };
        let streams = Arc::clone(&self.front.streams);
        Desk {
            threads,
            streams,
            // Tokens of a user share the user's limits.
            user: self.person().to_owned(),
            address: self.from,
            account: Arc::clone(&self.account),
            reader: Reader {
                node: Arc::clone(&self.node),
                login: self.identity.clone(),
                right: None,
            },
        }
    }

    /// Refuses users who have no role in `place` and may not read the cluster. If `place` is the whole cluster, refuses
    /// users without any role.
    pub fn require_sight(&self, place: Keyspace<'_>) -> Result<(), Reply> {
        if self.sees(place) { Ok(()) } else { self.require(Privilege::ReadCluster, None) }
    }

    /// Returns true if the user of the request may see `place`.
    pub fn sees(&self, place: Keyspace<'_>) -> bool {
        self.holder(&self.node.users()).is_some_and(|user| user.may_see(place))
    }

    /// Changes the agreed state. Returns the state after the change.
    pub async fn change(&self, change: Change) -> Result<Arc<Cluster>, Reply> {
        let node = Arc::clone(&self.node);
        in_background(move || node.change(&change)).await
    }

    /// Returns the host, perhaps with a port, by which the client has reached this node.
    pub fn host(&self) -> &str {
        let host = self.headers.iter().find(|(name, _)| name == "host");
        host.map_or("127.0.0.1", |(_, host)| host)
    }

    /// Returns the address of a node's port for the client. A node that is alone may have no name; it then has the host
    /// by which the client reached it.
    pub fn authority(&self, endpoints: &Endpoints, port: u16) -> String {
        self.named(&endpoints.authority(port))
    }

    /// Completes an address of a map with the host by which the client reached this node, if the map leaves the host to
    /// clients.
    pub fn named(&self, address: &str) -> String {
        let reached: Option<Authority> = self.host().parse().ok();
        let host = reached.as_ref().map_or("127.0.0.1", |authority| authority.host());
        address.replace("$HOST", host)
    }

    /// Returns the segment that matched a parameter of the route.
    ///
    /// # Panics
    /// If the route has no such parameter.
    pub fn segment(&self, parameter: &str) -> &str {
        let found = self.segments.iter().find(|(name, _)| *name == parameter);
        found.map(|(_, text)| text.as_str()).expect("a parameter of the route")
    }

    /// Returns a field of the query string.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let fields = body::form(self.query.as_bytes());
        fields.into_iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// Returns the fields of a form: those of the body, or of the query string if the body is empty.
    pub fn form(&self) -> Vec<(String, String)> {
        let text = if self.body.is_empty() { self.query.as_bytes() } else { &self.body };
        body::form(text)
    }
}

/// Threads other than those of management.
pub struct Threads {
    /// For connections to the query port: see [`blocking_yield::threads`].
    pub queries: Handle,
    /// For answers of views and plugins, all of which may wait: see [`answering_threads`].
    pub answers: Handle,
    /// For the sessions of sync devices.
    pub web: WebSessions,
}

/// Starts the threads that run views and plugins, or wait for them.
///
/// # Errors
/// If the threads cannot be started.
pub fn answering_threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("answer")
        // Plugins then use the stack of the thread, instead of a new stack for each call.
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
}

/// State that all HTTP ports share.
pub struct Front {
    consensus: Arc<Consensus>,
    tls: Arc<Tls>,
    claim: Arc<Claim>,
    records: Arc<Records>,
    hosts: Hosts,
    functions: Table<Handler>,
    threads: Threads,
    streams: Arc<Streams>,
    connections: Arc<Connections>,
}

impl Front {
    /// Creates the front of `consensus` and its node. Browsers may reach the node by `hosts`; `functions` answers on the
    /// port for functions; `connections` limits the connections to all ports of the node.
    pub fn new(
        consensus: &Arc<Consensus>,
        tls: &Arc<Tls>,
        claim: &Arc<Claim>,
        records: Records,
        hosts: Hosts,
        functions: Table<Handler>,
        threads: Threads,
        connections: &Arc<Connections>,
    ) -> Arc<Front> {
        Arc::new(Front {
            consensus: Arc::clone(consensus),
            tls: Arc::clone(tls),
            claim: Arc::clone(claim),
            records: Arc::new(records),
            hosts,
            functions,
            threads,
            streams: Arc::default(),
            connections: Arc::clone(connections),
        })
    }
}

/// State that all connections of a port share.
struct Door {
    node: Arc<Node>,
    consensus: Arc<Consensus>,
    tls: Arc<Tls>,
    claim: Arc<Claim>,
    front: Arc<Front>,
    service: Service,
    encrypted: bool,
}

/// Serves `port` on the current runtime until it ends. Connections to the query port run on the runtime of
/// [`blocking_yield::threads`].
///
/// # Errors
/// If the listener cannot be used.
pub fn serve(front: &Arc<Front>, port: Port) -> std::io::Result<()> {
    let Port { listener, service, encrypted } = port;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let door = Arc::new(Door {
        node: Arc::clone(front.consensus.node()),
        consensus: Arc::clone(&front.consensus),
        tls: Arc::clone(&front.tls),
        claim: Arc::clone(&front.claim),
        front: Arc::clone(front),
        service,
        encrypted,
    });
    let (queries, connections) = (front.threads.queries.clone(), Arc::clone(&front.connections));
    // A query connection occupies a second descriptor, by which the answering thread detects that the client has
    // disconnected.
    let descriptors = if service == Service::Query { 2 } else { 1 };
    tokio::spawn(async move {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                // The process has probably run out of file descriptors: other connections must close before the node
                // can accept a new one.
                tokio::time::sleep(nacre_links::ACCEPT_PAUSE).await;
                continue;
            };
            let Some(permit) = connections.enter(from.ip(), descriptors) else { continue };
            // Otherwise each piece of an answer would wait for the client's acknowledgement, which clients delay by 40
            // ms.
            let _ = stream.set_nodelay(true);
            let door = Arc::clone(&door);
            let serve = move |stream| welcome(door, stream, from, permit);
            if service != Service::Query {
                tokio::spawn(serve(stream));
                continue;
            }
            if let Ok(stream) = stream.into_std() {
                blocking_yield::serve(&queries, stream, serve);
            }
        }
    });
    Ok(())
}

/// The other end of a connection.
#[derive(Clone)]
struct Peer {
    from: SocketAddr,
    /// The identity that the peer has proved, if any.
    shown: Shown,
    permit: Arc<Permit>,
}

/// Serves an accepted connection.
async fn welcome(door: Arc<Door>, stream: TcpStream, from: SocketAddr, permit: Permit) {
    let permit = Arc::new(permit);
    if !door.encrypted {
        let peer = Peer { from, shown: Shown::default(), permit };
        return converse(door, stream, peer).await;
    }
    let purpose = (door.service == Service::Management).then_some(Purpose::Management);
    let accepted = tokio::select! {
        accepted = door.tls.accept(stream, purpose) => accepted,
        () = permit.closed() => return,
    };
    match accepted {
        Ok((stream, shown)) => converse(door, stream, Peer { from, shown, permit }).await,
        Err(reason) => tracing::warn!("closed the connection of {from}: {reason}"),
    }
}

/// Answers the requests of a connection until either side closes it.
async fn converse(
    door: Arc<Door>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
) {
    let handler = service_fn(|request| answer(Arc::clone(&door), peer.clone(), request));
    let stream = Lingering::new(Patient::new(stream, STALLED_MAX));
    let stream = TokioIo::new(Lenient::new(stream));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(stream, handler)
        .with_upgrades();
    tokio::select! {
        // A connection that breaks is no error of this node.
        _ = connection => {}
        () = peer.permit.closed() => {}
    }
}

async fn answer(
    door: Arc<Door>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let mut reply = if door.service == Service::Management && request.uri().path() == link::PATH {
        link::accept(&door.consensus, &peer.shown, request).await
    } else {
        answer_anybody(&door, &peer, request).await
    };
    if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
        peer.permit.admit();
    } else {
        reply.headers_mut().insert(SERVER, HeaderValue::from_static("nacre"));
        origin::protect(&mut reply);
        let security = &door.node.cluster().settings.security;
        security_settings::apply(security, door.encrypted, reply.headers_mut());
    }
    blocking_yield::yield_to_others().await;
    Ok(reply)
}

/// Answers a request, in the format that its sender expects.
async fn answer_anybody(door: &Door, peer: &Peer, request: Request<Incoming>) -> Reply {
    let (mut head, body) = request.into_parts();
    let is_of_console = console::is_of_console(&head.headers);
    let is_of_api = door.service == Service::Management && api::is_api(head.uri.path());
    let allowed = Allowed::of(&head, door.service, &door.node.cluster().settings);
    if let Some(allowed) = &allowed {
        head.extensions.insert(allowed.clone());
    }
    let reply = answer_client(door, peer, head, body).await;
    let mut reply = reply.unwrap_or_else(|reply| reply);
    if is_of_api {
        reply = problem::shape(reply).await;
    }
    if let Some(allowed) = allowed {
        allowed.apply(&mut reply);
    }
    if is_of_console {
        console::hides_challenge(&mut reply);
    }
    reply
}

async fn answer_client(
    door: &Door,
    peer: &Peer,
    head: Parts,
    body: Incoming,
) -> Result<Reply, Reply> {
    origin::check(&head, door.service, &door.front.hosts, || door.node.cluster())?;
    if let Some(reply) = public(door, &peer.shown, &head) {
        return Ok(reply);
    }
    let body = match console::at_login(door, peer.from, &head, body).await {
        Ok(reply) => return Ok(reply),
        Err(body) => body,
    };
    let named = head.headers.get(AUTHORIZATION).and_then(|value| login::named(value.as_bytes()));
    let session = session(door, &peer.shown, &head);
    let renewal = session.as_ref();
    let renewal =
        renewal.and_then(|session| Renewal::of(&door.node, session, &head, door.encrypted));
    let call = admit(door, peer, head, body, session).await;
    let call =
        call.inspect_err(|reply| audited::refused(door, named, peer.from, reply.status()))?;
    let audited = Audited::of(&call);
    let mut reply = route(call).await;
    audited.write(door, peer.from, reply.status());
    if let Some(renewal) = renewal {
        renewal.apply(&mut reply);
    }
    Ok(reply)
}

/// Returns the browser session of a request that does not name its user in another way.
fn session(door: &Door, shown: &Shown, head: &Parts) -> Option<BrowserSession> {
    // A page of another site sends its login itself, and has no session.
    let is_cross_origin = head.extensions.get::<Allowed>().is_some();
    let names_user =
        head.headers.contains_key(AUTHORIZATION) || shown.user.is_some() || is_cross_origin;
    let counts = door.service == Service::Management && !names_user && shown.key.is_none();
    counts.then(|| console::session_of(&door.node, head)).flatten()
}

/// Answers requests that need no login.
fn public(door: &Door, shown: &Shown, head: &Parts) -> Option<Reply> {
    if door.service != Service::Management {
        return None;
    }
    let cluster = door.node.cluster();
    if let Some(reply) = console::file(head, &cluster.settings.security, door.encrypted) {
        return Some(reply);
    }
    if head.method != Method::GET {
        return None;
    }
    let has_session = || console::session_of(&door.node, head).is_some();
    match head.uri.path() {
        INTRODUCTION => Some(nodes::introduce(&door.node)),
        health::HEALTH => Some(health::health()),
        health::READY => Some(health::ready(&door.node)),
        // Scripts poll this path before they know a user.
        "/pools"
            if shown.user.is_none()
                && !head.headers.contains_key(AUTHORIZATION)
                && !has_session() =>
        {
            Some(cluster::for_strangers(door.claim.is_open()))
        }
        _ => certificates::public(&door.tls, head),
    }
}

/// Reads a request and authenticates its user.
async fn admit(
    door: &Door,
    peer: &Peer,
    head: Parts,
    incoming: Incoming,
    session: Option<BrowserSession>,
) -> Result<Call, Reply> {
    let Peer { from, shown, permit } = peer;
    let mut head = head;
    let upgrade = head.extensions.remove::<OnUpgrade>();
    let credentials =
        head.headers.get(AUTHORIZATION).and_then(|value| body::basic(value.as_bytes()));
    let sets_up = || {
        door.service == Service::Management
            && door.claim.is_open()
            && setup::is_part(&head.method, head.uri.path())
    };
    let token = head.headers.get(AUTHORIZATION).and_then(|value| body::bearer(value.as_bytes()));
    let identity = match &credentials {
        None if token.is_some() => Some(login::by_token(&door.node, shown, token)?),
        Some((name, _)) if !may_ask(door, shown, name, head.uri.path()) => return Err(no_node()),
        // Scripts already send the administrator whom they are about to create.
        Some(_) if sets_up() && door.node.users().iter().next().is_none() => None,
        Some((name, password)) => {
            let login = login::by_password(&door.node, from.ip(), name, password).await?;
            Some(login.ok_or_else(|| wrong_login_at(door.service))?)
        }
        None => {
            let named = shown.user.as_deref();
            let of_session = || session.as_ref().map(|session| session.login.clone());
            let named = named.and_then(|name| door.node.users().login_without_password(name));
            named.or_else(of_session)
        }
    };
    match identity {
        Some(_) => permit.admit(),
        None if sets_up() => door.claim.check(&head, from.ip(), credentials.as_ref())?,
        None => return Err(unauthorized_at(door.service)),
    }
    let path = body::segments(head.uri.path()).ok_or_else(|| {
        error_reply(StatusCode::BAD_REQUEST, "bad_request", "the path is not UTF-8")
    })?;
    let found = console::target(door.service, path, door.node.service_table());
    let (target, path) = found.ok_or_else(body::not_found)?;
    origin::check_type(&head, target, &path)?;
    let user = identity.as_ref().map(|login| login.user.clone()).unwrap_or_default();
    let account = door.node.memory().budgets().of_user(person(&user));
    let bytes_max = routes::body_bytes_max(table_of(&door.front, target), &head.method, &path);
    let (body, _permit) = memory::read_body(incoming, &account, bytes_max).await?;
    let query = head.uri.query().unwrap_or_default().to_owned();
    let consistent = match head.headers.get(CONSISTENCY) {
        None => false,
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"request_plus") => true,
        Some(value) => {
            let reason = format!("the header {CONSISTENCY} may be request_plus, not {value:?}");
            return Err(error_reply(StatusCode::BAD_REQUEST, "bad_request", &reason));
        }
    };
    Ok(Call {
        front: Arc::clone(&door.front),
        service: door.service,
        target,
        from: from.ip(),
        node: Arc::clone(&door.node),
        consensus: Arc::clone(&door.consensus),
        tls: Arc::clone(&door.tls),
        claim: Arc::clone(&door.claim),
        records: Arc::clone(&door.front.records),
        user,
        identity,
        session,
        key: shown.key,
        login: credentials,
        method: head.method,
        path,
        segments: Vec::new(),
        rest: Vec::new(),
        query,
        headers: visible(&head.headers),
        body,
        account,
        _permit,
        consistent,
        upgrade,
    })
}

/// Returns the answer to clients that have not logged in, in the format of the service's clients.
fn unauthorized_at(service: Service) -> Reply {
    if service == Service::Query { query::unauthorized() } else { unauthorized() }
}

/// Returns the answer to clients whose login is wrong, in the format of the service's clients.
fn wrong_login_at(service: Service) -> Reply {
    if service == Service::Query { query::unauthorized() } else { wrong_login() }
}

/// Returns true if a user of that name may use this connection. Connections between nodes are for the nodes' user only,
/// and client connections for other users only, except while a node joins.
fn may_ask(door: &Door, shown: &Shown, name: &str, path: &str) -> bool {
    match shown.key {
        Some(key) if name == INTERNAL => door.consensus.directory().knows(&key),
        Some(_) => JOINING.contains(&path),
        None => name != INTERNAL,
    }
}

/// Returns the headers that a plugin may see, without credentials and without the headers between nodes.
fn visible(headers: &HeaderMap) -> Vec<(String, String)> {
    let secret = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];
    let is_ours = |name: &str| plugins::OF_NODES.contains(&name) || name == USER_HEADER;
    let seen = headers.iter();
    let seen = seen.filter(|(name, _)| !secret.contains(name) && !is_ours(name.as_str()));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    seen.map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// Returns true if a request reads or changes the agreed state. SDKs send each request to any node, and expect it to
/// know the decisions of the other nodes. The node therefore catches up first. Requests that discover the nodes never
/// wait.
fn concerns_agreed(service: Service, path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match service {
        Service::Eventing => true,
        Service::Management => {
            matches!(
                path[..],
                ["pools", "default", "buckets", ..]
                    | ["settings", ..]
                    | ["api", "v1", "buckets"]
                    | ["api", "v1", "settings" | "tokens" | "users", ..]
            )
        }
        Service::Views => matches!(path[..], [_, "_design", _]),
        Service::Query | Service::Registered(_) => false,
    }
}

async fn route(call: Call) -> Reply {
    let service = call.target;
    if concerns_agreed(service, &call.path) {
        let node = Arc::clone(&call.node);
        if let Err(reply) =
            body::blocking("the wait for other nodes", move || node.catch_up()).await
        {
            return reply;
        }
    }
    if let Service::Registered(port) = service {
        return registered::route(call, port).await;
    }
    if service == Service::Management && registered::has_route(&call, Ports::MGMT) {
        return registered::route(call, Ports::MGMT).await;
    }
    let not_found: fn() -> Reply = match service {
        Service::Management | Service::Eventing | Service::Registered(_) => body::not_found,
        Service::Views => views::missing,
        Service::Query => query::missing,
    };
    let front = Arc::clone(&call.front);
    let table = table_of(&front, service);
    if let Some(reply) = api::other_methods(table, &call) {
        return reply;
    }
    routes::answer(table, call, not_found).await.unwrap_or_else(|reply| reply)
}

/// Returns the routes of a port.
fn table_of(front: &Front, service: Service) -> &Table<Handler> {
    match service {
        Service::Management => &MANAGEMENT,
        Service::Views => &VIEWS,
        Service::Query => &QUERY,
        Service::Eventing => &front.functions,
        Service::Registered(_) => &REGISTERED,
    }
}

/// Endpoints of the management port.
static MANAGEMENT: LazyLock<Table<Handler>> = LazyLock::new(|| {
    Table::new([
        absent::ROUTES,
        alternate::ROUTES,
        api::ROUTES,
        audit_settings::ROUTES,
        bucket_stats::ROUTES,
        buckets::ROUTES,
        certificates::ROUTES,
        cluster::ROUTES,
        collections::ROUTES,
        compaction_settings::ROUTES,
        console::ROUTES,
        events::ROUTES,
        fixed::ROUTES,
        groups::ROUTES,
        indexes::ROUTES,
        listeners::ROUTES,
        manifest::ROUTES,
        metrics::ROUTES,
        nodes::ROUTES,
        outgoing::ROUTES,
        permissions::ROUTES,
        plugins::ROUTES,
        pool::ROUTES,
        random_key::ROUTES,
        rebalance::ROUTES,
        security_settings::ROUTES,
        settings::ROUTES,
        setup::ROUTES,
        stats_range::ROUTES,
        sync::ROUTES,
        user_backup::ROUTES,
        users::ROUTES,
    ])
});

/// Endpoints of the other ports.
static VIEWS: LazyLock<Table<Handler>> =
    LazyLock::new(|| Table::new([changes::ROUTES, views::ROUTES]));
static QUERY: LazyLock<Table<Handler>> =
    LazyLock::new(|| Table::new([libraries::ROUTES, query::ROUTES]));
/// Registered services have their own routes.
static REGISTERED: LazyLock<Table<Handler>> = LazyLock::new(|| Table::new([registered::ROUTES]));

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_http::Access;
    use nacre_node::service;
    use std::fmt::Write;

    /// Environment variable: if it is set, the test below writes the list of endpoints for people.
    const WRITE: &str = "NACRE_WRITE_DOCS";
    const LIST: &str = "../../docs/reference/rest.md";
    const HEAD: &str = "# REST endpoints

Every endpoint of a node with its method and the right that a user needs. This page is written from the tables of routes in
`server/nacre-rest/src` and `server/nacre-rest-functions/src`; [protocol](protocol.md), [views](views.md), [changes](changes.md),
[functions](eventing.md) and [plugins](plugins.md) say what the endpoints do. `*` is any method, `{rest...}` any segments or none. Where the right depends on the
request, it is the one to what the body, the query or the path names.
";

    /// Returns the rows of the list for a table. Handlers for functions take another type of request than those of this
    /// crate.
    fn rows<H>(table: &Table<H>) -> String {
        let rows = table.routes().into_iter().map(|route| {
            let (method, access) = (route.method.name(), route.access);
            format!("| `{}` | {method} | {access} |\n", route.path)
        });
        rows.collect()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the list is a file of the documentation")]
    fn the_list_of_endpoints_matches_the_route_tables() {
        let mut text = HEAD.to_owned();
        let tables = [
            ("Management, port 8091", rows(&MANAGEMENT)),
            ("Views and changes, port 8092", rows(&VIEWS)),
            ("Queries, port 8093", rows(&QUERY)),
            ("Functions, port 8096", rows(&nacre_rest_functions::table())),
        ];
        for (port, rows) in tables {
            write!(text, "\n## {port}\n\n| path | method | right |\n| --- | --- | --- |\n{rows}")
                .unwrap();
        }
        let services = nacre_server::services();
        let ports = services.iter().flat_map(|service| service.spec().ports);
        let ports = ports.map(|port| (port.id, port.purpose, port.plain.default));
        let ports = ports.filter(|(id, ..)| *id != Ports::MGMT);
        for (id, purpose, number) in [(Ports::MGMT, "management", 8091)].into_iter().chain(ports) {
            let routes = services.iter().flat_map(|service| service.routes());
            let mut routes: Vec<_> = routes.filter(|route| route.port == id).collect();
            if routes.is_empty() {
                continue;
            }
            routes.sort_by_key(|route| (route.path, route.method));
            write!(text, "\n## Service {purpose}, port {number}\n\n").unwrap();
            text.push_str("| path | method | right |\n| --- | --- | --- |\n");
            for route in routes {
                let access = match route.access {
                    service::Access::Cluster(privilege) => Access::Cluster(privilege),
                    service::Access::Handler => Access::Handler,
                };
                writeln!(text, "| `{}` | {} | {access} |", route.path, route.method).unwrap();
            }
        }
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(LIST, &text).unwrap();
        }
        let known = std::fs::read_to_string(LIST).unwrap_or_default();
        assert!(known == text, "{LIST} is out of date: run the tests of nacre-rest with {WRITE}=1");
    }
}
