//! A consumer's progress through the history of one vBucket.

use crate::ResumePoint;
use nacre_types::{CollectionId, Document, Seqno, VbUuid, Vbid};
use nacre_vbucket::{CursorId, Vbucket};
use std::iter::Peekable;

/// Consecutive documents of one vBucket.
#[derive(Clone, Debug, Default)]
pub struct Portion {
    /// Ascending by seqno; empty when only the position moved.
    pub documents: Vec<Document>,
    /// The consumer's position after the documents. Consistent if `seqno == snapshot_end`.
    pub position: ResumePoint,
    /// True if no version of collections that keep history was omitted, so that a key may occur several times.
    pub is_history: bool,
}

/// The result of a read of memory.
#[derive(Clone, Debug)]
pub enum Read {
    /// A whole snapshot.
    Portion(Portion),
    /// The stream has caught up with the history.
    CaughtUp,
    /// The next part is only in the store: scan the store after this seqno and [begin a
    /// backfill](Stream::begin_backfill).
    Behind(Seqno),
    /// The stream's history was discarded: the vBucket's current history does not continue it.
    Gone,
}

/// Versions of a vBucket in seqno order.
pub type Documents<E> = Box<dyn Iterator<Item = Result<Document, E>> + Send>;

/// Size limit of a portion. Both limits may be exceeded by one document.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Number of seqnos in memory, or of documents in a backfill; at least 1.
    pub count: usize,
    /// Memory size of the documents in bytes.
    pub bytes: usize,
}

/// A scan of the store.
pub struct StoreScan<E> {
    /// The versions up to `end`.
    pub documents: Documents<E>,
    /// The reader's position after the scan.
    pub end: Seqno,
    /// Seqno from which the scan has every version of collections that keep history. Before it, and everywhere if `None`,
    /// each key occurs once.
    pub history_start: Option<Seqno>,
}

/// A scan of the store for a stream. It has no reference to the vBucket, so another thread can read it.
///
/// The parts before and after the start of history are separate snapshots. `E` is the error of the store.
pub struct Backfill<E> {
    /// `None` once the scan is closed.
    documents: Option<Peekable<Documents<E>>>,
    vb_uuid: VbUuid,
    position: Seqno,
    start: Seqno,
    end: Seqno,
    history_start: Option<Seqno>,
    done: bool,
}

impl<E> Backfill<E> {
    /// Creates a backfill of the history after `after`, on the branch `vb_uuid`.
    pub fn new(past: StoreScan<E>, vb_uuid: VbUuid, after: Seqno) -> Backfill<E> {
        let StoreScan { documents, end, history_start } = past;
        let documents = Some(documents.peekable());
        let (position, start) = (after, after.next());
        Backfill { documents, vb_uuid, position, start, end, history_start, done: false }
    }

    /// Closes the scan at its position; the rest needs another scan.
    pub fn cut(&mut self) {
        self.documents = None;
        self.done = true;
    }

    /// Reads the next documents; the last portion ends with the last snapshot.
    ///
    /// # Errors
    /// The error of the store. The position does not move in that case.
    pub fn read(&mut self, limit: Limit) -> Result<Portion, E> {
        let (snapshot_end, is_history) = match self.history_start {
            Some(start) if self.position.next() < start => {
                (self.end.min(Seqno(start.0 - 1)), false)
            }
            start => (self.end, start.is_some()),
        };
        let mut documents: Vec<Document> = Vec::new();
        let mut bytes = 0;
        let mut is_whole = false;
        while documents.len() < limit.count && bytes < limit.bytes {
            let Some(document) = self.next_up_to(snapshot_end).transpose()? else {
                is_whole = true;
                break;
            };
            bytes += document.memory_bytes();
            documents.push(document);
        }
        self.position = match documents.last() {
            Some(last) if !is_whole => last.meta.seqno,
            _ => snapshot_end.max(self.position),
        };
        let position = ResumePoint {
            vb_uuid: self.vb_uuid,
            seqno: self.position,
            snapshot_start: self.start.min(self.position),
            snapshot_end: snapshot_end.max(self.position),
        };
        if self.position >= snapshot_end && snapshot_end < self.end {
            self.start = self.position.next();
        }
        self.done = is_whole && self.position >= self.end;
        Ok(Portion { documents, position, is_history })
    }

    fn next_up_to(&mut self, end: Seqno) -> Option<Result<Document, E>> {
        let is_within = |found: &Result<Document, E>| match found {
            Ok(document) => document.meta.seqno <= end,
            Err(_) => true,
        };
        self.documents.as_mut()?.next_if(is_within)
    }
}

