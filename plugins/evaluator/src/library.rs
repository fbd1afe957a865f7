//! A file of functions, ready for calls.

use nacre_js::{Argument, Engine, Error, FunctionId, Host, HostError, HostValue, Limits, Random};
use nacre_sql::inline::as_calls;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

static PRELUDE: LazyLock<String> = LazyLock::new(|| {
    let (queries, own) = (nacre_js::QUERIES, include_str!("prelude.js"));
    // Names that it declares are not visible to other code.
    format!("(function () {{\n{queries}\n{own}}})();")
});

/// Prefixes of JSON in messages: of a thrown value that is not an error, and of an error of the query service.
const BEFORE_JSON: [&str; 2] = ["uncaught ", "N1QLError: "];
/// Maximum number of bytes reported of a thrown value, and of a line of code.
const THROWN_BYTES_MAX: usize = 16 << 10;
const LINE_BYTES_MAX: usize = 1 << 10;

/// The limits of user code, as `describe` shows them.
pub const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    stack_bytes: 256 << 10,
    steps_max: 1_000_000_000,
    json_depth_max: 512,
    emit_key_bytes_max: 0,
    emit_bytes_max: 0,
    result_bytes_max: 16 << 20,
};

/// The time and random seed of a call. Equal ones give equal results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallContext {
    /// Microseconds since the Unix epoch, as shown by `Date`.
    pub now_us: u64,
    /// The seed of `Math.random`.
    pub seed: u64,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A value as JSON; `None` for undefined.
    Value(Option<String>),
    /// The call threw, or exceeded a limit.
    Exception(Exception),
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub struct Exception {
    /// The thrown value: name and message of an error, or else the value itself.
    pub thrown: Value,
    /// Line and column in the file, both from 1, and the text of the line, if known.
    pub place: Option<(u32, u32, String)>,
}

impl Outcome {
    /// Returns the outcome in the form that the host expects.
    pub fn to_json(&self) -> String {
        match self {
            Outcome::Value(None) => "{}".into(),
            Outcome::Value(Some(value)) => format!("{{\"value\":{value}}}"),
            Outcome::Exception(Exception { thrown, place }) => {
                let mut exception = Map::from_iter([("thrown".to_owned(), thrown.clone())]);
                if let Some((line, column, text)) = place {
                    exception.insert("line".into(), json!(line));
                    exception.insert("column".into(), json!(column));
                    exception.insert("text".into(), json!(text));
                }
                json!({"exception": exception}).to_string()
            }
        }
    }
}

/// The queries of a library's code.
pub trait Queries {
    /// Starts a query; its parameters are JSON or empty. Returns its handle.
    ///
    /// # Errors
    /// Fails if the query is invalid or cannot be run.
    fn begin(&mut self, statement: &str, parameters: &str) -> Result<u32, Refused>;

    /// Returns the next rows as JSON; empty after the last.
    ///
    /// # Errors
    /// Fails if the query fails before its last row.
    fn next(&mut self, query: u32) -> Result<Vec<String>, Refused>;

    /// Ends a query before all rows are read.
    fn close(&mut self, query: u32);
}

/// Why there are no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error code, as in the query service.
    pub code: u32,
    /// The reason, for the author of the statement.
    pub message: String,
}

impl From<Refused> for HostError {
    fn from(Refused { code, message }: Refused) -> HostError {
        HostError { code: code.to_string(), message }
    }
}

/// The functions that the prelude calls.
struct PreludeFunctions {
    chance: Random,
    queries: Box<dyn Queries>,
}

impl Host for PreludeFunctions {
    fn call(&mut self, function: &str, arguments: Vec<HostValue>) -> Result<HostValue, HostError> {
        match (function, &arguments[..]) {
            ("random", []) => Ok(HostValue::Number(self.chance.next_number())),
            ("query.begin", [HostValue::Text(statement), HostValue::Text(parameters)]) => {
                let query = self.queries.begin(statement, parameters)?;
                Ok(HostValue::Number(query.into()))
            }
            ("query.next", [HostValue::Number(query)]) => {
                let rows = self.queries.next(*query as u32)?;
                Ok(HostValue::List(rows.into_iter().map(HostValue::Json).collect()))
            }
            ("query.close", [HostValue::Number(query)]) => {
                self.queries.close(*query as u32);
                Ok(HostValue::Nothing)
            }
            _ => Err(HostError { code: "invalid".into(), message: format!("no {function}") }),
        }
    }
}

