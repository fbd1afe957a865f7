//! The server side of the web console: the files that browsers load, and what the nodes do, second by second.
//!
//! ```text
//! Sampler (one thread) ─► readings of this node ─► Rates ─► Rings          history of this node
//!                                                    └────► Frame ◄─ Latest of the other nodes
//! a browser's stream ◄── Console::frames ◄───────────────────┘           one frame for all browsers
//! ```
//!
//! A node measures itself each ten seconds, and each second while somebody watches. However many browsers watch a node, it asks each
//! other node once a second.
//!
//! [`range`] answers questions of monitoring tools from the same measurements.
//!
//! *Invariants:* nothing here is on the path of a request of a client; a node that does not answer is named in the frame, and what it
//! measured is left out rather than repeated.

mod assets;
pub mod range;
mod readings;
mod rings;
mod sampler;

pub use assets::{Asset, asset, assets};
pub use rings::{SERIES_MAX, Slots};

use nacre_node::service::{Service, ServiceSpec};
use nacre_node::{NoReply, Node, PeerMessage};
use parking_lot::Mutex;
use rings::Rings;
use sampler::Sampler;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

static SPEC: ServiceSpec = ServiceSpec::internal("console");

/// How long after the last sign of a watcher a node goes on measuring each second.
const WATCHED: Duration = Duration::from_secs(5);
/// Names of series that one question can be about, and their length in bytes.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 256;

/// What the process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// Seconds of processors since the process began.
    pub cpu_seconds: f64,
    /// Bytes in memory.
    pub resident_bytes: u64,
}

/// What all nodes have measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// When, in milliseconds since the Unix epoch; 0 before the first.
    pub unix_ms: u64,
    /// Values by node, which is its host and port of management, and by name.
    pub nodes: BTreeMap<String, Vec<(String, f64)>>,
    /// Nodes that have not answered.
    pub missing: Vec<String>,
}

/// What a node has measured over a stretch of time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History {
    /// Seconds between two values.
    pub step_s: u64,
    /// When the first value begins, in seconds since the Unix epoch.
    pub start_s: u64,
    /// Values by name; what was not measured is not a number.
    pub series: Vec<(String, Vec<f32>)>,
}

/// The service.
pub struct Console {
    process: fn() -> ProcessUsage,
    rings: Mutex<Rings>,
    /// What this node has measured last.
    latest: Mutex<Vec<(String, f64)>>,
    frames: watch::Sender<Arc<Frame>>,
    /// Monotonic time at which somebody was last seen to watch, in nanoseconds; 0 for never.
    watched_ns: AtomicU64,
    is_stopped: AtomicBool,
    signal: nacre_bucket::Signal,
}

impl Console {
    /// The service of a node whose process `process` reads.
    pub fn new(process: fn() -> ProcessUsage) -> Console {
        Console {
            process,
            rings: Mutex::default(),
            latest: Mutex::default(),
            frames: watch::Sender::new(Arc::default()),
            watched_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            signal: nacre_bucket::Signal::default(),
        }
    }

    /// Notes that somebody watches the node, so that it measures each second for some time.
    pub fn watch(&self, node: &Node) {
        let (now_ns, was) = (node.now().monotonic_ns, self.is_watched(node));
        self.watched_ns.store(now_ns.max(1), Ordering::Relaxed);
        if !was {
            self.signal.wake();
        }
    }

    fn is_watched(&self, node: &Node) -> bool {
        let watched_ns = self.watched_ns.load(Ordering::Relaxed);
        let age_ns = node.now().monotonic_ns.saturating_sub(watched_ns);
        watched_ns > 0 && age_ns < WATCHED.as_nanos() as u64
    }

    /// Returns the frames as they come; the last of them is there at once.
    pub fn frames(&self) -> watch::Receiver<Arc<Frame>> {
        self.frames.subscribe()
    }

    /// Returns what this node has measured in the last `range_s` seconds of the series that `names` name: whole, or by their word.
    fn own_history(&self, node: &Node, range_s: u64, names: &[String]) -> History {
        let slots = Slots::of(range_s, u64::from(node.now().unix_s()));
        let is_named = |series: &str| {
            let word = series.split_once(':').map_or(series, |(word, _)| word);
            names.iter().any(|name| name == series || name == word)
        };
        let series = self.rings.lock().values(slots, is_named);
        History { step_s: slots.step_s, start_s: slots.start_s, series }
    }

    /// Returns what the nodes have measured, by host and port of management, and the nodes that have not answered. Blocks, for about a
    /// second at most.
    pub fn history(
        &self,
        node: &Arc<Node>,
        range_s: u64,
        names: &[String],
    ) -> (BTreeMap<String, History>, Vec<String>) {
        let mut names = names.to_vec();
        names.truncate(NAMES_MAX);
        names.retain(|name| name.len() <= NAME_BYTES_MAX);
        let mut all = BTreeMap::new();
        all.insert(node.endpoints().management(), self.own_history(node, range_s, &names));
        let message = ConsoleMessage::History { range_s, names };
        let missing = ask(node, &message, |name, reply| {
            if let ConsoleReply::History(history) = reply {
                all.insert(name, history);
            }
        });
        (all, missing)
    }
}

/// A message of the console to another node.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum ConsoleMessage {
    /// What was measured last?
    Latest,
    /// What was measured over a stretch of time?
    History {
        /// Seconds.
        range_s: u64,
        /// Series.
        names: Vec<String>,
    },
}

/// The reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum ConsoleReply {
    Latest(Vec<(String, f64)>),
    History(History),
}

impl PeerMessage for ConsoleMessage {
    type Reply = ConsoleReply;

    const SERVICE: &'static str = SPEC.id;

    fn subject(&self) -> &'static str {
        "measurements"
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<ConsoleReply, NoReply> {
        let console: &Console =
            node.service().ok_or_else(|| NoReply::internal("there is no console here"))?;
        console.watch(node);
        Ok(match self {
            ConsoleMessage::Latest => ConsoleReply::Latest(console.latest.lock().clone()),
            ConsoleMessage::History { range_s, names } => {
                ConsoleReply::History(console.own_history(node, range_s, &names))
            }
        })
    }
}

/// How long another node may take to say what it has measured.
const PATIENCE: Duration = Duration::from_millis(500);

/// Asks all other nodes at once; returns those that have not answered.
fn ask(
    node: &Arc<Node>,
    message: &ConsoleMessage,
    mut take: impl FnMut(String, ConsoleReply),
) -> Vec<String> {
    let cluster = node.cluster();
    let name = |id| cluster.nodes.get(&id).map(|member| member.endpoints.management());
    let others = node.others().into_iter();
    let asked: Vec<_> =
        others.filter_map(|id| Some((name(id)?, node.ask(id, message, PATIENCE)))).collect();
    let mut missing = Vec::new();
    for (name, reply) in asked {
        match reply.wait() {
            Ok(Ok(reply)) => take(name, reply),
            Ok(Err(_)) | Err(_) => missing.push(name),
        }
    }
    missing
}

impl Service for Console {
    fn spec(&self) -> &'static ServiceSpec {
        &SPEC
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<ConsoleMessage>(message, left)
    }

    fn start(&self, node: &Arc<Node>) {
        node.spawn(Box::new(Sampler::new(node, self.signal.clone())));
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.signal.wake();
    }
}
