//! The engine: a runtime, its context, and the functions compiled in it.

use crate::builtins::{self, Emitted, Outbox, json_text};
use crate::document::{self, Document};
use crate::error::position;
use crate::{Error, Limits, clock, json};
use rquickjs::context::EvalOptions;
use rquickjs::function::Args;
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument<'a> {
    /// A value given as JSON text.
    Json(&'a str),
    /// The document that [`Engine::set_document`] was given.
    Document,
    /// A string.
    Text(&'a str),
    /// true or false.
    Bool(bool),
    /// null.
    Null,
}

/// A function compiled in one engine; of no use in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId(usize);

struct Compiled {
    name: String,
    function: Persistent<Function<'static>>,
}

/// A JavaScript engine with the functions compiled in it.
pub struct Engine {
    // Fields are dropped in order, and QuickJS insists on losing its values before its runtime.
    functions: Vec<Compiled>,
    lazy: Persistent<Function<'static>>,
    context: Context,
    runtime: Runtime,
    outbox: Rc<RefCell<Outbox>>,
    document: Rc<RefCell<Document>>,
    steps_left: Rc<Cell<u32>>,
    limits: Limits,
}

impl Engine {
    /// An engine without functions.
    ///
    /// # Errors
    /// [`Error::Engine`] when `limits.memory_bytes` does not hold an empty engine.
    pub fn new(limits: Limits) -> Result<Engine, Error> {
        let failed = |error: rquickjs::Error| Error::Engine(error.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(limits.memory_bytes);
        runtime.set_max_stack_size(limits.stack_bytes);
        let steps_left = Rc::new(Cell::new(limits.steps_max));
        let budget = Rc::clone(&steps_left);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            budget.set(budget.get().saturating_sub(Limits::STEPS_COUNTED_AT_ONCE));
            budget.get() == 0
        })));
        let context = Context::full(&runtime).map_err(failed)?;
        let outbox = Rc::new(RefCell::new(Outbox::default()));
        let document = Rc::new(RefCell::new(Document::default()));
        let lazy = context
            .with(|ctx| {
                builtins::install(&ctx, limits, &outbox)?;
                document::install(&ctx, &document)
            })
            .map_err(failed)?;
        Ok(Engine {
            functions: Vec::new(),
            lazy,
            context,
            runtime,
            outbox,
            document,
            steps_left,
            limits,
        })
    }

    /// Sets the time that `Date` shows, in microseconds since the Unix epoch.
    pub fn set_now(&mut self, now_us: u64) {
        clock::set(now_us);
    }

    /// Sets what [`Argument::Document`] stands for, as JSON text. Each call gets a copy of its own, decoded as far
    /// as it is looked at.
    ///
    /// # Errors
    /// [`Error::Limit`] when it nests too deep. Text that is not JSON is an error of the call.
    pub fn set_document(&mut self, text: &str) -> Result<(), Error> {
        self.check_depth(text)?;
        self.document.borrow_mut().replace(text);
        Ok(())
    }

    /// Compiles the text of a function. `name` appears in stack traces.
    ///
    /// # Errors
    /// [`Error::Syntax`] when `source` is not the text of one function.
    pub fn compile(&mut self, name: &str, source: &str) -> Result<FunctionId, Error> {
        self.begin();
        // In parentheses, so that a function without a name is an expression; on a line of their own behind the
        // text, because that may end with a comment.
        let text = format!("({}\n)", source.trim_end().trim_end_matches(';'));
        let function = self.context.with(|ctx| {
            let mut options = EvalOptions::default();
            options.strict = false;
            options.filename = Some(name.to_owned());
            let value: Value<'_> = match ctx.eval_with_options(text, options) {
                Ok(value) => value,
                Err(error) => {
                    let (message, position) = describe(&ctx, error, name);
                    return Err(Error::Syntax { message, position });
                }
            };
            match value.into_function() {
                Some(function) => Ok(Persistent::save(&ctx, function)),
                None => {
                    let message =
                        "expected the text of a function, such as function (doc, meta) { … }";
                    Err(Error::Syntax { message: message.into(), position: None })
                }
            }
        })?;
        self.functions.push(Compiled { name: name.to_owned(), function });
        Ok(FunctionId(self.functions.len() - 1))
    }

    /// Calls a function; gives its result as JSON, or none when JSON cannot say it (`undefined`).
    ///
    /// # Errors
    /// [`Error::Thrown`], [`Error::Steps`] or [`Error::Limit`]. The engine is good for further calls.
    pub fn call(
        &mut self,
        function: FunctionId,
        arguments: &[Argument<'_>],
    ) -> Result<Option<String>, Error> {
        self.run(function, arguments, |ctx, result| match result.is_undefined() {
            true => Ok(None),
            false => json_text(ctx, Some(result)).map(Some),
        })
    }

    /// Calls a function for what it emits; its result is dropped.
    ///
    /// # Errors
    /// As for [`Engine::call`]. What was emitted before the error is dropped.
    pub fn call_for_emitted(
        &mut self,
        function: FunctionId,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Emitted>, Error> {
        self.run(function, arguments, |_, _| Ok(None))?;
        Ok(self.take_emitted())
    }

    /// What the last call emitted.
    pub fn take_emitted(&mut self) -> Vec<Emitted> {
        std::mem::take(&mut self.outbox.borrow_mut().emitted)
    }

    /// What the last call logged.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.outbox.borrow_mut().log)
    }

    /// Bytes on the heap of the engine.
    pub fn memory_bytes(&self) -> u64 {
        self.runtime.memory_usage().malloc_size.unsigned_abs()
    }

    /// A new budget and an empty outbox.
    fn begin(&mut self) {
        self.steps_left.set(self.limits.steps_max);
        *self.outbox.borrow_mut() = Outbox::default();
    }

    fn run(
        &mut self,
        function: FunctionId,
        arguments: &[Argument<'_>],
        finish: impl for<'js> FnOnce(&Ctx<'js>, Value<'js>) -> rquickjs::Result<Option<String>>,
    ) -> Result<Option<String>, Error> {
        self.begin();
        for argument in arguments {
            if let Argument::Json(text) = argument {
                self.check_depth(text)?;
            }
        }
        let compiled = self.functions.get(function.0);
        let compiled = compiled.ok_or_else(|| Error::Engine("no such function".into()))?;
        let outcome = self.context.with(|ctx| {
            let result =
                self.call_in(&ctx, compiled, arguments).and_then(|value| finish(&ctx, value));
            result.map_err(|error| describe(&ctx, error, &compiled.name))
        });
        if let Some(passed) = self.outbox.borrow_mut().passed.take() {
            return Err(passed);
        }
        match outcome {
            Err(_) if self.steps_left.get() == 0 => Err(Error::Steps(self.limits.steps_max)),
            Err((message, position)) => Err(Error::Thrown { message, position }),
            Ok(Some(result)) if result.len() > self.limits.result_bytes_max => {
                let limit = self.limits.result_bytes_max;
                Err(Error::Limit(format!("result of {} bytes: the limit is {limit}", result.len())))
            }
            Ok(result) => Ok(result),
        }
    }

    fn call_in<'js>(
        &self,
        ctx: &Ctx<'js>,
        compiled: &Compiled,
        arguments: &[Argument<'_>],
    ) -> rquickjs::Result<Value<'js>> {
        let function = compiled.function.clone().restore(ctx)?;
        let mut values = Args::new(ctx.clone(), arguments.len());
        for argument in arguments {
            match *argument {
                Argument::Json(text) => values.push_arg(ctx.json_parse(text)?)?,
                Argument::Document => values.push_arg(self.document_in(ctx)?)?,
                Argument::Text(text) => values.push_arg(text)?,
                Argument::Bool(value) => values.push_arg(value)?,
                Argument::Null => values.push_arg(Value::new_null(ctx.clone()))?,
            }
        }
        function.call_arg(values)
    }

    fn document_in<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        let lazy = self.document.borrow().lazy();
        match lazy {
            Some(generation) => self.lazy.clone().restore(ctx)?.call((generation,)),
            None => ctx.json_parse(self.document.borrow().text()),
        }
    }

    fn check_depth(&self, text: &str) -> Result<(), Error> {
        let limit = self.limits.json_depth_max;
        match json::depth(text.as_bytes()) > limit {
            true => Err(Error::Limit(format!("JSON nests deeper than {limit} levels"))),
            false => Ok(()),
        }
    }
}

