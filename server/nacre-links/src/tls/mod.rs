//! TLS: the node's certificate, its trusted authorities, and the encryption of connections.
//!
//! ```text
//! data directory
//! ├─ tls/authority.pem               signs the node's certificate: certificate and key, created at the first start
//! ├─ tls/authority-before.pem        the previous authority, which had expired
//! ├─ tls/ca.pem                      the authority's certificate, for clients
//! ├─ tls/node.pem                    chain and key uploaded by REST, instead of a generated certificate
//! ├─ tls/trusted/<id>.pem            authorities whose client certificates are trusted, besides the own one
//! ├─ tls/clients.json                settings for client certificates
//! ├─ tls/settings-key                encrypts the settings: see [`crate::sealed`]
//! ├─ tls/node-key.pem                key that identifies this node to others: see [`node_key`]
//! └─ inbox/chain.pem, pkey.key, CA/  where an operator puts files for the node to load
//! ```
//!
//! All files are read into a `State`, which is replaced as a whole: a change that cannot be read has no effect on
//! connections. A connection keeps the state with which it began.

mod certificate;
mod client;
mod node_key;
mod security;
mod socket;

pub use certificate::Description;
pub use client::{ClientCertificates, Demand};
pub use node_key::{NodeKey, Purpose};
pub use security::{check, suite_names};
pub use socket::Socket;

use certificate::{Authority, Identity, Validity};
use nacre_cluster::{Fingerprint, Security};
use nacre_node::Node;
use parking_lot::{Mutex, RwLock};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::{Acceptor, WebPkiClientVerifier, danger::ClientCertVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The file of the node's own authority.
const AUTHORITY: &str = "authority.pem";
/// The file of the previous authority, which had expired, perhaps only according to a wrong clock.
const BEFORE: &str = "authority-before.pem";
/// The file of the operator's certificate.
const GIVEN: &str = "node.pem";

/// Files of the operator's certificate, which are read again on request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate with its chain, in PEM.
    pub chain: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

/// A trusted authority.
#[derive(Clone, Debug)]
pub struct Trusted {
    /// 0 for the node's own authority.
    pub id: u32,
    /// The certificate.
    pub about: Description,
    der: CertificateDer<'static>,
}

/// The state of TLS at one time.
struct State {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    /// True if the node's certificate was generated.
    generated: bool,
    trusted: Vec<Trusted>,
    clients: ClientCertificates,
    /// The versions and cipher suites in effect.
    security: Security,
}

/// The identity that a peer has proved in the handshake.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The user named by the client's certificate.
    pub user: Option<String>,
    /// The key of a node of any cluster.
    pub key: Option<Fingerprint>,
}

/// TLS of a node.
pub struct Tls {
    folder: PathBuf,
    inbox: PathBuf,
    /// The paths of the operator's certificate and key, if configured.
    files: Option<Files>,
    /// Host names and addresses for a generated certificate.
    names: Vec<String>,
    /// Distinguishes generated authorities for people.
    authority_name: String,
    /// Settings for connections of other nodes, for each [`Purpose`].
    management: Arc<ServerConfig>,
    copies: Arc<ServerConfig>,
    state: RwLock<Arc<State>>,
    /// Provides the versions and cipher suites that the cluster allows.
    node: OnceLock<Arc<Node>>,
    /// Locked while files are changed.
    changing: Mutex<()>,
}

