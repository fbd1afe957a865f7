//! A connection to a node: a WebSocket, with TLS or without, that never blocks once it is
//! connected.

use super::options::SyncOptions;
use crate::Error;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nacre_sync::Hello;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Request;
use tungstenite::http::{HeaderValue, StatusCode, Uri};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Bytes, HandshakeError, Message, WebSocket};

/// Time limit for one address to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for each step of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes of a message to the hub.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum bytes of a message from the hub.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The protocol name that devices and hubs exchange when they connect.
pub const PROTOCOL: &str = "nacre-sync-1";

/// The address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// `host:port`.
    pub authority: String,
    host: String,
    port: u16,
    pub is_encrypted: bool,
}

/// The address of the hub, the bucket name and the credentials.
pub(super) struct Access {
    pub target: Target,
    path: String,
    authorization: HeaderValue,
    tls: Option<Arc<ClientConfig>>,
}

/// The reason why a connection failed.
#[derive(Debug)]
pub(super) struct Unconnected {
    pub reason: String,
    /// True if the node refuses the user, which only a person can fix.
    pub is_denied: bool,
}

impl Unconnected {
    fn of(reason: impl ToString) -> Unconnected {
        Unconnected { reason: reason.to_string(), is_denied: false }
    }
}

impl Target {
    /// Reads `host:port`.
    pub fn parse(authority: &str, is_encrypted: bool) -> Option<Target> {
        let (host, port) = authority.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = host.trim_matches(['[', ']']).to_owned();
        (!host.is_empty()).then(|| Target {
            authority: authority.to_owned(),
            host,
            port,
            is_encrypted,
        })
    }

    fn is_local(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

impl Access {
    /// Reads the address in the options.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`].
    pub fn of(options: &SyncOptions) -> Result<Access, Error> {
        let refuse = |what: String| Error::InvalidArgument(what);
        let uri: Uri =
            options.url.parse().map_err(|error| refuse(format!("{}: {error}", options.url)))?;
        let is_encrypted = match uri.scheme_str() {
            Some("https" | "wss") => true,
            Some("http" | "ws") => false,
            _ => return Err(refuse(format!("{} begins with neither https nor http", options.url))),
        };
        let bucket = uri.path().trim_matches('/');
        if bucket.is_empty() || bucket.contains('/') {
            return Err(refuse(format!(
                "{} names no bucket: https://host:18091/bucket",
                options.url
            )));
        }
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 18091 } else { 8091 });
        let target = Target::parse(&format!("{host}:{port}"), is_encrypted);
        let target = target.ok_or_else(|| refuse(format!("{} names no host", options.url)))?;
        if !is_encrypted && !target.is_local() && !options.allows_plain {
            let what = "the password would cross a network as it is: use https, or allow_plain";
            return Err(refuse(what.to_owned()));
        }
        if options.device.is_empty() || options.device.len() > 64 {
            return Err(refuse("the name of a device has 1 to 64 bytes".into()));
        }
        let login = BASE64_STANDARD.encode(format!("{}:{}", options.user, options.password));
        let mut authorization =
            HeaderValue::from_str(&format!("Basic {login}")).expect("Base64 is text");
        authorization.set_sensitive(true);
        let path = format!("/_sync/{bucket}");
        let tls = if is_encrypted { Some(trust(options)?) } else { None };
        Ok(Access { target, path, authorization, tls })
    }

    fn request(&self, target: &Target) -> Result<Request, Unconnected> {
        let uri = format!("ws://{}{}", target.authority, self.path);
        let mut request = uri.into_client_request().map_err(Unconnected::of)?;
        let headers = request.headers_mut();
        headers.insert("authorization", self.authorization.clone());
        headers.insert("sec-websocket-protocol", HeaderValue::from_static(PROTOCOL));
        Ok(request)
    }

    /// Connects, and reads the first message.
    ///
    /// # Errors
    /// [`Unconnected`].
    pub fn connect(&self, target: &Target) -> Result<(Socket, Hello), Unconnected> {
        let stream = dial(target)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let request = self.request(target)?;
        let answer = tungstenite::client::client_with_config(
            request,
            self.encrypt(target, stream)?,
            Some(config),
        );
        let (mut socket, _) = answer.map_err(|error| match error {
            HandshakeError::Failure(tungstenite::Error::Http(answer)) => {
                let status = answer.status();
                // Excludes the login page of a captive portal.
                let is_nodes = answer.headers().get("server").is_some_and(|it| it == "nacre");
                let refusals = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
                let is_denied = is_nodes && refusals.contains(&status);
                let reason = match status {
                    StatusCode::UNAUTHORIZED => "the user or the password is wrong".to_owned(),
                    StatusCode::FORBIDDEN => "the user has no right to the bucket".to_owned(),
                    status => format!("the node answers {status}"),
                };
                Unconnected { reason, is_denied }
            }
            HandshakeError::Failure(error) => Unconnected::of(error),
            HandshakeError::Interrupted(_) => Unconnected::of("the node does not answer"),
        })?;
        let hello = loop {
            match socket.read().map_err(Unconnected::of)? {
                Message::Text(text) => {
                    break serde_json::from_str(&text).map_err(Unconnected::of)?;
                }
                Message::Ping(_) | Message::Pong(_) => {}
                _ => return Err(Unconnected::of("the node has sent no greeting")),
            }
        };
        let socket = Socket { socket, wants_write: false };
        socket.tcp().set_nonblocking(true).map_err(Unconnected::of)?;
        Ok((socket, hello))
    }

