//! A consumer of the history of all vBuckets, like a connector: it follows each vBucket to its active node, resumes, and
//! rolls back on request. At the end, its documents must equal those of the cluster.

use crate::cluster::{MS, index};
use crate::frame::{self, GREETING, Request, ResponseFrame};
use crate::workload::{BUCKET, VBUCKETS};
use crate::{Chance, Cluster};
use nacre_protocol::Opcode;
use nacre_protocol::dcp::{Payload, open_flag};
use std::collections::BTreeMap;

/// Interval of checks for missing streams.
const LOOK_NS: u64 = 200 * MS;

/// The consumer's state of a vBucket.
#[derive(Default)]
struct Followed {
    wire: Option<u64>,
    /// Versions in history order: seqno, key, and CAS (`None` if deleted).
    versions: Vec<(u64, Vec<u8>, Option<u64>)>,
    /// The seqno up to which it has all versions.
    seqno: u64,
    snapshot: (u64, u64),
    /// UUIDs and first seqnos of branches, newest first.
    log: Vec<(u64, u64)>,
}

/// See the [module](self).
pub struct Reader {
    vbuckets: Vec<Followed>,
    wires: BTreeMap<usize, u64>,
    chance: Chance,
    alarm: u64,
    /// Number of rollbacks.
    pub rollbacks: u64,
}

impl Reader {
    /// Creates the consumer, which uses `alarm` for itself.
    pub fn new(chance: Chance, alarm: u64, cluster: &mut Cluster) -> Reader {
        cluster.set_alarm(1, alarm);
        let vbuckets = (0..VBUCKETS).map(|_| Followed::default()).collect();
        Reader { vbuckets, wires: BTreeMap::new(), chance, alarm, rollbacks: 0 }
    }

    /// Checks for missing streams.
    pub fn look(&mut self, cluster: &mut Cluster) {
        cluster.set_alarm(LOOK_NS, self.alarm);
        let asked = self.chance.below(cluster.len() as u64) as usize;
        if !cluster.works(asked) {
            return;
        }
        let Some(agreed) = cluster.node(asked).map(|node| node.cluster()) else { return };
        let Some(bucket) = agreed.buckets.get(BUCKET) else { return };
        for (vbid, chain) in (0..VBUCKETS).zip(&bucket.chains) {
            let (None, Some(active)) = (self.vbuckets[usize::from(vbid)].wire, chain.active())
            else {
                continue;
            };
            if let Some(wire) = self.wire(index(active), cluster) {
                self.ask(vbid, wire, cluster);
            }
        }
    }

    fn wire(&mut self, node: usize, cluster: &mut Cluster) -> Option<u64> {
        if let Some(wire) = self.wires.get(&node) {
            return Some(*wire);
        }
        let wire = cluster.connect(node)?;
        let extras = &[[0; 4], open_flag::PRODUCER.to_be_bytes()].concat();
        let open = Request { extras, ..Request::new(Opcode::DcpOpen, b"reader") };
        cluster.send(wire, [frame::greet(BUCKET), open.encode()].concat());
        self.wires.insert(node, wire);
        Some(wire)
    }

    fn ask(&mut self, vbid: u16, wire: u64, cluster: &mut Cluster) {
        let followed = &mut self.vbuckets[usize::from(vbid)];
        followed.wire = Some(wire);
        let uuid = match followed.seqno {
            0 => 0,
            _ => followed.log.first().map_or(0, |(uuid, _)| *uuid),
        };
        let (start, end) = match followed.snapshot {
            // The snapshot is complete or has not begun.
            (start, end) if end <= followed.seqno || start > followed.seqno => {
                (followed.seqno, followed.seqno)
            }
            snapshot => snapshot,
        };
        let numbers = [followed.seqno, u64::MAX, uuid, start, end].map(u64::to_be_bytes);
        let extras = [&[0; 8], numbers.as_flattened()].concat();
        let plain = Request::new(Opcode::DcpStreamRequest, b"");
        let (opaque, extras) = (u32::from(vbid), &extras[..]);
        cluster.send(wire, Request { vbid, opaque, extras, ..plain }.encode());
    }

    /// Handles received bytes. Returns false if they are not for this consumer.
    pub fn receive(&mut self, wire: u64, bytes: &[u8], cluster: &mut Cluster) -> bool {
        if !self.wires.values().any(|known| *known == wire) {
            return false;
        }
        let mut rest = bytes;
        while let Some(frame) = frame::next(&mut rest) {
            let vbid = if frame.is_answer { frame.opaque } else { u32::from(frame.status) };
            if frame.is_answer && frame.opaque == GREETING {
                if frame.status != 0 {
                    cluster.close(wire);
                    self.broken(wire);
                    return true;
                }
            } else if self.vbuckets[vbid as usize].wire == Some(wire) {
                self.take(vbid as usize, &frame);
            }
        }
        cluster.keep(wire, rest);
        true
    }

    fn take(&mut self, vbid: usize, frame: &ResponseFrame<'_>) {
        let followed = &mut self.vbuckets[vbid];
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        if frame.is_answer {
            match frame.status {
                0x00 => {
                    let entries = frame.value.chunks(16);
                    followed.log =
                        entries.map(|entry| (number(&entry[..8]), number(&entry[8..]))).collect();
                }
                0x23 => {
                    self.rollbacks += 1;
                    let to = number(frame.value);
                    assert!(to <= followed.seqno, "vb {vbid} is rolled back to {to}, ahead of it");
                    followed.versions.retain(|(seqno, ..)| *seqno <= to);
                    followed.log.retain(|(_, begins)| *begins <= to);
                    (followed.seqno, followed.snapshot) = (to, (to, to));
                    followed.wire = None;
                }
                _ => followed.wire = None,
            }
            return;
        }
        match frame.opcode {
            Payload::STREAM_END => followed.wire = None,
            Payload::SNAPSHOT_MARKER => {
                followed.snapshot = (number(&frame.extras[..8]), number(&frame.extras[8..16]));
            }
            Payload::MUTATION | Payload::DELETION | Payload::EXPIRATION => {
                let seqno = number(&frame.extras[..8]);
                assert!(
                    seqno > followed.seqno,
                    "vb {vbid} goes from {} to {seqno}",
                    followed.seqno
                );
                followed.seqno = seqno;
                let cas = (frame.opcode == Payload::MUTATION).then_some(frame.cas);
                followed.versions.push((seqno, frame.key.to_vec(), cas));
            }
            Payload::SEQNO_ADVANCED => followed.seqno = number(&frame.extras[..8]),
            _ => {}
        }
    }

    /// Handles a lost connection. Returns false if it was not this consumer's.
    pub fn broken(&mut self, wire: u64) -> bool {
        let before = self.wires.len();
        self.wires.retain(|_, known| *known != wire);
        let streams = self.vbuckets.iter_mut().filter(|followed| followed.wire == Some(wire));
        streams.for_each(|followed| followed.wire = None);
        self.wires.len() < before
    }

    /// Returns the CAS of each document of a vBucket, by key.
    pub fn documents(&self, vbid: u16) -> BTreeMap<Vec<u8>, u64> {
        let mut documents = BTreeMap::new();
        for (_, key, cas) in &self.vbuckets[usize::from(vbid)].versions {
            match cas {
                Some(cas) => drop(documents.insert(key.clone(), *cas)),
                None => drop(documents.remove(key)),
            }
        }
        documents
    }
}
