//! The global scope of user code in addition to the language.

use crate::{Error, Limits, quote};
use rquickjs::function::{Func, Opt, Rest};
use rquickjs::{Coerced, Ctx, Exception, Result, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// The arguments of one `emit(key, value)`, both as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The key; `null` if it was omitted.
    pub key: String,
    /// The value; `null` if it was omitted.
    pub value: String,
}

/// The output of a call other than its result.
#[derive(Default)]
pub(crate) struct Outbox {
    pub emitted: Vec<Emitted>,
    pub emitted_bytes: usize,
    pub log: Vec<String>,
    /// A limit that was exceeded. It ends the call even if user code catches the exception.
    pub passed: Option<Error>,
}

/// Maximum number of log lines kept of one call; further ones are dropped.
const LOG_LINES_MAX: usize = 100;
/// Maximum number of characters kept of a log line.
const LOG_LINE_CHARS_MAX: usize = 1000;

const PRELUDE: &str = r#"
globalThis.sum = function sum(values) {
    let total = 0;
    for (let i = 0; i < values.length; i++) total += values[i];
    return total;
};
globalThis.dateToArray = function dateToArray(date) {
    const d = date instanceof Date ? date : new Date(date);
    if (!isFinite(d.getTime())) return null;
    return [d.getUTCFullYear(), d.getUTCMonth() + 1, d.getUTCDate(),
            d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds()];
};
globalThis.decodeBase64 = function decodeBase64(text) {
    const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const bytes = [];
    let bits = 0, held = 0;
    for (const c of String(text).replace(/=+$/, "")) {
        const digit = digits.indexOf(c);
        if (digit < 0) throw new TypeError("decodeBase64: not base64: " + JSON.stringify(c));
        held = (held << 6 | digit) & 0xffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            bytes.push(held >> bits & 0xff);
        }
    }
    return bytes;
};
Math.random = function random() {
    throw new Error("Math.random is not available: results must not depend on chance");
};
delete globalThis.performance;
"#;

/// Replaces the clock: outside of the sandbox, the engine would read the clock of the machine.
#[cfg(not(target_arch = "wasm32"))]
const CLOCK: &str = r#"
(function (now) {
    globalThis.Date = new Proxy(Date, {
        construct: (target, args, type) => Reflect.construct(target, args.length ? args : [now()], type),
        apply: (target) => new target(now()).toString(),
        get: (target, name) => name === "now" ? now : target[name],
    });
})
"#;

pub(crate) fn install(ctx: &Ctx<'_>, limits: Limits, outbox: &Rc<RefCell<Outbox>>) -> Result<()> {
    let globals = ctx.globals();
    ctx.eval::<(), _>(PRELUDE)?;
    #[cfg(not(target_arch = "wasm32"))]
    {
        let replace: rquickjs::Function<'_> = ctx.eval(CLOCK)?;
        replace.call::<_, ()>((rquickjs::Function::new(ctx.clone(), crate::clock::now_ms)?,))?;
    }
    let sink = Rc::clone(outbox);
    globals.set("emit", Func::from(emit_into(limits, sink)))?;
    let sink = Rc::clone(outbox);
    globals.set("log", Func::from(log_into(sink)))?;
    Ok(())
}

fn emit_into(
    limits: Limits,
    outbox: Rc<RefCell<Outbox>>,
) -> impl for<'js> Fn(Ctx<'js>, Opt<Value<'js>>, Opt<Value<'js>>) -> Result<()> {
    move |ctx, key, value| {
        let key = json_text(&ctx, key.0)?;
        let value = json_text(&ctx, value.0)?;
        let mut outbox = outbox.borrow_mut();
        outbox.emitted_bytes = outbox.emitted_bytes.saturating_add(key.len() + value.len());
        let passed = if key.len() > limits.emit_key_bytes_max {
            Some(format!(
                "emitted key of {} bytes: the limit is {}",
                key.len(),
                limits.emit_key_bytes_max
            ))
        } else if outbox.emitted_bytes > limits.emit_bytes_max {
            Some(format!("emitted more than {} bytes for one document", limits.emit_bytes_max))
        } else {
            None
        };
        if let Some(message) = passed {
            outbox.passed = Some(Error::Limit(message.clone()));
            return Err(Exception::throw_range(&ctx, &message));
        }
        outbox.emitted.push(Emitted { key, value });
        Ok(())
    }
}

fn log_into(
    outbox: Rc<RefCell<Outbox>>,
) -> impl for<'js> Fn(Ctx<'js>, Rest<Value<'js>>) -> Result<()> {
    move |ctx, parts| {
        let mut line = String::new();
        for (index, part) in parts.0.into_iter().enumerate() {
            if index > 0 {
                line.push(' ');
            }
            match part.is_object() {
                true => line.push_str(&json_text(&ctx, Some(part))?),
                false => line.push_str(&part.get::<Coerced<String>>()?.0),
            }
        }
        let mut outbox = outbox.borrow_mut();
        if outbox.log.len() < LOG_LINES_MAX {
            outbox.log.push(line.chars().take(LOG_LINE_CHARS_MAX).collect());
        }
        Ok(())
    }
}

/// Returns `value` as JSON; values that JSON lacks (undefined, a function) become `null`.
pub(crate) fn json_text<'js>(ctx: &Ctx<'js>, value: Option<Value<'js>>) -> Result<String> {
    let Some(value) = value else { return Ok("null".into()) };
    // Most emitted values are simple, and the general conversion takes a microsecond in the sandbox.
    if value.is_null() || value.is_undefined() {
        return Ok("null".into());
    }
    if let Some(number) = value.as_int() {
        return Ok(number.to_string());
    }
    // A string with a lone surrogate is not a valid Rust string; the general conversion escapes it.
    if let Some(Ok(text)) = value.as_string().map(rquickjs::String::to_string) {
        let mut quoted = String::with_capacity(text.len() + 2);
        quote(&text, &mut quoted);
        return Ok(quoted);
    }
    match ctx.json_stringify(value)? {
        Some(text) => text.to_string().map(with_whole_characters),
        None => Ok("null".into()),
    }
}

/// Returns JSON in which lone surrogates are replaced, because most software cannot read them.
fn with_whole_characters(json: String) -> String {
    // Complete characters are not escaped, so an escaped surrogate is a lone one.
    let mut out = String::new();
    let mut rest = &json[..];
    while let Some(at) = rest.find("\\") {
        let (before, escape) = rest.split_at(at);
        let bytes = escape.as_bytes();
        let is_half = bytes.len() >= 6
            && bytes[1] == b'u'
            && bytes[2].eq_ignore_ascii_case(&b'd')
            && matches!(bytes[3].to_ascii_lowercase(), b'8' | b'9' | b'a'..=b'f');
        let length = if is_half { 6 } else { 2 };
        out.push_str(before);
        out.push_str(if is_half { "\\ufffd" } else { &escape[..length] });
        rest = &escape[length..];
    }
    if out.is_empty() {
        return json;
    }
    out.push_str(rest);
    out
}
