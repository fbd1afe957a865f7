//! Destinations to which functions and plugins may send HTTP requests.
//!
//! Public and private (RFC 1918, unique local) addresses are allowed, because functions mostly call in-house services.
//! The following are denied unless an operator allows them:
//!
//! - loopback addresses and the machine's own, and unspecified, link-local, multicast and reserved ones,
//! - the metadata services of clouds, at any address,
//! - the ports of the cluster's nodes, which only a rule with a port allows.
//!
//! A host name is judged by the addresses that it resolves to. An IPv6 address that embeds an IPv4 address is judged by
//! the latter.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Maximum number of rules in the settings.
pub const OUTGOING_MAX: usize = 256;

/// A rule that allows a destination which is denied by default.
///
/// Its text form is `127.0.0.0/8`, `127.0.0.1`, `127.0.0.1:9000`, `[::1]:9000`, `hooks.example` or `hooks.example:8080`.
/// Nodes store that text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutgoingRule {
    target: Target,
    /// `None` allows any port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// The addresses that share this many leading bits.
    Network(IpAddr, u8),
    /// A lower-case host name, whatever its addresses.
    Name(String),
}

/// The destination of a request.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The host in the URL, in lower case.
    pub host: &'a str,
    /// A resolved address of the host, and the port.
    pub address: SocketAddr,
    /// True if the address belongs to the node's machine.
    pub is_local: bool,
    /// True if a node of the cluster listens there.
    pub is_node: bool,
}

impl Destination<'_> {
    /// Checks whether a request may be sent to the destination.
    ///
    /// # Errors
    /// The reason, for the author of the function or plugin and for the operator.
    pub fn check<'r>(
        &self,
        rules: impl IntoIterator<Item = &'r OutgoingRule>,
    ) -> Result<(), String> {
        let address = embedded(self.address.ip());
        let kind = match kind_of(address) {
            _ if self.is_node => "an address of the cluster",
            Some(kind) => kind,
            None if self.is_local => "an address of this machine",
            None => return Ok(()),
        };
        let allows = |rule: &OutgoingRule| {
            rule.port.map_or(!self.is_node, |port| port == self.address.port())
                && match &rule.target {
                    Target::Name(name) => name == self.host,
                    Target::Network(network, bits) => is_within(address, *network, *bits),
                }
        };
        if rules.into_iter().any(allows) {
            return Ok(());
        }
        let Destination { host, address, .. } = self;
        let entry =
            if self.is_node { format!("{host}:{}", address.port()) } else { (*host).to_owned() };
        Err(format!(
            "{host} is at {}, {kind}: requests to it need an entry such as {entry} in outgoingHttp or --allow-outgoing",
            address.ip()
        ))
    }
}

/// Returns the IPv4 address embedded in an IPv6 address (mapped, compatible, NAT64, 6to4), or the address itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let bytes = v6.octets();
    let four = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] => four(12),
        // `::` and `::1` embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => four(12),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => four(12),
        [0x2002, ..] => four(2),
        _ => address,
    }
}

/// Metadata services outside the link-local range: AWS, Google Cloud, Alibaba, Azure, Oracle.
const METADATA: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// Returns the kind of a denied address; `None` for an allowed one.
fn kind_of(address: IpAddr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if METADATA.contains(&address) {
        return Some("the metadata service of a cloud");
    }
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [0, ..] => Some("an unspecified address"),
            [169, 254, ..] => Some("a link-local address"),
            [224..=239, ..] => Some("a multicast address"),
            [240..=255, ..] => Some("a reserved address"),
            _ => None,
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
            [0xfe80..=0xfebf, ..] => Some("a link-local address"),
            [0xfec0..=0xfeff, ..] => Some("a site-local address"),
            [0xff00..=0xffff, ..] => Some("a multicast address"),
            _ => None,
        },
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    address.is_ipv4() == network.is_ipv4() && (number(address) ^ number(network)) & mask == 0
}

/// The text is not a valid [`OutgoingRule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a network, address or host such as 127.0.0.0/8, [::1]:8080 or hooks.example:443"
)]
pub struct NoOutgoingRule(String);

impl FromStr for OutgoingRule {
    type Err = NoOutgoingRule;

