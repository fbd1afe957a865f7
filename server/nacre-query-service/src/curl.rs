//! `CURL()`: an HTTP request of a statement to a host that the setting `curlWhitelist` allows.
//!
//! The URL is compared part by part and not as text, so that `https://good.example` allows neither `https://good.example.net`
//! nor a path that leaves the allowed one by `..`. Redirections are not followed. Addresses of nodes and of this machine also
//! need a rule of `outgoingHttp`, as for functions and plugins.

use super::failure::{code, failure};
use super::requester::Requester;
use crate::NodeQueries;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nacre_auth::Privilege;
use nacre_bucket::before_blocking;
use nacre_cluster::CurlAccess;
use nacre_node::Outgoing;
use nacre_sandbox::{Failure, HttpError, HttpRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum time and response size of a call. Source: SQL++ reference, CURL.
const TIME_MAX: Duration = Duration::from_secs(120);
const ANSWER_BYTES_MAX: usize = 20 << 20;

/// A call with the options that the instance has read.
#[derive(Deserialize)]
pub(super) struct CurlRequest {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    /// Name and password, separated by a colon.
    user: Option<String>,
    body: String,
    time_ms: Option<u64>,
    answer_bytes: Option<usize>,
}

/// Sends the request and returns the response as text.
pub(super) fn curl(
    requester: &Requester,
    request: CurlRequest,
    left: Duration,
) -> Result<Value, Failure> {
    requester.require_whole(Privilege::QueryExternal)?;
    let CurlRequest { method, url, mut headers, user, body, time_ms, answer_bytes } = request;
    let user = user.map(|user| format!("Basic {}", BASE64_STANDARD.encode(user)));
    headers.extend(user.map(|value| ("authorization".into(), value)));
    let failed = |why: String| failure(code::EXECUTION, format!("CURL {url}: {why}"));
    let sent = HttpRequest::new(&method, &url, headers, body.into_bytes());
    let sent = sent.map_err(|error| failed(error.to_string()))?;
    if !is_allowed(&requester.node.cluster().settings.curl, &sent) {
        let why = "the URL is not in the allowed ones of /settings/querySettings/curlWhitelist";
        return Err(failed(why.into()));
    }
    let time = time_ms.map_or(TIME_MAX, Duration::from_millis).min(TIME_MAX).min(left);
    let bytes_max = answer_bytes.unwrap_or(ANSWER_BYTES_MAX).min(ANSWER_BYTES_MAX);
    let http = requester
        .node
        .queries()
        .http
        .get_or_init(|| requester.node.platform.http(Outgoing::new(&requester.node)));
    before_blocking();
    let answer = match http.send(&sent, bytes_max, time) {
        Ok(answer) => answer,
        Err(HttpError::TooLarge) => {
            return Err(failed(format!("the answer has more than {bytes_max} bytes")));
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    let body = String::from_utf8(answer.body);
    let body = body.map_err(|_| failed("the response is not text".into()))?;
    Ok(json!({"status": answer.status, "body": body}))
}

fn is_allowed(access: &CurlAccess, request: &HttpRequest) -> bool {
    let HttpRequest { is_secure, host, port, target, .. } = request;
    let path = decoded(target);
    // Servers may resolve such paths to others, and may treat a backslash as a slash.
    let is_plain =
        !path.contains('\\') && path.split(['/', '?']).all(|part| !matches!(part, "." | ".."));
    let is_of = |rule: &String, at_border: bool| {
        let Ok(rule) = HttpRequest::new("GET", rule, Vec::new(), Vec::new()) else {
            return false;
        };
        let is_there = rule.is_secure == *is_secure && rule.host == *host && rule.port == *port;
        is_there && begins_with(&path, &decoded(&rule.target), at_border)
    };
    let denied = access.disallowed_urls.iter().any(|rule| is_of(rule, false));
    let allowed = access.all_access || access.allowed_urls.iter().any(|rule| is_of(rule, true));
    is_plain && allowed && !denied
}

/// Returns true if a path begins with `prefix`; with `at_border`, only if the prefix ends at the end of a part.
fn begins_with(path: &str, prefix: &str, at_border: bool) -> bool {
    let Some(rest) = path.strip_prefix(prefix) else { return false };
    let is_border = rest.is_empty() || rest.starts_with(['/', '?', '&']);
    !at_border || prefix.ends_with(['/', '?', '&', '=']) || is_border
}

/// Returns path and query in a canonical spelling: percent-decoded, without repeated slashes.
fn decoded(target: &str) -> String {
    let mut bytes: Vec<u8> = percent_encoding::percent_decode_str(target).collect();
    bytes.dedup_by(|byte, before| [*byte, *before] == *b"//");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(access: &CurlAccess, url: &str) -> bool {
        is_allowed(access, &HttpRequest::new("GET", url, Vec::new(), Vec::new()).unwrap())
    }

    fn access(allowed: &[&str], disallowed: &[&str]) -> CurlAccess {
        let list = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect();
        CurlAccess {
            all_access: false,
            allowed_urls: list(allowed),
            disallowed_urls: list(disallowed),
        }
    }

    #[test]
    fn no_url_is_allowed_by_default() {
        assert!(!allows(&CurlAccess::default(), "https://good.example/"));
    }

    #[test]
    fn urls_are_compared_by_their_parts() {
        let access = access(&["https://good.example", "http://other.example:81/a"], &[]);
        for (url, expected) in [
            ("https://good.example", true),
            ("https://GOOD.example/x?y=1", true),
            ("https://good.example:443/x", true),
            ("http://good.example/", false),
            ("https://good.example.net/", false),
            ("https://good.example:444/", false),
            ("http://other.example:81/a", true),
            ("http://other.example:81/a/b", true),
            ("http://other.example:81/a?b", true),
            ("http://other.example:81/ab", false),
            ("http://other.example:81/a/../b", false),
            ("http://other.example:81/a/%2e%2E/b", false),
            ("http://other.example:81/a/..%2Fb", false),
            ("http://other.example:81/", false),
        ] {
            assert_eq!(allows(&access, url), expected, "{url}");
        }
    }

    #[test]
    fn disallowed_urls_are_refused_in_any_spelling() {
        let mut access = access(&["https://good.example"], &["https://good.example/secret"]);
        for all_access in [false, true] {
            access.all_access = all_access;
            for url in
                ["secret", "secrets", "secret/a", "%73ecret", "/secret", "./secret", "%2E/secret"]
            {
                assert!(!allows(&access, &format!("https://good.example/{url}")), "{url}");
            }
            assert!(allows(&access, "https://good.example/open"));
        }
        assert!(allows(&access, "https://third.example/"));
    }
}
