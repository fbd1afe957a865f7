//! Instances of a deployment that wait for their next call; all alike, as no call leaves anything behind.

use crate::Error;
use crate::context::{Context, Role};
use crate::instance::Instance;
use parking_lot::Mutex;
use std::sync::Arc;

/// Idle instances that are kept. More may run at once; they are dropped afterwards, with all that they remembered.
const IDLE_MAX: usize = 16;

/// Any number of instances for callers on any thread.
pub struct Pool {
    pub context: Arc<Context>,
    idle: Mutex<Vec<Instance>>,
}

impl Pool {
    pub fn new(context: Arc<Context>) -> Pool {
        Pool { context, idle: Mutex::default() }
    }

    /// An instance that is ready for a call.
    pub fn take(&self) -> Result<Instance, Error> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.context.instance(Role::Reader), Ok)
    }

    /// Takes an instance back whose call has succeeded.
    pub fn give_back(&self, mut instance: Instance) {
        // The snapshot would keep old pages alive while the instance is idle.
        drop(instance.take_view());
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(instance);
        }
    }
}
