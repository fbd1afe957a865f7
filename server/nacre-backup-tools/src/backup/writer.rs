//! Writes of versions with their metadata: each goes to the node that serves its vBucket, many in flight. What is refused for a while, or was
//! on a connection that broke, is sent again: a version that has arrived is refused as one that is not newer, so that nothing happens twice.

use nacre_backup::{Record, RecordKind};
use nacre_cli::Cluster;
use nacre_client::{ClusterMap, Connection, Error, Request, describe_status};
use nacre_protocol::{Opcode, Status, version_option};
use nacre_types::{Vbid, leb128_encode};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Writes in flight to one node: their number, and their bytes.
const WINDOW: usize = 512;
const WINDOW_BYTES: usize = 4 << 20;
/// Time for which writes are repeated without one that succeeds.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause before writes are repeated.
const PAUSE: Duration = Duration::from_millis(100);
/// Writes that may wait to be repeated.
const WAITING_MAX: usize = 4096;
/// Statuses that pass by themselves: memory is short, or the vBucket has moved.
const PASSING: [Status; 5] = [
    Status::NotMyVbucket,
    Status::TemporaryFailure,
    Status::NoMemory,
    Status::Busy,
    Status::SyncWriteInProgress,
];

/// Rule for documents that the bucket has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteRule {
    /// The bucket resolves conflicts by time.
    pub by_time: bool,
    /// The backup's version replaces whatever is there, under a new CAS.
    pub force: bool,
}

/// Results of the writes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Documents and tombstones that were written.
    pub written: u64,
    /// Those that were there already, or a newer version of them.
    pub kept: u64,
}

/// A version on its way.
pub(super) struct Write {
    opcode: Opcode,
    vbid: Vbid,
    datatype: u8,
    extras: [u8; 28],
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Write {
    /// The write of a record into a collection, with an expiry in place of its own.
    pub fn of(
        record: &Record<'_>,
        vbid: Vbid,
        (collection, expiry): (u32, u32),
        rule: WriteRule,
    ) -> Write {
        let mut options = 0;
        if rule.by_time {
            options |= version_option::FORCE_ACCEPT;
        }
        if rule.force {
            options |= version_option::SKIP_CONFLICT_RESOLUTION | version_option::REGENERATE_CAS;
        }
        if record.kind == RecordKind::Expiration {
            options |= version_option::IS_EXPIRATION;
        }
        let mut extras = [0; 28];
        extras[..4].copy_from_slice(&record.flags.to_be_bytes());
        extras[4..8].copy_from_slice(&expiry.to_be_bytes());
        extras[8..16].copy_from_slice(&record.rev.to_be_bytes());
        extras[16..24].copy_from_slice(&record.cas.to_be_bytes());
        extras[24..].copy_from_slice(&options.to_be_bytes());
        let mut key = Vec::with_capacity(5 + record.key.len());
        leb128_encode(collection, &mut key);
        key.extend_from_slice(record.key);
        let opcode =
            if record.is_document() { Opcode::SetWithMeta } else { Opcode::DeleteWithMeta };
        let (datatype, value) = (record.datatype, record.value.to_vec());
        Write { opcode, vbid, datatype, extras, key, value }
    }

    /// The request as it is sent.
    pub fn request(&self) -> Request<'_> {
        Request {
            opcode: self.opcode as u8,
            vbid: self.vbid,
            datatype: self.datatype,
            extras: &self.extras,
            key: &self.key,
            value: &self.value,
            ..Request::default()
        }
    }
}

struct Node {
    address: String,
    /// None while it cannot be reached.
    connection: Option<Connection>,
    in_flight: VecDeque<Write>,
    bytes: usize,
}

/// The nodes of a bucket.
pub(super) struct Writer<'a> {
    cluster: &'a Cluster<'a>,
    bucket: String,
    rule: WriteRule,
    map: ClusterMap,
    nodes: Vec<Node>,
    waiting: Vec<Write>,
    written: Written,
}

