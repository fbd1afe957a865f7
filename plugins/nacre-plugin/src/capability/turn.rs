//! Which item of a call is at work: for a service that acts outside, see [`begin`].

use super::outside;
use crate::StateMut;

/// The event or timer at `index` of the call begins, and those before it are done: what was done for them stays, and is not
/// done again, when this one or a later one ends the call. Each begins later than the one before.
pub fn begin(index: u32, state: &mut dyn StateMut) {
    state.flush();
    outside::begin_turn(index);
}

/// The event at `index` of the batch could not be processed: for an error that `on_batch` would give, and is to be told although a
/// later item ends the call. Each is told once.
pub fn failed(index: u32, message: &str) {
    outside::turn_failed(index, message);
}

/// Milliseconds since the item began, or the call where none did.
pub fn passed_ms() -> u32 {
    outside::passed_ms()
}
