//! The environment of a node: time, randomness, storage and threads for its tasks.

use crate::outgoing::Outgoing;
use nacre_bucket::{BucketEnv, Waiter};
use nacre_cluster::{Bucket, BucketSettings, Endpoints};
use nacre_sandbox::{Capsule, Http, Plugin};
use nacre_state::StateOptions;
use nacre_store::{Error, Spaces, Store};
use nacre_types::{NodeId, Now};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The environment as a node sees it. The server implements it with real clocks and disks, a simulator with values
/// derived from its seed.
pub trait Platform: BucketEnv {
    /// Opens the store of a bucket. `create` is true for a new bucket; otherwise a missing store is an error.
    ///
    /// # Errors
    /// The error of the store.
    fn open_store(&self, bucket: &Bucket, create: bool) -> Result<Arc<dyn Store>, Error>;

    /// Removes the store of a bucket permanently.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn remove_store(&self, bucket: &Bucket) -> Result<(), Error>;

    /// Returns the folder for a service's own files; `None` if there are no files.
    fn folder(&self, service: &str) -> Option<std::path::PathBuf> {
        let _ = service;
        None
    }

    /// Returns the spaces of the node's settings and packages.
    fn spaces(&self) -> &dyn Spaces;

    /// Returns the spaces of the plugins' state.
    fn states(&self) -> &dyn Spaces {
        self.spaces()
    }

    /// Returns the options for states.
    fn state_options(&self) -> StateOptions {
        StateOptions::default()
    }

    /// Returns the component `name` that comes with the binary.
    ///
    /// # Errors
    /// Fails when there is none.
    fn shipped_plugin(&self, name: &str) -> Result<&'static [u8], String>;

    /// Compiles a component, or loads the code compiled earlier under the same `digest`. Takes seconds.
    ///
    /// # Errors
    /// The error in the component.
    fn load_plugin(&self, name: &str, digest: &str, component: &[u8]) -> Result<Plugin, String>;

    /// Returns the client that sends the requests of functions and plugins. It connects only to resolved addresses
    /// that `outgoing` allows.
    fn http(&self, outgoing: Outgoing) -> Arc<dyn Http>;

    /// Resolves a host, and returns those of its addresses that `outgoing` allows, with the port.
    ///
    /// # Errors
    /// The reason why there are none.
    fn reachable(
        &self,
        outgoing: &Outgoing,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, String> {
        let _ = (outgoing, host, port);
        Err("there is no network here".to_owned())
    }

    /// Reads the settings of a bucket from fields with the names of the management form. The fields modify `known`, or
    /// the defaults of a new bucket. `now_cas` is a CAS of the current time.
    ///
    /// # Errors
    /// The field that is not accepted, and the reason.
    fn bucket_settings(
        &self,
        known: Option<&BucketSettings>,
        fields: &[(String, String)],
        now_cas: u64,
    ) -> Result<BucketSettings, String> {
        let _ = (known, fields, now_cas);
        Err("buckets are not made by statements here".into())
    }

    /// Stores a failed call of a plugin for its author. Returns the location.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn keep_capsule(&self, capsule: &Capsule) -> Result<String, Error>;

    /// Returns the failed calls of a deployment that are stored here, oldest first, each with a name that states its
    /// time. Blocks.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn capsules(&self, deployment: &str) -> Result<Vec<(String, Capsule)>, Error>;

    /// Fetches the bytes of an uploaded package from a node that has them. Blocks.
    ///
    /// # Errors
    /// The reason why no node provides them.
    fn fetch_package(&self, digest: &str) -> Result<Vec<u8>, String>;

    /// Sends a one-way message to another node. Never blocks: the message is lost if there is no room for it, or if
    /// the connection breaks. Messages arrive in order, at [`Node::receive`](crate::Node::receive).
    fn send(&self, to: NodeId, message: Vec<u8>);

    /// Asks another node. `on_reply` receives the answer, or the reason why there is none, after `patience` at the latest,
    /// and must not block. Never blocks. The other node answers by [`Node::answer`](crate::Node::answer), on threads
    /// that its clients do not wait for.
    fn ask(&self, to: NodeId, question: Vec<u8>, patience: Duration, on_reply: ReplyCallback);

    /// Connects `link` to the key-value port of a node. Reconnects after each loss until the link is over.
    fn link(&self, peer: &Endpoints, link: Box<dyn Link>);
}

/// Called once with the peer's reply, or with the reason why there is none.
pub type ReplyCallback = Box<dyn FnOnce(Result<Vec<u8>, PeerError>) + Send>;

/// The reason why a peer gave no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The question was never sent, so the peer did not process it.
    #[error("{0}")]
    NotAsked(String),
    /// The question may have arrived, and the peer may have processed it.
    #[error("{0}")]
    Lost(String),
}

/// One end of a connection to another node, without the connection: bytes in, bytes out.
pub trait Link: Send {
    /// Sets the waiter to wake when the link has work; then [`Link::poll`] is called.
    fn attach(&mut self, waiter: Arc<dyn Waiter>);

    /// Called when the connection is open. Appends the first bytes to `out`.
    fn connected(&mut self, out: &mut Vec<u8>);

    /// Called when the connection is lost. Another one may follow.
    fn lost(&mut self);

    /// Processes the complete frames at the start of `input`. Returns the number of consumed bytes.
    ///
    /// # Errors
    /// The reason to close the connection.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, now: Now) -> Result<usize, String>;

    /// Appends the bytes that are ready to be sent. Returns the delay until the next call, unless something calls
    /// earlier.
    fn poll(&mut self, out: &mut Vec<u8>, now: Now) -> Option<Duration>;

    /// Returns true if the link is not needed any more.
    fn is_over(&self) -> bool;
}

/// Receives the one-way messages of other nodes.
pub trait PeerMessageHandler: Send + Sync {
    /// Handles one message. Runs on a thread that the messages of all nodes share, so it must not block.
    fn receive(&self, from: NodeId, message: &[u8]);
}
