//! Addresses of nodes in the forms that users write.

use std::fmt;
use std::str::FromStr;

/// An address as the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    pub(crate) scheme: Scheme,
    /// Name or address; IPv6 in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The scheme of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// No scheme, only a host and perhaps a port: the management port, or the key-value port if
    /// that answers.
    None,
    /// The management port.
    Http,
    /// The management port with TLS.
    Https,
    /// The key-value port.
    Couchbase,
    /// The key-value port with TLS.
    Couchbases,
}

impl Scheme {
    const NAMED: [(&'static str, Scheme); 4] = [
        ("http://", Scheme::Http),
        ("https://", Scheme::Https),
        ("couchbase://", Scheme::Couchbase),
        ("couchbases://", Scheme::Couchbases),
    ];

    fn port(self) -> u16 {
        match self {
            Scheme::None | Scheme::Http => 8091,
            Scheme::Https => 18091,
            Scheme::Couchbase => 11210,
            Scheme::Couchbases => 11207,
        }
    }
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeAddress, String> {
        let named = Scheme::NAMED.iter().find_map(|(prefix, scheme)| {
            let rest = text.strip_prefix(prefix)?;
            Some((*scheme, rest))
        });
        let (scheme, rest) = match named {
            Some(named) => named,
            None if text.contains("://") => {
                return Err("a node is named as host[:port], http://… or https://…".to_owned());
            }
            None => (Scheme::None, text),
        };
        let rest = rest.trim_end_matches('/');
        let host_bytes = if rest.starts_with('[') { rest.find(']').map(|at| at + 1) } else { None };
        let host_bytes = host_bytes.unwrap_or_else(|| rest.find(':').unwrap_or(rest.len()));
        let (host, port) = rest.split_at(host_bytes);
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port"))?,
            None if port.is_empty() => scheme.port(),
            None => return Err(format!("{rest:?} is not host[:port]")),
        };
        let is_host = |c: char| c.is_alphanumeric() || ".-_:[]%".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(format!("{rest:?} is not host[:port]"));
        }
        Ok(NodeAddress { scheme, host: host.to_owned(), port })
    }
}

impl NodeAddress {
    /// Returns `host:port`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns true if connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.scheme, Scheme::Https | Scheme::Couchbases)
    }

    /// Returns true if the address names the key-value service.
    pub(crate) fn names_keys(&self) -> bool {
        matches!(self.scheme, Scheme::Couchbase | Scheme::Couchbases)
    }
}

/// Writes the URL of the management port, for messages.
impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::None | Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Couchbase => "couchbase",
            Scheme::Couchbases => "couchbases",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        text.parse::<NodeAddress>().map(|address| address.to_string())
    }

    #[test]
    fn a_node_is_named_by_host_port_or_url() {
        for (text, expected) in [
            ("a", "http://a:8091"),
            ("a:9000", "http://a:9000"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("[::1]", "http://[::1]:8091"),
            ("http://a/", "http://a:8091"),
            ("https://a.b", "https://a.b:18091"),
            ("couchbase://a", "couchbase://a:11210"),
            ("couchbases://a", "couchbases://a:11207"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "http://", "ftp://a", "a:b", "a:70000", "a b", "[::1]x", "http://a/b"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
