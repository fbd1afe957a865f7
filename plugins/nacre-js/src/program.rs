//! Programs: a whole file of user code with handlers, and a host that it can call.
//!
//! A file is a module. Its handlers are exports with their names, members of its default export, or top-level functions
//! with these names. Modules are strict, may `await`, and can import only the modules that were set with
//! [`Engine::set_modules`].

use crate::engine::{Compiled, ErrorDescription, describe};
use crate::error::Place;
use crate::{Engine, Error, FunctionId, json};
use rquickjs::context::EvalOptions;
use rquickjs::function::{Func, Rest};
use rquickjs::{Ctx, Exception, Function, Module, Object, Persistent, TypedArray};
use std::cell::RefCell;
use std::rc::Rc;

/// A value passed between user code and the host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostValue {
    /// `undefined`; for the host also `null`.
    Nothing,
    /// true or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// A `Uint8Array`.
    Bytes(Vec<u8>),
    /// Any value as JSON; only to user code.
    Json(String),
    /// An array; only to user code.
    List(Vec<HostValue>),
}

/// An error of the host, which user code sees as an `Error` with this `code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    /// The code for programs, such as `not-found`.
    pub code: String,
    /// The message for people.
    pub message: String,
}

/// Functions outside of the engine that a program can call.
pub trait Host {
    /// Calls `function` of the host.
    ///
    /// # Errors
    /// The error that is thrown into the program.
    fn call(&mut self, function: &str, arguments: Vec<HostValue>) -> Result<HostValue, HostError>;
}

impl Engine {
    /// Sets the host of programs: the global function `host(name, …arguments)`, which a prelude must wrap and remove.
    ///
    /// # Errors
    /// [`Error::Engine`] if there is too little memory.
    pub fn set_host(&mut self, host: Rc<RefCell<dyn Host>>) -> Result<(), Error> {
        let depth_max = self.limits.json_depth_max;
        let call = call_of(host, depth_max);
        self.context
            .with(|ctx| ctx.globals().set("host", Func::from(call)))
            .map_err(|error| Error::Engine(error.to_string()))
    }

    /// Runs a file and finds the functions `wanted` in it. Positions in later errors refer to the last file that was
    /// loaded.
    ///
    /// # Errors
    /// [`Error::Syntax`] if the text is not valid JavaScript; as for [`Engine::call`] if its top level fails.
    pub fn load(
        &mut self,
        file: &str,
        source: &str,
        wanted: &[&str],
    ) -> Result<Vec<Option<FunctionId>>, Error> {
        self.begin()?;
        self.program = Some(file.to_owned());
        // Names that are not exported are visible only from inside. The appended code is on a separate line, so that no
        // position changes.
        let local =
            |name: &&str| format!("{name}: typeof {name} === 'function' ? {name} : undefined");
        let locals: Vec<_> = wanted.iter().map(local).collect();
        let text = format!("{source}\n;globalThis.locals = {{ {} }};", locals.join(", "));
        let found = self.context.with(|ctx| {
            let place = Place { file, modules: &self.modules, is_wrapped: false };
            let module = Module::declare(ctx.clone(), file, text).map_err(|error| {
                let ErrorDescription { message, position, .. } = describe(&ctx, error, place);
                Error::Syntax { message, position }
            })?;
            handlers(self, &ctx, module, wanted)
                .map_err(|error| describe(&ctx, error, place).thrown())
        });
        let found = self.outcome(found)?;
        Ok(self.keep(wanted, found))
    }
}

impl Engine {
    /// Runs a file as a script and finds the functions `wanted` in it. Scripts predate modules: they are sloppy, and
    /// declare everything in the global scope. Otherwise as [`Engine::load`].
    ///
    /// # Errors
    /// As for [`Engine::load`].
    pub fn load_script(
        &mut self,
        file: &str,
        source: &str,
        wanted: &[&str],
    ) -> Result<Vec<Option<FunctionId>>, Error> {
        self.begin()?;
        self.program = Some(file.to_owned());
        let found = self.context.with(|ctx| {
            let place = Place { file, modules: &self.modules, is_wrapped: false };
            let mut options = EvalOptions::default();
            options.strict = false;
            options.filename = Some(file.to_owned());
            let ran = ctx.eval_with_options::<rquickjs::Value<'_>, _>(source, options);
            // A syntax error is found before anything runs.
            ran.map_err(|error| match describe(&ctx, error, place) {
                ErrorDescription { message, position, .. }
                    if message.starts_with("SyntaxError") =>
                {
                    Error::Syntax { message, position }
                }
                said => said.thrown(),
            })?;
            let found = self.run_jobs(&ctx).and_then(|()| {
                wanted.iter().map(|name| global(&ctx, name)).collect::<rquickjs::Result<_>>()
            });
            found.map_err(|error| describe(&ctx, error, place).thrown())
        });
        let found = self.outcome(found)?;
        Ok(self.keep(wanted, found))
    }

    /// Returns a function of the loaded scripts by its name.
    ///
    /// # Errors
    /// As for [`Engine::call`], if the lookup throws.
    pub fn find(&mut self, name: &str) -> Result<Option<FunctionId>, Error> {
        if !is_identifier(name) {
            return Ok(None);
        }
        self.begin()?;
        let found = self.context.with(|ctx| {
            let file = self.program.as_deref().unwrap_or_default();
            let place = Place { file, modules: &self.modules, is_wrapped: false };
            global(&ctx, name).map_err(|error| describe(&ctx, error, place).thrown())
        });
        let found = self.outcome(found)?;
        Ok(self.keep(&[name], vec![found]).pop().flatten())
    }

