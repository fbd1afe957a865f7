//! What the functions of `api.js` call: the capabilities of the plugin, and the state of the call at hand.

use nacre_js::{Host, HostError, HostValue as Value};
use nacre_plugin::{Entry, State, StateMut, http, kv, metrics, successor, timer};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// What a stored value begins with when it is bytes: no JSON does.
const BYTES: u8 = 0;
/// The media type of what is no JSON.
const TEXT: &str = "text/plain; charset=utf-8";

/// The state that a call was lent.
#[derive(Clone, Copy)]
enum Lent {
    Reading(NonNull<dyn State>),
    Writing(NonNull<dyn StateMut>),
}

/// What `handle` has answered.
#[derive(Default)]
pub struct Answered {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub has_more: bool,
}

/// What becomes of a timer: when it is due and what it gives, none when it is cancelled.
struct TimerChange {
    name: String,
    set: Option<(u64, Vec<u8>)>,
}

/// The host of a program.
#[derive(Default)]
pub struct Bridge {
    lent: Option<Lent>,
    /// What entries were before the handler at hand changed them.
    undo: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Timers to be set, or cancelled where there is none, once the handler has ended well.
    timers: Vec<TimerChange>,
    answered: Option<Answered>,
}

/// Lends a state for as long as it lives.
pub struct Loan<'a> {
    bridge: &'a std::cell::RefCell<Bridge>,
}

