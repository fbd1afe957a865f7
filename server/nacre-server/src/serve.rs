//! `nacre serve`: from the command line to a running node, and back to a clean stop.

use crate::ports::{self, Listeners};
use crate::{memory, services};
use clap::{Args, FromArgMatches};
use nacre_auth::{Redaction, Role, User, UserData};
use nacre_bucket::SlowSettings;
use nacre_cluster::{BucketChange, BucketSettings, Change, ClusterChange};
use nacre_cluster::{Endpoints, OutgoingRule, Ports};
use nacre_http::blocking_yield;
use nacre_links::cluster::Consensus;
use nacre_links::cluster::link::Lane;
use nacre_links::kv::web::WebSessions;
use nacre_links::platform::SystemPlatform;
use nacre_links::process::{Priority, Process};
use nacre_links::records::Records;
use nacre_links::strangers::{Connections, Limits};
use nacre_links::tls::{Files, NodeKey, Tls};
use nacre_links::{STACK_BYTES, kv};
use nacre_node::service::{Service, ServiceTable};
use nacre_node::{Error, Node, password_reset};
use nacre_rest::{self as rest, Claim, Front, Hosts, Threads};
use nacre_state::{StateForm, StateOptions};
use nacre_store::Error as StoreError;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Options of `nacre serve`.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// Directory for documents, settings and plugin state
    #[arg(long, env = "NACRE_DATA_DIR", default_value = "nacre-data")]
    data_dir: PathBuf,
    /// Address to listen on
    #[arg(long, env = "NACRE_HOST", default_value = "127.0.0.1")]
    host: String,
    #[arg(long, env = "NACRE_PORT_BASE", value_name = "N", help = services::table().describe_offsets())]
    port_base: Option<u16>,
    /// Name of the administrator, created on first start
    #[arg(long, env = "NACRE_USER", default_value = "Administrator")]
    user: String,
    /// Password of the administrator; generated and shown once when there is no user yet
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Create no administrator, but let the first client on this machine that asks name one, as a new Couchbase server does: for
    /// set-up scripts. Clients on other machines need the token that is printed
    #[arg(long, env = "NACRE_UNCLAIMED", conflicts_with = "password")]
    unclaimed: bool,
    /// Token for --unclaimed (default: generated at each start); `none` lets any client claim the node, in a network where nobody
    /// else is
    #[arg(long, env = "NACRE_CLAIM_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    claim_token: Option<String>,
    /// Buckets to create when they do not exist, separated by commas
    #[arg(long, env = "NACRE_BUCKETS", value_delimiter = ',')]
    buckets: Vec<String>,
    /// Memory for each bucket that is created here, in MiB
    #[arg(long, env = "NACRE_BUCKET_RAM_MB", default_value_t = 256)]
    bucket_ram_mb: u64,
    /// Memory that the node may use, such as 4GiB: quotas of buckets, requests and answers, plugins (default: 80 % of the machine's,
    /// or of the limit of its control group)
    #[arg(long, env = "NACRE_MEMORY", value_name = "SIZE", value_parser = memory::parse)]
    memory: Option<u64>,
    /// Threads for key-value connections (default: one per processor)
    #[arg(long, env = "NACRE_KV_THREADS")]
    kv_threads: Option<usize>,
    /// Do not use io_uring for key-value connections, even if the kernel supports it
    #[arg(long, env = "NACRE_NO_IO_URING")]
    no_io_uring: bool,
    /// Form of states that plugins do not choose, those of views and functions too: resident in memory, or segmented on disk
    #[arg(long, env = "NACRE_STATE_FORM", value_name = "FORM", default_value = "resident", value_parser = StateForm::named)]
    state_form: StateForm,
    /// Cache for data read from segmented states, in MiB
    #[arg(long, env = "NACRE_STATE_CACHE_MB", default_value_t = 16)]
    state_cache_mb: usize,
    /// Memory for writes to one segmented state before they are flushed to disk, in KiB
    #[arg(long, env = "NACRE_STATE_FLUSH_KB", default_value_t = 8192)]
    state_flush_kb: usize,
    /// Key-value operations that take at least so many milliseconds are logged as slow; 0 disables
    /// it
    #[arg(long, env = "NACRE_SLOW_OP_MS", value_name = "MS", default_value_t = 500)]
    slow_op_ms: u64,
    /// Statements and view queries that take at least so many milliseconds are logged as slow; 0
    /// disables it
    #[arg(long, env = "NACRE_SLOW_QUERY_MS", value_name = "MS", default_value_t = 1000)]
    slow_query_ms: u64,
    /// Log slow operations with hashes in place of keys, statements and names of users
    #[arg(long, env = "NACRE_SLOW_OP_REDACT")]
    slow_op_redact: bool,
    /// Log hashes in place of all user data: keys, statements, names of users, messages of functions
    #[arg(long, env = "NACRE_LOG_REDACT")]
    log_redact: bool,
    /// Directory for compiled plugins (default: in the data directory)
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
    /// The node's certificate and the chain behind it, in PEM (default: a certificate signed by the
    /// node's own authority)
    #[arg(long, env = "NACRE_TLS_CERTIFICATE", requires = "tls_key", value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, env = "NACRE_TLS_KEY", requires = "tls_certificate", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Names and addresses for the generated certificate, in addition to localhost and --host,
    /// separated by commas
    #[arg(long, env = "NACRE_TLS_NAMES", value_delimiter = ',')]
    tls_names: Vec<String>,
    /// Names by which browsers may reach the node, besides addresses, localhost, --host, --tls-names and the names of the cluster's
    /// nodes, separated by commas; `*` allows any name. Other clients may use any name
    #[arg(long, env = "NACRE_ALLOW_HOSTS", value_delimiter = ',', value_name = "NAMES")]
    allow_hosts: Vec<String>,
    /// Accept unencrypted passwords from other machines (SASL PLAIN without TLS)
    #[arg(long, env = "NACRE_ALLOW_PLAIN_LOGINS")]
    allow_plain_logins: bool,
    /// Networks, addresses and hosts, each with a port where wanted, that functions and plugins of this node may send requests to
    /// although it is denied by default: loopback, link-local, the cluster's own ports; separated by commas
    #[arg(
        long,
        env = "NACRE_ALLOW_OUTGOING",
        value_delimiter = ',',
        value_name = "CIDR|HOST[:PORT]"
    )]
    allow_outgoing: Vec<OutgoingRule>,
}

