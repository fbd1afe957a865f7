//! A small blocking client of the binary protocol.
//!
//! ```no_run
//! use nacre_conformance::kv::KvClient;
//! let mut client = KvClient::connect("127.0.0.1:11210", "user", "password", "travel")?;
//! let reply = client.set(b"k", br#"{"a":1}"#)?;
//! assert!(reply.is_success());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`dcp::Consumer`] is a connection that streams history. Use a connection in one thread only. [`KvClient::request`] waits for
//! its reply; [`KvClient::send`] and [`KvClient::receive`] pipeline. Keys have no collection prefix in calls for documents, and
//! have one, as on the wire, in [`KvClient::request`] and [`KvClient::send`].

pub mod dcp;
pub mod frame;
mod scram;

pub use frame::{Reply, Request};

use frame::{HEADER_BYTES, Incoming, body_bytes, decode, invalid};
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time limit for a reply. It is long because the machine may be compiling meanwhile.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// Features requested with HELLO: mutation tokens, xattrs, extended errors, bucket selection, JSON, flexible frames, durability,
/// collections, preserved expiry, documents created as deleted, body replacement.
pub const FEATURES: &[u16] =
    &[0x04, 0x06, 0x07, 0x08, 0x0b, 0x10, 0x11, 0x12, 0x14, 0x17, 0x18, 0x19, 0x20];

/// The login mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// With a proof of the password.
    ScramSha512,
    /// With the password itself.
    Plain,
}

/// A connection with a bucket selected.
pub struct KvClient {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    opaque: u32,
    features: Vec<u16>,
    vbucket_count: u16,
}

impl KvClient {
    /// Connects, logs in with SCRAM-SHA512 and selects `bucket`.
    ///
    /// # Errors
    /// The errors of the socket; [`io::ErrorKind::PermissionDenied`] when the server refuses the login, and
    /// [`io::ErrorKind::Other`] with the status name when it refuses anything else.
    pub fn connect(
        address: impl ToSocketAddrs,
        user: &str,
        password: &str,
        bucket: &str,
    ) -> io::Result<KvClient> {
        let mut client = KvClient::open(address)?;
        client.hello(FEATURES)?;
        client.log_in(Login::ScramSha512, user, password)?;
        client.select_bucket(bucket)?;
        Ok(client)
    }

