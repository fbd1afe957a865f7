//! Merges two versions of a JSON object that were written on both sides of a replication, member by member.
//!
//! ```json
//! {"title": "Shells",                                 a value: the last written one is kept
//!  "tags":  {"_set": ["blue", "old"]},                a set: the union
//!  "likes": {"_count": {"oslo": 5, "rome": 2}},       a counter: the greater number of each place
//!  "_t":    {"title": 1767225600000, "price": 0}}     times at which values were written or removed
//! ```
//!
//! Times are milliseconds since the Unix epoch. A value without a time has the time of its version. A merged object
//! contains the times of all values, so that it can be merged again, in any order, with the same result.

mod member;

use member::Members;
use nacre_plugin::{Fault, Resolver, Verdict, Version};

/// Merges objects; of anything else (tombstones, raw bytes, arrays) keeps the newer version.
pub struct FieldMerge;

impl Resolver for FieldMerge {
    fn describe() -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"name": "field-merge", "version": "{version}", "limits": {{}}}}"#)
    }

    fn init(_config: &str) -> Result<FieldMerge, Fault> {
        Ok(FieldMerge)
    }

    fn resolve(&mut self, _: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault> {
        if !local.is_object() || !remote.is_object() {
            return Ok(Verdict::newer(local, remote));
        }
        let merged = read(local)?.join(read(remote)?).write();
        Ok(match (merged == local.body, merged == remote.body) {
            (true, true) => Verdict::newer(local, remote),
            (true, false) => Verdict::KeepLocal,
            (false, true) => Verdict::KeepRemote,
            (false, false) => Verdict::Merged(merged),
        })
    }
}

nacre_plugin::export_resolver!(FieldMerge);

fn read(version: &Version) -> Result<Members, Fault> {
    // A CAS is a time in nanoseconds.
    Members::read(&version.body, version.cas / 1_000_000)
        .map_err(|error| Fault::Reject(format!("the version {}: {error}", version.cas)))
}

#[cfg(test)]
mod tests;
