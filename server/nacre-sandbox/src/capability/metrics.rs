//! `metrics`: metrics for the operator.

use crate::abi::nacre::plugin::metrics::Host;
use crate::capability::Capability;
use crate::instance::Data;
use std::collections::BTreeMap;
use wasmtime::Result;

/// Maximum number of metrics of a deployment.
pub const METRICS_MAX: usize = 64;
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Changes of each metric by a call: an optional new value, and an amount to add.
#[derive(Default)]
pub struct MetricChanges {
    changes: BTreeMap<String, (Option<f64>, f64)>,
}

impl MetricChanges {
    fn entry(&mut self, name: String) -> Option<&mut (Option<f64>, f64)> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let fits = self.changes.len() < METRICS_MAX || self.changes.contains_key(&name);
        (is_name && fits).then(|| self.changes.entry(name).or_default())
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Applies the changes to `metrics`.
    pub fn apply(self, metrics: &mut BTreeMap<String, f64>) {
        for (name, (set, added)) in self.changes {
            if metrics.len() < METRICS_MAX || metrics.contains_key(&name) {
                let value = metrics.entry(name).or_default();
                *value = set.unwrap_or(*value) + added;
            }
        }
    }
}

impl Host for Data {
    fn add(&mut self, name: String, delta: f64) -> Result<()> {
        self.count(Capability::Metrics)?;
        if let Some((_, added)) = self.metrics.entry(name) {
            *added += delta;
        }
        Ok(())
    }

    fn set(&mut self, name: String, value: f64) -> Result<()> {
        self.count(Capability::Metrics)?;
        if let Some(change) = self.metrics.entry(name) {
            *change = (Some(value), 0.0);
        }
        Ok(())
    }
}