impl Serve {
    /// Reads options as the command line has them, such as `--data-dir`, for an application that embeds a node. Variables of the
    /// environment count as they do there.
    ///
    /// # Errors
    /// The message of the command line: an unknown option, or a value that cannot be.
    pub fn from_arguments<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Serve, String> {
        let command = Serve::augment_args(clap::Command::new("serve").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments);
        let read = matches.and_then(|matches| Serve::from_arg_matches(&matches));
        read.map_err(|error| error.to_string())
    }

    /// Returns true if the log contains no user data.
    pub fn redacts_log(&self) -> bool {
        self.log_redact
    }

    /// The settings of the log of slow operations, with the salt of its hashes.
    fn slow(&self, salt: &str) -> SlowSettings {
        let [kv, query] = [self.slow_op_ms, self.slow_query_ms].map(Duration::from_millis);
        let redaction = self.slow_op_redact.then(|| Redaction::new(salt.as_bytes()));
        SlowSettings { kv, query, redaction }
    }

    /// The names by which browsers may reach the node.
    fn hosts(&self) -> Hosts {
        let given = self.allow_hosts.iter().chain(&self.tls_names).chain([&self.host]);
        Hosts::new(given.map(String::as_str))
    }

    /// TLS with the operator's certificate, or with one for all names that the node is known to have.
    fn tls(&self, node: &Node, node_key: &NodeKey) -> Result<Tls, String> {
        let files = self.tls_certificate.clone().zip(self.tls_key.clone());
        let files = files.map(|(chain, key)| Files { chain, key });
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        let everywhere = self.host.parse().is_ok_and(|host: IpAddr| host.is_unspecified());
        let given = self.tls_names.iter().chain((!everywhere).then_some(&self.host));
        for name in given.filter(|name| !name.is_empty()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let authority_name = &node.new_uuid()[..8];
        Tls::open(&self.data_dir, files, names, authority_name, node_key)
            .map_err(|reason| format!("cannot offer TLS: {reason}"))
    }
}

/// Runs a node until `stop` ends.
///
/// `stop` is called on the runtime of the node before any client can see that the node serves; the node stops cleanly
/// when the future that it returns is ready.
///
/// # Errors
/// A sentence for the operator.
pub fn serve<S: Future<Output = ()>>(
    options: &Serve,
    process: &'static dyn Process,
    stop: impl FnOnce() -> io::Result<S>,
) -> Result<(), String> {
    serve_with(options, process, services::all(), stop)
}

/// Runs a node with these services, as [`serve`] does with those of the registry.
///
/// # Errors
/// A sentence for the operator.
pub fn serve_with<S: Future<Output = ()>>(
    options: &Serve,
    process: &'static dyn Process,
    services: Vec<Arc<dyn Service>>,
    stop: impl FnOnce() -> io::Result<S>,
) -> Result<(), String> {
    run(options, process, services, stop, |_| {})
}

/// An empty password mostly comes from an unset variable, and would let every client in.
const EMPTY_PASSWORD: &str = "the password is empty: give one with --password or NACRE_PASSWORD, or neither to have one generated";

/// Returns advice for the operator about a data directory that cannot be opened.
fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Io { source, .. } => match source.kind() {
            ErrorKind::StorageFull => ": free some space there",
            ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::NotFound => ": name a folder that can be written to with --data-dir",
            _ => "",
        },
        StoreError::Full => ": free some space there",
        StoreError::InUse { .. } => ": stop that one, or name another folder with --data-dir",
        StoreError::Format { .. } => ": start it with the version that wrote it",
        StoreError::Damaged { .. } => {
            ": put back a copy of the whole directory, or begin with another --data-dir and have other nodes fill it"
        }
        _ => "",
    }
}

