//! Documents that are decoded as far as user code looks at them.
//!
//! Most of the work of a map function used to be decoding JSON that it never touches. So Rust finds where the
//! top-level fields of a document lie (it checks all of the JSON on the way), and JavaScript gets a proxy whose fields are
//! decoded when they are read. Everything but reading a field (`in`, `Object.keys`, assignment, …) first makes the
//! document whole, in the order of its fields, and from then on it is an ordinary object behind the proxy.
//!
//! Invariant: apart from time, user code cannot tell the two apart while the call lasts; a test compares them. A
//! document that is kept beyond its call gives an error when a field is read, unless it was made whole before.

use nacre_value::json;
use rquickjs::function::{Func, This};
use rquickjs::proxy::ProxyHandler;
use rquickjs::{
    Ctx, Exception, Function, Object, Persistent, Proxy, Result, String as Text, Value,
};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Digits of the longest number that is an integer of the engine, whatever they are.
const SHORT_DIGITS: usize = 9;

/// A top-level field.
struct Field {
    name: Name,
    /// Where its value lies in the text.
    value: Range<usize>,
    /// The value, once the code of the call at hand has read it.
    decoded: Option<Persistent<Value<'static>>>,
}

/// The name of a field.
enum Name {
    /// Where it lies in the text.
    Plain(Range<usize>),
    /// What it comes to, as it is written with escapes.
    Escaped(String),
}

/// The document of the current call.
#[derive(Default)]
pub(crate) struct Document {
    text: String,
    /// None of what has to be decoded at once.
    fields: Vec<Field>,
    /// What answers for the proxy of the call at hand.
    handler: Option<Persistent<Object<'static>>>,
}

impl Document {
    /// Takes the place of the document before; gives how deep it nests.
    pub fn replace(&mut self, text: &str) -> usize {
        self.text.clear();
        self.text.push_str(text);
        self.fields.clear();
        find_fields(text, &mut self.fields).unwrap_or_else(|| {
            self.fields.clear();
            crate::json::depth(text.as_bytes())
        })
    }

    /// The document as an argument of a call, with the proxies' handlers made after `prototype`.
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

    /// The call is over. No value of the engine is kept beyond it.
    pub fn end(&mut self) {
        self.handler = None;
        self.fields.iter_mut().for_each(|field| field.decoded = None);
    }

    /// # Errors
    /// Thrown when `handler` is that of a document of an earlier call.
    fn check<'js>(&self, ctx: &Ctx<'js>, handler: &Object<'js>) -> Result<()> {
        match &self.handler {
            Some(own) if own.clone().restore(ctx)? == *handler => Ok(()),
            _ => {
                Err(Exception::throw_type(ctx, "a document was used after the call it belongs to"))
            }
        }
    }

    /// The value of a field, the same whenever it is asked for; none when there is no such field.
    fn field<'js>(&mut self, ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>> {
        let text = &self.text;
        let is_wanted = |field: &&mut Field| match &field.name {
            Name::Plain(range) => range.len() == name.len() && text[range.clone()] == *name,
            Name::Escaped(own) => own == name,
        };
        // Of equal names the last one counts.
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

/// Makes what handlers of proxies are made after; `get` is added to it.
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

/// Installs the machinery; gives what handlers of proxies are made after.
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

/// Reading a field: what user code does most.
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
        // The others are symbols.
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

/// The value that some JSON stands for. The commonest are made without the parser.
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

/// Finds where names and values of a JSON object lie in `text`; gives how deep it nests, none when it is no JSON whose names
/// are text.
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

/// The text that a JSON string stands for; none when it has half of a character.
fn unescaped(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
