//! The world `resolver-with-history`, which every resolver of this kit has.

use super::{fault, ready};
use crate::{Conflict, History, Resolver, Verdict, Version};

wit_bindgen::generate!({
    path: "../wit",
    world: "resolver-with-history",
    pub_export_macro: true,
    export_macro_name: "export_resolver",
    default_bindings_module: "nacre_plugin::bindings::world",
});

use exports::nacre::plugin::resolution_with_history as resolution;

/// Calls `resolution-with-history.resolve` of the resolver in `slot`.
pub fn resolve<R: Resolver>(
    slot: &mut Option<R>,
    conflict: resolution::Conflict,
) -> Result<resolution::Verdict, super::types::Fault> {
    let verdict = ready(slot)?.resolve_conflict(&conflict.into()).map_err(fault)?;
    Ok(match verdict {
        Verdict::KeepLocal => resolution::Verdict::KeepLocal,
        Verdict::KeepRemote => resolution::Verdict::KeepRemote,
        Verdict::Merged(body) => resolution::Verdict::Merged(body),
    })
}

impl From<resolution::Conflict> for Conflict {
    fn from(conflict: resolution::Conflict) -> Conflict {
        Conflict {
            key: conflict.key,
            scope: conflict.scope,
            collection: conflict.collection,
            here: conflict.here,
            local: conflict.local.into(),
            remote: conflict.remote.into(),
            local_history: conflict.local_history.map(History::from),
            remote_history: conflict.remote_history.map(History::from),
            base: conflict.base.map(Version::from),
        }
    }
}

impl From<resolution::History> for History {
    fn from(history: resolution::History) -> History {
        let resolution::History { source, cas, merged, previous } = history;
        History { source, cas, merged: listed(merged), previous: listed(previous) }
    }
}

fn listed(versions: Vec<resolution::ListedVersion>) -> Vec<(String, u64)> {
    versions.into_iter().map(|version| (version.source, version.cas)).collect()
}

impl From<resolution::Version> for Version {
    fn from(version: resolution::Version) -> Version {
        let resolution::Version { body, deleted, cas, rev, flags, expiry, datatype } = version;
        Version { body, deleted, cas, rev, flags, expiry, datatype }
    }
}
