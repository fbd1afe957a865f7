//! The key that identifies this node to others, and the encryption of connections between nodes.
//!
//! ```text
//! a node ──► a TLS port of another one          ALPN: "nacre/2" for management, "nacre-dcp/1" for copies of documents
//!            both present bare public keys      TLS 1.3, RFC 7250
//!            both compare its SHA-256 with the fingerprint that the cluster has agreed on
//! ```
//!
//! There is no authority, name or date: membership does not depend on anything that an operator provides, renews or
//! lets expire. The connecting node checks the fingerprint within the handshake, before it sends anything. The other
//! node accepts any key whose possession the peer proves, and decides afterwards which requests it allows, because a
//! joining node is not a member yet.

use nacre_cluster::Fingerprint;
use rcgen::{KeyPair, PublicKeyData};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
};

/// Name of the key's file in the TLS folder.
const FILE: &str = "node-key.pem";
/// How long the system tries to send bytes to a lost machine.
const UNSENT_MAX: Duration = Duration::from_secs(5);
/// Size of a read: rustls alone would make one system call for each 4 KiB.
const READ_BYTES: usize = 64 << 10;
/// A required server name, which is neither sent nor compared.
const NAME: &str = "node.invalid";

/// Purpose of a node's connection to a TLS port. Ports with another protocol for clients accept no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// HTTP requests, and links.
    Management,
    /// Replication of documents, over the binary protocol.
    Copies,
}

impl Purpose {
    /// Returns the protocol's name in the handshake (ALPN, RFC 7301).
    pub fn protocol(self) -> &'static [u8] {
        match self {
            Purpose::Management => b"nacre/2",
            Purpose::Copies => b"nacre-dcp/1",
        }
    }
}

/// The key of this node.
pub struct NodeKey {
    fingerprint: Fingerprint,
    certified: Arc<CertifiedKey>,
    provider: Arc<CryptoProvider>,
}

impl NodeKey {
    /// Reads the key in the TLS folder, or creates it at a first start.
    ///
    /// # Errors
    /// The problem with the file, as a sentence.
    pub fn open(data_dir: &Path) -> Result<NodeKey, String> {
        let folder = data_dir.join("tls");
        nacre_store::create_private_directory(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let path = NodeKey::path(data_dir);
        if !path.exists() {
            let key = KeyPair::generate().map_err(|error| error.to_string())?;
            super::write(&path, key.serialize_pem().as_bytes())?;
        }
        let unusable = |reason: String| {
            format!(
                "{} is unusable: {reason}: put it back from a copy, or remove it; then a cluster has to remove the node and add it again",
                path.display()
            )
        };
        NodeKey::read(&super::read(&path)?).map_err(unusable)
    }

    /// Returns the path of the key's file.
    pub fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("tls").join(FILE)
    }

    fn read(pem: &[u8]) -> Result<NodeKey, String> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
        let public = KeyPair::try_from(&key).map_err(|error| error.to_string())?;
        let public = public.subject_public_key_info();
        let signer = ring::sign::any_supported_type(&key).map_err(|error| error.to_string())?;
        let certified = CertifiedKey::new(vec![CertificateDer::from(public.clone())], signer);
        Ok(NodeKey {
            fingerprint: fingerprint(&public),
            certified: Arc::new(certified),
            provider: Arc::new(provider()),
        })
    }

    /// Returns the fingerprint by which other nodes recognise this one.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Connects to a node at `address` with TLS. With `expected`, fails if the peer has another key; without, trusts
    /// the key that the peer presents, as SSH does for an unknown host. Returns the peer's key.
    ///
    /// # Errors
    /// The reason of the failure, as a sentence.
    pub async fn connect(
        &self,
        address: &str,
        purpose: Purpose,
        expected: Option<Fingerprint>,
    ) -> Result<(TlsStream<BufReader<TcpStream>>, Fingerprint), String> {
        let failed = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(UNSENT_MAX)).map_err(failed)?;
        let connector = TlsConnector::from(Arc::new(self.client(purpose, expected)?));
        let name = ServerName::try_from(NAME).map_err(|error| error.to_string())?;
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        let shown = shown(stream.get_ref().1.peer_certificates());
        let shown = shown.ok_or_else(|| format!("{address} has shown no key"))?;
        Ok((stream, shown))
    }

    /// Disables session resumption, because the peer may have been removed from the cluster since a session began.
    fn client(
        &self,
        purpose: Purpose,
        expected: Option<Fingerprint>,
    ) -> Result<ClientConfig, String> {
        let keys = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.certified));
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.verifier(expected)))
            .with_client_cert_resolver(Arc::new(keys));
        config.alpn_protocols = vec![purpose.protocol().to_vec()];
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// Returns the settings for connections of other nodes.
    pub(super) fn server(&self, purpose: Purpose) -> Result<ServerConfig, String> {
        let keys = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.certified));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(Arc::new(self.verifier(None)))
            .with_cert_resolver(Arc::new(keys));
        config.alpn_protocols = vec![purpose.protocol().to_vec()];
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn verifier(&self, expected: Option<Fingerprint>) -> Verifier {
        Verifier { expected, algorithms: self.provider.signature_verification_algorithms }
    }
}

