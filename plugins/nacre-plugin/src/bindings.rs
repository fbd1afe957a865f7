//! The generated ABI of the world `service`, and the glue between it and [`Service`].

// The generator documents from the WIT, but not every item that it derives from it.
#![allow(missing_docs, reason = "generated from plugins/wit, which is documented")]

use crate::{Entry, Events, Fault, Request, Response, Service, State, StateMut};

wit_bindgen::generate!({
    path: "../wit",
    world: "service",
    pub_export_macro: true,
    export_macro_name: "export_service",
    default_bindings_module: "nacre_plugin::bindings",
});

use exports::nacre::plugin::{feed, reader};
use nacre::plugin::{log, state, types};

/// The key space as the host provides it.
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

impl StateMut for HostState {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        state::put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        state::delete(key);
    }

    fn reading(&self) -> &dyn State {
        self
    }
}

/// Adds an informational line to the log of the deployment.
pub fn log_info(message: &str) {
    log::write(log::Level::Info, message);
}

fn fault(fault: Fault) -> types::Fault {
    match fault {
        Fault::Retry(message) => types::Fault::Retry(message),
        Fault::Reject(message) => types::Fault::Reject(message),
        Fault::Fatal(message) => types::Fault::Fatal(message),
    }
}

fn service<S>(slot: &mut Option<S>) -> Result<&mut S, types::Fault> {
    slot.as_mut().ok_or_else(|| types::Fault::Fatal("init was not called, or failed".into()))
}

/// `lifecycle.init` for the service kept in `slot`.
pub fn init<S: Service>(slot: &mut Option<S>, config: &str) -> Result<(), types::Fault> {
    // A panic aborts, and an abort says nothing: its message goes to the log first.
    std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string())));
    *slot = Some(S::init(config).map_err(fault)?);
    Ok(())
}

/// `feed.on-batch` for the service kept in `slot`.
pub fn on_batch<S: Service>(
    slot: &mut Option<S>,
    buffer: &[u8],
) -> Result<feed::Outcome, types::Fault> {
    let events = Events::decode(buffer).map_err(|error| types::Fault::Fatal(error.to_string()))?;
    let errors = service(slot)?.on_batch(&events, &mut HostState).map_err(fault)?;
    let errors = errors
        .into_iter()
        .map(|error| feed::DocumentError { index: error.index, message: error.message })
        .collect();
    Ok(feed::Outcome { errors })
}

/// `feed.rollback` for the service kept in `slot`.
pub fn rollback<S: Service>(
    slot: &mut Option<S>,
    vb: u16,
    seqno: u64,
) -> Result<Option<u64>, types::Fault> {
    service(slot)?.rollback(vb, seqno, &mut HostState).map_err(fault)
}

/// `reader.handle` for the service kept in `slot`.
pub fn handle<S: Service>(
    slot: &mut Option<S>,
    request: reader::Request,
) -> Result<reader::Response, types::Fault> {
    let reader::Request { method, path, query, body, now_us } = request;
    let request = Request { method, path, query, body, now_us };
    let Response { status, content_type, body } =
        service(slot)?.handle(&request, &HostState).map_err(fault)?;
    Ok(reader::Response { status, content_type, body })
}
