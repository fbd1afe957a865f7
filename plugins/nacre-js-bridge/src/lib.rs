//! The host functions of JavaScript programs: the capabilities of the plugin that runs them, and the state of the current
//! call.
//!
//! A plugin makes one [`Bridge`] the host of its engine, and lends it the state for the duration of a call.
//! [`keep`](StateLoan::keep) makes a handler's changes of state and timers permanent, and [`undo`](StateLoan::undo) reverts them.
//! Changes of documents are never reverted.
//!
//! A prelude in JavaScript calls the functions by name: `state.get`, `kv.upsert`, `timer.set`, `http.send`, `query.begin`, ….

mod arguments;
mod documents;
mod http;
mod queries;

use arguments::{Arguments, error};
use nacre_js::{Engine, Host, HostError, HostValue as Value};
use nacre_plugin::{Entry, State, StateMut, metrics, successor, timer, turn};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// The first byte of a stored value that is bytes; JSON never begins with it.
const BYTES: u8 = 0;

/// The state lent for the current call.
#[derive(Clone, Copy)]
enum LentState {
    Reading(NonNull<dyn State>),
    Writing(NonNull<dyn StateMut>),
}

/// The response of a program to a request.
#[derive(Default)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body, or a piece of it.
    pub body: Vec<u8>,
    /// True if there are more pieces.
    pub has_more: bool,
}

/// A change of a timer: its due time and payload, or `None` to cancel it.
struct TimerChange {
    name: String,
    set: Option<(u64, Vec<u8>)>,
}

/// The host of a program.
#[derive(Default)]
pub struct Bridge {
    lent: Option<LentState>,
    /// Previous values of entries that the current handler has changed.
    undo: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The entry that was read last, unless something was written since, because an entry is often written right after it is
    /// read.
    read: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// Timers to set or cancel once the handler has succeeded.
    timers: Vec<TimerChange>,
    /// Queries that the current handler has started.
    queries: queries::Open,
    /// True if this call has had an external effect that is not reverted.
    has_acted: bool,
    answered: Option<Answered>,
}

/// Lends a state for its lifetime.
pub struct StateLoan<'a> {
    bridge: &'a std::cell::RefCell<Bridge>,
}

