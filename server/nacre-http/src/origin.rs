//! Protection of people against malicious web pages in the same browser.
//!
//! A browser sends requests on behalf of any page, with the login that its user has typed or that a URL contains, and
//! from inside the user's network. Without permission, a page may send links, forms, and `fetch` without custom headers
//! to other sites. A page whose name is made to resolve to the server (DNS rebinding) has the server's origin, so it may
//! send and read everything. The server checks these rules in this order:
//!
//! ```text
//! a stranger may own the name in Host              421   requests of browsers only: judge
//! from another site, and no top-level navigation   403   Sec-Fetch-Site, or else Origin: refuse_foreign
//! from a page, JSON without its media type         415   Content-Type: check_type
//! ```
//!
//! Clients that are not browsers send none of these headers, and may use any name for the node. Decision 0051 contains
//! measurements of the headers that a page can set.

use crate::body::{Reply, error_reply, reply};
use hyper::header::{
    ACCEPT_LANGUAGE, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, ORIGIN, REFERER, TRANSFER_ENCODING, UPGRADE_INSECURE_REQUESTS, USER_AGENT,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, StatusCode};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Relation of the page that made a request to the server's site. A page cannot set headers whose names begin with
/// `Sec-`.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Mode of a request: a followed link, a script, an image.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Destination of a request: `document` is a page in its own tab.
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The names by which browsers may reach the server. IP addresses, `localhost` and the names that the server knows by itself are
/// always allowed.
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

    /// Returns true if only the server, or someone whom its operator trusts, can serve a page under `host`. `is_known` is asked, in
    /// lower case, about other names than the configured ones.
    pub fn allows(&self, host: &str, is_known: impl FnOnce(&str) -> bool) -> bool {
        let host = normal(host);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        // An IP address involves no name server, so it is safe from DNS rebinding.
        self.any
            || bare.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.names.contains(&host)
            || is_known(&host)
    }
}

/// Normalises a name for comparisons.
pub fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
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

/// Returns the host, perhaps with a port, by which the request names the server.
fn authority(head: &Parts) -> Option<Authority> {
    if let Some(authority) = head.uri.authority() {
        return Some(authority.clone());
    }
    let host = only(&head.headers, HOST).ok()??;
    host.parse().ok().filter(|_| !host.contains('@'))
}

/// Returns true if `origin` is the server's own origin. The request names the server by `authority`.
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

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A program, or a page of the server itself.
    Own,
    /// A page of another site.
    Foreign,
}

/// Returns the sender of a request.
///
/// # Errors
/// 421 for a browser that has reached the server by a name that is not the server's.
pub fn judge(
    head: &Parts,
    hosts: &Hosts,
    is_known: impl FnOnce(&str) -> bool,
) -> Result<Source, Reply> {
    if !is_of_browser(&head.headers) {
        return Ok(Source::Own);
    }
    let authority = authority(head);
    if !authority.as_ref().is_some_and(|authority| hosts.allows(authority.host(), is_known)) {
        let host = authority.as_ref().map_or("no host", Authority::host);
        let reason = format!(
            "this node does not know the name {host:?}, by which a browser has reached it: allow it with --allow-hosts (NACRE_ALLOW_HOSTS), or use an address"
        );
        return Err(error_reply(StatusCode::MISDIRECTED_REQUEST, "misdirected", &reason));
    }
    Ok(if is_foreign(head, authority.as_ref()) { Source::Foreign } else { Source::Own })
}

/// Answers a request of a page of another site that may do nothing. A link that is followed in a tab of its own passes if
/// `follows_links`.
///
/// # Errors
/// The answer: 204 without any permission for OPTIONS, else 403.
pub fn refuse_foreign(head: &Parts, follows_links: bool) -> Result<(), Reply> {
    if head.method == Method::OPTIONS {
        return Err(reply(StatusCode::NO_CONTENT, "application/json", ""));
    }
    if follows_links && is_link(head) {
        return Ok(());
    }
    let reason = "a web page of another site has sent this request: browsers may send requests only from pages of this node";
    Err(error_reply(StatusCode::FORBIDDEN, "foreign_origin", reason))
}

/// Refuses JSON from a page without the media type of JSON: a form on another site can send any body, but not with that
/// type.
///
/// # Errors
/// 415.
pub fn check_type(head: &Parts) -> Result<(), Reply> {
    let is_of_page = head.headers.contains_key(ORIGIN) || head.headers.contains_key(FETCH_SITE);
    let is_empty = head.headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
        && !head.headers.contains_key(TRANSFER_ENCODING);
    if !is_of_page || is_empty {
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

/// Content security policy for answers that are no pages: browsers may only display them.
pub const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// Adds the headers that keep browsers from using an answer on other pages.
pub fn protect(headers: &mut HeaderMap, policy: &'static str) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
}
