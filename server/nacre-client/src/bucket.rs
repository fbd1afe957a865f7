//! A bucket of a cluster: requests go to the node that serves the vBucket of their key.

use crate::error::is_passing;
use crate::frame::Fields;
use crate::subdoc::{decode_lookups, encode_lookups, encode_mutations};
use crate::{
    BASIC_FEATURES, ClusterMap, Connection, Error, Lookup, PathMutation, PathResult, Request,
    Response,
};
use nacre_protocol::{Feature, Opcode, Status, version_option};
use nacre_types::{Vbid, leb128_encode};
use rustls::ClientConfig;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a request with a temporary refusal is retried, unless the caller sets another.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for the reply of a node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);
/// Pauses before a request is repeated: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));
/// Datatype bit: the value is JSON.
const JSON: u8 = 0x01;
/// Expiry in a request for a counter that must exist. Source: memcached binary protocol.
const MUST_EXIST: u32 = u32::MAX;
/// Number of reads in flight at once. Their requests fit the socket buffers, so that client and server do not wait for
/// each other to read.
const GETS_IN_FLIGHT_MAX: usize = 64;
/// Flags of JSON documents, as SDKs send them.
const JSON_FLAGS: u32 = 0x0200_0000;
/// Statuses of a sub-document request that has results: all paths or some, and the same for a deleted document.
const WITH_RESULTS: [u16; 4] = [0x00, 0xcc, 0xcd, 0xd3];

/// User, password and bucket.
#[derive(Clone)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// Password. It is never sent.
    pub password: String,
    /// Name of the bucket.
    pub bucket: String,
}

/// Key of a document in its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// ID of the collection, see [`Connection::collection_id`].
    pub collection: u32,
    /// Name of the document, 1 to 250 bytes including the collection ID.
    pub name: &'a [u8],
}

impl<'a> Key<'a> {
    /// Creates the key of a document in the default collection.
    pub fn of_default(name: &'a [u8]) -> Key<'a> {
        Key { collection: 0, name }
    }

    fn encoded(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(5 + self.name.len());
        leb128_encode(self.collection, &mut bytes);
        bytes.extend_from_slice(self.name);
        bytes
    }
}

/// The copies that a write must reach before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Durability {
    /// In memory on a majority of the nodes.
    Majority = 1,
    /// In memory on a majority of the nodes, and on disk at the active one.
    MajorityAndPersistActive = 2,
    /// On disk on a majority of the nodes.
    PersistMajority = 3,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// CAS that the document must have; 0 for any.
    pub cas: u64,
    /// Expiry in the format of [`nacre_types::Expiry`]; 0 for never.
    pub expiry: u32,
    /// Flags for the application.
    pub flags: u32,
    /// Durability. Without it, a write is acknowledged once it is in the memory of the active node.
    pub durability: Option<Durability>,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { cas: 0, expiry: 0, flags: JSON_FLAGS, durability: None }
    }
}

/// A document that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// CAS.
    pub cas: u64,
    /// Flags of the application.
    pub flags: u32,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Value.
    pub value: Vec<u8>,
}

/// Position of a write in history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// vBucket.
    pub vbid: Vbid,
    /// CAS of the document after the write.
    pub cas: u64,
    /// UUID of the branch of history, and the seqno in it.
    pub token: Option<(u64, u64)>,
}

/// Metadata of a document, which may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// True if the document is deleted.
    pub is_deleted: bool,
    /// Flags of the application.
    pub flags: u32,
    /// Unix second at which the document expires, 0 for never; for a deletion, the time of the deletion.
    pub expiry: u32,
    /// Number of changes.
    pub rev: u64,
    /// CAS.
    pub cas: u64,
}

/// A version from another cluster, which is written with its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    /// Metadata of the version in the other cluster.
    pub metadata: Metadata,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Value; empty for a deletion.
    pub value: &'a [u8],
    /// True if the bucket resolves conflicts by time instead of revision.
    pub by_time: bool,
}

