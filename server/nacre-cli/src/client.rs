//! A small key-value client for the tools of this binary: one connection, requests in flight as many as wanted.

use nacre_auth::ScramClient;
use nacre_protocol::{Frame, HEADER_BYTES, Opcode, Status, decode};
use nacre_types::Vbid;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// The features it asks for: SELECT_BUCKET, extended errors, flexible frames, durability and collections.
const FEATURES: [u16; 5] = [0x08, 0x07, 0x10, 0x11, 0x12];
/// First byte of a TLS alert: how a port with TLS answers a frame.
const TLS_ALERT: u8 = 0x15;
/// The feature of answers that come in whatever order.
const UNORDERED: u16 = 0x0e;

/// Bytes to and from a node, encrypted or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

/// A connection, logged in and with its bucket chosen.
pub struct Client {
    stream: Stream,
    output: Vec<u8>,
    /// Room for what is read.
    input: Vec<u8>,
    /// What was read and not yet shown.
    unread: Range<usize>,
    vbucket_count: u16,
    servers: Vec<String>,
    active: Vec<Option<usize>>,
}

/// Parts of a request; those not given are empty.
#[derive(Clone, Copy, Default)]
pub struct Request<'a> {
    /// What to do.
    pub opcode: u8,
    /// vBucket.
    pub vbid: Vbid,
    /// Echoed in the answer.
    pub opaque: u32,
    /// Framing extras, encoded; with some the frame is a flexible one, and the key at most 255 bytes long.
    pub framing: &'a [u8],
    /// Extras.
    pub extras: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl Request<'_> {
    /// Adds the bytes of the frame to `output`.
    pub fn encode(&self, output: &mut Vec<u8>) {
        let Request { opcode, vbid, opaque, framing, extras, key, value } = *self;
        let body = framing.len() + extras.len() + key.len() + value.len();
        output.reserve(HEADER_BYTES + body);
        if framing.is_empty() {
            output.extend([0x80, opcode]);
            output.extend((key.len() as u16).to_be_bytes());
        } else {
            output.extend([0x08, opcode, framing.len() as u8, key.len() as u8]);
        }
        output.extend([extras.len() as u8, 0]);
        output.extend(vbid.0.to_be_bytes());
        output.extend((body as u32).to_be_bytes());
        output.extend(opaque.to_be_bytes());
        output.extend([0; 8]);
        for part in [framing, extras, key, value] {
            output.extend_from_slice(part);
        }
    }
}

/// The parts of an answer that the tools look at.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Extras.
    pub extras: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl Answer {
    /// Whether the request was carried out.
    pub fn is_success(&self) -> bool {
        self.status == Status::Success as u16
    }
}

/// Why a request was refused, and what to do where that is known.
pub fn refusal(opcode: Opcode, status: u16) -> String {
    let is = |known: Status| status == known as u16;
    let is_write = opcode == Opcode::Set;
    let hint = match opcode {
        Opcode::SaslAuth | Opcode::SaslStep if is(Status::AuthError) => {
            ": look at the user and the password"
        }
        Opcode::SelectBucket if is(Status::AccessDenied) => {
            ": there is no such bucket, or the user may not open it"
        }
        Opcode::GetCollectionId if is(Status::InvalidArguments) => {
            ": a collection is named as scope.name"
        }
        _ if is_write && is(Status::AccessDenied) => ": the user may not write there",
        _ => "",
    };
    let known = Status::TABLE.iter().find(|(known, ..)| is(*known));
    let text = known.map_or_else(
        || format!("status 0x{status:02x}"),
        |(_, symbol, text, _)| format!("{text} ({symbol})"),
    );
    format!("{text}{hint}")
}

