//! Scripts for plugins without a state: calls and conflicts with their expected results.
//!
//! ```json
//! {"config": {}, "steps": [
//!     {"call": "slug", "arguments": ["Shells & Pearls"], "result": "shells-pearls"},
//!     {"call": "slug", "arguments": [1], "error": "slug: invalid type: integer `1`, expected a string"}
//! ]}
//! {"steps": [
//!     {"local": {"cas": 1, "body": {"a": 1}}, "remote": {"cas": 2, "body": {"b": 2}}, "merged": {"a": 1, "b": 2}},
//!     {"local": {"cas": 1, "body": 1}, "remote": {"cas": 2, "deleted": true}, "verdict": "keep-remote"},
//!     {"base": {"cas": 1, "body": {"a": 1, "b": 1}}, "local": {"cas": 2, "body": {"a": 1}, "source": "here"},
//!      "remote": {"cas": 3, "body": {"a": 1, "b": 1, "c": 1}, "source": "there"}, "merged": {"a": 1, "c": 1}}
//! ]}
//! ```
//!
//! A conflict is decided from both sides, as two clusters would decide it, and both must have the same result.

use crate::{Error, Functions, Plugin, Resolver, Setup, World};
use nacre_types::Cas;
use nacre_vbucket::{ConflictContext, Verdict, Version, VersionHistory};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PureScript {
    /// A sentence about the script's purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The configuration of the deployment.
    #[serde(default = "no_config")]
    pub config: Value,
    /// The calls, with their expected results.
    pub steps: Vec<PureStep>,
}

fn no_config() -> Value {
    json!({})
}

/// A call of a function, or a conflict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PureStep {
    /// The function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Value>,
    /// The expected result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The local version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Side>,
    /// The incoming version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Side>,
    /// The common ancestor of both versions, for resolvers that see histories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Side>,
    /// The expected verdict: `keep-local` or `keep-remote`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The expected body merged from both versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Value>,
    /// The expected error, without the name of the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A version of a document, reduced to the relevant parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Side {
    /// The body: JSON, or a text that is not JSON.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// True if it is a tombstone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Time of the write, in nanoseconds since the Unix epoch.
    pub cas: u64,
    /// The revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub rev: u64,
    /// Format of the body, set by clients.
    #[serde(skip_serializing_if = "is_zero")]
    pub flags: u32,
    /// Expiry in seconds since the Unix epoch; 0 for never.
    #[serde(skip_serializing_if = "is_zero")]
    pub expiry: u32,
    /// The source that wrote the version, for resolvers that see histories; empty for a version without a history.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Side {
    fn version(&self) -> Version {
        let is_text = self.body.is_string();
        let body = match &self.body {
            Value::String(text) => text.clone().into_bytes(),
            body if self.deleted && body.is_null() => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        Version {
            body,
            is_deleted: self.deleted,
            cas: Cas(self.cas),
            rev: self.rev,
            flags: self.flags,
            expiry: self.expiry,
            is_json: !self.deleted && !is_text,
        }
    }

    /// Returns the history of the version, which `base` precedes.
    fn history(&self, base: Option<&Side>) -> Option<VersionHistory> {
        let base = base.filter(|base| !base.source.is_empty() && base.source != self.source);
        (!self.source.is_empty()).then(|| VersionHistory {
            source: self.source.clone(),
            cas: Cas(self.cas),
            merged: Vec::new(),
            previous: base.map(|base| (base.source.clone(), Cas(base.cas))).into_iter().collect(),
        })
    }
}

impl PureStep {
    /// Returns the facts about the conflict as the side with `local` sees them.
    fn context(&self, local: &Side, remote: &Side) -> ConflictContext {
        let base = self.base.as_ref();
        ConflictContext {
            scope: "_default".into(),
            collection: "_default".into(),
            here: local.source.clone(),
            local: local.history(base),
            remote: remote.history(base),
            base: base.map(Side::version),
        }
    }

