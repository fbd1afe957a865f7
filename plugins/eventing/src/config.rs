//! The configuration of a function, which the node passes to the plugin.

use nacre_js::{Error, Position};
use nacre_sql::inline::as_calls;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of the function. Messages use it as the name of the source.
    pub name: String,
    /// The ID of the function, which marks its writes to its own source.
    pub id: String,
    /// The code.
    pub source: String,
    /// Modules that the code imports, by names such as `./lib.js`.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    /// Lines before and after the code.
    #[serde(default)]
    pub headers: Vec<String>,
    #[serde(default)]
    pub footers: Vec<String>,
    /// A SQL++ condition that selects the documents for which the handlers run.
    #[serde(default)]
    pub filter: Option<String>,
    /// The source of documents; `*` means all scopes or collections.
    pub keyspace: Keyspace,
    /// `scope.collection` by ID, at least for all collections of the source.
    pub collections: BTreeMap<u32, String>,
    #[serde(default)]
    pub buckets: Vec<BucketBinding>,
    #[serde(default)]
    pub urls: Vec<UrlBinding>,
    #[serde(default)]
    pub constants: Vec<ConstantBinding>,
    /// Maximum size of a timer's context, in bytes of JSON.
    #[serde(default = "timer_context_bytes")]
    pub timer_context_bytes: usize,
    /// Timeout of a handler, in milliseconds.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u32,
    /// Timeout of `OnDeploy`, if it is shorter.
    #[serde(default = "timeout_ms")]
    pub launch_timeout_ms: u32,
    /// Default consistency of queries: `none` or `request`.
    #[serde(default)]
    pub query_consistency: Consistency,
    /// True if an alias throws for a missing document, as before Couchbase 6.5.
    #[serde(default)]
    pub missing_throws: bool,
    /// Distinguishes this deployment or resumption from the next.
    #[serde(default)]
    pub launch: Launch,
}

fn timer_context_bytes() -> usize {
    1024
}

fn timeout_ms() -> u32 {
    60_000
}

/// The consistency of queries.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// Queries see what the indexes contain.
    #[default]
    None,
    /// Queries see all earlier writes.
    Request,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Keyspace {
    pub bucket: String,
    pub scope: String,
    pub collection: String,
}

/// A name by which the code accesses documents.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BucketBinding {
    pub alias: String,
    /// The bucket, if it differs from the bucket of the source.
    #[serde(default)]
    pub bucket: Option<String>,
    /// Scope and collection; `*` means all.
    pub scope: String,
    pub collection: String,
    pub writes: bool,
}

/// A name by which the code accesses a server.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UrlBinding {
    pub alias: String,
    /// `https://host/path`.
    pub url: String,
    /// Value of the header `authorization`; empty for none.
    #[serde(default)]
    pub authorization: String,
    /// Name and password for digest authentication.
    #[serde(default)]
    pub digest: Option<Login>,
    /// True if the server's cookies are sent back to it.
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

/// A constant: a name, and its value as JavaScript text.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantBinding {
    pub alias: String,
    pub literal: String,
}

/// The reason why the code runs now.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Increases with each deployment and resumption.
    pub number: u64,
    /// `deploy` or `resume`.
    pub reason: String,
    /// Duration of the pause, in milliseconds.
    pub delay_ms: u64,
}

impl Config {
    /// Returns the parts of the configuration that `api.js` needs.
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
            "missingThrows": self.missing_throws,
        })
        .to_string()
    }

    /// Returns the name of the source in stack traces.
    pub fn file(&self) -> String {
        format!("{}.js", self.name)
    }

    /// Returns the code with its headers and footers.
    fn text(&self) -> String {
        let lines = self.headers.iter().chain([&self.source]).chain(&self.footers);
        lines.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Returns the same text with its SQL++ statements converted into calls.
    pub fn script(&self) -> String {
        as_calls(&self.text()).0.into_owned()
    }

    /// Returns true if the code contains a word that only modules may use.
    pub fn is_module(&self) -> bool {
        ["export", "import", "await"].iter().any(|word| self.source.contains(word))
    }

    /// Formats an error with its position in the code as the author has written it.
    pub fn describe(&self, error: &Error) -> String {
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