fn with_advice(error: &StoreError) -> String {
    format!("{error}{}", advice(error))
}

/// Opens the data directory, and the node in it; `endpoints` get its key.
fn open(
    options: &Serve,
    process: &'static dyn Process,
    services: Vec<Arc<dyn Service>>,
    endpoints: &mut Endpoints,
) -> Result<(Arc<SystemPlatform>, Arc<Node>), String> {
    let plugin_cache =
        options.plugin_cache.clone().unwrap_or_else(|| options.data_dir.join("plugins"));
    let platform = SystemPlatform::open(&options.data_dir, plugin_cache, process);
    let mut platform = platform.map_err(|error| with_advice(&error))?;
    platform.read_bucket_settings_by(rest::bucket_form::of_statement);
    platform.keep_states(StateOptions {
        form: options.state_form,
        cache_bytes: options.state_cache_mb << 20,
        flush_bytes: options.state_flush_kb << 10,
    });
    let platform = Arc::new(platform);
    endpoints.fingerprint = Some(platform.node_key().fingerprint());
    let node = Node::open_with(Arc::clone(&platform) as Arc<_>, endpoints.clone(), services);
    let node = node.map_err(|error| match &error {
        Error::Store(error) => with_advice(error),
        other => other.to_string(),
    })?;
    node.allow_outgoing(options.allow_outgoing.clone());
    node.slow_log().set(options.slow(&node.new_uuid()));
    Ok((platform, node))
}

