//! A failed call, with all data that is needed to repeat it.
//!
//! A capsule is one JSON file: the call, the entries of the state that it saw, and the replies that it received
//! from outside. [`crate::replay`] repeats the call.

use crate::capability::{
    Counted, DocumentReply, Found, HttpError, HttpResponse, KvError, Looked, Mutated,
};
use crate::context::Context;
use crate::journal::Journal;
use crate::{Error, Setup, World};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_state::{Home, Timer};
use nacre_types::Cas;
use nacre_vbucket::{ConflictContext, Version, VersionHistory};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;

/// The version of the format.
const FORMAT: u32 = 1;
/// Maximum size of keys, values and arguments in one capsule, in bytes before encoding.
const BYTES_MAX: usize = 4 << 20;

/// Bytes, encoded as base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Bytes).map_err(de::Error::custom)
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capsule {
    /// The version of this format.
    pub format: u32,
    /// Name of the plugin.
    pub plugin: String,
    /// The version that the plugin reported.
    pub plugin_version: String,
    /// The hash of the component.
    pub content_hash: String,
    /// Name of the deployment.
    pub deployment: String,
    /// The configuration.
    pub config: String,
    /// The deployment's own keyspace.
    pub keyspace: String,
    /// The limits of the deployment.
    pub limits: CapsuleLimits,
    /// The grants of the deployment.
    pub grants: CapsuleGrants,
    /// The call.
    pub call: Call,
    /// The entries of the state that the call saw, from before the call.
    pub state: Vec<(Bytes, Bytes)>,
    /// The timers that the call saw.
    pub timers: Vec<DueTimer>,
    /// The replies from outside, in order.
    pub answers: Vec<Answer>,
    /// The reason for the failure.
    pub reason: String,
    /// True if nothing was omitted because of its size: only then can the call be repeated.
    pub is_whole: bool,
}

/// [`Limits`] as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsuleLimits {
    /// Size of linear memory.
    pub memory_bytes: usize,
    /// Deadline of a call.
    pub deadline_ms: u64,
    /// Size of the state.
    pub state_bytes: usize,
    /// Size of a response.
    pub result_bytes: usize,
    /// Size of a received HTTP response.
    pub http_bytes: usize,
}

/// The part of [`crate::Grants`] that affects replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsuleGrants {
    /// Keyspaces, each with true if it was writable.
    pub kv: Vec<(String, bool)>,
    /// Granted hosts.
    pub http_out: Vec<String>,
}

/// An export and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// `feed.on-batch`.
    OnBatch {
        /// The packed event for which the call failed.
        buffer: Bytes,
    },
    /// `projection.project`.
    Project {
        /// The packed events.
        buffer: Bytes,
    },
    /// `feed.rollback`.
    Rollback {
        /// The vBucket.
        vb: u16,
        /// The seqno.
        seqno: u64,
    },
    /// `timer-handler.on-timer`.
    OnTimer {
        /// The current time.
        now_us: u64,
        /// The timer for which the call failed.
        timers: Vec<DueTimer>,
    },
    /// `reader.handle`, followed by `reader.more` until the failure.
    Handle {
        /// The request.
        request: CapsuleRequest,
    },
    /// `scalar.call`.
    Function {
        /// The function.
        name: String,
        /// The arguments as a JSON array.
        arguments: String,
    },
    /// `resolution.resolve` or `resolution-with-history.resolve`.
    Resolve {
        /// The key of the document.
        key: Bytes,
        /// The local version.
        local: CapsuleVersion,
        /// The incoming version.
        remote: CapsuleVersion,
        /// The other facts about the conflict.
        #[serde(default)]
        context: Box<CapsuleContext>,
    },
}

/// A timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DueTimer {
    /// The vBucket that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vb: Option<u16>,
    /// The name.
    pub name: String,
    /// Time at which it is due, in microseconds since the Unix epoch.
    pub due_us: u64,
    /// The payload.
    pub payload: Bytes,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of reader.request")]
pub struct CapsuleRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub now_us: u64,
}

/// A version of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of resolution.version")]
pub struct CapsuleVersion {
    pub body: Bytes,
    pub is_deleted: bool,
    pub cas: u64,
    pub rev: u64,
    pub flags: u32,
    pub expiry: u32,
    pub is_json: bool,
}

