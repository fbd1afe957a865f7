//! Trials of a function: a dry run, which shows the effects without making them, and a replay, which processes part of
//! the history again.

use super::error::Kind;
use super::form::{self, Written};
use super::{FunctionAccess, find};
use nacre_cluster::{Function, FunctionId, FunctionState};
use nacre_http::body::{Reply, blocking, ok};
use nacre_plugins_service::functions::{self, deployment_name};
use nacre_plugins_service::{
    DOCUMENTS_MAX, Deployment, NodePlugins, Range, Replay, TrialDocuments, TrialResult, rehearse,
};
use nacre_rest::Call;
use nacre_sandbox::{Effect, Found, Rehearsed};
use nacre_state::Timer;
use nacre_types::{Document, Kind as Change, Seqno, Vbid};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Default number of changes in a trial.
const LAST: usize = 10;

/// Options of a dry run.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DryRunOptions {
    /// A definition to use instead of the stored one.
    #[serde(default)]
    function: Option<Written>,
    #[serde(default)]
    documents: Option<Vec<String>>,
    /// `scope.collection` of the documents.
    #[serde(default)]
    collection: Option<String>,
    #[serde(default)]
    vbucket: Option<u16>,
    #[serde(default)]
    from: u64,
    #[serde(default)]
    to: Option<u64>,
    #[serde(default)]
    last: Option<usize>,
}

impl DryRunOptions {
    fn chosen(&self) -> Result<TrialDocuments, Reply> {
        let wrong = |reason: &str| Err(Kind::Unmarshal.reply(reason));
        match (&self.documents, self.vbucket, self.last) {
            (Some(ids), None, None) if ids.len() > DOCUMENTS_MAX => {
                wrong(&format!("a dry run takes at most {DOCUMENTS_MAX} documents"))
            }
            (Some(ids), None, None) => {
                Ok(TrialDocuments::Ids(ids.clone(), self.collection.clone()))
            }
            (None, Some(vbid), None) => {
                let after = Seqno(self.from.saturating_sub(1));
                let up_to = Seqno(self.to.unwrap_or(u64::MAX));
                Ok(TrialDocuments::Range(Range { vbid: Vbid(vbid), after, up_to }))
            }
            (None, None, last) => Ok(TrialDocuments::Last(last.unwrap_or(LAST).min(DOCUMENTS_MAX))),
            _ => wrong("a dry run is about one of documents, vbucket and last"),
        }
    }
}

/// Runs a function on documents, and returns the effects that it would have.
pub(super) async fn dry_run(call: &Call, id: &FunctionId) -> Result<Reply, Reply> {
    let wrong = |error: serde_json::Error| Kind::Unmarshal.reply(&format!("the body: {error}"));
    let asked: DryRunOptions = match call.body.is_empty() {
        true => DryRunOptions::default(),
        false => serde_json::from_slice(&call.body).map_err(wrong)?,
    };
    let chosen = asked.chosen()?;
    let cluster = call.node.cluster();
    let mut function = match asked.function {
        None => find(&cluster, id)?.clone(),
        Some(written) => {
            let known = cluster.functions.get(id).ok();
            let definition = form::definition(written, known.map(|known| &known.definition))?;
            match known {
                Some(known) => Function { definition, ..known.clone() },
                None => Function::new(definition),
            }
        }
    };
    call.must_reach(&function.definition)?;
    // The dry run has the privileges of the user who asks.
    function.definition.owner.clone_from(&call.user);
    let (node, name) = (Arc::clone(&call.node), id.clone());
    let tried = blocking("the dry run", move || {
        functions::prepare(&node, &mut function.definition)
            .and_then(|()| functions::check(&node, &name, &function.definition))
            .map_err(|reason| Kind::Compilation.reply(&reason))?;
        rehearse(&node, &name, &function, &chosen)
            .map_err(|reason| Kind::InvalidConfig.reply(&reason))
    });
    let (tried, is_complete) = tried.await??;
    let documents: Vec<_> = tried.iter().map(json_of).collect();
    Ok(ok(&json!({"documents": documents, "complete": is_complete})))
}

fn json_of(tried: &TrialResult) -> Value {
    let (vbid, document, rehearsed) = match &tried.outcome {
        Ok(outcome) => outcome,
        Err(reason) => return json!({"id": tried.id, "outcome": "missing", "error": reason}),
    };
    let mut described = json!({
        "id": tried.id,
        "vb": vbid.0,
        "seq": document.meta.seqno.0,
        "outcome": outcome(document, rehearsed),
        "steps": rehearsed.counted.get("steps").copied().unwrap_or_default() as u64,
        "log": rehearsed.log.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(),
    });
    if let Some(error) = &rehearsed.error {
        described["error"] = error.as_str().into();
    }
    for (name, effects) in by_kind(&rehearsed.effects) {
        described[name] = effects;
    }
    described
}

/// Returns the name of the handler that ran, or the reason why none ran.
fn outcome(document: &Document, rehearsed: &Rehearsed) -> &'static str {
    let counted = |name: &str| rehearsed.counted.contains_key(name);
    let handler = if document.meta.kind == Change::Alive { "OnUpdate" } else { "OnDelete" };
    let was_called =
        ["on_update_success", "on_update_failure", "on_delete_success", "on_delete_failure"]
            .into_iter()
            .any(counted);
    match () {
        () if counted("filtered_count") => "filtered",
        () if counted("suppressed_count") => "suppressed",
        () if was_called || rehearsed.error.is_some() => handler,
        () => "ignored",
    }
}

