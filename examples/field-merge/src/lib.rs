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
//!
//! If the bucket keeps the common ancestor of both versions, the merge is a three-way merge: a member without a time that
//! equals that of the ancestor was not written since, and a member of the ancestor that a version lacks was removed with that
//! version.

mod member;

use member::Members;
use nacre_plugin::{Conflict, Fault, Resolver, Verdict, Version};

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

    fn resolve(&mut self, key: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault> {
        let conflict = Conflict::between(local, remote);
        self.resolve_conflict(&Conflict { key: key.to_vec(), ..conflict })
    }

    fn resolve_conflict(&mut self, conflict: &Conflict) -> Result<Verdict, Fault> {
        let (local, remote) = (&conflict.local, &conflict.remote);
        if !local.is_object() || !remote.is_object() {
            return Ok(Verdict::newer(local, remote));
        }
        let (mut one, mut other) = (read(local)?, read(remote)?);
        let base = conflict.base.as_ref().filter(|base| base.is_object());
        // An ancestor that cannot be read decides nothing: clients wrote both versions after it.
        if let Some(base) = base.and_then(|base| read(base).ok()) {
            one.compare(&base, written_ms(local));
            other.compare(&base, written_ms(remote));
            one.drop_removed(&mut other, &base);
        }
        let merged = one.join(other).write();
        Ok(match (merged == local.body, merged == remote.body) {
            (true, true) => Verdict::newer(local, remote),
            (true, false) => Verdict::KeepLocal,
            (false, true) => Verdict::KeepRemote,
            (false, false) => Verdict::Merged(merged),
        })
    }
}

nacre_plugin::export_resolver!(FieldMerge);

/// Returns the time of a version in milliseconds. A CAS is a time in nanoseconds.
fn written_ms(version: &Version) -> u64 {
    version.cas / 1_000_000
}

fn read(version: &Version) -> Result<Members, Fault> {
    Members::read(&version.body, written_ms(version))
        .map_err(|error| Fault::Reject(format!("the version {}: {error}", version.cas)))
}

#[cfg(test)]
mod tests;
