//! The environment of evaluation: variables, parameters and the host.

use crate::ast::Select;
use crate::search::{Hits, Searched};
use crate::{Error, Name, Result, Value, write_string};
use foldhash::fast::FixedState;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Services that evaluation needs from its host.
pub trait Host {
    /// Runs a query in `env`; at most `limit` of its rows are needed.
    ///
    /// # Errors
    /// The error of the query.
    fn subquery(
        &self,
        select: &Select,
        env: &Env,
        limit: usize,
        context: &Context<'_>,
    ) -> Result<Vec<Value>>;

    /// Calls a user-defined function.
    ///
    /// # Errors
    /// Fails if the function does not exist, or its body fails.
    fn call(&self, path: &[Name], args: Vec<Value>, context: &Context<'_>) -> Result<Value>;

    /// Evaluates a function that needs the host, such as `NODE_NAME`.
    ///
    /// # Errors
    /// Fails if the host has no such function, or the function fails.
    fn service_function(&self, name: &str, _: &[Value], _: &Context<'_>) -> Result<Value> {
        Err(Error::execution(format!("{name} is not possible here")))
    }

    /// Returns the search hit for a document; `None` if the document does not match.
    ///
    /// # Errors
    /// Fails if the host cannot search, or the query is refused.
    fn search(&self, _: &Searched<'_>) -> Result<Option<Value>> {
        Err(Error::execution("SEARCH is not possible here"))
    }

    /// Returns the time in milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Returns 64 random bits.
    fn random(&self) -> u64;

    /// Checks whether the request may continue. Long operations call it regularly.
    ///
    /// # Errors
    /// Fails if the request must end: it has timed out or was cancelled.
    fn tick(&self) -> Result<()>;
}

/// A host for standalone expressions: index keys and constants.
pub struct NoHost;

impl Host for NoHost {
    fn subquery(&self, _: &Select, _: &Env, _: usize, _: &Context<'_>) -> Result<Vec<Value>> {
        Err(Error::execution("a subquery is not possible here"))
    }

    fn call(&self, path: &[Name], _: Vec<Value>, _: &Context<'_>) -> Result<Value> {
        Err(Error::new(10104, format!("Function not found: {}", path.join("."))))
    }

    fn now_ms(&self) -> i64 {
        0
    }

    fn random(&self) -> u64 {
        0
    }

    fn tick(&self) -> Result<()> {
        Ok(())
    }
}

/// The metadata of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// The ID.
    pub id: Name,
    /// The path of its keyspace.
    pub keyspace: Name,
    /// The CAS; 0 if it is not known, as in an index.
    pub cas: u64,
    /// The expiry in seconds since 1970; 0 for never.
    pub expiration: u32,
    /// The client's flags.
    pub flags: u32,
    /// True if the value is JSON.
    pub json: bool,
    /// Extended attributes, if they were requested.
    pub xattrs: Value,
    /// The hits of searches for the document.
    pub hits: Hits,
}

/// The bodies of documents that the host of a query holds, read by number when they are needed.
pub trait HeldBodies: Send + Sync {
    /// Returns a body; empty if it is not text.
    fn read(&self, number: u64) -> String;

    /// Releases a body.
    fn release(&self, number: u64);
}

/// A document body that is held outside of the query engine, because most responses only pass it
/// on.
pub struct HeldBody {
    /// The number of the document.
    pub number: u64,
    /// The length in bytes.
    pub bytes: usize,
    /// True if the text begins with `{`.
    pub is_object: bool,
    /// Where the body is held.
    pub source: Arc<dyn HeldBodies>,
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.source.release(self.number);
    }
}

/// JSON text that is parsed only when its value is needed, because many documents are passed on
/// unread.
pub struct Json {
    text: OnceLock<String>,
    value: OnceLock<Value>,
    held: Option<HeldBody>,
}

impl Json {
    /// Wraps text that is known to be JSON.
    pub fn new(text: String) -> Json {
        Json { text: text.into(), value: OnceLock::new(), held: None }
    }

    /// Wraps a held body that is known to be JSON, and is fetched when it is needed.
    pub fn held(body: HeldBody) -> Json {
        Json { text: OnceLock::new(), value: OnceLock::new(), held: Some(body) }
    }

    /// Returns the held body, if the text is one.
    pub fn as_held(&self) -> Option<&HeldBody> {
        self.held.as_ref()
    }

    /// Returns true if the text begins with `{`.
    pub fn is_object(&self) -> bool {
        self.held.as_ref().map_or_else(|| self.text().starts_with('{'), |held| held.is_object)
    }

    /// Returns the original text.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            self.held.as_ref().map(|held| held.source.read(held.number)).unwrap_or_default()
        })
    }

    /// Returns the value; NULL if the text is not valid JSON or nests too deeply.
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| Value::parse(self.text().as_bytes()).unwrap_or(Value::Null))
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Json").field(&self.text()).finish()
    }
}