impl Client {
    /// Connects without login or bucket, as caches are used.
    ///
    /// # Errors
    /// When nobody listens at `address`.
    pub fn plain(address: &str) -> Result<Client, String> {
        let stream = TcpStream::connect(address).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::ConnectionRefused => ": does a node run there?",
                ErrorKind::InvalidInput => ": name host and port, as 127.0.0.1:11210",
                _ => "",
            };
            format!("cannot connect to {address}: {error}{hint}")
        })?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Client {
            stream: Stream::Plain(stream),
            output: Vec::new(),
            input: Vec::new(),
            unread: 0..0,
            vbucket_count: 1,
            servers: Vec::new(),
            active: Vec::new(),
        })
    }

    /// Encrypts the connection from now on.
    fn encrypt(self, address: &str, tls: &Arc<ClientConfig>) -> Result<Client, String> {
        let Stream::Plain(stream) = self.stream else { return Ok(self) };
        let cannot = |error: &dyn std::fmt::Display| format!("cannot encrypt {address}: {error}");
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| cannot(&error))?;
        let connection =
            ClientConnection::new(Arc::clone(tls), name).map_err(|error| cannot(&error))?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|error| {
                let is_unknown = error.to_string().contains("UnknownIssuer");
                let hint = if is_unknown { ": name its authority with --cacert" } else { "" };
                cannot(&format!("{error}{hint}"))
            })?;
        }
        Ok(Client { stream: Stream::Tls(Box::new(stream)), ..self })
    }

    /// Connects, logs in and chooses `bucket`.
    ///
    /// # Errors
    /// What failed, in a sentence.
    pub fn connect(
        address: &str,
        user: &str,
        password: &str,
        bucket: &str,
    ) -> Result<Client, String> {
        Client::connect_over(None, address, user, password, bucket)
    }

    /// The same, encrypted when there is `tls`: whose certificates are believed.
    ///
    /// # Errors
    /// What failed, in a sentence.
    pub fn connect_over(
        tls: Option<&Arc<ClientConfig>>,
        address: &str,
        user: &str,
        password: &str,
        bucket: &str,
    ) -> Result<Client, String> {
        let mut client = Client::plain(address)?;
        if let Some(tls) = tls {
            client = client.encrypt(address, tls)?;
        }
        client.hello(&FEATURES)?;
        client.log_in(user, password)?;
        client.expect(
            Opcode::SelectBucket,
            bucket.as_bytes(),
            b"",
            &format!("open the bucket {bucket}"),
        )?;
        let map = client.expect(Opcode::GetClusterConfig, b"", b"", "read the cluster map")?;
        let map: Value = serde_json::from_slice(&map.value)
            .map_err(|error| format!("the cluster map: {error}"))?;
        let encrypted = tls.map(|_| encrypted_servers(&map));
        let map = &map["vBucketServerMap"];
        let rows = map["vBucketMap"].as_array().into_iter().flatten();
        let place = |row: &Value| row[0].as_u64().and_then(|place| usize::try_from(place).ok());
        client.active = rows.map(place).collect();
        client.vbucket_count = u16::try_from(client.active.len()).unwrap_or(0).max(1);
        // A node that has no name leaves it to the client by which one it is reached.
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let servers = map["serverList"].as_array().into_iter().flatten();
        let servers = servers.filter_map(Value::as_str).map(str::to_owned);
        let servers = encrypted.unwrap_or_else(|| servers.collect());
        client.servers = servers.iter().map(|server| server.replace("$HOST", host)).collect();
        Ok(client)
    }

    /// The password is not sent, as nodes take one that is from their own machine only.
    fn log_in(&mut self, user: &str, password: &str) -> Result<(), String> {
        let purpose = format!("log in as {user}");
        let exchange = ScramClient::new(user, password, &rand::random::<[u8; 16]>());
        let (key, first) = (ScramClient::MECHANISM.as_bytes(), exchange.first());
        let opcode = Opcode::SaslAuth as u8;
        let challenge = self.call(Request { opcode, key, value: &first, ..Request::default() })?;
        if challenge.status != Status::AuthContinue as u16 {
            return Err(format!(
                "cannot {purpose}: {}",
                refusal(Opcode::SaslAuth, challenge.status)
            ));
        }
        let proof = exchange
            .prove(&challenge.value)
            .ok_or_else(|| format!("cannot {purpose}: the server's challenge is none"))?;
        let answer = self.expect(Opcode::SaslStep, key, &proof.message, &purpose)?;
        if answer.value == proof.signature {
            Ok(())
        } else {
            Err(format!("cannot {purpose}: the server does not know the password itself"))
        }
    }

    fn hello(&mut self, features: &[u16]) -> Result<(), String> {
        let features: Vec<u8> = features.iter().flat_map(|code| code.to_be_bytes()).collect();
        self.expect(Opcode::Hello, b"nacre", &features, "agree on features").map(drop)
    }

    /// Lets answers come in whatever order: a request that takes its time holds up no other.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn allow_any_order(&mut self) -> Result<(), String> {
        self.hello(&[&FEATURES[..], &[UNORDERED]].concat())
    }

    /// The nodes that keep the bucket, by their addresses for keys, as the map had them when the connection was made.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Which of [`Client::servers`] serves each vBucket, if one does.
    pub fn active(&self) -> &[Option<usize>] {
        &self.active
    }

    fn expect(
        &mut self,
        opcode: Opcode,
        key: &[u8],
        value: &[u8],
        purpose: &str,
    ) -> Result<Answer, String> {
        let answer =
            self.call(Request { opcode: opcode as u8, key, value, ..Request::default() })?;
        if answer.is_success() {
            Ok(answer)
        } else {
            Err(format!("cannot {purpose}: {}", refusal(opcode, answer.status)))
        }
    }

    /// The number of `scope.collection`.
    ///
    /// # Errors
    /// When there is none.
    pub fn collection_id(&mut self, path: &str) -> Result<u32, String> {
        let answer = self.expect(
            Opcode::GetCollectionId,
            b"",
            path.as_bytes(),
            &format!("find the collection {path}"),
        )?;
        let id = answer.extras.get(8..12).and_then(|bytes| bytes.try_into().ok());
        id.map(u32::from_be_bytes).ok_or_else(|| "the server's answer has no collection id".into())
    }

    /// The vBucket of a key, without its collection prefix.
    pub fn vbucket_of(&self, name: &[u8]) -> Vbid {
        Vbid::of(name, self.vbucket_count)
    }

    /// The socket and how many vBuckets the bucket has, for who exchanges frames itself.
    ///
    /// # Errors
    /// When the connection is encrypted.
    pub fn into_parts(self) -> Result<(TcpStream, u16), String> {
        match self.stream {
            Stream::Plain(stream) => Ok((stream, self.vbucket_count)),
            Stream::Tls(_) => Err("this does not go over TLS".to_owned()),
        }
    }

    /// Adds a request to those that the next [`Client::flush`] sends.
    pub fn send(&mut self, request: Request<'_>) {
        request.encode(&mut self.output);
    }

    /// Sends what was added.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn flush(&mut self) -> Result<(), String> {
        self.stream
            .write_all(&self.output)
            .map_err(|error| format!("the connection broke: {error}"))?;
        self.output.clear();
        Ok(())
    }

    /// Waits for the next answer and shows it to `look`.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn receive<T>(&mut self, look: impl FnOnce(&Frame<'_>) -> T) -> Result<T, String> {
        while !self.has_answer()? {
            self.read()?;
        }
        let (frame, length) = decode(&self.input[self.unread.clone()])
            .ok()
            .flatten()
            .ok_or("the server's answer is no frame")?;
        let seen = look(&frame);
        self.unread.start += length;
        Ok(seen)
    }

    /// Reads what has come, or waits until something has.
    fn read(&mut self) -> Result<(), String> {
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let needed = self.unread.end + READ_BYTES;
        if self.input.len() < needed {
            self.input.resize(needed.next_power_of_two(), 0);
        }
        let count = self
            .stream
            .read(&mut self.input[self.unread.end..])
            .map_err(|error| format!("the connection broke: {error}"))?;
        self.unread.end += count;
        if count == 0 { Err("the server closed the connection".into()) } else { Ok(()) }
    }

    /// Whether an answer can be had without waiting.
    ///
    /// # Errors
    /// When what was read is none.
    pub fn has_answer(&self) -> Result<bool, String> {
        decode(&self.input[self.unread.clone()])
            .map(|frame| frame.is_some())
            .map_err(|error| match self.input.get(self.unread.start) {
                Some(&TLS_ALERT) => {
                    "this port speaks TLS: name the node as https://host:18091 or couchbases://host:11207"
                        .to_owned()
                }
                _ => format!("this is not a key-value port, as 11210 is: {error}"),
            })
    }

    /// Sends one request and waits for its answer.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn call(&mut self, request: Request<'_>) -> Result<Answer, String> {
        self.send(request);
        self.flush()?;
        self.receive(|frame| Answer {
            status: frame.vbid,
            extras: frame.extras.to_vec(),
            value: frame.value.to_vec(),
        })
    }
}

