//! Listeners: the changes of a database or collection, in order.

use crate::db::Inner;
use crate::{Db, Error, token};
use nacre_bucket::{ChangeConsumer, Waiter};
use nacre_dcp::{Address, End, Interest, Message, Resume, ResumePoint, Wanted, resume};
use nacre_types::{Cas, CollectionId, Document, Kind, Seqno, Vbid};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The position at which a listener begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since<'a> {
    /// At the beginning of history: returns each document once, in its newest version.
    Start,
    /// At the present: returns only later writes.
    Now,
    /// At the position of another listener, given by its [`Changes::token`].
    Token(&'a str),
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The document was created or changed.
    Written,
    /// The document was deleted.
    Removed,
    /// The document expired.
    Expired,
}

/// A change of a document. Several changes of a document between two reads are returned as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    document: Document,
    vbid: Vbid,
    collection: String,
}

impl Change {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.document.name()
    }

    /// Returns the collection, as `scope.collection`.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Returns the kind of the change.
    pub fn kind(&self) -> ChangeKind {
        match self.document.meta.kind {
            Kind::Alive => ChangeKind::Written,
            Kind::Expired => ChangeKind::Expired,
            Kind::Deleted | Kind::Aborted => ChangeKind::Removed,
        }
    }

    /// Returns the new body; empty for a removed document.
    pub fn body(&self) -> &[u8] {
        if self.document.is_alive() { self.document.body() } else { &[] }
    }

    /// Returns the new version.
    pub fn cas(&self) -> Cas {
        self.document.meta.cas
    }

    /// Returns true if the body is JSON.
    pub fn is_json(&self) -> bool {
        self.document.meta.datatype & nacre_types::DATATYPE_JSON != 0
    }

    /// Returns the flags, a number that the writer stored with the document.
    pub fn flags(&self) -> u32 {
        self.document.meta.flags
    }

    /// Returns the Unix second at which the document expires, 0 for never. For a removed document, returns the Unix second of the
    /// removal.
    pub fn expiry(&self) -> u32 {
        self.document.meta.expiry
    }

    /// Returns the number of changes of the document.
    pub fn rev(&self) -> u64 {
        self.document.meta.rev
    }

    /// Returns the vBucket and the seqno of the change.
    pub fn place(&self) -> (Vbid, Seqno) {
        (self.vbid, self.document.meta.seqno)
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// Wakes a waiting listener and calls the application's `wake` callback.
#[derive(Default)]
struct ListenerWaker {
    has_news: Mutex<bool>,
    condition: Condvar,
    wake: Mutex<Option<Wake>>,
}

impl Waiter for ListenerWaker {
    fn wake(&self) {
        *self.has_news.lock() = true;
        self.condition.notify_all();
        if let Some(wake) = &*self.wake.lock() {
            // This runs on the thread of a writer, which must continue even if the application's callback panics.
            let _ = catch_unwind(AssertUnwindSafe(wake));
        }
    }
}

/// A listener to the changes of a database or collection, in the order of each vBucket's history. A listener has no thread: the
/// caller's reads do the work, and a slow listener delays no writer.
pub struct Changes {
    db: Db,
    stream: Stream,
}

impl Changes {
    pub(crate) fn open(
        db: &Db,
        collection: Option<CollectionId>,
        since: Since<'_>,
    ) -> Result<Changes, Error> {
        let stream = Stream::open(db.inner(), collection, since)?;
        Ok(Changes { db: db.clone(), stream })
    }

    /// Calls `wake`, on any thread, when [`Changes::try_next`] may return something. The callback must return at once; it may
    /// call the database, but not this listener.
    pub fn on_ready(&self, wake: impl Fn() + Send + Sync + 'static) {
        *self.stream.waker.wake.lock() = Some(Box::new(wake));
    }

    /// Returns the next change if one is available now.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], [`Error::CollectionNotFound`] when the collection was dropped, [`Error::Damaged`]
    /// when history cannot be read from the disk. These errors are final.
    pub fn try_next(&mut self) -> Result<Option<Change>, Error> {
        self.stream.try_next(self.db.inner())
    }

    /// Returns true if a task reads history from disk, so that changes may follow although [`Changes::try_next`] has returned `None`.
    #[cfg(feature = "sync")]
    pub(crate) fn is_reading(&self) -> bool {
        self.stream.is_reading()
    }

    /// Returns the next change and waits for it up to `timeout`; `None` when none came.
    ///
    /// # Errors
    /// As for [`Changes::try_next`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Change>, Error> {
        self.stream.next_within(self.db.inner(), timeout)
    }

    /// Returns true if the listener has seen everything that was written before this call.
    pub fn is_caught_up(&self) -> bool {
        self.stream.is_caught_up()
    }

    /// Returns the position of the listener, after the last change that it returned. A listener that begins at the token misses
    /// no change and returns none twice.
    pub fn token(&self) -> String {
        token::write(&self.stream.points)
    }
}

