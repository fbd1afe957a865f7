//! TLS: the node's certificate, the authorities it trusts, and how a connection is encrypted.
//!
//! ```text
//! data directory
//! ├─ tls/authority.pem               signs the node's certificate: certificate and key, made at the first start
//! ├─ tls/authority-before.pem        the authority before that one, which had expired
//! ├─ tls/ca.pem                      the certificate of that, for clients
//! ├─ tls/node.pem                    chain and key that an operator gave by REST, instead of one signed here
//! ├─ tls/trusted/<id>.pem            authorities whose clients are trusted, in addition to the own one
//! ├─ tls/clients.json                settings for clients' certificates
//! ├─ tls/settings-key                encrypts the settings: see [`crate::sealed`]
//! ├─ tls/node-key.pem                key that identifies this node to others: see [`node_key`]
//! └─ inbox/chain.pem, pkey.key, CA/  where an operator puts files for the node to take over
//! ```
//!
//! All of it is read into a `State`, which is replaced as a whole: a change that cannot be read leaves connections as
//! they are. A connection uses the state of its beginning.

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

/// Longest time of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The file of the node's own authority.
const AUTHORITY: &str = "authority.pem";
/// The file of the authority that had expired before the present one was made. A clock that was wrong may have said so.
const BEFORE: &str = "authority-before.pem";
/// The file of the certificate that an operator gave.
const GIVEN: &str = "node.pem";

/// An operator's own certificate: files that are read again when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate and the chain behind it, in PEM.
    pub chain: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

/// An authority whose certificates are believed.
#[derive(Clone, Debug)]
pub struct Trusted {
    /// 0 for the node's own.
    pub id: u32,
    /// The certificate.
    pub about: Description,
    der: CertificateDer<'static>,
}

/// The state of TLS at one time.
struct State {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    /// True if the node's certificate was signed here.
    generated: bool,
    trusted: Vec<Trusted>,
    clients: ClientCertificates,
    /// The versions and suites that it allows.
    security: Security,
}

/// The identity that the peer has proved in the handshake.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The user whom the client's certificate names.
    pub user: Option<String>,
    /// The key of a node, of this cluster or of none.
    pub key: Option<Fingerprint>,
}

/// TLS of a node.
pub struct Tls {
    folder: PathBuf,
    inbox: PathBuf,
    /// The operator's paths of certificate and key, if given.
    files: Option<Files>,
    /// Host names and addresses for a certificate that is signed here.
    names: Vec<String>,
    /// Tells authorities that are created here from others, for people.
    authority_name: String,
    /// Settings for connections of other nodes, for each [`Purpose`].
    management: Arc<ServerConfig>,
    copies: Arc<ServerConfig>,
    state: RwLock<Arc<State>>,
    /// Knows which versions and suites the cluster allows.
    node: OnceLock<Arc<Node>>,
    /// Held through a change of the files.
    changing: Mutex<()>,
}

impl Tls {
    /// Reads the files in `data_dir`; at a first start, creates an authority there. Nodes are shown `node_key`.
    ///
    /// # Errors
    /// The problem with a file, in a sentence.
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

    /// From now on, applies the settings of the node's cluster to clients.
    pub fn follow(&self, node: Arc<Node>) {
        // A second call is about the same node.
        let _ = self.node.set(node);
    }

    fn security(&self) -> Security {
        self.node.get().map(|node| node.cluster().settings.security.clone()).unwrap_or_default()
    }

    /// The state, which is another one when the settings of the cluster have changed.
    fn current(&self) -> Arc<State> {
        let state = Arc::clone(&self.state.read());
        if self.node.get().is_none_or(|node| node.cluster().settings.security == state.security) {
            return state;
        }
        let _changing = self.changing.lock();
        if let Err(reason) = self.read_state() {
            tracing::error!("TLS goes on with its former settings: {reason}");
        }
        Arc::clone(&self.state.read())
    }

    /// Encrypts a connection to a port. Nodes use the port for `purpose`, if they use it. Returns the connection and
    /// the peer's identity.
    ///
    /// # Errors
    /// The reason why it could not be encrypted, for the log.
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

    /// Takes over the certificate in the inbox or, if the node was given files, in these. New connections are shown it.
    ///
    /// # Errors
    /// The problem with it; the old one stays.
    pub fn reload(&self) -> Result<(), String> {
        let _changing = self.changing.lock();
        if self.files.is_none() {
            let chain = read(&self.inbox.join("chain.pem"))?;
            let key = read(&self.inbox.join("pkey.key"))?;
            Identity::read(&chain, &key)?.check_time()?;
            // In one file, so that no crash can part them.
            write(&self.folder.join(GIVEN), &[&chain[..], b"\n", &key].concat())?;
        }
        self.read_state()
    }

    /// Makes a new certificate, and a new authority if that has expired, where the present certificate is not valid any more, or half
    /// of its time is over. Nothing is done about a certificate that an operator gave. To be called now and then: the clock may be
    /// set, and the node may run for years.
    ///
    /// # Errors
    /// Fails when it cannot be stored.
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

    /// Makes a new authority and a new certificate by it, which count from now on.
    ///
    /// # Errors
    /// Fails when it cannot be stored.
    pub fn regenerate(&self, authority_name: &str) -> Result<(), String> {
        let _changing = self.changing.lock();
        let authority = Authority::generate(authority_name)?;
        write(&self.folder.join(AUTHORITY), authority.secret_pem().as_bytes())?;
        remove(&self.folder.join(BEFORE))?;
        remove(&self.folder.join(GIVEN))?;
        self.read_state()
    }

    /// Trusts the authorities of a text in PEM from now on.
    ///
    /// # Errors
    /// The problem with one of them; none is added then.
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

    /// Trusts the authorities in the folder `CA` of the inbox from now on.
    ///
    /// # Errors
    /// As for [`Tls::trust`]; those of files before the bad one are added.
    pub fn trust_inbox(&self) -> Result<(), String> {
        let folder = self.inbox.join("CA");
        for path in files_in(&folder)? {
            let pem = read(&path)?;
            self.trust(&pem).map_err(|reason| format!("{}: {reason}", path.display()))?;
        }
        Ok(())
    }

    /// Stops trusting an authority. Returns true if it was trusted; the own one always is.
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

    /// Changes the settings for clients' certificates, for new connections.
    ///
    /// # Errors
    /// Fails when they cannot be stored.
    pub fn set_clients(&self, clients: &ClientCertificates) -> Result<(), String> {
        let _changing = self.changing.lock();
        let text = serde_json::to_vec(clients).expect("the settings are plain data");
        write(&self.folder.join("clients.json"), &text)?;
        self.read_state()
    }

    /// Returns the settings for clients' certificates.
    pub fn clients(&self) -> ClientCertificates {
        self.state.read().clients.clone()
    }

    /// The authorities that are believed, the own one first.
    pub fn trusted(&self) -> Vec<Trusted> {
        self.state.read().trusted.clone()
    }

    /// The node's certificate, and whether it was signed here.
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

/// Replaces an expired authority by a new one, or by the one before if that is valid: the clock was wrong when that was
/// replaced, and clients know it. An authority that is not valid yet stays, because the clock is behind.
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
            "the node's own authority is not valid now, the one before is: it is used again"
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

/// TLS as `security` allows it.
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

/// The id of an authority, from the name of its file; `None` for other files.
fn id_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".pem")?.parse().ok()
}

/// The files of a folder, by name. A folder that does not exist has none.
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

/// Replaces a file as a whole. Others of the machine may not read it: it can be a private key.
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
    fn a_given_certificate_that_has_expired_is_served_and_not_taken_over() {
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
