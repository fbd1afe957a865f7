//! The process of a node, as far as the node depends on it.
//!
//! A node does not change properties of the whole process: panic hook, allocator, signals, limits and priorities of
//! threads. The binary `nacre` owns its process and sets all of them; an application that embeds a node decides for
//! itself.

use nacre_bucket::Task;

/// Importance of a thread when there are fewer processors than threads that want to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Most threads.
    Usual,
    /// Threads whose delay makes other nodes take this node for lost.
    Urgent,
    /// Threads whose work can wait, and that must not interrupt others when they wake.
    Background,
    /// Threads that run after the usual ones, but interrupt those of the background when they wake.
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

/// Services that the process has for the node in it.
pub trait Process: Send + Sync {
    /// Prepares the process before the node opens its first file. Returns how many files and connections the process can have open.
    fn prepare(&self) -> u64;

    /// Schedules the calling thread by `priority`. Without this call, a thread runs as the one that has started it.
    fn prioritize(&self, priority: Priority);
}

/// A process that a node is a part of: nothing of it is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Process for Embedded {
    fn prepare(&self) -> u64 {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        limit.current.unwrap_or(u64::MAX)
    }

    fn prioritize(&self, _priority: Priority) {}
}
