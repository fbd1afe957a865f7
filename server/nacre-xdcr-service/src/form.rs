//! Parses request forms and builds responses.

use nacre_node::Error;
use nacre_node::service::{HttpReply, HttpRequest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of fields of a form.
const FIELDS_MAX: usize = 200;
/// Characters of an ID that a path segment keeps as they are.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Fields of a form by name. The last value of a repeated field counts.
pub(crate) type Form = BTreeMap<String, String>;

/// Reads the fields of a request: those of the body, then those of the query that the body lacks.
///
/// # Errors
/// A response when there are more than [`FIELDS_MAX`] fields.
pub(crate) fn read(request: &HttpRequest) -> Result<Form, HttpReply> {
    let mut form = Form::new();
    for text in [request.query.as_bytes(), &request.body] {
        for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            form.insert(decoded(&pair[..cut]), decoded(pair.get(cut + 1..).unwrap_or_default()));
        }
    }
    if form.len() > FIELDS_MAX {
        return Err(invalid("_", "there are more than 200 fields"));
    }
    Ok(form)
}

fn decoded(part: &[u8]) -> String {
    let spaced: Vec<u8> =
        part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

/// Percent-encodes text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, IN_PATH).to_string()
}

/// Returns a response in JSON.
pub(crate) fn reply(status: u16, value: &Value) -> HttpReply {
    HttpReply { status, content_type: "application/json", body: value.to_string().into_bytes() }
}

/// Returns the response to a successful request.
pub(crate) fn ok(value: &Value) -> HttpReply {
    reply(200, value)
}

/// Returns the response about an invalid field, in the form used by references and settings.
pub(crate) fn invalid(field: &str, reason: impl Into<String>) -> HttpReply {
    reply(400, &json!({field: reason.into()}))
}

/// Returns the response about an invalid field, in the form used when a replication is created or cancelled.
pub(crate) fn wrapped(field: &str, reason: impl Into<String>) -> HttpReply {
    reply(400, &json!({"errors": {field: reason.into()}}))
}

/// Returns the response about a missing resource.
pub(crate) fn not_found() -> HttpReply {
    reply(404, &json!("Requested resource not found."))
}

/// Returns the response to a change on which the nodes did not agree.
pub(crate) fn refused(error: &Error) -> HttpReply {
    let status = match error {
        Error::Refused(_) => 400,
        Error::Unavailable(_) | Error::Effect(_) => 503,
        _ => 500,
    };
    reply(status, &json!({"_": error.to_string()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_the_fields_of_body_and_query() {
        let request = HttpRequest {
            query: "just_validate=1&name=other".to_owned(),
            body: b"name=a%20b+c&flag&x=%ff".to_vec(),
            ..HttpRequest::default()
        };
        let form = read(&request).unwrap();
        let read: Vec<(&str, &str)> = form.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            read,
            [("flag", ""), ("just_validate", "1"), ("name", "a b c"), ("x", "\u{fffd}")]
        );
        assert_eq!(segment("a/b c"), "a%2Fb%20c");
    }

    #[test]
    fn a_form_with_too_many_fields_is_refused() {
        let body: String = (0..300).map(|number| format!("f{number}=1&")).collect();
        let request = HttpRequest { body: body.into_bytes(), ..HttpRequest::default() };
        assert_eq!(read(&request).unwrap_err().status, 400);
    }
}
