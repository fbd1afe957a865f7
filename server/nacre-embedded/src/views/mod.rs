//! Views: the code of the views plugin (nacre-views), as native Rust in the thread of the caller.
//!
//! ```text
//! Db::put_design_document ─► checked ─► configuration of the bucket, in the folder
//! Db::query_view          ─► changes since the last query ─► rows ─► answer
//! ```
//!
//! There is no thread for views: a query first applies the changes since the previous one ([`Stale::False`]), or the application
//! calls [`Db::update_views`]. The rows are in memory, and the first query after a start builds them: reading ten thousand documents
//! takes a fraction of a second. Queries of one design document run one after the other.
//!
//! Functions run without a sandbox, as their author is the application's. The engine limits their memory, stack and steps. Its stack
//! is that of the calling thread, of which it uses at most 256 KiB.

mod design;
mod index;
mod requests;

pub(crate) use requests::manage;

use crate::db::Inner;
use crate::folder::BUCKET;
use crate::{Db, Error};
use design::{Definition, check_name};
use index::{Answer, Index, now_us};
use nacre_cluster::{Change, IndexChange};
use nacre_plugin::Request;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use requests::stale_of;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum bytes of a design document.
const DESIGN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of design documents.
const DESIGNS_MAX: usize = 64;

/// The time at which a query brings the rows up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stale {
    /// Before the answer, which reflects every write that has returned.
    #[default]
    False,
    /// Not at all, except that the first query after a start builds the rows. Another query or [`Db::update_views`] must do it.
    Ok,
    /// After the answer, before the call returns.
    UpdateAfter,
}

/// A query of a view: its range, reduction and page. Keys are JSON text, such as `"\"ann\""` or `"[2026,7]"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewQuery {
    parameters: String,
    keys: Option<String>,
    stale: Stale,
    timeout: Option<Duration>,
}

impl ViewQuery {
    /// Returns a query for all rows, or for one reduction of all rows if the view has a reduce function.
    pub fn new() -> ViewQuery {
        ViewQuery::default()
    }

    /// Returns the query of a URL's query string, such as `group=true&limit=10`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown value of `stale`. Other parameters are checked by the query.
    pub fn from_parameters(parameters: &str) -> Result<ViewQuery, Error> {
        let stale = stale_of(parameters, b"").map_err(Error::InvalidArgument)?;
        Ok(ViewQuery { parameters: parameters.to_owned(), stale, ..ViewQuery::default() })
    }

    /// Returns only rows with this key.
    #[must_use]
    pub fn key(self, key: &str) -> ViewQuery {
        self.with("key", key)
    }

    /// Returns only rows with one of these keys, which are a JSON array, in the order of that array.
    #[must_use]
    pub fn keys(self, keys: &str) -> ViewQuery {
        ViewQuery { keys: Some(keys.to_owned()), ..self }
    }

    /// Returns only rows from this key on, in the order of the answer.
    #[must_use]
    pub fn start_key(self, key: &str) -> ViewQuery {
        self.with("startkey", key)
    }

    /// Returns only rows up to this key, in the order of the answer.
    #[must_use]
    pub fn end_key(self, key: &str) -> ViewQuery {
        self.with("endkey", key)
    }

    /// Begins within the rows of the start key at this document.
    #[must_use]
    pub fn start_id(self, id: &str) -> ViewQuery {
        self.with("startkey_docid", id)
    }

    /// Ends within the rows of the end key at this document.
    #[must_use]
    pub fn end_id(self, id: &str) -> ViewQuery {
        self.with("endkey_docid", id)
    }

    /// Includes or excludes the rows of the end key. Default: includes them.
    #[must_use]
    pub fn inclusive_end(self, inclusive: bool) -> ViewQuery {
        self.with("inclusive_end", if inclusive { "true" } else { "false" })
    }

    /// Reduces the rows, or returns the rows themselves. Default: reduces them if the view has a reduce function.
    #[must_use]
    pub fn reduce(self, reduce: bool) -> ViewQuery {
        self.with("reduce", if reduce { "true" } else { "false" })
    }

    /// Reduces the rows of each key separately.
    #[must_use]
    pub fn group(self, group: bool) -> ViewQuery {
        self.with("group", if group { "true" } else { "false" })
    }

