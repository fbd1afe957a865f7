//! Replays failed calls from their capsules: in a new instance, with the entries that the call saw and the replies that
//! it received from outside.

use crate::abi::exports::nacre::plugin::{reader, timer_handler};
use crate::abi::nacre::plugin::types;
use crate::call::CallView;
use crate::capability::{
    Counted, DocumentCall, DocumentReply, Documents, Found, Grants, Http, HttpError, HttpRequest,
    HttpResponse, KeyspaceGrant, KvError, Looked, Mutated, NoQueries,
};
use crate::capsule::{Answer, Call, Capsule, DueTimer};
use crate::context::{Context, Role};
use crate::pure::call_resolver;
use crate::{Budgets, Error, Limits, Plugin, Setup};
use nacre_state::{IndexForm, KeySpace, State, Timer, View};
use nacre_types::Cas;
use nacre_vbucket::{ConflictContext, Version};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Repeats the call of a capsule with `plugin`, which may be another version than the failed one.
///
/// # Errors
/// The error of the call: with the same plugin and engine, an error with the capsule's reason. [`Error::Capsule`] when
/// the capsule is incomplete, or when `plugin` makes a request that the failed call did not make.
pub fn replay(plugin: &Plugin, capsule: &Capsule) -> Result<(), Error> {
    if !capsule.is_whole {
        return Err(Error::Capsule("the call was too large to be kept whole".into()));
    }
    let limits = &capsule.limits;
    let answers = Arc::new(Answers {
        left: Mutex::new(capsule.answers.iter().cloned().collect()),
        missed: Mutex::default(),
    });
    let keyspace = |(keyspace, write): &(String, bool)| KeyspaceGrant {
        keyspace: keyspace.clone(),
        write: *write,
    };
    let setup = Setup {
        name: capsule.deployment.clone(),
        config: capsule.config.clone(),
        keyspace: capsule.keyspace.clone(),
        index: IndexForm::default(),
        limits: Limits {
            memory_bytes: limits.memory_bytes,
            deadline: Duration::from_millis(limits.deadline_ms),
            state_bytes: limits.state_bytes,
            result_bytes: limits.result_bytes,
            http_bytes: limits.http_bytes,
            ..Limits::default()
        },
        grants: Grants {
            kv: capsule.grants.kv.iter().map(keyspace).collect(),
            http_out: capsule.grants.http_out.clone(),
            ..Grants::own()
        },
        runs_script: true,
        documents: Arc::clone(&answers) as Arc<dyn Documents>,
        http: Arc::clone(&answers) as Arc<dyn Http>,
        budgets: Budgets::default(),
        queries: Arc::new(NoQueries),
    };
    let context = Context::new(plugin.clone(), setup, capsule.call.world())?;
    let outcome = call(&context, capsule);
    match answers.missed.lock().take() {
        Some(what) => Err(Error::Capsule(what)),
        None => outcome,
    }
}

fn call(context: &Arc<Context>, capsule: &Capsule) -> Result<(), Error> {
    let entries = capsule.state.iter().map(|(key, value)| (&key.0[..], &value.0[..]));
    let space = KeySpace::load(entries).map_err(Error::Capsule)?;
    let mut state = State { space, ..State::default() };
    for DueTimer { name, due_us, payload, .. } in &capsule.timers {
        let timer = Timer { due_us: *due_us, payload: payload.0.clone() };
        state.timers.set(None, name.as_str().into(), timer.into());
    }
    let writing = |state| CallView::from(View::writing(state, capsule.limits.state_bytes));
    let of_one_item = |state| CallView { items_count: 1, ..writing(state) };
    match &capsule.call {
        Call::OnBatch { buffer } => {
            context.instance(Role::Writer)?.call(of_one_item(state), |exports, store| {
                exports.feed()?.call_on_batch(store, &buffer.0)
            })?;
        }
        Call::Project { buffer } => {
            context.instance(Role::Writer)?.call(CallView::default(), |exports, store| {
                exports.projection()?.call_project(store, &buffer.0)
            })?;
        }
        Call::Rollback { vb, seqno } => {
            context.instance(Role::Writer)?.call(writing(state), |exports, store| {
                exports.feed()?.call_rollback(store, *vb, *seqno)
            })?;
        }
        Call::OnTimer { now_us, timers } => {
            let timers: Vec<_> = timers
                .iter()
                .map(|timer| timer_handler::Due {
                    vb: timer.vb,
                    name: timer.name.clone(),
                    due_us: timer.due_us,
                    payload: timer.payload.0.clone(),
                })
                .collect();
            context.instance(Role::Writer)?.call(of_one_item(state), |exports, store| {
                exports.timer_handler()?.call_on_timer(store, *now_us, &timers)
            })?;
        }
        Call::Handle { request } => {
            let header = |(name, value): (String, String)| types::Header { name, value };
            let request = reader::Request {
                method: request.method.clone(),
                path: request.path.clone(),
                query: request.query.clone(),
                headers: request.headers.iter().cloned().map(header).collect(),
                body: request.body.0.clone(),
                now_us: request.now_us,
            };
            let mut instance = context.instance(Role::Reader)?;
            let response = instance.call(View::reading(state).into(), |exports, store| {
                exports.reader()?.call_handle(store, &request)
            })?;
            let mut cursor = response.cursor;
            while let Some(at) = cursor {
                let chunk =
                    instance.resume(|exports, store| exports.reader()?.call_more(store, &at))?;
                cursor = chunk.cursor;
            }
        }
        Call::Function { name, arguments } => {
            context.instance(Role::Reader)?.call(CallView::default(), |exports, store| {
                exports.scalar()?.call_call(store, name, arguments)
            })?;
        }
        Call::Resolve { key, local, remote, context: facts } => {
            let (local, remote) = (Version::from(local), Version::from(remote));
            let facts = ConflictContext::from(&**facts);
            context.instance(Role::Reader)?.call(CallView::default(), |exports, store| {
                call_resolver(exports, store, &key.0, [&local, &remote], &facts)
            })?;
        }
    }
    Ok(())
}

