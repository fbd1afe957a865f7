//! Raft's requests over the links between nodes.

use super::frame::Kind;
use super::peers::{CallError, Peers};
use super::types::{Place, Types};
use nacre_types::NodeId;
use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Pause before Raft retries an unreachable node.
const PAUSE: Duration = Duration::from_millis(200);

/// The failure of a request with the specific error `E`.
type Failure<E> = RPCError<u64, Place, RaftError<u64, E>>;

/// Creates Raft's connections to all nodes.
pub struct Network(pub Arc<Peers>);

/// Raft's connection to one node.
pub struct PeerNetwork {
    peers: Arc<Peers>,
    to: u64,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = PeerNetwork;

    async fn new_client(&mut self, to: u64, _: &Place) -> PeerNetwork {
        PeerNetwork { peers: Arc::clone(&self.0), to }
    }
}

impl PeerNetwork {
    async fn call<T, E>(
        &self,
        kind: Kind,
        payload: Vec<u8>,
        option: &RPCOption,
    ) -> Result<T, Failure<E>>
    where
        T: DeserializeOwned,
        E: std::error::Error + DeserializeOwned,
    {
        let answer = self.peers.call(NodeId(self.to), kind, payload, option.hard_ttl()).await;
        let answer = answer.map_err(|error| match error {
            CallError::NotSent(_) => RPCError::Unreachable(Unreachable::new(&error)),
            CallError::Lost(_) => RPCError::Network(NetworkError::new(&error)),
        })?;
        let answer: Result<T, RaftError<u64, E>> = serde_json::from_slice(&answer)
            .map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.to, error)))
    }
}

fn json(request: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(request).expect("requests are plain data with text keys")
}

/// Encodes a piece of a snapshot: the length of its metadata, the metadata as JSON, and the bytes.
fn encode_piece(mut request: InstallSnapshotRequest<Types>) -> Vec<u8> {
    let data = std::mem::take(&mut request.data);
    let about = json(&request);
    [&(about.len() as u32).to_be_bytes(), &about[..], &data].concat()
}

/// Decodes a piece encoded by [`encode_piece`]; `None` if it is malformed.
pub fn decode_piece(payload: &[u8]) -> Option<InstallSnapshotRequest<Types>> {
    let (length, rest) = payload.split_first_chunk()?;
    let (about, data) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let mut request: InstallSnapshotRequest<Types> = serde_json::from_slice(about).ok()?;
    request.data = data.to_vec();
    Some(request)
}

impl RaftNetwork<Types> for PeerNetwork {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, Place, RaftError<u64>>> {
        self.call(Kind::Append, json(&request), &option).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<InstallSnapshotError>> {
        self.call(Kind::Snapshot, encode_piece(request), &option).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, Place, RaftError<u64>>> {
        self.call(Kind::Vote, json(&request), &option).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_snapshot_reads_back_as_written_and_other_bytes_are_refused() {
        let piece = InstallSnapshotRequest::<Types> {
            vote: openraft::Vote::new(3, 1),
            meta: Default::default(),
            offset: 7,
            data: vec![0, 255, 3],
            done: true,
        };
        let bytes = encode_piece(piece.clone());
        assert_eq!(decode_piece(&bytes), Some(piece));
        assert_eq!(decode_piece(&bytes[..20]), None);
        assert_eq!(decode_piece(&[0xff; 64]), None);
        assert_eq!(decode_piece(b""), None);
    }
}
