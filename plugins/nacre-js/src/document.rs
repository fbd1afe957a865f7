//! Documents that are decoded only as far as user code reads them.
//!
//! Most of the work of a map function used to be decoding JSON that it never reads. Therefore Rust finds the top-level
//! fields of a document (and validates all of the JSON), and JavaScript gets a proxy whose fields are decoded when they are
//! read. Any operation other than reading a field (`in`, `Object.keys`, assignment, …) first decodes the whole document, in
//! the order of its fields; from then on the proxy wraps an ordinary object.
//!
//! Invariant: apart from timing, user code cannot distinguish the two during the call; a test compares them. Reading a field
//! of a document after its call throws, unless the document was decoded as a whole before.

use nacre_value::json;
use rquickjs::function::{Func, This};
use rquickjs::proxy::ProxyHandler;
use rquickjs::{
    Ctx, Exception, Function, Object, Persistent, Proxy, Result, String as Text, Value,
};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Maximum number of digits for which every number is an integer of the engine.
const SHORT_DIGITS: usize = 9;

/// A top-level field.
struct Field {
    name: Name,
    /// The range of its value in the text.
    value: Range<usize>,
    /// The value, once the code of the current call has read it.
    decoded: Option<Persistent<Value<'static>>>,
}

/// The name of a field.
enum Name {
    /// The range of the name in the text.
    Plain(Range<usize>),
    /// The decoded name, if it is written with escapes.
    Escaped(String),
}

/// The document of the current call.
#[derive(Default)]
pub(crate) struct Document {
    text: String,
    /// The top-level fields; empty for a document that must be decoded as a whole.
    fields: Vec<Field>,
    /// The proxy handler of the current call.
    handler: Option<Persistent<Object<'static>>>,
}

impl Document {
    /// Replaces the document. Returns its nesting depth.
    pub fn replace(&mut self, text: &str) -> usize {
        self.text.clear();
        self.text.push_str(text);
        self.fields.clear();
        find_fields(text, &mut self.fields).unwrap_or_else(|| {
            self.fields.clear();
            crate::json::depth(text.as_bytes())
        })
    }

    /// Returns the document as an argument of a call; the proxy's handler inherits from `prototype`.
    pub fn begin<'js>(&mut self, ctx: &Ctx<'js>, prototype: &Object<'js>) -> Result<Value<'js>> {
        self.end();
        if self.fields.is_empty() {
            return ctx.json_parse(&*self.text);
        }
        let handler = Object::new_proto(ctx.clone(), Some(prototype))?;
        self.handler = Some(Persistent::save(ctx, handler.clone()));
        let (target, handler) = (Object::new(ctx.clone())?, ProxyHandler::from_object(handler)?);
        Ok(Proxy::new(ctx.clone(), target, handler)?.into_value())
    }

    /// Ends the call, after which no value of the engine is kept.
    pub fn end(&mut self) {
        self.handler = None;
        self.fields.iter_mut().for_each(|field| field.decoded = None);
    }

    /// # Errors
    /// Thrown if `handler` belongs to a document of an earlier call.
    fn check<'js>(&self, ctx: &Ctx<'js>, handler: &Object<'js>) -> Result<()> {
        match &self.handler {
            Some(own) if own.clone().restore(ctx)? == *handler => Ok(()),
            _ => {
                Err(Exception::throw_type(ctx, "a document was used after the call it belongs to"))
            }
        }
    }

    /// Returns the value of a field, the same each time; `None` if the field does not exist.
    fn field<'js>(&mut self, ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>> {
        let text = &self.text;
        let is_wanted = |field: &&mut Field| match &field.name {
            Name::Plain(range) => range.len() == name.len() && text[range.clone()] == *name,
            Name::Escaped(own) => own == name,
        };
        // Of several fields with the same name, the last is used.
        let Some(field) = self.fields.iter_mut().rev().find(is_wanted) else { return Ok(None) };
        if let Some(decoded) = &field.decoded {
            return decoded.clone().restore(ctx).map(Some);
        }
        let value = decode(ctx, &text[field.value.clone()])?;
        field.decoded = Some(Persistent::save(ctx, value.clone()));
        Ok(Some(value))
    }

    fn names(&self) -> Vec<String> {
        let name = |field: &Field| match &field.name {
            Name::Plain(range) => self.text[range.clone()].to_owned(),
            Name::Escaped(name) => name.clone(),
        };
        self.fields.iter().map(name).collect()
    }
}

