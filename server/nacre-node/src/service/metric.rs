//! Metrics of services.

/// A metric of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name without the prefix of the server and the suffix of its kind, such as `echo_messages`; or Couchbase's name, which begins with
    /// `n1ql_` or `fts_` and is that of a gauge, because Couchbase's counters have no suffix.
    pub name: &'static str,
    /// Description: a sentence without a full stop.
    pub help: &'static str,
    /// Kind: a counter or a gauge.
    pub kind: MetricKind,
    /// The current value.
    pub value: u64,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 at the start of the node.
    Counter,
    /// May rise and fall.
    Gauge,
}
