//! The port: connections, TLS, and the checks of a request before its handler runs.
//!
//! ```text
//! accept ─► connection limit ─► TLS ─► HTTP ─► names and sites ─► login ─► body ─► right ─► handler
//! ```

use crate::Options;
use crate::access::Caller;
use crate::endpoints::{self, TABLE};
use crate::gateway::{self, BUCKET, Gateway};
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, COOKIE, HeaderValue, SERVER};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nacre_auth::{Keyspace, Privilege};
use nacre_budget::{Account, Permit as MemoryPermit};
use nacre_http::body::{self, Reply, error_reply};
use nacre_http::linger::Lingering;
use nacre_http::origin::{self, Source};
use nacre_http::patient::Patient;
use nacre_http::request_target::Lenient;
use nacre_http::strangers::Permit;
use nacre_http::streams::STALLED_MAX;
use nacre_http::{BODY_BYTES_MAX, HEADER_BYTES_MAX, Lookup, memory, problem};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Time limit for request headers and for idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause of the listener after it failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A parsed request of an authenticated user.
pub(crate) struct Call {
    pub gateway: Arc<Gateway>,
    pub caller: Caller,
    /// Address of the client, or of a proxy.
    pub from: IpAddr,
    pub method: Method,
    /// Path segments, percent-decoded.
    pub path: Vec<String>,
    /// The path as sent.
    pub raw_path: String,
    /// Segments captured by the parameters of the route.
    pub segments: Vec<(&'static str, String)>,
    /// Query string without `?`.
    pub query: String,
    /// Headers; names are lower-case.
    pub headers: Vec<(String, String)>,
    /// The complete body.
    pub body: Vec<u8>,
    /// The account for the memory of the body and the answer.
    pub account: Arc<Account>,
    pub upgrade: Option<OnUpgrade>,
    _permit: MemoryPermit,
}

impl Call {
    /// Returns the segment captured by a parameter of the route.
    ///
    /// # Panics
    /// Panics if the route has no such parameter.
    pub fn segment(&self, parameter: &str) -> &str {
        self.found(parameter).expect("a parameter of the route")
    }

    /// Returns the segment captured by a parameter, if the route has it.
    pub fn found(&self, parameter: &str) -> Option<&str> {
        let found = self.segments.iter().find(|(name, _)| *name == parameter);
        found.map(|(_, text)| text.as_str())
    }

    /// Returns a field of the query.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let fields = body::form(self.query.as_bytes());
        fields.into_iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

impl nacre_http::Caller for Call {
    type Refusal = Reply;

    fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), Reply> {
        let place = Keyspace { bucket, ..Keyspace::default() };
        self.gateway.access.require(&self.caller, privilege, place)
    }

    fn require_sight(&self, place: Keyspace<'_>) -> Result<(), Reply> {
        match self.gateway.access.sees(&self.caller, place) {
            true => Ok(()),
            false => self.require(Privilege::ReadCluster, None),
        }
    }
}

/// Listens and serves connections until the gateway stops. Returns the address, and a receiver that ends once all connections
/// have ended.
pub(crate) async fn open(
    gateway: &Arc<Gateway>,
    options: &Options,
) -> Result<(SocketAddr, mpsc::Receiver<()>), String> {
    let tls = acceptor(options)?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|error| format!("listen on {}: {error}", options.listen))?;
    let address = listener.local_addr().map_err(|error| format!("listen: {error}"))?;
    gateway::log_sync(gateway)?;
    let (is_open, all_closed) = mpsc::channel(1);
    let gateway = Arc::clone(gateway);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = gateway.stopped() => return,
            };
            let Ok((stream, from)) = accepted else {
                // Most likely no file descriptors are left: other connections must close first.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(permit) = gateway.connections.enter(from.ip(), 1) else { continue };
            // An answer in pieces would otherwise wait for the client's acknowledgement, which clients delay by 40 ms.
            let _ = stream.set_nodelay(true);
            let served = welcome(Arc::clone(&gateway), tls.clone(), stream, from, permit);
            let is_open = is_open.clone();
            tokio::spawn(async move {
                served.await;
                drop(is_open);
            });
        }
    });
    Ok((address, all_closed))
}

/// Returns the TLS acceptor; `None` without a certificate.
fn acceptor(options: &Options) -> Result<Option<TlsAcceptor>, String> {
    let (Some(chain), Some(key)) = (&options.tls_certificate, &options.tls_key) else {
        return Ok(None);
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&gateway::read(chain)?).collect();
    let certificates = certificates.map_err(|error| format!("{}: {error}", chain.display()))?;
    let read = PrivateKeyDer::from_pem_slice(&gateway::read(key)?);
    let read = read.map_err(|error| format!("{}: {error}", key.display()))?;
    let refused = |error| format!("{} with {}: {error}", chain.display(), key.display());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(certificates, read)
        .map_err(refused)?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// The other side of a connection.
#[derive(Clone)]
struct Peer {
    from: SocketAddr,
    permit: Arc<Permit>,
}

async fn welcome(
    gateway: Arc<Gateway>,
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    from: SocketAddr,
    permit: Permit,
) {
    let peer = Peer { from, permit: Arc::new(permit) };
    let Some(tls) = tls else { return converse(gateway, stream, peer).await };
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(TLS_TIMEOUT, tls.accept(stream)) => accepted,
        () = peer.permit.closed() => return,
    };
    // A client that does not speak TLS or does not trust the certificate knows the reason itself.
    if let Ok(Ok(stream)) = accepted {
        converse(gateway, stream, peer).await;
    }
}