    fn keep(&mut self, wanted: &[&str], found: Handlers) -> Vec<Option<FunctionId>> {
        let mut take = |(name, function): (&&str, Option<Persistent<Function<'static>>>)| {
            let function = function?;
            self.functions.push(Compiled { name: (*name).to_owned(), function, source: None });
            Some(FunctionId(self.functions.len() - 1))
        };
        wanted.iter().zip(found).map(&mut take).collect()
    }
}

/// Returns true if `name` is a single word and not other code. The engine rejects reserved words.
fn is_identifier(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    name.chars().all(is_part) && name.starts_with(|c: char| !c.is_numeric())
}

/// Returns a function of the global scope. Names declared with `const` are not members of the global object.
fn global(ctx: &Ctx<'_>, name: &str) -> rquickjs::Result<Option<Persistent<Function<'static>>>> {
    let text = format!("typeof {name} === 'function' ? {name} : undefined");
    let value: rquickjs::Value<'_> = ctx.eval(text)?;
    Ok(value.into_function().map(|function| Persistent::save(ctx, function)))
}

type Handlers = Vec<Option<Persistent<Function<'static>>>>;

fn handlers<'js>(
    engine: &Engine,
    ctx: &Ctx<'js>,
    module: Module<'js>,
    wanted: &[&str],
) -> rquickjs::Result<Handlers> {
    let (module, done) = module.eval()?;
    engine.settled(ctx, done.into_value(), true)?;
    let exported = module.namespace()?;
    let default: Option<Object<'js>> = exported.get("default").ok();
    let locals: Object<'js> = ctx.globals().get("locals")?;
    ctx.globals().remove("locals")?;
    let find = |name: &str| -> rquickjs::Result<Option<Function<'js>>> {
        for place in [Some(&exported), default.as_ref(), Some(&locals)].into_iter().flatten() {
            if let Some(function) = place.get::<_, rquickjs::Value<'js>>(name)?.into_function() {
                return Ok(Some(function));
            }
        }
        Ok(None)
    };
    let save =
        |function: Option<Function<'js>>| function.map(|function| Persistent::save(ctx, function));
    wanted.iter().map(|name| find(name).map(save)).collect()
}

fn call_of(
    host: Rc<RefCell<dyn Host>>,
    depth_max: usize,
) -> impl for<'js> Fn(
    Ctx<'js>,
    rquickjs::String<'js>,
    Rest<rquickjs::Value<'js>>,
) -> rquickjs::Result<rquickjs::Value<'js>> {
    move |ctx, name, arguments| {
        let name = name.to_cstring()?;
        let arguments = arguments.0.into_iter().map(|value| from_js(&ctx, value));
        let arguments = arguments.collect::<rquickjs::Result<Vec<_>>>()?;
        let answer = host.borrow_mut().call(&name, arguments);
        match answer {
            Ok(value) => into_js(&ctx, value, depth_max),
            Err(HostError { code, message }) => {
                let exception = Exception::from_message(ctx.clone(), &message)?;
                exception.as_object().set("code", code)?;
                Err(exception.throw())
            }
        }
    }
}

fn from_js<'js>(ctx: &Ctx<'js>, value: rquickjs::Value<'js>) -> rquickjs::Result<HostValue> {
    if value.is_null() || value.is_undefined() {
        return Ok(HostValue::Nothing);
    }
    if let Some(value) = value.as_bool() {
        return Ok(HostValue::Bool(value));
    }
    if let Some(number) = value.as_number() {
        return Ok(HostValue::Number(number));
    }
    if let Some(text) = value.as_string() {
        return text.to_string().map(HostValue::Text);
    }
    if let Some(array) = value.as_object().and_then(Object::as_typed_array::<u8>) {
        // SAFETY: no code runs that could change or drop the array before its bytes are copied.
        let bytes = unsafe { array.as_bytes() }.unwrap_or_default();
        return Ok(HostValue::Bytes(bytes.to_vec()));
    }
    Err(Exception::throw_type(ctx, "expected a string, a number, a boolean or a Uint8Array"))
}

fn into_js<'js>(
    ctx: &Ctx<'js>,
    value: HostValue,
    depth_max: usize,
) -> rquickjs::Result<rquickjs::Value<'js>> {
    use rquickjs::IntoJs;
    match value {
        HostValue::Nothing => Ok(rquickjs::Value::new_undefined(ctx.clone())),
        HostValue::Bool(value) => value.into_js(ctx),
        HostValue::Number(number) => number.into_js(ctx),
        HostValue::Text(text) => text.into_js(ctx),
        HostValue::Bytes(bytes) => TypedArray::<u8>::new(ctx.clone(), bytes)?.into_js(ctx),
        HostValue::Json(text) if json::depth(text.as_bytes()) > depth_max => {
            let message = format!("JSON nests deeper than {depth_max} levels");
            Err(Exception::throw_range(ctx, &message))
        }
        HostValue::Json(text) => crate::document::decode(ctx, &text),
        HostValue::List(values) => {
            let values = values.into_iter().map(|value| into_js(ctx, value, depth_max));
            values.collect::<rquickjs::Result<Vec<_>>>()?.into_js(ctx)
        }
    }
}