    /// Returns the members that differ from `actual`, each with both values. An unexpected error counts as a
    /// difference.
    pub fn differences(&self, actual: &PureStep) -> Vec<(&'static str, Value, Value)> {
        let members = [
            ("result", json!(self.result), json!(actual.result)),
            ("verdict", json!(self.verdict), json!(actual.verdict)),
            ("merged", json!(self.merged), json!(actual.merged)),
        ];
        let wrong = ("error", json!(self.error), json!(actual.error));
        let differ =
            |(_, expected, actual): &(_, Value, Value)| !expected.is_null() && expected != actual;
        let wrong = Some(wrong).filter(|(_, expected, actual)| expected != actual);
        members.into_iter().filter(differ).chain(wrong).collect()
    }
}

enum Stage {
    Functions(Functions),
    Resolver(Resolver),
}

/// Plays a script. Returns it with the actual results instead of the expected ones.
///
/// # Errors
/// The errors of [`Functions::open`] and [`Resolver::open`].
pub fn play_pure(plugin: &Plugin, setup: Setup, script: &PureScript) -> Result<PureScript, Error> {
    let prefix = format!("{}: ", setup.name);
    let stage = match plugin.world() {
        World::Resolver => Stage::Resolver(Resolver::open(plugin.clone(), setup)?),
        _ => Stage::Functions(Functions::open(plugin.clone(), setup)?),
    };
    let play = |step: &PureStep| {
        let mut actual =
            PureStep { result: None, verdict: None, merged: None, error: None, ..step.clone() };
        if let Err(reason) = stage.play(step, &mut actual) {
            actual.error = Some(reason.strip_prefix(&prefix).unwrap_or(&reason).to_owned());
        }
        actual
    };
    Ok(PureScript { steps: script.steps.iter().map(play).collect(), ..script.clone() })
}

impl Stage {
    fn play(&self, step: &PureStep, actual: &mut PureStep) -> Result<(), String> {
        match (self, &step.call, &step.local, &step.remote) {
            (Stage::Functions(functions), Some(name), None, None) => {
                let arguments = json!(step.arguments).to_string();
                let result = functions.call(name, &arguments).map_err(|error| error.to_string())?;
                let result = serde_json::from_str(&result);
                actual.result =
                    Some(result.map_err(|error| format!("its result is not JSON: {error}"))?);
                Ok(())
            }
            (Stage::Resolver(resolver), None, Some(local), Some(remote)) => {
                let context = step.context(local, remote);
                let swapped = context.swapped(&remote.source);
                let (local, remote) = (&local.version(), &remote.version());
                let verdict = decide(resolver, local, remote, &context)?;
                let there = decide(resolver, remote, local, &swapped)?;
                match &verdict {
                    Verdict::KeepLocal => actual.verdict = Some("keep-local".into()),
                    Verdict::KeepRemote => actual.verdict = Some("keep-remote".into()),
                    Verdict::Merged(body) => actual.merged = Some(shown(body)),
                }
                let (here, there) = (kept(&verdict, local, remote), kept(&there, remote, local));
                match here == there {
                    true => Ok(()),
                    false => Err(format!(
                        "the other side keeps {}, and this one {}",
                        shown(there.0),
                        shown(here.0)
                    )),
                }
            }
            (Stage::Functions(_), ..) => Err("a step has `call`, and `arguments`".into()),
            (Stage::Resolver(_), ..) => Err("a step has `local` and `remote`".into()),
        }
    }
}

fn decide(
    resolver: &Resolver,
    local: &Version,
    remote: &Version,
    context: &ConflictContext,
) -> Result<Verdict, String> {
    resolver.resolve(b"document", local, remote, context).map_err(|error| error.to_string())
}

/// Returns the version after a decision: its body, and true if it is a tombstone.
fn kept<'a>(verdict: &'a Verdict, local: &'a Version, remote: &'a Version) -> (&'a [u8], bool) {
    match verdict {
        Verdict::KeepLocal => (&local.body, local.is_deleted),
        Verdict::KeepRemote => (&remote.body, remote.is_deleted),
        Verdict::Merged(body) => (body, false),
    }
}

fn shown(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
}
