//! A peer that is not a node, with the parts of one that a test gives it: a key, the secret, the address of a node.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio_rustls::rustls::client::AlwaysResolvesClientRawPublicKeys;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{ring, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned,
};

/// Protocols of nodes on a port with TLS.
pub const MANAGEMENT: &[u8] = b"nacre/2";
pub const COPIES: &[u8] = b"nacre-dcp/1";
/// How long nodes may take for a request.
const PATIENCE: Duration = Duration::from_secs(90);

/// Bytes in both directions.
pub trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The key of a node, or of somebody else.
pub struct Key(Arc<CertifiedKey>);

impl Key {
    /// A key that no cluster knows.
    pub fn new() -> Key {
        Key::of_pem(&KeyPair::generate().unwrap().serialize_pem())
    }

    /// The key of the node with that data directory.
    pub fn of_node(data_dir: &Path) -> Key {
        Key::of_pem(&std::fs::read_to_string(data_dir.join("tls/node-key.pem")).unwrap())
    }

    fn of_pem(pem: &str) -> Key {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let public = KeyPair::try_from(&key).unwrap().subject_public_key_info();
        let signer = ring::sign::any_supported_type(&key).unwrap();
        Key(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signer)))
    }

    pub fn fingerprint(&self) -> String {
        Sha256::digest(&self.0.cert[0]).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Connects as a node does, and accepts any peer.
    pub fn connect(&self, port: u16, protocol: &[u8]) -> io::Result<Box<dyn Stream>> {
        let keys = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.0));
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_client_cert_resolver(Arc::new(keys));
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("node.invalid").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, connect(port)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Box::new(stream))
    }

    fn accept(&self, socket: TcpStream) -> io::Result<impl Stream + use<>> {
        let keys = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.0));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(Anybody))
            .with_cert_resolver(Arc::new(keys));
        config.alpn_protocols = vec![MANAGEMENT.to_vec()];
        let connection = ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(StreamOwned::new(connection, socket))
    }
}

/// Without encryption.
pub fn connect(port: u16) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

#[derive(Debug)]
struct Anybody;

impl Anybody {
    fn verify(
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms)
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only TLS 1.3 is offered")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Anybody::verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only TLS 1.3 is offered")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Anybody::verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Sends one request over HTTP. Returns its status and the bytes after the headers.
pub fn ask(
    stream: &mut dyn Stream,
    line: &str,
    login: Option<(&str, &str)>,
    headers: &str,
) -> io::Result<(u16, String)> {
    let login = login.map(|(user, password)| STANDARD.encode(format!("{user}:{password}")));
    let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
    write!(stream, "{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{login}{headers}\r\n")?;
    stream.flush()?;
    let (head, body) = message(stream)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.unwrap_or_default(), body))
}

/// Head and body of a message of HTTP.
fn message(stream: &mut dyn Stream) -> io::Result<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body)?;
    Ok((head, String::from_utf8(body).unwrap()))
}

fn answer(stream: &mut dyn Stream, status: u16, body: &str) {
    let head = format!("HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n");
    let length = body.len();
    // Fails if the reader has gone, which then has everything it needs.
    let _ = write!(stream, "{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    let _ = stream.flush();
}

/// Answers each request as a node that can be added would, with `candidate` applied to its description, until the test
/// ends; refuses the cluster that it is sent, which can be received. The port has no TLS.
pub fn newcomer(
    key: Key,
    version: u64,
    candidate: impl Fn(Value) -> Value + Send + 'static,
) -> (u16, mpsc::Receiver<Value>) {
    let [plain, encrypted] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [port, tls] = [&plain, &encrypted].map(|port| port.local_addr().unwrap().port());
    let introduction = json!({"version": version, "port": tls, "fingerprint": key.fingerprint()});
    std::thread::spawn(move || {
        for stream in plain.incoming() {
            let mut stream = stream.unwrap();
            if message(&mut stream).is_ok() {
                answer(&mut stream, 200, &introduction.to_string());
            }
        }
    });
    let (given, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let ports = json!({"mgmt": 1, "views": 2, "query": 3, "eventing": 4, "kv": 5});
        let endpoints =
            json!({"host": null, "plain": ports, "tls": ports, "fingerprint": key.fingerprint()});
        let unix_seconds = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let about = json!({
            "version": version, "cluster": "c", "nodes": 1, "buckets": 0, "endpoints": endpoints, "applied": 1,
            "unix_seconds": unix_seconds,
        });
        for socket in encrypted.incoming() {
            let Ok(mut stream) = key.accept(socket.unwrap()) else { continue };
            match message(&mut stream) {
                Ok((head, _)) if head.starts_with("get") => {
                    answer(&mut stream, 200, &candidate(about.clone()).to_string());
                }
                Ok((_, body)) => {
                    let _ = given.send(serde_json::from_str(&body).unwrap());
                    answer(&mut stream, 400, "[\"not today\"]");
                }
                Err(_) => {}
            }
        }
    });
    (port, receiver)
}
