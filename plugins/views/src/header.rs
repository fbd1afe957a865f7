//! Headers by which the host and this plugin speak about queries of which every node has a part.

use nacre_plugin::Request;

/// The vBuckets that an answer is made of: `0-511,600`. Without it, all are.
///
/// While vBuckets move between nodes, each of them is to be seen on one node only.
pub const VBUCKETS: &str = "nacre-vbuckets";

/// Asks for the part of an answer that this partition has ([`crate::part`]), and says who gives it.
pub const PART: &str = "nacre-part";

/// What an answer still lacks when the parts were cut ([`crate::rest`]): a response of a merge has it, and the requests of
/// the next round repeat it.
pub const REST: &str = "nacre-rest";

/// The value of a header, if a request has it.
pub fn value_of<'a>(request: &'a Request, wanted: &str) -> Option<&'a str> {
    let header = request.headers.iter().find(|(name, _)| name == wanted);
    header.map(|(_, value)| &value[..])
}