/// A cursor in one vBucket's history, with a backfill while it is behind memory.
///
/// `E` is the error of the store that backfills read from.
pub struct Stream<E> {
    vbid: Vbid,
    cursor: CursorId,
    vb_uuid: VbUuid,
    /// The vBucket's generation when the stream was opened. Another generation means another history.
    generation: u32,
    position: Seqno,
    /// Start of the snapshot that the consumer is within; `None` between snapshots.
    within: Option<Seqno>,
    wants_history: bool,
    backfill: Option<Backfill<E>>,
}

impl<E> Stream<E> {
    /// Opens a stream of the history after `after`. The caller has checked that the consumer [shares](crate::resume)
    /// the history up to that point.
    pub fn open(vbucket: &mut Vbucket, after: Seqno) -> Stream<E> {
        Stream {
            vbid: vbucket.id(),
            cursor: vbucket.checkpoint_mut().register(after),
            vb_uuid: vbucket.failover_log().current(),
            generation: vbucket.generation(),
            position: after,
            within: None,
            wants_history: false,
            backfill: None,
        }
    }

    /// Opens a stream for a consumer that may have stopped within a snapshot. Until the end of the next snapshot, its positions
    /// are within a snapshot with the original start, because versions that the original snapshot omitted are superseded only
    /// there.
    pub fn resume(vbucket: &mut Vbucket, from: &ResumePoint) -> Stream<E> {
        let is_within = from.seqno != from.snapshot_end && from.seqno != from.snapshot_start;
        let within = is_within.then_some(from.snapshot_start);
        Stream { within, ..Stream::open(vbucket, from.seqno) }
    }

    /// Requests every version that the vBucket keeps as history.
    pub fn with_history(self) -> Stream<E> {
        Stream { wants_history: true, ..self }
    }

    /// Returns true if every version is requested, also from scans.
    pub fn wants_history(&self) -> bool {
        self.wants_history
    }

    /// Returns the vBucket.
    pub fn vbid(&self) -> Vbid {
        self.vbid
    }

    /// Returns the branch of history.
    pub fn vb_uuid(&self) -> VbUuid {
        self.vb_uuid
    }

    /// Returns the last seqno returned by the stream.
    pub fn position(&self) -> Seqno {
        self.position
    }

    /// Returns true during a backfill, when [`Stream::backfill`] is the next call.
    pub fn is_backfilling(&self) -> bool {
        self.backfill.is_some()
    }

    /// Reads the next snapshot from memory. A part that has left memory is skipped if it has no version of the `wanted`
    /// collections (events and prepares count as well). Otherwise, a small collection would need a backfill for every
    /// burst of writes to a large one.
    pub fn read(
        &mut self,
        vbucket: &mut Vbucket,
        limit: Limit,
        wanted: impl FnMut(CollectionId) -> bool,
    ) -> Read {
        debug_assert!(self.backfill.is_none(), "a backfill comes before memory");
        if self.generation != vbucket.generation() {
            return Read::Gone;
        }
        self.vb_uuid = vbucket.failover_log().current();
        if self.position == vbucket.high_seqno() {
            return Read::CaughtUp;
        }
        let count = vbucket.checkpoint().count_within(self.position, limit.count, limit.bytes);
        let is_history = self.wants_history && vbucket.history_start().is_some();
        let kept = if is_history { &vbucket.history_collections()[..] } else { &[] };
        let Some(drained) = vbucket.checkpoint().read_keeping(self.position, count, kept) else {
            // Unpersisted versions must stay in memory until the scan ends.
            let persisted = vbucket.persisted();
            vbucket.checkpoint_mut().advance(self.cursor, persisted);
            if vbucket.collections_after(self.position).any(wanted) {
                return Read::Behind(self.position);
            }
            return Read::Portion(self.skip_to(persisted));
        };
        if drained.snapshot_end == self.position {
            return Read::CaughtUp;
        }
        self.position = drained.snapshot_end;
        vbucket.checkpoint_mut().advance(self.cursor, self.position);
        let position = ResumePoint {
            vb_uuid: self.vb_uuid,
            seqno: drained.snapshot_end,
            snapshot_start: self.within.take().unwrap_or(drained.snapshot_start),
            snapshot_end: drained.snapshot_end,
        };
        Read::Portion(Portion { documents: drained.documents, position, is_history })
    }

