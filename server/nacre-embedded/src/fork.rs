//! Whether this process is a child of the one that opened a database.
//!
//! A child has a copy of the memory, but neither the thread that stores nor the truth about locks that other threads held. The C library
//! calls a handler in the child, which counts: so a call checks one number and asks no system call for the process's own.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many forks lie between the first process that asked and this one.
pub(crate) fn generation() -> u32 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches one atomic number, which a child of a process with threads may do. It is a function of this
        // library, which stays loaded as long as the C library does: handlers are dropped with the library that gave them.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// Returns [`generation`] without the check that it is counted.
pub(crate) fn current() -> u32 {
    FORKS.load(Ordering::Relaxed)
}