/// Nodes prefer AES-128: it is the fastest on processors, and no practical attack is known.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    let is_first =
        |suite: &SupportedCipherSuite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| !is_first(suite));
    provider
}

/// Returns the fingerprint of a public key in DER.
fn fingerprint(public: &[u8]) -> Fingerprint {
    Fingerprint(Sha256::digest(public).into())
}

/// Returns the fingerprint of the key whose possession the peer has proved.
pub(super) fn shown(keys: Option<&[CertificateDer<'_>]>) -> Option<Fingerprint> {
    keys?.first().map(|key| fingerprint(key))
}

/// Verifies that the peer possesses its key, and that the key is the expected one if given.
#[derive(Debug)]
struct Verifier {
    expected: Option<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        let shown = fingerprint(key);
        match self.expected {
            Some(expected) if expected != shown => Err(Error::General(format!(
                "another node answers at this address: its key is {shown}, not {expected}"
            ))),
            _ => Ok(()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// Nodes support only TLS 1.3.
fn too_old() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("nodes do not speak TLS 1.2".into()))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Tls;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn key() -> (tempfile::TempDir, Arc<NodeKey>) {
        let folder = tempfile::tempdir().unwrap();
        let key = NodeKey::open(folder.path()).unwrap();
        (folder, Arc::new(key))
    }

    #[test]
    fn a_key_is_made_once_and_a_damaged_one_is_no_key() {
        let (folder, key) = key();
        let again = NodeKey::open(folder.path()).unwrap();
        assert_eq!(again.fingerprint(), key.fingerprint());
        let path = folder.path().join("tls").join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(NodeKey::read(text.as_bytes()).unwrap().fingerprint(), key.fingerprint());
        std::fs::write(&path, &text[..text.len() / 2]).unwrap();
        let refused = NodeKey::open(folder.path()).err().unwrap();
        assert!(refused.contains("node-key.pem is unusable"), "{refused}");
    }

    /// Accepts one connection for management. Returns the key that the peer presented.
    async fn take(
        key: &Arc<NodeKey>,
    ) -> (String, tokio::task::JoinHandle<Result<Option<Fingerprint>, String>>) {
        let folder = tempfile::tempdir().unwrap();
        let tls = Tls::open(folder.path(), None, vec!["localhost".into()], "test", key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let taken = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (mut stream, shown) = tls.accept(stream, Some(Purpose::Management)).await?;
            stream.write_all(b"welcome").await.map_err(|error| error.to_string())?;
            stream.flush().await.map_err(|error| error.to_string())?;
            Ok(shown.key)
        });
        (address, taken)
    }

    #[tokio::test]
    async fn nodes_show_each_other_their_keys() {
        let ((_a, first), (_b, second)) = (key(), key());
        for expected in [Some(second.fingerprint()), None] {
            let (address, taken) = take(&second).await;
            let (mut stream, shown) =
                first.connect(&address, Purpose::Management, expected).await.unwrap();
            let mut text = [0; 7];
            stream.read_exact(&mut text).await.unwrap();
            assert_eq!((shown, &text), (second.fingerprint(), b"welcome"));
            assert_eq!(taken.await.unwrap(), Ok(Some(first.fingerprint())));
        }
    }

    #[tokio::test]
    async fn there_is_no_connection_to_a_node_with_another_key_or_for_what_it_does_not_serve() {
        let ((_a, first), (_b, second)) = (key(), key());
        for (purpose, expected, words) in [
            (
                Purpose::Management,
                Some(first.fingerprint()),
                "another node answers at this address",
            ),
            // A port that does not serve nodes presents the certificate for clients.
            (Purpose::Copies, Some(second.fingerprint()), "HandshakeFailure"),
        ] {
            let (address, taken) = take(&second).await;
            let refused = first.connect(&address, purpose, expected).await.err().unwrap();
            assert!(refused.contains(words), "{refused}");
            assert!(taken.await.unwrap().is_err());
        }
    }
}