/// A bucket, and connections to its nodes. Requests are carried out one after another.
pub struct Bucket {
    seeds: Vec<String>,
    tls: Option<Arc<ClientConfig>>,
    login: Login,
    patience: Duration,
    map: ClusterMap,
    connections: HashMap<String, Connection>,
}

/// Condition under which a request is repeated after its connection broke.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Always, for a read.
    Always,
    /// Only if it was not sent, for a write that may have happened.
    IfNotSent,
}

impl Bucket {
    /// Connects to one of several nodes, each given by the address of its key-value service, and reads the cluster map
    /// there.
    ///
    /// # Errors
    /// The reason why the last of them could not be used.
    pub fn connect(
        seeds: &[String],
        tls: Option<Arc<ClientConfig>>,
        login: Login,
    ) -> Result<Bucket, Error> {
        let mut bucket = Bucket {
            seeds: seeds.to_vec(),
            tls,
            login,
            patience: PATIENCE,
            map: ClusterMap::default(),
            connections: HashMap::new(),
        };
        bucket.learn()?;
        Ok(bucket)
    }

    /// Sets how long a request with a temporary refusal is retried. Zero returns every refusal to the caller.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Returns the cluster map in use.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Returns the ID of the collection `scope.name`.
    ///
    /// # Errors
    /// A refusal if there is no such collection, and the errors of the connection.
    pub fn collection_id(&mut self, path: &str) -> Result<u32, Error> {
        let address = self.map.servers().first().cloned();
        let address = address.ok_or(Error::NotServed(0))?;
        self.connection(&address)?.collection_id(path)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// See [`Error`]; a missing document is not an error.
    pub fn get(&mut self, key: Key<'_>) -> Result<Option<Document>, Error> {
        document_of(self.request(key, Opcode::Get, Repeat::Always, Request::default())?, key)
    }

    /// Reads several documents: sends each node its requests before waiting for replies.
    ///
    /// Returns the documents in the order of `keys`, `None` for each missing one.
    ///
    /// # Errors
    /// See [`Error`]; an error for one document fails the whole call.
    pub fn get_many(&mut self, keys: &[Key<'_>]) -> Result<Vec<Option<Document>>, Error> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(GETS_IN_FLIGHT_MAX) {
            self.get_at_once(keys, &mut found)?;
        }
        Ok(found)
    }

    /// Reads the documents of one batch, and appends them to `found`.
    fn get_at_once(
        &mut self,
        keys: &[Key<'_>],
        found: &mut Vec<Option<Document>>,
    ) -> Result<(), Error> {
        let mut shares: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, key) in keys.iter().enumerate() {
            if let Some(address) = self.map.server_of(self.map.vbucket_of(key.name)) {
                shares.entry(address.to_owned()).or_default().push(place);
            }
        }
        for (address, places) in &shares {
            let keys = places.iter().map(|place| keys[*place]);
            if self.send_gets(address, keys).is_err() {
                self.connections.remove(address);
            }
        }
        let mut responses: Vec<Option<Response>> = keys.iter().map(|_| None).collect();
        for (address, places) in shares {
            for place in places {
                let Some(connection) = self.connections.get_mut(&address) else { break };
                match connection.receive(Response::of) {
                    Ok(response) => responses[place] = Some(response),
                    // Late replies would be mistaken for those to other requests.
                    Err(_) => drop(self.connections.remove(&address)),
                }
            }
        }
        for (key, response) in keys.iter().zip(responses) {
            found.push(match response {
                Some(response) if !is_passing(response.status) => document_of(response, *key)?,
                // The request failed temporarily: a single read finds the current node.
                _ => self.get(*key)?,
            });
        }
        Ok(())
    }

    fn send_gets<'k>(
        &mut self,
        address: &str,
        keys: impl Iterator<Item = Key<'k>>,
    ) -> Result<(), Error> {
        let map = &self.map;
        let placed: Vec<_> = keys.map(|key| (map.vbucket_of(key.name), key.encoded())).collect();
        let connection = self.connection(address)?;
        for (vbid, key) in &placed {
            let request =
                Request { opcode: Opcode::Get as u8, vbid: *vbid, key, ..Request::default() };
            request.check()?;
            connection.send(request);
        }
        connection.flush()
    }

