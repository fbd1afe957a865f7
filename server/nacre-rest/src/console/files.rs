//! The files of the console. Anybody may read them: they contain no secrets.
//!
//! `/` redirects browsers to the page. Names below `ui/assets` change with the content of the file, so browsers cache these files
//! forever; browsers revalidate the page each time, by its ETag.

use super::super::body::{Reply, reply};
use bytes::Bytes;
use flate2::read::GzDecoder;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH,
    LOCATION, VARY,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use nacre_cluster::Security;
use nacre_console::Asset;
use std::io::Read;

/// What the console's pages may do: load their own files and talk to their own node. Scripts run from files only, and may insert HTML
/// only through the two trusted-types policies that the framework and the worker need.
pub(in super::super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types svelte-trusted-html nacre";

/// Marks an answer that carries a file of the console.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct OfConsole;

const PAGE: &str = "index.html";

/// Answers a request for a file of the console; returns `None` for any other request.
pub(in super::super) fn file(head: &Parts, security: &Security, encrypted: bool) -> Option<Reply> {
    let is_read = head.method == Method::GET || head.method == Method::HEAD;
    let path = head.uri.path();
    let is_page = match path {
        "/" => accepts_html(&head.headers),
        "/ui" | "/ui/" | "/index.html" => true,
        _ => false,
    };
    if !is_read || !(is_page || path.starts_with("/ui/")) {
        return None;
    }
    let is_disabled = if encrypted { security.disable_ui_https } else { security.disable_ui_http };
    if is_disabled {
        // At "/", clients that are not browsers get the same answer as always.
        return (path != "/").then(missing);
    }
    if is_page {
        let place = if path == "/ui/" { PAGE } else { "ui/index.html" };
        let mut found = reply(StatusCode::FOUND, "text/plain", "");
        found.headers_mut().insert(LOCATION, HeaderValue::from_static(place));
        found.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        return Some(found);
    }
    let asset = path.strip_prefix("/ui/").and_then(nacre_console::asset);
    Some(asset.map_or_else(missing, |asset| of_asset(asset, &head.headers)))
}

fn missing() -> Reply {
    reply(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "there is no such file")
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = quality.trim().strip_prefix("q=").is_some_and(|quality| {
            quality.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0)
        });
        matches!(name.trim(), "gzip" | "*") && !is_refused
    })
}

fn of_asset(asset: &Asset, headers: &HeaderMap) -> Reply {
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|tags| {
            tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == asset.tag)
        })
    });
    let is_sent_compressed = asset.is_compressed && accepts_gzip(headers);
    let mut answer = match is_known {
        true => reply(StatusCode::NOT_MODIFIED, asset.media_type, ""),
        false if is_sent_compressed || !asset.is_compressed => {
            reply(StatusCode::OK, asset.media_type, Bytes::from_static(asset.bytes))
        }
        false => reply(StatusCode::OK, asset.media_type, plain(asset.bytes)),
    };
    let cache =
        if asset.is_immutable() { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(ETAG, HeaderValue::from_static(asset.tag));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_sent_compressed && !is_known {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer.extensions_mut().insert(OfConsole);
    answer
}

/// Decompresses a file that was compressed when the binary was built.
fn plain(compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(compressed).read_to_end(&mut plain).expect("the binary's own files are whole");
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
        let request = Request::builder().method(method).uri(path);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn status(method: &str, path: &str, headers: &[(&str, &str)], security: &Security) -> u16 {
        let answer = file(&head(method, path, headers), security, false);
        answer.map_or(0, |answer| answer.status().as_u16())
    }

    #[test]
    fn browsers_are_redirected_to_the_page_and_other_clients_are_not() {
        let html = ("accept", "text/html,application/xhtml+xml");
        let on = Security::default();
        for (expected, method, path, headers) in [
            (302, "GET", "/", &[html] as &[_]),
            (0, "GET", "/", &[]),
            (0, "GET", "/", &[("accept", "*/*")]),
            (302, "GET", "/ui", &[]),
            (302, "GET", "/ui/", &[]),
            (200, "GET", "/ui/index.html", &[]),
            (200, "HEAD", "/ui/index.html", &[]),
            (0, "POST", "/ui/index.html", &[]),
            (404, "GET", "/ui/../pools", &[]),
            (404, "GET", "/ui/assets/none.js", &[]),
            (0, "GET", "/uilogin", &[]),
            (0, "GET", "/pools", &[html]),
        ] {
            assert_eq!(status(method, path, headers, &on), expected, "{method} {path}");
        }
        let off = Security { disable_ui_http: true, ..Security::default() };
        assert_eq!(status("GET", "/", &[html], &off), 0);
        assert_eq!(status("GET", "/ui/index.html", &[], &off), 404);
    }

    #[test]
    fn an_unchanged_page_is_not_sent_again() {
        let security = Security::default();
        let answer = file(&head("GET", "/ui/index.html", &[]), &security, false).unwrap();
        let tag = answer.headers()[ETAG].to_str().unwrap().to_owned();
        assert_eq!(answer.headers()[CACHE_CONTROL], "no-cache");
        assert!(!answer.headers().contains_key(CONTENT_ENCODING), "gzip was not asked for");
        for tag in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}")] {
            assert_eq!(status("GET", "/ui/index.html", &[("if-none-match", &tag)], &security), 304);
        }
        assert_eq!(status("GET", "/ui/index.html", &[("if-none-match", "\"o\"")], &security), 200);
    }

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        for (expected, coding) in [
            (true, "gzip"),
            (true, "br, gzip;q=0.5"),
            (true, "*"),
            (false, "br"),
            (false, "gzip;q=0"),
            (false, ""),
        ] {
            let head = head("GET", "/", &[("accept-encoding", coding)]);
            assert_eq!(accepts_gzip(&head.headers), expected, "{coding}");
        }
    }
}
