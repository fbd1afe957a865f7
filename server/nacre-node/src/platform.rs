//! What a node needs from the world: time, chance, storage and somebody to run its loops.

use crate::outgoing::Outgoing;
use nacre_bucket::{BucketEnv, Waiter};
use nacre_cluster::{Bucket, Endpoints};
use nacre_sandbox::{Capsule, Http, Plugin};
use nacre_state::StateOptions;
use nacre_store::{Error, Spaces, Store};
use nacre_types::{NodeId, Now};
use std::sync::Arc;
use std::time::Duration;

/// The world as a node sees it. The server gives it real clocks and disks, a simulator whatever its seed says.
pub trait Platform: BucketEnv {
    /// Opens the store of a bucket; `create` when the bucket is new, so that a missing store is an error otherwise.
    ///
    /// # Errors
    /// What the store reports.
    fn open_store(&self, bucket: &Bucket, create: bool) -> Result<Arc<dyn Store>, Error>;

    /// Removes the store of a bucket for good.
    ///
    /// # Errors
    /// When the disk refuses.
    fn remove_store(&self, bucket: &Bucket) -> Result<(), Error>;

    /// Where the node keeps its settings and packages.
    fn spaces(&self) -> &dyn Spaces;

    /// Where it keeps the state of its plugins.
    fn states(&self) -> &dyn Spaces {
        self.spaces()
    }

    /// How states are kept.
    fn state_options(&self) -> StateOptions {
        StateOptions::default()
    }

    /// The component that comes with the binary under that name.
    ///
    /// # Errors
    /// When none does.
    fn shipped_plugin(&self, name: &str) -> Result<&'static [u8], String>;

    /// Compiles a component, or loads what was compiled before under the same `digest`. Takes seconds.
    ///
    /// # Errors
    /// What is wrong with the component.
    fn load_plugin(&self, name: &str, digest: &str, component: &[u8]) -> Result<Plugin, String>;

    /// Sends the requests of functions and plugins, to addresses only that `outgoing` allows once they are resolved.
    fn http(&self, outgoing: Outgoing) -> Arc<dyn Http>;

    /// Keeps a call of a plugin that failed, for its author; says where.
    ///
    /// # Errors
    /// When the disk refuses.
    fn keep_capsule(&self, capsule: &Capsule) -> Result<String, Error>;

    /// The calls of a deployment that failed and are kept here, by a name that says when, the oldest first. Blocks.
    ///
    /// # Errors
    /// When the disk refuses.
    fn capsules(&self, deployment: &str) -> Result<Vec<(String, Capsule)>, Error>;

    /// The bytes of an uploaded package, from a node that has them. Blocks.
    ///
    /// # Errors
    /// Why none gives them.
    fn fetch_package(&self, digest: &str) -> Result<Vec<u8>, String>;

    /// Sends a message to another node, one way. Never blocks: what there is no room for is lost, as is what is under
    /// way when a connection breaks. What arrives does so in order, at [`Node::hear`](crate::Node::hear).
    fn send(&self, to: NodeId, message: Vec<u8>);

    /// Asks another node something; `told` gets the answer, or why there is none, after `patience` at the latest, and must not
    /// block. Never blocks. The other node answers by [`Node::answer`](crate::Node::answer), away from what its clients
    /// wait for.
    fn ask(&self, to: NodeId, question: Vec<u8>, patience: Duration, told: ReplyCallback);

    /// Connects `link` to the key-value port of a node, again whenever the connection is lost, until the link is over.
    fn link(&self, peer: &Endpoints, link: Box<dyn Link>);
}

/// Called once with the peer's reply, or with the reason there is none.
pub type ReplyCallback = Box<dyn FnOnce(Result<Vec<u8>, PeerError>) + Send>;

/// The reason why a peer gave no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The question was never sent, so the peer has done nothing.
    #[error("{0}")]
    NotAsked(String),
    /// The question may have arrived, and the peer may have carried it out.
    #[error("{0}")]
    Lost(String),
}

/// One end of a connection to another node, without the connection: bytes in, bytes out.
pub trait Link: Send {
    /// Says who wakes it up: whoever has something for the link calls this waiter, and then [`Link::look`] is called.
    fn attach(&mut self, waiter: Arc<dyn Waiter>);

    /// There is a connection; what it has to say first is appended to `out`.
    fn connected(&mut self, out: &mut Vec<u8>);

    /// The connection is gone. There may be another one later.
    fn lost(&mut self);

    /// Takes in the whole frames at the start of `input`; gives the bytes that were consumed.
    ///
    /// # Errors
    /// Why the connection is to be given up.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, now: Now) -> Result<usize, String>;

    /// Looks whether there is something to say; gives when to look again if nobody calls before.
    fn look(&mut self, out: &mut Vec<u8>, now: Now) -> Option<Duration>;

    /// Whether it is not needed any more.
    fn is_over(&self) -> bool;
}

/// Receives the one-way messages of other nodes.
pub trait PeerMessageHandler: Send + Sync {
    /// Handles one message. Runs on a thread that the messages of all nodes share, so it must not block.
    fn hear(&self, from: NodeId, message: &[u8]);
}
