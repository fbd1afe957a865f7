//! What a function is, as the node tells it.

use nacre_js::{Error, Position};
use nacre_sql::inline::as_calls;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of the function; messages call its source so.
    pub name: String,
    /// Its identity, which marks what it writes to its own source.
    pub id: String,
    /// The code.
    pub source: String,
    /// Modules that the code imports, by names such as `./lib.js`.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    /// Lines before and behind the code.
    #[serde(default)]
    pub headers: Vec<String>,
    #[serde(default)]
    pub footers: Vec<String>,
    /// Of which documents it hears: a condition of SQL++.
    #[serde(default)]
    pub filter: Option<String>,
    /// What it listens to; `*` for all scopes or collections.
    pub keyspace: Keyspace,
    /// `scope.collection` by number; at least of all that it listens to.
    pub collections: BTreeMap<u32, String>,
    #[serde(default)]
    pub buckets: Vec<BucketBinding>,
    #[serde(default)]
    pub urls: Vec<UrlBinding>,
    #[serde(default)]
    pub constants: Vec<ConstantBinding>,
    /// The largest context of a timer, in bytes of JSON.
    #[serde(default = "timer_context_bytes")]
    pub timer_context_bytes: usize,
    /// How long a handler may take, in milliseconds.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u32,
    /// The same for `OnDeploy`, if it may take less.
    #[serde(default = "timeout_ms")]
    pub launch_timeout_ms: u32,
    /// What queries see that do not say it: `none` or `request`.
    #[serde(default)]
    pub query_consistency: Consistency,
    /// Tells one deployment or resumption from the next.
    #[serde(default)]
    pub launch: Launch,
}

fn timer_context_bytes() -> usize {
    1024
}

fn timeout_ms() -> u32 {
    60_000
}

/// What queries see.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// What indexes have.
    #[default]
    None,
    /// All that was written before.
    Request,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Keyspace {
    pub bucket: String,
    pub scope: String,
    pub collection: String,
}

/// Documents that the code reaches by a name.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BucketBinding {
    pub alias: String,
    /// Its bucket, when that is another than the function listens to.
    #[serde(default)]
    pub bucket: Option<String>,
    /// Scope and collection; `*` for all.
    pub scope: String,
    pub collection: String,
    pub writes: bool,
}

/// A server that the code reaches by a name.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UrlBinding {
    pub alias: String,
    /// `https://host/path`.
    pub url: String,
    /// The header `authorization`; empty for none.
    #[serde(default)]
    pub authorization: String,
    /// The name and password of a server that wants to see a digest of them.
    #[serde(default)]
    pub digest: Option<Login>,
    /// Whether the cookies of the server are sent back to it.
    #[serde(default)]
    pub cookies: bool,
}

/// A name and a password.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub user: String,
    pub password: String,
}

/// A constant: JavaScript text by a name.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantBinding {
    pub alias: String,
    pub literal: String,
}

/// Why the code runs now.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Grows with each deployment and resumption.
    pub number: u64,
    /// `deploy` or `resume`.
    pub reason: String,
    /// How long it was paused, in milliseconds.
    pub delay_ms: u64,
}

impl Config {
    /// What `api.js` is to know.
    pub fn for_api(&self) -> String {
        json!({
            "id": self.id,
            "keyspace": self.keyspace,
            "collections": self.collections,
            "buckets": self.buckets,
            "urls": self.urls,
            "constants": self.constants,
            "timerContextBytes": self.timer_context_bytes,
            "queryConsistency": self.query_consistency,
        })
        .to_string()
    }

    /// What stack traces call the source.
    pub fn file(&self) -> String {
        format!("{}.js", self.name)
    }

    /// The code with what stands before and behind it.
    fn text(&self) -> String {
        let lines = self.headers.iter().chain([&self.source]).chain(&self.footers);
        lines.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// The same with the statements of SQL++ in it as calls.
    pub fn script(&self) -> String {
        as_calls(&self.text()).0.into_owned()
    }

    /// Whether the code has a word in it that only modules know.
    pub fn is_module(&self) -> bool {
        ["export", "import", "await"].iter().any(|word| self.source.contains(word))
    }

    /// What an error says, with its place in the code as its author has it.
    pub fn said(&self, error: &Error) -> String {
        let before: usize = self.headers.iter().map(|header| header.lines().count().max(1)).sum();
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        let moved = |position: Option<Position>| {
            position.map(|Position { line, column }| Position {
                line: line.saturating_sub(before).max(1),
                column,
            })
        };
        match error.clone() {
            Error::Syntax { message, position } => {
                let line = position.map_or(1, |position| position.line);
                let (_, mistakes) = as_calls(&self.text());
                let near = mistakes.iter().find(|mistake| mistake.lines.contains(&line));
                let hint = near.map(|mistake| format!(": as SQL++, {}", mistake.message));
                let message = message + &hint.unwrap_or_default();
                Error::Syntax { message, position: moved(position) }.to_string()
            }
            Error::Thrown { message, position, code } => {
                Error::Thrown { message, position: moved(position), code }.to_string()
            }
            other => other.to_string(),
        }
    }
}
