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
use std::cmp::Ordering;

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
        if !is_object(local) || !is_object(remote) {
            return Ok(newer(local, remote));
        }
        let merged = read(local)?.join(read(remote)?).write();
        Ok(match (merged == local.body, merged == remote.body) {
            (true, true) => newer(local, remote),
            (true, false) => Verdict::KeepLocal,
            (false, true) => Verdict::KeepRemote,
            (false, false) => Verdict::Merged(merged),
        })
    }
}

nacre_plugin::export_resolver!(FieldMerge);

fn is_object(version: &Version) -> bool {
    let first = version.body.iter().find(|byte| !byte.is_ascii_whitespace());
    !version.deleted && version.datatype == nacre_plugin::DATATYPE_JSON && first == Some(&b'{')
}

fn read(version: &Version) -> Result<Members, Fault> {
    // A CAS is a time in nanoseconds.
    Members::read(&version.body, version.cas / 1_000_000)
        .map_err(|error| Fault::Reject(format!("the version {}: {error}", version.cas)))
}

/// Returns the newer version. Both sides must choose the same of two different versions.
fn newer(local: &Version, remote: &Version) -> Verdict {
    let order = |version: &Version| {
        let Version { cas, rev, deleted, flags, expiry, .. } = *version;
        (cas, rev, deleted, flags, expiry)
    };
    match order(local).cmp(&order(remote)).then_with(|| local.body.cmp(&remote.body)) {
        Ordering::Less => Verdict::KeepRemote,
        _ => Verdict::KeepLocal,
    }
}

#[cfg(test)]
mod tests;
