//! The panic hook of the process: a panic in a vital thread of the node ends it.

use nacre_server::is_vital_thread;

/// Installs the hook. A panic in a vital thread ends the process with SIGABRT, before anything that the thread was working on is dropped,
/// so that no other thread sees it half done.
pub fn install() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if is_vital_thread() {
            let thread = std::thread::current();
            tracing::error!(
                "stopping the node, its thread {} has panicked: this is a fault of nacre; stored data is \
                 available after a restart",
                thread.name().unwrap_or_default()
            );
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_server::depend_on_this_thread;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread;

    /// Set in the process that the test starts.
    const CHILD: &str = "NACRE_TEST_VITAL";

    #[test]
    fn only_a_panic_of_a_vital_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            install();
            assert!(thread::spawn(|| panic!("at one request")).join().is_err());
            let flusher = thread::Builder::new().name("flusher".into()).spawn(|| {
                depend_on_this_thread();
                panic!("at what all need");
            });
            let _ = flusher.unwrap().join();
            std::process::exit(0);
        }
        let this = "panic_hook::tests::only_a_panic_of_a_vital_thread_ends_the_process";
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
