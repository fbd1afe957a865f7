//! Addresses of nodes as people write them.

/// Default management port.
const PORT_DEFAULT: u16 = 8091;
/// Default management port of an address with `https://`.
const PORT_DEFAULT_TLS: u16 = 18091;
/// Hosts that identify no machine: addresses to listen on.
const ANYWHERE: [&str; 3] = ["0.0.0.0", "::", ""];

/// Address of a node's management service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// True if the port uses TLS.
    pub encrypted: bool,
}

impl Address {
    /// Parses `host` or `host:port`, optionally after `http://` or `https://`.
    ///
    /// # Errors
    /// A sentence for the user who entered the address.
    pub fn parse(text: &str) -> Result<Address, String> {
        let bare = text.trim().trim_end_matches('/');
        let (encrypted, bare) = match bare.strip_prefix("https://") {
            Some(bare) => (true, bare),
            None => (false, bare.strip_prefix("http://").unwrap_or(bare)),
        };
        let (host, port) = match bare.rsplit_once(':') {
            Some((host, port)) => {
                (host, port.parse().map_err(|_| format!("{port:?} is not a port number"))?)
            }
            None => (bare, if encrypted { PORT_DEFAULT_TLS } else { PORT_DEFAULT }),
        };
        check_host(host)?;
        Ok(Address { host: host.to_owned(), port, encrypted })
    }
}

/// Checks that other nodes and clients can reach a node as `host`: a host name or an IPv4 address of at most 253
/// characters.
///
/// # Errors
/// A sentence for the user who entered the name.
pub fn check_host(host: &str) -> Result<(), String> {
    let fits = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    if ANYWHERE.contains(&host) || host.len() > 253 || !host.chars().all(fits) {
        return Err(format!("Hostname {host:?} is not valid: expected a name or an IPv4 address"));
    }
    Ok(())
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
        ] {
            let address = Address { host: host.into(), port, encrypted };
            assert_eq!(Address::parse(text), Ok(address), "{text}");
        }
        for text in ["", ":9000", "a:x", "a:70000", "https://", "ftp://a", "a b", "0.0.0.0", "::1"]
        {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
