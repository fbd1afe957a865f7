//! Outgoing requests of functions and plugins to granted hosts.
//!
//! A host is resolved once per connection. Each of its addresses is checked, and only allowed ones are connected to, so
//! a name server that answers differently the next time has no effect.

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use nacre_cluster::Destination;
use nacre_node::Outgoing;
use nacre_sandbox::{Http, HttpError, HttpRequest, HttpResponse};
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Decides which destinations may receive requests.
trait Rules: Send + Sync + 'static {
    fn nodes_at(&self, port: u16) -> Vec<String>;
    fn check(&self, destination: &Destination<'_>) -> Result<(), String>;
}

impl Rules for Outgoing {
    fn nodes_at(&self, port: u16) -> Vec<String> {
        Outgoing::nodes_at(self, port).into_iter().collect()
    }

    fn check(&self, destination: &Destination<'_>) -> Result<(), String> {
        Outgoing::check(self, destination)
    }
}

/// A client with a connection pool. It does not follow redirects, which may lead to hosts that are not granted.
pub struct HttpClient {
    agent: Agent,
}

impl HttpClient {
    /// Creates a client that connects only to addresses allowed by `outgoing`.
    pub fn new(outgoing: Outgoing) -> HttpClient {
        HttpClient::with(outgoing)
    }

    fn with(rules: impl Rules) -> HttpClient {
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A proxy from the environment would see all requests, and might not reach the host.
            .proxy(None)
            .build();
        let resolver = Checked { rules, resolver: DefaultResolver::default() };
        HttpClient { agent: Agent::with_parts(config, DefaultConnector::default(), resolver) }
    }
}

/// Resolves a host to its allowed addresses.
struct Checked<R> {
    rules: R,
    resolver: DefaultResolver,
}

impl<R> fmt::Debug for Checked<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checked")
    }
}

/// The reason why no address of the host is allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Denied(String);

impl<R: Rules> Resolver for Checked<R> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.resolver.resolve(uri, config, timeout)?;
        let checked = allowed(&self.rules, uri.host().unwrap_or_default(), &found);
        let mut allowed = self.empty();
        for address in checked.map_err(|why| ureq::Error::Other(Box::new(Denied(why))))? {
            allowed.push(address);
        }
        Ok(allowed)
    }
}

/// Returns the allowed addresses of a host.
///
/// # Errors
/// The reason if there are none.
fn allowed(
    rules: &impl Rules,
    host: &str,
    found: &[SocketAddr],
) -> Result<Vec<SocketAddr>, String> {
    let host = host.to_ascii_lowercase();
    let nodes = found.first().map_or_else(Vec::new, |at| rules.nodes_at(at.port()));
    let mut allowed = Vec::new();
    let mut refused = None;
    for address in found.iter().copied() {
        let is_node = nodes.iter().any(|node| *node == host || is_at(node, address));
        let is_local = is_local(address.ip());
        let destination = Destination { host: &host, address, is_local, is_node };
        match rules.check(&destination) {
            Ok(()) => allowed.push(address),
            Err(why) => refused = Some(why),
        }
    }
    match refused {
        Some(why) if allowed.is_empty() => Err(why),
        _ => Ok(allowed),
    }
}

/// Resolves a host, and returns its addresses allowed by `outgoing`, with the port. An IPv6 address is in brackets.
///
/// # Errors
/// The reason if there are none.
pub fn reachable(outgoing: &Outgoing, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = (name, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let allowed = allowed(outgoing, host, &found)?;
    if allowed.is_empty() { Err(format!("{host} has no address")) } else { Ok(allowed) }
}

/// Returns true if the node's host has this address.
fn is_at(node: &str, address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    match node.parse::<IpAddr>() {
        Ok(node) => node.to_canonical() == ip,
        Err(_) => (node, address.port())
            .to_socket_addrs()
            .is_ok_and(|mut found| found.any(|found| found.ip().to_canonical() == ip)),
    }
}

/// Returns true if the address is local: only a local address can be bound.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip.to_canonical(), 0)).is_ok()
}

impl Http for HttpClient {
    fn send(
        &self,
        request: &HttpRequest,
        bytes_max: usize,
        left: Duration,
    ) -> Result<HttpResponse, HttpError> {
        let HttpRequest { method, is_secure, host, port, target, headers, body, timeout: _ } =
            request;
        let scheme = if *is_secure { "https" } else { "http" };
        let mut built = ureq::http::Request::builder()
            .method(method.as_str())
            .uri(format!("{scheme}://{host}:{port}{target}"));
        for (name, value) in headers {
            built = built.header(name, value);
        }
        let built = built.body(&body[..]).map_err(|error| HttpError::Denied(error.to_string()))?;
        let configured = self
            .agent
            .configure_request(built)
            .timeout_global(Some(left))
            .allow_non_standard_methods(true)
            .build();
        let mut answer = self.agent.run(configured).map_err(failure)?;
        let body = up_to(answer.body_mut().as_reader(), bytes_max)
            .map_err(|error| failure(ureq::Error::from(error)))??;
        let text = |value: &ureq::http::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let coding = answer.headers().get("content-encoding").map(text);
        let body = decoded(body, coding.as_deref(), bytes_max)?;
        let headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
        Ok(HttpResponse { status: answer.status().as_u16(), headers: headers.collect(), body })
    }
}

