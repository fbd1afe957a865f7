//! A test client of a session: sends requests as bytes, and parses the answers. The tests of nacre-node use it too.

use crate::world::Node;
use nacre_bucket::Waiter;
use nacre_bucket::kv::{Next, Peer, Session};
use nacre_types::Now;
use std::sync::Arc;

/// A logged-in connection with the bucket `b` selected.
pub struct Connection {
    pub session: Session,
    /// Arrival time of the next requests.
    pub now: Now,
}

/// The parts of an answer that the tests check.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub framing: Vec<u8>,
    pub status: u16,
    pub cas: u64,
    pub extras: Vec<u8>,
    pub value: Vec<u8>,
}

pub fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend([0; 12]);
    [&bytes, extras, key, value].concat()
}

/// A request with framing: durability level and timeout in milliseconds.
pub fn durable(level: u8, timeout_ms: u16, plain: &[u8]) -> Vec<u8> {
    let mut framing = vec![0x13, level];
    framing.extend(timeout_ms.to_be_bytes());
    let mut bytes = plain.to_vec();
    bytes[0] = 0x08;
    bytes[2] = framing.len() as u8;
    let body = u32::from_be_bytes(plain[8..12].try_into().unwrap()) + framing.len() as u32;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    bytes.splice(24..24, framing);
    bytes
}

pub fn answers(mut out: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((frame, length)) = nacre_protocol::decode(out).unwrap() {
        let (extras, value) = (frame.extras.to_vec(), frame.value.to_vec());
        let framing = frame.framing.to_vec();
        answers.push(Answer { framing, status: frame.vbid, cas: frame.cas, extras, value });
        out = &out[length..];
    }
    answers
}

/// A waiter that does nothing: tests poll the session instead.
struct Nobody;

impl Waiter for Nobody {
    fn wake(&self) {}
}

/// Returns a waiter that does nothing, for tests that poll the session.
pub fn nobody() -> Arc<dyn Waiter> {
    Arc::new(Nobody)
}

/// A client on the same machine.
pub fn local() -> Peer {
    Peer { confidential: true, ..Peer::default() }
}

impl Connection {
    pub fn open(node: &Arc<Node>) -> Connection {
        // A password that was verified before is cached, so the login needs no hashing task.
        assert!(node.users().verify("admin", "password").is_some());
        let mut connection = Connection {
            session: Session::new(Arc::clone(node) as _, local(), nobody()),
            now: nacre_bucket::BucketEnv::now(&**node),
        };
        assert_eq!(connection.ask(&request(0x1f, b"", b"test", &[0, 0x04])).status, 0);
        assert_eq!(connection.ask(&request(0x21, b"", b"PLAIN", b"\0admin\0password")).status, 0);
        assert_eq!(connection.ask(&request(0x89, b"", b"b", b"")).status, 0);
        connection
    }

    /// Gives bytes to the session. Returns the answers, the number of consumed bytes, and the next action.
    pub fn give(&mut self, input: &[u8]) -> (Vec<Answer>, usize, Next) {
        let mut out = Vec::new();
        let (consumed, next) = self.session.receive(input, &mut out, self.now);
        (answers(&out), consumed, next)
    }

    /// Returns the answers to parked requests.
    pub fn resume(&mut self) -> Vec<Answer> {
        let mut out = Vec::new();
        self.session.resume(&mut out, self.now);
        answers(&out)
    }

    pub fn ask(&mut self, request: &[u8]) -> Answer {
        let (mut answers, _, _) = self.give(request);
        answers.pop().expect("a loud request has an answer")
    }

    pub fn set(&mut self, key: &str, value: &str) -> Answer {
        self.ask(&request(0x01, &[0; 8], key.as_bytes(), value.as_bytes()))
    }

    pub fn get(&mut self, key: &str) -> Answer {
        self.ask(&request(0x00, b"", key.as_bytes(), b""))
    }
}
