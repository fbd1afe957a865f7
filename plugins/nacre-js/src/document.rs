//! Documents that are decoded as far as user code looks at them.
//!
//! Most of the work of a map function used to be decoding JSON that it never touches. So Rust finds where the
//! top-level fields of a document lie (it checks all of the JSON on the way), and JavaScript gets a proxy that decodes a
//! field when it is read. Everything but reading a field (`in`, `Object.keys`, assignment, …) first makes the
//! document whole, in the order of its fields, and from then on it is an ordinary object behind the proxy.
//!
//! Invariant: apart from time, user code cannot tell the two apart while the call lasts; a test compares them. A
//! document that is kept beyond its call gives an error when a field is read that was not read before.

use rquickjs::function::Func;
use rquickjs::{Ctx, Exception, Function, Persistent, Result, Value};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// The document of the current call.
#[derive(Default)]
pub(crate) struct Document {
    text: String,
    /// The top-level fields, each with where its value lies in the text; none when the document is no object.
    fields: Option<Vec<(String, Range<usize>)>>,
    /// Tells the proxies of this document from those of earlier ones.
    generation: u32,
}

impl Document {
    /// Takes the place of the document before.
    pub fn replace(&mut self, text: &str) {
        self.generation = self.generation.wrapping_add(1);
        self.text.clear();
        self.text.push_str(text);
        self.fields = fields(&self.text);
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What names this document to its proxy; `None` when it must be decoded at once.
    pub fn lazy(&self) -> Option<u32> {
        self.fields.as_ref().map(|_| self.generation)
    }

    fn fields_of<'js>(&self, ctx: &Ctx<'js>, generation: u32) -> Result<&[(String, Range<usize>)]> {
        match &self.fields {
            Some(fields) if generation == self.generation => Ok(fields),
            _ => {
                Err(Exception::throw_type(ctx, "a document was used after the call it belongs to"))
            }
        }
    }
}

/// Makes documents out of generations.
const LAZY: &str = r#"
(function (field, fields) {
    const { has, get, set, ownKeys, getOwnPropertyDescriptor, defineProperty, deleteProperty,
            setPrototypeOf, preventExtensions } = Reflect;
    const create = Object.create;
    const LazyProxy = Proxy;
    class Lazy {
        constructor(generation) {
            this.generation = generation;
            this.seen = create(null);
        }
        fill(target) {
            const seen = this.seen;
            if (seen === null) return;
            this.seen = null;
            for (const name of fields(this.generation)) {
                const known = seen[name];
                const value = known !== undefined ? known : field(this.generation, name);
                defineProperty(target, name,
                    { value, writable: true, enumerable: true, configurable: true });
            }
        }
        get(target, name, receiver) {
            const seen = this.seen;
            if (seen !== null && typeof name === "string") {
                const known = seen[name];
                if (known !== undefined) return known;
                const value = field(this.generation, name);
                if (value !== undefined) return seen[name] = value;
            }
            return get(target, name, receiver);
        }
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
    return (generation) => new LazyProxy({}, new Lazy(generation));
})
"#;

/// Installs the machinery; gives the function that makes the proxy of a generation.
pub(crate) fn install(
    ctx: &Ctx<'_>,
    document: &Rc<RefCell<Document>>,
) -> Result<Persistent<Function<'static>>> {
    let make: Function<'_> = ctx.eval(LAZY)?;
    let of_field = field_of(Rc::clone(document));
    let of_fields = names_of(Rc::clone(document));
    let lazy: Function<'_> = make.call((Func::from(of_field), Func::from(of_fields)))?;
    Ok(Persistent::save(ctx, lazy))
}

fn field_of(
    document: Rc<RefCell<Document>>,
) -> impl for<'js> Fn(Ctx<'js>, u32, rquickjs::String<'js>) -> Result<Value<'js>> {
    move |ctx, generation, name| {
        let document = document.borrow();
        let fields = document.fields_of(&ctx, generation)?;
        // A name with a lone surrogate is no Rust string, and no name of a field here.
        let Ok(name) = name.to_string() else { return Ok(Value::new_undefined(ctx)) };
        // Of equal names the last one counts.
        match fields.iter().rfind(|(field, _)| *field == name) {
            Some((_, range)) => ctx.json_parse(&document.text[range.clone()]),
            None => Ok(Value::new_undefined(ctx)),
        }
    }
}

fn names_of(
    document: Rc<RefCell<Document>>,
) -> impl for<'js> Fn(Ctx<'js>, u32) -> Result<Vec<String>> {
    move |ctx, generation| {
        let document = document.borrow();
        let fields = document.fields_of(&ctx, generation)?;
        Ok(fields.iter().map(|(name, _)| name.clone()).collect())
    }
}

/// Where the values of a JSON object lie in `text`; `None` when it is no object, or not JSON.
fn fields(text: &str) -> Option<Vec<(String, Range<usize>)>> {
    struct Fields;

    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(
            self,
            mut map: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = deserializer.deserialize_map(Fields).ok()?;
    deserializer.end().ok()?;
    let range = |raw: &RawValue| {
        let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        start..start + raw.get().len()
    };
    Some(found.into_iter().map(|(name, raw)| (name, range(raw))).collect())
}
