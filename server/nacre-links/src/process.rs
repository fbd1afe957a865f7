//! The process of a node, as far as the node depends on it.
//!
//! A node does not change process-wide properties: panic hook, allocator, signals, limits and thread priorities. The
//! binary `nacre` owns its process and sets all of them; an application that embeds a node decides for itself.

use nacre_bucket::Task;

/// Priority of a thread when there are more runnable threads than processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Most threads.
    Usual,
    /// Threads whose delay would make other nodes consider this node lost.
    Urgent,
    /// Threads whose work can wait, and that do not preempt others when they wake.
    Background,
    /// Threads that run after the usual ones, but preempt background threads when they wake.
    FirstOfBackground,
}

impl Priority {
    /// Returns the priority of the thread that runs `task`.
    pub fn of(task: &dyn Task) -> Priority {
        match (task.is_background(), task.is_urgent()) {
            (true, _) => Priority::Background,
            (false, true) => Priority::Urgent,
            (false, false) => Priority::Usual,
        }
    }
}

/// Services of the process for its node.
pub trait Process: Send + Sync {
    /// Prepares the process before the node opens its first file. Returns the maximum number of open files and connections.
    fn prepare(&self) -> u64;

    /// Sets the priority of the calling thread. A thread otherwise inherits the priority of its parent.
    fn prioritize(&self, priority: Priority);
}

/// A process that embeds a node; the node changes nothing of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Process for Embedded {
    fn prepare(&self) -> u64 {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        limit.current.unwrap_or(u64::MAX)
    }

    fn prioritize(&self, _priority: Priority) {}
}
