//! Events for a driver, collected from the threads that work for it.

use crate::target::{Target, Unusable};
use nacre_bucket::Signal;
use nacre_client::ClusterMap;
use nacre_types::Vbid;
use nacre_xdcr::{Input, Run};
use parking_lot::Mutex;

/// Everything that makes a driver act, besides the source's history and time.
pub(crate) enum Event {
    /// An answer for a pipeline.
    Input(Vbid, Box<Input>),
    /// The histories of some target vBuckets: all or a part of an [`Input::Target`] for the pipeline of `source`.
    States {
        /// vBucket of the pipeline.
        source: Vbid,
        /// Its run.
        run: Run,
        /// The part.
        input: Box<Input>,
    },
    /// A connection was established.
    Linked,
    /// A connection has ended or failed: requests in flight may stay unanswered.
    LinkLost {
        /// Address of the node.
        address: String,
        /// Why.
        reason: String,
    },
    /// A cluster map sent by a target node.
    Map(Box<ClusterMap>),
    /// The result of logging a conflict, and the input for the pipeline of the vBucket.
    Logged(Vbid, Box<Input>, Result<(), String>),
    /// The Scout has read the target's description.
    Target(Box<Target>),
    /// The Scout could not read the target's description.
    NoTarget(Unusable),
}

/// Events that the driver has not handled yet. The number of requests in flight bounds them.
#[derive(Default)]
pub(crate) struct Inbox {
    events: Mutex<Vec<Event>>,
    /// Wakes the driver.
    pub signal: Signal,
}

impl Inbox {
    /// Adds events, in order.
    pub fn push(&self, events: impl IntoIterator<Item = Event>) {
        let mut known = self.events.lock();
        let before = known.len();
        known.extend(events);
        let has_news = known.len() > before;
        drop(known);
        if has_news {
            self.signal.wake();
        }
    }

    /// Takes all events.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }
}