/// The nodes that keep a bucket, by their encrypted addresses for keys, in the order of the map's servers.
fn encrypted_servers(map: &Value) -> Vec<String> {
    let nodes = map["nodesExt"].as_array().into_iter().flatten();
    let address = |node: &Value| {
        let host = node["hostname"].as_str().unwrap_or("$HOST");
        let port = node["services"]["kvSSL"].as_u64()?;
        Some(match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        })
    };
    let count = map["vBucketServerMap"]["serverList"].as_array().map_or(0, Vec::len);
    nodes.filter_map(address).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_refusal_says_why_and_what_to_do() {
        assert_eq!(
            refusal(Opcode::SaslAuth, 0x20),
            "Authentication failed (AUTH_ERROR): look at the user and the password"
        );
        assert_eq!(
            refusal(Opcode::SelectBucket, 0x24),
            "Not authorised (EACCESS): there is no such bucket, or the user may not open it"
        );
        assert_eq!(refusal(Opcode::GetCollectionId, 0x8c), "Unknown scope (UNKNOWN_SCOPE)");
        assert_eq!(refusal(Opcode::Set, 0x7777), "status 0x7777");
    }

    #[test]
    fn a_login_does_not_send_the_password() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = Vec::new();
            for (opcode, status) in [(Opcode::Hello, 0), (Opcode::SaslAuth, 0x20)] {
                let mut header = [0; HEADER_BYTES];
                stream.read_exact(&mut header).unwrap();
                assert_eq!(header[1], opcode as u8);
                let mut body =
                    vec![0; u32::from_be_bytes(header[8..12].try_into().unwrap()) as usize];
                stream.read_exact(&mut body).unwrap();
                seen.extend(body);
                let mut answer = [0; HEADER_BYTES];
                (answer[0], answer[1], answer[7]) = (0x81, opcode as u8, status);
                stream.write_all(&answer).unwrap();
            }
            seen
        });
        let refused = Client::connect(&address, "ann", "open sesame", "default").err().unwrap();
        assert!(refused.ends_with("look at the user and the password"), "{refused}");
        let seen = String::from_utf8_lossy(&server.join().unwrap()).into_owned();
        assert!(seen.contains("n=ann") && !seen.contains("sesame"), "{seen}");
    }
}
