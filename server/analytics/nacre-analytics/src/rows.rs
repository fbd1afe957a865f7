//! Queries over documents: the project's own evaluator, which supports the whole language and reads the shadows document by
//! document.
//!
//! It answers queries without a plan over columns; tests compare the others with it.

use crate::answer::Piece;
use crate::error::{Error, Result};
use crate::names::parts_of;
use crate::shadow::{Segment, Snapshot};
use crate::unnest::of_arrays_alone;
use nacre_query::{
    Consistency, Datastore, Document, FunctionPath, Index, IndexRange, Keyspace, Mutation, Notes,
    Platform, Refusal, Request, Script, Service, Settings,
};
use nacre_sql::ast::{Path, Select, Statement};
use nacre_sql::{Name, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::Sender;

/// The snapshots, by scope and name of their collections.
pub type Snapshots = BTreeMap<(String, String), Snapshot>;

/// The conditions under which a request must end.
#[derive(Clone, Debug)]
pub struct Patience {
    /// The time limit of the request.
    pub deadline: Instant,
    /// Set by a request that cancels it.
    pub is_cancelled: Arc<AtomicBool>,
    /// The queue of the answer, which closes when the client disconnects.
    pub client: Option<Sender<Piece>>,
}

impl Patience {
    /// Fails once the request must end.
    ///
    /// # Errors
    /// Codes 21002 and 21007 for the time limit and a cancellation.
    pub fn check(&self) -> Result<()> {
        match () {
            () if self.is_cancelled.load(Ordering::Relaxed) => Err(Error::cancelled()),
            () if self.client.as_ref().is_some_and(Sender::is_closed) => Err(Error::cancelled()),
            () if Instant::now() > self.deadline => Err(Error::timeout()),
            () => Ok(()),
        }
    }
}

/// Runs a query whose names are resolved, and passes each row to `take` as JSON text.
///
/// # Errors
/// The errors of the query and of `take`, and the end of patience.
pub fn run(
    mut select: Select,
    settings: Settings,
    snapshots: &Snapshots,
    patience: &Patience,
    take: &mut dyn FnMut(String) -> Result<()>,
) -> Result<()> {
    let store = Store { snapshots, order: BTreeMap::new(), patience };
    let store = Store { order: store.orders(), ..store };
    let world = World { patience };
    let service = Service::new();
    of_arrays_alone(&mut select);
    let mut request = Request::of(&select.to_string());
    request.settings = settings;
    let mut response = service.start(request, &store, &world);
    while let Some(row) = response.next_row(&service, &store, &world)? {
        take(row.to_json())?;
    }
    Ok(())
}

struct World<'a> {
    patience: &'a Patience,
}

impl Platform for World<'_> {
    fn now_us(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    fn check(&self) -> nacre_sql::Result<()> {
        self.patience.check().map_err(|error| nacre_sql::Error::new(error.code, error.message))
    }
}

/// The place of a document: segment and row.
type Place = (Arc<Segment>, usize);

/// Snapshots as a store of documents.
struct Store<'a> {
    snapshots: &'a Snapshots,
    /// The documents of each collection by ID.
    order: BTreeMap<(String, String), BTreeMap<Name, Place>>,
    patience: &'a Patience,
}

impl Store<'_> {
    fn orders(&self) -> BTreeMap<(String, String), BTreeMap<Name, Place>> {
        let sorted = |snapshot: &Snapshot| {
            let places = snapshot.views.iter().flat_map(|view| {
                view.live_rows().map(|row| {
                    (view.segment.rows[row].id.clone(), (Arc::clone(&view.segment), row))
                })
            });
            places.collect()
        };
        self.snapshots.iter().map(|(name, snapshot)| (name.clone(), sorted(snapshot))).collect()
    }

    fn documents(&self, keyspace: &Keyspace) -> nacre_sql::Result<&BTreeMap<Name, Place>> {
        let path = Path {
            namespace: None,
            parts: vec![
                keyspace.bucket.clone(),
                keyspace.scope.clone(),
                keyspace.collection.clone(),
            ],
        };
        let found = parts_of(&path)
            .and_then(|(scope, name)| self.order.get(&(scope.to_owned(), name.to_owned())));
        found.ok_or_else(|| nacre_sql::Error::new(24045, format!("Cannot find {keyspace}")))
    }
}

fn document((segment, row): &Place, with_body: bool) -> Document {
    let row = &segment.rows[*row];
    Document {
        id: row.id.clone(),
        body: if with_body { row.text.as_bytes().to_vec() } else { Vec::new() },
        cas: row.cas,
        expiration: row.expiry,
        flags: row.flags,
        json: true,
    }
}

fn unsupported<T>(what: &str) -> nacre_sql::Result<T> {
    Err(nacre_sql::Error::new(24001, format!("{what} is not supported by analytics")))
}

/// Returns the definition of an analytics function that the query language lacks.
fn definition(name: &str) -> Option<String> {
    match name.to_ascii_lowercase().as_str() {
        "range" => Some("CREATE FUNCTION range(a, b) { ARRAY_RANGE(a, b + 1) }".to_owned()),
        "string_to_codepoint" | "sleep" => Some(format!(
            "CREATE FUNCTION {name}(...) LANGUAGE JAVASCRIPT AS \"{name}\" AT \"analytics\""
        )),
        _ => None,
    }
}

