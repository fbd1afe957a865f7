//! Names of the services that nodes can have.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The longest name of a service, in bytes.
const NAME_BYTES_MAX: usize = 15;

/// The name of a service of a node, such as `kv`, `n1ql` or `index`.
///
/// The set of names is open; the node's service registry defines the services. A name has 1 to 15 lower-case ASCII letters and
/// digits. Source: Couchbase's REST, `setupServices`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServiceName([u8; NAME_BYTES_MAX]);

/// The text is not a valid service name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a service")]
pub struct NoServiceName(String);

/// Stored names from before the set was open.
const STORED: [(ServiceName, &str); 4] = [
    (ServiceName::DATA, "Data"),
    (ServiceName::QUERY, "Query"),
    (ServiceName::EVENTING, "Eventing"),
    (ServiceName::INDEX, "Index"),
];

impl ServiceName {
    /// The data service: a share of the vBuckets, and everything derived from their documents (rows of views, functions,
    /// entries of indexes without partitions).
    pub const DATA: ServiceName = ServiceName::new("kv");
    /// The query service, which answers for all nodes.
    pub const QUERY: ServiceName = ServiceName::new("n1ql");
    /// The eventing service, which manages functions; they run where the documents are.
    pub const EVENTING: ServiceName = ServiceName::new("eventing");
    /// The index service: partitions of indexes.
    pub const INDEX: ServiceName = ServiceName::new("index");

    /// The services from before the set was open, in the order of lists of nodes.
    pub const FIRST: [ServiceName; 4] =
        [ServiceName::DATA, ServiceName::QUERY, ServiceName::EVENTING, ServiceName::INDEX];

    /// Creates a name at compile time.
    ///
    /// # Panics
    /// If `name` is not a valid service name.
    pub const fn new(name: &str) -> ServiceName {
        match ServiceName::parse(name) {
            Some(name) => name,
            None => panic!("this is not the name of a service"),
        }
    }

    const fn parse(name: &str) -> Option<ServiceName> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
            return None;
        }
        let (mut padded, mut at) = ([0; NAME_BYTES_MAX], 0);
        while at < bytes.len() {
            if !bytes[at].is_ascii_lowercase() && !bytes[at].is_ascii_digit() {
                return None;
            }
            padded[at] = bytes[at];
            at += 1;
        }
        Some(ServiceName(padded))
    }

    /// Returns the name as in requests and maps.
    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES_MAX);
        std::str::from_utf8(&self.0[..length]).expect("a name is ASCII")
    }

    /// Returns the services of a member stored before members had any: all services of that time.
    pub(crate) fn first() -> BTreeSet<ServiceName> {
        ServiceName::FIRST.into()
    }

    fn rank(&self) -> usize {
        ServiceName::FIRST.iter().position(|first| first == self).unwrap_or(usize::MAX)
    }
}

impl FromStr for ServiceName {
    type Err = NoServiceName;

    fn from_str(name: &str) -> Result<ServiceName, NoServiceName> {
        ServiceName::parse(name).ok_or_else(|| NoServiceName(name.to_owned()))
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The first four in their fixed order, then the others by name, because clients have always seen this order.
impl Ord for ServiceName {
    fn cmp(&self, other: &ServiceName) -> Ordering {
        (self.rank(), self.0).cmp(&(other.rank(), other.0))
    }
}

impl PartialOrd for ServiceName {
    fn partial_cmp(&self, other: &ServiceName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for ServiceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = STORED.iter().find(|(name, _)| name == self);
        serializer.serialize_str(stored.map_or(self.as_str(), |(_, stored)| stored))
    }
}

impl<'de> Deserialize<'de> for ServiceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServiceName, D::Error> {
        let text = String::deserialize(deserializer)?;
        match STORED.iter().find(|(_, stored)| *stored == text) {
            Some((name, _)) => Ok(*name),
            None => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stored_unchanged_and_read_in_both_forms() {
        let names: BTreeSet<ServiceName> =
            ["backup", "kv", "index", "fts", "n1ql", "eventing"].map(ServiceName::new).into();
        let stored = serde_json::to_string(&names).unwrap();
        assert_eq!(stored, r#"["Data","Query","Eventing","Index","backup","fts"]"#);
        assert_eq!(serde_json::from_str::<BTreeSet<ServiceName>>(&stored).unwrap(), names);
        assert_eq!(serde_json::from_str::<ServiceName>("\"kv\"").unwrap(), ServiceName::DATA);
    }

    #[test]
    fn only_short_words_are_names() {
        for text in ["", "Data", "a b", "sixteen-letters", "abcdefghijklmnop", "é"] {
            let refused = NoServiceName(text.to_owned());
            assert_eq!(text.parse::<ServiceName>(), Err(refused), "{text}");
        }
        assert_eq!("abcdefghijklmno".parse::<ServiceName>().unwrap().as_str(), "abcdefghijklmno");
    }
}
