//! Merges counters to which clients of several clusters add at the same time, so that each addition counts exactly once.
//!
//! ```json
//! {"plus": {"oslo": 5, "rome": 2}, "minus": {"rome": 1}}     additions and subtractions by cluster: 5 + 2 - 1 = 6
//! ```
//!
//! Clients add only to the numbers of their own cluster, and these never decrease. So of two versions of a number, the
//! greater one includes all that the other one counts. The merge takes the greater number of each cluster, and can be
//! repeated, in any order, with the same result (a PN-counter).

use nacre_plugin::{Fault, Resolver, Verdict, Version};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// The number of each cluster.
type Numbers = BTreeMap<String, u64>;

/// Merges counters. Takes other members of the document from the newer version, and keeps the newer version of anything
/// but objects.
pub struct CounterMerge;

impl Resolver for CounterMerge {
    fn describe() -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"name": "counter-merge", "version": "{version}", "limits": {{}}}}"#)
    }

    fn init(_config: &str) -> Result<CounterMerge, Fault> {
        Ok(CounterMerge)
    }

    fn resolve(&mut self, _: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault> {
        let newer = Verdict::newer(local, remote);
        if !local.is_object() || !remote.is_object() {
            return Ok(newer);
        }
        let (version, older) = match newer {
            Verdict::KeepRemote => (remote, local),
            _ => (local, remote),
        };
        let counter = Counter::read(version)?;
        let merged = counter.clone().join(Counter::read(older)?);
        if merged == counter {
            return Ok(newer);
        }
        merged.write(version).map(Verdict::Merged).map_err(|error| refusal(version, &error))
    }
}

nacre_plugin::export_resolver!(CounterMerge);

/// A counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Counter {
    #[serde(default)]
    plus: Numbers,
    #[serde(default)]
    minus: Numbers,
}

impl Counter {
    fn read(version: &Version) -> Result<Counter, Fault> {
        serde_json::from_slice(&version.body).map_err(|error| refusal(version, &error))
    }

    /// Merges two versions of the counter. Their order does not matter.
    fn join(mut self, other: Counter) -> Counter {
        let all = [(&mut self.plus, other.plus), (&mut self.minus, other.minus)];
        for (numbers, others) in all {
            for (cluster, number) in others {
                let known = numbers.entry(cluster).or_default();
                *known = number.max(*known);
            }
        }
        self
    }

    /// Formats the counter with the other members of `version`, sorted by name. Equal counters give equal bytes.
    fn write(&self, version: &Version) -> serde_json::Result<Vec<u8>> {
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&version.body)?;
        for (name, numbers) in [("plus", &self.plus), ("minus", &self.minus)] {
            if !numbers.is_empty() {
                members.insert(name.to_owned(), to_raw_value(numbers)?);
            }
        }
        serde_json::to_vec(&members)
    }
}

fn refusal(version: &Version, error: &serde_json::Error) -> Fault {
    let cas = version.cas;
    Fault::Reject(format!(
        "the version {cas}: plus and minus have a number for each cluster: {error}"
    ))
}

#[cfg(test)]
mod tests;
