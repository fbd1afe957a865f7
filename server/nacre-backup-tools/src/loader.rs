//! Writes of `nacre import`: each goes to the node that serves its vBucket, many in flight.
//!
//! Invariant: answers of a node come in the order of requests, so that all earlier ones were taken before one is waited for.

use indicatif::ProgressBar;
use nacre_client::{Connection, Request, describe_status};
use nacre_protocol::{Opcode, Status};
use nacre_types::{Vbid, leb128_encode};
use std::collections::VecDeque;
use std::time::Duration;

/// Writes in flight to one node.
const WINDOW: usize = 256;
/// Common flags that official SDKs give JSON documents.
const JSON_FLAGS: u32 = 0x0200_0000;
/// Number of times that a write is repeated while the server is busy or the vBucket moves, and the pause before each.
const RETRIES_MAX: u32 = 200;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const NOT_MY_VBUCKET: u16 = Status::NotMyVbucket as u16;
/// Statuses that pass by themselves.
const PASSING: [u16; 4] =
    [Status::TemporaryFailure as u16, Status::NoMemory as u16, Status::Busy as u16, NOT_MY_VBUCKET];

/// Statuses of a server whose memory or disk is full.
const FULL: [u16; 2] = [Status::TemporaryFailure as u16, Status::NoMemory as u16];

/// Opens a connection to a node by the address of its key-value service.
pub type Connect<'a> = &'a dyn Fn(&str) -> Result<Connection, String>;

/// Treatment of a document whose key exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The new document replaces it.
    Replace,
    /// The document that exists stays.
    Keep,
}

/// Results of the rows so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Documents whose keys were free.
    pub added: u64,
    /// Documents that took the place of others.
    pub replaced: u64,
    /// Rows that were left out, as a document of that key existed.
    pub kept: u64,
}

/// Nodes that documents are written to, and what is on the way.
pub struct Loader<'a> {
    connect: Connect<'a>,
    /// The address that the user has given.
    server: &'a str,
    nodes: Vec<Node>,
    /// Which of `nodes` serves each vBucket.
    owners: Vec<Option<usize>>,
    existing: Existing,
    loaded: Loaded,
    /// True if the last write was refused because memory or disk is full.
    is_full: bool,
    bar: ProgressBar,
}

struct Node {
    address: String,
    connection: Connection,
    in_flight: VecDeque<Write>,
}

/// A document on its way. It is added first; if its key exists, it replaces the document there or is dropped.
struct Write {
    opcode: Opcode,
    /// The ID of the collection.
    collection: u32,
    key: String,
    document: String,
}

