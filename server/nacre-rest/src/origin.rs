//! Protection of administrators against malicious web pages in the same browser: the rules are those of [`nacre_http::origin`], and
//! this module has what depends on the port and on the cluster.
//!
//! The operator may allow pages of other sites to use the API: see [`Allowed`].

use super::Service;
use super::api::cors::Allowed;
use super::body::Reply;
use super::console::{self, OfConsole};
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue, REFERRER_POLICY};
use hyper::http::request::Parts;
use nacre_cluster::Cluster;
pub use nacre_http::origin::Hosts;
use nacre_http::origin::{self, POLICY, Source, normal};
use std::sync::Arc;

const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

fn is_in_cluster(cluster: &Cluster, host: &str) -> bool {
    cluster.nodes.values().any(|member| {
        let own = member.endpoints.host.as_deref();
        let alternate = member.alternate.as_ref().map(|alternate| alternate.host.as_str());
        own.into_iter().chain(alternate).any(|name| normal(name) == host)
    })
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
    match origin::judge(head, hosts, |host| is_in_cluster(&cluster(), host))? {
        Source::Own => Ok(()),
        Source::Foreign if head.extensions.get::<Allowed>().is_some() => {
            Allowed::preflight(head).map_or(Ok(()), Err)
        }
        Source::Foreign => origin::refuse_foreign(head, !changes_by_get(service, head.uri.path())),
    }
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

/// Refuses JSON from a page without the media type of JSON.
///
/// # Errors
/// 415.
pub(super) fn check_type(head: &Parts, service: Service, path: &[String]) -> Result<(), Reply> {
    if takes_json(service, &head.method, path) { origin::check_type(head) } else { Ok(()) }
}

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
    let headers = answer.headers_mut();
    origin::protect(headers, policy);
    if is_of_plugin || is_of_console {
        headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
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
    fn sites_of_requests_are_recognised() {
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
    fn browsers_can_use_only_known_host_names() {
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
        assert!(Hosts::new(["*"]).allows("db", |_| unreachable!("any name is allowed")));
    }

    #[test]
    fn plugins_cannot_set_reserved_headers() {
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
