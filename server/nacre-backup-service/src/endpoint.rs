//! The object store that a request has named by its endpoint: nodes reach it like any other address that a user names.
//!
//! Whoever may make backups could otherwise have a node send requests to itself, to its machine or to the metadata service of a cloud, and
//! read in errors what is answered. The endpoint that the operator has given the process by `AWS_ENDPOINT_URL` is not checked.

use nacre_backup::SCHEMES;
use nacre_node::{Node, Outgoing};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Returns the variables by which commands reach an object store; `cloud` are those of a repository or a request.
///
/// # Errors
/// Why the endpoint may not be reached.
pub(crate) fn variables(
    node: &Arc<Node>,
    cloud: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut variables = cloud.clone();
    for name in SCHEMES.iter().filter_map(|scheme| scheme.endpoint) {
        let Some(endpoint) = variables.get_mut(name) else { continue };
        let url = Url::read(endpoint)?;
        let found = Outgoing::new(node).reachable(url.host, url.port)?;
        let address = found.first().ok_or("the endpoint has no address")?;
        *endpoint = url.at(*address);
    }
    Ok(variables)
}

/// The parts of an endpoint.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    is_secure: bool,
    host: &'a str,
    port: u16,
    /// The rest: empty, or a path.
    path: &'a str,
}

impl<'a> Url<'a> {
    fn read(text: &'a str) -> Result<Url<'a>, String> {
        let malformed =
            || format!("the endpoint {text:?} is not http://HOST:PORT or https://HOST:PORT");
        let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
        let (is_secure, default) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(malformed()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(default)),
        };
        let is_bare =
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        let is_address = host.starts_with('[') && host.ends_with(']');
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\\".contains(&byte));
        match port {
            Some(port) if !host.is_empty() && (is_bare || is_address) && is_plain => {
                Ok(Url { is_secure, host, port, path })
            }
            _ => Err(malformed()),
        }
    }

    /// The URL that leads to an address which was checked: a second answer of the name server could be another one. With TLS the name stays,
    /// as whoever answers has to show a certificate for it.
    fn at(&self, address: SocketAddr) -> String {
        match self.is_secure {
            true => format!("https://{}:{}{}", self.host, self.port, self.path),
            false => format!("http://{address}{}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_clients_read_them() {
        let parts = |text: &str| Url::read(text).map(|url| (url.host.to_owned(), url.port));
        assert_eq!(parts("http://store.example"), Ok(("store.example".into(), 80)));
        assert_eq!(parts("https://store.example/a"), Ok(("store.example".into(), 443)));
        assert_eq!(parts("http://10.0.0.1:9000"), Ok(("10.0.0.1".into(), 9000)));
        assert_eq!(parts("http://[::1]:9000/x"), Ok(("[::1]".into(), 9000)));
        assert_eq!(parts("http://[fe80::1]"), Ok(("[fe80::1]".into(), 80)));
        for text in [
            "",
            "store.example",
            "file:///etc",
            "http://",
            "http://:80",
            "http://good@evil",
            "http://evil#good",
            "http://evil?good",
            "http://evil\\good",
            "http://host:99999",
            "http://host:",
            "http://a b",
        ] {
            assert!(Url::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn without_tls_the_address_that_was_checked_is_used() {
        let address = "10.0.0.1:9000".parse().unwrap();
        let at = |text: &str| Url::read(text).unwrap().at(address);
        assert_eq!(at("http://store:9000/a"), "http://10.0.0.1:9000/a");
        assert_eq!(at("https://store:9000/a"), "https://store:9000/a");
    }
}
