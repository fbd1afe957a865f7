//! Encrypted connections: their properties for a client, and an operator's changes without a restart.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate and its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// An authority of the operator's own.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "operator");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn sign(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Makes a node trust the clients of this authority, and demand their certificates on ports with TLS. A common name
/// `user:NAME` names a user.
pub fn demand_certificates(server: &Server, data_dir: &Path, authority: &Authority) {
    put(&data_dir.join("inbox/CA/operator.pem"), &authority.0.pem());
    let trusted = server.rest("POST", "/node/controller/loadTrustedCAs", "").unwrap();
    assert_eq!(trusted.status, 200, "{}", trusted.text());
    let settings = r#"{"state":"mandatory","prefixes":[{"path":"subject.cn","prefix":"user:"}]}"#;
    assert_eq!(server.rest("POST", "/settings/clientCertAuth", settings).unwrap().status, 202);
}

/// Connects, trusting only the authority in `pem`.
pub fn connect(
    port: u16,
    pem: &str,
    own: Option<&Pair>,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<Stream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(Pair { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Sends one request of the binary protocol; its status and value.
pub fn ask(
    stream: &mut (impl Read + Write + ?Sized),
    opcode: u8,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> std::io::Result<(u16, Vec<u8>)> {
    let mut request = vec![0x80, opcode];
    request.extend((key.len() as u16).to_be_bytes());
    request.extend([extras.len() as u8, 0, 0, 0]);
    request.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    request.extend([0; 12]);
    stream.write_all(&[&request, extras, key, value].concat())?;
    let mut header = [0; 24];
    stream.read_exact(&mut header)?;
    let mut body =
        vec![0; u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize];
    stream.read_exact(&mut body)?;
    let value = body.split_off(usize::from(header[4]) + usize::from(header[3]));
    Ok((u16::from_be_bytes([header[6], header[7]]), value))
}

fn log_in(stream: &mut Stream) -> u16 {
    let message = format!("\0{USER}\0{PASSWORD}");
    ask(stream, 0x21, b"", b"PLAIN", message.as_bytes()).unwrap().0
}

/// The status line and the body of an answer over HTTPS.
fn get(stream: &mut Stream, path: &str, headers: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn own_authority(server: &Server) -> String {
    let answer = server.rest("GET", "/pools/default/certificate", "").unwrap();
    assert_eq!(answer.status, 200);
    answer.text()
}

pub const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

#[test]
fn every_service_is_offered_with_tls_by_the_nodes_own_authority() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let authority = own_authority(&server);
    assert_eq!(std::fs::read_to_string(directory.path().join("tls/ca.pem")).unwrap(), authority);
    let services = server.rest("GET", "/pools/default/nodeServices", "").unwrap().json().unwrap();
    let services = &services["nodesExt"][0]["services"];
    let port = |name: &str| u16::try_from(services[name].as_u64().unwrap()).unwrap();
    for version in BOTH {
        let mut keys = connect(port("kvSSL"), &authority, None, &[version]).unwrap();
        assert_eq!(log_in(&mut keys), 0);
        assert_eq!(ask(&mut keys, 0x89, b"", BUCKET.as_bytes(), b"").unwrap().0, 0);
        // Longer than one record of TLS.
        let value = vec![b'7'; 100_000];
        assert_eq!(ask(&mut keys, 0x01, &[0; 8], b"k", &value).unwrap().0, 0);
        assert_eq!(ask(&mut keys, 0x00, b"", b"k", b"").unwrap(), (0, value));
        for service in ["mgmtSSL", "capiSSL"] {
            let mut http = connect(port(service), &authority, None, &[version]).unwrap();
            let (status, _) = get(&mut http, "/", "");
            assert_eq!(status, "HTTP/1.1 401 Unauthorized", "{service}");
        }
    }
    let stranger = Authority::new().0.pem();
    assert!(connect(port("kvSSL"), &stranger, None, BOTH).is_err(), "signed by somebody else");
}

#[test]
fn the_authority_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let before = own_authority(&server);
    server.stop();
    let server = Server::start(directory.path());
    assert_eq!(own_authority(&server), before);
    connect(server.port_base + 9, &before, None, BOTH).unwrap();
    let made = server.rest("POST", "/controller/regenerateCertificate", "").unwrap();
    assert_ne!(made.text(), before);
    connect(server.port_base + 9, &made.text(), None, BOTH).unwrap();
    assert!(connect(server.port_base + 9, &before, None, BOTH).is_err());
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_certificate_of_the_operator_counts_at_once_and_a_broken_one_never() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = directory.path().join("inbox");
    let server = Server::start(directory.path());
    let reload = || server.rest("POST", "/node/controller/reloadCertificate", "").unwrap();
    let own = own_authority(&server);
    let port = server.port_base + 9;
    let mut open = connect(port, &own, None, BOTH).unwrap();

    let operator = Authority::new();
    let pair = operator.sign("node");
    let answer = reload();
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("cannot read"), "{}", answer.text());
    put(&inbox.join("chain.pem"), &pair.certificate);
    put(&inbox.join("pkey.key"), &pair.key);
    assert_eq!(reload().status, 200);
    connect(port, &operator.0.pem(), None, BOTH).unwrap();
    assert_eq!(log_in(&mut open), 0, "a connection lives on with what it began with");

    put(&inbox.join("pkey.key"), &operator.sign("other").key);
    let answer = reload();
    assert_eq!(answer.status, 400);
    assert_eq!(answer.text(), "\"the private key does not belong to the certificate\"");
    connect(port, &operator.0.pem(), None, BOTH).unwrap();
    let described = server.rest("GET", "/pools/default/certificates", "").unwrap().json().unwrap();
    assert_eq!(described[0]["type"], "uploaded");
    assert_eq!(
        described[0]["pem"].as_str().unwrap().trim(),
        pair.certificate.replace("\r\n", "\n").trim()
    );

    server.stop();
    let server = Server::start_at(directory.path(), port - 9);
    connect(server.port_base + 9, &operator.0.pem(), None, BOTH).unwrap();
}

#[test]
fn a_certificate_of_a_client_logs_in_the_user_it_names() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let own = own_authority(&server);
    let (keys, management) = (server.port_base + 9, server.port_base + 11);
    let set = |state: &str| {
        let body = format!(
            r#"{{"state":"{state}","prefixes":[{{"path":"subject.cn","prefix":"user:","delimiter":""}}]}}"#
        );
        assert_eq!(server.rest("POST", "/settings/clientCertAuth", &body).unwrap().status, 202);
    };
    let operator = Authority::new();
    let client = operator.sign(&format!("user:{USER}"));
    let nobody = operator.sign("user:nobody");
    let select = |stream: &mut Stream| {
        ask(stream, 0x89, b"", BUCKET.as_bytes(), b"").map(|(status, _)| status)
    };

    put(&directory.path().join("inbox/CA/operator.pem"), &operator.0.pem());
    let trusted = server.rest("POST", "/node/controller/loadTrustedCAs", "").unwrap();
    assert_eq!(trusted.json().unwrap()[1]["id"], 1, "{}", trusted.text());
    set("enable");
    let mut stream = connect(keys, &own, Some(&client), BOTH).unwrap();
    assert_eq!(select(&mut stream).unwrap(), 0x00);
    let mut stream = connect(keys, &own, Some(&nobody), BOTH).unwrap();
    assert_eq!(select(&mut stream).unwrap(), 0x24);
    let mut stream = connect(keys, &own, None, BOTH).unwrap();
    assert_eq!(select(&mut stream).unwrap(), 0x24);
    assert_eq!(log_in(&mut stream), 0);
    let mut stream = connect(management, &own, Some(&client), BOTH).unwrap();
    let (status, body) = get(&mut stream, "/whoami", "");
    assert!(status.ends_with("200 OK") && body.contains(USER), "{status} {body}");

    set("mandatory");
    let refused = connect(keys, &own, None, BOTH).and_then(|mut stream| select(&mut stream));
    assert!(refused.is_err(), "{refused:?}");
    let mut stream = connect(keys, &own, Some(&client), BOTH).unwrap();
    assert_eq!(select(&mut stream).unwrap(), 0x00);

    assert_eq!(server.rest("DELETE", "/pools/default/trustedCAs/1", "").unwrap().status, 200);
    let refused =
        connect(keys, &own, Some(&client), BOTH).and_then(|mut stream| select(&mut stream));
    assert!(refused.is_err(), "{refused:?}");
}

/// The commands of the binary trust a node's own authority when it is passed to them, and report the missing one
/// otherwise.
#[test]
fn the_operator_sets_the_versions_and_cipher_suites_of_clients() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let authority = own_authority(&server);
    let (mgmt, kv) = (server.port_base + 11, server.port_base + 9);
    let set = |form: &str| {
        let answer = server.rest("POST", "/settings/security", form).unwrap();
        (answer.status, answer.text())
    };
    let connects = |port, version| connect(port, &authority, None, &[version]).is_ok();
    assert!(connects(mgmt, &TLS12) && connects(kv, &TLS12));
    assert_eq!(set("tlsMinVersion=tlsv1.3").0, 200);
    for port in [mgmt, kv] {
        assert!(!connects(port, &TLS12) && connects(port, &TLS13), "{port}");
    }
    // A setting that would exclude every client is refused.
    let old = "cipherSuites=%5B%22TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256%22%5D";
    assert_eq!(set(old).0, 400);
    assert_eq!(set("tlsMinVersion=tlsv1.2").0, 200);
    assert_eq!(set("cipherSuites=%5B%22TLS_AES_128_GCM_SHA256%22%5D").0, 200);
    assert!(!connects(mgmt, &TLS12));
    let stream = connect(mgmt, &authority, None, &[&TLS13]).unwrap();
    let suite = stream.conn.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite.as_str(), Some("TLS13_AES_128_GCM_SHA256"));
    let header = "responseHeaders=%7B%22Strict-Transport-Security%22%3A%22max-age%3D9%22%7D";
    assert_eq!(set(header).0, 200);
    let mut stream = connect(mgmt, &authority, None, &[&TLS13]).unwrap();
    let (head, _) = whole(&mut stream, "/pools");
    assert!(head.to_lowercase().contains("strict-transport-security: max-age=9"), "{head}");
}

