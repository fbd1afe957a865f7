//! Capability `timer`: calls of [`crate::Service::on_timer`] at a later time.
//!
//! Timers are part of the state: they are set in the same commit as the other writes of the call, and removed in the
//! commit of the call that they cause.

use super::outside;

/// Sets a timer and replaces a timer with the same name (1 to 1024 bytes). `due_us` is in microseconds since the Unix
/// epoch.
pub fn set(name: &str, due_us: u64, payload: &[u8]) {
    outside::set_timer(name, due_us, payload);
}

/// Assigns the timers that this call sets from now on to the vBucket `vb`; they move with it if the deployment ties its
/// work to vBuckets. With `None`, the default, timers stay with the node.
pub fn belong(vb: Option<u16>) {
    outside::timers_belong(vb);
}

/// Returns true if a timer with that name is set.
pub fn is_set(name: &str) -> bool {
    outside::is_timer_set(name)
}

/// Removes a timer. Returns true if it existed.
pub fn cancel(name: &str) -> bool {
    outside::cancel_timer(name)
}
