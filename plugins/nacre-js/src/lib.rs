//! JavaScript for plugins: the one QuickJS embedding, with its limits, builtins and errors.
//!
//! User code is text. An [`Engine`] compiles functions (`function (doc, meta) {…}`, arrow forms too) and calls
//! them with arguments that arrive as JSON; what comes back is JSON. Every call has a budget of steps and the
//! engine one of memory and stack, so that user code ends in an [`Error`] and not in a trap of the sandbox:
//!
//! ```
//! use nacre_js::{Argument, Engine, Limits};
//!
//! let mut engine = Engine::new(Limits::default()).unwrap();
//! let double = engine.compile("double", "function (n) { return n * 2 }").unwrap();
//! assert_eq!(engine.call(double, &[Argument::Json("21")]).unwrap(), Some("42".into()));
//!
//! let spin = engine.compile("spin", "() => {\n  while (true) {}\n}").unwrap();
//! let error = engine.call(spin, &[]).unwrap_err();
//! assert_eq!(error.to_string(), "stopped after 10000000 steps: a loop that does not end?");
//! ```
//!
//! Equal input gives equal output, whatever the machine: `Date.now()` is what [`Engine::set_now`] said,
//! `Math.random` throws, and steps are counted rather than timed. Functions of one engine share their global
//! scope, as they do in every other engine for such functions. [`Functions`] are those of an engine that is made once it is needed.
//!
//! A whole file of user code is a program: [`Engine::load`] finds its handlers, and it may call a [`Host`].
//!
//! Builtins: `emit(key, value)` (collected, see [`Engine::take_emitted`]), `log(…)`, `sum(array)`,
//! `dateToArray(date)`, `decodeBase64(text)`.

mod builtins;
mod chance;
mod clock;
mod document;
mod engine;
mod error;
mod functions;
mod json;
mod modules;
mod program;

pub use builtins::Emitted;
pub use chance::Chance;
pub use engine::{Argument, Engine, FunctionId};
pub use error::{Error, Position};
pub use functions::Functions;
pub use json::{depth, quote};
pub use program::{Host, HostError, HostValue};

/// Text in JavaScript: `rowsOf`, the rows of a query, and `parametersOf`, its parameters.
pub const QUERIES: &str = include_str!("queries.js");

/// What user code may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Heap of the engine, in bytes.
    pub memory_bytes: usize,
    /// Stack of the interpreter, in bytes. Above 256 KiB the native stack of the sandbox may end first.
    pub stack_bytes: usize,
    /// Steps of one call. A step is a turn of a loop, a call, or some of the work of a regular expression; the
    /// engine counts them in units of [`Limits::STEPS_COUNTED_AT_ONCE`].
    pub steps_max: u32,
    /// How deep arrays and objects of an argument may nest.
    pub json_depth_max: usize,
    /// The largest emitted key, in bytes of JSON.
    pub emit_key_bytes_max: usize,
    /// All that one call may emit, in bytes of JSON.
    pub emit_bytes_max: usize,
    /// The largest result of a call, in bytes of JSON.
    pub result_bytes_max: usize,
}

impl Limits {
    /// How many steps pass between two looks at the budget; fixed in QuickJS.
    pub const STEPS_COUNTED_AT_ONCE: u32 = 10_000;

    /// Those that hold for whatever user code does, by name, as a plugin tells them of itself.
    #[must_use]
    pub fn told(&self) -> serde_json::Map<String, serde_json::Value> {
        [
            ("memory_bytes", self.memory_bytes.into()),
            ("stack_bytes", self.stack_bytes.into()),
            ("steps_max", self.steps_max.into()),
            ("json_depth_max", self.json_depth_max.into()),
        ]
        .map(|(name, limit)| (name.to_owned(), limit))
        .into_iter()
        .collect()
    }
}

impl Default for Limits {
    /// 128 MiB of heap (a 20 MiB document and what is made of it), 256 KiB of stack, 10 million steps (some
    /// tenths of a second), and the limits of Couchbase views for what is emitted.
    fn default() -> Limits {
        Limits {
            memory_bytes: 128 << 20,
            stack_bytes: 256 << 10,
            steps_max: 10_000_000,
            json_depth_max: 512,
            emit_key_bytes_max: 4096,
            emit_bytes_max: 1 << 20,
            result_bytes_max: 64 << 10,
        }
    }
}
