//! The world `service`.

use super::{fault, ready};
use crate::buffer::{Apply, Buffered, Change};
use crate::{
    Chunk, Entry, Events, Fault, Header, Request, Response, Service, State, StateMut, Timer,
};

wit_bindgen::generate!({
    path: "../wit",
    world: "service",
    pub_export_macro: true,
    export_macro_name: "export_service",
    default_bindings_module: "nacre_plugin::bindings::world",
});

use exports::nacre::plugin::{feed, reader, timer_handler};
use nacre::plugin::{state, types};

/// The key space that the host provides.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostState;

impl State for HostState {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        state::get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry> {
        state::scan(start, end, limit, reverse)
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect()
    }
}

impl Apply for HostState {
    fn apply(&self, changes: impl Iterator<Item = Change>) {
        let changes = changes.map(|(key, value)| state::Change { key, value });
        state::apply(&changes.collect::<Vec<_>>());
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        state::put(key, value);
    }
}

/// Makes a call that can change the state. The host drops the writes of a failed call.
fn changing<T>(
    call: impl FnOnce(&mut dyn StateMut) -> Result<T, Fault>,
) -> Result<T, types::Fault> {
    let mut state = Buffered::new(HostState);
    let result = call(&mut state).map_err(fault)?;
    state.flush();
    Ok(result)
}

/// Calls `feed.on-batch` of the service in `slot`.
pub fn on_batch<S: Service>(
    slot: &mut Option<S>,
    buffer: &[u8],
) -> Result<feed::Outcome, types::Fault> {
    let events = Events::decode(buffer).map_err(|error| types::Fault::Fatal(error.to_string()))?;
    let service = ready(slot)?;
    let errors = changing(|state| service.on_batch(&events, state))?;
    let errors = errors
        .into_iter()
        .map(|error| feed::DocumentError { index: error.index, message: error.message })
        .collect();
    Ok(feed::Outcome { errors })
}

/// Calls `feed.rollback` of the service in `slot`.
pub fn rollback<S: Service>(
    slot: &mut Option<S>,
    vb: u16,
    seqno: u64,
) -> Result<Option<u64>, types::Fault> {
    let service = ready(slot)?;
    changing(|state| service.rollback(vb, seqno, state))
}

/// Calls `reader.handle` of the service in `slot`.
pub fn handle<S: Service>(
    slot: &mut Option<S>,
    request: reader::Request,
) -> Result<reader::Response, types::Fault> {
    let answer = ready(slot)?.handle(&request.into(), &HostState);
    answer.map(Into::into).map_err(fault)
}

/// Calls `reader.more` of the service in `slot`.
pub fn more<S: Service>(
    slot: &mut Option<S>,
    cursor: &[u8],
) -> Result<reader::Chunk, types::Fault> {
    let Chunk { body, cursor } = ready(slot)?.more(cursor, &HostState).map_err(fault)?;
    Ok(reader::Chunk { body, cursor })
}

/// Calls `reader.merge` of the service in `slot`.
pub fn merge<S: Service>(
    slot: &mut Option<S>,
    request: reader::Request,
    partials: Vec<reader::Response>,
) -> Result<reader::Response, types::Fault> {
    let partials = partials.into_iter().map(Into::into).collect();
    let answer = ready(slot)?.merge(&request.into(), partials);
    answer.map(Into::into).map_err(fault)
}

/// Calls `timer-handler.on-timer` of the service in `slot`.
pub fn on_timer<S: Service>(
    slot: &mut Option<S>,
    now_us: u64,
    timers: Vec<timer_handler::Due>,
) -> Result<(), types::Fault> {
    let timer =
        |timer_handler::Due { vb, name, due_us, payload }| Timer { vb, name, due_us, payload };
    let timers: Vec<_> = timers.into_iter().map(timer).collect();
    let service = ready(slot)?;
    changing(|state| service.on_timer(now_us, &timers, state))
}

pub(super) fn header((name, value): Header) -> types::Header {
    types::Header { name, value }
}

pub(super) fn headers(headers: Vec<types::Header>) -> Vec<Header> {
    headers.into_iter().map(|header| (header.name, header.value)).collect()
}

impl From<reader::Request> for Request {
    fn from(request: reader::Request) -> Request {
        Request {
            method: request.method,
            path: request.path,
            query: request.query,
            headers: headers(request.headers),
            body: request.body,
            now_us: request.now_us,
        }
    }
}

impl From<Response> for reader::Response {
    fn from(response: Response) -> reader::Response {
        let Response { status, headers, body, cursor } = response;
        let headers = headers.into_iter().map(header).collect();
        reader::Response { status, headers, body, cursor }
    }
}

impl From<reader::Response> for Response {
    fn from(response: reader::Response) -> Response {
        let reader::Response { status, headers: pairs, body, cursor } = response;
        Response { status, headers: headers(pairs), body, cursor }
    }
}
