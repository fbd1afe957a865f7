//! A conflict resolver: of two versions, the one with the higher member "priority" is kept.
//!
//! Both sides of a replication ask, each with its own version as `local`, and must come to the same.

use nacre_plugin::{Fault, Resolver, Verdict, Version};
use serde_json::Value;

struct ByPriority;

impl Resolver for ByPriority {
    fn describe() -> String {
        r#"{"name": "{{name}}", "version": "0.1.0", "limits": {}}"#.into()
    }

    fn init(_config: &str) -> Result<ByPriority, Fault> {
        Ok(ByPriority)
    }

    fn resolve(
        &mut self,
        _key: &[u8],
        local: &Version,
        remote: &Version,
    ) -> Result<Verdict, Fault> {
        // What is equal in one must be decided by the next: whoever asks, the same version is kept.
        let order = |version: &Version| (priority(version), version.cas, version.rev);
        Ok(if order(remote) > order(local) { Verdict::KeepRemote } else { Verdict::KeepLocal })
    }
}

/// What a version says of itself; -1 when it says nothing, or was deleted.
fn priority(version: &Version) -> i64 {
    let document: Value = serde_json::from_slice(&version.body).unwrap_or_default();
    document["priority"].as_i64().unwrap_or(-1)
}

nacre_plugin::export_resolver!(ByPriority);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_priority_wins_on_every_cluster() {
        let version = |body: &str| Version { body: body.into(), ..Version::default() };
        let (low, high) = (version(r#"{"priority": 1}"#), version(r#"{"priority": 2}"#));
        assert_eq!(ByPriority.resolve(b"k", &low, &high), Ok(Verdict::KeepRemote));
        assert_eq!(ByPriority.resolve(b"k", &high, &low), Ok(Verdict::KeepLocal));
    }
}
