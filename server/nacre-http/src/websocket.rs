//! Requests that become a WebSocket. Source: RFC 6455, section 4.2.

use crate::body::{Reply, error_reply, reply};
use hyper::StatusCode;
use hyper::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use tungstenite::handshake::derive_accept_key;

/// Returns the answer with which a request becomes a WebSocket whose messages have the form `protocol`. Names of headers are in lower case.
///
/// # Errors
/// 426 for a request that is not one for a WebSocket of version 13, 400 for one of another protocol.
pub fn accept(headers: &[(String, String)], protocol: &'static str) -> Result<Reply, Reply> {
    let header = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let names = |list: &str, wanted: &str| {
        list.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted))
    };
    let key = header("sec-websocket-key");
    if !names(header("upgrade"), "websocket")
        || !names(header("connection"), "upgrade")
        || header("sec-websocket-version") != "13"
        || key.is_empty()
    {
        let reason = "this path takes WebSockets of version 13";
        let mut reply = error_reply(StatusCode::UPGRADE_REQUIRED, "upgrade_required", reason);
        let headers = reply.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(reply);
    }
    if !names(header("sec-websocket-protocol"), protocol) {
        let reason = format!("this node speaks {protocol}");
        return Err(error_reply(StatusCode::BAD_REQUEST, "unknown_protocol", &reason));
    }
    let mut reply = reply(StatusCode::SWITCHING_PROTOCOLS, "", "");
    let headers = reply.headers_mut();
    headers.clear();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    let accepted = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted.expect("Base64 is text"));
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_by_the_standard_are_accepted_and_others_refused() {
        let whole = [
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "other, chat"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let reply = accept(&whole, "chat").unwrap();
        assert_eq!(reply.status(), StatusCode::SWITCHING_PROTOCOLS);
        // The example of the standard.
        assert_eq!(reply.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accept(&whole, "none").unwrap_err().status(), StatusCode::BAD_REQUEST);
        for without in 0..4 {
            let mut part = whole.to_vec();
            part.remove(without);
            let refused = accept(&part, "chat").unwrap_err();
            assert_eq!(refused.status(), StatusCode::UPGRADE_REQUIRED, "{without}");
        }
    }
}
