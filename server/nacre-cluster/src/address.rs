//! Addresses of nodes as people write them.

use std::net::Ipv6Addr;

/// Default management port.
const PORT_DEFAULT: u16 = 8091;
/// Default management port of an address with `https://`.
const PORT_DEFAULT_TLS: u16 = 18091;
/// Hosts that identify no machine: addresses to listen on.
const ANYWHERE: [&str; 2] = ["0.0.0.0", ""];

/// Address of a node's management service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// True if the port uses TLS.
    pub encrypted: bool,
}

impl Address {
    /// Parses `host` or `host:port`, optionally after `http://` or `https://`. An IPv6 address is in brackets, as in `[::1]:8091`.
    ///
    /// # Errors
    /// A sentence for the user who entered the address.
    pub fn parse(text: &str) -> Result<Address, String> {
        let bare = text.trim().trim_end_matches('/');
        let (encrypted, bare) = match bare.strip_prefix("https://") {
            Some(bare) => (true, bare),
            None => (false, bare.strip_prefix("http://").unwrap_or(bare)),
        };
        // The colons of an IPv6 address stand before its closing bracket.
        let port_at = bare.rfind(':').filter(|at| !bare[*at..].contains(']'));
        let (host, port) = match port_at {
            Some(at) => {
                let port = &bare[at + 1..];
                let number: u16 =
                    port.parse().map_err(|_| format!("{port:?} is not a port number"))?;
                (&bare[..at], number)
            }
            None => (bare, if encrypted { PORT_DEFAULT_TLS } else { PORT_DEFAULT }),
        };
        if host.contains(':') && !host.starts_with('[') {
            return Err(format!("{bare:?} is ambiguous: write an IPv6 address in brackets"));
        }
        Ok(Address { host: read_host(host)?, port, encrypted })
    }

    /// Returns `host:port`, with an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }
}

/// Reads a name by which other nodes and clients can reach a node: a host name of at most 253 characters, an IPv4 address, or
/// an IPv6 address with or without brackets. Returns it without brackets.
///
/// # Errors
/// A sentence for the user who entered the name.
pub fn read_host(text: &str) -> Result<String, String> {
    let refused = || format!("Hostname {text:?} is not valid: expected a name or an IP address");
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inner.unwrap_or(text).parse::<Ipv6Addr>() {
        Ok(address) if address.is_unspecified() => return Err(refused()),
        // One address has one form.
        Ok(address) => return Ok(address.to_string()),
        Err(_) => {}
    }
    let fits = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    if ANYWHERE.contains(&text) || text.len() > 253 || !text.chars().all(fits) {
        return Err(refused());
    }
    Ok(text.to_owned())
}

/// Returns a host as it is written before a port: an IPv6 address in brackets, anything else unchanged.
pub fn bracketed(host: &str) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_perhaps_with_a_port_and_a_scheme() {
        for (text, host, port, encrypted) in [
            ("a", "a", 8091, false),
            ("a:9000", "a", 9000, false),
            ("http://10.0.0.1", "10.0.0.1", 8091, false),
            (" https://a/ ", "a", 18091, true),
            ("https://a:9011", "a", 9011, true),
            ("[::1]", "::1", 8091, false),
            ("https://[2001:DB8:0::5]", "2001:db8::5", 18091, true),
            ("[::1]:9000", "::1", 9000, false),
        ] {
            let address = Address { host: host.into(), port, encrypted };
            assert_eq!(Address::parse(text), Ok(address), "{text}");
        }
        for text in ["", ":9000", "a:x", "a:70000", "https://", "ftp://a", "a b", "0.0.0.0"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
        for text in
            ["::1", "fe80::1:9000", "[::]", "[::]:9000", "[::1", "[::1]9000", "[::1]:x", "[a]"]
        {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_ipv6_address_has_brackets_before_a_port_only() {
        for text in ["::1", "[::1]", "0:0::1"] {
            assert_eq!(read_host(text).as_deref(), Ok("::1"), "{text}");
        }
        assert_eq!(read_host("db1.example").as_deref(), Ok("db1.example"));
        for text in ["::", "[::]", "0:0:0:0:0:0:0:0", "[::1", "::1]", "[10.0.0.1]", "0.0.0.0", ""] {
            assert!(read_host(text).is_err(), "{text}");
        }
        for (host, written) in [("::1", "[::1]"), ("db1", "db1"), ("10.0.0.1", "10.0.0.1")] {
            assert_eq!(bracketed(host), written);
        }
        let address = Address::parse("[::1]:9000").unwrap();
        assert_eq!(address.authority(), "[::1]:9000");
    }
}
