//! JavaScript for plugins: the only QuickJS embedding, with its limits, builtins and errors.
//!
//! User code is text. An [`Engine`] compiles functions (`function (doc, meta) {…}`, also arrow functions) and calls them with
//! arguments passed as JSON; results are JSON. Every call has a step budget, and the engine has limits of memory and stack, so
//! that user code ends in an [`Error`] and not in a trap of the sandbox:
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
//! Equal input gives equal output on every machine: `Date.now()` returns the time of [`Engine::set_now`], `Math.random` throws,
//! and steps are counted rather than timed. Functions of one engine share their global scope, as in other engines for such
//! functions. [`Functions`] creates the engine only when it is needed.
//!
//! A whole file of user code is a program: [`Engine::load`] finds its handlers, and it can call a [`Host`].
//!
//! Builtins: `emit(key, value)` (collected, see [`Engine::take_emitted`]), `log(…)`, `sum(array)`,
//! `dateToArray(date)`, `decodeBase64(text)`.

mod builtins;
mod clock;
mod document;
mod engine;
mod error;
mod functions;
mod json;
mod modules;
mod program;
mod random;

pub use builtins::Emitted;
pub use engine::{Argument, Engine, FunctionId};
pub use error::{Error, Position};
pub use functions::Functions;
pub use json::{depth, quote};
pub use program::{Host, HostError, HostValue};
pub use random::Random;

/// JavaScript that defines `rowsOf`, the rows of a query, and `parametersOf`, its parameters.
pub const QUERIES: &str = include_str!("queries.js");

/// The limits of user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum heap of the engine, in bytes.
    pub memory_bytes: usize,
    /// Maximum stack of the interpreter, in bytes. Above 256 KiB the native stack of the sandbox may overflow first.
    pub stack_bytes: usize,
    /// Maximum steps of one call. A step is a loop iteration, a call, or some of the work of a regular expression; the engine
    /// counts them in units of [`Limits::STEPS_COUNTED_AT_ONCE`].
    pub steps_max: u32,
    /// Maximum nesting of arrays and objects of an argument.
    pub json_depth_max: usize,
    /// Maximum size of an emitted key, in bytes of JSON.
    pub emit_key_bytes_max: usize,
    /// Maximum total size of the values that one call emits, in bytes of JSON.
    pub emit_bytes_max: usize,
    /// Maximum size of a call's result, in bytes of JSON.
    pub result_bytes_max: usize,
}

impl Limits {
    /// Number of steps between two checks of the budget; fixed in QuickJS.
    pub const STEPS_COUNTED_AT_ONCE: u32 = 10_000;

    /// Returns the limits that apply to all user code, by name, as a plugin reports them.
    #[must_use]
    pub fn by_name(&self) -> serde_json::Map<String, serde_json::Value> {
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
    /// 128 MiB of heap (for a 20 MiB document and values derived from it), 256 KiB of stack, 10 million steps (some tenths of a
    /// second), and the limits of Couchbase views for emitted values.
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