impl Tls {
    /// Reads the files in `data_dir`. At a first start, creates an authority. `node_key` is presented to other nodes.
    ///
    /// # Errors
    /// The problem with a file, as a sentence.
    pub fn open(
        data_dir: &Path,
        files: Option<Files>,
        names: Vec<String>,
        authority_name: &str,
        node_key: &NodeKey,
    ) -> Result<Tls, String> {
        let folder = data_dir.join("tls");
        let trusted = folder.join("trusted");
        nacre_store::create_private_directory(&trusted)
            .map_err(|error| format!("cannot make {}: {error}", trusted.display()))?;
        if !folder.join(AUTHORITY).exists() {
            let authority = Authority::generate(authority_name)?;
            write(&folder.join(AUTHORITY), authority.secret_pem().as_bytes())?;
        }
        renew_authority(&folder, authority_name)?;
        let state = Arc::new(State::read(&folder, files.as_ref(), &names, Security::default())?);
        if let Validity::Expired | Validity::Early = certificate::validity(&state.chain[0])? {
            tracing::warn!(
                "the certificate of the node is not valid by the clock of this machine: clients refuse connections with TLS until it is \
                 replaced, or the clock is set"
            );
        }
        Ok(Tls {
            authority_name: authority_name.to_owned(),
            folder,
            inbox: data_dir.join("inbox"),
            files,
            names,
            management: Arc::new(node_key.server(Purpose::Management)?),
            copies: Arc::new(node_key.server(Purpose::Copies)?),
            state: RwLock::new(state),
            node: OnceLock::new(),
            changing: Mutex::default(),
        })
    }

    /// Applies the settings of the node's cluster to clients from now on.
    pub fn follow(&self, node: Arc<Node>) {
        // A second call is for the same node.
        let _ = self.node.set(node);
    }

    fn security(&self) -> Security {
        self.node.get().map(|node| node.cluster().settings.security.clone()).unwrap_or_default()
    }

    /// Returns the state, rebuilt if the settings of the cluster have changed.
    fn current(&self) -> Arc<State> {
        let state = Arc::clone(&self.state.read());
        if self.node.get().is_none_or(|node| node.cluster().settings.security == state.security) {
            return state;
        }
        let _changing = self.changing.lock();
        if let Err(reason) = self.read_state() {
            tracing::error!("TLS keeps its former settings: {reason}");
        }
        Arc::clone(&self.state.read())
    }

