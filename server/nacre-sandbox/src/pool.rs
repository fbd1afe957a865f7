//! Idle instances of a deployment.
//!
//! A call sees everything that earlier calls left in its instance, such as globals and prototypes of JavaScript. An
//! instance that has answered one user therefore never answers another: a user's request gets one of the user's own
//! instances, or a new one.

use crate::Error;
use crate::context::{Context, Role};
use crate::instance::Instance;
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum number of idle instances. More may run at once; they are dropped afterwards with their state.
const IDLE_MAX: usize = 16;
/// Maximum linear memory of an idle instance, in bytes. A larger instance is dropped, because linear memory never
/// shrinks: creating another instance takes less time than filling that memory did.
pub const IDLE_BYTES_MAX: usize = 16 << 20;

/// The user for whom an instance is called; `None` if the plugin is part of the server and isolates users itself.
pub type User = Option<Arc<str>>;

/// A pool of instances for callers on any thread.
pub struct Pool {
    pub context: Arc<Context>,
    /// Idle instances with their users; the most recently used is last.
    idle: Mutex<Vec<(User, Instance)>>,
}

impl Pool {
    pub fn new(context: Arc<Context>) -> Pool {
        Pool { context, idle: Mutex::default() }
    }

    /// Returns an instance that is ready for a call for `user`.
    pub fn take(&self, user: &User) -> Result<Instance, Error> {
        let idle = {
            let mut idle = self.idle.lock();
            let own = idle.iter().rposition(|(known, _)| known == user);
            own.map(|at| idle.remove(at).1)
        };
        idle.map_or_else(|| self.context.instance(Role::Reader), Ok)
    }

    /// Returns an instance to the pool after a successful call for `user`.
    pub fn give_back(&self, user: User, mut instance: Instance) {
        // The snapshot would keep old pages alive while the instance is idle.
        drop(instance.take_view());
        if instance.memory_bytes() > IDLE_BYTES_MAX || instance.charge_to_idle().is_err() {
            return;
        }
        let mut idle = self.idle.lock();
        idle.push((user, instance));
        let oldest = (idle.len() > IDLE_MAX).then(|| idle.remove(0));
        drop(idle);
        drop(oldest);
    }
}