fn by_kind(effects: &[Effect]) -> Map<String, Value> {
    let mut kinds = Map::new();
    for effect in effects {
        let (kind, effect) = match effect {
            Effect::Document { keyspace, key, operation, after } => {
                ("writes", written(keyspace, &String::from_utf8_lossy(key), operation, after))
            }
            Effect::Row { keyspace, mutation } => {
                let path =
                    format!("{}.{}.{}", keyspace.bucket, keyspace.scope, keyspace.collection);
                let body = serde_json::from_slice::<Value>(&mutation.body).ok();
                let operation = format!("{:?}", mutation.action).to_lowercase();
                let effect = json!({
                    "keyspace": path, "id": mutation.id, "operation": operation, "doc": body,
                });
                ("writes", effect)
            }
            Effect::Request(request) => {
                let scheme = if request.is_secure { "https" } else { "http" };
                let url = format!("{scheme}://{}:{}{}", request.host, request.port, request.target);
                // The credentials belong to the server that the function would ask.
                let headers = request.headers.iter();
                let headers =
                    headers.filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
                let headers: Map<String, Value> =
                    headers.map(|(name, value)| (name.clone(), value.as_str().into())).collect();
                let body = String::from_utf8_lossy(&request.body);
                let effect = json!({
                    "method": request.method, "url": url, "headers": headers, "body": body,
                });
                ("requests", effect)
            }
            Effect::Timer { name, set } => ("timers", timer(name, set.as_ref())),
        };
        let all = kinds.entry(kind).or_insert_with(|| json!([]));
        all.as_array_mut().expect("it was made as one").push(effect);
    }
    kinds
}

/// Describes a write, including the document after it unless the write deletes it.
fn written(keyspace: &str, id: &str, operation: &str, after: &Option<Found>) -> Value {
    let mut write = json!({"keyspace": keyspace, "id": id, "operation": operation});
    if let Some(found) = after {
        let json = serde_json::from_slice(&found.body).ok().filter(|_| found.is_json);
        write["doc"] = json.unwrap_or_else(|| String::from_utf8_lossy(&found.body).into());
        if found.expiry > 0 {
            write["expiry"] = found.expiry.into();
        }
    }
    write
}

/// Describes a timer, without a time if the function cancels it. The name of a timer is `callback:reference`.
fn timer(name: &str, set: Option<&Timer>) -> Value {
    let (callback, reference) = name.split_once(':').unwrap_or((name, ""));
    let mut timer = json!({"callback": callback, "reference": reference});
    if let Some(Timer { due_us, payload }) = set {
        let payload: Value = serde_json::from_slice(payload).unwrap_or_default();
        timer["due_ms"] = (due_us / 1000).into();
        timer["context"] = payload[2].clone();
    }
    timer
}

/// Options of a replay.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ReplayOptions {
    /// The first seqno.
    #[serde(default)]
    from: u64,
    /// The last seqno.
    #[serde(default)]
    to: Option<u64>,
    /// Restricts the replay to versions written at this time or later, in milliseconds since the Unix epoch.
    #[serde(default)]
    since_ms: u64,
    #[serde(default)]
    vbuckets: Option<Vec<u16>>,
    /// True to replay only the documents that failed last.
    #[serde(default)]
    failed: bool,
}

/// Makes a running function process a part of history again.
pub(super) async fn replay(call: &Call, id: &FunctionId) -> Result<Reply, Reply> {
    let wrong = |error: serde_json::Error| Kind::Unmarshal.reply(&format!("the body: {error}"));
    let again: ReplayOptions = serde_json::from_slice(&call.body).map_err(wrong)?;
    let cluster = call.node.cluster();
    let function = find(&cluster, id)?;
    call.must_reach(&function.definition)?;
    let deployment = call.node.plugins().deployment(&deployment_name(id));
    let deployment = deployment
        .filter(|_| function.state == FunctionState::Deployed)
        .ok_or_else(|| Kind::NotDeployed.reply("the function does not run"))?;
    let accepted = deployment.replay(parts(&again, &deployment));
    let vbuckets: BTreeSet<u16> = accepted.iter().map(|replay| replay.range.vbid.0).collect();
    Ok(ok(&json!({
        "code": 0,
        "info": {
            "status": format!("Function: {} is given {} parts of history again", id.name, accepted.len()),
            "vbuckets": vbuckets,
        },
    })))
}

fn parts(again: &ReplayOptions, deployment: &Deployment) -> Vec<Replay> {
    let is_wanted = |vbid: Vbid| again.vbuckets.as_ref().is_none_or(|all| all.contains(&vbid.0));
    let since_ns = again.since_ms.saturating_mul(1_000_000);
    let range = |vbid, from: u64, to: u64| Replay {
        range: Range { vbid, after: Seqno(from.saturating_sub(1)), up_to: Seqno(to) },
        since_ns,
    };
    if again.failed {
        let status = deployment.status();
        let errors = status.last_errors.iter().map(|error| (error.vbid, error.seqno.0));
        let dead = status.dead_letters.iter().map(|dead| (dead.vbid, dead.seqno.0));
        let failed = errors.chain(dead).filter(|(vbid, _)| is_wanted(*vbid));
        // A document that has failed several times is replayed only once.
        let failed: BTreeSet<(Vbid, u64)> = failed.collect();
        return failed.into_iter().map(|(vbid, seqno)| range(vbid, seqno, seqno)).collect();
    }
    let wanted = deployment.vbids().filter(|vbid| is_wanted(*vbid));
    wanted.map(|vbid| range(vbid, again.from, again.to.unwrap_or(u64::MAX))).collect()
}
