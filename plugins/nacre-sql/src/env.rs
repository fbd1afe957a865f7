//! What expressions are evaluated with: variables, parameters, and what comes from outside.

use crate::ast::Select;
use crate::search::{Hits, Searched};
use crate::{Error, Name, Result, Value, write_string};
use foldhash::fast::FixedState;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What evaluation needs from outside.
pub trait Host {
    /// Runs a query inside of `env`; no more than `limit` of its rows are asked for.
    ///
    /// # Errors
    /// Whatever the query is refused with.
    fn subquery(
        &self,
        select: &Select,
        env: &Env,
        limit: usize,
        context: &Context<'_>,
    ) -> Result<Vec<Value>>;

    /// Calls a function that a user has defined.
    ///
    /// # Errors
    /// There is none of this name; or what its body is refused with.
    fn call(&self, path: &[Name], args: Vec<Value>, context: &Context<'_>) -> Result<Value>;

    /// Answers a function that asks what is outside of an expression, such as `NODE_NAME`.
    ///
    /// # Errors
    /// There is nobody to ask; or what is asked for is refused.
    fn service_function(&self, name: &str, _: &[Value], _: &Context<'_>) -> Result<Value> {
        Err(Error::execution(format!("{name} is not possible here")))
    }

    /// The hit that a search makes of a document; none if the document does not match.
    ///
    /// # Errors
    /// There is nobody to ask; or the query is refused.
    fn search(&self, _: &Searched<'_>) -> Result<Option<Value>> {
        Err(Error::execution("SEARCH is not possible here"))
    }

    /// Milliseconds since 1970, now.
    fn now_ms(&self) -> i64;

    /// 64 bits of chance.
    fn random(&self) -> u64;

    /// Asked regularly by what takes long.
    ///
    /// # Errors
    /// When the request is to end: its time is over, or it was cancelled.
    fn tick(&self) -> Result<()>;
}

/// A host for expressions that stand alone: index keys, and constants.
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

/// What a document is besides its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// Its id.
    pub id: Name,
    /// The path of its keyspace.
    pub keyspace: Name,
    /// The version; 0 when it is not known, as in an index.
    pub cas: u64,
    /// When it expires, in seconds since 1970; 0 is never.
    pub expiration: u32,
    /// The client's flags.
    pub flags: u32,
    /// Whether the value is JSON.
    pub json: bool,
    /// Extended attributes, if they were asked for.
    pub xattrs: Value,
    /// The hits of searches that have found the document.
    pub hits: Hits,
}

/// Where the texts of documents are that were not fetched.
pub trait Library: Send + Sync {
    /// The text of a document; empty when it is no text.
    fn read(&self, number: u64) -> String;

    /// The document is needed no longer.
    fn let_go(&self, number: u64);
}

/// The text of a document that lies elsewhere, as most answers only pass it on.
pub struct Kept {
    /// Names it.
    pub number: u64,
    /// Its bytes.
    pub bytes: usize,
    /// Whether it begins with `{`.
    pub is_object: bool,
    /// Where it is.
    pub library: Arc<dyn Library>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.library.let_go(self.number);
    }
}

/// JSON text that is read when somebody asks for its value, since many documents only pass through.
pub struct Json {
    text: OnceLock<String>,
    value: OnceLock<Value>,
    kept: Option<Kept>,
}

impl Json {
    /// Text that is known to be JSON.
    pub fn new(text: String) -> Json {
        Json { text: text.into(), value: OnceLock::new(), kept: None }
    }

    /// Text that is known to be JSON, and is fetched when somebody looks at it.
    pub fn kept(kept: Kept) -> Json {
        Json { text: OnceLock::new(), value: OnceLock::new(), kept: Some(kept) }
    }

    /// Where it is, of a text that lies elsewhere.
    pub fn as_kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Whether the text begins as that of an object.
    pub fn is_object(&self) -> bool {
        self.kept.as_ref().map_or_else(|| self.text().starts_with('{'), |kept| kept.is_object)
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            self.kept.as_ref().map(|kept| kept.library.read(kept.number)).unwrap_or_default()
        })
    }

    /// The value; NULL when the text is none that can be read, or nests too deeply.
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| Value::parse(self.text().as_bytes()).unwrap_or(Value::Null))
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Json").field(&self.text()).finish()
    }
}

/// An object with one field, which has a document.
#[derive(Debug)]
pub struct Named {
    /// The name of the field.
    pub name: Name,
    /// The document.
    pub json: Arc<Json>,
    value: OnceLock<Value>,
}

/// What a variable has.
#[derive(Clone, Debug)]
pub enum Content {
    /// A value.
    Value(Value),
    /// A document, as it is stored.
    Json(Arc<Json>),
    /// The same under a name.
    Named(Arc<Named>),
}

impl Content {
    /// An object with a document in its only field.
    pub fn named(name: Name, json: Arc<Json>) -> Content {
        Content::Named(Arc::new(Named { name, json, value: OnceLock::new() }))
    }

    /// The value.
    pub fn value(&self) -> &Value {
        match self {
            Content::Value(value) => value,
            Content::Json(json) => json.value(),
            Content::Named(named) => named
                .value
                .get_or_init(|| Value::object([(named.name.clone(), named.json.value().clone())])),
        }
    }

    /// Appends the value as JSON text; what was not read, as it was written.
    pub fn write_json(&self, out: &mut String) {
        self.write_json_by(out, &mut |json, out| out.push_str(json.text()));
    }

    /// The same, with `write` for documents that were not read.
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

/// Variables with their values: a list that grows by sharing its tail.
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
    /// No variables.
    pub fn new() -> Env {
        Env(None)
    }

    /// The same variables and one more, which hides those of its name.
    #[must_use]
    pub fn with(&self, name: &Name, value: impl Into<Content>) -> Env {
        self.with_document(name, value, None)
    }

    /// The same variables and a document.
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

    /// The value of a variable.
    pub fn get(&self, name: &Name) -> Option<&Value> {
        self.content(name).map(Content::value)
    }

    /// What a variable has, read or not.
    pub fn content(&self, name: &Name) -> Option<&Content> {
        self.find(name).map(|frame| &frame.content)
    }

    /// What a document is besides its value.
    pub fn meta(&self, name: &Name) -> Option<&Arc<Meta>> {
        self.find(name)?.meta.as_ref()
    }
}

/// Values by their keys.
pub(crate) type Set = HashSet<Vec<u8>, FixedState>;

/// An array, and its elements as a set.
pub(crate) type SearchedArray = (Arc<Vec<Value>>, Arc<Set>);

/// What evaluation remembers as long as a request runs.
#[derive(Default)]
pub struct Caches {
    /// Arrays that IN searches, by their address; they are held so that the address stays theirs.
    pub(crate) sets: RefCell<BTreeMap<usize, SearchedArray>>,
    pub(crate) regexes: RefCell<BTreeMap<String, Arc<regex_lite::Regex>>>,
}

/// What is the same for a whole request.
pub struct Context<'a> {
    /// What comes from outside.
    pub host: &'a dyn Host,
    /// `$1`, `$2`, ….
    pub positional: &'a [Value],
    /// `$name`.
    pub named: &'a BTreeMap<Name, Value>,
    /// When the statement began, in milliseconds since 1970.
    pub statement_ms: i64,
    /// What is remembered.
    pub caches: &'a Caches,
}
