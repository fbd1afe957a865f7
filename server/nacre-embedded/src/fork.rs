//! Detects whether this process is a child of the process that opened a database.
//!
//! A child has a copy of the memory, but not the thread that stores, and the state of locks that other threads held is invalid.
//! The C library calls a handler in the child, which increments a counter: a call compares one number and needs no system call
//! for the process ID.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of forks between the first process that called this function and this one.
pub(crate) fn generation() -> u32 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler changes one atomic number, which a child of a process with threads may do. The handler is a
        // function of this library, which stays loaded as long as the C library: the C library drops the handlers of a library
        // that is unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// Returns [`generation`] without installing the handler first.
pub(crate) fn current() -> u32 {
    FORKS.load(Ordering::Relaxed)
}