/// A loaded file of functions.
pub struct Library {
    file: String,
    code: String,
    engine: Engine,
    outside: Rc<RefCell<PreludeFunctions>>,
    /// Functions that were called; `None` for names that are not functions.
    functions: BTreeMap<String, Option<FunctionId>>,
}

impl Library {
    /// Loads `code`, which exceptions show as `file`; `queries` answers its queries. Embedded SQL++ statements become calls of
    /// `N1QL`.
    ///
    /// # Errors
    /// The error in the code, for its author.
    pub fn load(file: &str, code: &str, queries: Box<dyn Queries>) -> Result<Library, Error> {
        let outside =
            Rc::new(RefCell::new(PreludeFunctions { chance: Random::default(), queries }));
        let engine = engine(file, code, &outside)?;
        let (file, code) = (file.to_owned(), code.to_owned());
        Ok(Library { file, code, engine, outside, functions: BTreeMap::new() })
    }

    /// Returns true if the library has a function with that name.
    ///
    /// # Errors
    /// Fails if the lookup throws.
    pub fn has(&mut self, name: &str) -> Result<bool, Error> {
        self.function(name).map(|found| found.is_some())
    }

    /// Calls a function with values as JSON; `None` for MISSING.
    pub fn call(&mut self, name: &str, moment: CallContext, arguments: &[Option<&str>]) -> Outcome {
        self.engine.set_now(moment.now_us);
        self.outside.borrow_mut().chance = Random::new(moment.seed);
        let arguments: Vec<_> = arguments
            .iter()
            .map(|value| value.map_or(Argument::Undefined, Argument::Json))
            .collect();
        let called = match self.function(name) {
            Ok(Some(function)) => self.engine.call(function, &arguments),
            Ok(None) => Err(Error::Limit(format!("There is no function {name} in the code"))),
            Err(error) => Err(error),
        };
        match called {
            Ok(value) => Outcome::Value(value),
            Err(error) => Outcome::Exception(self.exception(&error)),
        }
    }

    fn function(&mut self, name: &str) -> Result<Option<FunctionId>, Error> {
        // Pending work of a failed call must not run in this one.
        if !self.engine.is_settled() {
            self.engine = engine(&self.file, &self.code, &self.outside)?;
            self.functions.clear();
        }
        if let Some(known) = self.functions.get(name) {
            return Ok(*known);
        }
        let found = self.engine.find(name)?;
        self.functions.insert(name.to_owned(), found);
        Ok(found)
    }

    fn exception(&self, error: &Error) -> Exception {
        let (message, position) = match error {
            Error::Thrown { message, position, .. } => (message.clone(), *position),
            other => (other.to_string(), None),
        };
        let value = BEFORE_JSON
            .iter()
            .find_map(|before| message.strip_prefix(before))
            .filter(|json| json.len() <= THROWN_BYTES_MAX)
            .and_then(|json| serde_json::from_str(json).ok());
        let place = position.map(|at| {
            let text = self.code.lines().nth(at.line as usize - 1).unwrap_or_default();
            (at.line, at.column, beginning(text, LINE_BYTES_MAX))
        });
        let thrown = value.unwrap_or_else(|| beginning(&message, THROWN_BYTES_MAX).into());
        Exception { thrown, place }
    }
}

/// Creates an engine and loads `code` into it.
fn engine(
    file: &str,
    code: &str,
    outside: &Rc<RefCell<PreludeFunctions>>,
) -> Result<Engine, Error> {
    let mut engine = Engine::new(LIMITS)?;
    engine.set_host(Rc::clone(outside) as Rc<RefCell<dyn Host>>)?;
    engine.load_script("prelude.js", &PRELUDE, &[])?;
    engine.load_script(file, &as_calls(code).0, &[])?;
    Ok(engine)
}

/// Returns the beginning of `text`, at most `bytes_max` bytes.
fn beginning(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}
