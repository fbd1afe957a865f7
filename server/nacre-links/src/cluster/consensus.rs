//! Agreement of the nodes by Raft.

use super::directory::Directory;
use super::disk_space::DiskSpaceWait;
use super::election::Election;
use super::failure;
use super::frame::Kind;
use super::leadership::{Known, confirm};
use super::link::Lane;
use super::log::Log;
use super::machine::{Machine, Waiting};
use super::membership;
use super::network::{Network, decode_piece};
use super::peers::{CallError, Peers};
use super::request::Caller;
use super::types::{Metrics, Place, Position, Raft, Ticketed, Types};
use crate::process::{Priority, Process};
use crate::tls::NodeKey;
use crate::vital::depend_on_this_thread;
use crossbeam_channel::{Sender, bounded};
use nacre_cluster::orchestrator::{LEASE_NS, Leadership, TICK_NS};
use nacre_cluster::{Cluster, Membership as Part, Secret};
use nacre_node::agreement::{Agreement, Proposal};
use nacre_node::{Error, Node, Platform};
use nacre_types::NodeId;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use openraft::{
    ChangeMembers, CommittedLeaderId, Config, LogId, Membership, ServerState, SnapshotPolicy,
    StoredMembership, Vote,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Interval of checks for nodes to remove.
const SEE_OFF_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the leader's heartbeats; also the timeout of a follower's answer to entries.
const HEARTBEAT_MS: u64 = 150;
/// Minimum and maximum time until a node becomes a candidate, counted from the end of the leader's lease: before that,
/// no node votes for another candidate. Busy processors and disks delay heartbeats by hundreds of milliseconds, and a
/// change of leaders delays everything.
const ELECTION_MS: (u64, u64) = (350, 600);
// Nodes renew their serving lease in time even if the leader is lost.
const _: () = assert!((ELECTION_MS.1 * 2 + HEARTBEAT_MS) * 1_000_000 + 4 * TICK_NS < LEASE_NS);
/// Timeout of a piece of a snapshot; the last piece includes opening buckets.
const SNAPSHOT_PIECE_MS: u64 = 30_000;
/// Size of a piece: other frames on the same connection wait for at most one piece.
const SNAPSHOT_PIECE_BYTES: u64 = 256 << 10;
/// Number of log entries after which a snapshot is taken.
const ENTRIES_A_SNAPSHOT: u64 = 256;
/// Entries kept after a snapshot, for nodes that lag slightly.
const ENTRIES_KEPT: u64 = 64;
/// How long the admission of a node waits for a new snapshot.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of entries per request.
const ENTRIES_A_REQUEST: u64 = 64;
/// Timeout of a proposal.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a read waits for the latest decisions before it uses the known ones.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(1);
/// How long to search for a leader.
const LEADER_PATIENCE: Duration = Duration::from_secs(15);
/// Timeout of a request at the leader.
const LEAD_PATIENCE: Duration = Duration::from_secs(45);
/// How long a leader that must be removed stays silent: longer than any search for another leader.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause before this node announces its address again.
const TELL_PAUSE: Duration = Duration::from_secs(1);
/// Pause before another search for a leader.
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// Timeout of a change of voters: a new node first receives the state.
const VOTERS_PATIENCE: Duration = Duration::from_secs(60);
/// Capacity of the queue of received messages; more are dropped.
const INBOX_MAX: usize = 4096;
/// Prefix of the spaces with Raft logs; the node's UUID follows.
const SPACE: &str = "agreement/";

/// A request that only the leader can carry out.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Decides a proposal.
    Propose(Box<Ticketed>),
    /// Changes the voters.
    Change(Voters),
    /// Returns the index of the last decision.
    Position,
}

/// The answer of the node that was asked as the leader.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Decided: the index of the entry (or of the last entry), and the reason if the proposal was refused.
    Decided(u64, Option<String>),
    /// Failed for this reason.
    Failed(String),
    /// The node is not the leader; the leader if known, which may be the asking node.
    NotLeader(Option<u64>),
}

/// A change of the set of voters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Voters {
    /// Adds a node as a learner and then as a voter.
    Add(NodeId, Place),
    /// Removes a voter.
    Remove(NodeId),
}

