//! The limits of a deployment.

use std::time::Duration;

/// Limits of one deployment. A call that exceeds one fails with an error that names the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum linear memory of one instance, in bytes.
    pub memory_bytes: usize,
    /// Maximum duration of one call, or of one item if the plugin names the current one; counted in ticks of one
    /// millisecond.
    pub deadline: Duration,
    /// Additional time for a plugin that ends long work by itself.
    pub grace: Duration,
    /// Maximum size of the state's keys and values, in bytes. A partition that would exceed it is stopped.
    pub state_bytes: usize,
    /// Maximum size of one response body, or of one piece of it, in bytes.
    pub result_bytes: usize,
    /// Maximum size of the response body to a request that the plugin sends, in bytes.
    pub http_bytes: usize,
    /// Number of consecutive documents that may kill their instance before the partition is stopped.
    pub errors_max: u32,
}

impl Default for Limits {
    /// 256 MiB of memory (enough for a parsed 20 MiB document), 5 s per call, 4 GiB of state, 64 MiB per response, 8
    /// MiB per received response, and three consecutive poison documents.
    fn default() -> Limits {
        Limits {
            memory_bytes: 256 << 20,
            deadline: Duration::from_secs(5),
            grace: Duration::ZERO,
            state_bytes: 4 << 30,
            result_bytes: 64 << 20,
            http_bytes: 8 << 20,
            errors_max: 3,
        }
    }
}

impl Limits {
    /// Returns the limits of a pure call, such as a conflict resolution: 50 ms, 64 MiB of memory, no state, 20 MiB for
    /// a result.
    pub fn pure() -> Limits {
        Limits {
            memory_bytes: 64 << 20,
            deadline: Duration::from_millis(50),
            state_bytes: 0,
            result_bytes: 20 << 20,
            ..Limits::default()
        }
    }

    /// Returns the deadline in ticks, plus one because the current tick has partly passed.
    pub(crate) fn deadline_ticks(&self) -> u64 {
        let whole = self.deadline.saturating_add(self.grace);
        u64::try_from(whole.as_millis()).unwrap_or(u64::MAX / 2).saturating_add(1)
    }
}