impl<'a> StateLoan<'a> {
    /// Lends a state for writing. The loan must be dropped before `state` is used again; the caller ensures this by keeping
    /// both for the duration of one call.
    pub fn writing(
        bridge: &'a std::cell::RefCell<Bridge>,
        state: &'a mut dyn StateMut,
    ) -> StateLoan<'a> {
        // SAFETY: only the lifetime changes, and the pointer is removed when the loan is dropped, within 'a.
        let state: NonNull<dyn StateMut> =
            unsafe { std::mem::transmute(NonNull::from(state) as NonNull<dyn StateMut + 'a>) };
        bridge.borrow_mut().lent = Some(LentState::Writing(state));
        StateLoan { bridge }
    }

    /// Lends a state for reading.
    pub fn reading(bridge: &'a std::cell::RefCell<Bridge>, state: &'a dyn State) -> StateLoan<'a> {
        // SAFETY: as for writing; a pointer for reading is never written through.
        let state: NonNull<dyn State> =
            unsafe { std::mem::transmute(NonNull::from(state) as NonNull<dyn State + 'a>) };
        bridge.borrow_mut().lent = Some(LentState::Reading(state));
        StateLoan { bridge }
    }

    /// Returns true if a handler has set or cancelled timers.
    pub fn has_timers(&self) -> bool {
        !self.bridge.borrow().timers.is_empty()
    }

    /// Marks the beginning of the event or timer at `index`, as [`turn::begin`] does.
    pub fn begin(&self, index: u32) {
        if let Ok(state) = self.bridge.borrow_mut().writing() {
            turn::begin(index, state);
        }
    }

    /// Does the same if a handler has had external effects in this call, which must not be repeated because a later handler
    /// ends the call. Without effects, repeating the work is cheaper than the mark.
    pub fn begin_if_acted(&self, index: u32) {
        let has_acted = self.bridge.borrow().has_acted;
        if has_acted {
            self.begin(index);
        }
    }

    /// Makes the changes of a handler permanent, and ends its queries.
    pub fn keep(&self) {
        let mut bridge = self.bridge.borrow_mut();
        bridge.queries.close();
        bridge.undo.clear();
        for TimerChange { name, set } in std::mem::take(&mut bridge.timers) {
            match set {
                Some((due_us, payload)) => timer::set(&name, due_us, &payload),
                None => {
                    timer::cancel(&name);
                }
            }
        }
    }

    /// Reverts a handler's changes of the state, and ends its queries.
    pub fn undo(&self) {
        let mut bridge = self.bridge.borrow_mut();
        bridge.queries.close();
        bridge.timers.clear();
        bridge.read = None;
        let undo = std::mem::take(&mut bridge.undo);
        if let Ok(state) = bridge.writing() {
            for (key, old) in undo {
                match old {
                    Some(old) => state.put(&key, &old),
                    None => state.delete(&key),
                }
            }
        }
    }

    /// Returns the program's response, if it has given one since the last call.
    pub fn take_answer(&self) -> Option<Answered> {
        self.bridge.borrow_mut().answered.take()
    }
}

impl Drop for StateLoan<'_> {
    fn drop(&mut self) {
        let mut bridge = self.bridge.borrow_mut();
        bridge.queries.close();
        bridge.lent = None;
        bridge.read = None;
        bridge.undo.clear();
        bridge.timers.clear();
        bridge.has_acted = false;
    }
}

impl Bridge {
    /// Runs `inner` without a lent state, as if no handler were running; for example, to run the top level of a file in the
    /// middle of a call.
    pub fn aside<T>(bridge: &std::cell::RefCell<Bridge>, inner: impl FnOnce() -> T) -> T {
        let lent = bridge.borrow_mut().lent.take();
        let done = inner();
        bridge.borrow_mut().lent = lent;
        done
    }

    fn reading(&self) -> Result<&dyn State, HostError> {
        match self.lent {
            // SAFETY: the loan, and therefore the state, is alive; `self` is borrowed, so nothing changes the state.
            Some(LentState::Reading(state)) => Ok(unsafe { state.as_ref() }),
            // SAFETY: the same.
            Some(LentState::Writing(state)) => Ok(unsafe { state.as_ref() }.reading()),
            None => Err(error("outside", "this can only be used while a handler runs")),
        }
    }

    fn writing(&mut self) -> Result<&mut dyn StateMut, HostError> {
        match &mut self.lent {
            // SAFETY: the loan, and therefore the state, is alive; `self` is mutably borrowed, so nothing else accesses the
            // state.
            Some(LentState::Writing(state)) => Ok(unsafe { state.as_mut() }),
            Some(LentState::Reading(_)) => {
                Err(error("read-only", "handle cannot write to the state"))
            }
            None => Err(error("outside", "this can only be used while a handler runs")),
        }
    }

    fn remember(&mut self, key: &[u8]) -> Result<(), HostError> {
        self.writing()?;
        let read = self.read.take();
        if !self.undo.contains_key(key) {
            let old = match read {
                Some((known, value)) if known == key => value,
                _ => self.reading()?.get(key),
            };
            self.undo.insert(key.to_vec(), old);
        }
        Ok(())
    }

