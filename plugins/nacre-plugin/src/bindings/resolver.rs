//! The world `resolver`.

use super::{fault, ready};
use crate::{Resolver, Verdict, Version};

wit_bindgen::generate!({
    path: "../wit",
    world: "resolver",
    pub_export_macro: true,
    export_macro_name: "export_resolver",
    default_bindings_module: "nacre_plugin::bindings::world",
});

use exports::nacre::plugin::resolution;

/// Calls `resolution.resolve` of the resolver in `slot`.
pub fn resolve<R: Resolver>(
    slot: &mut Option<R>,
    key: &[u8],
    local: resolution::Version,
    remote: resolution::Version,
) -> Result<resolution::Verdict, super::types::Fault> {
    let verdict = ready(slot)?.resolve(key, &local.into(), &remote.into()).map_err(fault)?;
    Ok(match verdict {
        Verdict::KeepLocal => resolution::Verdict::KeepLocal,
        Verdict::KeepRemote => resolution::Verdict::KeepRemote,
        Verdict::Merged(body) => resolution::Verdict::Merged(body),
    })
}

impl From<resolution::Version> for Version {
    fn from(version: resolution::Version) -> Version {
        let resolution::Version { body, deleted, cas, rev, flags, expiry, datatype } = version;
        Version { body, deleted, cas, rev, flags, expiry, datatype }
    }
}
