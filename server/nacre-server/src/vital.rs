//! Threads without which a node is none: when one of them panics, the process ends, as it would be killed.
//!
//! A node that had lost one would go on as if nothing had happened: without its flusher it would store nothing any more, and without a
//! thread of the key-value protocol leave clients without an answer. One that has ended is started again, or replaced by the others, and
//! what it had stored is there. What serves one request or one plugin may panic: only that fails.

use std::cell::Cell;

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// The node depends on this thread from now on.
pub fn depend_on_this_thread() {
    IS_VITAL.set(true);
}

/// From now on the process ends, with SIGABRT, when a thread panics on which it depends: before anything of what that thread was at is
/// dropped, so that no other thread sees the half of it.
pub fn watch() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if IS_VITAL.get() {
            let thread = std::thread::current();
            tracing::error!(
                "the node ends, as it cannot do without its thread {}, which has panicked: this is a fault of nacre; what was stored is \
                 there after a start",
                thread.name().unwrap_or_default()
            );
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread;

    /// Tells the process of the test from the one that it starts.
    const CHILD: &str = "NACRE_TEST_VITAL";

    #[test]
    fn a_process_ends_with_a_thread_that_it_depends_on_and_with_no_other() {
        if std::env::var_os(CHILD).is_some() {
            watch();
            assert!(thread::spawn(|| panic!("at one request")).join().is_err());
            let flusher = thread::Builder::new().name("flusher".into()).spawn(|| {
                depend_on_this_thread();
                panic!("at what all need");
            });
            let _ = flusher.unwrap().join();
            std::process::exit(0);
        }
        let this =
            "vital::tests::a_process_ends_with_a_thread_that_it_depends_on_and_with_no_other";
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{told}");
        assert!(told.contains("at one request") && told.contains("at what all need"), "{told}");
    }
}
