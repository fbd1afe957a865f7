//! Counters that a function reports to its operator.

use nacre_plugin::metrics;
use std::collections::BTreeMap;

/// Increments since the last report. A report is a call into the host, so the plugin reports once per batch.
#[derive(Default)]
pub struct Numbers(BTreeMap<&'static str, f64>);

impl Numbers {
    /// Increments a counter.
    pub fn count(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1.0;
    }

    /// Adds `count` to a counter.
    pub fn add(&mut self, name: &'static str, count: u32) {
        if count > 0 {
            *self.0.entry(name).or_default() += f64::from(count);
        }
    }

    /// Reports all increments.
    pub fn tell(&mut self) {
        for (name, count) in std::mem::take(&mut self.0) {
            metrics::add(name, count);
        }
    }
}
