//! `http`: requests to granted hosts.

use crate::arguments::{Arguments, error};
use nacre_js::{HostError, HostValue as Value};
use nacre_plugin::http;

/// Sends a request. Returns `[status, headers as JSON, body, body as text, all headers as JSON]`. The first headers are an
/// object, in which the last of several headers with one name is used; the second are an array of pairs.
pub fn send(arguments: &mut Arguments) -> Result<Value, HostError> {
    let (method, url) = (arguments.text()?, arguments.text()?);
    let body = arguments.body()?;
    let headers = arguments.headers()?;
    match http::send(http::Request { method, url, headers, body }) {
        Ok(http::Response { status, headers, body }) => {
            let all = serde_json::json!(headers).to_string();
            let names: serde_json::Map<String, serde_json::Value> =
                headers.into_iter().map(|(name, value)| (name, value.into())).collect();
            let text = String::from_utf8_lossy(&body).into_owned();
            Ok(Value::List(vec![
                Value::Number(f64::from(status)),
                Value::Text(serde_json::Value::Object(names).to_string()),
                Value::Bytes(body),
                Value::Text(text),
                Value::Text(all),
            ]))
        }
        Err(cause) => {
            let code = match &cause {
                http::Error::Denied(_) => "denied",
                http::Error::Timeout => "timeout",
                http::Error::TooLarge => "too-large",
                http::Error::Failed(_) => "failed",
            };
            Err(error(code, cause.to_string()))
        }
    }
}
