//! Protection of administrators against malicious web pages in the same browser.
//!
//! A browser sends requests on behalf of any page, with the login that its user has typed or that a URL contains, and
//! from inside the user's network. Without permission, a page may send links, forms, and `fetch` without custom headers
//! to other sites. A page whose name is made to resolve to the node (DNS rebinding) has the node's origin, so it may
//! send and read everything. The server checks these rules in this order:
//!
//! ```text
//! a stranger may own the name in Host              421   requests of browsers only
//! from another site, and no top-level navigation   403   Sec-Fetch-Site, or else Origin
//! from a page, JSON without its media type         415   Content-Type
//! ```
//!
//! The operator may allow pages of other sites to use the API: see [`Allowed`].
//!
//! Clients that are not browsers send none of these headers, and may use any name for the node. Decision 0051 contains
//! measurements of the headers that a page can set.

use super::Service;
use super::api::cors::Allowed;
use super::body::{Reply, error_reply, reply};
use super::console::{self, OfConsole};
use hyper::header::{
    ACCEPT_LANGUAGE, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, ORIGIN, REFERER, REFERRER_POLICY, TRANSFER_ENCODING, UPGRADE_INSECURE_REQUESTS,
    USER_AGENT, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, StatusCode};
use nacre_cluster::Cluster;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Relation of the page that made a request to the node's site. A page cannot set headers whose names begin with
/// `Sec-`.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Mode of a request: a followed link, a script, an image.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Destination of a request: `document` is a page in its own tab.
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The names by which browsers may reach the node. IP addresses, `localhost` and the names of the cluster's nodes are always
/// allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Names in lower case, without a trailing dot.
    names: BTreeSet<String>,
    /// True if any name is allowed.
    any: bool,
}

impl Hosts {
    /// Creates the set from the names that the operator has configured; `*` allows any name.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Hosts {
        let names: BTreeSet<String> =
            names.into_iter().filter(|name| !name.is_empty()).map(normal).collect();
        let any = names.contains("*");
        Hosts { names, any }
    }

    /// Returns true if only the node, or someone whom its operator trusts, can serve a page under `host`.
    fn allows(&self, host: &str, cluster: impl FnOnce() -> Arc<Cluster>) -> bool {
        let host = normal(host);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        // An IP address involves no name server, so it is safe from DNS rebinding.
        self.any
            || bare.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.names.contains(&host)
            || is_in_cluster(&cluster(), &host)
    }
}

/// Normalises a name for comparisons.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn is_in_cluster(cluster: &Cluster, host: &str) -> bool {
    cluster.nodes.values().any(|member| {
        let own = member.endpoints.host.as_deref();
        let elsewhere = member.alternate.as_ref().map(|alternate| alternate.host.as_str());
        own.into_iter().chain(elsewhere).any(|name| normal(name) == host)
    })
}

