//! What a function counts for its operator.

use nacre_plugin::metrics;
use std::collections::BTreeMap;

/// Counts since they were told last. Telling is a call into the host, so that it is done once a batch.
#[derive(Default)]
pub struct Numbers(BTreeMap<&'static str, f64>);

impl Numbers {
    /// Counts one.
    pub fn count(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1.0;
    }

    /// Counts so many.
    pub fn add(&mut self, name: &'static str, count: u32) {
        if count > 0 {
            *self.0.entry(name).or_default() += f64::from(count);
        }
    }

    /// Tells all.
    pub fn tell(&mut self) {
        for (name, count) in std::mem::take(&mut self.0) {
            metrics::add(name, count);
        }
    }
}