    fn from_str(text: &str) -> Result<OutgoingRule, NoOutgoingRule> {
        parse(text.trim()).ok_or_else(|| NoOutgoingRule(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<OutgoingRule> {
    let whole = |address: IpAddr| {
        let address = embedded(address);
        Target::Network(address, if address.is_ipv4() { 32 } else { 128 })
    };
    if let Some((network, bits)) = text.split_once('/') {
        let (network, bits) = (network.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
        let fits = bits <= if network.is_ipv4() { 32 } else { 128 };
        return fits.then_some(OutgoingRule { target: Target::Network(network, bits), port: None });
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(OutgoingRule { target: whole(address), port: None });
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(OutgoingRule { target: whole(address.ip()), port: Some(address.port()) });
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port.parse().ok()?)),
        None => (text, None),
    };
    let is_name = !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    is_name.then(|| OutgoingRule { target: Target::Name(name.to_ascii_lowercase()), port })
}

impl fmt::Display for OutgoingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.target, self.port) {
            (Target::Network(address, bits), None) => write!(f, "{address}/{bits}"),
            (Target::Network(address, _), Some(port)) => SocketAddr::new(*address, port).fmt(f),
            (Target::Name(name), None) => f.write_str(name),
            (Target::Name(name), Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}

impl TryFrom<String> for OutgoingRule {
    type Error = NoOutgoingRule;

    fn try_from(text: String) -> Result<OutgoingRule, NoOutgoingRule> {
        text.parse()
    }
}

impl From<OutgoingRule> for String {
    fn from(rule: OutgoingRule) -> String {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, address: &str, rules: &[&str]) -> Result<(), String> {
        let rules: Vec<OutgoingRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let address = SocketAddr::new(address.parse().unwrap(), 8080);
        Destination { host, address, is_local: false, is_node: false }.check(&rules)
    }

    #[test]
    fn special_purpose_addresses_are_denied() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "fec0::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a9fe:a9fe",
            "2002:7f00:1::",
        ] {
            assert!(check("evil.example", address, &[]).is_err(), "{address}");
        }
        for address in [
            "93.184.216.34",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd12::1",
            "2606:4700::1",
            "::ffff:10.0.0.1",
            "64:ff9b::5db8:d822",
        ] {
            assert_eq!(check("good.example", address, &[]), Ok(()), "{address}");
        }
    }

    #[test]
    fn rules_allow_networks_addresses_and_names() {
        for (rule, allowed) in [
            ("127.0.0.0/8", true),
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("127.0.0.1:8081", false),
            ("127.0.0.2", false),
            ("0.0.0.0/0", true),
            ("::/0", false),
            ("Hooks.example", true),
            ("hooks.example:8080", true),
            ("hooks.example:80", false),
            ("example", false),
        ] {
            assert_eq!(check("hooks.example", "127.0.0.1", &[rule]).is_ok(), allowed, "{rule}");
            assert_eq!(check("hooks.example", "::ffff:127.0.0.1", &[rule]).is_ok(), allowed);
        }
        assert!(check("x", "::1", &["[::1]:8080"]).is_ok() && check("x", "::1", &["::/0"]).is_ok());
    }

    #[test]
    fn only_a_rule_with_a_port_opens_the_cluster() {
        let address = "10.0.0.5:8091".parse().unwrap();
        let node = Destination { host: "n1", address, is_local: false, is_node: true };
        let check = |rule: &str| node.check([&rule.parse().unwrap()]);
        assert!(node.check([]).unwrap_err().contains("n1:8091"));
        assert!(check("10.0.0.0/8").is_err() && check("n1").is_err() && check("n1:80").is_err());
        assert!(check("n1:8091").is_ok() && check("10.0.0.5:8091").is_ok());
        let local = Destination { is_local: true, is_node: false, ..node };
        assert!(local.check([]).is_err() && local.check([&"10.0.0.5".parse().unwrap()]).is_ok());
    }

    #[test]
    fn rules_are_printed_as_they_are_read() {
        for text in
            ["127.0.0.0/8", "::1/128", "10.0.0.1:80", "[::1]:80", "a.example", "a.example:443"]
        {
            let rule: OutgoingRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
            assert_eq!(rule.to_string().parse::<OutgoingRule>().unwrap(), rule);
        }
        for text in ["", "a b", "10.0.0.0/33", "::1/129", "host:port", "http://a", "a/b", "*"] {
            assert!(text.parse::<OutgoingRule>().is_err(), "{text}");
        }
    }
}