    /// Adds `delta`, which may be negative, to a counter. Returns the new number.
    ///
    /// A counter is a document that contains a decimal number from 0 to 2^64 - 1. Subtraction stops at 0; addition
    /// wraps around above the maximum. A missing counter is created with `initial`, if given, without adding `delta`.
    ///
    /// # Errors
    /// [`Status::KeyNotFound`] if the counter does not exist and there is no `initial`; [`Status::DeltaBadValue`] if
    /// the document is not a number; see [`Error`].
    pub fn counter(
        &mut self,
        key: Key<'_>,
        delta: i64,
        initial: Option<u64>,
        durability: Option<Durability>,
    ) -> Result<u64, Error> {
        let opcode = if delta < 0 { Opcode::Decrement } else { Opcode::Increment };
        let expiry = if initial.is_some() { 0 } else { MUST_EXIST };
        let numbers = [delta.unsigned_abs(), initial.unwrap_or(0)].map(u64::to_be_bytes).concat();
        let (extras, framing) =
            ([&numbers[..], &expiry.to_be_bytes()].concat(), framing_of(durability));
        let request = Request { framing: &framing, extras: &extras, ..Request::default() };
        let response = self.request(key, opcode, Repeat::IfNotSent, request)?;
        if !response.is_success() {
            return Err(refused(opcode, key, response.status));
        }
        Fields(&response.value)
            .u64()
            .ok_or_else(|| Error::Malformed("the server's answer has no number".into()))
    }