    /// Encrypts a connection to a port; nodes may use the port for `purpose`, if given. Returns the connection and the
    /// peer's identity.
    ///
    /// # Errors
    /// The reason of the failure, for the log.
    pub async fn accept(
        &self,
        stream: TcpStream,
        purpose: Option<Purpose>,
    ) -> Result<(TlsStream<Socket>, Shown), String> {
        let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.shake_hands(stream, purpose));
        shaken.await.map_err(|_| "the handshake takes too long".to_owned())?
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        purpose: Option<Purpose>,
    ) -> Result<(TlsStream<Socket>, Shown), String> {
        let failed = |error: std::io::Error| error.to_string();
        let begun = LazyConfigAcceptor::new(Acceptor::default(), Socket::new(stream));
        let begun = begun.await.map_err(failed)?;
        let speaks = |purpose: &Purpose| {
            let mut spoken = begun.client_hello().alpn().into_iter().flatten();
            spoken.any(|name| name == purpose.protocol())
        };
        let node = purpose.filter(speaks);
        if let Some(purpose) = node {
            let config = match purpose {
                Purpose::Management => &self.management,
                Purpose::Copies => &self.copies,
            };
            let stream = begun.into_stream(Arc::clone(config)).await.map_err(failed)?;
            let key = node_key::shown(stream.get_ref().1.peer_certificates());
            return Ok((stream, Shown { user: None, key }));
        }
        let state = self.current();
        let stream = begun.into_stream(Arc::clone(&state.config)).await.map_err(failed)?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let names = shown.map(certificate::names).transpose()?;
        let user = names.and_then(|names| state.clients.user(&names));
        Ok((stream, Shown { user, key: None }))
    }

    /// Loads the certificate from the inbox or, if configured, from the operator's files. New connections present it.
    ///
    /// # Errors
    /// The problem with the files; the current certificate stays.
    pub fn reload(&self) -> Result<(), String> {
        let _changing = self.changing.lock();
        if self.files.is_none() {
            let chain = read(&self.inbox.join("chain.pem"))?;
            let key = read(&self.inbox.join("pkey.key"))?;
            Identity::read(&chain, &key)?.check_time()?;
            // In one file, so that a crash cannot separate them.
            write(&self.folder.join(GIVEN), &[&chain[..], b"\n", &key].concat())?;
        }
        self.read_state()
    }

    /// Renews the generated certificate if it is invalid or half of its lifetime has passed, and its authority if that has
    /// expired. Does not touch an operator's certificate. Call this regularly: the clock may be set, and the node may run for
    /// years.
    ///
    /// # Errors
    /// Fails when the certificate cannot be stored.
    pub fn renew(&self) -> Result<(), String> {
        let _changing = self.changing.lock();
        let (about, is_generated) = self.certificate();
        if !is_generated || certificate::is_fresh(&about) {
            return Ok(());
        }
        renew_authority(&self.folder, &self.authority_name)?;
        self.read_state()?;
        tracing::info!("the certificate of the node was renewed");
        Ok(())
    }

    /// Replaces the authority and the certificate by new ones, effective immediately.
    ///
    /// # Errors
    /// Fails when they cannot be stored.
    pub fn regenerate(&self, authority_name: &str) -> Result<(), String> {
        let _changing = self.changing.lock();
        let authority = Authority::generate(authority_name)?;
        write(&self.folder.join(AUTHORITY), authority.secret_pem().as_bytes())?;
        remove(&self.folder.join(BEFORE))?;
        remove(&self.folder.join(GIVEN))?;
        self.read_state()
    }

    /// Adds the authorities in a PEM text to the trusted ones.
    ///
    /// # Errors
    /// The problem with one of them; none is added in that case.
    pub fn trust(&self, pem: &[u8]) -> Result<(), String> {
        let _changing = self.changing.lock();
        let known = self.trusted();
        let mut next = known.iter().map(|trusted| trusted.id).max().unwrap_or(0);
        let certificates = certificate::read_certificates(pem)?;
        certificates.iter().try_for_each(certificate::check_authority)?;
        for der in certificates {
            if known.iter().all(|trusted| trusted.der != der) {
                next += 1;
                let path = self.folder.join("trusted").join(format!("{next}.pem"));
                write(&path, certificate::describe(&der)?.pem.as_bytes())?;
            }
        }
        self.read_state()
    }

    /// Adds the authorities in the folder `CA` of the inbox to the trusted ones.
    ///
    /// # Errors
    /// As for [`Tls::trust`]; authorities in files before the bad one are added.
    pub fn trust_inbox(&self) -> Result<(), String> {
        let folder = self.inbox.join("CA");
        for path in files_in(&folder)? {
            let pem = read(&path)?;
            self.trust(&pem).map_err(|reason| format!("{}: {reason}", path.display()))?;
        }
        Ok(())
    }

    /// Stops trusting an authority. Returns true if it was trusted; the own authority is always trusted.
    ///
    /// # Errors
    /// Fails when the file cannot be removed.
    pub fn distrust(&self, id: u32) -> Result<bool, String> {
        let _changing = self.changing.lock();
        if id == 0 || self.trusted().iter().all(|trusted| trusted.id != id) {
            return Ok(false);
        }
        remove(&self.folder.join("trusted").join(format!("{id}.pem")))?;
        self.read_state()?;
        Ok(true)
    }

    /// Changes the settings for client certificates of new connections.
    ///
    /// # Errors
    /// Fails when they cannot be stored.
    pub fn set_clients(&self, clients: &ClientCertificates) -> Result<(), String> {
        let _changing = self.changing.lock();
        let text = serde_json::to_vec(clients).expect("the settings are plain data");
        write(&self.folder.join("clients.json"), &text)?;
        self.read_state()
    }

    /// Returns the settings for client certificates.
    pub fn clients(&self) -> ClientCertificates {
        self.state.read().clients.clone()
    }

    /// Returns the trusted authorities, the own one first.
    pub fn trusted(&self) -> Vec<Trusted> {
        self.state.read().trusted.clone()
    }

    /// Returns the node's certificate, and true if it was generated.
    pub fn certificate(&self) -> (Description, bool) {
        let state = self.state.read();
        let about = certificate::describe(&state.chain[0]);
        (about.expect("the certificate was read when the state was"), state.generated)
    }

    fn read_state(&self) -> Result<(), String> {
        let state = State::read(&self.folder, self.files.as_ref(), &self.names, self.security())?;
        *self.state.write() = Arc::new(state);
        Ok(())
    }
}

