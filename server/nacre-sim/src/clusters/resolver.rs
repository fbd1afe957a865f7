//! Resolvers of the simulated clusters. Their decisions depend only on the two versions and their sides.

use super::plan::Resolver;
use nacre_vbucket::{Verdict, Version};
use std::collections::BTreeSet;

/// The longest body to which parts are added.
const PARTS_BYTES_MAX: usize = 2000;

/// Returns the decision of `resolver`.
pub fn decide(resolver: Resolver, local: &Version, remote: &Version) -> Verdict {
    match resolver {
        Resolver::Local => Verdict::KeepLocal,
        Resolver::Remote => Verdict::KeepRemote,
        Resolver::Later if remote.cas > local.cas => Verdict::KeepRemote,
        Resolver::Later => Verdict::KeepLocal,
        Resolver::Union => unite(local, remote),
        Resolver::Erratic => match (weigh(local) + 3 * weigh(remote)) % 4 {
            0 => Verdict::KeepLocal,
            1 => Verdict::KeepRemote,
            2 => unite(local, remote),
            _ => Verdict::Merged(format!("{}.{}", weigh(local), weigh(remote)).into_bytes()),
        },
    }
}

/// Unites the parts of both bodies, the local ones first, so that the other side makes a different body.
fn unite(local: &Version, remote: &Version) -> Verdict {
    match (local.is_deleted, remote.is_deleted) {
        (false, true) => return Verdict::KeepLocal,
        (true, false) => return Verdict::KeepRemote,
        _ => {}
    }
    let mut seen = BTreeSet::new();
    let parts = [local, remote].into_iter().flat_map(|side| side.body.split(|byte| *byte == b','));
    let parts: Vec<&[u8]> = parts.filter(|part| seen.insert(*part)).collect();
    let mut body = parts.join(&b',');
    body.truncate(PARTS_BYTES_MAX);
    Verdict::Merged(body)
}

/// Maps a body to a number.
fn weigh(version: &Version) -> u64 {
    version
        .body
        .iter()
        .fold(u64::from(version.is_deleted), |sum, byte| (sum * 31 + u64::from(*byte)) % 1_000_003)
}