/// The streams of a listener, which do not keep the database open: the database itself may own them.
pub(crate) struct Stream {
    consumer: ChangeConsumer,
    waker: Arc<ListenerWaker>,
    points: Vec<ResumePoint>,
    /// The start and end of the current snapshot of each vBucket.
    snapshots: Vec<(Seqno, Seqno)>,
    ended: Option<Error>,
}

impl Stream {
    pub fn open(
        inner: &Inner,
        collection: Option<CollectionId>,
        since: Since<'_>,
    ) -> Result<Stream, Error> {
        inner.check()?;
        let count = inner.bucket.vbucket_count();
        let mut points = match since {
            Since::Token(text) => token::read(text, count).ok_or_else(|| {
                Error::InvalidArgument("this is not a token of this database".into())
            })?,
            Since::Start | Since::Now => vec![ResumePoint::default(); usize::from(count)],
        };
        let waker = Arc::new(ListenerWaker::default());
        let waiter = Arc::clone(&waker) as Arc<dyn Waiter>;
        let mut consumer = ChangeConsumer::new(Arc::clone(&inner.bucket), waiter);
        for (vbid, point) in (0..count).map(Vbid).zip(&mut points) {
            consumer.watch(vbid);
            let ChangeConsumer { bucket, producer, .. } = &mut consumer;
            let mut vbucket = bucket.active(vbid).ok_or(Error::Closed)?;
            let (log, high) = (vbucket.failover_log(), vbucket.high_seqno());
            if since == Since::Now {
                (point.vb_uuid, point.seqno) = (log.current(), high);
                (point.snapshot_start, point.snapshot_end) = (high, high);
            }
            match resume(point, log, high, vbucket.purge_seqno()) {
                Resume::Continue => {}
                Resume::Rollback(Seqno::ZERO) => {
                    let why = format!("deletions were purged, or {vbid} has another history");
                    return Err(Error::Gone(why));
                }
                Resume::Rollback(to) => {
                    let why = format!("{vbid} ends at {to}, and the token is at {}", point.seqno);
                    return Err(Error::Gone(why));
                }
                Resume::Invalid => {
                    return Err(Error::InvalidArgument("the token contradicts itself".into()));
                }
            }
            point.vb_uuid = log.current();
            let interest = match collection {
                Some(id) => Interest::Collections(BTreeSet::from([id])),
                None => Interest::Everything,
            };
            let wanted = Wanted {
                interest,
                end: Seqno(u64::MAX),
                advances: true,
                skips_deletes: false,
                history: false,
            };
            let address = Address { vbid, stream_id: None, opaque: 0 };
            producer.open(&mut vbucket, address, *point, wanted);
        }
        let snapshots = points.iter().map(|point| (point.snapshot_start, point.snapshot_end));
        let snapshots = snapshots.collect();
        Ok(Stream { consumer, waker, points, snapshots, ended: None })
    }