fn read_authority(path: &Path) -> Result<Authority, String> {
    let put_back =
        "put the file back from a copy, or remove it: clients then need the new tls/ca.pem";
    Authority::read(&read(path)?)
        .map_err(|reason| format!("{}: {reason}: {put_back}", path.display()))
}

/// Replaces an expired authority by a new one, or by the previous one if that is valid: then the clock was wrong when
/// it was replaced, and clients know it. An authority that is not valid yet stays, because the clock is slow.
fn renew_authority(folder: &Path, name: &str) -> Result<(), String> {
    let (path, path_before) = (folder.join(AUTHORITY), folder.join(BEFORE));
    let now = read_authority(&path)?;
    let validity = now.validity();
    if validity == Validity::Valid {
        return Ok(());
    }
    let before = read(&path_before).ok().and_then(|pem| Authority::read(&pem).ok());
    if let Some(before) = before.filter(|before| before.validity() == Validity::Valid) {
        tracing::warn!(
            "the node's own authority is not valid now: using the previous one, which is"
        );
        write(&path_before, now.secret_pem().as_bytes())?;
        return write(&path, before.secret_pem().as_bytes());
    }
    if validity == Validity::Early {
        tracing::warn!(
            "the node's own authority ({AUTHORITY}) is not valid yet: the clock of this machine is behind; clients whose clocks are right \
             can connect with TLS"
        );
        return Ok(());
    }
    tracing::warn!(
        "the node's own authority ({AUTHORITY}) has expired and was replaced: give clients the new certificate, tls/ca.pem"
    );
    let renewed = Authority::generate(name)?;
    write(&path_before, now.secret_pem().as_bytes())?;
    write(&path, renewed.secret_pem().as_bytes())
}

