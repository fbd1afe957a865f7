//! Programs: a whole file of user code with handlers in it, and a host that it may call.
//!
//! A file is a module. Its handlers are what it exports under their names, members of its default export, or simply its
//! functions of these names. Modules are strict, may `await`, and import nothing.

use crate::engine::{Compiled, Said, describe};
use crate::error::Place;
use crate::{Engine, Error, FunctionId, json};
use rquickjs::context::EvalOptions;
use rquickjs::function::{Func, Rest};
use rquickjs::{Ctx, Exception, Function, Module, Object, Persistent, TypedArray};
use std::cell::RefCell;
use std::rc::Rc;

/// A value on its way between user code and the host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostValue {
    /// `undefined`, or `null` on the way to the host.
    Nothing,
    /// true or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// A `Uint8Array`.
    Bytes(Vec<u8>),
    /// Any value as JSON: to user code only.
    Json(String),
    /// An array: to user code only.
    List(Vec<HostValue>),
}

/// What an error of the host is to user code: an `Error` with this `code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    /// For programs, such as `not-found`.
    pub code: String,
    /// For people.
    pub message: String,
}

/// What a program may call outside of the engine.
pub trait Host {
    /// Calls `function` of the host.
    ///
    /// # Errors
    /// What is thrown into the program.
    fn call(&mut self, function: &str, arguments: Vec<HostValue>) -> Result<HostValue, HostError>;
}

impl Engine {
    /// Gives programs a host: the global function `host(name, …arguments)`, which a prelude is to wrap and remove.
    ///
    /// # Errors
    /// [`Error::Engine`] when there is too little memory.
    pub fn set_host(&mut self, host: Rc<RefCell<dyn Host>>) -> Result<(), Error> {
        let depth_max = self.limits.json_depth_max;
        let call = call_of(host, depth_max);
        self.context
            .with(|ctx| ctx.globals().set("host", Func::from(call)))
            .map_err(|error| Error::Engine(error.to_string()))
    }

    /// Runs a file and finds the functions `wanted` in it. What runs later is told about by places in the last file that
    /// was loaded.
    ///
    /// # Errors
    /// [`Error::Syntax`] when it is not JavaScript; as for [`Engine::call`] when its top level fails.
    pub fn load(
        &mut self,
        file: &str,
        source: &str,
        wanted: &[&str],
    ) -> Result<Vec<Option<FunctionId>>, Error> {
        self.begin()?;
        self.program = Some(file.to_owned());
        // What is not exported can only be seen from inside; on a line of its own, so that no place moves.
        let local =
            |name: &&str| format!("{name}: typeof {name} === 'function' ? {name} : undefined");
        let locals: Vec<_> = wanted.iter().map(local).collect();
        let text = format!("{source}\n;globalThis.locals = {{ {} }};", locals.join(", "));
        let found = self.context.with(|ctx| {
            let place = Place { file, modules: &self.modules, is_wrapped: false };
            let module = Module::declare(ctx.clone(), file, text).map_err(|error| {
                let Said { message, position, .. } = describe(&ctx, error, place);
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
    /// Runs a file as a script and finds the functions `wanted` in it. Scripts are what files were before there were
    /// modules: sloppy, with all they declare in the global scope. Otherwise as [`Engine::load`].
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
            // A mistake in the text is found before anything runs.
            ran.map_err(|error| match describe(&ctx, error, place) {
                Said { message, position, .. } if message.starts_with("SyntaxError") => {
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

    /// A function of the scripts that were loaded, by its name.
    ///
    /// # Errors
    /// As for [`Engine::call`], when looking throws.
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

/// Whether `name` is a word, and no code. What is reserved is found by the engine.
fn is_identifier(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    name.chars().all(is_part) && name.starts_with(|c: char| !c.is_numeric())
}

/// A function of the global scope. What is declared with `const` is no member of the global object.
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
        // SAFETY: nothing runs that could change or drop the array before its bytes are copied.
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
