//! Headers between the host and this plugin in queries to which every node contributes a part.

use nacre_plugin::Request;

/// The vBuckets that an answer covers: `0-511,600`. Without the header, the answer covers all.
///
/// While vBuckets move between nodes, each vBucket must be visible on one node only.
pub const VBUCKETS: &str = "nacre-vbuckets";

/// Asks for this partition's part of an answer ([`crate::part`]), and names the node.
pub const PART: &str = "nacre-part";

/// The remainder of an answer whose parts were cut ([`crate::rest`]). The response of a merge contains it, and the
/// requests of the next round repeat it.
pub const REST: &str = "nacre-rest";

/// Returns the value of a header, if the request contains it.
pub fn value_of<'a>(request: &'a Request, wanted: &str) -> Option<&'a str> {
    let header = request.headers.iter().find(|(name, _)| name == wanted);
    header.map(|(_, value)| &value[..])
}