/// Initialises a new cluster.
type Initialise = dyn Fn(&Arc<Node>) -> Result<(), String> + Send + Sync;

/// The agreement of this node with the others.
pub struct Consensus {
    this: Weak<Consensus>,
    node: Arc<Node>,
    platform: Arc<dyn Platform>,
    runtime: Handle,
    /// Runtime that answers questions of other nodes.
    answering: Handle,
    peers: Arc<Peers>,
    questions: Arc<Peers>,
    waiting: Waiting,
    /// The disk-space wait of the running Raft.
    disk_space: Mutex<Arc<DiskSpaceWait>>,
    directory: Arc<Directory>,
    /// Leadership of the running Raft. An earlier Raft belonged to another cluster, whose terms also begin at 1.
    leadership: Mutex<Known>,
    election: Arc<Election>,
    /// True while this node must not lead.
    pub(super) is_stepping_down: Arc<AtomicBool>,
    inbox: Sender<(NodeId, Vec<u8>)>,
    /// Locked while this node joins, leaves, or admits another node.
    pub(super) entering: Mutex<()>,
    /// Creates the objects that a new cluster needs before any login.
    initialise: Box<Initialise>,
}

impl Consensus {
    /// Starts the agreement of `node`, identified by `key`, on the threads of `runtime`; questions of other nodes are
    /// answered on those of `answering`. A single node can change its state when this returns, and `initialise` has
    /// been applied to a new cluster.
    ///
    /// # Errors
    /// The damage of the stored log, or the reason why no thread could be started.
    pub fn start(
        node: &Arc<Node>,
        platform: Arc<dyn Platform>,
        key: &Arc<NodeKey>,
        process: &'static dyn Process,
        [runtime, answering]: [Handle; 2],
        initialise: impl Fn(&Arc<Node>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Arc<Consensus>, String> {
        let (inbox, messages) = bounded::<(NodeId, Vec<u8>)>(INBOX_MAX);
        let handler = Arc::clone(node);
        let listen = move || {
            depend_on_this_thread();
            process.prioritize(Priority::Urgent);
            messages.iter().for_each(|(from, message)| handler.receive(from, &message));
        };
        std::thread::Builder::new().name("messages".into()).spawn(listen).map_err(|error| {
            format!("cannot start the thread for messages of other nodes: {error}")
        })?;
        let directory = Directory::new(node, Arc::clone(key));
        let is_stepping_down = Arc::<AtomicBool>::default();
        let lease = Duration::from_millis(ELECTION_MS.1);
        let dice = Arc::clone(&platform);
        let random = move || dice.random();
        let consensus = Arc::new_cyclic(|this| Consensus {
            this: Weak::clone(this),
            node: Arc::clone(node),
            platform,
            peers: Peers::new(&directory, Lane::Agreement, runtime.clone()),
            questions: Peers::new(&directory, Lane::Questions, answering.clone()),
            directory,
            runtime,
            answering,
            waiting: Waiting::default(),
            disk_space: Mutex::default(),
            leadership: Mutex::default(),
            election: Arc::new(Election::new(
                lease,
                ELECTION_MS,
                Arc::clone(&is_stepping_down),
                random,
            )),
            is_stepping_down,
            inbox,
            entering: Mutex::default(),
            initialise: Box::new(initialise),
        });
        consensus.begin(false)?;
        node.agree_by(Arc::clone(&consensus) as Arc<_>);
        consensus.settle()?;
        Ok(consensus)
    }

    /// Returns the node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the runtime for connections of other nodes.
    pub fn runtime(&self, lane: Lane) -> &Handle {
        match lane {
            Lane::Agreement => &self.runtime,
            Lane::Questions => &self.answering,
        }
    }

    /// Returns the directory of the nodes.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns a sender of requests to other nodes.
    pub(super) fn caller(&self) -> Caller<'_> {
        Caller { runtime: &self.answering, key: self.directory.key() }
    }

    /// Returns the links to other nodes.
    pub fn peers(&self, lane: Lane) -> &Arc<Peers> {
        match lane {
            Lane::Agreement => &self.peers,
            Lane::Questions => &self.questions,
        }
    }

    /// Runs `work` on the agreement's threads and waits for it. Must not be called on these threads.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (done, waited) = bounded(1);
        self.runtime.spawn(async move {
            let _ = done.send(work.await);
        });
        waited.recv().ok()
    }

