//! Threads that keep a shadow in line with its collection: one DCP stream for each vBucket, over one connection to each node.
//!
//! A broken stream continues from its position. A vBucket whose history has branched is cleared and read from the beginning,
//! because an overwritten document cannot be restored. The connection's window provides back-pressure: a shadow without free
//! memory stops reading.

use crate::fleet::Part;
use crate::node::Node;
use crate::shadow::{Row, Shadow};
use nacre_client::{
    BASIC_FEATURES, Connection, DcpConsumer, Error, EventKind, Request, StreamRange, StreamReply,
};
use nacre_protocol::Feature;
use nacre_protocol::Opcode;
use nacre_protocol::dcp::StreamEnd;
use nacre_sql::{Condition, Meta, Name};
use nacre_types::{Vbid, leb128_decode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The pause before a cluster that has refused is asked again.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum time until a follower notices that it must stop.
const TURN: Duration = Duration::from_millis(500);
/// Maximum bytes that a node sends ahead.
const WINDOW_BYTES: u32 = 16 << 20;
/// The datatype bit of values that begin with extended attributes.
const XATTR: u8 = 0x04;

/// A collection of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keyspace {
    /// Bucket.
    pub bucket: String,
    /// Scope.
    pub scope: String,
    /// Collection.
    pub collection: String,
}

/// The state of the link between a shadow and its collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Streams are open.
    Healthy,
    /// The cluster cannot be reached or refuses, for this reason.
    Unhealthy(String),
    /// There is no memory for further documents.
    Suspended,
    /// DISCONNECT LINK was requested.
    Stopped,
}

/// A shadow, and the threads that follow its collection.
pub struct Follower {
    /// The source.
    pub keyspace: Keyspace,
    /// The vBuckets of the source that it follows.
    pub part: Part,
    node: Arc<Node>,
    shadow: Mutex<Shadow>,
    /// True once the shadow has had all documents that the collection had at some time since the start.
    was_whole: AtomicBool,
    /// Notified after each change of the shadow.
    moved: Condvar,
    state: Mutex<LinkState>,
    stop: AtomicBool,
    condition: Option<String>,
    /// The memory limit of all shadows.
    quota: Arc<Quota>,
    /// The branch of history and the snapshot of each vBucket.
    positions: Mutex<BTreeMap<u16, Position>>,
}

/// The memory limit of all shadows.
#[derive(Debug, Default)]
pub struct Quota {
    /// Maximum bytes; 0 for no limit.
    pub limit_bytes: usize,
    used: Mutex<BTreeMap<(Keyspace, Part), usize>>,
}

impl Quota {
    /// Returns a quota of `limit_bytes` bytes.
    pub fn new(limit_bytes: usize) -> Quota {
        Quota { limit_bytes, used: Mutex::default() }
    }

    fn set(&self, keyspace: &Keyspace, part: Part, bytes: usize) {
        lock(&self.used).insert((keyspace.clone(), part), bytes);
    }

    /// Returns the bytes that shadows use.
    pub fn used_bytes(&self) -> usize {
        lock(&self.used).values().sum()
    }

    fn is_exceeded(&self) -> bool {
        self.limit_bytes > 0 && self.used_bytes() > self.limit_bytes
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    vb_uuid: u64,
    snapshot: (u64, u64),
}

/// Locks a mutex, also after a thread has panicked while it held the lock: the protected values are only replaced or read as a
/// whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Follower {
    /// Starts to follow a part of a collection. `condition` is a SQL++ expression over a document.
    pub fn start(
        keyspace: Keyspace,
        part: Part,
        condition: Option<String>,
        node: Arc<Node>,
        quota: Arc<Quota>,
    ) -> Arc<Follower> {
        let follower = Arc::new(Follower {
            keyspace,
            part,
            node,
            shadow: Mutex::default(),
            was_whole: AtomicBool::new(false),
            moved: Condvar::new(),
            state: Mutex::new(LinkState::Unhealthy("not connected yet".to_owned())),
            stop: AtomicBool::new(false),
            condition,
            quota,
            positions: Mutex::default(),
        });
        follower.connect();
        follower
    }

    /// Opens the streams again after [`Follower::disconnect`].
    pub fn connect(self: &Arc<Follower>) {
        self.stop.store(false, Ordering::Relaxed);
        let follower = Arc::clone(self);
        std::thread::Builder::new()
            .name("follow".to_owned())
            .spawn(move || follower.run())
            .expect("a thread can be started");
    }