    /// See [`Changes::try_next`].
    pub fn try_next(&mut self, inner: &Inner) -> Result<Option<Change>, Error> {
        loop {
            inner.check()?;
            if let Some(error) = &self.ended {
                return Err(error.clone());
            }
            if let Some((address, message)) = self.consumer.next_message() {
                if let Some(change) = self.take(address.vbid, message) {
                    return Ok(Some(change));
                }
                continue;
            }
            if self.consumer.has_scanned() || self.consumer.is_ready() {
                self.consumer.refresh();
                self.consumer.begin_scans();
            } else if self.consumer.producer.holds_scans() {
                // A task reads the history that is no longer in memory; the call may step that task here.
                inner.runner.help();
                if !self.consumer.has_scanned() {
                    return Ok(None);
                }
            } else {
                return Ok(None);
            }
        }
    }

    #[cfg(feature = "sync")]
    fn is_reading(&self) -> bool {
        self.consumer.producer.holds_scans() && !self.consumer.has_scanned()
    }

    /// See [`Changes::next_within`].
    pub fn next_within(
        &mut self,
        inner: &Inner,
        timeout: Duration,
    ) -> Result<Option<Change>, Error> {
        let until = Instant::now().checked_add(timeout);
        loop {
            // Reset first: a change that comes meanwhile rings again.
            *self.waker.has_news.lock() = false;
            if let Some(change) = self.try_next(inner)? {
                return Ok(Some(change));
            }
            let mut has_news = self.waker.has_news.lock();
            while !*has_news {
                match until {
                    Some(until) => {
                        if self.waker.condition.wait_until(&mut has_news, until).timed_out() {
                            return Ok(None);
                        }
                    }
                    None => self.waker.condition.wait(&mut has_news),
                }
            }
        }
    }

    /// See [`Changes::is_caught_up`].
    pub fn is_caught_up(&self) -> bool {
        self.has_reached(&self.high_seqnos())
    }

    /// Returns the seqno of the last change of each vBucket.
    pub fn high_seqnos(&self) -> Vec<Seqno> {
        self.consumer.bucket.high_seqnos()
    }

    /// Returns true if the listener has seen every change up to `seqnos`, which has one seqno for each vBucket.
    pub fn has_reached(&self, seqnos: &[Seqno]) -> bool {
        self.points.iter().zip(seqnos).all(|(point, seqno)| point.seqno >= *seqno)
    }

    fn take(&mut self, vbid: Vbid, message: Message) -> Option<Change> {
        let point = &mut self.points[vbid.index()];
        match message {
            Message::Snapshot { start, end, .. } => {
                self.snapshots[vbid.index()] = (start, end);
                None
            }
            Message::Document(document) => {
                point.seqno = document.meta.seqno;
                let (start, end) = self.snapshots[vbid.index()];
                (point.snapshot_start, point.snapshot_end) =
                    (start.min(point.seqno), end.max(point.seqno));
                let collection = document.collection();
                if !collection.holds_documents() {
                    return None;
                }
                let collection = self.name_of(collection)?;
                Some(Change { document, vbid, collection })
            }
            Message::Advanced(seqno) => {
                let (start, end) = self.snapshots[vbid.index()];
                point.seqno = seqno;
                (point.snapshot_start, point.snapshot_end) = (start.min(seqno), end.max(seqno));
                None
            }
            Message::End(end) => {
                self.ended = Some(match end {
                    End::NothingOfInterest => Error::CollectionNotFound("it was dropped".into()),
                    End::BackfillFailed => Error::Damaged {
                        what: format!("the history of {vbid} cannot be read from the store"),
                    },
                    _ => Error::Closed,
                });
                None
            }
        }
    }

    /// Returns the name of a collection; `None` when it was dropped meanwhile.
    fn name_of(&self, id: CollectionId) -> Option<String> {
        let manifest = self.consumer.bucket.manifest();
        manifest.scopes.iter().find_map(|scope| {
            let found = scope.collections.iter().find(|found| found.id == id.0)?;
            Some(format!("{}.{}", scope.name, found.name))
        })
    }
}

/// Waits for each change. Ends after the first error.
impl Iterator for Changes {
    type Item = Result<Change, Error>;

    fn next(&mut self) -> Option<Result<Change, Error>> {
        if self.stream.ended.is_some() {
            return None;
        }
        match self.next_within(Duration::MAX) {
            Ok(change) => change.map(Ok),
            Err(error) => {
                self.stream.ended = Some(error.clone());
                Some(Err(error))
            }
        }
    }
}
