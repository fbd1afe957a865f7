//! Streams over a vBucket's history: cursors, snapshots, failover log, rollback.

mod batch;

pub use batch::{Batch, ResumePoint};