    /// Reduces separately the rows whose array keys begin with the same `level` elements.
    #[must_use]
    pub fn group_level(self, level: u32) -> ViewQuery {
        self.with("group_level", &level.to_string())
    }

    /// Skips the first rows or groups.
    #[must_use]
    pub fn skip(self, count: u64) -> ViewQuery {
        self.with("skip", &count.to_string())
    }

    /// Returns at most this number of rows or groups.
    #[must_use]
    pub fn limit(self, count: u64) -> ViewQuery {
        self.with("limit", &count.to_string())
    }

    /// Reverses the order of the rows; start and end change sides.
    #[must_use]
    pub fn descending(self, descending: bool) -> ViewQuery {
        self.with("descending", if descending { "true" } else { "false" })
    }

    /// Sets the time at which the rows are brought up to date. Default: [`Stale::False`].
    #[must_use]
    pub fn stale(self, stale: Stale) -> ViewQuery {
        ViewQuery { stale, ..self }
    }

    /// Limits the time to bring the rows up to date, after which the query fails with [`Error::ViewsNotReady`]. Default: no limit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> ViewQuery {
        ViewQuery { timeout: Some(timeout), ..self }
    }

    fn with(mut self, name: &str, value: &str) -> ViewQuery {
        if !self.parameters.is_empty() {
            self.parameters.push('&');
        }
        self.parameters.push_str(name);
        self.parameters.push('=');
        self.parameters.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        self
    }
}

/// The indexes of the design documents that have been queried.
#[derive(Default)]
pub(crate) struct Indexes(Mutex<BTreeMap<String, Arc<Mutex<Index>>>>);

impl Indexes {
    /// Returns the index of a design document, which is new and empty when there was no query since the last change.
    fn get(&self, inner: &Inner, name: &str) -> Result<Arc<Mutex<Index>>, Error> {
        // The lock is held while the definition is read, so that no index of an earlier definition is added after `forget`.
        let mut indexes = self.0.lock();
        if let Some(index) = indexes.get(name) {
            return Ok(Arc::clone(index));
        }
        let text = inner.with_config(|config| config.design_documents.get(name).cloned());
        let text = text.ok_or_else(|| Error::ViewNotFound(name.to_owned()))?;
        let index = Arc::new(Mutex::new(Index::open(inner, name, &text)?));
        indexes.insert(name.to_owned(), Arc::clone(&index));
        Ok(index)
    }

    fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Removes a broken index, unless another one has taken its place.
    fn forget_broken(&self, name: &str, broken: &Arc<Mutex<Index>>) {
        let mut indexes = self.0.lock();
        if indexes.get(name).is_some_and(|known| Arc::ptr_eq(known, broken)) {
            indexes.remove(name);
        }
    }

    /// Drops all rows, at the end of the database.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Db {
    /// Creates or replaces a design document: JSON with the members `views`, whose members have a `map` and perhaps a `reduce`, and
    /// `collection` (`scope.collection`; `_default._default` by default). Compiles its functions. The next query builds the rows,
    /// unless the text is the same as before.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the reason, and errors of the disk.
    pub fn put_design_document(&self, name: &str, text: &str) -> Result<(), Error> {
        let inner = self.inner();
        inner.check()?;
        check_name(name)?;
        let invalid = |reason: String| Err(Error::InvalidArgument(reason));
        if text.len() > DESIGN_BYTES_MAX {
            return invalid(format!("a design document has {DESIGN_BYTES_MAX} bytes at most"));
        }
        let definition = Definition::read(text)?;
        definition.check_members()?;
        if self.find_collection(&definition.collection)?.is_none() {
            return invalid(format!("there is no collection {}", definition.collection));
        }
        let is_full = inner.with_config(|config| {
            let known = &config.design_documents;
            known.len() >= DESIGNS_MAX && !known.contains_key(name)
        });
        if is_full {
            return invalid(format!("a database has {DESIGNS_MAX} design documents at most"));
        }
        if self.design_document(name)?.is_some_and(|known| known == text) {
            // The rows stay valid.
            return Ok(());
        }
        definition.instance(name, false)?;
        let (bucket, document) = (BUCKET.to_owned(), text.to_owned());
        inner.change(&Change::Indexes(IndexChange::PutDesignDocument {
            bucket,
            name: name.to_owned(),
            document,
        }))?;
        inner.indexes.forget(name);
        Ok(())
    }