/// Runs a node until `stop` is over; `ready` is called once it serves.
pub(crate) fn run<S: Future<Output = ()>>(
    options: &Serve,
    process: &'static dyn Process,
    services: Vec<Arc<dyn Service>>,
    stop: impl FnOnce() -> io::Result<S>,
    ready: impl FnOnce(&Endpoints),
) -> Result<(), String> {
    if options.password.as_deref() == Some("") {
        return Err(EMPTY_PASSWORD.into());
    }
    let connections = Connections::new(Limits::of_descriptors(process.prepare()));
    let table = &ServiceTable::of(&services);
    let mut endpoints = ports::endpoints(table, options.port_base)?;
    let listen = |ports: &Ports| Listeners::bind(table, &options.host, ports);
    let plain = listen(&endpoints.plain)?;
    let encrypted = endpoints.tls.as_ref().map(listen).transpose()?;
    let (platform, node) = open(options, process, services, &mut endpoints)?;
    memory::set_up(&node, options.memory);
    let agreeing = agreement_threads(process)?;
    let answering = answering_threads()?;
    let querying = blocking_yield::threads(STACK_BYTES, || {
        nacre_bucket::on_blocking(blocking_yield::make_room)
    });
    let querying =
        querying.map_err(|error| format!("cannot start the threads for queries: {error}"))?;
    let wanted = options.clone();
    let token = options.claim_token.clone().filter(|token| !token.is_empty());
    let claim = Arc::new(Claim::new(&token.unwrap_or_else(|| node.new_uuid())));
    let unclaimed = Arc::clone(&claim);
    let consensus = Consensus::start(
        &node,
        Arc::clone(&platform) as Arc<_>,
        platform.node_key(),
        process,
        [agreeing.handle().clone(), answering.handle().clone()],
        move |node| initialise(node, &wanted, &unclaimed),
    )?;
    platform.connect(consensus.peers(Lane::Agreement), consensus.peers(Lane::Questions));
    node.orchestrate();
    consensus.eject_removed_nodes();
    finish_password_reset(&node)?;
    let tls = Arc::new(options.tls(&node, platform.node_key())?);
    platform.reserve().fill();
    tls.follow(Arc::clone(&node));
    node.start_services();

    let threads = options
        .kv_threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let door = Arc::new(kv::Door {
        node: Arc::clone(&node),
        tls: Arc::clone(&tls),
        allow_plain_logins: options.allow_plain_logins,
        strangers: AtomicU64::new(0),
        connections: Arc::clone(&connections),
    });
    let (kv_ports, rest_ports) = ports::split(plain, encrypted);
    kv::serve(&door, kv_ports, threads.max(1), !options.no_io_uring)
        .map_err(|error| format!("cannot serve keys: {error}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("rest")
        // Plugins find the stack that they may use, rather than a new one for each call.
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start the threads for HTTP: {error}"))?;
    spawn_chores(&runtime, &node, &tls);
    let making = rest::answering_threads();
    let making =
        making.map_err(|error| format!("cannot start the threads for answers: {error}"))?;
    let web =
        WebSessions::start(&door).map_err(|error| format!("cannot serve devices: {error}"))?;
    let threads =
        Threads { queries: querying.handle().clone(), answers: making.handle().clone(), web };
    let records = Records::new(options.data_dir.clone());
    let (hosts, functions) = (options.hosts(), nacre_rest_functions::table());
    let front =
        Front::new(&consensus, &tls, &claim, records, hosts, functions, threads, &connections);
    runtime.block_on(async {
        // Called before a client can see that the node serves, because a client that sees it may stop the node.
        let stop = stop().map_err(|error| format!("cannot wait for signals: {error}"))?;
        for port in rest_ports {
            rest::serve(&front, port).map_err(|error| format!("cannot serve HTTP: {error}"))?;
        }
        ports::log(table, &options.host, &endpoints);
        tracing::info!(
            "the key of this node, for other nodes: {}",
            platform.node_key().fingerprint()
        );
        consensus.announce_address();
        ready(&endpoints);
        stop.await;
        Ok::<(), String>(())
    })?;

    tracing::info!("stopping: writing what is in memory");
    node.stop();
    platform.join();
    match node.mark_clean() {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => tracing::warn!("{error}; the next start recovers what was written"),
    }
    // Connections may still hold the node; the process ends with them.
    runtime.shutdown_background();
    querying.shutdown_background();
    making.shutdown_background();
    answering.shutdown_background();
    agreeing.shutdown_background();
    Ok(())
}

/// Sets the password of an administrator that was prepared while the node was stopped, as soon as the nodes can agree
/// on it.
fn finish_password_reset(node: &Arc<Node>) -> Result<(), String> {
    const PAUSE: Duration = Duration::from_secs(1);
    let node = Arc::clone(node);
    let work = move || {
        loop {
            match password_reset::finish(&node) {
                Ok(Some(user)) => {
                    return tracing::info!("the user {} has the new password", UserData(user));
                }
                Ok(None) => return,
                Err(error) => tracing::warn!("the new password is not in effect yet: {error}"),
            }
            std::thread::sleep(PAUSE);
        }
    };
    let thread = std::thread::Builder::new().name("password-reset".into());
    thread.spawn(work).map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Starts the tasks that recur as long as the node runs.
fn spawn_chores(runtime: &tokio::runtime::Runtime, node: &Arc<Node>, tls: &Arc<Tls>) {
    runtime.spawn(finish_lost_transactions(Arc::clone(node)));
    runtime.spawn(refresh_statistics(Arc::clone(node)));
    runtime.spawn(expire_tokens(Arc::clone(node)));
    runtime.spawn(renew_certificate(Arc::clone(tls)));
}

/// Interval of the search for lost transactions. Source: the usual window of SDKs.
const LOST_TRANSACTIONS_INTERVAL: Duration = Duration::from_secs(60);

async fn finish_lost_transactions(node: Arc<Node>) {
    loop {
        tokio::time::sleep(LOST_TRANSACTIONS_INTERVAL).await;
        let node = Arc::clone(&node);
        // The cleanup waits for other nodes.
        let finished = tokio::task::spawn_blocking(move || {
            nacre_query_service::finish_lost_transactions(&node)
        })
        .await;
        if finished.is_err() {
            return;
        }
    }
}

/// Interval of the search for outdated statistics.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(10);

async fn refresh_statistics(node: Arc<Node>) {
    loop {
        tokio::time::sleep(STATISTICS_INTERVAL).await;
        let node = Arc::clone(&node);
        // Statements run, and other nodes are asked how much has changed.
        let refreshed =
            tokio::task::spawn_blocking(move || nacre_query_service::refresh_statistics(&node))
                .await;
        if refreshed.is_err() {
            return;
        }
    }
}

/// Longest time for which a request goes on after its token has ended.
const TOKEN_INTERVAL: Duration = Duration::from_secs(1);

async fn expire_tokens(node: Arc<Node>) {
    loop {
        tokio::time::sleep(TOKEN_INTERVAL).await;
        let node = Arc::clone(&node);
        if tokio::task::spawn_blocking(move || node.expire_tokens()).await.is_err() {
            return;
        }
    }
}

/// Interval of checks of the certificate's validity. The clock may be set soon after a start.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(10 * 60);

async fn renew_certificate(tls: Arc<Tls>) {
    loop {
        tokio::time::sleep(CERTIFICATE_INTERVAL).await;
        let tls = Arc::clone(&tls);
        match tokio::task::spawn_blocking(move || tls.renew()).await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => tracing::warn!("the certificate cannot be renewed: {reason}"),
            Err(_) => return,
        }
    }
}

/// Creates the threads of the agreement: apart from requests, which may keep their own threads busy.
fn agreement_threads(process: &'static dyn Process) -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("agreement")
        .on_thread_start(|| process.prioritize(Priority::Urgent))
        .enable_all()
        .build();
    runtime.map_err(|error| format!("cannot start the thread of the agreement: {error}"))
}

/// Creates the threads for questions between nodes: apart from requests of clients, which wait for these answers.
fn answering_threads() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("questions")
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build();
    runtime.map_err(|error| format!("cannot start the thread for other nodes: {error}"))
}

/// Creates the administrator and the buckets that were asked for, where they do not exist yet.
fn initialise(node: &Arc<Node>, options: &Serve, claim: &Claim) -> Result<(), String> {
    let known = node.users().get(&options.user).is_some();
    let nobody = node.users().iter().next().is_none();
    if nobody && options.unclaimed {
        println!("{}", claim.describe());
        claim.open();
    } else if !known && (nobody || options.password.is_some()) {
        let password = options.password.clone().unwrap_or_else(|| {
            let generated = node.new_uuid()[..12].to_owned();
            println!("created the user {} with the password {generated}", options.user);
            generated
        });
        let user = User::new(&options.user, &password, vec![Role::admin()], node.new_salt());
        node.put_user(user).map_err(|error| error.to_string())?;
        name_administrator(node, &options.user)?;
    } else if let Some(password) = &options.password
        && known
        && node.users().verify(&options.user, password).is_none()
    {
        tracing::warn!(
            "the user {} exists already and keeps its password, which differs from the given one",
            options.user
        );
    }
    for name in options.buckets.iter().filter(|name| !name.is_empty()) {
        if node.cluster().bucket(name).is_err() {
            let settings =
                BucketSettings { ram_quota_mb: options.bucket_ram_mb, ..BucketSettings::default() };
            let change = Change::Buckets(BucketChange::CreateBucket {
                name: name.clone(),
                uuid: node.new_uuid(),
                settings,
            });
            node.change(&change)
                .map_err(|error| format!("cannot create the bucket {name}: {error}"))?;
        }
    }
    Ok(())
}

/// Makes a new user the administrator of the cluster, if it has none.
fn name_administrator(node: &Arc<Node>, name: &str) -> Result<(), String> {
    let known = &node.cluster().administrator;
    if !known.is_empty() && node.users().person(known).is_some() {
        return Ok(());
    }
    let change = Change::Cluster(ClusterChange::NameAdministrator { name: name.to_owned() });
    node.change(&change).map(drop).map_err(|error| error.to_string())
}