    /// Starts Raft from the stored state. With `founds`, this node admits the others.
    fn begin(self: &Arc<Self>, founds: bool) -> Result<(), String> {
        let name = match self.node.cluster().regroups {
            0 => format!("{SPACE}{}", self.node.uuid()),
            regroups => format!("{SPACE}{}/{regroups}", self.node.uuid()),
        };
        let spaces = self.platform.spaces();
        let failed = |error: nacre_store::Error| error.to_string();
        let known = spaces.names().map_err(failed)?;
        // Check before opening the log, which would create an empty one.
        if !known.iter().any(|known| known.starts_with(SPACE)) {
            self.check_lost_log()?;
        }
        let disk_space = Arc::new(DiskSpaceWait::new(self.waiting.clone()));
        *self.disk_space.lock() = Arc::clone(&disk_space);
        let log = Log::open(spaces.open(&name).map_err(failed)?, Arc::clone(&disk_space))?;
        // Remove the others after the open, so that there is always at least one log.
        for other in known.iter().filter(|known| known.starts_with(SPACE) && **known != name) {
            spaces.remove(other).map_err(failed)?;
        }
        let alone = self.node.cluster().nodes.keys().eq([&self.node.id()]);
        if alone || founds {
            self.found(&log)?;
        }
        let machine = Machine::open(&self.node, self.waiting.clone(), Arc::clone(&disk_space))?;
        let (id, peers) = (self.node.id().0, Arc::clone(&self.peers));
        let raft = self.wait(async move {
            openraft::Raft::new(id, Arc::new(config()), Network(peers), log, machine).await
        });
        let raft = raft.ok_or("the agreement's threads have ended")?;
        let raft = raft.map_err(|error| format!("the nodes cannot agree: {error}"))?;
        self.runtime.spawn(failure::stop_node_on_failure(raft.metrics(), disk_space));
        self.election.begin();
        self.runtime.spawn(Arc::clone(&self.election).run(raft.clone()));
        let known = Known::default();
        // A new cell for each Raft: a late confirmation of the previous Raft must not count.
        *self.leadership.lock() = Arc::clone(&known);
        self.runtime.spawn(confirm(Weak::clone(&self.this), raft.clone(), known));
        self.directory.replace(Some(raft));
        Ok(())
    }

    /// Called when the node has no Raft log. A node that has agreed with others has also voted, and must not vote twice
    /// in a term. A single node may begin a new log with its state.
    ///
    /// # Errors
    /// Fails when the log was lost, with advice for the operator.
    fn check_lost_log(&self) -> Result<(), String> {
        let position = self.node.position().map_err(|error| error.to_string())?;
        if position.is_none() {
            return Ok(());
        }
        let lost = "the log of what the nodes agree on (node/1.space, as a rule) is missing";
        if self.node.cluster().nodes.len() > 1 {
            return Err(format!(
                "{lost}: put back a copy of the whole data directory, or have another node fail this one over, start it with another \
                 --data-dir, add it and rebalance"
            ));
        }
        tracing::error!(
            "{lost}: the node is alone in its cluster and begins a new log with its present settings"
        );
        Ok(())
    }