    /// Writes a document, whether or not it exists.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn set(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
    ) -> Result<Mutation, Error> {
        self.store(Opcode::Set, key, value, options)
    }

    /// Writes a document that must not exist.
    ///
    /// # Errors
    /// [`Status::KeyExists`] if it does; see [`Error`].
    pub fn add(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
    ) -> Result<Mutation, Error> {
        self.store(Opcode::Add, key, value, options)
    }

    /// Writes a document that must exist.
    ///
    /// # Errors
    /// [`Status::KeyNotFound`] if it does not; see [`Error`].
    pub fn replace(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
    ) -> Result<Mutation, Error> {
        self.store(Opcode::Replace, key, value, options)
    }

    fn store(
        &mut self,
        opcode: Opcode,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
    ) -> Result<Mutation, Error> {
        let StoreOptions { cas, expiry, flags, durability } = options;
        let extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
        let (extras, framing) = (&extras[..], framing_of(durability));
        let framing = &framing[..];
        let request = Request { cas, datatype: JSON, framing, extras, value, ..Request::default() };
        self.write(opcode, key, request)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// [`Status::KeyNotFound`] if it does not exist; see [`Error`].
    pub fn delete(&mut self, key: Key<'_>, options: StoreOptions) -> Result<Mutation, Error> {
        let framing = framing_of(options.durability);
        let request = Request { cas: options.cas, framing: &framing, ..Request::default() };
        self.write(Opcode::Delete, key, request)
    }

    /// Reads paths of a document. Returns for each path the value, or the status of its failure.
    ///
    /// # Errors
    /// See [`Error`]; a missing document is not an error.
    pub fn lookup_in(
        &mut self,
        key: Key<'_>,
        lookups: &[Lookup<'_>],
    ) -> Result<Option<Vec<PathResult>>, Error> {
        let value = encode_lookups(lookups)?;
        let (opcode, request) =
            (Opcode::SubdocMultiLookup, Request { value: &value, ..Request::default() });
        let response = self.request(key, opcode, Repeat::Always, request)?;
        if WITH_RESULTS.contains(&response.status) {
            return decode_lookups(&response.value, lookups.len()).map(Some);
        }
        found(response, opcode, key).map(|_| None)
    }

    /// Changes paths of a document atomically.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mutate_in(
        &mut self,
        key: Key<'_>,
        mutations: &[PathMutation<'_>],
        options: StoreOptions,
    ) -> Result<Mutation, Error> {
        let (value, framing) = (encode_mutations(mutations)?, framing_of(options.durability));
        let request =
            Request { cas: options.cas, framing: &framing, value: &value, ..Request::default() };
        self.write(Opcode::SubdocMultiMutation, key, request)
    }

    /// Reads the metadata of a document, or of a deletion that the server still stores.
    ///
    /// # Errors
    /// See [`Error`]; a document that never existed is not an error.
    pub fn metadata(&mut self, key: Key<'_>) -> Result<Option<Metadata>, Error> {
        let response = self.request(key, Opcode::GetMeta, Repeat::Always, Request::default())?;
        let Some(response) = found(response, Opcode::GetMeta, key)? else { return Ok(None) };
        let mut fields = Fields(&response.extras);
        let mut read = || {
            Some(Metadata {
                is_deleted: fields.u32()? & 1 != 0,
                flags: fields.u32()?,
                expiry: fields.u32()?,
                rev: fields.u64()?,
                cas: response.cas,
            })
        };
        let metadata = read();
        metadata
            .map(Some)
            .ok_or_else(|| Error::Malformed("the server's answer has no metadata".into()))
    }

    /// Writes a version from another cluster with its metadata. The bucket keeps its own version if that one wins the
    /// conflict resolution.
    ///
    /// # Errors
    /// [`Status::KeyExists`] if the bucket's version wins; see [`Error`].
    pub fn set_version(&mut self, key: Key<'_>, version: Version<'_>) -> Result<Mutation, Error> {
        let Version { metadata, datatype, value, by_time } = version;
        let Metadata { is_deleted, flags, expiry, rev, cas } = metadata;
        let options = if by_time { version_option::FORCE_ACCEPT } else { 0 };
        let mut extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
        extras.extend([rev.to_be_bytes(), cas.to_be_bytes()].concat());
        extras.extend(options.to_be_bytes());
        let opcode = if is_deleted { Opcode::DeleteWithMeta } else { Opcode::SetWithMeta };
        self.write(opcode, key, Request { datatype, extras: &extras, value, ..Request::default() })
    }

    fn write(
        &mut self,
        opcode: Opcode,
        key: Key<'_>,
        request: Request<'_>,
    ) -> Result<Mutation, Error> {
        let response = self.request(key, opcode, Repeat::IfNotSent, request)?;
        if !response.is_success() {
            return Err(refused(opcode, key, response.status));
        }
        let mut fields = Fields(&response.extras);
        let token = fields.u64().zip(fields.u64());
        Ok(Mutation { vbid: self.map.vbucket_of(key.name), cas: response.cas, token })
    }

    /// Sends a request to the node that serves its vBucket, and repeats it while its refusal is temporary.
    fn request(
        &mut self,
        key: Key<'_>,
        opcode: Opcode,
        repeat: Repeat,
        request: Request<'_>,
    ) -> Result<Response, Error> {
        let encoded = key.encoded();
        let request = Request { opcode: opcode as u8, key: &encoded, ..request };
        request.check()?;
        let (begun, mut pause) = (Instant::now(), PAUSE.0);
        loop {
            let vbid = self.map.vbucket_of(key.name);
            let outcome = self.attempt(Request { vbid, ..request });
            let is_over = begun.elapsed() >= self.patience;
            let has_moved = match &outcome {
                Ok(response) if is_over || !is_passing(response.status) => return outcome,
                Err(error) if is_over || !is_repeatable(error, repeat) => return outcome,
                Ok(response) => response.status == Status::NotMyVbucket as u16,
                Err(_) => true,
            };
            // A newer map names the right node; without one, only waiting helps.
            let before = self.map.server_of(vbid).map(str::to_owned);
            let is_known = has_moved && self.learn().is_ok();
            if !is_known || self.map.server_of(vbid) == before.as_deref() {
                std::thread::sleep(pause.min(self.patience.saturating_sub(begun.elapsed())));
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    fn attempt(&mut self, request: Request<'_>) -> Result<Response, Error> {
        let address = self.map.server_of(request.vbid).map(str::to_owned);
        let address = address.ok_or(Error::NotServed(request.vbid.0))?;
        let answered = self.connection(&address)?.call(request);
        if answered.is_err() {
            // A late reply would be mistaken for that to another request.
            self.connections.remove(&address);
        }
        answered
    }

    fn connection(&mut self, address: &str) -> Result<&mut Connection, Error> {
        if !self.connections.contains_key(address) {
            let connection = self.open(address)?;
            self.connections.insert(address.to_owned(), connection);
        }
        self.connections.get_mut(address).ok_or(Error::Closed)
    }

    fn open(&self, address: &str) -> Result<Connection, Error> {
        let Login { user, password, bucket } = &self.login;
        let features = [BASIC_FEATURES, &[Feature::MutationSeqno, Feature::Xattr, Feature::Json]];
        let login = [user.as_str(), password, bucket];
        let mut connection =
            Connection::connect(address, self.tls.as_ref(), login, &features.concat())?;
        connection.set_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(connection)
    }

    /// Asks nodes for the cluster map until one replies, starting with the nodes of the bucket.
    fn learn(&mut self) -> Result<(), Error> {
        let mut addresses = self.map.servers().to_vec();
        addresses
            .extend(self.seeds.iter().filter(|seed| !self.map.servers().contains(seed)).cloned());
        let mut last = Error::Invalid("there is no node to ask".to_owned());
        for address in addresses {
            let asked =
                self.connection(&address).and_then(|connection| connection.refresh_map().cloned());
            match asked {
                Ok(map) => {
                    if map.is_newer_than(&self.map) || self.map == ClusterMap::default() {
                        self.map = map;
                    }
                    // A single node is used under the address by which it was reached, whatever address it reports.
                    self.adopt(&address);
                    return Ok(());
                }
                Err(error) => {
                    self.connections.remove(&address);
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Uses the connection to a seed for the only node of the bucket.
    fn adopt(&mut self, address: &str) {
        if let [only] = self.map.servers()
            && only != address
            && !self.connections.contains_key(only)
            && let Some(connection) = self.connections.remove(address)
        {
            self.connections.insert(only.clone(), connection);
        }
    }
}

fn is_repeatable(error: &Error, repeat: Repeat) -> bool {
    error.is_retryable() && (repeat == Repeat::Always || !error.is_ambiguous())
}

fn framing_of(durability: Option<Durability>) -> Vec<u8> {
    // Framing extra 1 (durability), one byte long.
    durability.map_or_else(Vec::new, |level| vec![0x11, level as u8])
}

fn refused(opcode: Opcode, key: Key<'_>, status: u16) -> Error {
    let purpose = format!("{opcode:?} {:?}", String::from_utf8_lossy(key.name));
    Error::Refused { purpose, opcode, status }
}

/// Extracts the document from the reply to a read.
fn document_of(response: Response, key: Key<'_>) -> Result<Option<Document>, Error> {
    let Some(response) = found(response, Opcode::Get, key)? else { return Ok(None) };
    let flags = Fields(&response.extras).u32().unwrap_or(0);
    let Response { cas, datatype, value, .. } = response;
    Ok(Some(Document { cas, flags, datatype, value }))
}

/// Separates a missing document from an error.
fn found(response: Response, opcode: Opcode, key: Key<'_>) -> Result<Option<Response>, Error> {
    match response.status {
        status if status == Status::Success as u16 => Ok(Some(response)),
        status if status == Status::KeyNotFound as u16 => Ok(None),
        status => Err(refused(opcode, key, status)),
    }
}
