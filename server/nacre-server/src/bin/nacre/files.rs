//! Files of the process: the limit of open files, and the permissions of new ones.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

/// Permissions that are taken from new files and directories: all of other users.
const OTHERS: u32 = 0o077;

/// Makes files and directories that the process creates from now on accessible to its user only, those of libraries included.
pub fn create_for_owner_alone() {
    umask(Mode::from_raw_mode(OTHERS));
}

/// Raises the limit of open files as far as the process may, and returns it. Shells and service managers give a process 1,024 so
/// that programs with `select` work; nacre has none.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let raised = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!("cannot raise the limit of open files: {error}");
            limit.current
        }
    };
    let raised = raised.unwrap_or(u64::MAX);
    tracing::info!("up to {raised} files and connections may be open");
    if raised < LIMIT_WANTED {
        tracing::warn!(
            "the limit of open files is low: raise the hard limit (ulimit -Hn, LimitNOFILE of systemd) to {LIMIT_WANTED} or more"
        );
    }
    raised
}

/// Open files that a node of some buckets and some thousand clients needs.
const LIMIT_WANTED: u64 = 8192;
