//! Runs one function: JavaScript code that reacts to every change of its source's documents, as in Couchbase's
//! Eventing. Its definition is the configuration of the deployment: see [`config`].
//!
//! ```js
//! function OnUpdate(doc, meta) { copies[meta.id] = doc }      // a document was created or changed
//! function OnDelete(meta, options) { delete copies[meta.id] } // a document was deleted, or has expired (options.expired)
//! function OnDeploy(action) {}                                // before any other handler; action.reason
//! ```
//!
//! `api.js` defines what the code can use: the bindings by their aliases, `couchbase.…`, `createTimer`, `curl`, `log`. `services.js`
//! defines the queries that other services answer.
//!
//! Invariants: an exception is counted and logged with its position in the user's source, and the feed continues. A function's own
//! write to its source does not trigger it, even after a crash (see [`mark`]). Only the state, and the cookies of servers, survive a
//! call.

mod calls;
mod config;
mod crc64;
mod digest;
mod filter;
mod host;
mod mark;
mod numbers;
mod stamp;

use config::Config;
use filter::Filter;
use host::HostApi;
use nacre_js::{Argument, Engine, Error, FunctionId, Limits};
use nacre_js_bridge::Bridge;
use nacre_plugin::{DocumentError, Events, Fault, Service, StateMut, Timer, turn};
use numbers::Numbers;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::LazyLock;

static API: LazyLock<String> = LazyLock::new(|| {
    [nacre_js::QUERIES, include_str!("api.js"), include_str!("services.js")].concat()
});

/// The limits of user code, which `describe` reports.
const LIMITS: Limits = Limits {
    memory_bytes: 128 << 20,
    stack_bytes: 256 << 10,
    steps_max: 50_000_000,
    json_depth_max: 512,
    emit_key_bytes_max: 0,
    emit_bytes_max: 0,
    result_bytes_max: 64 << 10,
};

/// Names of the handlers.
const HANDLERS: [&str; 3] = ["OnUpdate", "OnDelete", "OnDeploy"];

/// The handlers that a function defines.
struct Handlers {
    on_update: Option<FunctionId>,
    on_delete: Option<FunctionId>,
    on_deploy: Option<FunctionId>,
}

/// Functions of `api.js` that the plugin calls.
struct Api {
    make_meta: FunctionId,
    run_binary: FunctionId,
    run_timer: FunctionId,
}

/// A running function.
pub struct Program {
    /// The configuration, from which the program can be restarted.
    text: String,
    config: Config,
    engine: Engine,
    bridge: Rc<RefCell<Bridge>>,
    outside: Rc<RefCell<HostApi>>,
    api: Api,
    handlers: Handlers,
    filter: Option<Filter>,
    numbers: Numbers,
    /// Timeout of the current call, in milliseconds.
    time_ms: Rc<Cell<u32>>,
}

impl Service for Program {
    fn describe() -> String {
        serde_json::json!({
            "name": "eventing",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "1",
            "limits": LIMITS.by_name(),
        })
        .to_string()
    }

    fn init(text: &str) -> Result<Program, Fault> {
        Program::start(text, Rc::default())
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        self.engine.set_now(events.now_us());
        self.documents(events, state)?;
        // Failures are reported as they happen.
        Ok(Vec::new())
    }

    fn rollback(
        &mut self,
        _vb: u16,
        seqno: u64,
        _: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        // A function's effects are permanent. The function handles the changes that replace the history as they arrive.
        Ok(Some(seqno))
    }

    fn on_timer(
        &mut self,
        now_us: u64,
        timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        self.engine.set_now(now_us);
        self.fire(now_us, timers, state)
    }
}

impl Program {
    /// Creates a program with a new engine and the host `bridge`.
    fn start(text: &str, bridge: Rc<RefCell<Bridge>>) -> Result<Program, Fault> {
        let config: Config = serde_json::from_str(text)
            .map_err(|error| Fault::Reject(format!("the configuration: {error}")))?;
        let broken = |error: Error| Fault::Retry(format!("JavaScript: {error}"));
        let mut engine = Engine::new(LIMITS).map_err(broken)?;
        let timeout_ms = config.timeout_ms;
        let outside = Rc::new(RefCell::new(HostApi::new(Rc::clone(&bridge), timeout_ms)));
        engine.set_host(Rc::clone(&outside) as Rc<RefCell<dyn nacre_js::Host>>).map_err(broken)?;
        let names = ["setUp", "makeMeta", "runBinary", "runTimer"];
        let found = engine.load("api.js", &API, &names).map_err(broken)?;
        let [Some(set_up), Some(make_meta), Some(run_binary), Some(run_timer)] = found[..] else {
            return Err(Fault::Fatal("api.js lacks a function".into()));
        };
        let bindings = config.for_api();
        engine
            .call(set_up, &[Argument::Json(&bindings)])
            .map_err(|error| Fault::Reject(format!("the bindings: {error}")))?;
        engine.set_modules(config.modules.clone());
        let found = load(&mut engine, &config)?;
        engine.take_log();
        let handlers = Handlers { on_update: found[0], on_delete: found[1], on_deploy: found[2] };
        if handlers.on_update.is_none() && handlers.on_delete.is_none() {
            return Err(Fault::Reject("the code has neither OnUpdate nor OnDelete".into()));
        }
        let filter = config.filter.as_deref().map(Filter::parse).transpose()?;
        let api = Api { make_meta, run_binary, run_timer };
        let numbers = Numbers::default();
        let text = text.to_owned();
        // The time of the code above counts for no handler: the plugin often creates a new engine when a handler's time
        // is over.
        let time_ms = Rc::new(Cell::new(timeout_ms));
        let watched = Rc::clone(&time_ms);
        engine.set_watch(move || turn::passed_ms() >= watched.get());
        Ok(Program {
            text,
            config,
            engine,
            bridge,
            outside,
            api,
            handlers,
            filter,
            numbers,
            time_ms,
        })
    }
}

/// Runs the user's source as a script, as Couchbase does, or else as a module.
fn load(engine: &mut Engine, config: &Config) -> Result<Vec<Option<FunctionId>>, Fault> {
    let (file, script) = (&config.file(), config.script());
    let refused = |error: Error| Fault::Reject(config.describe(&error));
    let as_script = match engine.load_script(file, &script, &HANDLERS) {
        Err(Error::Syntax { .. }) if config.is_module() => None,
        outcome => Some(outcome.map_err(refused)?),
    };
    match as_script {
        Some(found) => Ok(found),
        // Timers refer to functions by name, and only the module itself can access its functions.
        None => engine
            .load(file, &format!("{script}\n;setNamed((name) => eval(name));"), &HANDLERS)
            .map_err(refused),
    }
}

nacre_plugin::export!(Program);