impl<'a> Loan<'a> {
    /// Lends a state to be changed. The loan must be dropped before `state` is used again, which its borrower sees to:
    /// it keeps both for the length of one call.
    pub fn writing(
        bridge: &'a std::cell::RefCell<Bridge>,
        state: &'a mut dyn StateMut,
    ) -> Loan<'a> {
        // SAFETY: only the lifetime changes, and the pointer is forgotten when the loan is dropped, within 'a.
        let state: NonNull<dyn StateMut> =
            unsafe { std::mem::transmute(NonNull::from(state) as NonNull<dyn StateMut + 'a>) };
        bridge.borrow_mut().lent = Some(Lent::Writing(state));
        Loan { bridge }
    }

    /// Lends a state to be read.
    pub fn reading(bridge: &'a std::cell::RefCell<Bridge>, state: &'a dyn State) -> Loan<'a> {
        // SAFETY: as for a state to be changed; nothing is written through a pointer to read.
        let state: NonNull<dyn State> =
            unsafe { std::mem::transmute(NonNull::from(state) as NonNull<dyn State + 'a>) };
        bridge.borrow_mut().lent = Some(Lent::Reading(state));
        Loan { bridge }
    }

    /// What a handler did is to stay.
    pub fn keep(&self) {
        let mut bridge = self.bridge.borrow_mut();
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

    /// What a handler did to the state is taken back.
    pub fn undo(&self) {
        let mut bridge = self.bridge.borrow_mut();
        bridge.timers.clear();
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

    /// What `handle` has answered since this was asked last.
    pub fn take_answer(&self) -> Option<Answered> {
        self.bridge.borrow_mut().answered.take()
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut bridge = self.bridge.borrow_mut();
        bridge.lent = None;
        bridge.undo.clear();
        bridge.timers.clear();
    }
}

fn error(code: &str, message: impl Into<String>) -> HostError {
    HostError { code: code.into(), message: message.into() }
}

impl Bridge {
    fn reading(&self) -> Result<&dyn State, HostError> {
        match self.lent {
            // SAFETY: the loan lives, and with it the state; `self` is borrowed, so that nobody changes it.
            Some(Lent::Reading(state)) => Ok(unsafe { state.as_ref() }),
            // SAFETY: the same.
            Some(Lent::Writing(state)) => Ok(unsafe { state.as_ref() }.reading()),
            None => Err(error("outside", "this can only be used while a handler runs")),
        }
    }

    fn writing(&mut self) -> Result<&mut dyn StateMut, HostError> {
        match &mut self.lent {
            // SAFETY: the loan lives, and with it the state; `self` is borrowed for writing, so that nobody else has it.
            Some(Lent::Writing(state)) => Ok(unsafe { state.as_mut() }),
            Some(Lent::Reading(_)) => Err(error("read-only", "handle cannot write to the state")),
            None => Err(error("outside", "this can only be used while a handler runs")),
        }
    }

    fn remember(&mut self, key: &[u8]) -> Result<(), HostError> {
        self.writing()?;
        if !self.undo.contains_key(key) {
            let old = self.reading()?.get(key);
            self.undo.insert(key.to_vec(), old);
        }
        Ok(())
    }
}

impl Host for Bridge {
    fn call(&mut self, function: &str, arguments: Vec<Value>) -> Result<Value, HostError> {
        let mut arguments = Arguments(arguments.into_iter());
        // What lies outside is as closed as the state while no handler runs.
        if function != "text" {
            self.reading()?;
        }
        match function {
            "state.get" => Ok(self.reading()?.get(&arguments.key()?).map_or(Value::Nothing, shown)),
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
                self.timers.push(TimerChange { name: arguments.text()?, set: None });
                Ok(Value::Nothing)
            }
            "metrics.add" => {
                metrics::add(&arguments.text()?, arguments.number()?);
                Ok(Value::Nothing)
            }
            "metrics.set" => {
                metrics::set(&arguments.text()?, arguments.number()?);
                Ok(Value::Nothing)
            }
            "http.send" => send(&mut arguments),
            "respond" => {
                self.answered = Some(arguments.answered()?);
                Ok(Value::Nothing)
            }
            "text" => Ok(Value::Text(String::from_utf8_lossy(&arguments.body()?).into_owned())),
            _ => match function.strip_prefix("kv.") {
                Some(function) => documents(function, &mut arguments),
                None => Err(error("invalid", format!("no such function: {function}"))),
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

/// A stored value as user code sees it.
fn shown(mut stored: Vec<u8>) -> Value {
    match stored.first() {
        Some(&BYTES) => Value::Bytes(stored.split_off(1)),
        _ => match String::from_utf8(stored) {
            Ok(text) => Value::Json(text),
            Err(error) => Value::Bytes(error.into_bytes()),
        },
    }
}

fn documents(function: &str, arguments: &mut Arguments) -> Result<Value, HostError> {
    let (keyspace, key) = (arguments.text()?, arguments.key()?);
    let cas = |arguments: &mut Arguments| match arguments.0.next() {
        None | Some(Value::Nothing) => Ok(None),
        Some(Value::Text(cas)) => {
            cas.parse().map(Some).map_err(|_| error("invalid", "a CAS is what kv gave as one"))
        }
        Some(_) => Err(error("invalid", "a CAS is what kv gave as one")),
    };
    let version = |cas: u64| Value::Text(cas.to_string());
    match function {
        "get" => match kv::get(&keyspace, &key) {
            Ok(found) => {
                let value = match (found.is_json, String::from_utf8(found.body)) {
                    (true, Ok(text)) => Value::Json(text),
                    (_, Ok(text)) => Value::Bytes(text.into_bytes()),
                    (_, Err(raw)) => Value::Bytes(raw.into_bytes()),
                };
                let (flags, expiry) = (f64::from(found.flags), f64::from(found.expiry));
                let cas = version(found.cas);
                Ok(Value::List(vec![cas, Value::Number(flags), Value::Number(expiry), value]))
            }
            Err(kv::Error::NotFound) => Ok(Value::Nothing),
            Err(other) => Err(kv_error(&other)),
        },
        "insert" | "upsert" | "replace" => {
            let mut body = arguments.stored()?;
            if body.first() == Some(&BYTES) {
                body.remove(0);
            }
            let (flags, expiry) = (arguments.number()? as u32, arguments.number()? as u32);
            let content = kv::Content { body, flags, expiry };
            let stored = match function {
                "insert" => kv::insert(&keyspace, &key, &content),
                "upsert" => kv::upsert(&keyspace, &key, &content),
                _ => kv::replace(&keyspace, &key, &content, cas(arguments)?),
            };
            stored.map(version).map_err(|error| kv_error(&error))
        }
        "remove" => {
            let removed = kv::remove(&keyspace, &key, cas(arguments)?);
            removed.map(version).map_err(|error| kv_error(&error))
        }
        "counter" => {
            let delta = arguments.number()? as i64;
            let (initial, expiry) = (arguments.number()? as u64, arguments.number()? as u32);
            let counted = kv::counter(&keyspace, &key, delta, Some(initial), expiry);
            let value = |counted: kv::Counted| Value::Number(counted.value as f64);
            counted.map(value).map_err(|error| kv_error(&error))
        }
        _ => Err(error("invalid", format!("no such function: kv.{function}"))),
    }
}

fn kv_error(cause: &kv::Error) -> HostError {
    let code = match cause {
        kv::Error::NotFound => "not-found",
        kv::Error::Exists => "exists",
        kv::Error::CasMismatch => "cas-mismatch",
        kv::Error::TooLarge => "too-large",
        kv::Error::Locked => "locked",
        kv::Error::Temporary(_) => "temporary",
        kv::Error::Denied(_) => "denied",
        kv::Error::Invalid(_) => "invalid",
    };
    error(code, cause.to_string())
}

fn send(arguments: &mut Arguments) -> Result<Value, HostError> {
    let (method, url) = (arguments.text()?, arguments.text()?);
    let body = arguments.body()?;
    let headers = arguments.headers()?;
    match http::send(http::Request { method, url, headers, body }) {
        Ok(http::Response { status, headers, body }) => {
            let names: serde_json::Map<String, serde_json::Value> =
                headers.into_iter().map(|(name, value)| (name, value.into())).collect();
            let text = String::from_utf8_lossy(&body).into_owned();
            Ok(Value::List(vec![
                Value::Number(f64::from(status)),
                Value::Text(serde_json::Value::Object(names).to_string()),
                Value::Bytes(body),
                Value::Text(text),
            ]))
        }
        Err(cause) => {
            let code = match &cause {
                http::Error::Denied(_) => "denied",
                http::Error::Timeout => "timeout",
                http::Error::TooLarge => "too-large",
                http::Error::Failed(_) => "failed",
            };
            Err(error(code, cause.to_string()))
        }
    }
}

/// The arguments of a call, in order.
struct Arguments(std::vec::IntoIter<Value>);

impl Arguments {
    fn text(&mut self) -> Result<String, HostError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(error("invalid", "expected a string")),
        }
    }

    fn key(&mut self) -> Result<Vec<u8>, HostError> {
        match self.text()? {
            key if key.is_empty() || key.len() > 65_536 => {
                Err(error("invalid", "a key has 1 to 65536 bytes"))
            }
            key => Ok(key.into_bytes()),
        }
    }

    fn number(&mut self) -> Result<f64, HostError> {
        match self.0.next() {
            Some(Value::Number(number)) => Ok(number),
            _ => Err(error("invalid", "expected a number")),
        }
    }

    fn flag(&mut self) -> Result<bool, HostError> {
        match self.0.next() {
            Some(Value::Bool(value)) => Ok(value),
            _ => Err(error("invalid", "expected true or false")),
        }
    }

    /// A value as it is kept: JSON text, or bytes behind a mark.
    fn stored(&mut self) -> Result<Vec<u8>, HostError> {
        match self.0.next() {
            Some(Value::Text(json)) => Ok(json.into_bytes()),
            Some(Value::Bytes(bytes)) => Ok([&[BYTES], &bytes[..]].concat()),
            _ => Err(error("invalid", "expected a value")),
        }
    }

    /// Text or bytes as they are.
    fn body(&mut self) -> Result<Vec<u8>, HostError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text.into_bytes()),
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(error("invalid", "a body is a string or a Uint8Array")),
        }
    }

    /// Names and values in turn, to the end.
    fn headers(&mut self) -> Result<Vec<(String, String)>, HostError> {
        let mut headers = Vec::new();
        while let Some(name) = self.0.next() {
            match name {
                Value::Text(name) => headers.push((name, self.text()?)),
                _ => return Err(error("invalid", "a header has a name")),
            }
        }
        Ok(headers)
    }

    fn answered(&mut self) -> Result<Answered, HostError> {
        let status = self.number()?;
        if !(100.0..600.0).contains(&status) {
            return Err(error("invalid", format!("{status} is no status")));
        }
        let (body, has_more) = (self.body()?, self.flag()?);
        let mut headers = self.headers()?;
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".into(), TEXT.into()));
        }
        Ok(Answered { status: status as u16, headers, body, has_more })
    }
}
