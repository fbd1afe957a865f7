//! Headers by which the host tells more about a request.

use nacre_plugin::Request;

/// The vBuckets that an answer is made of: `0-511,600`. Without it, all are.
///
/// While vBuckets move between nodes, each of them is to be seen on one node only.
pub const VBUCKETS: &str = "nacre-vbuckets";

/// The value of a header, if a request has it.
pub fn value_of<'a>(request: &'a Request, wanted: &str) -> Option<&'a str> {
    let header = request.headers.iter().find(|(name, _)| name == wanted);
    header.map(|(_, value)| &value[..])
}
