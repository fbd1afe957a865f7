//! The cost of calls.

use crate::capability::Capability;

/// Durations of calls, counted in buckets of doubling size: up to 1 µs, up to 2, 4, 8, …; the last bucket contains all
/// longer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of calls in each bucket.
    pub counts: [u64; Histogram::BUCKETS],
}

impl Histogram {
    /// Buckets up to 2^26 µs, a little more than a minute, and one for longer calls.
    pub const BUCKETS: usize = 28;

    /// Returns the upper bound of the bucket at `index`, in nanoseconds; `None` for the last.
    pub fn bound_ns(index: usize) -> Option<u64> {
        (index + 1 < Histogram::BUCKETS).then(|| 1000 << index)
    }

    /// Counts a call.
    pub(crate) fn add(&mut self, ns: u64) {
        let us = ns.div_ceil(1000).max(1);
        let index = us.next_power_of_two().trailing_zeros() as usize;
        self.counts[index.min(Histogram::BUCKETS - 1)] += 1;
    }

    /// Returns the upper bound of the bucket that contains the call at `share` (0.5 is the median), in nanoseconds;
    /// `None` if there are no calls, or if it is the last bucket.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().sum();
        let rank = (total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Histogram::bound_ns(index)
    }
}

/// Calls of one kind of instance since the deployment was opened, including `init`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of calls.
    pub calls: u64,
    /// Number of failed calls; each has cost its instance.
    pub failures: u64,
    /// Total duration of all calls, including waiting inside host calls, in nanoseconds.
    pub elapsed_ns: u64,
    /// Distribution of the durations.
    pub latency: Histogram,
    /// Numbers of calls into the host, in the order of [`Capability::ALL`].
    pub host_calls: [u64; Capability::ALL.len()],
}

impl Usage {
    /// Returns the numbers of calls into the host by capability.
    pub fn host_calls(&self) -> impl Iterator<Item = (Capability, u64)> {
        Capability::ALL.into_iter().zip(self.host_calls)
    }

    pub(crate) fn add(&mut self, elapsed_ns: u64, host_calls: &[u64], failed: bool) {
        self.calls += 1;
        self.failures += u64::from(failed);
        self.elapsed_ns += elapsed_ns;
        self.latency.add(elapsed_ns);
        for (sum, count) in self.host_calls.iter_mut().zip(host_calls) {
            *sum += count;
        }
    }

    /// Adds the calls of others.
    pub(crate) fn join(&mut self, others: &Usage) {
        self.calls += others.calls;
        self.failures += others.failures;
        self.elapsed_ns += others.elapsed_ns;
        let counts = self.latency.counts.iter_mut().zip(others.latency.counts);
        let host_calls = self.host_calls.iter_mut().zip(others.host_calls);
        counts.chain(host_calls).for_each(|(sum, count)| *sum += count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_in_the_bucket_that_bounds_them() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile_ns(0.5), None);
        for ns in [0, 1000, 1001, 2000, 5000, 1 << 40] {
            times.add(ns);
        }
        assert_eq!(times.counts[..4], [2, 2, 0, 1]);
        assert_eq!(times.counts[Histogram::BUCKETS - 1], 1);
        assert_eq!(times.quantile_ns(0.5), Some(2000));
        assert_eq!((times.quantile_ns(0.8), times.quantile_ns(1.0)), (Some(8000), None));
    }
}
