//! The thread that measures.

use crate::readings::{self, Rates};
use crate::{Console, ConsoleMessage, ConsoleReply, Frame, ask};
use nacre_bucket::{Next, Signal, Task};
use nacre_node::Node;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two measurements while somebody watches, and while nobody does.
const WATCHED: Duration = Duration::from_secs(1);
const UNWATCHED: Duration = Duration::from_secs(10);

/// Measures a node, and gathers what the others have measured while somebody watches this one.
pub(crate) struct Sampler {
    node: Weak<Node>,
    signal: Signal,
    rates: Rates,
    /// Monotonic time of the next measurement, in nanoseconds.
    due_ns: u64,
}

impl Sampler {
    pub fn new(node: &Arc<Node>, signal: Signal) -> Sampler {
        Sampler { node: Arc::downgrade(node), signal, rates: Rates::default(), due_ns: 0 }
    }

    fn measure(&mut self, node: &Arc<Node>, console: &Console) {
        let now = node.now();
        let readings = readings::read(node, (console.process)());
        let values = self.rates.of(readings, now.monotonic_ns);
        let mut rings = console.rings.lock();
        for (name, value) in &values {
            rings.push(name, u64::from(now.unix_s()), *value);
        }
        drop(rings);
        console.latest.lock().clone_from(&values);
        // Without receivers the others need not be asked.
        if console.frames.receiver_count() == 0 {
            return;
        }
        let mut frame = Frame { unix_ms: now.unix_ns / 1_000_000, ..Frame::default() };
        frame.nodes.insert(node.endpoints().management(), values);
        frame.missing = ask(node, &ConsoleMessage::Latest, |name, reply| {
            if let ConsoleReply::Latest(values) = reply {
                frame.nodes.insert(name, values);
            }
        });
        console.frames.send_replace(Arc::new(frame));
    }
}

impl Task for Sampler {
    fn name(&self) -> &'static str {
        "sampler"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        let Some(node) = self.node.upgrade() else { return Next::Done };
        let Some(console) = node.service::<Console>() else { return Next::Done };
        if console.is_stopped.load(Ordering::Relaxed) {
            return Next::Done;
        }
        let period = if console.is_watched(&node) { WATCHED } else { UNWATCHED };
        let now_ns = node.now().monotonic_ns;
        // A watcher that has just come does not wait for the end of a long pause.
        self.due_ns = self.due_ns.min(now_ns + period.as_nanos() as u64);
        if now_ns >= self.due_ns {
            self.measure(&node, console);
            // What is late is not made up for: two measurements right after each other would give rates of nothing.
            let next_ns = self.due_ns + period.as_nanos() as u64;
            self.due_ns =
                if next_ns > now_ns { next_ns } else { now_ns + period.as_nanos() as u64 };
        }
        let left_ns = self.due_ns.saturating_sub(node.now().monotonic_ns);
        Next::After(Duration::from_nanos(left_ns.max(1)))
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}
