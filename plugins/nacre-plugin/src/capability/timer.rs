//! Capability `timer`: calls of [`crate::Service::on_timer`] at a later time.
//!
//! Timers belong to the state: they are set, and removed when they fire, together with what the call writes.

use super::outside;

/// Sets a timer, in place of one of the same name (1 to 1024 bytes). `due_us` is in microseconds since the Unix epoch.
pub fn set(name: &str, due_us: u64, payload: &[u8]) {
    outside::set_timer(name, due_us, payload);
}

/// The timers that this call sets from here on belong to the vBucket `vb`, and move with it where the deployment keeps its
/// place; none, as at first: they stay with the node.
pub fn belong(vb: Option<u16>) {
    outside::timers_belong(vb);
}

/// Whether a timer of that name is set.
pub fn is_set(name: &str) -> bool {
    outside::is_timer_set(name)
}

/// Removes a timer; gives whether there was one.
pub fn cancel(name: &str) -> bool {
    outside::cancel_timer(name)
}
