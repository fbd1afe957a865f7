//! Capability `metrics`: metrics for the operator.
//!
//! A name has 1 to 64 of the characters `a-z`, `0-9` and `_`, and a deployment has at most 64 names; the host drops
//! others.

use super::outside;

/// Adds to a metric, which starts at 0.
pub fn add(name: &str, delta: f64) {
    outside::add_metric(name, delta);
}

/// Sets a metric.
pub fn set(name: &str, value: f64) {
    outside::set_metric(name, value);
}