    fn encrypt(&self, target: &Target, stream: TcpStream) -> Result<Stream, Unconnected> {
        let Some(tls) = self.tls.as_ref().filter(|_| target.is_encrypted) else {
            return Ok(Stream::Plain(stream));
        };
        let name = ServerName::try_from(target.host.clone()).map_err(Unconnected::of)?;
        let connection = ClientConnection::new(Arc::clone(tls), name).map_err(Unconnected::of)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, stream))))
    }
}

fn dial(target: &Target) -> Result<TcpStream, Unconnected> {
    let addresses =
        (target.host.as_str(), target.port).to_socket_addrs().map_err(Unconnected::of)?;
    let mut last = Unconnected::of(format!("{} has no address", target.host));
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                let set = stream.set_nodelay(true);
                let set = set.and_then(|()| stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)));
                set.and_then(|()| stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT)))
                    .map_err(Unconnected::of)?;
                return Ok(stream);
            }
            Err(error) => last = Unconnected::of(format!("{}: {error}", target.authority)),
        }
    }
    Err(last)
}

/// Returns the TLS configuration.
fn trust(options: &SyncOptions) -> Result<Arc<ClientConfig>, Error> {
    let refuse = |what: String| Error::InvalidArgument(format!("certificates: {what}"));
    let mut roots = RootCertStore::empty();
    match &options.certificates {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
                roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(refuse("the text contains no certificate".into()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// An open connection.
pub(super) struct Socket {
    socket: WebSocket<Stream>,
    wants_write: bool,
}

impl Socket {
    fn tcp(&self) -> &TcpStream {
        match self.socket.get_ref() {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }

    /// Returns the descriptor to wait for.
    pub fn descriptor(&self) -> RawFd {
        self.tcp().as_raw_fd()
    }

    /// Returns true if bytes wait for space in the socket's buffer.
    pub fn wants_write(&self) -> bool {
        self.wants_write
    }

    /// Returns the bytes of the next message, if one has arrived.
    ///
    /// # Errors
    /// The connection has ended, or the bytes are not valid messages.
    pub fn receive(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => return Ok(Some(bytes)),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Text(_)) => return Err("the node sends text".into()),
                Ok(Message::Close(_)) => return Err("the node has closed the connection".into()),
                Err(error) if is_blocked(&error) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Sends as many bytes as the socket accepts, and removes them from `output`.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, output: &mut Vec<u8>) -> Result<(), String> {
        self.flush()?;
        while !output.is_empty() && !self.wants_write {
            let length = output.len().min(PIECE_BYTES);
            let piece = Bytes::copy_from_slice(&output[..length]);
            output.drain(..length);
            // A message that does not fit is kept and sent first next time.
            match self.socket.write(Message::Binary(piece)) {
                Err(error) if !is_blocked(&error) => return Err(error.to_string()),
                _ => self.flush()?,
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        match self.socket.flush() {
            Ok(()) => self.wants_write = false,
            Err(error) if is_blocked(&error) => self.wants_write = true,
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Closes the connection as far as possible without waiting.
    pub fn close(mut self) {
        let _ = self.socket.close(None).and_then(|()| self.socket.flush());
    }
}

fn is_blocked(error: &tungstenite::Error) -> bool {
    matches!(error, tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_refused_by_name() {
        let of = |url: &str| Access::of(&SyncOptions::new(url));
        let access = of("http://127.0.0.1/travel").unwrap();
        assert_eq!((access.target.port, access.path.as_str()), (8091, "/_sync/travel"));
        let access = of("https://[::1]:9/b/").unwrap();
        assert_eq!((access.target.host.as_str(), access.target.port), ("::1", 9));
        for (url, what) in [
            ("ftp://h/b", "https"),
            ("https://h", "no bucket"),
            ("https://h/a/b", "no bucket"),
            ("http://example.com/b", "password"),
            ("h/b", "invalid format"),
        ] {
            let error = of(url).err().expect(url).to_string();
            assert!(error.contains(what), "{url}: {error}");
        }
        assert!(Access::of(&SyncOptions::new("http://example.com/b").allow_plain()).is_ok());
        let wrong = SyncOptions::new("https://h/b").certificates("nothing");
        assert!(Access::of(&wrong).err().unwrap().to_string().contains("certificates"));
    }
}
