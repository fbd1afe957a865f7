//! What a node needs from the world: time, chance, storage and somebody to run its loops.

use crate::outgoing::Outgoing;
use crate::ticket::Waiter;
use nacre_cluster::{Bucket, Endpoints};
use nacre_plugin_host::{Capsule, Http, Plugin};
use nacre_store::{Error, Spaces, Store};
use nacre_types::{NodeId, Now};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// The world as a node sees it. The server gives it real clocks and disks, a simulator whatever its seed says.
pub trait Platform: Send + Sync {
    /// Both clocks.
    fn now(&self) -> Now;

    /// A number nobody can foresee.
    fn random(&self) -> u64;

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

    /// Runs `task` until it is done, beside the others.
    fn run(&self, task: Box<dyn Task>);

    /// Sends a message to another node, one way. Never blocks: what there is no room for is lost, as is what is under
    /// way when a connection breaks. What arrives does so in order, at [`Node::hear`](crate::Node::hear).
    fn send(&self, to: NodeId, message: Vec<u8>);

    /// Asks another node something; `told` gets the answer, or why there is none, after `patience` at the latest, and must not
    /// block. Never blocks. The other node answers by [`Node::answer`](crate::Node::answer), away from what its clients
    /// wait for.
    fn ask(&self, to: NodeId, question: Vec<u8>, patience: Duration, told: Told);

    /// Connects `link` to the key-value port of a node, again whenever the connection is lost, until the link is over.
    fn link(&self, peer: &Endpoints, link: Box<dyn Link>);
}

/// Who waits for the answer of another node.
pub type Told = Box<dyn FnOnce(Result<Vec<u8>, Unanswered>) + Send>;

/// Why another node did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It was not asked.
    #[error("{0}")]
    NotAsked(String),
    /// It may have been, and done what was asked.
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

/// Takes the messages of other nodes.
pub trait Hear: Send + Sync {
    /// A message, on a thread that the messages of all nodes share.
    fn hear(&self, from: NodeId, message: &[u8]);
}

/// A loop of the node, in steps that never block for long.
pub trait Task: Send {
    /// For people who look at threads, at most 15 characters.
    fn name(&self) -> &'static str;

    /// Whether clients wait for it less than for others: it yields the processor to them.
    fn is_background(&self) -> bool;

    /// Whether the whole node waits for it, and it takes little time: it comes before others.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Whether the node is none without it: the platform ends the process when such a task panics.
    fn is_vital(&self) -> bool {
        true
    }

    /// Does some work.
    fn step(&mut self) -> Next;

    /// Wakes the task after [`Next::Wait`].
    fn signal(&self) -> &Signal;
}

/// What a task wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step.
    Again,
    /// Another step once its signal is woken.
    Wait,
    /// Another step after that time, or when its signal is woken.
    After(Duration),
    /// None: the task is dropped.
    Done,
}

thread_local! {
    static BEFORE_HOLDING_UP: Cell<fn()> = const { Cell::new(|| {}) };
}

/// Has this thread do `work` whenever a request that it carries out is about to wait, or computes for long: others may be waiting for
/// the thread.
pub fn before_holding_up(work: fn()) {
    BEFORE_HOLDING_UP.set(work);
}

/// To be called where a request computes for long, and before it waits for anything but a [`Signal`], which calls it by itself.
pub fn about_to_hold_up() {
    BEFORE_HOLDING_UP.get()();
}

/// Wakes a sleeping task; waking one that is awake makes it take one more step.
///
/// Whoever wakes never waits for who sleeps: the one may come before the other where the processor is short, and then the other
/// would never get to what is waited for.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    /// One of the three below.
    state: AtomicU8,
    /// The one thread that waits, from the first time that it does.
    sleeper: OnceLock<Thread>,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

impl Waiter for Signal {
    fn wake(&self) {
        Signal::wake(self);
    }
}

impl Signal {
    /// Wakes the task. Many wakes before it looks are one.
    pub fn wake(&self) {
        if self.0.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP
            && let Some(sleeper) = self.0.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    /// Blocks until woken.
    ///
    /// # Panics
    /// Where another thread has waited before.
    pub fn wait(&self) {
        if self.lies_down() {
            while self.0.state.load(Ordering::Acquire) == ASLEEP {
                thread::park();
            }
        }
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Blocks until woken, or until `timeout` has passed; the system may wake it too.
    ///
    /// # Panics
    /// Where another thread has waited before.
    pub fn wait_at_most(&self, timeout: Duration) {
        if self.lies_down() {
            thread::park_timeout(timeout);
        }
        // Either way the task takes another step.
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Whether it has not been woken already.
    fn lies_down(&self) -> bool {
        if self.0.state.load(Ordering::Relaxed) == AWAKE {
            about_to_hold_up();
        }
        let sleeper = self.0.sleeper.get_or_init(thread::current);
        assert_eq!(sleeper.id(), thread::current().id(), "one thread waits for a signal");
        let state = &self.0.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a wake has arrived since the last look.
    pub fn take(&self) -> bool {
        // Whoever runs many tasks asks often.
        self.0.state.load(Ordering::Relaxed) == WOKEN
            && self.0.state.swap(AWAKE, Ordering::AcqRel) == WOKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Duration = Duration::from_secs(3600);

    #[test]
    fn many_wakes_are_one_and_none_is_missed() {
        let signal = Signal::default();
        assert!(!signal.take());
        signal.wake();
        signal.wake();
        signal.wait();
        assert!(!signal.take());
        signal.wake();
        assert!(signal.take());
        signal.wake();
        signal.wait_at_most(FOREVER);
        assert!(!signal.take());
    }

    #[test]
    fn two_tasks_wake_each_other_in_turn() {
        const TURNS: usize = 20_000;
        let (ping, pong) = (Signal::default(), Signal::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    ping.wait();
                    pong.wake();
                }
            });
            for _ in 0..TURNS {
                ping.wake();
                pong.wait();
            }
        });
    }
}
