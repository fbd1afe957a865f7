//! Metrics of services.

/// A metric of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name without the prefix of the server and the suffix of its kind: `echo_messages`.
    pub name: &'static str,
    /// Description, as a sentence without its full stop.
    pub help: &'static str,
    /// True if it only grows.
    pub kind: MetricKind,
    /// The value now.
    pub value: u64,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 at the start of the node.
    Counter,
    /// Goes up and down.
    Gauge,
}