    /// Makes a node that has never agreed with others its own leader. Its state becomes the first snapshot, because no
    /// log leads to it; joining nodes receive the snapshot.
    fn found(&self, log: &Log) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let cluster = self.node.cluster();
        if self.node.position().map_err(|error| failed(&error))?.is_some() {
            return Ok(());
        }
        let id = self.node.id().0;
        let log_id = LogId::new(CommittedLeaderId::new(1, id), 1);
        let place = cluster.nodes.get(&self.node.id()).map(|member| (id, Place::of(member)));
        let places: BTreeMap<u64, Place> = place.into_iter().collect();
        let voters = Membership::new(vec![BTreeSet::from([id])], places);
        let membership = StoredMembership::new(Some(log_id), voters);
        let position = Position { log_id: Some(log_id), membership, ..Position::default() };
        log.begin(Vote::new_committed(1, id)).map_err(|error| failed(&error))?;
        self.node.skip_to(&position.to_bytes()).map_err(|error| failed(&error))
    }

    /// Stops Raft and closes all links.
    fn end(&self) {
        *self.leadership.lock() = Known::default();
        self.disk_space.lock().give_up();
        if let Some(raft) = self.directory.replace(None) {
            let _ = self.wait(async move { raft.shutdown().await });
        }
        self.peers.reset();
        self.questions.reset();
    }

    /// Replaces the state of this node by another cluster, in which it becomes `id`. A cluster with other nodes admits
    /// it once their leader makes it a learner.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn enter(
        self: &Arc<Self>,
        id: NodeId,
        uuid: String,
        cluster: Cluster,
    ) -> Result<(), String> {
        self.end();
        self.directory.set_members(&cluster);
        let entered =
            self.node.replace_cluster(id, uuid, cluster).map_err(|error| error.to_string());
        self.begin(false)?;
        self.settle()?;
        entered
    }

    /// Continues with the state of this node and a new secret, without a majority. With `founds`, this node admits the
    /// other remaining nodes; otherwise it waits to be admitted.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn regroup(self: &Arc<Self>, secret: Secret, founds: bool) -> Result<(), String> {
        self.end();
        let regrouped = self.node.regroup(secret).map_err(|error| error.to_string());
        self.begin(founds)?;
        regrouped
    }

    /// Initialises a cluster of one node. A cluster with other nodes already is.
    fn settle(&self) -> Result<(), String> {
        if self.directory.others().is_empty() { (self.initialise)(&self.node) } else { Ok(()) }
    }

    fn leads(&self) -> Option<Leadership> {
        let known = Arc::clone(&self.leadership.lock());
        *known.lock()
    }

    fn raft(&self) -> Result<Raft, Error> {
        self.directory.raft().ok_or_else(|| {
            Error::Unavailable("the node changes from one cluster to another".into())
        })
    }

    /// Handles a message of another node.
    pub fn receive(&self, from: NodeId, message: Vec<u8>) {
        if message.is_empty() {
            return self.node.receive(from, &message);
        }
        // Messages that do not fit are dropped, as if lost in transit.
        let _ = self.inbox.try_send((from, message));
    }

    /// Answers a request of another node.
    ///
    /// # Errors
    /// The reason why there is no answer, as a sentence.
    pub async fn answer(self: &Arc<Self>, kind: Kind, payload: Vec<u8>) -> Result<Vec<u8>, String> {
        if kind == Kind::Ask {
            let node = Arc::clone(&self.node);
            let answered = tokio::task::spawn_blocking(move || node.answer(&payload)).await;
            return answered.map_err(|error| error.to_string());
        }
        let payload = &payload[..];
        let raft = self.raft().map_err(|error| error.to_string())?;
        match kind {
            Kind::Append => {
                let answer = raft.append_entries(parse(payload)?).await;
                answer.iter().for_each(|answer| self.election.receive(answer));
                Ok(json(&answer))
            }
            Kind::Vote => Ok(json(&self.election.vote(&raft, parse(payload)?).await)),
            Kind::Snapshot => {
                let piece = decode_piece(payload).ok_or("a piece of a snapshot is malformed")?;
                Ok(json(&raft.install_snapshot(piece).await))
            }
            Kind::Lead => Ok(json(&lead(&raft, &self.is_stepping_down, parse(payload)?).await)),
            Kind::Message | Kind::Answer | Kind::Failure | Kind::Ask => {
                Err("unknown kind of request".into())
            }
        }
    }

    /// Finds the leader and sends it the request, locally or over a link. Returns the index of the leader's last entry,
    /// and the reason if the request was refused.
    async fn ask_leader(
        &self,
        request: Request,
        patience: Duration,
    ) -> Result<(u64, Option<String>), String> {
        let (begun, own, bytes) = (Instant::now(), self.node.id(), json(&request));
        let mut hint = None;
        let mut others = BTreeSet::new();
        let mut problem =
            "there is no leader: most nodes are down or cannot reach each other".to_owned();
        while begun.elapsed() < LEADER_PATIENCE {
            let raft = self.raft().map_err(|error| error.to_string())?;
            let known = raft.metrics().borrow().current_leader;
            if others.is_empty() {
                others = self.directory.others();
            }
            // Without a known leader, ask the other nodes in turn: perhaps only this node is unaware of it.
            let answer = match hint.take().or(known.map(NodeId)).or_else(|| others.pop_first()) {
                Some(id) if id == own => {
                    Ok(lead(&raft, &self.is_stepping_down, parse(&bytes)?).await)
                }
                Some(id) => {
                    let asked = self.peers.call(id, Kind::Lead, bytes.clone(), patience).await;
                    asked.and_then(|bytes| parse(&bytes).map_err(CallError::Lost))
                }
                None => Err(CallError::NotSent(problem.clone())),
            };
            match answer {
                Ok(Answer::Decided(index, refused)) => return Ok((index, refused)),
                Ok(Answer::NotLeader(other)) => hint = other.map(NodeId),
                Ok(Answer::Failed(reason)) => return Ok((0, Some(reason))),
                // Requests are idempotent, so repeat the request even if the first one may have arrived.
                Err(error) => problem = error.to_string(),
            }
            tokio::time::sleep(LEADER_PAUSE).await;
        }
        Err(problem)
    }

    /// Submits a proposal to the leader, and reports outcomes that this node cannot observe otherwise.
    async fn submit(self: Arc<Self>, ticketed: Ticketed) {
        let ticket = ticketed.ticket;
        match self.ask_leader(Request::Propose(Box::new(ticketed)), PATIENCE).await {
            // An applied entry reports itself, unless it arrives in a snapshot.
            Ok((index, refused)) => {
                if self.applied(index).await {
                    let refusal = refused.map(|reason| Err(Error::Unavailable(reason)));
                    self.waiting.report(ticket, refusal.unwrap_or_else(|| Ok(self.node.cluster())));
                }
            }
            Err(reason) => self.waiting.report(ticket, Err(Error::Unavailable(reason))),
        }
    }

    /// Waits until this node has applied the entry at `index`.
    async fn applied(&self, index: u64) -> bool {
        let Ok(raft) = self.raft() else { return false };
        let waiting = raft.wait(Some(PATIENCE));
        waiting.applied_index_at_least(Some(index), "applied").await.is_ok()
    }

    /// Asks the leader to change the voters. Waits until a majority has agreed. Returns the index of the entry.
    ///
    /// # Errors
    /// The reason of the failure, as a sentence.
    pub fn change_voters(self: &Arc<Self>, change: Voters) -> Result<u64, String> {
        let consensus = Arc::clone(self);
        let changed = self.wait(async move {
            consensus.ask_leader(Request::Change(change), VOTERS_PATIENCE).await
        });
        let changed = changed.ok_or("the agreement's threads have ended")?;
        match changed? {
            (index, None) => Ok(index),
            (_, Some(reason)) => Err(reason),
        }
    }

    /// Returns true if a majority of the voters, including this node, was heard within this many nanoseconds.
    pub fn reaches_quorum(&self, silence_ns_max: u64) -> bool {
        let Some(raft) = self.directory.raft() else { return false };
        let membership = Arc::clone(&raft.metrics().borrow().membership_config);
        let is_reachable = |id: u64| {
            let silence_ns = self.node.silence_ns(NodeId(id));
            id == self.node.id().0 || silence_ns.is_some_and(|silence| silence <= silence_ns_max)
        };
        let (mut voters, mut reached) = (0, 0);
        for id in membership.membership().voter_ids() {
            voters += 1;
            reached += usize::from(is_reachable(id));
        }
        reached * 2 > voters
    }

    /// Returns the index of the last entry that this node has applied.
    pub fn applied_index(&self) -> u64 {
        let metrics = self.directory.raft().map(|raft| raft.metrics());
        let applied = metrics.and_then(|metrics| metrics.borrow().last_applied);
        applied.map_or(0, |applied| applied.index)
    }

    /// Removes nodes that a rebalance has emptied, whenever this node leads. Runs on its own thread, because it asks other
    /// nodes.
    pub fn eject_removed_nodes(self: &Arc<Self>) {
        let consensus = Arc::downgrade(self);
        let run = move || {
            while let Some(consensus) = consensus.upgrade() {
                consensus.eject_removed_nodes_once();
                drop(consensus);
                std::thread::sleep(SEE_OFF_INTERVAL);
            }
        };
        let _ = std::thread::Builder::new().name("farewell".into()).spawn(run);
    }

    fn eject_removed_nodes_once(self: &Arc<Self>) {
        let cluster = self.node.cluster();
        let leaving = cluster.nodes.iter();
        let leaving = leaving.filter(|(_, node)| node.membership == Part::Leaving);
        // The leader itself goes last, after another node has taken over.
        let mut leaving: Vec<_> = leaving.collect();
        leaving.sort_by_key(|(id, _)| **id == self.node.id());
        for (id, _) in leaving {
            if self.leads().is_none() {
                return;
            }
            if let Err(reason) = membership::remove(self, *id) {
                tracing::warn!("{id} is not removed yet: {reason}");
            }
        }
    }

    /// Announces this node's new address to the others until they know it. Before that, the node does not become a
    /// candidate, because no other node could reach it.
    pub fn announce_address(self: &Arc<Self>) {
        if self.node.moved().is_none() {
            return;
        }
        let alone = self.directory.others().is_empty();
        if let (false, Ok(raft)) = (alone, self.raft()) {
            raft.runtime_config().elect(false);
        }
        let consensus = Arc::clone(self);
        let announce = move || {
            while let Some(change) = consensus.node.moved() {
                if let Err(error) = consensus.node.change(&change) {
                    tracing::warn!(
                        "the other nodes do not know the address of this node yet: {error}"
                    );
                    std::thread::sleep(TELL_PAUSE);
                }
                if let Ok(raft) = consensus.raft() {
                    raft.runtime_config().elect(true);
                }
            }
            if let Ok(raft) = consensus.raft() {
                raft.runtime_config().elect(true);
            }
        };
        if alone {
            return announce();
        }
        let _ = std::thread::Builder::new().name("moving".into()).spawn(announce);
    }
}