impl State {
    fn read(
        folder: &Path,
        files: Option<&Files>,
        names: &[String],
        security: Security,
    ) -> Result<State, String> {
        let authority = read_authority(&folder.join(AUTHORITY))?;
        let own = Trusted::new(0, authority.certificate())?;
        write(&folder.join("ca.pem"), own.about.pem.as_bytes())?;
        let kept = Files { chain: folder.join(GIVEN), key: folder.join(GIVEN) };
        let files = files.or_else(|| kept.chain.exists().then_some(&kept));
        let identity = match files {
            Some(files) => Identity::read(&read(&files.chain)?, &read(&files.key)?)
                .map_err(|reason| format!("{}: {reason}", files.chain.display()))?,
            None => authority.issue(names)?,
        };
        let mut trusted = vec![own];
        for path in files_in(&folder.join("trusted"))? {
            if let Some(id) = id_of(&path) {
                let der = certificate::read_certificates(&read(&path)?)?.swap_remove(0);
                trusted.push(Trusted::new(id, der)?);
            }
        }
        trusted.sort_by_key(|trusted| trusted.id);
        let clients = match fs::read(folder.join("clients.json")) {
            Ok(stored) => serde_json::from_slice(&stored)
                .map_err(|error| format!("clients.json cannot be read: {error}"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => ClientCertificates::default(),
            Err(error) => return Err(format!("clients.json cannot be read: {error}")),
        };
        let (chain, generated) = (identity.chain.clone(), files.is_none());
        let config = Arc::new(configure(identity, &trusted, clients.state, &security)?);
        Ok(State { config, chain, generated, trusted, clients, security })
    }
}

impl Trusted {
    fn new(id: u32, der: CertificateDer<'static>) -> Result<Trusted, String> {
        Ok(Trusted { id, about: certificate::describe(&der)?, der })
    }
}

/// Returns the TLS configuration with the versions and suites of `security`.
fn configure(
    identity: Identity,
    trusted: &[Trusted],
    demand: Demand,
    security: &Security,
) -> Result<ServerConfig, String> {
    let provider = security::provider(security);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(security::versions(security))
        .map_err(|error| error.to_string())?;
    let builder = if demand == Demand::Disable {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for trusted in trusted {
            roots.add(trusted.der.clone()).map_err(|error| error.to_string())?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier =
            if demand == Demand::Enable { verifier.allow_unauthenticated() } else { verifier };
        let verifier: Arc<dyn ClientCertVerifier> =
            verifier.build().map_err(|error| error.to_string())?;
        builder.with_client_cert_verifier(verifier)
    };
    let config = builder.with_single_cert(identity.chain, identity.key);
    let mut config = config.map_err(|error| error.to_string())?;
    config.ignore_client_order = security.honor_cipher_order;
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Returns the ID of an authority from its file name; `None` for other files.
fn id_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".pem")?.parse().ok()
}

/// Returns the files of a folder by name. A missing folder has none.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let paths: Result<Vec<PathBuf>, _> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// Replaces a file atomically. Other users cannot read it, because it may be a private key.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file =
        options.create(true).write(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn store(data_dir: &Path, file: &str, made: SystemTime) {
        fs::create_dir_all(data_dir.join("tls")).unwrap();
        let authority = Authority::generate_at("test", made).unwrap();
        write(&data_dir.join("tls").join(file), authority.secret_pem().as_bytes()).unwrap();
    }

    fn stored(data_dir: &Path, file: &str) -> Vec<u8> {
        read(&data_dir.join("tls").join(file)).unwrap()
    }

    fn open(data_dir: &Path) -> Tls {
        let node_key = NodeKey::open(data_dir).unwrap();
        Tls::open(data_dir, None, vec!["localhost".into()], "new", &node_key).unwrap()
    }

    #[test]
    fn an_authority_that_has_expired_is_replaced_at_a_start() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), AUTHORITY, SystemTime::now() - 11 * YEAR);
        let old = stored(folder.path(), AUTHORITY);
        let tls = open(folder.path());
        assert_eq!(tls.trusted()[0].about.subject, "CN=nacre new");
        assert_eq!(stored(folder.path(), BEFORE), old);
        assert!(certificate::is_fresh(&tls.certificate().0));
        tls.renew().unwrap();
        assert_eq!(tls.trusted()[0].about.subject, "CN=nacre new", "it is fresh");
    }

    #[test]
    fn an_authority_that_is_not_valid_yet_stays_and_is_served() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), AUTHORITY, SystemTime::now() + 10 * YEAR);
        let old = stored(folder.path(), AUTHORITY);
        let tls = open(folder.path());
        assert_eq!(stored(folder.path(), AUTHORITY), old);
        assert_eq!(tls.trusted()[0].about.subject, "CN=nacre test");
    }

    #[test]
    fn the_authority_before_comes_back_when_the_clock_is_set_right() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), BEFORE, SystemTime::now());
        store(folder.path(), AUTHORITY, SystemTime::now() + 10 * YEAR);
        let before = stored(folder.path(), BEFORE);
        open(folder.path());
        assert_eq!(stored(folder.path(), AUTHORITY), before);
    }

    #[test]
    fn an_expired_certificate_of_the_operator_is_served_but_not_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("given.pem");
        let given = Authority::generate_at("given", SystemTime::now() - 11 * YEAR).unwrap();
        write(&path, given.secret_pem().as_bytes()).unwrap();
        let node_key = NodeKey::open(folder.path()).unwrap();
        let files = Files { chain: path.clone(), key: path.clone() };
        let tls = Tls::open(folder.path(), Some(files), Vec::new(), "new", &node_key).unwrap();
        assert_eq!(tls.certificate().0.subject, "CN=nacre given");
        let tls = open(folder.path());
        fs::create_dir_all(folder.path().join("inbox")).unwrap();
        fs::copy(&path, folder.path().join("inbox/chain.pem")).unwrap();
        fs::copy(&path, folder.path().join("inbox/pkey.key")).unwrap();
        assert!(tls.reload().unwrap_err().contains("has expired"));
    }
}
