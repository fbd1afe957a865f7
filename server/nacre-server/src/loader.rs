//! The writes of `nacre import`: each goes to the node that serves its vBucket, many in flight.
//!
//! Invariant: whoever waits for one answer of a node has taken all earlier ones, since answers come in the order of requests.

use crate::client::{Client, Request, refusal};
use indicatif::ProgressBar;
use nacre_protocol::{Opcode, Status};
use nacre_types::Vbid;
use std::collections::VecDeque;
use std::time::Duration;

/// Writes in flight to one node.
const WINDOW: usize = 256;
/// Common flags that official SDKs give JSON documents.
const JSON_FLAGS: u32 = 0x0200_0000;
/// How often a write is tried again when the server is busy or the vBucket moves, and how long to wait in between.
const RETRIES_MAX: u32 = 200;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const ELSEWHERE: u16 = Status::NotMyVbucket as u16;
/// Refusals that pass by themselves.
const PASSING: [u16; 4] =
    [Status::TemporaryFailure as u16, Status::NoMemory as u16, Status::Busy as u16, ELSEWHERE];

/// How to come to a node, by its address for keys.
pub type Connect<'a> = &'a dyn Fn(&str) -> Result<Client, String>;

/// Where documents are written to.
pub struct Loader<'a> {
    connect: Connect<'a>,
    /// The address that the user has given.
    server: &'a str,
    nodes: Vec<Node>,
    /// Which of `nodes` serves each vBucket.
    owners: Vec<Option<usize>>,
    /// The number of the collection, as it stands before keys.
    prefix: Vec<u8>,
    bar: ProgressBar,
}

struct Node {
    address: String,
    client: Client,
    in_flight: VecDeque<(String, String)>,
}

impl<'a> Loader<'a> {
    /// Connects to the nodes that `client`, a connection to `server`, knows of.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub fn open(
        connect: Connect<'a>,
        server: &'a str,
        client: Client,
        prefix: Vec<u8>,
        bar: ProgressBar,
    ) -> Result<Loader<'a>, String> {
        let (nodes, owners) = (Vec::new(), Vec::new());
        let mut loader = Loader { connect, server, nodes, owners, prefix, bar };
        loader.follow(client)?;
        Ok(loader)
    }

    /// Takes over the map that a connection has been given.
    fn follow(&mut self, client: Client) -> Result<(), String> {
        let servers = client.servers().to_vec();
        let active = client.active().to_vec();
        let mut client = Some(client);
        let mut places = Vec::new();
        for address in &servers {
            let known = self.nodes.iter().position(|node| node.address == *address);
            let place = match known {
                Some(place) => place,
                None => {
                    // A node that is alone is the one that was asked, whatever it takes for its own address.
                    let client = match client.take() {
                        Some(client) if servers.len() == 1 => client,
                        _ => (self.connect)(address)?,
                    };
                    let (address, in_flight) = (address.clone(), VecDeque::new());
                    self.nodes.push(Node { address, client, in_flight });
                    self.nodes.len() - 1
                }
            };
            places.push(place);
        }
        let owner = |place: &Option<usize>| places.get((*place)?).copied();
        self.owners = active.iter().map(owner).collect();
        Ok(())
    }

    /// Takes the map that the cluster has now.
    fn learn(&mut self) -> Result<(), String> {
        let client = (self.connect)(self.server)?;
        self.follow(client)
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
    pub fn write(&mut self, key: String, document: String) -> Result<(), String> {
        let at = self.node_of(&key)?;
        self.send(at, &key, &document);
        let node = &mut self.nodes[at];
        node.in_flight.push_back((key, document));
        if node.in_flight.len() >= WINDOW {
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

    fn send(&mut self, at: usize, name: &str, document: &str) {
        let mut extras = [0; 8];
        extras[..4].copy_from_slice(&JSON_FLAGS.to_be_bytes());
        let key = [&self.prefix, name.as_bytes()].concat();
        let vbid = self.vbucket_of(name);
        let (opcode, value) = (Opcode::Set as u8, document.as_bytes());
        let request =
            Request { opcode, vbid, extras: &extras, key: &key, value, ..Request::default() };
        self.nodes[at].client.send(request);
    }

    /// Takes answers of a node until at most `left` writes are in flight to it.
    fn settle(&mut self, at: usize, left: usize) -> Result<(), String> {
        self.nodes[at].client.flush()?;
        while self.nodes[at].in_flight.len() > left {
            let node = &mut self.nodes[at];
            let Some((key, document)) = node.in_flight.pop_front() else { break };
            let status = node.client.receive(|frame| frame.vbid)?;
            let status = self.insist(at, status, &key, &document)?;
            self.bar.inc(1);
            if status != Status::Success as u16 {
                return Err(format!("cannot write {key:?}: {}", refusal(Opcode::Set, status)));
            }
        }
        Ok(())
    }

    /// Tries again what `at` has refused for a while; gives the last status.
    fn insist(
        &mut self,
        mut at: usize,
        mut status: u16,
        key: &str,
        document: &str,
    ) -> Result<u16, String> {
        for _ in 0..RETRIES_MAX {
            if !PASSING.contains(&status) {
                break;
            }
            // A map that is newer than the request tells where to go, otherwise it takes time.
            if status != ELSEWHERE || self.owner(key) == Some(at) {
                std::thread::sleep(RETRY_PAUSE);
            }
            if status == ELSEWHERE && self.owner(key) == Some(at) {
                self.learn()?;
            }
            at = self.node_of(key)?;
            // Order among the writes of a file does not matter, but what is in flight must be answered first.
            self.settle(at, 0)?;
            self.send(at, key, document);
            let client = &mut self.nodes[at].client;
            client.flush()?;
            status = client.receive(|frame| frame.vbid)?;
        }
        Ok(status)
    }
}
