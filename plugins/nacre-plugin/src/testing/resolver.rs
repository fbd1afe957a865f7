//! Conflicts for the tests of resolvers.

use crate::{Conflict, Resolver, Version};

/// Returns a version with a JSON body that was written `written_ms` milliseconds after the Unix epoch.
pub fn version(body: &str, written_ms: u64) -> Version {
    // A CAS is a time in nanoseconds.
    Version::json(body, written_ms * 1_000_000)
}

/// Returns the body that the cluster with the version `local` keeps.
///
/// # Panics
/// Panics if the resolver makes no decision.
pub fn kept(resolver: &mut impl Resolver, local: &Version, remote: &Version) -> Vec<u8> {
    let verdict = resolver.resolve_conflict(&Conflict::between(local, remote));
    verdict.expect("the resolver decides").body(local, remote).to_vec()
}

/// Returns the body that is kept of an older and a newer JSON body, written 10 and 20 milliseconds after the Unix epoch.
///
/// # Panics
/// Panics if the resolver makes no decision, or keeps a body that is not UTF-8.
pub fn merged(resolver: &mut impl Resolver, older: &str, newer: &str) -> String {
    let body = kept(resolver, &version(older, 10), &version(newer, 20));
    String::from_utf8(body).expect("the body is text")
}