/// Reads all of `reader`. The inner error means that it exceeds `bytes_max`.
fn up_to(reader: impl Read, bytes_max: usize) -> io::Result<Result<Vec<u8>, HttpError>> {
    let mut body = Vec::new();
    // Reading one byte more than allowed detects an oversized body.
    reader.take(bytes_max as u64 + 1).read_to_end(&mut body)?;
    Ok(if body.len() > bytes_max { Err(HttpError::TooLarge) } else { Ok(body) })
}

/// Decodes the content coding of a body: gzip, or deflate with or without its zlib wrapper. Other codings are returned as
/// they are.
fn decoded(body: Vec<u8>, coding: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HttpError> {
    let broken = |error: io::Error| HttpError::Failed(format!("the body does not decode: {error}"));
    match coding.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => up_to(MultiGzDecoder::new(&body[..]), bytes_max).map_err(broken)?,
        // RFC 9110 defines deflate as zlib; some servers send the raw stream inside it.
        "deflate" => match up_to(ZlibDecoder::new(&body[..]), bytes_max) {
            Ok(decoded) => decoded,
            Err(_) => up_to(DeflateDecoder::new(&body[..]), bytes_max).map_err(broken)?,
        },
        _ => Ok(body),
    }
}

fn failure(error: ureq::Error) -> HttpError {
    match error {
        ureq::Error::Timeout(_) => HttpError::Timeout,
        ureq::Error::Other(other) if other.is::<Denied>() => HttpError::Denied(other.to_string()),
        other => HttpError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    /// Serves one connection with `answer`, or leaves it waiting until the client gives up.
    fn serve(answer: Option<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked);
            match answer {
                Some(answer) => drop(stream.write_all(answer.as_bytes())),
                // Waits until the client gives up.
                None => while stream.read(&mut asked).is_ok_and(|count| count > 0) {},
            }
        });
        port
    }

    /// Rules with the addresses that an operator allows.
    struct Allowing(&'static [&'static str], Vec<String>);

    impl Rules for Allowing {
        fn nodes_at(&self, _: u16) -> Vec<String> {
            self.1.clone()
        }

        fn check(&self, destination: &Destination<'_>) -> Result<(), String> {
            let rules: Vec<_> = self.0.iter().map(|rule| rule.parse().unwrap()).collect();
            destination.check(&rules)
        }
    }

    fn send(port: u16) -> Result<HttpResponse, HttpError> {
        send_to("127.0.0.1", port, Allowing(&["127.0.0.0/8"], Vec::new()))
    }

    fn send_to(host: &str, port: u16, rules: Allowing) -> Result<HttpResponse, HttpError> {
        let request = HttpRequest {
            method: "POST".into(),
            is_secure: false,
            host: host.into(),
            port,
            target: "/a?b".into(),
            headers: vec![("x-a".into(), "1".into())],
            body: b"hello".to_vec(),
            timeout: None,
        };
        HttpClient::with(rules).send(&request, 10, Duration::from_millis(300))
    }

    #[test]
    fn answers_of_every_status_are_returned() {
        let port = serve(Some("HTTP/1.1 404 No\r\nX-B: 2\r\nContent-Length: 2\r\n\r\nno"));
        let answer = send(port).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (404, &b"no"[..]));
        assert!(answer.headers.contains(&("x-b".into(), "2".into())));
    }

    #[test]
    fn redirects_are_not_followed() {
        let port = serve(Some(
            "HTTP/1.1 302 There\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n",
        ));
        assert_eq!(send(port).unwrap().status, 302);
    }

    #[test]
    fn denied_addresses_are_not_connected_to() {
        // The port is closed, so a connection would fail.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let denied = |host: &str, rules: Allowing| {
            matches!(send_to(host, port, rules), Err(HttpError::Denied(_)))
        };
        for host in [
            "127.0.0.1",
            "localhost",
            "0.0.0.0",
            "2130706433",
            "0x7f.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(denied(host, Allowing(&[], Vec::new())), "{host}");
        }
        let node = || vec!["localhost".to_owned()];
        assert!(denied("127.0.0.1", Allowing(&["127.0.0.0/8"], node())), "a node listens there");
        let port = serve(Some("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
        let allowed = Allowing(&["localhost"], Vec::new());
        assert_eq!(send_to("localhost", port, allowed).unwrap().status, 200);
    }

    #[test]
    fn oversized_late_and_missing_answers_are_named() {
        let port = serve(Some("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890"));
        assert_eq!(send(port), Err(HttpError::TooLarge));
        assert_eq!(send(serve(None)), Err(HttpError::Timeout));
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(matches!(send(closed), Err(HttpError::Failed(_))));
    }

    #[test]
    fn coded_bodies_are_decoded_within_their_bound() {
        use flate2::Compression;
        use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};
        let text = b"hello hello hello";
        let coded = |mut encoder: Box<dyn Read>| {
            let mut bytes = Vec::new();
            encoder.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let best = Compression::best();
        for (coding, bytes) in [
            ("gzip", coded(Box::new(GzEncoder::new(&text[..], best)))),
            ("deflate", coded(Box::new(ZlibEncoder::new(&text[..], best)))),
            ("deflate", coded(Box::new(DeflateEncoder::new(&text[..], best)))),
            ("identity", text.to_vec()),
        ] {
            assert_eq!(decoded(bytes.clone(), Some(coding), 17).unwrap(), text, "{coding}");
            if coding != "identity" {
                assert_eq!(decoded(bytes, Some(coding), 16), Err(HttpError::TooLarge), "{coding}");
            }
        }
        assert!(matches!(decoded(b"no".to_vec(), Some("gzip"), 99), Err(HttpError::Failed(_))));
    }
}
