//! The index of one design document: its rows, and the position in the history of the documents that they reflect.

use super::Stale;
use super::design::Definition;
use crate::changes::Stream;
use crate::db::Inner;
use crate::{Change, ChangeKind, Error, Since};
use nacre_plugin::{
    Entry, Event, EventKind, Events, Fault, MemoryState, Request, Service, State, StateMut, pack,
};
use nacre_types::CollectionId;
use nacre_views::Views;
use std::time::{Duration, Instant};

/// Maximum bytes of the rows of one design document.
const ROWS_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum number of changes per batch.
const BATCH_MAX: usize = 256;
/// Maximum bytes of the bodies per batch.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The pause while another thread reads changes from disk.
const PAUSE: Duration = Duration::from_millis(20);

/// A key space that records its size.
#[derive(Default)]
struct Rows {
    state: MemoryState,
    bytes: usize,
}

impl State for Rows {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry> {
        self.state.scan(start, end, limit, reverse)
    }
}

impl StateMut for Rows {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.delete(key);
        self.bytes += key.len() + value.len();
        self.state.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(old) = self.state.get(key) {
            self.bytes -= key.len() + old.len();
            self.state.delete(key);
        }
    }

    fn reading(&self) -> &dyn State {
        self
    }
}

/// The answer to a request: an HTTP status, and JSON.
pub(super) type Answer = (u16, Vec<u8>);

/// A design document with its rows. It has no instance of the plugin, whose engine cannot change threads: each call creates one.
pub(super) struct Index {
    name: String,
    definition: Definition,
    rows: Rows,
    stream: Stream,
    /// True once the rows have reflected all documents.
    is_built: bool,
    /// True if the rows are invalid: after half a batch, or when the collection was dropped. The owner drops such an index.
    pub is_broken: bool,
}

impl Index {
    /// Creates the index of a design document, without rows.
    pub fn open(inner: &Inner, name: &str, text: &str) -> Result<Index, Error> {
        let definition = Definition::read(text)?;
        let path = definition.collection.as_str();
        let (scope, collection) = path.split_once('.').unwrap_or(("_default", path));
        let found = inner.bucket.manifest().collection(scope, collection).map(|found| found.id);
        let id = found.ok_or_else(|| Error::CollectionNotFound(path.to_owned()))?;
        let stream = Stream::open(inner, Some(CollectionId(id)), Since::Start)?;
        let (name, rows) = (name.to_owned(), Rows::default());
        Ok(Index { name, definition, rows, stream, is_built: false, is_broken: false })
    }

    /// Answers a query. Brings the rows up to date before or after that, as `stale` says, at most until `deadline`.
    pub fn ask(
        &mut self,
        inner: &Inner,
        request: &Request,
        stale: Stale,
        deadline: Option<Instant>,
    ) -> Result<Answer, Error> {
        let mut views = self.definition.instance(&self.name, true)?;
        // Rows are only in memory. Without this, the first query after a start would find none.
        if stale == Stale::False || !self.is_built {
            self.update(inner, &mut views, deadline)?;
        }
        let answer = answer(&mut views, request, &self.rows);
        forget_log();
        let answer = answer?;
        if stale == Stale::UpdateAfter {
            match self.update(inner, &mut views, deadline) {
                // The next query continues from here.
                Ok(()) | Err(Error::ViewsNotReady) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    }

    /// Applies every earlier change.
    pub fn bring_up_to_date(&mut self, inner: &Inner) -> Result<(), Error> {
        let mut views = self.definition.instance(&self.name, true)?;
        self.update(inner, &mut views, None)
    }

    /// Applies every earlier change, at most until `deadline`. Changes applied by then stay.
    fn update(
        &mut self,
        inner: &Inner,
        views: &mut Views,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let updated = self.catch_up(inner, views, deadline);
        match &updated {
            Ok(()) => self.is_built = true,
            Err(Error::ViewsNotReady) => {}
            Err(_) => self.is_broken = true,
        }
        updated
    }

    fn catch_up(
        &mut self,
        inner: &Inner,
        views: &mut Views,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        // Without this end, writers that never pause would keep the query here.
        let end = self.stream.high_seqnos();
        loop {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
                let Some(change) = self.stream.try_next(inner)? else { break };
                bytes += change.body().len();
                batch.push(change);
            }
            let is_last = self.stream.has_reached(&end);
            if batch.is_empty() && !is_last {
                batch.extend(self.stream.next_within(inner, PAUSE)?);
            }
            self.apply(inner, views, &batch)?;
            if is_last {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(Error::ViewsNotReady);
            }
        }
    }

    fn apply(&mut self, inner: &Inner, views: &mut Views, batch: &[Change]) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let events: Vec<Event<'_>> = batch.iter().map(event).collect();
        let buffer = pack(&events, now_us(inner));
        let events = Events::decode(&buffer).map_err(failed)?;
        // A document whose map function fails has no rows, as on a node.
        let applied = views.on_batch(&events, &mut self.rows);
        forget_log();
        applied.map_err(failed)?;
        if self.rows.bytes > ROWS_BYTES_MAX {
            let reason = format!("the rows of these views take more than {ROWS_BYTES_MAX} bytes");
            return Err(Error::ViewsTooLarge(reason));
        }
        Ok(())
    }
}