impl From<&Version> for CapsuleVersion {
    fn from(version: &Version) -> CapsuleVersion {
        CapsuleVersion {
            body: Bytes(version.body.clone()),
            is_deleted: version.is_deleted,
            cas: version.cas.0,
            rev: version.rev,
            flags: version.flags,
            expiry: version.expiry,
            is_json: version.is_json,
        }
    }
}

impl From<&CapsuleVersion> for Version {
    fn from(version: &CapsuleVersion) -> Version {
        Version {
            body: version.body.0.clone(),
            is_deleted: version.is_deleted,
            cas: Cas(version.cas),
            rev: version.rev,
            flags: version.flags,
            expiry: version.expiry,
            is_json: version.is_json,
        }
    }
}

/// The facts about a conflict besides the versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of resolution-with-history.conflict")]
pub struct CapsuleContext {
    pub scope: String,
    pub collection: String,
    pub here: String,
    pub local_history: Option<CapsuleHistory>,
    pub remote_history: Option<CapsuleHistory>,
    pub base: Option<CapsuleVersion>,
}

/// The versions that went into a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of resolution-with-history.history")]
pub struct CapsuleHistory {
    pub source: String,
    pub cas: u64,
    pub merged: Vec<(String, u64)>,
    pub previous: Vec<(String, u64)>,
}

impl From<&VersionHistory> for CapsuleHistory {
    fn from(history: &VersionHistory) -> CapsuleHistory {
        let listed = |versions: &[(String, Cas)]| {
            versions.iter().map(|(source, cas)| (source.clone(), cas.0)).collect()
        };
        CapsuleHistory {
            source: history.source.clone(),
            cas: history.cas.0,
            merged: listed(&history.merged),
            previous: listed(&history.previous),
        }
    }
}

impl From<&CapsuleHistory> for VersionHistory {
    fn from(history: &CapsuleHistory) -> VersionHistory {
        let listed = |versions: &[(String, u64)]| {
            versions.iter().map(|(source, cas)| (source.clone(), Cas(*cas))).collect()
        };
        VersionHistory {
            source: history.source.clone(),
            cas: Cas(history.cas),
            merged: listed(&history.merged),
            previous: listed(&history.previous),
        }
    }
}

impl From<&ConflictContext> for CapsuleContext {
    fn from(context: &ConflictContext) -> CapsuleContext {
        CapsuleContext {
            scope: context.scope.clone(),
            collection: context.collection.clone(),
            here: context.here.clone(),
            local_history: context.local.as_ref().map(Into::into),
            remote_history: context.remote.as_ref().map(Into::into),
            base: context.base.as_ref().map(Into::into),
        }
    }
}

impl From<&CapsuleContext> for ConflictContext {
    fn from(context: &CapsuleContext) -> ConflictContext {
        ConflictContext {
            scope: context.scope.clone(),
            collection: context.collection.clone(),
            here: context.here.clone(),
            local: context.local_history.as_ref().map(Into::into),
            remote: context.remote_history.as_ref().map(Into::into),
            base: context.base.as_ref().map(Into::into),
        }
    }
}

/// A reply from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the answers of kv and http-out")]
pub enum Answer {
    Found { body: Bytes, cas: u64, flags: u32, expiry: u32, is_json: bool },
    Stored { cas: u64 },
    Counted { value: u64, cas: u64 },
    Looked { cas: u64, results: Vec<Result<Bytes, String>> },
    LookedAny { cas: u64, deleted: bool, results: Vec<Result<Bytes, String>> },
    Mutated { cas: u64, results: Vec<(u8, Bytes)> },
    KvError { kind: String, message: String },
    Response { status: u16, headers: Vec<(String, String)>, body: Bytes },
    HttpError { kind: String, message: String },
}

impl Answer {
    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Answer>()
            + match self {
                Answer::Found { body, .. } => body.0.len(),
                Answer::Response { headers, body, .. } => {
                    let header = |(name, value): &(String, String)| name.len() + value.len();
                    body.0.len() + headers.iter().map(header).sum::<usize>()
                }
                Answer::KvError { message, .. } | Answer::HttpError { message, .. } => {
                    message.len()
                }
                Answer::Looked { results, .. } | Answer::LookedAny { results, .. } => {
                    let result = |result: &Result<Bytes, String>| match result {
                        Ok(found) => found.0.len(),
                        Err(reason) => reason.len(),
                    };
                    results.iter().map(result).sum()
                }
                Answer::Mutated { results, .. } => {
                    results.iter().map(|(_, value)| value.0.len()).sum()
                }
                Answer::Stored { .. } | Answer::Counted { .. } => 0,
            }
    }
}