impl Agreement for Consensus {
    fn propose(
        &self,
        _: &Arc<Node>,
        proposal: &Proposal,
        term: Option<u64>,
    ) -> Result<Arc<Cluster>, Error> {
        self.disk_space.lock().check()?;
        let ticketed = Ticketed { ticket: self.node.random(), proposal: proposal.clone(), term };
        let ticket = ticketed.ticket;
        let (sender, outcome) = bounded(1);
        self.waiting.insert(ticket, sender);
        if let Some(consensus) = self.this.upgrade() {
            self.runtime.spawn(consensus.submit(ticketed));
        }
        nacre_bucket::before_blocking();
        let outcome = outcome.recv_timeout(PATIENCE);
        self.waiting.forget(ticket);
        outcome.unwrap_or_else(|_| {
            Err(Error::Unavailable(
                "the nodes did not decide in time; the change may still be made".into(),
            ))
        })
    }

    fn catch_up(&self) {
        if self.directory.others().is_empty() {
            return;
        }
        let Some(consensus) = self.this.upgrade() else { return };
        let catching_up = async move {
            let asked = consensus.ask_leader(Request::Position, CATCH_UP_PATIENCE).await;
            if let Ok((index, None)) = asked {
                consensus.applied(index).await;
            }
        };
        self.wait(async { tokio::time::timeout(CATCH_UP_PATIENCE, catching_up).await });
    }