impl<'a> Writer<'a> {
    /// Connects to a bucket.
    ///
    /// # Errors
    /// A sentence if it cannot be opened.
    pub fn open(
        cluster: &'a Cluster<'a>,
        bucket: &str,
        rule: WriteRule,
    ) -> Result<Writer<'a>, String> {
        let connection = cluster.connect_any(&[], bucket)?;
        let map = connection.map().clone();
        let bucket = bucket.to_owned();
        let (nodes, waiting, written) = (Vec::new(), Vec::new(), Written::default());
        Ok(Writer { cluster, bucket, rule, map, nodes, waiting, written })
    }

    /// Returns the results of the writes that were answered.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Adds a version. `expiry` takes the place of the record's.
    ///
    /// # Errors
    /// A sentence if an earlier one was refused.
    pub fn write(
        &mut self,
        collection: u32,
        record: &Record<'_>,
        expiry: u32,
    ) -> Result<(), String> {
        let vbid = self.map.vbucket_of(record.key);
        self.send(Write::of(record, vbid, (collection, expiry), self.rule))?;
        if self.waiting.len() >= WAITING_MAX { self.finish() } else { Ok(()) }
    }

    /// Waits until all writes are answered.
    ///
    /// # Errors
    /// A sentence if one was refused, or could not be written in time.
    pub fn finish(&mut self) -> Result<(), String> {
        let (mut begun, mut reason) = (Instant::now(), String::new());
        loop {
            for at in 0..self.nodes.len() {
                self.settle(at, 0)?;
            }
            if self.waiting.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let count = self.waiting.len();
                return Err(format!(
                    "{count} documents cannot be written to {}: {reason}",
                    self.bucket
                ));
            }
            std::thread::sleep(PAUSE);
            reason = self
                .learn()
                .err()
                .map_or_else(|| "it is full, or moves".to_owned(), |error| error.to_string());
            let before = self.waiting.len();
            for write in std::mem::take(&mut self.waiting) {
                self.send(write)?;
            }
            for at in 0..self.nodes.len() {
                self.settle(at, 0)?;
            }
            if self.waiting.len() < before {
                begun = Instant::now();
            }
        }
    }

    fn learn(&mut self) -> Result<(), Error> {
        let known = self.map.servers().to_vec();
        let connection = self.cluster.connect_any(&known, &self.bucket)?;
        self.map = connection.map().clone();
        Ok(())
    }

    /// The node that serves a vBucket, if one does.
    fn node_of(&mut self, vbid: Vbid) -> Option<usize> {
        let address = self.map.server_of(vbid)?.to_owned();
        if let Some(at) = self.nodes.iter().position(|node| node.address == address) {
            return Some(at);
        }
        let node = Node { address, connection: None, in_flight: VecDeque::new(), bytes: 0 };
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }

    fn send(&mut self, write: Write) -> Result<(), String> {
        let Some(at) = self.node_of(write.vbid) else {
            self.waiting.push(write);
            return Ok(());
        };
        if self.nodes[at].connection.is_none() {
            let address = match self.map.servers() {
                // A node that is alone is where it was reached.
                [_] => self.cluster.connect_any(&[], &self.bucket),
                _ => self.cluster.connect(&self.nodes[at].address, &self.bucket),
            };
            match address {
                Ok(connection) => self.nodes[at].connection = Some(connection),
                Err(error) if error.is_retryable() => {
                    self.waiting.push(write);
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        let node = &mut self.nodes[at];
        if let Some(connection) = &mut node.connection {
            connection.send(write.request());
        }
        node.bytes += write.value.len();
        node.in_flight.push_back(write);
        if node.in_flight.len() >= WINDOW || node.bytes >= WINDOW_BYTES {
            self.settle(at, WINDOW / 2)?;
        }
        Ok(())
    }

    /// Takes answers of a node until at most `left` writes are in flight to it, and half a window of bytes.
    fn settle(&mut self, at: usize, left: usize) -> Result<(), String> {
        let node = &mut self.nodes[at];
        let bytes_left = if left == 0 { 0 } else { WINDOW_BYTES / 2 };
        let mut flushed = node.connection.as_mut().map_or(Ok(()), Connection::flush);
        while node.in_flight.len() > left || node.bytes > bytes_left {
            let status = flushed.and_then(|()| match &mut node.connection {
                Some(connection) => connection.receive(|frame| frame.vbid),
                None => Err(Error::Closed),
            });
            flushed = Ok(());
            let status = match status {
                Ok(status) => status,
                Err(error) if error.is_retryable() => {
                    // Which of them have arrived is unknown: all are sent again.
                    node.connection = None;
                    node.bytes = 0;
                    self.waiting.extend(node.in_flight.drain(..));
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            };
            let Some(write) = node.in_flight.pop_front() else { break };
            node.bytes -= write.value.len();
            let is = |known: Status| status == known as u16;
            if is(Status::Success) {
                self.written.written += 1;
            } else if is(Status::KeyExists)
                || (is(Status::KeyNotFound) && write.opcode == Opcode::DeleteWithMeta)
            {
                self.written.kept += 1;
            } else if PASSING.iter().any(|passing| is(*passing)) {
                self.waiting.push(write);
            } else {
                let (name, why) =
                    (String::from_utf8_lossy(&write.key), describe_status(write.opcode, status));
                return Err(format!("cannot write {name:?} to {}: {why}", self.bucket));
            }
        }
        Ok(())
    }
}
