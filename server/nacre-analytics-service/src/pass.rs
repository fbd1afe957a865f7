//! Requests on their way to the process.

use crate::{Analytics, rights};
use nacre_node::Node;
use nacre_node::service::{HttpReply, HttpRequest};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use ureq::http::Request;

/// Largest answer that is passed on, in bytes: it is held as a whole.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Longest time that an answer takes. Requests have timeouts of their own, which are shorter.
const TIMEOUT: Duration = Duration::from_secs(1800);
const JSON: &str = "application/json";

/// Passes a request on to the process, and its answer back.
pub(crate) fn pass(
    analytics: &Analytics,
    node: &Arc<Node>,
    request: &HttpRequest,
    method: &str,
    path: &str,
) -> HttpReply {
    analytics.requests.fetch_add(1, Ordering::Relaxed);
    let process = match analytics.supervisor.process() {
        Ok(process) => process,
        Err(reason) => return unavailable(&reason),
    };
    let path = filled(path, &request.parameters);
    let query =
        if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let kind = request.headers.iter().find(|(name, _)| name == "content-type");
    let sent = Request::builder()
        // The client of this crate sends no body with DELETE: the process reads the method from a header.
        .method("POST")
        .uri(format!("http://127.0.0.1:{}{path}{query}", process.port))
        .header("x-nacre-method", method)
        .header("x-nacre-token", &process.token)
        .header("x-nacre-user", encoded(&request.user))
        .header("x-nacre-rights", encoded(&rights::of_user(node, request)))
        .header("content-type", kind.map_or("application/x-www-form-urlencoded", |(_, kind)| kind))
        .body(&request.body[..]);
    let mut memory = request.answer_memory(node);
    let take = |bytes| memory.grow(bytes).map_err(|why| why.to_string());
    let answered = sent.map_err(|error| error.to_string()).and_then(|sent| answer(sent, take));
    answered.unwrap_or_else(|reason| {
        analytics.failures.fetch_add(1, Ordering::Relaxed);
        unavailable(&reason)
    })
}

/// Sends a request, and reads the answer, for which `take` takes memory as it comes.
fn answer(
    request: Request<&[u8]>,
    take: impl FnMut(usize) -> Result<(), String>,
) -> Result<HttpReply, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(TIMEOUT))
        .build()
        .into();
    let mut answer = agent.run(request).map_err(|error| error.to_string())?;
    let is_json = answer.headers().get("content-type").is_some_and(|kind| kind == JSON);
    let status = answer.status().as_u16();
    let body = whole(answer.body_mut().as_reader(), take)?;
    Ok(HttpReply { status, content_type: if is_json { JSON } else { "text/plain" }, body })
}

/// Reads an answer to its end.
fn whole(
    mut from: impl Read,
    mut take: impl FnMut(usize) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = from.read(&mut piece).map_err(|error| error.to_string())?;
        if count == 0 {
            return Ok(body);
        }
        if body.len() + count > ANSWER_BYTES_MAX {
            return Err(format!("an answer may have {ANSWER_BYTES_MAX} bytes"));
        }
        take(count)?;
        body.extend_from_slice(&piece[..count]);
    }
}

/// A path with values in the place of its braces.
fn filled(path: &str, parameters: &[String]) -> String {
    let mut parameters = parameters.iter();
    let segment = |segment: &str| match segment.starts_with('{') {
        true => {
            let value = parameters.next().map_or("", String::as_str);
            utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
        }
        false => segment.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// The answer while there is no process: clients try again.
fn unavailable(reason: &str) -> HttpReply {
    let message = format!("Analytics Service is temporarily unavailable: {reason}");
    let body = json!({
        "errors": [{"code": 23000, "msg": message, "retriable": true}],
        "status": "fatal",
    });
    HttpReply { status: 503, content_type: JSON, body: body.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_path_are_encoded_again() {
        let parameters = ["b/s".to_owned(), "l".to_owned()];
        assert_eq!(
            filled("/analytics/link/{scope}/{name}", &parameters),
            "/analytics/link/b%2Fs/l"
        );
        assert_eq!(filled("/admin/ping", &[]), "/admin/ping");
    }

    #[test]
    fn an_answer_takes_memory_while_it_is_read() {
        let mut taken = 0;
        let mut take = |bytes: usize| {
            taken += bytes;
            if taken > 1 << 20 { Err("no memory is left".to_owned()) } else { Ok(()) }
        };
        assert_eq!(whole(&[7; 1000][..], &mut take).map(|body| body.len()), Ok(1000));
        // An answer without an end.
        assert_eq!(whole(std::io::repeat(7), &mut take).unwrap_err(), "no memory is left");
        assert!(taken < (1 << 20) + 2 * PIECE_BYTES, "{taken}");
        let refused = whole(std::io::repeat(7), |_| Ok(())).unwrap_err();
        assert!(refused.contains("an answer may have"), "{refused}");
    }

    #[test]
    fn a_missing_process_is_reported_with_a_reason_and_status_503() {
        let reply = unavailable("it is not installed");
        let text = String::from_utf8(reply.body).unwrap();
        assert_eq!(reply.status, 503);
        assert!(text.contains("23000") && text.contains("it is not installed"), "{text}");
    }
}