    fn leadership(&self, _: u64) -> Option<Leadership> {
        self.leads()
    }

    fn leader(&self) -> Option<NodeId> {
        let raft = self.directory.raft()?;
        let metrics = raft.metrics();
        let leader = metrics.borrow().current_leader;
        leader.map(NodeId)
    }
}

/// Carries out a request as the leader.
async fn lead(raft: &Raft, is_stepping_down: &Arc<AtomicBool>, request: Request) -> Answer {
    if let Request::Change(Voters::Remove(id)) = &request {
        let metrics = raft.metrics().borrow().clone();
        // openraft's leader cannot remove itself: it falls silent, and the caller asks its successor.
        if id.0 == metrics.id && metrics.state == ServerState::Leader {
            step_down(raft, Arc::clone(is_stepping_down));
            return Answer::NotLeader(None);
        }
    }
    let leading = async {
        match request {
            Request::Propose(ticketed) => decided(raft.client_write(*ticketed).await),
            Request::Change(Voters::Add(id, place)) => decided(add_voter(raft, id.0, place).await),
            Request::Change(Voters::Remove(id)) => decided(remove_voter(raft, id.0).await),
            // An answer would make the others follow this node for longer.
            Request::Position if is_stepping_down.load(Ordering::Relaxed) => {
                Answer::NotLeader(None)
            }
            Request::Position => position(raft).await,
        }
    };
    let too_late = || Answer::Failed("too few nodes have answered in time".into());
    tokio::time::timeout(LEAD_PATIENCE, leading).await.unwrap_or_else(|_| too_late())
}

