//! Cross-origin requests (CORS): pages of other sites may use the API if an allow-list in the cluster's settings names
//! their origin. The list is empty by default.
//!
//! The list lifts only the rule that refuses requests of pages of other sites (see [`origin`](super::super::origin)); the server checks
//! the name of the node as usual. Such a page has no session: the server ignores its cookies, and no answer allows the browser to send
//! credentials. The page sends the header `Authorization` itself.

use super::super::body::{Reply, ok, reply};
use super::super::{Call, Service, settings};
use super::{is_api, read_body};
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use nacre_cluster::{ClusterSettings, SettingsChange};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;

/// Methods of the API.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE";
/// Headers that a page may send.
const SENT: &str = "Authorization, Content-Type, If-Match, If-None-Match";
/// Headers that a page may read.
const SHOWN: &str = "ETag, Location, Nacre-Expiry, Retry-After, Allow";
/// How long a browser remembers the permission, in seconds.
const MAX_AGE: &str = "600";

/// The origin of a page of another site that may use the API. A request with such an origin carries this as an
/// extension.
#[derive(Clone, Debug)]
pub(in super::super) struct Allowed(HeaderValue);

impl Allowed {
    /// Returns the origin of a request if pages of that origin may send the request.
    pub fn of(head: &Parts, service: Service, settings: &ClusterSettings) -> Option<Allowed> {
        if service != Service::Management || !is_api(head.uri.path()) {
            return None;
        }
        let mut origins = head.headers.get_all(ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else { return None };
        let is_allowed = settings.api_origins.contains(origin.to_str().ok()?);
        is_allowed.then(|| Allowed(origin.clone()))
    }

    /// Answers a preflight request, by which a browser asks whether a page may send a request.
    pub fn preflight(head: &Parts) -> Option<Reply> {
        if head.method != Method::OPTIONS {
            return None;
        }
        let mut answer = reply(StatusCode::NO_CONTENT, "application/json", "");
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        Some(answer)
    }

    /// Adds the headers that let the page read an answer.
    pub fn apply(self, answer: &mut Reply) {
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(SHOWN));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// Body of the setting.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Origins {
    allowed_origins: BTreeSet<String>,
}

pub(super) fn show(call: &Call) -> Reply {
    ok(&json!({"allowed_origins": call.node.cluster().settings.api_origins}))
}

pub(super) async fn change(call: Call) -> Result<Reply, Reply> {
    let Origins { allowed_origins } = read_body(&call)?;
    settings::change(&call, SettingsChange::ApiOrigins(allowed_origins)).await?;
    Ok(show(&call))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    #[test]
    fn only_origins_of_the_list_and_only_paths_of_the_api_are_allowed() {
        let allowed = |service, path: &str, origins: &[&str]| {
            let request = Request::builder().uri(path);
            let request =
                origins.iter().fold(request, |request, origin| request.header(ORIGIN, *origin));
            let (head, ()) = request.body(()).unwrap().into_parts();
            let settings = ClusterSettings {
                api_origins: ["https://app.example".to_owned()].into(),
                ..ClusterSettings::default()
            };
            let before = Allowed::of(&head, service, &ClusterSettings::default());
            assert!(before.is_none(), "the list is empty at first");
            Allowed::of(&head, service, &settings).is_some()
        };
        let management = Service::Management;
        assert!(allowed(management, "/api/v1/buckets", &["https://app.example"]));
        for (service, path, origins) in [
            (management, "/api/v1/buckets", &[] as &[&str]),
            (management, "/api/v1/buckets", &["https://app.example", "https://app.example"]),
            (management, "/api/v1/buckets", &["http://app.example"]),
            (management, "/api/v1/buckets", &["https://app.example:8443"]),
            (management, "/api/v1/buckets", &["https://app.example.evil.example"]),
            (management, "/api/v1/buckets", &["null"]),
            (management, "/api/v10", &["https://app.example"]),
            (management, "/pools/default", &["https://app.example"]),
            (Service::Eventing, "/api/v1/functions", &["https://app.example"]),
        ] {
            assert!(!allowed(service, path, origins), "{path} {origins:?}");
        }
    }
}
