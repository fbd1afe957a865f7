//! Tests Raft's store with openraft's test suite, and leaders that must be removed or that join another cluster.

use super::consensus::{Consensus, add_voter, step_down};
use super::election::Election;
use super::log::Log;
use super::machine::{Machine, Waiting};
use super::types::{Entry, Place, Raft, StorageError, Ticketed, Types};
use crate::platform::SystemPlatform;
use crate::process::Embedded;
use nacre_cluster::{Change, Endpoints, Member, NodeChange, Ports};
use nacre_node::agreement::{Agreement, Proposal};
use nacre_node::scatter_gather::NodeService;
use nacre_node::{Node, Platform};
use nacre_types::NodeId;
use openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::storage::RaftStateMachine;
use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, Config, EntryPayload, LogId, StorageIOError};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// Opens a new node.
fn open(folder: &Path) -> Result<(Arc<SystemPlatform>, Arc<Node>), Box<dyn Error>> {
    let platform = Arc::new(SystemPlatform::open(folder, folder.join("plugins"), &Embedded)?);
    let plain = Ports::from([("mgmt", 1), ("views", 2), ("query", 5), ("eventing", 4), ("kv", 3)]);
    let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
    let node =
        Node::open_with(Arc::clone(&platform) as Arc<_>, endpoints, vec![Arc::new(NodeService)])?;
    Ok((platform, node))
}

struct InFolders;

impl StoreBuilder<Types, Log, Machine, TempDir> for InFolders {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError> {
        let failed = |reason: String| {
            StorageError::from(StorageIOError::read(&std::io::Error::other(reason)))
        };
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let (platform, node) = open(folder.path()).map_err(|error| failed(error.to_string()))?;
        let space = platform.spaces().open("log").map_err(|error| failed(error.to_string()))?;
        let machine = Machine::open(&node, Waiting::default(), Arc::default()).map_err(failed)?;
        Ok((folder, Log::open(space, Arc::default()).map_err(failed)?, machine))
    }
}

#[test]
fn the_store_meets_the_contract_of_raft() {
    Suite::test_all(InFolders).unwrap();
}

#[tokio::test]
async fn decisions_of_a_leader_count_only_in_its_term() {
    let (_folder, _log, mut machine) = InFolders.build().await.unwrap();
    let entry = |(index, term): (u64, Option<u64>)| {
        let proposal = Proposal::Change(Change::Nodes(NodeChange::ResetAutoFailover));
        let ticketed = Ticketed { ticket: index, proposal, term };
        let log_id = LogId::new(CommittedLeaderId::new(2, 1), index);
        Entry { log_id, payload: EntryPayload::Normal(ticketed) }
    };
    let entries = [(1, Some(1)), (2, Some(2)), (3, None)].map(entry);
    let decided = machine.apply(entries).await.unwrap();
    let refused: Vec<Option<&str>> =
        decided.iter().map(|decided| decided.refused.as_deref()).collect();
    assert_eq!(refused, [Some("another node has become the leader"), None, None]);
    let (applied, _) = machine.applied_state().await.unwrap();
    assert_eq!(applied.map(|log_id| log_id.index), Some(3));
}

fn nobody() -> Unreachable {
    Unreachable::new(&std::io::Error::other("nobody is there"))
}

/// Several Rafts in one process, and those that receive no messages.
#[derive(Default)]
struct Hall {
    rafts: parking_lot::Mutex<BTreeMap<u64, (Raft, Arc<Election>)>>,
    deaf: parking_lot::Mutex<Vec<u64>>,
}

impl Hall {
    fn raft(&self, id: u64) -> Result<(Raft, Arc<Election>), Unreachable> {
        let hears = !self.deaf.lock().contains(&id);
        let raft = self.rafts.lock().get(&id).filter(|_| hears).cloned();
        raft.ok_or_else(nobody)
    }
}

/// The connection to another Raft in the same hall, if it exists.
struct Across(Arc<Hall>, u64);

impl RaftNetworkFactory<Types> for Across {
    type Network = Across;

    async fn new_client(&mut self, id: u64, _: &Place) -> Across {
        Across(Arc::clone(&self.0), id)
    }
}