    /// Connects without sending anything.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn open(address: impl ToSocketAddrs) -> io::Result<KvClient> {
        let writer = TcpStream::connect(address)?;
        writer.set_nodelay(true)?;
        writer.set_read_timeout(Some(REPLY_TIMEOUT))?;
        writer.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let reader = BufReader::with_capacity(64 * 1024, writer.try_clone()?);
        Ok(KvClient { reader, writer, opaque: 0, features: Vec::new(), vbucket_count: 1024 })
    }

    /// Requests `features`; [`KvClient::features`] returns the granted ones.
    ///
    /// # Errors
    /// The errors of the socket, and a refusal.
    pub fn hello(&mut self, features: &[u16]) -> io::Result<()> {
        let agent = br#"{"a":"nacre-conformance/1","i":"0000000000000001/0000000000000001"}"#;
        let value: Vec<u8> = features.iter().flat_map(|code| code.to_be_bytes()).collect();
        let reply = self.request(0x1f, 0, agent, &[], &value, 0)?;
        expect_success(&reply, "HELLO")?;
        self.features = reply
            .value
            .chunks_exact(2)
            .map(|code| u16::from_be_bytes([code[0], code[1]]))
            .collect();
        Ok(())
    }

    /// Returns the features that the server granted.
    pub fn features(&self) -> &[u16] {
        &self.features
    }

    /// Returns the number of vBuckets of the selected bucket.
    pub fn vbucket_count(&self) -> u16 {
        self.vbucket_count
    }

    /// Logs in.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] when the login is refused, [`io::ErrorKind::InvalidData`] when the server does not
    /// know the password itself, and the errors of the socket.
    pub fn log_in(&mut self, login: Login, user: &str, password: &str) -> io::Result<()> {
        let denied = |reply: &Reply| {
            let status = crate::names::status_name(reply.status);
            io::Error::new(io::ErrorKind::PermissionDenied, format!("login refused: {status}"))
        };
        if login == Login::Plain {
            let message = format!("\0{user}\0{password}");
            let reply = self.request(0x21, 0, b"PLAIN", &[], message.as_bytes(), 0)?;
            return if reply.is_success() { Ok(()) } else { Err(denied(&reply)) };
        }
        let exchange = scram::Client::new(user, password, &nonce());
        let mechanism = b"SCRAM-SHA512";
        let reply = self.request(0x21, 0, mechanism, &[], exchange.first().as_bytes(), 0)?;
        if reply.status != 0x21 {
            return Err(denied(&reply));
        }
        let (last, expected) = exchange.last(&reply.text())?;
        let reply = self.request(0x22, 0, mechanism, &[], last.as_bytes(), 0)?;
        if !reply.is_success() {
            return Err(denied(&reply));
        }
        if reply.value != expected.as_bytes() {
            return Err(invalid("the server's signature is wrong"));
        }
        Ok(())
    }

    /// Selects a bucket and reads its number of vBuckets.
    ///
    /// # Errors
    /// A refusal, and the errors of the socket.
    pub fn select_bucket(&mut self, bucket: &str) -> io::Result<()> {
        let reply = self.request(0x89, 0, bucket.as_bytes(), &[], &[], 0)?;
        expect_success(&reply, "SELECT_BUCKET")?;
        let config = self.request(0xb5, 0, &[], &[], &[], 0)?;
        expect_success(&config, "GET_CLUSTER_CONFIG")?;
        let config: serde_json::Value = serde_json::from_slice(&config.value)?;
        let map = config["vBucketServerMap"]["vBucketMap"].as_array();
        let count = map.map(Vec::len).filter(|count| (1..=1024).contains(count));
        self.vbucket_count = count.ok_or_else(|| invalid("cluster map without vBuckets"))? as u16;
        Ok(())
    }

    /// Sends a request and waits for its reply. `key` includes its collection prefix.
    ///
    /// # Errors
    /// The errors of the socket. An unsuccessful status is a reply like any other.
    pub fn request(
        &mut self,
        opcode: u8,
        vbid: u16,
        key: &[u8],
        extras: &[u8],
        value: &[u8],
        cas: u64,
    ) -> io::Result<Reply> {
        let (key, extras, value) = (key.to_vec(), extras.to_vec(), value.to_vec());
        self.call(&Request { opcode, vbid, key, extras, value, cas, ..Request::default() })
    }

    /// Like [`KvClient::request`], for a complete frame.
    ///
    /// # Errors
    /// As there, and [`io::ErrorKind::InvalidData`] when the reply is to another request.
    pub fn call(&mut self, request: &Request) -> io::Result<Reply> {
        let opaque = self.send(request)?;
        let reply = self.receive()?;
        if reply.opaque != opaque { Err(invalid("reply to another request")) } else { Ok(reply) }
    }

    /// Sends a request; returns its opaque, which the reply repeats.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn send(&mut self, request: &Request) -> io::Result<u32> {
        self.send_all(std::slice::from_ref(request))?;
        Ok(self.opaque)
    }

    /// Sends all requests in one write, so that they are in flight at the same time.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn send_all(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut frames = Vec::new();
        for request in requests {
            self.opaque = self.opaque.wrapping_add(1);
            frames.extend_from_slice(&request.encode(self.opaque));
        }
        self.writer.write_all(&frames)
    }

    /// Waits for the next reply. Ignores frames that the server sends unrequested.
    ///
    /// # Errors
    /// The errors of the socket, a timeout after [`REPLY_TIMEOUT`], [`io::ErrorKind::InvalidData`] for an invalid frame.
    pub fn receive(&mut self) -> io::Result<Reply> {
        loop {
            if let Incoming::Reply(reply) = self.receive_any()? {
                return Ok(reply);
            }
        }
    }

    /// Waits for the next frame of any kind.
    ///
    /// # Errors
    /// As for [`KvClient::receive`].
    pub fn receive_any(&mut self) -> io::Result<Incoming> {
        let mut header = [0; HEADER_BYTES];
        self.reader.read_exact(&mut header)?;
        let mut body = vec![0; body_bytes(&header)?];
        self.reader.read_exact(&mut body)?;
        decode(&header, &body)
    }

    /// Returns the vBucket of a key without a prefix.
    pub fn vbid(&self, key: &[u8]) -> u16 {
        vbid(key, self.vbucket_count)
    }

    /// Returns the key in its wire form: with the collection ID as a prefix if collections were negotiated.
    pub fn wire_key(&self, collection: u32, key: &[u8]) -> Vec<u8> {
        let mut wire = if self.features.contains(&0x12) { leb128(collection) } else { Vec::new() };
        wire.extend_from_slice(key);
        wire
    }

    /// Returns the ID of a collection, named `scope.collection`.
    ///
    /// # Errors
    /// [`io::ErrorKind::Other`] with the status name when the collection does not exist, and the errors of the socket.
    pub fn collection_id(&mut self, name: &str) -> io::Result<u32> {
        let reply = self.request(0xbb, 0, &[], &[], name.as_bytes(), 0)?;
        expect_success(&reply, "GET_COLLECTION_ID")?;
        let id =
            reply.extras.get(8..12).ok_or_else(|| invalid("reply without the collection's id"))?;
        Ok(id.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    /// Sends a request for a document of the default collection.
    ///
    /// # Errors
    /// As [`KvClient::request`].
    pub fn document(
        &mut self,
        opcode: u8,
        key: &[u8],
        extras: &[u8],
        value: &[u8],
        cas: u64,
    ) -> io::Result<Reply> {
        self.request(opcode, self.vbid(key), &self.wire_key(0, key), extras, value, cas)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// As [`KvClient::request`], here and below.
    pub fn get(&mut self, key: &[u8]) -> io::Result<Reply> {
        self.document(0x00, key, &[], &[], 0)
    }

    /// Writes a document and marks it as JSON.
    ///
    /// # Errors
    /// As [`KvClient::request`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<Reply> {
        self.document(0x01, key, &[2, 0, 0, 0, 0, 0, 0, 0], value, 0)
    }

    /// Writes a document that must not exist.
    ///
    /// # Errors
    /// As [`KvClient::request`].
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> io::Result<Reply> {
        self.document(0x02, key, &[2, 0, 0, 0, 0, 0, 0, 0], value, 0)
    }

    /// Writes a document that must exist; `cas` 0 matches any version.
    ///
    /// # Errors
    /// As [`KvClient::request`].
    pub fn replace(&mut self, key: &[u8], value: &[u8], cas: u64) -> io::Result<Reply> {
        self.document(0x03, key, &[2, 0, 0, 0, 0, 0, 0, 0], value, cas)
    }

    /// Deletes a document; `cas` 0 matches any version.
    ///
    /// # Errors
    /// As [`KvClient::request`].
    pub fn delete(&mut self, key: &[u8], cas: u64) -> io::Result<Reply> {
        self.document(0x04, key, &[], &[], cas)
    }
}

fn expect_success(reply: &Reply, what: &str) -> io::Result<()> {
    if reply.is_success() {
        return Ok(());
    }
    let status = crate::names::status_name(reply.status);
    Err(io::Error::other(format!("{what} refused: {status} {}", reply.text())))
}

/// Returns a nonce that no other exchange on this machine uses.
fn nonce() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    format!("{time:x}-{:x}-{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the vBucket of a key out of `count`: the upper half of its CRC-32, reduced to 15 bits, modulo `count`.
pub fn vbid(key: &[u8], count: u16) -> u16 {
    let mut register = !0u32;
    for byte in key {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = (register >> 1) ^ (0xedb8_8320 * (register & 1));
        }
    }
    ((!register >> 16 & 0x7fff) % u32::from(count)) as u16
}

/// Encodes an unsigned number in LEB128.
pub fn leb128(mut value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_to_the_vbuckets_that_sdks_use() {
        let table =
            [("k1", 526), ("k2", 775), ("g1", 699), ("raw", 691), ("kd", 271), ("cnt", 454)];
        for (key, expected) in table {
            assert_eq!(vbid(key.as_bytes(), 1024), expected, "{key}");
        }
    }

    #[test]
    fn collection_ids_are_little_endian_in_groups_of_seven_bits() {
        assert_eq!(leb128(0), [0]);
        assert_eq!(leb128(8), [8]);
        assert_eq!(leb128(0x80), [0x80, 0x01]);
        assert_eq!(leb128(0xff01), [0x81, 0xfe, 0x03]);
    }
}
