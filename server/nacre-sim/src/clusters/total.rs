//! Statistics of many runs.

use super::simulation::Summary;
use std::fmt;

/// The sum of all runs so far.
#[derive(Debug, Default)]
pub struct Total {
    runs: u64,
    sum: Summary,
    /// Maximum number of messages after the last write per document and cluster, with its seed.
    messages: (f64, u64),
    /// Maximum number of versions made by replication per document and cluster, with its seed.
    made: (f64, u64),
}

impl Total {
    /// Adds the run of a seed.
    pub fn add(&mut self, seed: u64, summary: &Summary) {
        self.runs += 1;
        let sum = &mut self.sum;
        sum.writes += summary.writes;
        sum.messages += summary.messages;
        sum.decisions += summary.decisions;
        sum.logged += summary.logged;
        sum.unlogged += summary.unlogged;
        sum.failovers += summary.failovers;
        sum.lost += summary.lost;
        sum.excused += summary.excused;
        sum.stuck += summary.stuck;
        sum.virtual_ns += summary.virtual_ns;
        let rate = |count: u64| (count as f64 / summary.places as f64, seed);
        for (most, now) in [
            (&mut self.messages, rate(summary.messages_at_end)),
            (&mut self.made, rate(summary.made_at_end)),
        ] {
            if now.0 > most.0 {
                *most = now;
            }
        }
    }
}

impl Total {
    /// Returns true if the runs covered everything: conflicts, failovers, losses and versions put aside.
    pub fn has_everything(&self) -> bool {
        let Summary { writes, decisions, logged, failovers, lost, stuck, .. } = self.sum;
        [writes, decisions, logged, failovers, lost, stuck].iter().all(|count| *count > 0)
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Total { runs, sum, messages, made } = self;
        writeln!(
            f,
            "{runs} seeds: {} s of the clusters' time, {} writes, {} versions sent, {} decisions of resolvers, {} conflicts logged and {} not, {} put aside",
            sum.virtual_ns / 1_000_000_000,
            sum.writes,
            sum.messages,
            sum.decisions,
            sum.logged,
            sum.unlogged,
            sum.stuck
        )?;
        writeln!(
            f,
            "{} vBuckets served by another copy; {} writes lost by that, {} more replaced by what their cluster wrote afterwards",
            sum.failovers, sum.lost, sum.excused
        )?;
        write!(
            f,
            "after the last write at most {:.1} messages (seed {}) and {:.1} merges (seed {}) a document and cluster;",
            messages.0, messages.1, made.0, made.1
        )
    }
}

/// Parses a number of clusters: `3`, or an inclusive range such as `2..4`.
///
/// # Errors
/// A sentence for any other text, and for fewer than 2 or more than 4 clusters.
pub fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|number| (2..=4).contains(number));
    match (number(least), number(most)) {
        (Some(least), Some(most)) if least <= most => Ok((least, most)),
        _ => Err("expected 2 to 4 clusters, such as 3 or 2..4".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_clusters_is_read() {
        assert_eq!(parse_range("2..4"), Ok((2, 4)));
        assert_eq!(parse_range("3"), Ok((3, 3)));
        for text in ["", "1", "5", "4..2", "2..", "x"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }
}
