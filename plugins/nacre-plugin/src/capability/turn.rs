//! The progress of a call through its items, for services with external effects; see [`begin`].

use super::outside;
use crate::StateMut;

/// Marks the beginning of the event or timer at `index` and the completion of all items before it. Work for completed items is
/// kept and not repeated if this item or a later one ends the call. Indexes must increase.
pub fn begin(index: u32, state: &mut dyn StateMut) {
    state.flush();
    outside::begin_turn(index);
}

/// Reports that the event at `index` of the batch could not be processed. The report equals an error returned by `on_batch`, but
/// survives if a later item ends the call. Report each event once.
pub fn failed(index: u32, message: &str) {
    outside::turn_failed(index, message);
}

/// Returns the milliseconds since the item began, or since the call began if no item did.
pub fn passed_ms() -> u32 {
    outside::passed_ms()
}
