//! Vital threads: a node without one of them would continue as if nothing had happened, and be useless.
//!
//! Without its flusher a node would store nothing; without a thread of the key-value protocol, clients would wait for
//! ever. When a vital thread panics, the process should end: a node that has ended is restarted or replaced by others,
//! and its stored data is intact. The binary `nacre` does so in its panic hook. A panic in a thread that serves one
//! request or one plugin fails only that.

use std::cell::Cell;

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as vital.
pub fn depend_on_this_thread() {
    IS_VITAL.set(true);
}

/// Returns true if the calling thread is vital: a panic hook should end the process.
pub fn is_vital_thread() -> bool {
    IS_VITAL.get()
}
