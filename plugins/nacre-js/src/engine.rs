//! The engine: a runtime, its context, and the functions compiled in it.

use crate::builtins::{self, Emitted, Outbox, json_text};
use crate::document::{self, Document};
use crate::error::{ErrorPosition, Place, position};
use crate::modules::{Modules, Texts};
use crate::{Error, Limits, clock, json};
use rquickjs::context::EvalOptions;
use rquickjs::function::Args;
use rquickjs::{Context, Ctx, Exception, Function, Object, Persistent, Runtime, TypedArray, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument<'a> {
    /// A value given as JSON text.
    Json(&'a str),
    /// The document that was set with [`Engine::set_document`].
    Document,
    /// A string.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// The result of a function for some arguments: avoids the JSON parser for a small object of known shape.
    Made(FunctionId, &'a [Argument<'a>]),
    /// true or false.
    Bool(bool),
    /// null.
    Null,
    /// undefined.
    Undefined,
    /// A `Uint8Array`.
    Bytes(&'a [u8]),
    /// A function.
    Function(FunctionId),
}

/// Steps charged for a promise job in addition to those of its code.
const STEPS_OF_A_JOB: u32 = 1000;

/// A function compiled in one engine; not valid in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId(pub(crate) usize);

/// The message if a call would run pending work of another call.
const LEFT_OVER: &str = "jobs of an earlier call are still pending: create a new engine";

/// The message for an ID from another engine.
const NO_SUCH_FUNCTION: &str = "no such function in this engine";

pub(crate) struct Compiled {
    pub name: String,
    pub function: Persistent<Function<'static>>,
    /// Its text; `None` if it is part of a file.
    pub source: Option<String>,
}

/// Returns true once the time of a call is over.
type Watch = Rc<RefCell<Option<Box<dyn Fn() -> bool>>>>;

/// A JavaScript engine with the functions compiled in it.
pub struct Engine {
    // Fields are dropped in order, and QuickJS requires that its values are dropped before its runtime.
    pub(crate) functions: Vec<Compiled>,
    /// The prototype of handlers for documents that are decoded when read.
    lazy: Persistent<Object<'static>>,
    pub(crate) context: Context,
    runtime: Runtime,
    outbox: Rc<RefCell<Outbox>>,
    document: Rc<RefCell<Document>>,
    steps_left: Rc<Cell<u32>>,
    /// True if a call has ended while its promise was pending: settling it could continue the call within another one.
    is_waiting: Cell<bool>,
    watch: Watch,
    is_late: Rc<Cell<bool>>,
    pub(crate) limits: Limits,
    /// The file that was loaded last.
    pub(crate) program: Option<String>,
    /// The modules that it may import.
    pub(crate) modules: Texts,
}

impl Engine {
    /// Creates an engine without functions.
    ///
    /// # Errors
    /// [`Error::Engine`] if `limits.memory_bytes` is too small for an empty engine.
    pub fn new(limits: Limits) -> Result<Engine, Error> {
        let failed = |error: rquickjs::Error| Error::Engine(error.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(limits.memory_bytes);
        runtime.set_max_stack_size(limits.stack_bytes);
        let steps_left = Rc::new(Cell::new(limits.steps_max));
        let (watch, is_late) = (Watch::default(), Rc::new(Cell::new(false)));
        let (budget, clock, late) = (Rc::clone(&steps_left), watch.clone(), is_late.clone());
        runtime.set_interrupt_handler(Some(Box::new(move || {
            budget.set(budget.get().saturating_sub(Limits::STEPS_COUNTED_AT_ONCE));
            if clock.borrow().as_ref().is_some_and(|is_over| is_over()) {
                late.set(true);
            }
            late.get() || budget.get() == 0
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
            is_waiting: Cell::new(false),
            watch,
            is_late,
            limits,
            program: None,
            modules: Texts::default(),
        })
    }

    /// Sets a function that is called every [`Limits::STEPS_COUNTED_AT_ONCE`] steps, also within regular expressions. When it
    /// returns true, the call ends with [`Error::Late`].
    pub fn set_watch(&mut self, is_over: impl Fn() -> bool + 'static) {
        *self.watch.borrow_mut() = Some(Box::new(is_over));
    }

    /// Sets the modules that subsequently loaded files may import, by names such as `./lib.js`.
    pub fn set_modules(&mut self, modules: BTreeMap<String, String>) {
        self.modules = Rc::new(modules);
        let (resolver, loader) = (Modules(self.modules.clone()), Modules(self.modules.clone()));
        self.runtime.set_loader(resolver, loader);
    }

    /// Sets the time that `Date` shows, in microseconds since the Unix epoch.
    pub fn set_now(&mut self, now_us: u64) {
        clock::set(now_us);
    }

    /// Sets the value of [`Argument::Document`], as JSON text. Each call gets a separate copy, decoded as far as it is read.
    ///
    /// # Errors
    /// [`Error::Limit`] if it nests too deeply. Invalid JSON is an error of the call.
    pub fn set_document(&mut self, text: &str) -> Result<(), Error> {
        let depth = self.document.borrow_mut().replace(text);
        self.check_depth(depth)
    }

    /// Compiles the text of a function. `name` appears in stack traces.
    ///
    /// # Errors
    /// [`Error::Syntax`] if `source` is not the text of one function.
    pub fn compile(&mut self, name: &str, source: &str) -> Result<FunctionId, Error> {
        self.begin()?;
        // The parentheses make a function without a name an expression; the closing one is on a separate line because the
        // text may end with a comment.
        let text = format!("({}\n)", source.trim_end().trim_end_matches(';'));
        let function = self.context.with(|ctx| {
            let mut options = EvalOptions::default();
            options.strict = false;
            options.filename = Some(name.to_owned());
            let value: Value<'_> = match ctx.eval_with_options(text, options) {
                Ok(value) => value,
                Err(error) => {
                    let place = Place { file: name, modules: &self.modules, is_wrapped: true };
                    let ErrorDescription { message, position, .. } = describe(&ctx, error, place);
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
        let (name, source) = (name.to_owned(), Some(source.to_owned()));
        self.functions.push(Compiled { name, function, source });
        Ok(FunctionId(self.functions.len() - 1))
    }

    /// Calls a function. Returns its result as JSON, or `None` if JSON cannot represent it (`undefined`).
    ///
    /// # Errors
    /// [`Error::Thrown`], [`Error::Steps`] or [`Error::Limit`]. The engine can be used for further calls if it [is
    /// settled](Engine::is_settled); otherwise they fail with [`Error::Engine`].
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

    /// Calls a function for its emitted values; its result is dropped.
    ///
    /// # Errors
    /// As for [`Engine::call`]. Values emitted before the error are dropped.
    pub fn call_for_emitted(
        &mut self,
        function: FunctionId,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Emitted>, Error> {
        self.run(function, arguments, |_, _| Ok(None))?;
        Ok(self.take_emitted())
    }

    /// Returns the values that the last call emitted.
    pub fn take_emitted(&mut self) -> Vec<Emitted> {
        std::mem::take(&mut self.outbox.borrow_mut().emitted)
    }

    /// Returns the lines that the last call logged.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.outbox.borrow_mut().log)
    }

    /// Returns the steps of the last call, in units of [`Limits::STEPS_COUNTED_AT_ONCE`].
    pub fn steps(&self) -> u32 {
        self.limits.steps_max.saturating_sub(self.steps_left.get())
    }

    /// Returns true if no work of an earlier call is pending. Such work would run in a later call and be charged to it, so
    /// the later call is refused. Only programs whose call has failed leave pending work; their owner must then create a new
    /// engine.
    pub fn is_settled(&self) -> bool {
        !self.runtime.is_job_pending() && !self.is_waiting.get()
    }

    /// Returns the size of the engine's heap in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.runtime.memory_usage().malloc_size.unsigned_abs()
    }

    /// Begins a call with a new budget and an empty outbox.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        if !self.is_settled() {
            return Err(Error::Engine(LEFT_OVER.into()));
        }
        self.steps_left.set(self.limits.steps_max);
        self.is_late.set(false);
        *self.outbox.borrow_mut() = Outbox::default();
        Ok(())
    }

    /// Recreates an engine of functions if work is pending in it; function IDs remain valid.
    fn renew(&mut self) -> Result<(), Error> {
        let functions = self.functions.iter();
        let texts: Option<Vec<_>> =
            functions.map(|one| Some((one.name.clone(), one.source.clone()?))).collect();
        let Some(texts) = texts.filter(|_| !self.is_settled()) else { return Ok(()) };
        let mut next = Engine::new(self.limits)?;
        next.compile_rest(texts.iter().map(|(name, source)| (&**name, &**source)))?;
        next.steps_left.set(self.steps_left.get());
        next.outbox.borrow_mut().log = self.take_log();
        next.watch.replace(self.watch.take());
        // The document may have been set for calls that are yet to come.
        self.document.swap(&next.document);
        *self = next;
        Ok(())
    }

    /// Compiles the functions in `all`, given by name and source, that are not compiled yet.
    pub(crate) fn compile_rest<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Error> {
        for (name, source) in all.skip(self.functions.len()) {
            self.compile(name, source)?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        function: FunctionId,
        arguments: &[Argument<'_>],
        finish: impl for<'js> FnOnce(&Ctx<'js>, Value<'js>) -> rquickjs::Result<Option<String>>,
    ) -> Result<Option<String>, Error> {
        self.begin()?;
        self.check_arguments(arguments)?;
        let compiled = self.functions.get(function.0);
        let compiled = compiled.ok_or_else(|| Error::Engine(NO_SUCH_FUNCTION.into()))?;
        let place = match (&compiled.source, &self.program) {
            (None, Some(file)) => Place { file, modules: &self.modules, is_wrapped: false },
            _ => Place { file: &compiled.name, modules: &self.modules, is_wrapped: true },
        };
        let outcome = self.context.with(|ctx| {
            // Functions of a file may be asynchronous.
            let called = self
                .call_in(&ctx, function, arguments)
                .and_then(|value| self.settled(&ctx, value, compiled.source.is_none()));
            let result = called.and_then(|value| {
                let result = finish(&ctx, value)?;
                // Reading a value may have started work.
                self.run_jobs(&ctx).map(|()| result)
            });
            result.map_err(|error| describe(&ctx, error, place).thrown())
        });
        self.document.borrow_mut().end();
        let outcome = self.outcome(outcome);
        self.renew()?;
        match outcome? {
            Some(result) if result.len() > self.limits.result_bytes_max => {
                let limit = self.limits.result_bytes_max;
                Err(Error::Limit(format!("result of {} bytes: the limit is {limit}", result.len())))
            }
            result => Ok(result),
        }
    }

    /// Returns the value of a call once no work of it is pending; if it `may_await`, the result of its promise.
    pub(crate) fn settled<'js>(
        &self,
        ctx: &Ctx<'js>,
        value: Value<'js>,
        may_await: bool,
    ) -> rquickjs::Result<Value<'js>> {
        self.run_jobs(ctx)?;
        let Some(promise) = value.as_promise().filter(|_| may_await) else { return Ok(value) };
        promise.result().unwrap_or_else(|| {
            self.is_waiting.set(true);
            Err(rquickjs::Error::WouldBlock)
        })
    }

    /// Runs all promise jobs, including those that nothing awaits, because they belong to the current call. Each job costs
    /// some steps, because many jobs run without a loop that would be counted.
    pub(crate) fn run_jobs(&self, ctx: &Ctx<'_>) -> rquickjs::Result<()> {
        while self.steps_left.get() > 0 && !self.is_late.get() {
            if !ctx.execute_pending_job() {
                return Ok(());
            }
            self.steps_left.set(self.steps_left.get().saturating_sub(STEPS_OF_A_JOB));
        }
        Err(rquickjs::Error::WouldBlock)
    }

    /// Returns the outcome of a call after checking which limits it has exceeded.
    pub(crate) fn outcome<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Some(passed) = self.outbox.borrow_mut().passed.take() {
            return Err(passed);
        }
        match outcome {
            Err(_) if self.is_late.get() => Err(Error::Late),
            Err(_) if self.steps_left.get() == 0 => Err(Error::Steps(self.limits.steps_max)),
            outcome => outcome,
        }
    }

    fn call_in<'js>(
        &self,
        ctx: &Ctx<'js>,
        function: FunctionId,
        arguments: &[Argument<'_>],
    ) -> rquickjs::Result<Value<'js>> {
        let Some(compiled) = self.functions.get(function.0) else {
            return Err(Exception::throw_message(ctx, NO_SUCH_FUNCTION));
        };
        let function = compiled.function.clone().restore(ctx)?;
        let mut values = Args::new(ctx.clone(), arguments.len());
        for argument in arguments {
            match *argument {
                Argument::Json(text) => values.push_arg(ctx.json_parse(text)?)?,
                Argument::Document => values.push_arg(self.document_in(ctx)?)?,
                Argument::Text(text) => values.push_arg(text)?,
                Argument::Number(number) => values.push_arg(number)?,
                Argument::Made(by, arguments) => {
                    values.push_arg(self.call_in(ctx, by, arguments)?)?;
                }
                Argument::Bool(value) => values.push_arg(value)?,
                Argument::Bytes(bytes) => {
                    values.push_arg(TypedArray::<u8>::new_copy(ctx.clone(), bytes)?)?;
                }
                Argument::Function(id) => {
                    let Some(compiled) = self.functions.get(id.0) else {
                        return Err(Exception::throw_message(ctx, NO_SUCH_FUNCTION));
                    };
                    values.push_arg(compiled.function.clone().restore(ctx)?)?;
                }
                Argument::Null => values.push_arg(Value::new_null(ctx.clone()))?,
                Argument::Undefined => values.push_arg(Value::new_undefined(ctx.clone()))?,
            }
        }
        function.call_arg(values)
    }

    fn document_in<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        self.document.borrow_mut().begin(ctx, &self.lazy.clone().restore(ctx)?)
    }

    fn check_arguments(&self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        arguments.iter().try_for_each(|argument| match argument {
            Argument::Json(text) => self.check_depth(json::depth(text.as_bytes())),
            Argument::Made(_, inner) => self.check_arguments(inner),
            _ => Ok(()),
        })
    }

    fn check_depth(&self, depth: usize) -> Result<(), Error> {
        let limit = self.limits.json_depth_max;
        match depth > limit {
            true => Err(Error::Limit(format!("JSON nests deeper than {limit} levels"))),
            false => Ok(()),
        }
    }
}

/// The description of an error.
pub(crate) struct ErrorDescription {
    pub message: String,
    pub position: Option<crate::Position>,
    pub code: Option<String>,
}

impl ErrorDescription {
    fn only(message: String) -> ErrorDescription {
        ErrorDescription { message, position: None, code: None }
    }

    pub fn thrown(self) -> Error {
        let ErrorDescription { message, position, code } = self;
        Error::Thrown { message, position, code }
    }
}

/// Description of a thrown null, which code rarely throws, but the engine throws when memory has run out.
const NULL: &str = "uncaught null: thrown by the code, or out of memory";

/// Describes an error, with its position in `place`.
pub(crate) fn describe(
    ctx: &Ctx<'_>,
    error: rquickjs::Error,
    place: Place<'_>,
) -> ErrorDescription {
    if !matches!(error, rquickjs::Error::Exception) {
        let message = match error {
            rquickjs::Error::WouldBlock => "a promise that is never settled".into(),
            other => other.to_string(),
        };
        return ErrorDescription::only(message);
    }
    let thrown = ctx.catch();
    let described = match thrown.as_object() {
        Some(object) if object.is_error() => exception(object, place),
        // There was not enough memory for an error object.
        None if thrown.is_null() => Ok(ErrorDescription::only(NULL.into())),
        _ => json_text(ctx, Some(thrown))
            .map(|text| ErrorDescription::only(format!("uncaught {text}"))),
    };
    // Reading the thrown value may throw again.
    described.unwrap_or_else(|_| {
        ctx.catch();
        ErrorDescription::only("uncaught exception".into())
    })
}

fn exception(object: &Object<'_>, place: Place<'_>) -> rquickjs::Result<ErrorDescription> {
    let kind: Option<String> = object.get("name")?;
    let message: Option<String> = object.get("message")?;
    let stack: Option<String> = object.get("stack")?;
    let code = match object.get::<_, Value<'_>>("code")?.into_string() {
        Some(code) => Some(code),
        None => match object.get::<_, Value<'_>>("cause")?.into_object() {
            Some(cause) => cause.get::<_, Value<'_>>("code")?.into_string(),
            None => None,
        },
    };
    let message =
        format!("{}: {}", kind.unwrap_or_else(|| "Error".into()), message.unwrap_or_default());
    let found = stack.and_then(|stack| position(&stack, place));
    let (message, position) = match found {
        Some((position, Some(module))) => {
            (format!("{message} in {module}{}", ErrorPosition(Some(position))), None)
        }
        found => (message, found.map(|(position, _)| position)),
    };
    Ok(ErrorDescription { message, position, code: code.map(|code| code.to_string()).transpose()? })
}