/// Creates the prototype of proxy handlers; `get` is added to it.
const LAZY: &str = r#"
(function (field, names) {
    const { has, get, set, ownKeys, getOwnPropertyDescriptor, defineProperty, deleteProperty,
            setPrototypeOf, preventExtensions } = Reflect;
    class Lazy {
        fill(target) {
            if (this.get === undefined) return;
            for (const name of names(this)) {
                defineProperty(target, name,
                    { value: field(this, name), writable: true, enumerable: true, configurable: true });
            }
            // From now on the target answers by itself.
            this.get = undefined;
        }
        otherwise(target, name, receiver) { return get(target, name, receiver); }
        set(target, name, value, receiver) {
            this.fill(target);
            return set(target, name, value, receiver);
        }
        has(target, name) { this.fill(target); return has(target, name); }
        ownKeys(target) { this.fill(target); return ownKeys(target); }
        getOwnPropertyDescriptor(target, name) {
            this.fill(target);
            return getOwnPropertyDescriptor(target, name);
        }
        defineProperty(target, name, descriptor) {
            this.fill(target);
            return defineProperty(target, name, descriptor);
        }
        deleteProperty(target, name) { this.fill(target); return deleteProperty(target, name); }
        setPrototypeOf(target, to) { this.fill(target); return setPrototypeOf(target, to); }
        preventExtensions(target) { this.fill(target); return preventExtensions(target); }
    }
    return Lazy.prototype;
})
"#;

/// Installs the proxy support. Returns the prototype of proxy handlers.
pub(crate) fn install(
    ctx: &Ctx<'_>,
    document: &Rc<RefCell<Document>>,
) -> Result<Persistent<Object<'static>>> {
    let make: Function<'_> = ctx.eval(LAZY)?;
    let of_field = field_of(Rc::clone(document));
    let of_names = names_of(Rc::clone(document));
    let lazy: Object<'_> = make.call((Func::from(of_field), Func::from(of_names)))?;
    lazy.set("get", Func::from(get_of(Rc::clone(document))))?;
    Ok(Persistent::save(ctx, lazy))
}

/// Reads a field, which is the most frequent operation of user code.
fn get_of(
    document: Rc<RefCell<Document>>,
) -> impl for<'js> Fn(
    Ctx<'js>,
    This<Object<'js>>,
    Value<'js>,
    Value<'js>,
    Value<'js>,
) -> Result<Value<'js>> {
    move |ctx, This(handler), target, name, receiver| {
        // Other names are symbols.
        if let Some(text) = name.as_string() {
            let mut document = document.borrow_mut();
            document.check(&ctx, &handler)?;
            if let Some(value) = document.field(&ctx, text.clone().to_cstring()?.as_str())? {
                return Ok(value);
            }
        }
        let otherwise: Function<'_> = handler.get("otherwise")?;
        otherwise.call((target, name, receiver))
    }
}

fn field_of(
    document: Rc<RefCell<Document>>,
) -> impl for<'js> Fn(Ctx<'js>, Object<'js>, String) -> Result<Option<Value<'js>>> {
    move |ctx, handler, name| {
        let mut document = document.borrow_mut();
        document.check(&ctx, &handler)?;
        document.field(&ctx, &name)
    }
}

fn names_of(
    document: Rc<RefCell<Document>>,
) -> impl for<'js> Fn(Ctx<'js>, Object<'js>) -> Result<Vec<String>> {
    move |ctx, handler| {
        let document = document.borrow();
        document.check(&ctx, &handler)?;
        Ok(document.names())
    }
}

/// Decodes JSON. The most frequent values are created without the parser.
pub(crate) fn decode<'js>(ctx: &Ctx<'js>, json: &str) -> Result<Value<'js>> {
    match json.as_bytes() {
        b"null" => Ok(Value::new_null(ctx.clone())),
        b"true" => Ok(Value::new_bool(ctx.clone(), true)),
        b"false" => Ok(Value::new_bool(ctx.clone(), false)),
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
            Text::from_str(ctx.clone(), &json[1..json.len() - 1]).map(Text::into_value)
        }
        digits if digits.len() <= SHORT_DIGITS && digits.iter().all(u8::is_ascii_digit) => {
            let number =
                digits.iter().fold(0, |number, digit| 10 * number + i32::from(digit - b'0'));
            Ok(Value::new_int(ctx.clone(), number))
        }
        _ => ctx.json_parse(json),
    }
}

/// Finds the ranges of names and values of a JSON object in `text`. Returns the nesting depth; `None` if the text is not
/// valid JSON, or a name is not valid text.
fn find_fields(text: &str, fields: &mut Vec<Field>) -> Option<usize> {
    let mut are_text = true;
    let depth = json::members(text, |name, value| {
        let name = match text[name.clone()].contains('\\') {
            false => Some(Name::Plain(name)),
            true => unescaped(&text[name.start - 1..name.end + 1]).map(Name::Escaped),
        };
        match name {
            Some(name) => fields.push(Field { name, value, decoded: None }),
            None => are_text = false,
        }
    });
    depth.filter(|_| are_text)
}

/// Decodes a JSON string; `None` if it has a lone surrogate.
fn unescaped(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
