//! What a service counts.

/// A metric of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name without the prefix of the server and the suffix of its kind: `echo_messages`.
    pub name: &'static str,
    /// What is counted, as a sentence without its full stop.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// The value now.
    pub value: u64,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, from 0 at the start of the node.
    Counter,
    /// It goes up and down.
    Gauge,
}
