//! Capability `metrics`: numbers for the operator.
//!
//! A name has 1 to 64 of the characters `a-z`, `0-9` and `_`, and a deployment at most 64 of them; others are dropped.

use super::outside;

/// Adds to a number, 0 at first.
pub fn add(name: &str, delta: f64) {
    outside::add_metric(name, delta);
}

/// Sets a number.
pub fn set(name: &str, value: f64) {
    outside::set_metric(name, value);
}
