//! Instances of a deployment that wait for their next call.
//!
//! The next call finds everything that a call leaves in an instance, such as globals and prototypes of JavaScript. So
//! an instance that has answered one user never answers another: a user's request gets one of the user's own, or a new
//! one.

use crate::Error;
use crate::context::{Context, Role};
use crate::instance::Instance;
use parking_lot::Mutex;
use std::sync::Arc;

/// Idle instances that are kept. More may run at once; they are dropped afterwards, with all that they remembered.
const IDLE_MAX: usize = 16;
/// Largest linear memory of an idle instance, in bytes. A larger one is dropped, because linear memory never shrinks:
/// creating another one takes less time than filling that memory did.
pub const IDLE_BYTES_MAX: usize = 16 << 20;

/// The user for whom an instance is called; `None` if the plugin is part of the server, and keeps users apart by
/// itself.
pub type User = Option<Arc<str>>;

/// Any number of instances for callers on any thread.
pub struct Pool {
    pub context: Arc<Context>,
    /// Instances with the users whom they have answered, the last used one at the end.
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

    /// Takes an instance back whose call for `user` has succeeded.
    pub fn give_back(&self, user: User, mut instance: Instance) {
        // The snapshot would keep old pages alive while the instance is idle.
        drop(instance.take_view());
        if instance.memory_bytes() > IDLE_BYTES_MAX || instance.charge_to_nobody().is_err() {
            return;
        }
        let mut idle = self.idle.lock();
        idle.push((user, instance));
        let oldest = (idle.len() > IDLE_MAX).then(|| idle.remove(0));
        drop(idle);
        drop(oldest);
    }
}
