//! Attachments of documents being written, and `/{db}/{id}/{name}`.

use crate::Call;
use crate::documents::named_rev;
use crate::http::{Problem, durable, header, json};
use crate::json::{GivenAttachment, quoted};
use crate::record::Attachments;
use crate::store::{Store, check_id, rev_id};
use crate::tree::Rev;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_plugin::Response;

/// Stores attachments that come with a document, and finds stubs among the `known` ones.
///
/// # Errors
/// 412 for a stub without an attachment, 400 for content that is not base64.
pub fn resolve(
    store: &Store<'_>,
    id: &str,
    given: &[(String, GivenAttachment)],
    generation: u64,
    known: &[Attachments],
) -> Result<Attachments, Problem> {
    let mut attachments = Attachments::new();
    for (name, attachment) in given {
        if name.is_empty() || name.starts_with('_') {
            let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
            return Err(Problem::bad(&reason));
        }
        if attachment.follows {
            let reason = "multipart bodies are not supported: send attachments in base64";
            return Err(Problem::new(415, "bad_content_type", reason));
        }
        let resolved = match &attachment.data {
            Some(data) => {
                let bytes = BASE64_STANDARD.decode(data);
                let bytes = bytes.map_err(|_| {
                    Problem::bad(&format!("Attachment '{name}' is not a valid base64 string"))
                })?;
                let kind = attachment.content_type.as_deref();
                let kind = kind.unwrap_or("application/octet-stream");
                let revpos = attachment.revpos.unwrap_or(generation).min(generation);
                store.put_attachment(id, kind, bytes, revpos)?
            }
            None => {
                let found = known.iter().find_map(|attachments| attachments.get(name));
                found.cloned().filter(|_| attachment.stub).ok_or_else(|| {
                    let reason = format!("Invalid attachment stub in {id} for {name}");
                    Problem::new(412, "missing_stub", &reason)
                })?
            }
        };
        attachments.insert(name.clone(), resolved);
    }
    Ok(attachments)
}

/// Answers `/{db}/{id}/{name}`.
///
/// # Errors
/// The problem to answer with.
pub fn answer(call: &Call<'_>, method: &str, id: &str, name: &str) -> Result<Response, Problem> {
    check_id(id)?;
    match method {
        "GET" => get(call, id, name),
        "PUT" | "DELETE" => change(call, method == "DELETE", id, name),
        _ => Err(Problem::new(405, "method_not_allowed", "Only DELETE,GET,HEAD,PUT allowed")),
    }
}

fn get(call: &Call<'_>, id: &str, name: &str) -> Result<Response, Problem> {
    let version = call.store.load(id)?;
    let rev = match call.parameters.get("rev") {
        Some(text) => Rev::parse(text).ok_or_else(|| Problem::bad("Invalid rev format"))?,
        None => version.alive().ok_or_else(|| {
            Problem::missing(if version.tree().is_empty() { "missing" } else { "deleted" })
        })?,
    };
    let attachments = version.attachments(&rev);
    let missing = || Problem::missing("Document is missing attachment");
    let attachment = attachments.get(name).ok_or_else(missing)?;
    let tag = quoted(&attachment.digest);
    let mut headers = vec![
        ("etag".to_owned(), tag.clone()),
        ("content-md5".to_owned(), attachment.digest.clone()),
        ("cache-control".to_owned(), "must-revalidate".to_owned()),
        ("accept-ranges".to_owned(), "bytes".to_owned()),
    ];
    if header(call.request, "if-none-match") == Some(&tag) {
        return Ok(Response { status: 304, headers, ..Response::default() });
    }
    headers.push(("content-type".to_owned(), attachment.content_type.clone()));
    let body = call.store.attachment(id, attachment)?;
    match header(call.request, "range").map(|range| read_range(range, body.len())) {
        None | Some(None) => Ok(Response { status: 200, headers, body, cursor: None }),
        Some(Some(Err(()))) => {
            headers.push(("content-range".to_owned(), format!("bytes */{}", body.len())));
            Ok(Response { status: 416, headers, ..Response::default() })
        }
        Some(Some(Ok((first, last)))) => {
            let range = format!("bytes {first}-{last}/{}", body.len());
            headers.push(("content-range".to_owned(), range));
            let body = body[first..=last].to_vec();
            Ok(Response { status: 206, headers, body, cursor: None })
        }
    }
}

/// Returns the first and the last byte of a range; `None` for a header to ignore.
fn read_range(header: &str, length: usize) -> Option<Result<(usize, usize), ()>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first, last) {
        ("", count) => {
            let count: usize = count.parse().ok()?;
            (length.saturating_sub(count), length.checked_sub(1))
        }
        (first, "") => (first.parse().ok()?, length.checked_sub(1)),
        (first, last) => {
            let last: usize = last.parse().ok()?;
            (first.parse().ok()?, length.checked_sub(1).map(|end| end.min(last)))
        }
    };
    match range {
        (first, Some(last)) if first <= last => Some(Ok((first, last))),
        _ => Some(Err(())),
    }
}

fn change(call: &Call<'_>, removes: bool, id: &str, name: &str) -> Result<Response, Problem> {
    let named = named_rev(call, None)?;
    if name.starts_with('_') {
        let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
        return Err(Problem::bad(&reason));
    }
    let rev = call.store.update(id, |version| {
        let tree = version.tree();
        let winner = version.winner();
        let is_dead = winner.as_ref().is_none_or(|winner| tree.is_deleted(winner));
        let parent = match &named {
            Some(rev) if tree.leaves().contains(rev) => Some(rev.clone()),
            Some(_) => return Err(Problem::conflict()),
            None if is_dead && !removes => winner,
            None if is_dead => return Err(Problem::missing("missing")),
            None => return Err(Problem::conflict()),
        };
        let generation = parent.as_ref().map_or(1, |parent| parent.generation + 1);
        let (mut attachments, body) =
            match parent.as_ref().filter(|parent| !tree.is_deleted(parent)) {
                Some(parent) => (version.attachments(parent), call.store.body(version, parent)?),
                None => (Attachments::new(), "{}".to_owned()),
            };
        if removes {
            let missing = || Problem::missing("Document is missing attachment");
            attachments.remove(name).ok_or_else(missing)?;
        } else {
            let kind = header(call.request, "content-type").unwrap_or("application/octet-stream");
            let bytes = call.request.body.clone();
            let attachment = call.store.put_attachment(id, kind, bytes, generation)?;
            attachments.insert(name.to_owned(), attachment);
        }
        let rev_name = rev_id(parent.as_ref(), false, &body, &attachments);
        let rev = Rev { generation, id: rev_name };
        version.record.tree.add(parent, rev.clone(), false);
        version.set(rev.clone(), body, attachments);
        Ok((rev, true))
    })?;
    let rev = quoted(&rev.to_string());
    let body = format!("{{\"ok\":true,\"id\":{},\"rev\":{rev}}}\n", quoted(id));
    let mut response = durable(json(if removes { 200 } else { 201 }, body));
    response.headers.push(("etag".into(), rev));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(read_range("bytes=0-3", 10), Some(Ok((0, 3))));
        assert_eq!(read_range("bytes=4-", 10), Some(Ok((4, 9))));
        assert_eq!(read_range("bytes=-3", 10), Some(Ok((7, 9))));
        assert_eq!(read_range("bytes=3-99", 10), Some(Ok((3, 9))));
        assert_eq!(read_range("bytes=10-", 10), Some(Err(())));
        assert_eq!(read_range("bytes=0-", 0), Some(Err(())));
        assert_eq!(read_range("lines=1-2", 10), None);
    }
}
