//! The device's side: documents, their history, and the engine's stored state.

use nacre_types::{Cas, Document, Kind, Seqno};
use nacre_vbucket::{Seen, Verdict, Version};
use nacre_xdcr::{Arriving, SourceId};

/// A temporary failure of the device, such as a full disk; the text describes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// The device's version of a document.
#[derive(Clone, Debug)]
pub struct Local {
    /// The document or its tombstone, with its value; `None` if there is neither.
    pub document: Option<Document>,
    /// The branches of the vBucket's history, the present one first. A folder that was copied, or lost unsynced writes, has begun
    /// another branch.
    pub own: Vec<Branch>,
}

impl Local {
    /// Returns the source name of the device's next writes.
    pub(crate) fn own_name(&self) -> Option<&SourceId> {
        self.own.first().map(|branch| &branch.name)
    }
}

/// A branch of a vBucket's history on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The source name of its writes in histories.
    pub name: SourceId,
    /// The seqno after which it began.
    pub began: Seqno,
}

/// The outcome of a conditional store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The version is stored.
    Stored,
    /// The device has another version meanwhile.
    Changed,
    /// The document is locked.
    Busy,
}

/// A version to park.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The collection, as `scope.collection`.
    pub collection: String,
    /// The key.
    pub name: Vec<u8>,
    /// The reason: `conflict`, `no_access`, `collection_gone`, or `refused` with the hub's reason.
    pub reason: String,
    /// True if the version is the hub's and the device's version replaces it.
    pub is_hubs: bool,
    /// The version.
    pub version: Arriving,
}

impl Parked {
    /// Returns the body without attributes.
    pub fn body(&self) -> Vec<u8> {
        self.version.shown().body
    }

    /// Returns a name for the record. The same version always has the same name, so that it is parked once.
    pub fn record_name(&self) -> String {
        let place = self.collection.as_bytes().iter().chain(&[0]).chain(&self.name);
        let is_alive = u8::from(self.version.meta.kind == Kind::Alive);
        let content = self.version.value.iter().chain(std::iter::once(&is_alive));
        format!("{:016x}-{:016x}", fnv(place), fnv(content) ^ self.version.meta.cas.0)
    }

    /// Returns the record: JSON with collection, key, reason, side, CAS, history, and the body as JSON or Base64. With `stored`,
    /// the record has the key of the stored body instead.
    pub fn record(&self, stored: Option<&str>) -> Vec<u8> {
        use base64::Engine;
        use base64::prelude::BASE64_STANDARD;
        let Version { body, is_deleted, cas, flags, expiry, is_json, .. } = self.version.shown();
        let history = self.version.split().ok().and_then(|(section, _)| {
            let attributes = nacre_value::xattr::Xattrs::parse(section).ok()?;
            let text = attributes.get(nacre_xdcr::attribute::HISTORY)?;
            serde_json::from_slice::<serde_json::Value>(text).ok()
        });
        let mut record = serde_json::json!({
            "collection": self.collection,
            "key": String::from_utf8_lossy(&self.name),
            "reason": self.reason,
            "side": if self.is_hubs { "hub" } else { "device" },
            "cas": cas.0.to_string(),
            "deleted": is_deleted,
            "flags": flags,
            "expiry": expiry,
            "history": history,
        });
        match serde_json::from_slice::<serde_json::Value>(&body) {
            _ if stored.is_some() => record["stored"] = stored.into(),
            Ok(json) if is_json && !is_deleted => record["body"] = json,
            _ => record["base64"] = BASE64_STANDARD.encode(&body).into(),
        }
        serde_json::to_vec(&record).expect("texts and numbers can be written")
    }
}

/// Two versions of a document between which the application decides.
#[derive(Clone, Debug)]
pub struct Conflict<'a> {
    /// The collection, as `scope.collection`.
    pub collection: &'a str,
    /// The key.
    pub name: &'a [u8],
    /// The version of the device.
    pub device: Version,
    /// The version of the hub.
    pub hub: Version,
}

/// The device's documents. Calls return at once, except for reads and writes of the device's own disk.
///
/// Collections are numbered as in [`Settings::collections`](crate::Settings::collections).
pub trait Replica {
    /// Reads a document, with its value.
    ///
    /// # Errors
    /// The document cannot be read.
    fn read(&mut self, collection: usize, name: &[u8]) -> Result<Local, Fault>;

    /// Stores a version unchanged if the device's version is `over`. `unix_ns` is the later of the clocks of device and hub: the
    /// CAS must not be refused as one of the future.
    ///
    /// # Errors
    /// No space is left, or the store has failed.
    fn store(
        &mut self,
        collection: usize,
        name: &[u8],
        version: &Arriving,
        over: Option<Seen>,
        unix_ns: u64,
    ) -> Result<Outcome, Fault>;

    /// Returns the next change of one of the collections in the device's history, if there is one now.
    ///
    /// # Errors
    /// The history cannot be read.
    fn next_change(&mut self) -> Result<Option<(usize, Vec<u8>)>, Fault>;

    /// Returns true if the history is still being read from disk, so that the last `None` of [`Replica::next_change`] does not mean
    /// its end.
    fn is_reading(&self) -> bool {
        false
    }

    /// Returns to the start of the device's history: [`Replica::next_change`] returns each document again.
    ///
    /// # Errors
    /// The history cannot be read.
    fn rewind(&mut self) -> Result<(), Fault>;

    /// Returns the position of [`Replica::next_change`], for [`Saved::push`](crate::Saved::push).
    fn position(&self) -> String;

    /// Returns the keys of the documents of a collection, without tombstones.
    ///
    /// # Errors
    /// The documents cannot be read.
    fn names(&mut self, collection: usize) -> Result<Vec<Vec<u8>>, Fault>;

    /// Makes everything stored so far survive a power cut.
    ///
    /// # Errors
    /// The disk is full or broken.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Stores rows of the engine's state. They need not survive a power cut.
    ///
    /// # Errors
    /// No space is left.
    fn save(&mut self, rows: &[(String, String)]) -> Result<(), Fault>;

    /// Parks a version.
    ///
    /// # Errors
    /// No space is left.
    fn park(&mut self, parked: &Parked) -> Result<(), Fault>;

    /// Resolves a conflict, in the mode [`ConflictMode::Client`](crate::ConflictMode::Client). Local is the device's version,
    /// remote the hub's. It may be called twice for the same pair.
    fn resolve(&mut self, conflict: &Conflict<'_>) -> Verdict;
}

/// Returns a CAS above all the given ones, close to the clock. The device's name makes it differ from a CAS that another device
/// chooses at the same time.
pub(crate) fn cas_above(
    all: impl IntoIterator<Item = Cas>,
    unix_ns: u64,
    device: &SourceId,
) -> Cas {
    let next = all.into_iter().max().unwrap_or_default().tick(unix_ns);
    Cas(next.0 + 1 + (fnv(device.as_str().as_bytes()) & 0x3fff))
}

/// Returns a hash for names, without cryptographic strength. Source: FNV-1a.
fn fnv<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let of = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, of)
}
