//! A DCP consumer under test: its session, and the received messages as text.

use crate::world::{Node, World, local, nobody, request};
use nacre_bucket::kv::{Next, Session};
use nacre_protocol::{Frame, Magic, decode};
use std::sync::Arc;

pub const PRODUCER: u32 = 0x01;
pub const COLLECTIONS: u16 = 0x12;
pub const JSON: u16 = 0x0b;

/// A DCP connection.
pub struct Consumer {
    world: Arc<World>,
    node: Arc<Node>,
    pub session: Session,
}

/// The parameters of a stream request. The default is vBucket 0 from the beginning without an end.
#[derive(Clone, Copy)]
pub struct From<'a> {
    pub vbid: u16,
    pub flags: u32,
    pub start: u64,
    pub end: u64,
    pub uuid: u64,
    pub snapshot: (u64, u64),
    pub filter: &'a str,
}

pub const BEGINNING: From<'_> =
    From { vbid: 0, flags: 0, start: 0, end: u64::MAX, uuid: 0, snapshot: (0, 0), filter: "" };

pub fn in_vbucket(vbid: u16, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[6..8].copy_from_slice(&vbid.to_be_bytes());
    bytes
}

pub fn with_stream_id(id: u16, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[0] = 0x08;
    bytes[2] = 3;
    let body = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) + 3;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    bytes.splice(24..24, [0x22, (id >> 8) as u8, id as u8]);
    bytes
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

pub fn shown(frame: &Frame<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Version 2 markers have their fields in the value.
    let extras = if frame.extras.len() == 1 { frame.value } else { frame.extras };
    let seqno = || number(&extras[..8]);
    let what = match frame.opcode_byte {
        0x55 => format!("end {}", number(extras)),
        0x56 => {
            let kind = match extras[19] {
                0x01 => "",
                0x02 => " disk",
                0x31 => " history",
                0x32 => " disk history",
                other => panic!("a snapshot of type {other:#x}"),
            };
            let purged = match (frame.extras, extras.len()) {
                ([0], 36) => " 2.0".into(),
                ([2], 52) => format!(" purged {}", number(&extras[36..44])),
                (_, 20) => String::new(),
                other => panic!("a marker of version {other:?}"),
            };
            format!("{}..{}{kind}{purged}", seqno(), number(&extras[8..16]))
        }
        0x57 => format!("{}@{}={}", text(frame.key), seqno(), text(frame.value)),
        0x58 => format!("-{}@{}", text(frame.key), seqno()),
        0x59 => format!("expired {}@{}", text(frame.key), seqno()),
        0x5c => return "noop".into(),
        0x5f => {
            let numbers = frame.value[8..].chunks(4).map(number);
            let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
            let code = extras[11];
            format!("event {code} @{} {} [{}]", seqno(), text(frame.key), numbers.join(","))
        }
        0x64 => format!("->{}", seqno()),
        other => panic!("opcode 0x{other:02x}"),
    };
    let id = frame.frame_infos().unwrap().stream_id.map(|id| format!("#{id}"));
    format!("{}{} {what}", frame.vbid, id.unwrap_or_default())
}

impl Consumer {
    /// A connection of the administrator that has agreed on `features`.
    pub fn connect(world: &Arc<World>, node: &Arc<Node>, features: &[u16]) -> Consumer {
        // A password that was verified before is cached, so the login needs no hashing task.
        assert!(node.users().verify("admin", "password").is_some());
        let session = Session::new(Arc::clone(node) as _, local(), nobody());
        let (world, node) = (Arc::clone(world), Arc::clone(node));
        let mut consumer = Consumer { world, node, session };
        let features: Vec<u8> = features.iter().flat_map(|code| code.to_be_bytes()).collect();
        assert_eq!(consumer.ask(&request(0x1f, b"", b"test", &features)).0, 0);
        assert_eq!(consumer.ask(&request(0x21, b"", b"PLAIN", b"\0admin\0password")).0, 0);
        assert_eq!(consumer.ask(&request(0x89, b"", b"b", b"")).0, 0);
        consumer
    }

    pub fn open(world: &Arc<World>, node: &Arc<Node>) -> Consumer {
        let mut consumer = Consumer::connect(world, node, &[COLLECTIONS, JSON]);
        assert_eq!(consumer.dcp("consumer", PRODUCER), 0);
        consumer
    }

    pub fn give(&mut self, bytes: &[u8]) -> (Vec<u8>, Next) {
        let mut out = Vec::new();
        let (consumed, next) = self.session.receive(bytes, &mut out, self.node.now());
        assert_eq!(consumed, bytes.len());
        (out, next)
    }

    /// Status and value of the answer.
    pub fn ask(&mut self, bytes: &[u8]) -> (u16, Vec<u8>) {
        let (out, _) = self.give(bytes);
        let (frame, length) = decode(&out).unwrap().expect("it is answered");
        assert_eq!(length, out.len());
        assert_eq!(frame.magic, Magic::Response);
        (frame.vbid, frame.value.to_vec())
    }

    pub fn dcp(&mut self, name: &str, flags: u32) -> u16 {
        let extras = [[0; 4], flags.to_be_bytes()].concat();
        self.ask(&request(0x50, &extras, name.as_bytes(), b"")).0
    }

    pub fn control(&mut self, key: &str, value: &str) -> u16 {
        self.ask(&request(0x5e, b"", key.as_bytes(), value.as_bytes())).0
    }

    pub fn stream(&mut self, from: From<'_>) -> (u16, Vec<u8>) {
        let From { vbid, flags, start, end, uuid, snapshot, filter } = from;
        let mut extras = [flags.to_be_bytes(), [0; 4]].concat();
        for number in [start, end, uuid, snapshot.0, snapshot.1] {
            extras.extend(number.to_be_bytes());
        }
        self.ask(&in_vbucket(vbid, request(0x53, &extras, b"", filter.as_bytes())))
    }

    pub fn close(&mut self, vbid: u16) -> u16 {
        self.ask(&in_vbucket(vbid, request(0x52, b"", b"", b""))).0
    }

    /// Acknowledges bytes. A valid acknowledgement has no answer.
    pub fn acknowledge(&mut self, bytes: usize) -> Vec<u8> {
        self.give(&request(0x5d, &(bytes as u32).to_be_bytes(), b"", b"")).0
    }

    /// Returns the bytes received until the session pauses, and the next action.
    pub fn raw(&mut self) -> (Vec<u8>, Next) {
        let mut out = Vec::new();
        let mut next = Next::More;
        while self.session.is_ready() && !matches!(next, Next::Close(_)) {
            next = self.session.resume(&mut out, self.node.now());
            self.world.run_tasks();
        }
        (out, next)
    }

    pub fn received(&mut self) -> Vec<String> {
        let (out, _) = self.raw();
        let mut rest = &out[..];
        let mut messages = Vec::new();
        while let Some((frame, length)) = decode(rest).unwrap() {
            messages.push(shown(&frame));
            rest = &rest[length..];
        }
        messages
    }
}