fn decided(written: Written) -> Answer {
    match written {
        Ok(written) => Answer::Decided(written.log_id.index, written.data.refused),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(other))) => {
            Answer::NotLeader(other.leader_id)
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// Returns the last decision, after a majority has confirmed that this node still leads.
async fn position(raft: &Raft) -> Answer {
    match raft.get_read_log_id().await {
        Ok((last, _)) => Answer::Decided(last.map_or(0, |last| last.index), None),
        Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(other))) => {
            Answer::NotLeader(other.leader_id)
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// The result of writing an entry.
type Written = Result<
    openraft::raft::ClientWriteResponse<Types>,
    RaftError<u64, ClientWriteError<u64, Place>>,
>;

/// Adds a node as a learner until it has nearly caught up, and then as a voter. Starts from a new snapshot. Otherwise
/// the node would apply hundreds of entries one by one, on threads with a higher priority than those that serve
/// documents, and take processor time from them.
pub(super) async fn add_voter(raft: &Raft, id: u64, place: Place) -> Written {
    let applied = raft.metrics().borrow().last_applied;
    raft.trigger().snapshot().await?;
    let is_taken = |metrics: &Metrics| metrics.snapshot >= applied;
    // The snapshot is optional.
    let _ = raft.wait(Some(SNAPSHOT_PATIENCE)).metrics(is_taken, "a snapshot of now").await;
    raft.add_learner(id, place, true).await?;
    raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id])), false).await
}

/// Silences a leader that must be removed, so that another node is elected and can remove it: an openraft leader cannot
/// remove itself. A leader that is not removed after all continues.
pub(super) fn step_down(raft: &Raft, is_stepping_down: Arc<AtomicBool>) {
    fn set(raft: &Raft, is_stepping_down: &AtomicBool, silent: bool) {
        is_stepping_down.store(silent, Ordering::Relaxed);
        raft.runtime_config().heartbeat(!silent);
        raft.runtime_config().elect(!silent);
    }
    let raft = raft.clone();
    set(&raft, &is_stepping_down, true);
    tokio::spawn(async move {
        // A node that has left and joined again may lead.
        let is_over =
            |metrics: &Metrics| metrics.current_leader.is_some_and(|leader| leader != metrics.id);
        let _ = raft.wait(Some(STEP_DOWN_TIMEOUT)).metrics(is_over, "another leads").await;
        set(&raft, &is_stepping_down, false);
    });
}

/// Removes a node as voter and learner.
async fn remove_voter(raft: &Raft, id: u64) -> Written {
    let membership = Arc::clone(&raft.metrics().borrow().membership_config);
    let nodes = BTreeSet::from([id]);
    let only_learns = membership.membership().learner_ids().any(|learner| learner == id);
    let change = match only_learns {
        true => ChangeMembers::RemoveNodes(nodes),
        false => ChangeMembers::RemoveVoters(nodes),
    };
    raft.change_membership(change, false).await
}

fn config() -> Config {
    Config {
        cluster_name: "nacre".into(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MS.0,
        election_timeout_max: ELECTION_MS.1,
        install_snapshot_timeout: SNAPSHOT_PIECE_MS,
        snapshot_max_chunk_size: SNAPSHOT_PIECE_BYTES,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(ENTRIES_A_SNAPSHOT),
        max_in_snapshot_log_to_keep: ENTRIES_KEPT,
        replication_lag_threshold: ENTRIES_A_SNAPSHOT,
        max_payload_entries: ENTRIES_A_REQUEST,
        ..Config::default()
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it is plain data with text keys")
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| format!("the request cannot be read: {error}"))
}