    fn get(&mut self, key: Vec<u8>) -> Result<Value, HostError> {
        let value = self.reading()?.get(&key);
        if matches!(self.lent, Some(LentState::Writing(_))) {
            self.read = Some((key, value.clone()));
        }
        Ok(value.map_or(Value::Nothing, shown))
    }
}

impl Host for Bridge {
    fn call(&mut self, function: &str, arguments: Vec<Value>) -> Result<Value, HostError> {
        let mut arguments = Arguments(arguments.into_iter());
        // While no handler runs, capabilities are as inaccessible as the state.
        if function != "text" {
            self.reading()?;
        }
        match function {
            "state.get" => self.get(arguments.key()?),
            "state.put" => {
                let (key, value) = (arguments.key()?, arguments.stored()?);
                self.remember(&key)?;
                self.writing()?.put(&key, &value);
                Ok(Value::Nothing)
            }
            "state.delete" => {
                let key = arguments.key()?;
                self.remember(&key)?;
                self.writing()?.delete(&key);
                Ok(Value::Nothing)
            }
            "state.scan" => self.scan(&mut arguments),
            "timer.set" => {
                self.writing()?;
                let (name, at_ms) = (arguments.text()?, arguments.number()?);
                let payload = arguments.stored()?;
                if !(0.0..9e15).contains(&at_ms) {
                    return Err(error("invalid", "a timer needs a Date, or milliseconds"));
                }
                let set = Some(((at_ms * 1000.0) as u64, payload));
                self.timers.push(TimerChange { name, set });
                Ok(Value::Nothing)
            }
            "timer.cancel" => {
                self.writing()?;
                let name = arguments.text()?;
                // Timers planned by the handler itself are not set yet.
                let planned = self.timers.iter().rfind(|change| change.name == name);
                let was_set =
                    planned.map_or_else(|| timer::is_set(&name), |change| change.set.is_some());
                self.timers.push(TimerChange { name, set: None });
                Ok(Value::Bool(was_set))
            }
            "metrics.add" => {
                metrics::add(&arguments.text()?, arguments.number()?);
                Ok(Value::Nothing)
            }
            "metrics.set" => {
                metrics::set(&arguments.text()?, arguments.number()?);
                Ok(Value::Nothing)
            }
            "http.send" => {
                self.has_acted = true;
                http::send(&mut arguments)
            }
            "respond" => {
                self.answered = Some(arguments.answered()?);
                Ok(Value::Nothing)
            }
            "text" => Ok(Value::Text(String::from_utf8_lossy(&arguments.body()?).into_owned())),
            _ => match function.split_once('.') {
                Some(("kv", function)) => {
                    self.has_acted |= function != "get";
                    documents::call(function, &mut arguments)
                }
                Some(("query", function)) => {
                    self.has_acted = true;
                    queries::call(&mut self.queries, function, &mut arguments)
                }
                _ => Err(error("invalid", format!("no such function: {function}"))),
            },
        }
    }
}

impl Bridge {
    fn scan(&self, arguments: &mut Arguments) -> Result<Value, HostError> {
        let (start, end) = (arguments.text()?, arguments.text()?);
        let limit = arguments.number()? as u32;
        let (reverse, prefix) = (arguments.flag()?, arguments.text()?);
        let end = match (end.is_empty(), prefix.is_empty()) {
            (true, false) => successor(prefix.as_bytes()),
            _ => end.into_bytes(),
        };
        let entries = self.reading()?.scan(start.as_bytes(), &end, limit, reverse);
        let entry = |(key, value): Entry| {
            let key = String::from_utf8_lossy(&key).into_owned();
            Value::List(vec![Value::Text(key), shown(value)])
        };
        Ok(Value::List(entries.into_iter().map(entry).collect()))
    }
}

/// Converts a stored value for user code.
fn shown(mut stored: Vec<u8>) -> Value {
    match stored.first() {
        Some(&BYTES) => Value::Bytes(stored.split_off(1)),
        _ => match String::from_utf8(stored) {
            Ok(text) => Value::Json(text),
            Err(error) => Value::Bytes(error.into_bytes()),
        },
    }
}

/// Writes the log lines of the last call of `engine` to the deployment's log.
pub fn forward_log(engine: &mut Engine) {
    for line in engine.take_log() {
        nacre_plugin::log(&line);
    }
}