/// Returns the value of a header that may occur only once, as text. Fails if the header occurs several times or is not
/// text.
fn only(headers: &HeaderMap, name: impl hyper::header::AsHeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Returns true if a browser may have sent the request.
///
/// Browsers send `Sec-Fetch-*` only to IP addresses, to `localhost` and over TLS. For other names without TLS, the
/// server recognises browsers by headers that they add to every request. `fetch` of Node.js sends `Sec-Fetch-Mode`
/// alone, which no page can do.
fn is_of_browser(headers: &HeaderMap) -> bool {
    if headers.contains_key(ORIGIN) || headers.contains_key(FETCH_SITE) {
        return true;
    }
    let is_mozilla = |agent: &HeaderValue| agent.as_bytes().starts_with(b"Mozilla/");
    !headers.contains_key(FETCH_MODE)
        && (headers.contains_key(ACCEPT_LANGUAGE)
            || headers.contains_key(REFERER)
            || headers.contains_key(UPGRADE_INSECURE_REQUESTS)
            || headers.get(USER_AGENT).is_some_and(is_mozilla))
}

/// Returns the host, perhaps with a port, by which the request names the node.
fn authority(head: &Parts) -> Option<Authority> {
    if let Some(authority) = head.uri.authority() {
        return Some(authority.clone());
    }
    let host = only(&head.headers, HOST).ok()??;
    host.parse().ok().filter(|_| !host.contains('@'))
}

/// Returns true if `origin` is the node's own origin. The request names the node by `authority`.
fn is_own(origin: &str, authority: &Authority) -> bool {
    let Some((scheme, place)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let Ok(place) = place.parse::<Authority>() else { return false };
    normal(place.host()) == normal(authority.host())
        && place.port_u16().unwrap_or(default) == authority.port_u16().unwrap_or(default)
}

/// Returns true if a page of another site caused the request.
///
/// `Sec-Fetch-Site` decides if it exists, as it is correct even behind a proxy that changes `Host`. `same-site` is another port or
/// another name of the same domain, and so another program.
fn is_foreign(head: &Parts, authority: Option<&Authority>) -> bool {
    let is_foreign_origin = |origin| !authority.is_some_and(|own| is_own(origin, own));
    match (only(&head.headers, FETCH_SITE), only(&head.headers, ORIGIN)) {
        (Err(()), _) | (_, Err(())) => true,
        (Ok(Some("same-origin")), _) => false,
        // The user typed an address or opened a bookmark.
        (Ok(Some("none")), Ok(origin)) => origin.is_some_and(is_foreign_origin),
        (Ok(Some(_)), _) => true,
        (Ok(None), Ok(origin)) => origin.is_some_and(is_foreign_origin),
    }
}

/// Returns true if the request is a top-level navigation: a followed link in a tab of its own.
fn is_link(head: &Parts) -> bool {
    let is = |name, value| only(&head.headers, name) == Ok(Some(value));
    (head.method == Method::GET || head.method == Method::HEAD)
        && is(FETCH_MODE, "navigate")
        && is(FETCH_DEST, "document")
}

/// Returns true for a path whose GET changes something, as Couchbase's clients expect.
fn changes_by_get(service: Service, path: &str) -> bool {
    service == Service::Eventing && path.trim_matches('/') == "resetStatsCounters"
}

/// Refuses requests that a browser must not send, and answers the preflight requests of browsers.
///
/// # Errors
/// The answer, if the request ends here: 421 for a name that is not the node's, 403 for a request of a page of another site, 204
/// without any permission for an OPTIONS request of such a page.
pub(super) fn check(
    head: &Parts,
    service: Service,
    hosts: &Hosts,
    cluster: impl FnOnce() -> Arc<Cluster>,
) -> Result<(), Reply> {
    if !is_of_browser(&head.headers) {
        return Ok(());
    }
    let authority = authority(head);
    if !authority.as_ref().is_some_and(|authority| hosts.allows(authority.host(), cluster)) {
        let host = authority.as_ref().map_or("no host", Authority::host);
        let reason = format!(
            "this node does not know the name {host:?}, by which a browser has reached it: allow it with --allow-hosts (NACRE_ALLOW_HOSTS), or use an address"
        );
        return Err(error_reply(StatusCode::MISDIRECTED_REQUEST, "misdirected", &reason));
    }
    if !is_foreign(head, authority.as_ref()) {
        return Ok(());
    }
    if head.extensions.get::<Allowed>().is_some() {
        return Allowed::preflight(head).map_or(Ok(()), Err);
    }
    if head.method == Method::OPTIONS {
        return Err(reply(StatusCode::NO_CONTENT, "application/json", ""));
    }
    if is_link(head) && !changes_by_get(service, head.uri.path()) {
        return Ok(());
    }
    let reason = "a web page of another site has sent this request: browsers may send requests only from pages of this node";
    Err(error_reply(StatusCode::FORBIDDEN, "foreign_origin", reason))
}

/// Returns true for a request whose body can only be JSON.
fn takes_json(service: Service, method: &Method, path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (service, method.as_str(), &path[..]) {
        (
            Service::Management,
            "PUT",
            ["deployments", _] | ["pools", "default", "serverGroups", ..],
        )
        | (Service::Management, "POST", ["settings", "clientCertAuth"])
        | (Service::Management, _, ["api", "v1", ..])
        | (Service::Views, "PUT", [_, "_design", _])
        | (Service::Views, "POST", [_, "_design", _, "_view", _]) => true,
        // The code of a function is text.
        (Service::Eventing, "POST" | "PUT", path) => path.last() != Some(&"appcode"),
        (Service::Registered(_), _, _) => true,
        _ => false,
    }
}

/// Refuses JSON from a page without the media type of JSON: a form on another site can send any body, but not with that
/// type.
///
/// # Errors
/// 415.
pub(super) fn check_type(head: &Parts, service: Service, path: &[String]) -> Result<(), Reply> {
    let is_of_page = head.headers.contains_key(ORIGIN) || head.headers.contains_key(FETCH_SITE);
    let is_empty = head.headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
        && !head.headers.contains_key(TRANSFER_ENCODING);
    if !is_of_page || is_empty || !takes_json(service, &head.method, path) {
        return Ok(());
    }
    let essence = |text: &str| {
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        essence == "application/json" || essence.ends_with("+json")
    };
    match only(&head.headers, CONTENT_TYPE) {
        Ok(Some(text)) if essence(text) => Ok(()),
        _ => {
            let reason = "the body is JSON: send the header Content-Type: application/json";
            Err(error_reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", reason))
        }
    }
}

/// Content security policy for answers of the node: browsers may only display them.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
/// Content security policy for an answer of a plugin, which may be a page with styles and small images. The sandbox
/// without `allow-…` means no scripts, no forms, and an opaque origin, so that the page's links count as those of
/// another site.
const PLUGIN_POLICY: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'";

/// Marks an answer whose body comes from a deployed plugin.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfPlugin;

/// Adds the headers that keep other pages from using an answer in a browser.
pub(super) fn protect(answer: &mut Reply) {
    let is_of_plugin = answer.extensions().get::<OfPlugin>().is_some();
    let is_of_console = answer.extensions().get::<OfConsole>().is_some();
    let policy = match (is_of_plugin, is_of_console) {
        (true, _) => PLUGIN_POLICY,
        (false, true) => console::POLICY,
        (false, false) => POLICY,
    };
    let same_origin = HeaderValue::from_static("same-origin");
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(RESOURCE_POLICY, same_origin.clone());
    if is_of_plugin || is_of_console {
        headers.insert(OPENER_POLICY, same_origin);
    }
    if is_of_console {
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(
            PERMISSIONS_POLICY,
            HeaderValue::from_static("camera=(), microphone=(), geolocation=()"),
        );
    }
}

/// Headers that plugins cannot set, because they change how a browser treats other answers of the node: cookies, the
/// node's location, permissions to read.
const RESERVED: [&str; 13] = [
    "alt-svc",
    "clear-site-data",
    "nel",
    "origin-agent-cluster",
    "public-key-pins",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "server",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
];
const RESERVED_PREFIXES: [&str; 4] =
    ["access-control-", "content-security-policy", "cross-origin-", "x-frame-options"];

/// Returns true if a plugin may not set the header `name`, in lower case.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use std::collections::BTreeMap;

    fn head(line: &str, headers: &[(&str, &str)]) -> Parts {
        let (method, path) = line.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(path);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    /// Returns the status with which the server refuses a request, or 0.
    fn refused(line: &str, headers: &[(&str, &str)]) -> u16 {
        let head = head(line, headers);
        let hosts = Hosts::new(["", "db.example"]);
        let outcome =
            check(&head, Service::Management, &hosts, || Arc::new(Cluster::new(String::new())));
        outcome.err().map_or(0, |reply| reply.status().as_u16())
    }

    const HERE: (&str, &str) = ("host", "127.0.0.1:8091");

    #[test]
    fn what_sites_requests_come_from() {
        let foreign = ("origin", "http://evil.example");
        let own = ("origin", "http://127.0.0.1:8091");
        let site = |site: &'static str| ("sec-fetch-site", site);
        let (navigates, document) =
            (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        let frame = ("sec-fetch-dest", "iframe");
        for (expected, line, headers) in [
            (0, "POST /", &[HERE] as &[_]),
            (0, "POST /", &[HERE, own]),
            (0, "POST /", &[HERE, own, site("same-origin")]),
            // Behind a proxy that changes the host.
            (0, "POST /", &[HERE, foreign, site("same-origin")]),
            (0, "GET /", &[HERE, site("none"), navigates, document]),
            (0, "GET /", &[HERE, site("cross-site"), navigates, document]),
            (403, "GET /", &[HERE, site("cross-site"), navigates, frame]),
            (403, "GET /", &[HERE, site("cross-site")]),
            (403, "POST /", &[HERE, site("cross-site"), navigates, document]),
            (403, "POST /", &[HERE, site("same-site")]),
            (403, "POST /", &[HERE, site("anything")]),
            (403, "POST /", &[HERE, site("same-origin"), site("cross-site")]),
            (403, "POST /", &[HERE, site("none"), foreign]),
            (403, "POST /", &[HERE, foreign]),
            (403, "POST /", &[HERE, own, foreign]),
            (403, "POST /", &[HERE, ("origin", "null")]),
            (403, "POST /", &[HERE, ("origin", "http://127.0.0.1:8092")]),
            (403, "POST /", &[HERE, ("origin", "https://127.0.0.1")]),
            (403, "GET /", &[HERE, foreign]),
            (204, "OPTIONS /", &[HERE, foreign]),
        ] {
            assert_eq!(refused(line, headers), expected, "{line} {headers:?}");
        }
        let by_default_port = [("host", "db.example"), ("origin", "https://db.example:443")];
        assert_eq!(refused("POST /", &by_default_port), 0);
    }

    #[test]
    fn which_names_a_browser_may_use() {
        let language = ("accept-language", "en");
        for (expected, host) in [
            (0, "127.0.0.1"),
            (0, "[::1]:8091"),
            (0, "LocalHost.:8091"),
            (0, "a.localhost"),
            (0, "DB.example:1"),
            (421, "rebind.example:8091"),
            (421, "db.example.evil.example"),
            (421, "localhost.evil.example"),
            (421, "127.0.0.1.evil.example"),
            (421, "user@localhost"),
            (421, ""),
        ] {
            assert_eq!(refused("GET /", &[("host", host), language]), expected, "{host:?}");
            assert_eq!(refused("GET /", &[("host", host)]), 0, "a client that is not a browser");
        }
        assert_eq!(refused("GET /", &[language]), 421, "no host");
        assert_eq!(
            refused("GET /", &[("host", "localhost"), ("host", "localhost"), language]),
            421
        );
        let of_node_js = [("host", "db"), ("sec-fetch-mode", "cors"), ("accept-language", "*")];
        assert_eq!(refused("GET /", &of_node_js), 0);
        for mark in [
            ("referer", "http://a/"),
            ("user-agent", "Mozilla/5.0"),
            ("upgrade-insecure-requests", "1"),
        ] {
            assert_eq!(refused("GET /", &[("host", "db"), mark]), 421, "{mark:?}");
        }
        assert!(Hosts::new(["*"]).allows("db", || unreachable!("any name is allowed")));
    }

    #[test]
    fn headers_of_plugins_that_are_the_nodes() {
        let kept: BTreeMap<&str, bool> = [
            "content-type",
            "set-cookie",
            "access-control-allow-origin",
            "alt-svc",
            "etag",
            "x-frame-options",
        ]
        .map(|name| (name, !is_reserved(name)))
        .into();
        let kept: Vec<&str> =
            kept.into_iter().filter_map(|(name, kept)| kept.then_some(name)).collect();
        assert_eq!(kept, ["content-type", "etag"]);
    }
}