/// What an error says, and where in the text called `name` it was made.
fn describe(
    ctx: &Ctx<'_>,
    error: rquickjs::Error,
    name: &str,
) -> (String, Option<crate::Position>) {
    if !matches!(error, rquickjs::Error::Exception) {
        return (error.to_string(), None);
    }
    let thrown = ctx.catch();
    let described = match thrown.as_object() {
        Some(object) if object.is_error() => exception(object, name),
        _ => json_text(ctx, Some(thrown)).map(|text| (format!("uncaught {text}"), None)),
    };
    // What was thrown may throw again when it is looked at.
    described.unwrap_or_else(|_| {
        ctx.catch();
        ("uncaught exception".into(), None)
    })
}

fn exception(
    object: &Object<'_>,
    name: &str,
) -> rquickjs::Result<(String, Option<crate::Position>)> {
    let kind: Option<String> = object.get("name")?;
    let message: Option<String> = object.get("message")?;
    let stack: Option<String> = object.get("stack")?;
    let text =
        format!("{}: {}", kind.unwrap_or_else(|| "Error".into()), message.unwrap_or_default());
    Ok((text, stack.and_then(|stack| position(&stack, name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> Engine {
        Engine::new(Limits::default()).unwrap()
    }

    fn eval(source: &str) -> String {
        let mut engine = engine();
        let function = match engine.compile("code", source) {
            Ok(function) => function,
            Err(error) => return format!("cannot compile: {error}"),
        };
        match engine.call(function, &[]) {
            Ok(result) => result.unwrap_or_else(|| "undefined".into()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn functions_may_be_written_in_every_form() {
        for source in [
            "function (a) { return 7 }",
            "function named(a) { return 7; };\n",
            "(a) => 7",
            "a => { return 7 } // the end",
            "/* first */ function () { seven = 7; return seven }",
        ] {
            assert_eq!(eval(source), "7", "{source}");
        }
    }

    #[test]
    fn errors_name_the_place_in_the_text() {
        let cases = [
            "function (doc) {",
            "function (doc) {\n  return doc.a.b;\n}",
            "() => nowhere",
            "() => { throw new RangeError('too far') }",
            "() => { throw {code: 3} }",
            "1 + 1",
            "() => { const o = {}; o.o = o; return o }",
            "() => 10n",
        ];
        let lines: Vec<_> = cases
            .iter()
            .map(|case| format!("{}\n    {}", case.replace('\n', "⏎"), eval(case)))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        function (doc) {
            cannot compile: SyntaxError: unexpected token in expression: ')' (line 2, column 1)
        function (doc) {⏎  return doc.a.b;⏎}
            TypeError: cannot read property 'a' of undefined (line 2, column 10)
        () => nowhere
            ReferenceError: nowhere is not defined (line 1, column 7)
        () => { throw new RangeError('too far') }
            RangeError: too far (line 1, column 19)
        () => { throw {code: 3} }
            uncaught {"code":3}
        1 + 1
            cannot compile: expected the text of a function, such as function (doc, meta) { … }
        () => { const o = {}; o.o = o; return o }
            TypeError: circular reference
        () => 10n
            TypeError: BigInt are forbidden in JSON.stringify
        "#);
    }

    #[test]
    fn builtins_do_what_views_expect_of_them() {
        assert_eq!(eval("() => sum([1, 2, 3.5])"), "6.5");
        assert_eq!(eval("() => dateToArray('2023-11-14T22:13:20Z')"), "[2023,11,14,22,13,20]");
        assert_eq!(eval("() => dateToArray('no date')"), "null");
        assert_eq!(eval("() => decodeBase64('SGk=')"), "[72,105]");
        assert_eq!(eval("() => decodeBase64('/+8')"), "[255,239]");
        assert_eq!(eval("() => typeof performance"), r#""undefined""#);
    }

    #[test]
    fn time_and_chance_come_from_outside() {
        let mut engine = engine();
        engine.set_now(1_700_000_000_000_000);
        let source = "() => [Date.now(), new Date().getTime(), new Date(5).getTime(), new Date(0) instanceof Date]";
        let function = engine.compile("code", source).unwrap();
        let result = engine.call(function, &[]).unwrap().unwrap();
        assert_eq!(result, "[1700000000000,1700000000000,5,true]");
        assert!(eval("() => Math.random()").starts_with("Error: Math.random is not available"));
    }

    #[test]
    fn emitted_pairs_are_collected_as_json() {
        let mut engine = engine();
        let source = "function (doc) { emit([doc.a, undefined], null); emit('k'); emit() }";
        let map = engine.compile("map", source).unwrap();
        let emitted = engine.call_for_emitted(map, &[Argument::Json(r#"{"a":1}"#)]).unwrap();
        let emitted: Vec<_> = emitted.iter().map(|e| (&e.key[..], &e.value[..])).collect();
        assert_eq!(emitted, [("[1,null]", "null"), (r#""k""#, "null"), ("null", "null")]);
    }

    #[test]
    fn log_lines_are_collected_and_bounded() {
        let mut engine = engine();
        let source = "() => { log('a', 1, {b: [2]}); for (let i = 0; i < 1e4; i++) log(i) }";
        let function = engine.compile("code", source).unwrap();
        engine.call(function, &[]).unwrap();
        let log = engine.take_log();
        assert_eq!((&log[0][..], log.len()), (r#"a 1 {"b":[2]}"#, 100));
    }

    /// Each attack ends in a named error, and the engine answers the next call as if nothing had happened.
    #[test]
    fn attacks_are_contained_and_named() {
        let cases = [
            ("endless loop", "() => { while (true) {} }"),
            (
                "endless loop that catches",
                "() => { for (;;) { try { for (;;) {} } catch (e) {} } }",
            ),
            ("endless recursion", "function f() { return f() + 1 }"),
            (
                "array without end",
                "() => { const a = []; for (;;) a.push('x'.repeat(1e6) + a.length) }",
            ),
            ("string of a gigabyte", "() => 'x'.repeat(1e9).length"),
            ("string doubling", "() => { let s = 'x'; for (;;) s += s }"),
            ("large typed array", "() => new Uint8Array(1e9).length"),
            ("backtracking", "() => /^(a+)+$/.test('a'.repeat(40) + 'b')"),
            ("large emit", "() => emit('k', 'x'.repeat(1e7))"),
            ("large emit, caught", "() => { try { emit('k', 'x'.repeat(1e7)) } catch (e) {} }"),
            ("large key", "() => emit('x'.repeat(5000))"),
            ("large result", "() => 'x'.repeat(1e6)"),
            ("deep value", "() => { let v = 1; for (let i = 0; i < 1e5; i++) v = [v]; return v }"),
        ];
        let mut engine = engine();
        let well = engine.compile("well", "() => 'well'").unwrap();
        let mut lines = Vec::new();
        for (name, source) in cases {
            let function = engine.compile("code", source).unwrap();
            let error = engine.call(function, &[]).unwrap_err();
            lines.push(format!("{name}: {error}"));
            assert_eq!(
                engine.call(well, &[]).unwrap().as_deref(),
                Some(r#""well""#),
                "after {name}"
            );
        }
        insta::assert_snapshot!(lines.join("\n"), @"
        endless loop: stopped after 10000000 steps: a loop that does not end?
        endless loop that catches: stopped after 10000000 steps: a loop that does not end?
        endless recursion: RangeError: Maximum call stack size exceeded (line 1, column 22)
        array without end: InternalError: out of memory (line 1, column 42)
        string of a gigabyte: InternalError: out of memory (line 1, column 10)
        string doubling: InternalError: string too long (line 1, column 36)
        large typed array: InternalError: out of memory (line 1, column 11)
        backtracking: stopped after 10000000 steps: a loop that does not end?
        large emit: emitted more than 1048576 bytes for one document
        large emit, caught: emitted more than 1048576 bytes for one document
        large key: emitted key of 5002 bytes: the limit is 4096
        large result: result of 1000002 bytes: the limit is 65536
        deep value: RangeError: Maximum call stack size exceeded
        ");
    }

    #[test]
    fn deep_arguments_are_refused_before_they_are_parsed() {
        let mut engine = engine();
        let function = engine.compile("code", "(v) => 1").unwrap();
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let error = engine.call(function, &[Argument::Json(&deep)]).unwrap_err();
        assert_eq!(error.to_string(), "JSON nests deeper than 512 levels");
    }

    /// What a function makes of a document, as text, errors included.
    fn told(engine: &mut Engine, source: &str, document: Argument<'_>) -> String {
        let function = engine.compile("code", source).unwrap();
        match engine.call(function, &[document]) {
            Ok(result) => result.unwrap_or_else(|| "undefined".into()),
            Err(error) => error.to_string(),
        }
    }

    /// A document decoded as it is looked at is the document decoded at once, whatever is done with it.
    #[test]
    fn lazy_documents_cannot_be_told_from_eager_ones() {
        let documents = [
            "{}",
            r#"{"a":1,"b":[1,{"c":null}],"s":"text"}"#,
            r#"{"b":2,"a":1,"10":"ten","9":"nine"}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"__proto__":{"x":1},"a":1}"#,
            r#"{"constructor":1,"hasOwnProperty":2,"toString":3,"a":0}"#,
            r#"{"a":null,"b":false,"s":"","n":-0}"#,
            r#"  {"a" : "\ud83d\ude00é" , "\u0061b" : 1e3 } "#,
            r#"{"a":"\ud800"}"#,
            r#"{"\ud800":1}"#,
            r#"{"a":{"toJSON":1},"toJSON":2}"#,
            r#"{"length":3,"0":"x"}"#,
            "[1,2]",
            "null",
            r#""text""#,
            "{",
            r#"{"a":01}"#,
            r#"{"a":1} x"#,
        ];
        let sources = [
            "d => d",
            "d => d.a",
            "d => [d.a, d.a, d.b, d.missing]",
            "d => [d.s, Object.keys(d)]",
            "d => { d.a; return JSON.stringify(d) }",
            "d => { const k = []; for (const n in d) k.push(n, d[n]); return k }",
            "d => 'a' in d",
            "d => d.hasOwnProperty('a')",
            "d => Object.hasOwn(d, 'toString')",
            "d => { d.a = 5; d.z = 6; return [d.a, Object.entries(d)] }",
            "d => { delete d.a; return [d.a, d] }",
            "d => { d.b; delete d.b; return d.b }",
            "d => { const e = {...d, x: 1}; return e }",
            "d => { const {a, ...rest} = d; return [a, rest] }",
            "d => Object.assign({}, d)",
            "d => [typeof d, Array.isArray(d), d instanceof Object, d.constructor === Object]",
            "d => String(d)",
            "d => Object.prototype.toString.call(d)",
            "d => d.a === d.a && d.b === d.b",
            "d => { d.b.push(9); return d.b }",
            "d => Object.getOwnPropertyDescriptor(d, 'a')",
            "d => { Object.freeze(d); 'use strict'; d.a = 9; return [d, Object.isFrozen(d)] }",
            "d => { Object.defineProperty(d, 'a', {value: 7}); return [d.a, Object.keys(d)] }",
            "d => Object.getPrototypeOf(d) === Object.prototype",
            "d => { Object.setPrototypeOf(d, {p: 1}); return [d.p, d.a] }",
            "d => { const e = Object.create(d); return [e.a, Object.keys(e)] }",
            "d => { d.self = d; return d.self === d }",
            "d => d[Symbol.iterator]",
            "d => d['\\ud800']",
            "d => [...d]",
            "d => d.__proto__",
            "d => Object.keys(d).map(k => d[k]).concat(Object.values(d))",
            "function (d) { with (d) { return a } }",
        ];
        let mut engine = engine();
        for document in documents {
            for source in sources {
                let eager = told(&mut engine, source, Argument::Json(document));
                engine.set_document(document).unwrap();
                let lazy = told(&mut engine, source, Argument::Document);
                assert_eq!(lazy, eager, "{source} of {document}");
            }
        }
    }

    #[test]
    fn each_call_has_a_document_of_its_own() {
        let mut engine = engine();
        engine.set_document(r#"{"list":[2,1]}"#).unwrap();
        let source = "d => { d.list.sort(); d.more = d.more || 0; d.more++; return d }";
        let function = engine.compile("code", source).unwrap();
        for _ in 0..2 {
            let result = engine.call(function, &[Argument::Document]).unwrap().unwrap();
            assert_eq!(result, r#"{"list":[1,2],"more":1}"#);
        }
    }

    #[test]
    fn documents_do_not_outlive_their_call() {
        let mut engine = engine();
        let keep = engine.compile("keep", "d => { kept = d; return d.a }").unwrap();
        let use_again = engine.compile("again", "() => [kept.a, kept.b]").unwrap();
        engine.set_document(r#"{"a":1,"b":2}"#).unwrap();
        engine.call(keep, &[Argument::Document]).unwrap();
        engine.set_document(r#"{"a":3,"b":4}"#).unwrap();
        let error = engine.call(use_again, &[]).unwrap_err().to_string();
        assert!(error.contains("used after the call"), "{error}");
    }
}