impl<'a> Loader<'a> {
    /// Connects to the nodes that `connection`, one to `server`, knows of.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub fn open(
        connect: Connect<'a>,
        server: &'a str,
        connection: Connection,
        existing: Existing,
        bar: ProgressBar,
    ) -> Result<Loader<'a>, String> {
        let (nodes, owners) = (Vec::new(), Vec::new());
        let (loaded, is_full) = (Loaded::default(), false);
        let mut loader = Loader { connect, server, nodes, owners, existing, loaded, is_full, bar };
        loader.follow(connection)?;
        Ok(loader)
    }

    /// Adopts the cluster map of a connection, and connects to nodes that are new in it.
    fn follow(&mut self, connection: Connection) -> Result<(), String> {
        let servers = connection.map().servers().to_vec();
        let active = connection.map().active().to_vec();
        let mut connection = Some(connection);
        let mut places = Vec::new();
        for address in &servers {
            let known = self.nodes.iter().position(|node| node.address == *address);
            let place = match known {
                Some(place) => place,
                None => {
                    // A node that is alone is the one that was asked, whatever it takes for its own address.
                    let connection = match connection.take() {
                        Some(connection) if servers.len() == 1 => connection,
                        _ => (self.connect)(address)?,
                    };
                    let (address, in_flight) = (address.clone(), VecDeque::new());
                    self.nodes.push(Node { address, connection, in_flight });
                    self.nodes.len() - 1
                }
            };
            places.push(place);
        }
        let owner = |place: &Option<usize>| places.get((*place)?).copied();
        self.owners = active.iter().map(owner).collect();
        Ok(())
    }

    /// Adopts the map that the cluster has now.
    fn learn(&mut self) -> Result<(), String> {
        let connection = (self.connect)(self.server)?;
        self.follow(connection)
    }

    fn vbucket_of(&self, name: &str) -> Vbid {
        Vbid::of(name.as_bytes(), u16::try_from(self.owners.len()).unwrap_or(0).max(1))
    }

    fn owner(&self, name: &str) -> Option<usize> {
        self.owners.get(usize::from(self.vbucket_of(name).0)).copied().flatten()
    }

    /// The node that serves a key; waits for a while when none does.
    fn node_of(&mut self, name: &str) -> Result<usize, String> {
        for _ in 0..RETRIES_MAX {
            if let Some(at) = self.owner(name) {
                return Ok(at);
            }
            std::thread::sleep(RETRY_PAUSE);
            self.learn()?;
        }
        Err(format!("no node serves the vBucket of {name:?}: `nacre cluster status` shows why"))
    }

    /// Adds a write to those in flight.
    ///
    /// # Errors
    /// When an earlier one was refused, or a connection broke.
    pub fn write(&mut self, collection: u32, key: String, document: String) -> Result<(), String> {
        let at = self.node_of(&key)?;
        self.push(at, Write { opcode: Opcode::Add, collection, key, document });
        if self.nodes[at].in_flight.len() >= WINDOW {
            self.settle(at, WINDOW / 2)?;
        }
        Ok(())
    }

    /// Waits for the answers to all writes.
    ///
    /// # Errors
    /// When one of them was refused, or a connection broke.
    pub fn finish(&mut self) -> Result<(), String> {
        while let Some(at) = self.nodes.iter().position(|node| !node.in_flight.is_empty()) {
            self.settle(at, 0)?;
        }
        Ok(())
    }

    /// Returns the results of the rows whose answers have come.
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    /// Returns true if a write was refused because memory or disk is full.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    fn push(&mut self, at: usize, write: Write) {
        self.send(at, &write);
        self.nodes[at].in_flight.push_back(write);
    }

    fn send(&mut self, at: usize, Write { opcode, collection, key: name, document }: &Write) {
        let mut extras = [0; 8];
        extras[..4].copy_from_slice(&JSON_FLAGS.to_be_bytes());
        let mut key = Vec::with_capacity(5 + name.len());
        leb128_encode(*collection, &mut key);
        key.extend_from_slice(name.as_bytes());
        let vbid = self.vbucket_of(name);
        let (opcode, value) = (*opcode as u8, document.as_bytes());
        let request =
            Request { opcode, vbid, extras: &extras, key: &key, value, ..Request::default() };
        self.nodes[at].connection.send(request);
    }

    /// Takes answers of a node until at most `left` writes are in flight to it.
    fn settle(&mut self, at: usize, left: usize) -> Result<(), String> {
        self.nodes[at].connection.flush()?;
        while self.nodes[at].in_flight.len() > left {
            let node = &mut self.nodes[at];
            let Some(write) = node.in_flight.pop_front() else { break };
            let status = node.connection.receive(|frame| frame.vbid)?;
            let status = self.insist(at, status, &write)?;
            self.settled(write, status)?;
            self.nodes[at].connection.flush()?;
        }
        Ok(())
    }

    /// Counts a write, or writes over the document that is there already.
    fn settled(&mut self, write: Write, status: u16) -> Result<(), String> {
        let is_add = write.opcode == Opcode::Add;
        if is_add && status == Status::KeyExists as u16 && self.existing == Existing::Replace {
            let at = self.node_of(&write.key)?;
            self.push(at, Write { opcode: Opcode::Set, ..write });
            return Ok(());
        }
        self.bar.inc(1);
        match status {
            _ if status == Status::Success as u16 && is_add => self.loaded.added += 1,
            _ if status == Status::Success as u16 => self.loaded.replaced += 1,
            _ if status == Status::KeyExists as u16 && is_add => self.loaded.kept += 1,
            _ => {
                self.is_full = FULL.contains(&status);
                let why = describe_status(Opcode::Set, status);
                return Err(format!("cannot write {:?}: {why}", write.key));
            }
        }
        Ok(())
    }

    /// Repeats a write that node `at` has refused; returns the last status.
    fn insist(&mut self, mut at: usize, mut status: u16, write: &Write) -> Result<u16, String> {
        let key = &write.key;
        for _ in 0..RETRIES_MAX {
            if !PASSING.contains(&status) {
                break;
            }
            // A map that is newer than the request says where to go; without one, only time helps.
            if status != NOT_MY_VBUCKET || self.owner(key) == Some(at) {
                std::thread::sleep(RETRY_PAUSE);
            }
            if status == NOT_MY_VBUCKET && self.owner(key) == Some(at) {
                self.learn()?;
            }
            at = self.node_of(key)?;
            // Order among the writes of a file does not matter, but what is in flight must be answered first.
            self.settle(at, 0)?;
            self.send(at, write);
            let connection = &mut self.nodes[at].connection;
            connection.flush()?;
            status = connection.receive(|frame| frame.vbid)?;
        }
        Ok(status)
    }
}
