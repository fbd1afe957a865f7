//! Keeps both versions of a document that two clusters have changed at the same time: the newer one as the document, and
//! the body of the older one in a member of it, until a client decides.
//!
//! ```json
//! {"title": "The lift is slow", "_conflicts": [{"at_ms": 1767225600000, "body": {"title": "The lift is stuck"}}]}
//! ```
//!
//! `at_ms` is the time of the write in milliseconds since the Unix epoch. The merge is the union of all bodies without
//! duplicates, the newest ones first, so that both clusters come to the same bytes.

use nacre_plugin::{Fault, Resolver, Verdict, Version};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// The member with the bodies that lost.
const CONFLICTS: &str = "_conflicts";
/// Maximum number of bodies in a document that lost; the newest ones are kept.
const BODIES_MAX: usize = 10;
/// Maximum size of these bodies in bytes.
const BODIES_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a document with these bodies: a document can have 20 MiB, of which extended attributes take up to 2 MiB.
const DOCUMENT_BYTES_MAX: usize = 18 << 20;

/// Keeps both of two objects. Of anything else, keeps the version that was not deleted, or the newer one.
pub struct KeepBoth;

impl Resolver for KeepBoth {
    fn describe() -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"name": "keep-both", "version": "{version}", "limits": {{}}}}"#)
    }

    fn init(_config: &str) -> Result<KeepBoth, Fault> {
        Ok(KeepBoth)
    }

    fn resolve(&mut self, _: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault> {
        let newer = Verdict::newer(local, remote);
        if !local.is_object() || !remote.is_object() {
            return Ok(match (local.deleted, remote.deleted) {
                (true, false) => Verdict::KeepRemote,
                (false, true) => Verdict::KeepLocal,
                _ => newer,
            });
        }
        let (newer_version, older_version) = match newer {
            Verdict::KeepRemote => (remote, local),
            _ => (local, remote),
        };
        let winner = Document::read(newer_version)?;
        let lost = winner.lost_with(&Document::read(older_version)?);
        if lost == winner.lost {
            return Ok(newer);
        }
        winner.write(lost).map(Verdict::Merged).map_err(|error| refusal(newer_version, &error))
    }
}

nacre_plugin::export_resolver!(KeepBoth);

/// Bodies that lost, with the time of their last write.
type Lost = BTreeMap<String, u64>;

/// A body that lost, in its written form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    at_ms: u64,
    body: Box<RawValue>,
}

/// A version of a document.
struct Document {
    /// All members but [`CONFLICTS`].
    members: BTreeMap<String, Box<RawValue>>,
    /// These members as JSON, sorted by name, without spaces.
    body: String,
    /// Time of the write in milliseconds since the Unix epoch.
    at_ms: u64,
    lost: Lost,
}

impl Document {
    fn read(version: &Version) -> Result<Document, Fault> {
        // A CAS is a time in nanoseconds.
        Document::parse(&version.body, version.cas / 1_000_000)
            .map_err(|error| refusal(version, &error))
    }

    fn parse(text: &[u8], at_ms: u64) -> serde_json::Result<Document> {
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(text)?;
        let written: Vec<Written> = match members.remove(CONFLICTS) {
            Some(written) => serde_json::from_str(written.get())?,
            None => Vec::new(),
        };
        let mut lost = Lost::new();
        for Written { at_ms, body } in written {
            add(&mut lost, compact(body.get()), at_ms);
        }
        let body = compact(&serde_json::to_string(&members)?);
        Ok(Document { members, body, at_ms, lost })
    }

    /// Returns the bodies that lost against this one if it wins against `loser`.
    fn lost_with(&self, loser: &Document) -> Lost {
        let mut lost = self.lost.clone();
        for (body, at_ms) in &loser.lost {
            add(&mut lost, body.clone(), *at_ms);
        }
        add(&mut lost, loser.body.clone(), loser.at_ms);
        lost.remove(&self.body);
        let room = DOCUMENT_BYTES_MAX.saturating_sub(self.body.len());
        let mut left = BODIES_BYTES_MAX.min(room);
        let mut newest = newest_first(lost);
        newest.retain(|(_, body)| {
            let fits = body.len() <= left;
            left -= if fits { body.len() } else { 0 };
            fits
        });
        newest.truncate(BODIES_MAX);
        newest.into_iter().map(|(at_ms, body)| (body, at_ms)).collect()
    }

    /// Formats the document with the bodies that lost. Equal documents give equal bytes.
    fn write(mut self, lost: Lost) -> serde_json::Result<Vec<u8>> {
        let mut written = Vec::with_capacity(lost.len());
        for (at_ms, body) in newest_first(lost) {
            written.push(Written { at_ms, body: RawValue::from_string(body)? });
        }
        if !written.is_empty() {
            self.members.insert(CONFLICTS.to_owned(), to_raw_value(&written)?);
        }
        serde_json::to_vec(&self.members)
    }
}

/// Adds a body. Of equal ones, the last write counts.
fn add(lost: &mut Lost, body: String, at_ms: u64) {
    let known = lost.entry(body).or_default();
    *known = at_ms.max(*known);
}

fn newest_first(lost: Lost) -> Vec<(u64, String)> {
    let mut bodies: Vec<_> = lost.into_iter().map(|(body, at_ms)| (at_ms, body)).collect();
    bodies.sort_unstable_by(|one, other| other.cmp(one));
    bodies
}

/// Returns JSON without the whitespace between its tokens, so that a body is the same after a client has written it again.
fn compact(json: &str) -> String {
    let (mut is_string, mut is_escaped) = (false, false);
    let is_kept = |character: &char| {
        let is_kept = is_string || !character.is_ascii_whitespace();
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_string = !is_string,
            _ => {}
        }
        is_kept
    };
    json.chars().filter(is_kept).collect()
}

fn refusal(version: &Version, error: &serde_json::Error) -> Fault {
    let cas = version.cas;
    Fault::Reject(format!(
        "the version {cas}: {CONFLICTS} has elements with at_ms and body: {error}"
    ))
}

#[cfg(test)]
mod tests;
