//! One connection to one node.

use crate::frame::Fields;
use crate::{ClusterMap, Error, Request, Response};
use nacre_auth::ScramClient;
use nacre_protocol::{Feature, Frame, Magic, Opcode, Status, decode};
use nacre_types::Vbid;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// First byte of a TLS alert, which is the reply of a TLS port to a frame.
const TLS_ALERT: u8 = 0x15;

/// Features of a connection for reading and writing documents by key.
pub const BASIC_FEATURES: &[Feature] = &[
    Feature::SelectBucket,
    Feature::Xerror,
    Feature::AltRequest,
    Feature::SyncReplication,
    Feature::Collections,
];

/// A byte stream to and from a node, encrypted or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }
}

/// A connection to a node. [`Connection::call`] waits for the reply; with [`Connection::send`], [`Connection::flush`]
/// and [`Connection::receive`] any number of requests can be in flight.
pub struct Connection {
    stream: Stream,
    address: String,
    output: Vec<u8>,
    /// Buffer of received bytes.
    input: Vec<u8>,
    /// Range of `input` that was received and not decoded yet.
    unread: Range<usize>,
    /// Empty until a bucket is selected.
    map: ClusterMap,
}

impl Connection {
    /// Connects without login and bucket, as clients of caches do. `address` is `host:port`.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub fn open(address: &str) -> Result<Connection, Error> {
        let failed = |source| Error::Connect { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Connection {
            stream: Stream::Plain(stream),
            address: address.to_owned(),
            output: Vec::new(),
            input: Vec::new(),
            unread: 0..0,
            map: ClusterMap::default(),
        })
    }

    /// Connects, with TLS if `tls` is given, logs in, selects `bucket` and reads the cluster map.
    ///
    /// # Errors
    /// The error of the first failed step.
    pub fn connect(
        address: &str,
        tls: Option<&Arc<ClientConfig>>,
        [user, password, bucket]: [&str; 3],
        features: &[Feature],
    ) -> Result<Connection, Error> {
        let login = [user, password];
        let mut connection = Connection::connect_without_bucket(address, tls, login, features)?;
        connection.select_bucket(bucket)?;
        connection.refresh_map()?;
        Ok(connection)
    }

    /// Connects with TLS, logs in by the client certificate of `tls`, selects `bucket` and reads the cluster map.
    ///
    /// # Errors
    /// The error of the first failed step. A server that does not accept the certificate refuses the bucket, or closes the
    /// connection.
    pub fn connect_by_certificate(
        address: &str,
        tls: &Arc<ClientConfig>,
        bucket: &str,
        features: &[Feature],
    ) -> Result<Connection, Error> {
        let mut connection = Connection::open(address)?.encrypt(tls)?;
        connection.hello(features)?;
        connection.select_bucket(bucket)?;
        connection.refresh_map()?;
        Ok(connection)
    }

    /// Connects, with TLS if `tls` is given, and logs in.
    ///
    /// # Errors
    /// The error of the first failed step.
    pub fn connect_without_bucket(
        address: &str,
        tls: Option<&Arc<ClientConfig>>,
        [user, password]: [&str; 2],
        features: &[Feature],
    ) -> Result<Connection, Error> {
        let mut connection = Connection::open(address)?;
        if let Some(tls) = tls {
            connection = connection.encrypt(tls)?;
        }
        connection.hello(features)?;
        connection.log_in(user, password)?;
        Ok(connection)
    }

    /// Switches the connection to TLS.
    fn encrypt(self, tls: &Arc<ClientConfig>) -> Result<Connection, Error> {
        let Stream::Plain(stream) = self.stream else { return Ok(self) };
        let address = self.address.clone();
        let cannot = |error: &dyn std::fmt::Display| Error::Encrypt {
            address: address.clone(),
            reason: error.to_string(),
        };
        let host = address.rsplit_once(':').map_or(&address[..], |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| cannot(&error))?;
        let connection =
            ClientConnection::new(Arc::clone(tls), name).map_err(|error| cannot(&error))?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|error| cannot(&error))?;
        }
        Ok(Connection { stream: Stream::Tls(Box::new(stream)), ..self })
    }

    /// Sets the timeout of a read or write on the socket; `None` waits forever.
    ///
    /// # Errors
    /// [`Error::Broken`] if the socket option cannot be set.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let socket = self.stream.socket();
        let set = socket.set_read_timeout(timeout).and_then(|()| socket.set_write_timeout(timeout));
        set.map_err(Error::Broken)
    }

    /// Negotiates features with the server, in addition to those negotiated before.
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn hello(&mut self, features: &[Feature]) -> Result<(), Error> {
        let features: Vec<u8> =
            features.iter().flat_map(|feature| (*feature as u16).to_be_bytes()).collect();
        self.expect(Opcode::Hello, b"nacre", &features, "agree on features").map(drop)
    }

    /// Allows replies in any order, so that a slow request does not delay others.
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn allow_any_order(&mut self) -> Result<(), Error> {
        self.hello(&[BASIC_FEATURES, &[Feature::UnorderedExecution]].concat())
    }

    /// Logs in with a proof of the password, and verifies the server's proof.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Login`], and the errors of the connection.
    pub fn log_in(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let purpose = format!("log in as {user}");
        let exchange = ScramClient::new(user, password, &rand::random::<[u8; 16]>());
        let (key, first) = (ScramClient::MECHANISM.as_bytes(), exchange.first());
        let opcode = Opcode::SaslAuth as u8;
        let challenge = self.call(Request { opcode, key, value: &first, ..Request::default() })?;
        if challenge.status != Status::AuthContinue as u16 {
            let (opcode, status) = (Opcode::SaslAuth, challenge.status);
            return Err(Error::Refused { purpose, opcode, status });
        }
        let proof = exchange.prove(&challenge.value).ok_or_else(|| Error::Login {
            purpose: purpose.clone(),
            reason: "the server's challenge is malformed",
        })?;
        let answer = self.expect(Opcode::SaslStep, key, &proof.message, &purpose)?;
        if answer.value == proof.signature {
            Ok(())
        } else {
            Err(Error::Login { purpose, reason: "the server does not know the password itself" })
        }
    }

    /// Selects the bucket for later requests.
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn select_bucket(&mut self, bucket: &str) -> Result<(), Error> {
        let purpose = format!("open the bucket {bucket}");
        self.expect(Opcode::SelectBucket, bucket.as_bytes(), b"", &purpose).map(drop)
    }

    /// Asks the node for the cluster map of the bucket.
    ///
    /// # Errors
    /// A refusal, a malformed map, and the errors of the connection.
    pub fn refresh_map(&mut self) -> Result<&ClusterMap, Error> {
        let map = self.expect(Opcode::GetClusterConfig, b"", b"", "read the cluster map")?;
        self.map = ClusterMap::read(&map.value, &self.address, self.is_encrypted())?;
        Ok(&self.map)
    }

    /// Asks the node for the UUID of the selected bucket; `None` if the node does not report it. A later bucket of the
    /// same name has a different UUID.
    ///
    /// # Errors
    /// A refusal, a malformed answer, and the errors of the connection.
    pub fn bucket_uuid(&mut self) -> Result<Option<String>, Error> {
        let map = self.expect(Opcode::GetClusterConfig, b"", b"", "read the cluster map")?;
        let map: serde_json::Value = serde_json::from_slice(&map.value)
            .map_err(|_| Error::Malformed("the cluster map is not JSON".to_owned()))?;
        Ok(map["uuid"].as_str().map(str::to_owned))
    }

    /// Returns the cluster map of the bucket as of the last [`Connection::refresh_map`].
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Returns the address as given by the caller.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns true if the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Returns the ID of the collection `scope.name`.
    ///
    /// # Errors
    /// A refusal if there is no such collection, and the errors of the connection.
    pub fn collection_id(&mut self, path: &str) -> Result<u32, Error> {
        let purpose = format!("find the collection {path}");
        let answer = self.expect(Opcode::GetCollectionId, b"", path.as_bytes(), &purpose)?;
        let id = answer.extras.get(8..12).and_then(|bytes| bytes.try_into().ok());
        id.map(u32::from_be_bytes)
            .ok_or_else(|| Error::Malformed("the server's answer has no collection id".into()))
    }

    /// Returns the active vBuckets of the node with their high seqnos.
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn active_seqnos(&mut self) -> Result<Vec<(Vbid, u64)>, Error> {
        const ACTIVE: u32 = 1;
        let (opcode, extras) = (Opcode::GetAllVbSeqnos, ACTIVE.to_be_bytes());
        let answer =
            self.call(Request { opcode: opcode as u8, extras: &extras, ..Request::default() })?;
        if !answer.is_success() {
            let (purpose, status) = ("read the seqnos of vBuckets".to_owned(), answer.status);
            return Err(Error::Refused { purpose, opcode, status });
        }
        read_seqnos(&answer.value)
            .ok_or_else(|| Error::Malformed("the server's answer has no seqnos".to_owned()))
    }

    /// Sends a request without a document, and treats every status except success as an error.
    pub(crate) fn expect(
        &mut self,
        opcode: Opcode,
        key: &[u8],
        value: &[u8],
        purpose: &str,
    ) -> Result<Response, Error> {
        let answer =
            self.call(Request { opcode: opcode as u8, key, value, ..Request::default() })?;
        match answer.is_success() {
            true => Ok(answer),
            false => {
                let (purpose, status) = (purpose.to_owned(), answer.status);
                Err(Error::Refused { purpose, opcode, status })
            }
        }
    }

    /// Returns the socket, for a caller that exchanges frames itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the connection is encrypted.
    pub fn into_socket(self) -> Result<TcpStream, Error> {
        match self.stream {
            Stream::Plain(stream) => Ok(stream),
            Stream::Tls(_) => Err(Error::Invalid(
                "an encrypted connection cannot be used as a plain socket".to_owned(),
            )),
        }
    }

    /// Queues a request for the next [`Connection::flush`].
    pub fn send(&mut self, request: Request<'_>) {
        request.encode(&mut self.output);
    }

    /// Queues a success response to a request of the server.
    pub(crate) fn send_success(&mut self, opcode: Opcode, opaque: u32) {
        let from = self.output.len();
        Request { opcode: opcode as u8, opaque, ..Request::default() }.encode(&mut self.output);
        self.output[from] = Magic::Response as u8;
    }

    /// Sends the queued requests.
    ///
    /// # Errors
    /// The errors of the connection.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all(&self.output).map_err(Error::of_stream)?;
        self.output.clear();
        Ok(())
    }

    /// Waits for the next frame and passes it to `look`. Replies arrive in the order of the requests, unless
    /// [`Connection::allow_any_order`] was called.
    ///
    /// # Errors
    /// The errors of the connection, and [`Error::Malformed`].
    pub fn receive<T>(&mut self, look: impl FnOnce(&Frame<'_>) -> T) -> Result<T, Error> {
        while !self.has_answer()? {
            self.read()?;
        }
        let (frame, length) =
            decode(&self.input[self.unread.clone()]).ok().flatten().ok_or_else(|| {
                Error::Malformed("the server's answer is not a frame of the protocol".to_owned())
            })?;
        let seen = look(&frame);
        self.unread.start += length;
        Ok(seen)
    }

    /// Reads bytes that have arrived, or waits for some.
    fn read(&mut self) -> Result<(), Error> {
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        // The buffer grows with received bytes, never with the announced length of a frame.
        let needed = self.unread.end + READ_BYTES;
        if self.input.len() < needed {
            self.input.resize(needed.next_power_of_two(), 0);
        }
        let count =
            self.stream.read(&mut self.input[self.unread.end..]).map_err(Error::of_stream)?;
        self.unread.end += count;
        if count == 0 { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns true if a frame can be read without waiting.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the received bytes are not a frame.
    pub fn has_answer(&self) -> Result<bool, Error> {
        decode(&self.input[self.unread.clone()])
            .map(|frame| frame.is_some())
            .map_err(|error| Error::Malformed(match self.input.get(self.unread.start) {
                Some(&TLS_ALERT) => {
                    "this port speaks TLS: name the node as https://host:18091 or couchbases://host:11207"
                        .to_owned()
                }
                _ => format!("this is not a key-value port, as 11210 is: {error}"),
            }))
    }

    /// Sends one request and waits for its reply.
    ///
    /// # Errors
    /// The errors of the connection, and [`Error::Malformed`].
    pub fn call(&mut self, request: Request<'_>) -> Result<Response, Error> {
        self.send(request);
        self.flush()?;
        self.receive(Response::of)
    }
}

/// Decodes pairs of vBucket and seqno.
fn read_seqnos(value: &[u8]) -> Option<Vec<(Vbid, u64)>> {
    let (entries, rest) = value.as_chunks::<10>();
    let entry = |entry: &[u8; 10]| {
        let mut fields = Fields(entry);
        Some((Vbid(fields.u16()?), fields.u64()?))
    };
    if rest.is_empty() { entries.iter().map(entry).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_protocol::HEADER_BYTES;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// Starts a server that sends `bytes` on the first connection after a header, and closes it.
    fn answering(bytes: Vec<u8>) -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; HEADER_BYTES]).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        (address, server)
    }

    fn noop(address: &str) -> Result<Response, Error> {
        let request = Request { opcode: Opcode::Noop as u8, ..Request::default() };
        Connection::open(address)?.call(request)
    }

    #[test]
    fn a_malformed_answer_is_named() {
        let mut huge = vec![0x81, 0x0a, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        huge.extend([0; 12]);
        for (bytes, expected) in [
            (
                b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
                "this is not a key-value port, as 11210 is: ",
            ),
            (vec![TLS_ALERT, 3, 3, 0, 2, 2, 70], "this port speaks TLS: "),
            (huge, "this is not a key-value port, as 11210 is: "),
            (vec![0x81; 5], "the server closed the connection"),
            (Vec::new(), "the server closed the connection"),
        ] {
            let (address, server) = answering(bytes);
            let error = noop(&address).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_refused_connection_and_an_invalid_address_are_named() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let error = noop(&free).unwrap_err().to_string();
        assert!(error.ends_with(": does a node run there?"), "{error}");
        let error = noop("localhost").unwrap_err().to_string();
        assert!(error.ends_with(": name host and port, as 127.0.0.1:11210"), "{error}");
    }

    #[test]
    fn a_server_that_does_not_answer_ends_the_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::open(&listener.local_addr().unwrap().to_string()).unwrap();
        connection.set_timeout(Some(Duration::from_millis(10))).unwrap();
        let request = Request { opcode: Opcode::Noop as u8, ..Request::default() };
        assert!(matches!(connection.call(request), Err(Error::TimedOut)));
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
        let login = ["ann", "open sesame", "default"];
        let refused = Connection::connect(&address, None, login, BASIC_FEATURES).err().unwrap();
        assert!(refused.to_string().ends_with("look at the user and the password"), "{refused}");
        assert_eq!(refused.status(), Some(0x20));
        let seen = String::from_utf8_lossy(&server.join().unwrap()).into_owned();
        assert!(seen.contains("n=ann") && !seen.contains("sesame"), "{seen}");
    }
}