fn answer(views: &mut Views, request: &Request, rows: &Rows) -> Result<Answer, Error> {
    let refused = |fault| match fault {
        Fault::Reject(reason) => Error::InvalidArgument(reason),
        Fault::Retry(_) => Error::ViewsNotReady,
        Fault::Fatal(reason) => Error::ViewsFailed(reason),
    };
    let response = views.handle(request, rows).map_err(refused)?;
    let (mut body, mut cursor) = (response.body, response.cursor);
    while let Some(at) = cursor {
        let chunk = views.more(&at, rows).map_err(refused)?;
        body.extend_from_slice(&chunk.body);
        cursor = chunk.cursor;
        if body.len() > ANSWER_BYTES_MAX {
            let reason = format!("the answer has more than {ANSWER_BYTES_MAX} bytes: set limit");
            return Err(Error::ViewsTooLarge(reason));
        }
    }
    Ok((response.status, body))
}

/// Drops the lines that functions have logged: an application has no place for them, and they would fill the memory.
fn forget_log() {
    drop(nacre_plugin::testing::take_log());
}

fn failed(error: impl ToString) -> Error {
    Error::ViewsFailed(error.to_string())
}

/// Returns the time of the database in microseconds since the Unix epoch.
pub(super) fn now_us(inner: &Inner) -> u64 {
    inner.now().unix_ns / 1000
}

fn event(change: &Change) -> Event<'_> {
    let (vbid, seqno) = change.place();
    let kind = match change.kind() {
        ChangeKind::Written => EventKind::Upsert,
        ChangeKind::Removed => EventKind::Delete,
        ChangeKind::Expired => EventKind::Expire,
    };
    Event {
        index: 0,
        vb: vbid.0,
        seqno: seqno.0,
        cas: change.cas().0,
        rev: change.rev(),
        flags: change.flags(),
        expiry: change.expiry(),
        collection: 0,
        kind,
        datatype: u8::from(change.is_json()),
        key: change.key(),
        xattrs: b"",
        body: change.body(),
        previous: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Write};

    #[test]
    fn a_query_that_was_late_leaves_its_rows_to_the_next_one() {
        let db = Db::open(":memory:").unwrap();
        let docs = db.default_collection();
        let count = 3 * BATCH_MAX;
        for number in 0..count {
            docs.upsert(format!("d{number}"), b"{}", Write::new()).unwrap();
        }
        let design = r#"{"views": {"ids": {"map": "function (doc, meta) { emit(meta.id); }", "reduce": "_count"}}}"#;
        let mut index = Index::open(db.inner(), "d", design).unwrap();
        let request = Request { method: "GET".into(), path: "/ids".into(), ..Request::default() };
        let now = Instant::now();
        // Each call applies one batch, whatever `stale` is: the first rows are not complete.
        for stale in [Stale::False, Stale::Ok] {
            let late = index.ask(db.inner(), &request, stale, Some(now));
            assert_eq!(late, Err(Error::ViewsNotReady));
            assert!(!index.is_broken && !index.is_built);
        }
        let (status, body) = index.ask(db.inner(), &request, Stale::Ok, None).unwrap();
        assert_eq!(status, 200);
        let counted: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(counted["rows"][0]["value"], count);
        assert!(index.rows.bytes > 0 && index.is_built);
    }

    #[test]
    fn a_stream_reaches_its_end_although_writes_go_on() {
        let db = Db::open(":memory:").unwrap();
        let docs = db.default_collection();
        docs.upsert("a", b"1", Write::new()).unwrap();
        let mut stream = Stream::open(db.inner(), None, Since::Start).unwrap();
        let end = stream.high_seqnos();
        assert!(!stream.has_reached(&end));
        docs.upsert("b", b"2", Write::new()).unwrap();
        while !stream.has_reached(&end) {
            let change = stream.next_within(db.inner(), Duration::from_secs(60)).unwrap();
            assert!(change.is_some(), "a change is missing");
        }
        docs.upsert("c", b"3", Write::new()).unwrap();
        assert!(stream.has_reached(&end) && !stream.is_caught_up());
    }
}