/// An object whose only field is a document.
#[derive(Debug)]
pub struct Named {
    /// The name of the field.
    pub name: Name,
    /// The document.
    pub json: Arc<Json>,
    value: OnceLock<Value>,
}

/// The content of a variable.
#[derive(Clone, Debug)]
pub enum Content {
    /// A value.
    Value(Value),
    /// A document as it is stored.
    Json(Arc<Json>),
    /// An object whose only field is a document.
    Named(Arc<Named>),
}

impl Content {
    /// Creates an object whose only field is a document.
    pub fn named(name: Name, json: Arc<Json>) -> Content {
        Content::Named(Arc::new(Named { name, json, value: OnceLock::new() }))
    }

    /// Returns the value.
    pub fn value(&self) -> &Value {
        match self {
            Content::Value(value) => value,
            Content::Json(json) => json.value(),
            Content::Named(named) => named
                .value
                .get_or_init(|| Value::object([(named.name.clone(), named.json.value().clone())])),
        }
    }

    /// Appends the value as JSON text; documents that were not parsed keep their original text.
    pub fn write_json(&self, out: &mut String) {
        self.write_json_by(out, &mut |json, out| out.push_str(json.text()));
    }

    /// As [`Content::write_json`], with `write` for documents that were not parsed.
    pub fn write_json_by(&self, out: &mut String, write: &mut dyn FnMut(&Arc<Json>, &mut String)) {
        match self {
            Content::Value(value) => value.write_json(out),
            Content::Json(json) => write(json, out),
            Content::Named(named) => {
                out.push('{');
                write_string(&named.name, out);
                out.push(':');
                write(&named.json, out);
                out.push('}');
            }
        }
    }
}

impl From<Value> for Content {
    fn from(value: Value) -> Content {
        Content::Value(value)
    }
}

/// Variables with their values: a linked list that shares its tail.
#[derive(Clone, Debug, Default)]
pub struct Env(Option<Arc<Frame>>);

#[derive(Debug)]
struct Frame {
    name: Name,
    content: Content,
    meta: Option<Arc<Meta>>,
    outer: Env,
}

impl Env {
    /// Creates an environment without variables.
    pub fn new() -> Env {
        Env(None)
    }

    /// Returns the environment with one more variable, which hides others with its name.
    #[must_use]
    pub fn with(&self, name: &Name, value: impl Into<Content>) -> Env {
        self.with_document(name, value, None)
    }

    /// Returns the environment with one more variable, which is a document.
    #[must_use]
    pub fn with_document(
        &self,
        name: &Name,
        content: impl Into<Content>,
        meta: Option<Arc<Meta>>,
    ) -> Env {
        let (name, content) = (name.clone(), content.into());
        Env(Some(Arc::new(Frame { name, content, meta, outer: self.clone() })))
    }

    fn find(&self, name: &Name) -> Option<&Frame> {
        let mut at = self.0.as_deref();
        while let Some(frame) = at {
            if Arc::ptr_eq(&frame.name, name) || frame.name == *name {
                return Some(frame);
            }
            at = frame.outer.0.as_deref();
        }
        None
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &Name) -> Option<&Value> {
        self.content(name).map(Content::value)
    }

    /// Returns the content of a variable, parsed or not.
    pub fn content(&self, name: &Name) -> Option<&Content> {
        self.find(name).map(|frame| &frame.content)
    }

    /// Returns the metadata of a document.
    pub fn meta(&self, name: &Name) -> Option<&Arc<Meta>> {
        self.find(name)?.meta.as_ref()
    }
}

/// A set of values, by their keys.
pub(crate) type Set = HashSet<Vec<u8>, FixedState>;

/// An array, and its elements as a set.
pub(crate) type SearchedArray = (Arc<Vec<Value>>, Arc<Set>);

/// Caches of evaluation, kept for the duration of a request.
#[derive(Default)]
pub struct Caches {
    /// Arrays that IN searches, by their address; they are kept alive so that the address stays
    /// valid.
    pub(crate) sets: RefCell<BTreeMap<usize, SearchedArray>>,
    pub(crate) regexes: RefCell<BTreeMap<String, Arc<regex_lite::Regex>>>,
}

/// The context of evaluation, the same for a whole request.
pub struct Context<'a> {
    /// The host.
    pub host: &'a dyn Host,
    /// `$1`, `$2`, ….
    pub positional: &'a [Value],
    /// `$name`.
    pub named: &'a BTreeMap<Name, Value>,
    /// The start of the statement in milliseconds since 1970.
    pub statement_ms: i64,
    /// The caches.
    pub caches: &'a Caches,
}
