//! Runs a plugin written in JavaScript; its source is the configuration.
//!
//! Configuration: `{"file": "main.js", "source": "…", "modules": {"./lib.js": "…"}, "config": {…}}`. The source may import the
//! modules, and exports any of these handlers,
//!
//! ```js
//! export function onUpdate(doc, meta) {}     // a document was created or changed; a Uint8Array if it is not JSON
//! export function onDelete(meta) {}          // a document was deleted or has expired; see meta.kind
//! export function onBatch(events) {}         // instead of both: [{meta, doc}]; doc is null for a deletion
//! export function onTimer({name, due, payload}) {}
//! export function onRollback(vbucket, seqno) { return seqno }
//! export function handle(request) {}         // a Response, or a value to send as JSON
//! export function merge(request, parts) {}   // the same, from the responses of several nodes
//! ```
//!
//! which use `state`, `kv`, `timer`, `http`, `metrics`, `log` and `config`, defined in `api.js`.
//!
//! Invariants: if a document's handler throws, its writes to the state are undone, and the feed continues; positions in
//! messages refer to the user's source.

mod attributes;
mod calls;

use nacre_js::{Engine, FunctionId, Limits};
use nacre_js_bridge::{Bridge, forward_log};
use nacre_plugin::{
    Chunk, DocumentError, Events, Fault, Request, Response, Service, State, StateMut, Timer,
};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const API: &str = include_str!("api.js");

/// The limits of user code, which `describe` reports.
const LIMITS: Limits = Limits {
    memory_bytes: 128 << 20,
    stack_bytes: 256 << 10,
    steps_max: 50_000_000,
    json_depth_max: 512,
    emit_key_bytes_max: 0,
    emit_bytes_max: 0,
    result_bytes_max: 1 << 20,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default = "main_js")]
    file: String,
    source: String,
    #[serde(default)]
    modules: BTreeMap<String, String>,
    #[serde(default)]
    config: serde_json::Value,
}

fn main_js() -> String {
    "main.js".into()
}

/// The user's handlers.
struct Handlers {
    on_update: Option<FunctionId>,
    on_delete: Option<FunctionId>,
    on_batch: Option<FunctionId>,
    on_timer: Option<FunctionId>,
    on_rollback: Option<FunctionId>,
    handle: Option<FunctionId>,
    merge: Option<FunctionId>,
}

/// The names of the handlers, in the same order.
const HANDLERS: [&str; 7] =
    ["onUpdate", "onDelete", "onBatch", "onTimer", "onRollback", "handle", "merge"];

/// Functions of `api.js` that the plugin calls.
struct Api {
    run_handle: FunctionId,
    run_merge: FunctionId,
    run_more: FunctionId,
    make_meta: FunctionId,
}

/// A running program.
pub struct Program {
    /// The configuration, from which the program can be restarted.
    text: String,
    file: String,
    engine: Engine,
    bridge: Rc<RefCell<Bridge>>,
    api: Api,
    handlers: Handlers,
}

impl Service for Program {
    fn describe() -> String {
        serde_json::json!({
            "name": "js",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "1",
            "limits": LIMITS.by_name(),
        })
        .to_string()
    }

    fn init(config: &str) -> Result<Program, Fault> {
        let mut program = Program::start(config, Rc::default())?;
        forward_log(&mut program.engine);
        Ok(program)
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        self.engine.set_now(events.now_us());
        match self.handlers.on_batch {
            Some(on_batch) => self.whole_batch(on_batch, events, state),
            None => self.each_document(events, state),
        }
    }

    fn rollback(
        &mut self,
        vb: u16,
        seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        self.cut_back(vb, seqno, state)
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        self.engine.set_now(request.now_us);
        self.answer(request, state)
    }

    fn merge(&mut self, request: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        self.engine.set_now(request.now_us);
        self.merged(request, &partials)
    }

    fn more(&mut self, _cursor: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        self.next_piece(state)
    }

    fn on_timer(
        &mut self,
        now_us: u64,
        timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        self.engine.set_now(now_us);
        self.fire(timers, state)
    }
}

impl Program {
    /// Creates a program with a new engine and the host `bridge`.
    fn start(text: &str, bridge: Rc<RefCell<Bridge>>) -> Result<Program, Fault> {
        let Config { file, source, modules, config } = serde_json::from_str(text)
            .map_err(|error| Fault::Reject(format!("the configuration: {error}")))?;
        let broken = |error: nacre_js::Error| Fault::Retry(format!("JavaScript: {error}"));
        let mut engine = Engine::new(LIMITS).map_err(broken)?;
        engine.set_host(Rc::clone(&bridge) as Rc<RefCell<dyn nacre_js::Host>>).map_err(broken)?;
        let names = ["runHandle", "runMerge", "runMore", "makeMeta", "setConfig"];
        let found = engine.load("api.js", API, &names).map_err(broken)?;
        let [Some(run_handle), Some(run_merge), Some(run_more), Some(make_meta), Some(set_config)] =
            found[..]
        else {
            return Err(Fault::Fatal("api.js lacks a function".into()));
        };
        let config = config.to_string();
        engine
            .call(set_config, &[nacre_js::Argument::Json(&config)])
            .map_err(|error| Fault::Reject(format!("the configuration: {error}")))?;
        engine.set_modules(modules);
        let found = engine
            .load(&file, &source, &HANDLERS)
            .map_err(|error| Fault::Reject(format!("{file}: {error}")))?;
        if found.iter().all(Option::is_none) {
            let message = format!("{file} has none of the handlers {}", HANDLERS.join(", "));
            return Err(Fault::Reject(message));
        }
        let handlers = Handlers {
            on_update: found[0],
            on_delete: found[1],
            on_batch: found[2],
            on_timer: found[3],
            on_rollback: found[4],
            handle: found[5],
            merge: found[6],
        };
        let api = Api { run_handle, run_merge, run_more, make_meta };
        let text = text.to_owned();
        Ok(Program { text, file, engine, bridge, api, handlers })
    }
}

nacre_plugin::export!(Program);