    /// Returns the text of a design document, if it exists.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn design_document(&self, name: &str) -> Result<Option<String>, Error> {
        let inner = self.inner();
        inner.check()?;
        Ok(inner.with_config(|config| config.design_documents.get(name).cloned()))
    }

    /// Returns the names of the design documents, in ascending order.
    pub fn design_documents(&self) -> Vec<String> {
        self.inner().with_config(|config| config.design_documents.keys().cloned().collect())
    }

    /// Drops a design document and its rows.
    ///
    /// # Errors
    /// [`Error::ViewNotFound`], and errors of the disk.
    pub fn drop_design_document(&self, name: &str) -> Result<(), Error> {
        let inner = self.inner();
        let bucket = BUCKET.to_owned();
        inner.change(&Change::Indexes(IndexChange::DropDesignDocument {
            bucket,
            name: name.to_owned(),
        }))?;
        inner.indexes.forget(name);
        Ok(())
    }

    /// Queries a view. Returns the answer of a node to the same query, which is JSON: `{"total_rows":2,"rows":[{"id":…,"key":…,
    /// "value":…},…]}`, or `{"rows":[{"key":…,"value":…},…]}` for reductions. A document whose map function fails has no rows.
    ///
    /// # Errors
    /// [`Error::ViewNotFound`], [`Error::InvalidArgument`] for a query that does not fit the view, [`Error::ViewsNotReady`] after the
    /// query's timeout, [`Error::ViewsTooLarge`], [`Error::ViewsFailed`], [`Error::CollectionNotFound`] when the collection was
    /// dropped.
    pub fn query_view(
        &self,
        design: &str,
        view: &str,
        query: &ViewQuery,
    ) -> Result<Vec<u8>, Error> {
        let (method, body) = match &query.keys {
            Some(keys) => ("POST", format!("{{\"keys\":{keys}}}").into_bytes()),
            None => ("GET", Vec::new()),
        };
        let deadline = query.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let request = self.request(method, view, &query.parameters, &body);
        match self.ask_view(design, &request, query.stale, deadline)? {
            (200, body) => Ok(body),
            (404, _) => Err(Error::ViewNotFound(format!("{design}/{view}"))),
            (_, body) => {
                let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
                let reason = answer["reason"].as_str().unwrap_or("the query is invalid");
                Err(Error::InvalidArgument(reason.to_owned()))
            }
        }
    }

    /// Brings the rows of all views up to date, so that queries with [`Stale::Ok`] return what was written before.
    ///
    /// # Errors
    /// The first error of [`Db::query_view`], after all other design documents.
    pub fn update_views(&self) -> Result<(), Error> {
        let inner = self.inner();
        inner.check()?;
        let mut updated = Ok(());
        for name in self.design_documents() {
            let outcome = self.with_index(&name, None, |index| index.bring_up_to_date(inner));
            match outcome {
                // The design document was dropped meanwhile.
                Ok(()) | Err(Error::ViewNotFound(_)) => {}
                Err(error) => updated = updated.and(Err(error)),
            }
        }
        updated
    }

    fn request(&self, method: &str, view: &str, query: &str, body: &[u8]) -> Request {
        Request {
            method: method.to_owned(),
            path: format!("/{view}"),
            query: query.to_owned(),
            headers: Vec::new(),
            body: body.to_vec(),
            now_us: now_us(self.inner()),
        }
    }

    fn ask_view(
        &self,
        design: &str,
        request: &Request,
        stale: Stale,
        deadline: Option<Instant>,
    ) -> Result<Answer, Error> {
        let inner = self.inner();
        inner.check()?;
        self.with_index(design, deadline, |index| index.ask(inner, request, stale, deadline))
    }

    /// Calls `work` with the index of a design document, once other calls have finished with it.
    fn with_index<T>(
        &self,
        design: &str,
        deadline: Option<Instant>,
        work: impl FnOnce(&mut Index) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let indexes = &self.inner().indexes;
        let shared = indexes.get(self.inner(), design)?;
        let mut index = match deadline {
            Some(deadline) => shared.try_lock_until(deadline).ok_or(Error::ViewsNotReady)?,
            None => shared.lock(),
        };
        let outcome = work(&mut index);
        if index.is_broken {
            // The next call starts over.
            indexes.forget_broken(design, &shared);
        }
        outcome
    }
}
