//! `cargo xtask bench start`: the time from an empty directory to the first answer.

use super::load::median;
use super::{Limit, PORT_BASE};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node};

const FIRST_ANSWER: Limit = Limit { what: "first answer", unit: " ms", max: 300.0 };
const IDLE_MEMORY: Limit = Limit { what: "memory when idle", unit: " MB", max: 60.0 };
/// By then, memory needed only for the start has been freed, and the rest is in use.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Starts a node on an empty directory `rounds` times.
///
/// # Errors
/// Fails when it does not answer, or a limit is exceeded.
pub fn run(rounds: usize) -> Result<(), String> {
    let binary = node::build("release")?;
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begun = Instant::now();
        let node = Node::spawn(&binary, Some(PORT_BASE), &["default"], &[])?;
        node.wait_for_key_value(begun)?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(SETTLED_AFTER);
        memory.push(node::memory_bytes(node.id())? as f64 / 1e6);
        node.stop()?;
    }
    println!("median of {rounds} starts with one bucket, plugins compiled before");
    let within = FIRST_ANSWER.check(median(times));
    IDLE_MEMORY.check(median(memory)).and(within)
}