impl Call {
    fn bytes(&self) -> usize {
        match self {
            Call::OnBatch { buffer } | Call::Project { buffer } => buffer.0.len(),
            Call::Rollback { .. } => 0,
            Call::OnTimer { timers, .. } => {
                timers.iter().map(|timer| timer.name.len() + timer.payload.0.len()).sum()
            }
            Call::Handle { request } => request.body.0.len() + request.query.len(),
            Call::Function { name, arguments } => name.len() + arguments.len(),
            Call::Resolve { key, local, remote, context } => {
                let base = context.base.as_ref().map_or(0, |base| base.body.0.len());
                key.0.len() + local.body.0.len() + remote.body.0.len() + base
            }
        }
    }

    /// Returns the world of plugins that have this export.
    pub(crate) fn world(&self) -> World {
        match self {
            Call::OnBatch { .. }
            | Call::Rollback { .. }
            | Call::OnTimer { .. }
            | Call::Handle { .. } => World::Service,
            Call::Project { .. } => World::IndexType,
            Call::Function { .. } => World::Functions,
            Call::Resolve { .. } => World::Resolver,
        }
    }

    /// Returns the call without its large arguments.
    fn without_bytes(self) -> Call {
        match self {
            Call::OnBatch { .. } => Call::OnBatch { buffer: Bytes::default() },
            Call::Project { .. } => Call::Project { buffer: Bytes::default() },
            Call::OnTimer { now_us, .. } => Call::OnTimer { now_us, timers: Vec::new() },
            Call::Handle { request } => Call::Handle {
                request: CapsuleRequest { body: Bytes::default(), query: String::new(), ..request },
            },
            Call::Function { name, .. } => {
                // No function has a name of this length.
                let name = if name.len() > BYTES_MAX { String::new() } else { name };
                Call::Function { name, arguments: String::new() }
            }
            Call::Resolve { key, local, remote, mut context } => {
                let without = |version| CapsuleVersion { body: Bytes::default(), ..version };
                context.base = context.base.take().map(without);
                Call::Resolve { key, local: without(local), remote: without(remote), context }
            }
            call @ Call::Rollback { .. } => call,
        }
    }
}

impl Capsule {
    /// Returns the capsule of a call that ended with `error`; `None` if the call itself was not at fault.
    pub(crate) fn of(
        context: &Context,
        call: Call,
        journal: &Journal,
        error: &Error,
    ) -> Option<Capsule> {
        if !matches!(error, Error::Deadline { .. } | Error::Memory { .. } | Error::Trap { .. }) {
            return None;
        }
        let Setup { name, config, keyspace, limits, grants, .. } = &context.setup;
        let seen = journal.seen();
        let is_readable = seen.is_some();
        let seen = seen.unwrap_or_default();
        let answers = journal.answers();
        let call_bytes = call.bytes();
        let bytes = call_bytes
            + seen.bytes()
            + answers.iter().map(Answer::bytes).sum::<usize>()
            + config.len();
        let is_whole = bytes <= BYTES_MAX && !journal.is_cut() && is_readable;
        let mut capsule = Capsule {
            format: FORMAT,
            plugin: context.plugin.name().to_owned(),
            plugin_version: context.plugin.version().to_owned(),
            content_hash: context.plugin.content_hash().to_owned(),
            deployment: name.clone(),
            config: config.clone(),
            keyspace: keyspace.clone(),
            limits: CapsuleLimits {
                memory_bytes: limits.memory_bytes,
                deadline_ms: u64::try_from(limits.deadline.as_millis()).unwrap_or(u64::MAX),
                state_bytes: limits.state_bytes,
                result_bytes: limits.result_bytes,
                http_bytes: limits.http_bytes,
            },
            grants: CapsuleGrants {
                kv: grants.kv.iter().map(|kv| (kv.keyspace.clone(), kv.write)).collect(),
                http_out: grants.http_out.clone(),
            },
            call,
            state: Vec::new(),
            timers: Vec::new(),
            answers: Vec::new(),
            reason: error.reason(),
            is_whole,
        };
        if is_whole {
            let entry = |(key, value): (&[u8], &[u8])| (Bytes(key.to_vec()), Bytes(value.to_vec()));
            capsule.state = seen.space.iter().map(entry).collect();
            let timers = seen.timers.due(u64::MAX, usize::MAX).into_iter();
            let timer =
                |(_, name, timer): (_, Arc<str>, Arc<Timer>)| DueTimer::new(None, &name, &timer);
            capsule.timers = timers.map(timer).collect();
            capsule.answers = answers.to_vec();
        } else {
            // The most informative parts are kept, unless they were what was too large.
            if call_bytes > BYTES_MAX {
                capsule.call = capsule.call.without_bytes();
            }
            if capsule.config.len() > BYTES_MAX {
                capsule.config.clear();
            }
        }
        Some(capsule)
    }

