//! Documents as clients send and receive them: an object whose other members are copied byte for
//! byte.

use crate::http::Problem;
use crate::record::Attachments;
use crate::tree::{Rev, read_path};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// The members of an object in order, with their original values.
#[derive(Debug, Default)]
pub struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// An attachment of a document from a client.
#[derive(Debug, Default, Deserialize)]
pub struct GivenAttachment {
    /// The media type.
    #[serde(default)]
    pub content_type: Option<String>,
    /// The content in base64; `None` for a stub.
    #[serde(default)]
    pub data: Option<String>,
    /// True if the content is that of an earlier revision.
    #[serde(default)]
    pub stub: bool,
    /// True if the content follows in a multipart body, which is not supported.
    #[serde(default)]
    pub follows: bool,
    /// The generation that added it.
    #[serde(default)]
    pub revpos: Option<u64>,
}

#[derive(Deserialize)]
struct Revisions {
    start: u64,
    ids: Vec<String>,
}

/// A document from a client.
#[derive(Debug, Default)]
pub struct Given {
    /// `_id`, if given.
    pub id: Option<String>,
    /// `_rev`, if given.
    pub rev: Option<Rev>,
    /// `_revisions`, newest first, if given.
    pub path: Option<Vec<Rev>>,
    /// `_deleted`.
    pub deleted: bool,
    /// The other members, as an object.
    pub body: String,
    /// `_attachments` by name.
    pub attachments: Vec<(String, GivenAttachment)>,
}

/// Parses a document.
///
/// # Errors
/// 400, with CouchDB's reason.
pub fn read(json: &str) -> Result<Given, Problem> {
    if !json.trim_start().starts_with('{') {
        return Err(Problem::bad("Document must be a JSON object"));
    }
    let Members(members) =
        serde_json::from_str(json).map_err(|error| Problem::bad(&error.to_string()))?;
    let mut given = Given::default();
    let mut kept: Vec<(String, &RawValue)> = Vec::with_capacity(members.len());
    for (name, value) in members {
        let text = || serde_json::from_str::<String>(value.get()).ok();
        match name.as_str() {
            "_id" => {
                let id = text().ok_or_else(|| Problem::bad("Document id must be a string"))?;
                given.id = Some(id);
            }
            "_rev" if value.get() == "null" => {}
            "_rev" => {
                let rev = text().and_then(|text| Rev::parse(&text));
                given.rev = Some(rev.ok_or_else(|| Problem::bad("Invalid rev format"))?);
            }
            "_deleted" => given.deleted = value.get() == "true",
            "_revisions" => {
                let revisions: Revisions = serde_json::from_str(value.get())
                    .map_err(|error| Problem::invalid(&format!("_revisions: {error}")))?;
                let path = read_path(revisions.start, &revisions.ids);
                given.path = Some(path.map_err(|reason| Problem::invalid(&reason))?);
            }
            "_attachments" => given.attachments = attachments(value.get())?,
            "_revs_info" | "_conflicts" | "_deleted_conflicts" | "_local_seq" => {}
            special if special.starts_with('_') => {
                return Err(Problem::invalid(&format!("Bad special document member: {special}")));
            }
            _ => match kept.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => kept.push((name, value)),
            },
        }
    }
    given.body = object(&kept);
    Ok(given)
}

fn attachments(json: &str) -> Result<Vec<(String, GivenAttachment)>, Problem> {
    let invalid = |error: serde_json::Error| Problem::bad(&format!("_attachments: {error}"));
    let Members(members) = serde_json::from_str(json).map_err(invalid)?;
    let one = |(name, value): (String, &RawValue)| {
        Ok((name, serde_json::from_str(value.get()).map_err(invalid)?))
    };
    members.into_iter().map(one).collect()
}

/// Returns an object of these members.
fn object(members: &[(String, &RawValue)]) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&quoted(name));
        text.push(':');
        text.push_str(value.get());
    }
    text.push('}');
    text
}

/// Returns a text as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Returns a body that a key-value client has written, if other clients can read it.
///
/// # Errors
/// The reason, if they cannot.
pub fn readable(body: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "the document is not JSON")?;
    let Members(members) =
        serde_json::from_str(text).map_err(|_| "the document is not a JSON object")?;
    match members.iter().any(|(name, _)| name.starts_with('_')) {
        true => Err("members of the document begin with _, which CouchDB reserves"),
        false => Ok(text),
    }
}

/// Formats a document for a client: `head` contains CouchDB's members, each as name and JSON.
pub fn document(head: &[(&str, String)], body: &str) -> String {
    let inner = body.trim().trim_start_matches('{').trim_end();
    let inner = inner.strip_suffix('}').unwrap_or(inner).trim();
    let mut text = String::with_capacity(body.len() + 100);
    text.push('{');
    for (index, (name, value)) in head.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&quoted(name));
        text.push(':');
        text.push_str(value);
    }
    if !inner.is_empty() {
        text.push(',');
        text.push_str(inner);
    }
    text.push('}');
    text
}

#[derive(Serialize)]
struct Stub<'a> {
    content_type: &'a str,
    revpos: u64,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stub: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
}

/// Formats the `_attachments` of a document, with the contents in base64 that `content` returns.
pub fn stubs(attachments: &Attachments, content: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::from("{");
    for (index, (name, attachment)) in attachments.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let data = content(name);
        let stub = Stub {
            content_type: &attachment.content_type,
            revpos: attachment.revpos,
            digest: format!("md5-{}", attachment.digest),
            length: data.is_none().then_some(attachment.length),
            stub: data.is_none().then_some(true),
            data,
        };
        text.push_str(&quoted(name));
        text.push(':');
        text.push_str(&serde_json::to_string(&stub).unwrap_or_default());
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_pass_byte_for_byte() {
        let given = read(r#"{"_id":"a","n":1.0,"big":12345678901234567890,"_rev":"1-x"}"#).unwrap();
        assert_eq!(given.body, r#"{"n":1.0,"big":12345678901234567890}"#);
        assert_eq!(given.rev.unwrap().to_string(), "1-x");
        let whole = document(&[("_id", quoted("a"))], &given.body);
        assert_eq!(whole, r#"{"_id":"a","n":1.0,"big":12345678901234567890}"#);
        assert_eq!(document(&[("_id", quoted("a"))], "{ }"), r#"{"_id":"a"}"#);
    }

    #[test]
    fn the_last_of_equal_members_counts() {
        assert_eq!(read(r#"{"a":1,"a":2}"#).unwrap().body, r#"{"a":2}"#);
    }

    #[test]
    fn wrong_members_are_refused() {
        for (json, reason) in [
            ("[]", "Document must be a JSON object"),
            (r#"{"_id":1}"#, "Document id must be a string"),
            (r#"{"_rev":"x"}"#, "Invalid rev format"),
            (r#"{"_x":1}"#, "Bad special document member: _x"),
            (r#"{"_revisions":{"start":1,"ids":["b","a"]}}"#, "_revisions.start is 1, with 2 ids"),
        ] {
            assert_eq!(read(json).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn documents_of_others_are_readable_or_not() {
        assert_eq!(readable(b" {\"a\": 1} "), Ok(" {\"a\": 1} "));
        for body in [&b"\xff"[..], b"[]", b"7", b"", br#"{"_type":1}"#] {
            assert!(readable(body).is_err());
        }
    }
}