impl RaftNetwork<Types> for Across {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, Place, RaftError<u64>>> {
        let (raft, election) = self.0.raft(self.1)?;
        let answer = raft.append_entries(request).await.map_err(|_| nobody())?;
        election.receive(&answer);
        Ok(answer)
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, Place, RaftError<u64, InstallSnapshotError>>,
    > {
        let (raft, _) = self.0.raft(self.1)?;
        Ok(raft.install_snapshot(request).await.map_err(|_| nobody())?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, Place, RaftError<u64>>> {
        let (raft, election) = self.0.raft(self.1)?;
        Ok(election.vote(&raft, request).await.map_err(|_| nobody())?)
    }
}

/// How long voters in a [`Hall`] vote for no other node after a leader's message.
const LEASE_MS: u64 = 300;

fn place(id: u64) -> Place {
    Place { uuid: id.to_string(), ..Place::default() }
}

/// Returns three nodes led by the first; Raft's own timeout makes no other node a candidate.
async fn three_in_a_hall() -> (Arc<Hall>, Vec<TempDir>) {
    let (hall, folders) = in_a_hall(1..=3).await;
    let voters = (1..=3).map(|id| (id, place(id)));
    let (first, _) = hall.raft(1).unwrap();
    first.initialize(voters.collect::<BTreeMap<_, _>>()).await.unwrap();
    for id in 1..=3 {
        let (raft, _) = hall.raft(id).unwrap();
        raft.wait(PATIENCE).current_leader(1, "the first one leads").await.unwrap();
        raft.wait(PATIENCE).applied_index_at_least(Some(1), "it is in").await.unwrap();
    }
    (hall, folders)
}

/// Returns nodes that are not in a cluster yet.
async fn in_a_hall(ids: RangeInclusive<u64>) -> (Arc<Hall>, Vec<TempDir>) {
    let hall = Arc::new(Hall::default());
    let mut folders = Vec::new();
    for id in ids {
        let (folder, log, machine) = InFolders.build().await.unwrap();
        let config = Config {
            election_timeout_max: LEASE_MS,
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let network = Across(Arc::clone(&hall), id);
        let raft = openraft::Raft::new(id, Arc::new(config), network, log, machine).await.unwrap();
        raft.runtime_config().elect(id == 1);
        let lease = Duration::from_millis(LEASE_MS);
        let election = Election::new(lease, (150, 300), Arc::default(), move || 97 * id);
        hall.rafts.lock().insert(id, (raft, Arc::new(election)));
        folders.push(folder);
    }
    (hall, folders)
}

/// Timeout of an expected event.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_leader_becomes_a_candidate() {
    let (hall, _folders) = three_in_a_hall().await;
    let [(first, _), (second, its), (third, _)] = [1, 2, 3].map(|id| hall.raft(id).unwrap());
    tokio::spawn(its.run(second.clone()));
    first.shutdown().await.unwrap();
    third.wait(PATIENCE).current_leader(2, "it was heard to want that").await.unwrap();
    second.shutdown().await.unwrap();
    third.shutdown().await.unwrap();
}

/// The election timeout plays no part here.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_refuses_a_shorter_log_leads_instead() {
    let (hall, _folders) = three_in_a_hall().await;
    let [(first, _), (second, _), (third, _)] = [1, 2, 3].map(|id| hall.raft(id).unwrap());
    hall.deaf.lock().push(3);
    let proposal = Proposal::Change(Change::Nodes(NodeChange::ResetAutoFailover));
    let entry = Ticketed { ticket: 1, proposal, term: None };
    let written = first.client_write(entry).await.unwrap().log_id;
    second.wait(PATIENCE).log_index(Some(written.index), "it has that").await.unwrap();
    *hall.deaf.lock() = vec![1];
    first.shutdown().await.unwrap();
    third.runtime_config().elect(true);
    third.wait(PATIENCE).current_leader(2, "the longer log leads").await.unwrap();
    second.shutdown().await.unwrap();
    third.shutdown().await.unwrap();
}

/// Applying each entry takes time of a thread with a higher priority than those that serve documents.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_member_begins_with_a_current_snapshot() {
    let (hall, _folders) = in_a_hall(1..=2).await;
    let [(first, _), (second, _)] = [1, 2].map(|id| hall.raft(id).unwrap());
    first.initialize(BTreeMap::from([(1, place(1))])).await.unwrap();
    first.wait(PATIENCE).current_leader(1, "it leads").await.unwrap();
    let mut last = None;
    for ticket in 0..20 {
        let proposal = Proposal::Change(Change::Nodes(NodeChange::ResetAutoFailover));
        let written = first.client_write(Ticketed { ticket, proposal, term: None }).await.unwrap();
        last = Some(written.log_id);
    }
    add_voter(&first, 2, place(2)).await.unwrap();
    assert!(second.metrics().borrow().snapshot >= last);
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

/// A leader that must be removed stays silent for longer than this test may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_has_left_may_lead_again_where_it_comes_next() {
    let (_folder, log, machine) = InFolders.build().await.unwrap();
    let config = Arc::new(Config { election_timeout_max: 300, ..Config::default() });
    let raft =
        openraft::Raft::new(1, config, Across(Arc::default(), 1), log, machine).await.unwrap();
    raft.initialize(BTreeMap::from([(1, Place::default())])).await.unwrap();
    raft.wait(PATIENCE).current_leader(1, "it leads").await.unwrap();
    let is_stepping_down = Arc::new(AtomicBool::new(false));
    step_down(&raft, Arc::clone(&is_stepping_down));
    assert!(is_stepping_down.load(Ordering::Relaxed));
    raft.shutdown().await.unwrap();
    let until_over = async {
        while is_stepping_down.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(15), until_over).await;
    assert!(ended.is_ok(), "it would lead its next cluster without a word");
}

/// Both clusters count terms from 1: messages as the leader of one could be mistaken for those of the other's leader.
#[test]
fn a_node_that_enters_a_cluster_no_longer_leads() {
    let folder = tempfile::tempdir().unwrap();
    let (platform, node) = open(folder.path()).unwrap();
    let threads =
        [(); 2].map(|()| Builder::new_multi_thread().worker_threads(1).enable_all().build());
    let threads = threads.map(Result::unwrap);
    let handles = threads.each_ref().map(|threads| threads.handle().clone());
    let other = Arc::clone(&platform) as Arc<_>;
    let consensus =
        Consensus::start(&node, other, platform.node_key(), &Embedded, handles, |_| Ok(()))
            .unwrap();
    let begun = Instant::now();
    while consensus.leadership(0).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is alone and does not lead");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (first, _, mut cluster) = node.new_cluster();
    let (me, uuid) = (NodeId(2), node.new_uuid());
    let member = Member { uuid: uuid.clone(), ..cluster.nodes[&first].clone() };
    cluster.apply(&Change::Nodes(NodeChange::PutNode { id: me, member })).unwrap();
    consensus.enter(me, uuid, cluster).unwrap();
    assert_eq!(consensus.leadership(0), None);
}