/// The whole head and the body of an answer over HTTPS.
fn whole(stream: &mut Stream, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn tools_connect_to_a_node_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let services = server.rest("GET", "/pools/default/nodeServices", "").unwrap().json().unwrap();
    let services = &services["nodesExt"][0]["services"];
    let tool = |arguments: &[&str], service: &str| {
        let url = format!("https://127.0.0.1:{}", services[service]);
        let arguments = arguments.iter().map(|argument| argument.replace("URL", &url));
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nacre"));
        let output = command.args(arguments).env("NACRE_PASSWORD", PASSWORD).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let authority = directory.path().join("tls/ca.pem").display().to_string();
    let status = ["cluster", "status", "--server", "URL"];
    let (_, told, error) = tool(&[&status[..], &["--cacert", &authority]].concat(), "mgmtSSL");
    assert!(told.contains("healthy"), "{told}{error}");
    let asked = ["sh", "--url", "URL", "--cacert", &authority, "-e", "SELECT RAW 17;"];
    let (_, told, error) = tool(&asked, "n1qlSSL");
    assert!(told.contains("17"), "{told}{error}");
    let (well, _, error) = tool(&status, "mgmtSSL");
    assert!(!well && error.contains("--cacert"), "{error}");
    let node = directory.path().join("tls/node-key.pem").display().to_string();
    let (well, _, error) = tool(&[&status[..], &["--cacert", &node]].concat(), "mgmtSSL");
    assert!(!well && error.contains("node-key.pem has more than certificates"), "{error}");
    let (well, _, error) = tool(&[&status[..], &["--cacert", "none.pem"]].concat(), "mgmtSSL");
    assert!(!well && error.contains("none.pem: No such file"), "{error}");
}
