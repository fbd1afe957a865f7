//! The limits of a deployment.

use std::time::Duration;

/// Limits of one deployment. A call that passes one ends with an error that names the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of one instance, in bytes.
    pub memory_bytes: usize,
    /// Longest time of one call, or of one item where the plugin names the current one; counted in ticks of a
    /// millisecond.
    pub deadline: Duration,
    /// Additional time for a plugin that ends long work by itself.
    pub grace: Duration,
    /// Keys and values of the state, in bytes. A partition that would grow beyond is stopped.
    pub state_bytes: usize,
    /// Body of one response, or of one piece of it, in bytes.
    pub result_bytes: usize,
    /// Body of the answer to a request that the plugin sends, in bytes.
    pub http_bytes: usize,
    /// Number of documents in a row that may kill their instance before the partition is stopped.
    pub errors_max: u32,
}

impl Default for Limits {
    /// 256 MiB of memory (a 20 MiB document, parsed), 5 s a call, 4 GiB of state, 64 MiB a response, 8 MiB for an answer
    /// from elsewhere, and three poison documents in a row.
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
    /// For a pure call, as between two versions of a document: 50 ms, 64 MiB of memory, no state, 20 MiB for a result.
    pub fn pure() -> Limits {
        Limits {
            memory_bytes: 64 << 20,
            deadline: Duration::from_millis(50),
            state_bytes: 0,
            result_bytes: 20 << 20,
            ..Limits::default()
        }
    }

    /// The deadline in ticks: one more than asked, since the current tick has partly passed.
    pub(crate) fn deadline_ticks(&self) -> u64 {
        let whole = self.deadline.saturating_add(self.grace);
        u64::try_from(whole.as_millis()).unwrap_or(u64::MAX / 2).saturating_add(1)
    }
}