/// Replaces everything outside the sandbox.
struct Answers {
    left: Mutex<VecDeque<Answer>>,
    missed: Mutex<Option<String>>,
}

impl Answers {
    /// Returns the next reply as decoded by `read`.
    fn next<T>(&self, what: &str, read: impl FnOnce(Answer) -> Option<T>) -> Option<T> {
        let answer = self.left.lock().pop_front().and_then(read);
        if answer.is_none() {
            let missed = format!("it asks for {what}, which the failed call did not");
            self.missed.lock().get_or_insert(missed);
        }
        answer
    }
}

fn kv_error(answer: Answer) -> Option<Result<DocumentReply, KvError>> {
    let Answer::KvError { kind, message } = answer else { return None };
    Some(Err(match &*kind {
        "not-found" => KvError::NotFound,
        "exists" => KvError::Exists,
        "cas-mismatch" => KvError::CasMismatch,
        "too-large" => KvError::TooLarge,
        "locked" => KvError::Locked,
        "temporary" => KvError::Temporary(message),
        "denied" => KvError::Denied(message),
        "invalid" => KvError::Invalid(message),
        "path" => KvError::Path(message),
        _ => return None,
    }))
}

/// Returns the recorded reply to a call, if it matches the call.
fn reply(call: &DocumentCall, answer: Answer) -> Option<Result<DocumentReply, KvError>> {
    let reply = match (call, answer) {
        (DocumentCall::Get, Answer::Found { body, cas, flags, expiry, is_json }) => {
            DocumentReply::Found(Found { body: body.0, cas: Cas(cas), flags, expiry, is_json })
        }
        (
            DocumentCall::Store(..) | DocumentCall::Remove(_) | DocumentCall::Touch(_),
            Answer::Stored { cas },
        ) => DocumentReply::Stored(Cas(cas)),
        (DocumentCall::Count(..), Answer::Counted { value, cas }) => {
            DocumentReply::Counted(Counted { value, cas: Cas(cas) })
        }
        (DocumentCall::Lookup(_), Answer::Looked { cas, results }) => {
            let results = results.into_iter().map(|result| result.map(|bytes| bytes.0));
            DocumentReply::Looked(Looked { cas: Cas(cas), results: results.collect() })
        }
        (DocumentCall::LookupAny(_), Answer::LookedAny { cas, deleted, results }) => {
            let results = results.into_iter().map(|result| result.map(|bytes| bytes.0));
            let looked = Looked { cas: Cas(cas), results: results.collect() };
            DocumentReply::LookedAny(looked, deleted)
        }
        (
            DocumentCall::Mutate(..) | DocumentCall::MutateAny(..),
            Answer::Mutated { cas, results },
        ) => {
            let results = results.into_iter().map(|(index, bytes)| (index, bytes.0));
            DocumentReply::Mutated(Mutated { cas: Cas(cas), results: results.collect() })
        }
        (_, other) => return kv_error(other),
    };
    Some(Ok(reply))
}

impl Documents for Answers {
    fn call(
        &self,
        _: &str,
        _: &[u8],
        call: &DocumentCall,
        _: Duration,
    ) -> Result<DocumentReply, KvError> {
        let what = match call {
            DocumentCall::Get => "a document",
            DocumentCall::Store(..) => "a document to be stored",
            DocumentCall::Remove(_) => "a document to be removed",
            DocumentCall::Count(..) => "a counter",
            DocumentCall::Touch(_) => "a document to be touched",
            DocumentCall::Lookup(_) | DocumentCall::LookupAny(_) => "parts of a document",
            DocumentCall::Mutate(..) | DocumentCall::MutateAny(..) => {
                "parts of a document to be changed"
            }
        };
        let missed = || Err(KvError::Denied("the capsule has no answer".into()));
        self.next(what, |answer| reply(call, answer)).unwrap_or_else(missed)
    }
}

impl Http for Answers {
    fn send(
        &self,
        request: &HttpRequest,
        _: usize,
        _: Duration,
    ) -> Result<HttpResponse, HttpError> {
        let read = |answer| match answer {
            Answer::Response { status, headers, body } => {
                Some(Ok(HttpResponse { status, headers, body: body.0 }))
            }
            Answer::HttpError { kind, message } => Some(Err(match &*kind {
                "denied" => HttpError::Denied(message),
                "timeout" => HttpError::Timeout,
                "too-large" => HttpError::TooLarge,
                "failed" => HttpError::Failed(message),
                _ => return None,
            })),
            _ => None,
        };
        let missed = || Err(HttpError::Failed("the capsule has no answer".into()));
        self.next(&format!("{} {}", request.method, request.host), read).unwrap_or_else(missed)
    }
}