    /// Advances to `seqno` without documents.
    fn skip_to(&mut self, seqno: Seqno) -> Portion {
        let snapshot_start = self.within.take().unwrap_or(self.position.next());
        self.position = seqno;
        let vb_uuid = self.vb_uuid;
        let position = ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end: seqno };
        Portion { documents: Vec::new(), position, is_history: false }
    }

    /// Accepts a scan of the store that began after [`Read::Behind`].
    pub fn begin_backfill(&mut self, past: StoreScan<E>) {
        let mut backfill = Backfill::new(past, self.vb_uuid, self.position);
        backfill.start = self.within.unwrap_or(backfill.start);
        self.backfill = Some(backfill);
    }

    /// Continues the backfill; its last portion ends with its snapshot.
    ///
    /// # Errors
    /// The error of the store. The stream's position does not move in that case.
    pub fn backfill(&mut self, limit: Limit) -> Result<Portion, E> {
        let backfill = self.backfill.as_mut().expect("only called during a backfill");
        let portion = backfill.read(limit)?;
        let backfill = self.backfill.take();
        backfill.into_iter().for_each(|backfill| self.put_back(backfill));
        Ok(portion)
    }

    /// Closes an idle scan; the rest needs another scan.
    pub fn cut_backfill(&mut self) {
        self.backfill = None;
    }

    /// Takes the backfill out, to be read elsewhere and then [put back](Stream::put_back).
    pub fn take_backfill(&mut self) -> Option<Backfill<E>> {
        self.backfill.take()
    }

    /// Puts a backfill back and continues from its position.
    pub fn put_back(&mut self, backfill: Backfill<E>) {
        self.position = backfill.position;
        let is_within = backfill.position >= backfill.start && backfill.position < backfill.end;
        self.within = is_within.then_some(backfill.start);
        self.backfill = Some(backfill).filter(|backfill| !backfill.done);
    }

    /// Closes the stream, and releases the history that it pins.
    pub fn close(self, vbucket: &mut Vbucket) {
        vbucket.checkpoint_mut().unregister(self.cursor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Cas, Meta, Now, VbState};
    use nacre_vbucket::{Command, Condition};
    use std::convert::Infallible;

    fn vbucket() -> Vbucket {
        Vbucket::create(Vbid(7), VbUuid(5), 0)
    }

    fn set(vbucket: &mut Vbucket, key: &str) {
        let command = Command::Store {
            condition: Condition::Always,
            cas: Cas::ANY,
            flags: 0,
            expiry: 0,
            keep_expiry: false,
            body: b"1",
        };
        vbucket.apply(format!("\0{key}").as_bytes(), &command, Now::default()).0.unwrap();
    }

    fn limit(count: usize) -> Limit {
        Limit { count, bytes: usize::MAX }
    }

    fn shown(portion: &Portion) -> String {
        let names: Vec<String> = portion
            .documents
            .iter()
            .map(|d| format!("{}@{}", String::from_utf8_lossy(d.name()), d.meta.seqno))
            .collect();
        let ResumePoint { seqno, snapshot_start, snapshot_end, .. } = portion.position;
        let history = if portion.is_history { "history " } else { "" };
        format!("{history}{} -> {seqno} in {snapshot_start}..={snapshot_end}", names.join(" "))
    }

    fn read(stream: &mut Stream<Infallible>, vbucket: &mut Vbucket) -> String {
        match stream.read(vbucket, limit(100), |_| true) {
            Read::Portion(portion) => shown(&portion),
            Read::CaughtUp => "caught up".into(),
            Read::Behind(after) => format!("behind {after}"),
            Read::Gone => "gone".into(),
        }
    }

    #[test]
    fn a_stream_follows_memory() {
        let mut vbucket = vbucket();
        let mut stream = Stream::open(&mut vbucket, Seqno::ZERO);
        assert_eq!(read(&mut stream, &mut vbucket), "caught up");
        set(&mut vbucket, "a");
        set(&mut vbucket, "b");
        set(&mut vbucket, "a");
        assert_eq!(read(&mut stream, &mut vbucket), "b@2 a@3 -> 3 in 1..=3");
        assert_eq!(read(&mut stream, &mut vbucket), "caught up");
    }

    #[test]
    fn a_stream_contains_no_changes_of_another_history() {
        let mut vbucket = vbucket();
        let mut stream = Stream::open(&mut vbucket, Seqno::ZERO);
        ["a", "b"].into_iter().for_each(|key| set(&mut vbucket, key));
        assert_eq!(read(&mut stream, &mut vbucket), "a@1 b@2 -> 2 in 1..=2");
        vbucket.activate(1, VbUuid(6));
        set(&mut vbucket, "c");
        assert_eq!(read(&mut stream, &mut vbucket), "c@3 -> 3 in 3..=3", "in a new branch");
        vbucket.clear(VbState::Dead, VbUuid(7));
        assert_eq!(read(&mut stream, &mut vbucket), "gone", "not back to 0");
        vbucket.activate(2, VbUuid(8));
        ["d", "e", "f", "g"].into_iter().for_each(|key| set(&mut vbucket, key));
        assert_eq!(read(&mut stream, &mut vbucket), "gone", "g@4 does not come after c@3");
        let mut reopened = Stream::open(&mut vbucket, Seqno::ZERO);
        assert_eq!(read(&mut reopened, &mut vbucket), "d@1 e@2 f@3 g@4 -> 4 in 1..=4");
    }

    #[test]
    fn a_stream_of_history_has_every_version_of_memory() {
        let mut vbucket = vbucket();
        let mut plain = Stream::open(&mut vbucket, Seqno::ZERO);
        let mut stream = Stream::open(&mut vbucket, Seqno::ZERO).with_history();
        set(&mut vbucket, "a");
        set(&mut vbucket, "a");
        assert_eq!(read(&mut stream, &mut vbucket), "a@2 -> 2 in 1..=2", "none is kept yet");
        vbucket.keep_history(Some([CollectionId::DEFAULT].into()));
        ["a", "b", "a"].into_iter().for_each(|key| set(&mut vbucket, key));
        let history = "history a@3 b@4 a@5 -> 5 in 3..=5";
        assert_eq!(read(&mut stream, &mut vbucket), history);
        assert_eq!(read(&mut plain, &mut vbucket), "b@4 a@5 -> 5 in 1..=5", "who did not ask");
    }

    /// Returns the portions of a backfill over `a@1 b@2 a@3 b@4 a@5`, with history from 3 on.
    fn backfilled(after: u64, history_start: Option<u64>, count: usize) -> String {
        let version = |(key, seqno): (&str, u64)| {
            let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
            Ok::<_, Infallible>(Document::new(meta, key.as_bytes(), b"1"))
        };
        let stored = [("\0b", 2), ("\0a", 3), ("\0b", 4), ("\0a", 5)];
        let documents = stored.into_iter().filter(move |(_, seqno)| *seqno > after).map(version);
        let past = StoreScan {
            documents: Box::new(documents),
            end: Seqno(5),
            history_start: history_start.map(Seqno),
        };
        let mut backfill = Backfill::new(past, VbUuid(5), Seqno(after));
        let mut told = Vec::new();
        while !backfill.done {
            told.push(shown(&backfill.read(limit(count)).unwrap()));
        }
        told.join(", ")
    }

    #[test]
    fn a_backfill_is_a_snapshot_up_to_history_and_one_of_history() {
        assert_eq!(
            backfilled(0, Some(3), 9),
            "b@2 -> 2 in 1..=2, history a@3 b@4 a@5 -> 5 in 3..=5"
        );
        assert_eq!(
            backfilled(0, Some(3), 2),
            "b@2 -> 2 in 1..=2, history a@3 b@4 -> 4 in 3..=5, history a@5 -> 5 in 3..=5"
        );
        assert_eq!(
            backfilled(0, Some(3), 1),
            "b@2 -> 2 in 1..=2, history a@3 -> 3 in 3..=5, history b@4 -> 4 in 3..=5, \
             history a@5 -> 5 in 3..=5, history  -> 5 in 3..=5"
        );
        assert_eq!(backfilled(2, Some(3), 9), "history a@3 b@4 a@5 -> 5 in 3..=5");
        assert_eq!(backfilled(3, Some(3), 9), "history b@4 a@5 -> 5 in 4..=5");
        assert_eq!(backfilled(2, Some(9), 9), "a@3 b@4 a@5 -> 5 in 3..=5", "history is younger");
        assert_eq!(backfilled(2, None, 9), "a@3 b@4 a@5 -> 5 in 3..=5");
    }

    #[test]
    fn a_stream_that_is_behind_backfills_and_then_finds_the_rest_in_memory() {
        let mut vbucket = vbucket();
        for key in ["a", "b", "c", "d"] {
            set(&mut vbucket, key);
        }
        vbucket.set_persisted(Seqno(3), usize::MAX);
        let mut stream = Stream::open(&mut vbucket, Seqno::ZERO);
        assert_eq!(read(&mut stream, &mut vbucket), "behind 0");
        let stored: Vec<_> =
            vbucket.documents().filter(|d| d.meta.seqno <= Seqno(3)).cloned().collect();
        let mut stored: Vec<_> = stored.into_iter().map(Ok).collect();
        stored.sort_by_key(|d: &Result<Document, Infallible>| {
            d.as_ref().map_or(Seqno(0), |d| d.meta.seqno)
        });
        let documents = Box::new(stored.into_iter());
        stream.begin_backfill(StoreScan { documents, end: Seqno(3), history_start: None });
        // The rest is stored while the scan runs; the stream's cursor keeps it in memory.
        vbucket.set_persisted(Seqno(4), usize::MAX);
        assert_eq!(shown(&stream.backfill(limit(2)).unwrap()), "a@1 b@2 -> 2 in 1..=3");
        assert_eq!(shown(&stream.backfill(limit(2)).unwrap()), "c@3 -> 3 in 1..=3");
        assert!(!stream.is_backfilling());
        assert_eq!(read(&mut stream, &mut vbucket), "d@4 -> 4 in 4..=4");
        stream.close(&mut vbucket);
        vbucket.set_persisted(Seqno(4), usize::MAX);
        assert_eq!(vbucket.checkpoint().memory_bytes(), 0, "a closed stream holds nothing back");
    }

    /// The snapshot 1 to 5 omits `a`, which version 5 has superseded. A consumer that stopped at 3 is not consistent before it
    /// has version 5.
    #[test]
    fn a_stream_that_continues_within_a_snapshot_stays_within_it() {
        let within = |seqno, snapshot_start, snapshot_end| ResumePoint {
            vb_uuid: VbUuid(5),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(snapshot_start),
            snapshot_end: Seqno(snapshot_end),
        };
        let past = |documents: &'static [(&str, u64)], end| {
            let version = |(key, seqno): &(&str, u64)| {
                let meta = Meta { seqno: Seqno(*seqno), ..Meta::default() };
                Ok::<_, Infallible>(Document::new(meta, format!("\0{key}").as_bytes(), b"1"))
            };
            let documents = Box::new(documents.iter().map(version));
            StoreScan { documents, end: Seqno(end), history_start: None }
        };
        let mut vbucket = vbucket();
        for key in ["a", "b", "c", "d", "a", "e", "f"] {
            set(&mut vbucket, key);
        }
        let mut stream = Stream::resume(&mut vbucket, &within(3, 1, 5));
        stream.begin_backfill(past(&[("d", 4), ("a", 5), ("e", 6)], 6));
        assert_eq!(shown(&stream.backfill(limit(1)).unwrap()), "d@4 -> 4 in 1..=6");
        stream.cut_backfill();
        stream.begin_backfill(past(&[("a", 5), ("e", 6)], 6));
        assert_eq!(shown(&stream.backfill(limit(9)).unwrap()), "a@5 e@6 -> 6 in 1..=6");
        assert_eq!(read(&mut stream, &mut vbucket), "f@7 -> 7 in 7..=7");

        let mut from_memory = Stream::resume(&mut vbucket, &within(3, 1, 5));
        assert_eq!(read(&mut from_memory, &mut vbucket), "d@4 a@5 e@6 f@7 -> 7 in 1..=7");
        let mut between = Stream::resume(&mut vbucket, &within(3, 3, 5));
        assert_eq!(read(&mut between, &mut vbucket), "d@4 a@5 e@6 f@7 -> 7 in 4..=7");
    }

    #[test]
    fn evicted_history_without_wanted_documents_is_skipped() {
        let mut vbucket = vbucket();
        ["a", "b"].into_iter().for_each(|key| set(&mut vbucket, key));
        vbucket.set_persisted(Seqno(2), usize::MAX);
        set(&mut vbucket, "c");
        let mut stream = Stream::<Infallible>::open(&mut vbucket, Seqno::ZERO);
        let mut read = |wanted| match stream.read(&mut vbucket, limit(100), |id| id == wanted) {
            Read::Portion(portion) => shown(&portion),
            other => format!("{other:?}"),
        };
        assert_eq!(read(CollectionId::DEFAULT), "Behind(Seqno(0))");
        assert_eq!(read(CollectionId(8)), " -> 2 in 1..=2");
        assert_eq!(read(CollectionId(8)), "c@3 -> 3 in 3..=3", "whoever reads looks for itself");
    }
}
