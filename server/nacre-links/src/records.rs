//! Records that a node keeps for its operators in the data directory: the audit log and log collections.

use crate::audit::AuditLog;
use crate::log_collection::LogCollections;
use std::path::PathBuf;

/// The records of a node.
pub struct Records {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The audit log.
    pub audit: AuditLog,
    /// Log collections for support.
    pub collections: LogCollections,
}

impl Records {
    /// Creates the records of a data directory.
    pub fn new(data_dir: PathBuf) -> Records {
        let audit = AuditLog::new(data_dir.join("audit"));
        let collections = LogCollections::new(data_dir.join("logs"));
        Records { data_dir, audit, collections }
    }
}