    /// Returns the capsule as the text of a file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("it has nothing that JSON cannot say")
    }

    /// Parses a capsule.
    ///
    /// # Errors
    /// The error in the text.
    pub fn from_json(text: &str) -> Result<Capsule, String> {
        let capsule: Capsule = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match capsule.format {
            FORMAT => Ok(capsule),
            other => Err(format!("a capsule of format {other}; this is {FORMAT}")),
        }
    }
}

impl DueTimer {
    pub(crate) fn new(home: Home, name: &str, timer: &Timer) -> DueTimer {
        DueTimer {
            vb: home.map(|vbid| vbid.0),
            name: name.to_owned(),
            due_us: timer.due_us,
            payload: Bytes(timer.payload.clone()),
        }
    }
}

impl From<KvError> for Answer {
    fn from(error: KvError) -> Answer {
        let kind = match &error {
            KvError::NotFound => "not-found",
            KvError::Exists => "exists",
            KvError::CasMismatch => "cas-mismatch",
            KvError::TooLarge => "too-large",
            KvError::Locked => "locked",
            KvError::Temporary(_) | KvError::NotMyVbucket => "temporary",
            KvError::Denied(_) => "denied",
            KvError::Invalid(_) => "invalid",
            KvError::Path(_) => "path",
        };
        Answer::KvError { kind: kind.into(), message: error.to_string() }
    }
}

impl From<Result<DocumentReply, KvError>> for Answer {
    fn from(answer: Result<DocumentReply, KvError>) -> Answer {
        match answer {
            Ok(DocumentReply::Found(Found { body, cas, flags, expiry, is_json })) => {
                Answer::Found { body: Bytes(body), cas: cas.0, flags, expiry, is_json }
            }
            Ok(DocumentReply::Stored(cas)) => Answer::Stored { cas: cas.0 },
            Ok(DocumentReply::Counted(Counted { value, cas })) => {
                Answer::Counted { value, cas: cas.0 }
            }
            Ok(DocumentReply::Looked(Looked { cas, results })) => Answer::Looked {
                cas: cas.0,
                results: results.into_iter().map(|result| result.map(Bytes)).collect(),
            },
            Ok(DocumentReply::LookedAny(Looked { cas, results }, deleted)) => Answer::LookedAny {
                cas: cas.0,
                deleted,
                results: results.into_iter().map(|result| result.map(Bytes)).collect(),
            },
            Ok(DocumentReply::Mutated(Mutated { cas, results })) => Answer::Mutated {
                cas: cas.0,
                results: results.into_iter().map(|(index, value)| (index, Bytes(value))).collect(),
            },
            Err(error) => error.into(),
        }
    }
}

impl From<Result<HttpResponse, HttpError>> for Answer {
    fn from(answer: Result<HttpResponse, HttpError>) -> Answer {
        match answer {
            Ok(HttpResponse { status, headers, body }) => {
                Answer::Response { status, headers, body: Bytes(body) }
            }
            Err(error) => {
                let kind = match &error {
                    HttpError::Denied(_) => "denied",
                    HttpError::Timeout => "timeout",
                    HttpError::TooLarge => "too-large",
                    HttpError::Failed(_) => "failed",
                };
                Answer::HttpError { kind: kind.into(), message: error.to_string() }
            }
        }
    }
}