/// Calls an analytics function; `None` if there is none with this name.
///
/// # Errors
/// The end of patience, in `sleep`.
pub fn call(name: &str, arguments: &[Value], patience: Option<&Patience>) -> Option<Result<Value>> {
    match name.to_ascii_lowercase().as_str() {
        "string_to_codepoint" => Some(Ok(match arguments {
            [Value::String(text)] => {
                Value::array(text.chars().map(|c| Value::Int(i64::from(u32::from(c)))).collect())
            }
            [Value::Missing] => Value::Missing,
            _ => Value::Null,
        })),
        "range" => {
            let bounds =
                |values: &[Value]| Some((values.first()?.as_i64()?, values.get(1)?.as_i64()?));
            let range =
                bounds(arguments).filter(|(low, high)| high.saturating_sub(*low) < 1_000_000);
            Some(Ok(match range {
                Some((low, high)) => Value::array((low..=high).map(Value::Int).collect()),
                None => Value::Null,
            }))
        }
        "sleep" => Some(sleep(arguments, patience)),
        _ => None,
    }
}

fn sleep(arguments: &[Value], patience: Option<&Patience>) -> Result<Value> {
    let [value, Value::Int(milliseconds)] = arguments else { return Ok(Value::Null) };
    let end = Instant::now() + Duration::from_millis(u64::try_from(*milliseconds).unwrap_or(0));
    while Instant::now() < end {
        if let Some(patience) = patience {
            patience.check()?;
        }
        std::thread::sleep(Duration::from_millis(5).min(end - Instant::now().min(end)));
    }
    Ok(value.clone())
}

impl Datastore for Store<'_> {
    fn check(&self, keyspace: &Keyspace) -> nacre_sql::Result<()> {
        self.documents(keyspace).map(drop)
    }

    fn version(&self) -> u64 {
        0
    }

    fn indexes(&self, _: &Keyspace) -> nacre_sql::Result<Vec<Index>> {
        Ok(Vec::new())
    }

    fn fetch(&self, keyspace: &Keyspace, ids: &[Name]) -> nacre_sql::Result<Vec<Option<Document>>> {
        let documents = self.documents(keyspace)?;
        Ok(ids.iter().map(|id| documents.get(id).map(|place| document(place, true))).collect())
    }

    fn scan(
        &self,
        keyspace: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        _: &Consistency,
    ) -> nacre_sql::Result<Vec<Document>> {
        use std::ops::Bound;
        let documents = self.documents(keyspace)?;
        let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id));
        let range = documents.range::<str, _>((from, Bound::Unbounded)).take(limit);
        Ok(range.map(|(_, place)| document(place, bodies)).collect())
    }

    fn scan_index(
        &self,
        _: &Keyspace,
        _: &IndexRange<'_>,
        _: &Consistency,
    ) -> nacre_sql::Result<Vec<Vec<u8>>> {
        unsupported("An index")
    }

    fn count(&self, keyspace: &Keyspace, _: &Consistency) -> nacre_sql::Result<u64> {
        Ok(self.documents(keyspace)?.len() as u64)
    }

    fn mutate(
        &self,
        _: &Keyspace,
        _: &[Mutation],
    ) -> nacre_sql::Result<Vec<std::result::Result<u64, Refusal>>> {
        unsupported("A statement that writes")
    }

    fn define(&self, _: &Statement, _: Option<&Path>) -> nacre_sql::Result<()> {
        unsupported("This definition")
    }

    fn catalog(&self, _: &str) -> nacre_sql::Result<Option<Vec<(Name, Value)>>> {
        Ok(None)
    }

    fn function(&self, path: &FunctionPath) -> nacre_sql::Result<Option<String>> {
        Ok(definition(&path.name))
    }

    fn functions(&self) -> nacre_sql::Result<Vec<(FunctionPath, String)>> {
        Ok(Vec::new())
    }

    fn create_function(
        &self,
        _: &FunctionPath,
        _: &str,
        _: Option<&Script>,
        _: bool,
    ) -> nacre_sql::Result<()> {
        unsupported("CREATE FUNCTION")
    }

    fn call(&self, path: &FunctionPath, arguments: &str, _: bool) -> nacre_sql::Result<String> {
        let values = Value::parse(arguments.as_bytes()).unwrap_or_default();
        let values: Vec<Value> = values
            .as_array()
            .into_iter()
            .flatten()
            .map(|value| value.as_array().and_then(<[Value]>::first).cloned().unwrap_or_default())
            .collect();
        let called = call(&path.name, &values, Some(self.patience));
        let value = called.unwrap_or_else(|| {
            Err(Error::new(24001, format!("Cannot find function {}", path.name)))
        });
        let value = value.map_err(|error| nacre_sql::Error::new(error.code, error.message))?;
        let field = (!value.is_missing()).then_some(("value", value));
        Ok(Value::object(field).to_json())
    }

    fn drop_function(&self, _: &FunctionPath) -> nacre_sql::Result<()> {
        unsupported("DROP FUNCTION")
    }

    fn notes(&self) -> &dyn Notes {
        &NoNotes
    }
}

struct NoNotes;

impl Notes for NoNotes {
    fn recall(&self, _: &str) -> Option<String> {
        None
    }

    fn note(&self, _: &str, _: Option<&str>) {}

    fn keys(&self, _: &str) -> nacre_sql::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