    /// Ends the streams; the shadow stays unchanged.
    pub fn disconnect(&self) {
        self.stop.store(true, Ordering::Relaxed);
        *lock(&self.state) = LinkState::Stopped;
    }

    /// Ends the streams permanently.
    pub fn close(&self) {
        self.disconnect();
        lock(&self.quota.used).remove(&(self.keyspace.clone(), self.part));
    }

    /// Returns the condition on documents.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_deref()
    }

    /// Writes those of these documents that are in its part, and counts the shadow as whole: for documents from another
    /// source than a node.
    pub fn fill(&self, rows: impl IntoIterator<Item = Row>) {
        let mut shadow = lock(&self.shadow);
        rows.into_iter().filter(|row| self.part.has(row.vbid)).for_each(|row| shadow.upsert(row));
        self.was_whole.store(true, Ordering::Relaxed);
    }

    /// Returns the state of the link.
    pub fn state(&self) -> LinkState {
        lock(&self.state).clone()
    }

    /// Returns the shadow.
    pub fn shadow(&self) -> MutexGuard<'_, Shadow> {
        lock(&self.shadow)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&self) {
        while !self.is_stopped() {
            if let Err(reason) = self.round()
                && !self.is_stopped()
            {
                tracing::debug!(keyspace = ?self.keyspace, %reason, "streams have ended");
                *lock(&self.state) = LinkState::Unhealthy(reason);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Streams from all nodes until one stream breaks.
    fn round(&self) -> std::result::Result<(), String> {
        let Keyspace { bucket, scope, collection } = &self.keyspace;
        let mut connection = self.open()?;
        let path = format!("{scope}.{collection}");
        let id = connection.collection_id(&path).map_err(|error| error.to_string())?;
        let map = connection.map().clone();
        let servers = self.node.reachable(&connection, map.servers());
        drop(connection);
        let broken = AtomicBool::new(false);
        let reason = Mutex::new(None);
        std::thread::scope(|threads| {
            for (place, address) in servers.iter().enumerate() {
                let vbids: Vec<Vbid> = (0_u16..)
                    .zip(map.active())
                    .filter(|(vbid, active)| **active == Some(place) && self.part.has(*vbid))
                    .map(|(vbid, _)| Vbid(vbid))
                    .collect();
                if vbids.is_empty() {
                    continue;
                }
                let (broken, reason) = (&broken, &reason);
                threads.spawn(move || {
                    let outcome = self.follow(address, id, &vbids, broken);
                    broken.store(true, Ordering::Relaxed);
                    if let Err(error) = outcome {
                        *lock(reason) = Some(format!("{bucket}: {error}"));
                    }
                });
            }
        });
        match lock(&reason).take() {
            Some(reason) => Err(reason),
            None if map.active().iter().all(Option::is_none) => {
                Err(format!("no node serves the bucket {bucket}"))
            }
            None => Ok(()),
        }
    }

    fn open(&self) -> std::result::Result<Connection, String> {
        self.node.connect(&self.keyspace.bucket).map_err(|error| error.to_string())
    }

    /// Applies the history of these vBuckets from one node until a stream ends.
    fn follow(
        &self,
        address: &str,
        collection: u32,
        vbids: &[Vbid],
        broken: &AtomicBool,
    ) -> std::result::Result<(), Error> {
        let mut connection = self.node.connect_to(address, &self.keyspace.bucket)?;
        connection.set_timeout(Some(Duration::from_secs(5)))?;
        let name = format!("nacre-analytics-{:032x}", rand::random::<u128>());
        let mut consumer = DcpConsumer::with_window(connection, &name, 0, WINDOW_BYTES)?;
        let filter = format!("{{\"collections\":[\"{collection:x}\"]}}");
        for vbid in vbids {
            self.begin(&mut consumer, *vbid, &filter)?;
        }
        *lock(&self.state) = LinkState::Healthy;
        let condition = self.condition.as_deref().map(Condition::parse).transpose();
        let condition = condition.map_err(|error| Error::Invalid(error.message))?;
        while !self.is_stopped() && !broken.load(Ordering::Relaxed) {
            let event = match consumer.next_event() {
                // Nothing has arrived: check whether to continue.
                Err(Error::TimedOut) => continue,
                event => event?,
            };
            let vbid = event.vbid.0;
            match event.kind {
                EventKind::Snapshot { start, end, .. } => {
                    lock(&self.positions).entry(vbid).or_default().snapshot = (start, end);
                }
                EventKind::Mutation { seqno, cas, flags, expiry, datatype, key, value, .. } => {
                    let meta = Mutated { vbid, cas, flags, expiry, datatype };
                    self.write(&key, &value, meta, condition.as_ref());
                    self.advance(vbid, seqno);
                }
                EventKind::Deletion { seqno, key, .. } => {
                    if let Some(id) = id_of(&key) {
                        lock(&self.shadow).remove(&id);
                    }
                    self.advance(vbid, seqno);
                }
                EventKind::System { seqno, .. } => self.advance(vbid, seqno),
                EventKind::Advanced(seqno) => self.advance(vbid, seqno),
                EventKind::End(reason) if reason == StreamEnd::FilterEmpty as u32 => {
                    // The collection was dropped, with its documents.
                    vbids.iter().for_each(|vbid| lock(&self.shadow).clear_vbucket(vbid.0));
                    return Err(Error::Invalid("the collection was dropped".to_owned()));
                }
                EventKind::End(_) => return Ok(()),
            }
            self.wait_for_room();
        }
        Ok(())
    }

    /// Opens the stream of a vBucket at the position of the shadow.
    fn begin(
        &self,
        consumer: &mut DcpConsumer,
        vbid: Vbid,
        filter: &str,
    ) -> std::result::Result<(), Error> {
        for _ in 0..2 {
            let start = lock(&self.shadow).seqno(vbid.0);
            let position = lock(&self.positions).get(&vbid.0).copied().unwrap_or_default();
            let (low, high) = position.snapshot;
            let range = StreamRange {
                start,
                end: u64::MAX,
                vb_uuid: if start == 0 { 0 } else { position.vb_uuid },
                // The server may have moved the stream to a position outside of the last snapshot.
                snapshot: if (low..=high).contains(&start) { (low, high) } else { (start, start) },
            };
            match consumer.stream(vbid, range, 0, filter)? {
                StreamReply::Accepted(log) => {
                    let vb_uuid = log.first().map_or(0, |entry| entry.vb_uuid);
                    lock(&self.positions).entry(vbid.0).or_default().vb_uuid = vb_uuid;
                    return Ok(());
                }
                StreamReply::Rollback(_) => {
                    lock(&self.shadow).clear_vbucket(vbid.0);
                    lock(&self.positions).remove(&vbid.0);
                }
            }
        }
        Err(Error::Malformed(format!("the vBucket {} asks for a rollback of nothing", vbid.0)))
    }

    fn write(&self, key: &[u8], value: &[u8], mutated: Mutated, condition: Option<&Condition>) {
        let Some(id) = id_of(key) else { return };
        let value = match mutated.datatype & XATTR {
            0 => value,
            _ => without_attributes(value),
        };
        let Some(text) = json_text(value) else {
            let mut shadow = lock(&self.shadow);
            shadow.remove(&id);
            shadow.unparsed_count += 1;
            return;
        };
        let Mutated { vbid, cas, flags, expiry, .. } = mutated;
        let is_wanted = condition.is_none_or(|condition| {
            let meta = Meta {
                id: id.clone(),
                cas,
                expiration: expiry,
                flags,
                json: true,
                ..Meta::default()
            };
            condition.holds(value, meta).unwrap_or(false)
        });
        let mut shadow = lock(&self.shadow);
        match is_wanted {
            true => shadow.upsert(Row { id, vbid, cas, flags, expiry, text: text.into() }),
            false => shadow.remove(&id),
        }
    }

    fn advance(&self, vbid: u16, seqno: u64) {
        let mut shadow = lock(&self.shadow);
        shadow.advance(vbid, seqno);
        let (bytes, changes) = (shadow.text_bytes(), shadow.change_count);
        drop(shadow);
        if changes % 64 == 0 {
            self.quota.set(&self.keyspace, self.part, bytes);
        }
        self.moved.notify_all();
    }

    /// Waits while the documents of all shadows exceed the memory limit.
    fn wait_for_room(&self) {
        while self.quota.is_exceeded() && !self.is_stopped() {
            *lock(&self.state) = LinkState::Suspended;
            std::thread::sleep(PAUSE);
        }
        let mut state = lock(&self.state);
        if *state == LinkState::Suspended {
            *state = LinkState::Healthy;
        }
    }

    /// Returns the high seqno of each vBucket of its part of the collection.
    ///
    /// # Errors
    /// A message if a node does not answer.
    pub fn high_seqnos(&self) -> std::result::Result<BTreeMap<u16, u64>, String> {
        const ACTIVE: u32 = 1;
        let Keyspace { bucket, scope, collection } = &self.keyspace;
        let mut first = self.open()?;
        let mut of_all = BTreeMap::new();
        let id = first
            .collection_id(&format!("{scope}.{collection}"))
            .map_err(|error| error.to_string())?;
        for address in self.node.reachable(&first, first.map().servers()) {
            let mut connection =
                self.node.connect_to(&address, bucket).map_err(|error| error.to_string())?;
            let extras = [ACTIVE.to_be_bytes(), id.to_be_bytes()].concat();
            let opcode = Opcode::GetAllVbSeqnos as u8;
            let answer = connection
                .call(Request { opcode, extras: &extras, ..Request::default() })
                .map_err(|error| error.to_string())?;
            if !answer.is_success() {
                return Err(format!("{address} does not tell seqnos: status {}", answer.status));
            }
            for entry in answer.value.as_chunks::<10>().0 {
                let number = |bytes: &[u8]| {
                    bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
                };
                let vbid = number(&entry[..2]) as u16;
                if self.part.has(vbid) {
                    of_all.insert(vbid, number(&entry[2..]));
                }
            }
        }
        Ok(of_all)
    }

    /// Returns the number of changes that the shadow lacks.
    ///
    /// # Errors
    /// As [`Follower::high_seqnos`].
    pub fn pending(&self) -> std::result::Result<u64, String> {
        let high = self.high_seqnos()?;
        let shadow = self.shadow();
        Ok(high.iter().map(|(vbid, seqno)| seqno.saturating_sub(shadow.seqno(*vbid))).sum())
    }

    /// Waits until the shadow has been whole once since the start: before that, it lacks old documents, too. Returns false if
    /// `deadline` passes before.
    ///
    /// # Errors
    /// As [`Follower::high_seqnos`].
    pub fn wait_until_whole(&self, deadline: Instant) -> std::result::Result<bool, String> {
        match self.was_whole.load(Ordering::Relaxed) {
            true => Ok(true),
            false => self.catch_up(deadline),
        }
    }

    /// Waits until the shadow has everything that the collection has now. Returns false if `deadline` passes before.
    ///
    /// # Errors
    /// As [`Follower::high_seqnos`].
    pub fn catch_up(&self, deadline: Instant) -> std::result::Result<bool, String> {
        let high = self.high_seqnos()?;
        let mut shadow = self.shadow();
        loop {
            if high.iter().all(|(vbid, seqno)| shadow.seqno(*vbid) >= *seqno) {
                self.was_whole.store(true, Ordering::Relaxed);
                return Ok(true);
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Ok(false);
            };
            let waited = self.moved.wait_timeout(shadow, left.min(TURN));
            shadow = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

/// A version of a document, without key and value.
struct Mutated {
    vbid: u16,
    cas: u64,
    flags: u32,
    expiry: u32,
    datatype: u8,
}

/// Returns the ID of a document; `None` if it is not text, which no JSON document has.
fn id_of(key: &[u8]) -> Option<Name> {
    let (_, name) = leb128_decode(key)?;
    std::str::from_utf8(name).ok().map(Name::from)
}

/// Returns a value as text, if it is valid JSON.
fn json_text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    // Parsing it here costs less than handling invalid texts in segments.
    serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
    nests_at_most(text, nacre_sql::DEPTH_MAX).then_some(text)
}

/// Returns true if brackets outside of strings are nested at most `depth_max` deep.
fn nests_at_most(text: &str, depth_max: usize) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    return false;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// Returns a value without its section of extended attributes.
fn without_attributes(value: &[u8]) -> &[u8] {
    let Some((length, rest)) = value.split_first_chunk::<4>() else { return &[] };
    rest.get(u32::from_be_bytes(*length) as usize..).unwrap_or(&[])
}

/// Returns the features of the connections.
pub fn features() -> Vec<Feature> {
    [BASIC_FEATURES, &[Feature::Json]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_json_is_accepted() {
        assert_eq!(json_text(b"{\"a\":[1,\"[[\"]}"), Some("{\"a\":[1,\"[[\"]}"));
        assert_eq!(json_text(b"17"), Some("17"));
        for value in [&b"{"[..], b"", b"\xff", b"{} {}"] {
            assert_eq!(json_text(value), None, "{value:?}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(json_text(deep(nacre_sql::DEPTH_MAX).as_bytes()).is_some());
        assert_eq!(json_text(deep(nacre_sql::DEPTH_MAX + 1).as_bytes()), None);
    }

    #[test]
    fn attributes_in_front_of_a_value_are_skipped() {
        assert_eq!(without_attributes(b"\0\0\0\x02xx{}"), b"{}");
        assert_eq!(without_attributes(b"\0\0\0\x09xx{}"), b"");
        assert_eq!(without_attributes(b"\0"), b"");
    }
}
