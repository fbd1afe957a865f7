//! The store under Raft, by the suite that comes with openraft.

use super::log::Log;
use super::machine::{Machine, Waiting};
use super::types::{StorageError, Types};
use crate::platform::SystemPlatform;
use nacre_cluster::{Endpoints, Ports};
use nacre_node::{Node, Platform};
use openraft::StorageIOError;
use openraft::testing::{StoreBuilder, Suite};
use std::sync::Arc;
use tempfile::TempDir;

struct InFolders;

impl StoreBuilder<Types, Log, Machine, TempDir> for InFolders {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError> {
        let failed = |reason: String| {
            StorageError::from(StorageIOError::read(&std::io::Error::other(reason)))
        };
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let platform = SystemPlatform::open(folder.path(), folder.path().join("plugins"));
        let platform = Arc::new(platform.map_err(|error| failed(error.to_string()))?);
        let plain = Ports { mgmt: 1, views: 2, query: 5, eventing: 4, kv: 3 };
        let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
        let node = Node::open(Arc::clone(&platform) as Arc<_>, endpoints);
        let node = node.map_err(|error| failed(error.to_string()))?;
        let space = platform.spaces().open("log").map_err(|error| failed(error.to_string()))?;
        let machine = Machine::open(&node, Waiting::default()).map_err(failed)?;
        Ok((folder, Log::open(space).map_err(failed)?, machine))
    }
}

#[test]
fn the_store_keeps_what_raft_expects_of_one() {
    Suite::test_all(InFolders).unwrap();
}
