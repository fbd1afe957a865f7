//! A file of functions, ready to be called.

use nacre_js::{Argument, Chance, Engine, Error, FunctionId, Host, HostError, HostValue, Limits};
use nacre_sql::inline::as_calls;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

static PRELUDE: LazyLock<String> = LazyLock::new(|| {
    let (queries, own) = (nacre_js::QUERIES, include_str!("prelude.js"));
    // What it names is seen by nobody else.
    format!("(function () {{\n{queries}\n{own}}})();")
});

/// What stands before JSON: of a value that was thrown and is no error, and of what the query service has refused.
const BEFORE_JSON: [&str; 2] = ["uncaught ", "N1QLError: "];
/// Bytes that are told of what was thrown, and of a line of code.
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

/// When a call is made, and with which luck: with the same, it gives the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since the Unix epoch: what `Date` shows.
    pub now_us: u64,
    /// What `Math.random` begins with.
    pub seed: u64,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A value as JSON; none for undefined.
    Value(Option<String>),
    /// It threw, or passed a limit.
    Exception(Exception),
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub struct Exception {
    /// What was thrown: name and message of an error, or else the value itself.
    pub thrown: Value,
    /// Line and column in the file, both from 1, and the text of the line, when that is known.
    pub place: Option<(u32, u32, String)>,
}

impl Outcome {
    /// As the host is told.
    pub fn to_json(&self) -> String {
        match self {
            Outcome::Value(None) => "{}".into(),
            Outcome::Value(Some(value)) => format!("{{\"value\":{value}}}"),
            Outcome::Exception(Exception { thrown, place }) => {
                let mut told = Map::from_iter([("thrown".to_owned(), thrown.clone())]);
                if let Some((line, column, text)) = place {
                    told.insert("line".into(), json!(line));
                    told.insert("column".into(), json!(column));
                    told.insert("text".into(), json!(text));
                }
                json!({"exception": told}).to_string()
            }
        }
    }
}

/// What the code of a library queries.
pub trait Queries {
    /// Begins a query, whose parameters are JSON or empty; gives its number.
    ///
    /// # Errors
    /// What is wrong with it.
    fn begin(&mut self, statement: &str, parameters: &str) -> Result<u32, Refused>;

    /// The next rows as JSON; none after the last.
    ///
    /// # Errors
    /// Why there are no more although there should be.
    fn next(&mut self, query: u32) -> Result<Vec<String>, Refused>;

    /// Ends a query of which no more rows are wanted.
    fn close(&mut self, query: u32);
}

/// Why there are no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The code that clients of the query service know it by.
    pub code: u32,
    /// What is wrong, for the author of the statement.
    pub message: String,
}

impl From<Refused> for HostError {
    fn from(Refused { code, message }: Refused) -> HostError {
        HostError { code: code.to_string(), message }
    }
}

/// What the prelude asks.
struct Outside {
    chance: Chance,
    queries: Box<dyn Queries>,
}

impl Host for Outside {
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

/// A file of functions that is loaded.
pub struct Library {
    file: String,
    code: String,
    engine: Engine,
    outside: Rc<RefCell<Outside>>,
    /// Functions that were called, and names that are none.
    functions: BTreeMap<String, Option<FunctionId>>,
}

impl Library {
    /// Loads `code`, which exceptions know as `file`, and whose queries `queries` answers; statements of SQL++ in it are calls
    /// of `N1QL`.
    ///
    /// # Errors
    /// What is wrong with it, for its author.
    pub fn load(file: &str, code: &str, queries: Box<dyn Queries>) -> Result<Library, Error> {
        let outside = Rc::new(RefCell::new(Outside { chance: Chance::default(), queries }));
        let engine = engine(file, code, &outside)?;
        let (file, code) = (file.to_owned(), code.to_owned());
        Ok(Library { file, code, engine, outside, functions: BTreeMap::new() })
    }

    /// Whether it has a function of that name.
    ///
    /// # Errors
    /// The name cannot be looked for.
    pub fn has(&mut self, name: &str) -> Result<bool, Error> {
        self.function(name).map(|found| found.is_some())
    }

    /// Calls a function with values as JSON, none for MISSING.
    pub fn call(&mut self, name: &str, moment: Moment, arguments: &[Option<&str>]) -> Outcome {
        self.engine.set_now(moment.now_us);
        self.outside.borrow_mut().chance = Chance::new(moment.seed);
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
        // What a call that failed has left to run must not run in this one.
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

/// An engine with `code` in it.
fn engine(file: &str, code: &str, outside: &Rc<RefCell<Outside>>) -> Result<Engine, Error> {
    let mut engine = Engine::new(LIMITS)?;
    engine.set_host(Rc::clone(outside) as Rc<RefCell<dyn Host>>)?;
    engine.load_script("prelude.js", &PRELUDE, &[])?;
    engine.load_script(file, &as_calls(code).0, &[])?;
    Ok(engine)
}

/// As much of `text` as fits.
fn beginning(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}
