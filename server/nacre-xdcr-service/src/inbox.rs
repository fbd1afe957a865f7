//! What happens to a driver, gathered by the threads that work for it.

use crate::target::{Target, Unusable};
use nacre_bucket::Signal;
use nacre_client::ClusterMap;
use nacre_types::Vbid;
use nacre_xdcr::{Input, Run};
use parking_lot::Mutex;

/// Everything that makes a driver do something, besides the source's history and time.
pub(crate) enum Event {
    /// An answer for the pipeline of a vBucket.
    Input(Vbid, Box<Input>),
    /// How far some vBuckets of the target are: an [`Input::Target`] for the pipeline of `source`, or a part of one.
    States {
        /// vBucket of the pipeline.
        source: Vbid,
        /// Its run.
        run: Run,
        /// The part.
        input: Box<Input>,
    },
    /// A connection was made.
    Linked,
    /// A connection has ended, or could not be made: requests that were sent may have no answer.
    LinkLost {
        /// Address of the node.
        address: String,
        /// Why.
        reason: String,
    },
    /// A map of the target that a node has sent.
    Map(Box<ClusterMap>),
    /// A conflict is logged, or why it is not; and the answer for the pipeline of a vBucket.
    Logged(Vbid, Box<Input>, Result<(), String>),
    /// The target was looked at.
    Target(Box<Target>),
    /// It could not be.
    NoTarget(Unusable),
}

/// Events that the driver has not seen yet. Bounded by what the driver has asked for.
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