/// Answers the requests of a connection until either side closes it.
async fn converse(
    gateway: Arc<Gateway>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
) {
    let permit = Arc::clone(&peer.permit);
    let of_requests = Arc::clone(&gateway);
    let handler =
        service_fn(move |request| answer(Arc::clone(&of_requests), peer.clone(), request));
    let stream = Lingering::new(Patient::new(stream, STALLED_MAX));
    let stream = TokioIo::new(Lenient::new(stream));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(stream, handler)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A broken connection is the peer's problem.
        _ = connection.as_mut() => return,
        () = permit.closed() => return,
        () = gateway.stopped() => {}
    }
    // The current request still gets its answer.
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

async fn answer(
    gateway: Arc<Gateway>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let reply = handle(&gateway, &peer, request).await.unwrap_or_else(|reply| reply);
    let mut reply = problem::shape(reply).await;
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        reply.headers_mut().insert(SERVER, HeaderValue::from_static("nacre"));
        origin::protect(reply.headers_mut(), origin::POLICY);
    }
    Ok(reply)
}

async fn handle(
    gateway: &Arc<Gateway>,
    peer: &Peer,
    request: Request<Incoming>,
) -> Result<Reply, Reply> {
    let (mut head, incoming) = request.into_parts();
    if origin::judge(&head, &gateway.hosts, |_| false)? == Source::Foreign {
        origin::refuse_foreign(&head, true)?;
    }
    if let Some(reply) = endpoints::public(gateway, &head) {
        return Ok(reply);
    }
    let from = peer.from.ip();
    let caller = gateway.access.login(from, head.headers.get(AUTHORIZATION)).await?;
    peer.permit.admit();
    let refused = || error_reply(StatusCode::BAD_REQUEST, "bad_request", "the path is not UTF-8");
    let path = body::segments(head.uri.path()).ok_or_else(refused)?;
    // Only requests for scopes and collections may have forms.
    if path.first().is_none_or(|first| first != "pools") {
        origin::check_type(&head)?;
    }
    let bytes_max = match TABLE.find(head.method.as_str(), &path) {
        Lookup::Found(found) => found.route.body_bytes_max,
        Lookup::OtherMethods(_) | Lookup::NotFound => BODY_BYTES_MAX,
    };
    let account = gateway.budgets.of_user(caller.name());
    let (body, permit) = memory::read_body(incoming, &account, bytes_max).await?;
    let call = Call {
        gateway: Arc::clone(gateway),
        caller,
        from,
        upgrade: head.extensions.remove::<OnUpgrade>(),
        headers: visible(&head),
        query: head.uri.query().unwrap_or_default().to_owned(),
        raw_path: head.uri.path().to_owned(),
        method: head.method,
        path,
        segments: Vec::new(),
        body,
        account,
        _permit: permit,
    };
    body::blocking("the request", move || route(call)).await?
}

/// Returns the headers without credentials.
fn visible(head: &Parts) -> Vec<(String, String)> {
    let seen = head.headers.iter().filter(|(name, _)| ![AUTHORIZATION, COOKIE].contains(name));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    seen.map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// Answers a request with the handler of its method and path, if the user has the right to it.
fn route(mut call: Call) -> Result<Reply, Reply> {
    let path = std::mem::take(&mut call.path);
    let found = match TABLE.find(call.method.as_str(), &path) {
        Lookup::Found(found) => found,
        Lookup::NotFound => return Err(body::not_found()),
        Lookup::OtherMethods(allow) => {
            let detail =
                format!("{} is not a method of this path: {}", call.method, allow.as_str());
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let mut reply = problem::reply(status, "method_not_allowed", &detail);
            if let Ok(methods) = HeaderValue::from_str(allow.as_str()) {
                reply.headers_mut().insert(ALLOW, methods);
            }
            return Err(reply);
        }
    };
    found.route.access.check(&call, &found.parameters)?;
    let named = found.parameters.named().iter();
    call.segments = named.map(|(name, text)| (*name, (*text).to_owned())).collect();
    if call.found("bucket").is_some_and(|bucket| bucket != BUCKET) {
        let reason = format!("there is no such bucket: that of a gateway is {BUCKET}");
        return Err(error_reply(StatusCode::NOT_FOUND, "bucket_not_found", &reason));
    }
    (found.route.handler)(call)
}
