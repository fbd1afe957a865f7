//! One consumer's way through one vBucket's history.

use crate::ResumePoint;
use nacre_types::{Document, Seqno, VbUuid, Vbid};
use nacre_vbucket::{CursorId, Vbucket};
use std::sync::Arc;

/// Consecutive documents of one vBucket.
#[derive(Clone, Debug, Default)]
pub struct Portion {
    /// Ascending by seqno; may be empty when only the position moved.
    pub documents: Vec<Arc<Document>>,
    /// Where the consumer stands after them. Consistent when `seqno == snapshot_end`.
    pub position: ResumePoint,
}

/// What a read of memory found.
#[derive(Clone, Debug)]
pub enum Read {
    /// A whole snapshot.
    Portion(Portion),
    /// Nothing new.
    CaughtUp,
    /// The next part is only in the store: scan it after this seqno and [begin a backfill](Stream::begin_backfill).
    Behind(Seqno),
}

struct Backfill<E> {
    documents: Box<dyn Iterator<Item = Result<Arc<Document>, E>> + Send>,
    start: Seqno,
    end: Seqno,
}

/// A cursor on one vBucket's history, with the backfill that brings it to memory when it is behind.
///
/// `E` is the error of the store that backfills read from.
pub struct Stream<E> {
    vbid: Vbid,
    cursor: CursorId,
    vb_uuid: VbUuid,
    position: Seqno,
    backfill: Option<Backfill<E>>,
}

impl<E> Stream<E> {
    /// A stream of what follows `after`, which the caller has found [shared](crate::resume) with the vBucket.
    pub fn open(vbucket: &mut Vbucket, after: Seqno) -> Stream<E> {
        Stream {
            vbid: vbucket.id(),
            cursor: vbucket.checkpoint_mut().register(after),
            vb_uuid: vbucket.failover_log().current(),
            position: after,
            backfill: None,
        }
    }

    /// The vBucket it follows.
    pub fn vbid(&self) -> Vbid {
        self.vbid
    }

    /// The last seqno handed out.
    pub fn position(&self) -> Seqno {
        self.position
    }

    /// Whether a backfill is under way, so that [`Stream::backfill`] is what to call.
    pub fn is_backfilling(&self) -> bool {
        self.backfill.is_some()
    }

    /// Reads the next snapshot from memory, of at most `limit` seqnos.
    pub fn read(&mut self, vbucket: &mut Vbucket, limit: usize) -> Read {
        debug_assert!(self.backfill.is_none(), "a backfill comes before memory");
        self.vb_uuid = vbucket.failover_log().current();
        let Some(drained) = vbucket.checkpoint().read(self.position, limit) else {
            // What is not stored yet must wait in memory for the end of the scan.
            let persisted = vbucket.persisted();
            vbucket.checkpoint_mut().advance(self.cursor, persisted);
            return Read::Behind(self.position);
        };
        if drained.snapshot_end == self.position {
            return Read::CaughtUp;
        }
        self.position = drained.snapshot_end;
        vbucket.checkpoint_mut().advance(self.cursor, self.position);
        let position = ResumePoint {
            vb_uuid: self.vb_uuid,
            seqno: drained.snapshot_end,
            snapshot_start: drained.snapshot_start,
            snapshot_end: drained.snapshot_end,
        };
        Read::Portion(Portion { documents: drained.documents, position })
    }

    /// Takes a scan of the store that began after [`Read::Behind`] was reported and ends at `end`.
    pub fn begin_backfill(
        &mut self,
        documents: Box<dyn Iterator<Item = Result<Arc<Document>, E>> + Send>,
        end: Seqno,
    ) {
        self.backfill = Some(Backfill { documents, start: self.position.next(), end });
    }

    /// Reads at most `limit` documents of the backfill; the last portion stands at the end of its snapshot.
    ///
    /// # Errors
    /// What the store reports. The stream has not moved past what it handed out.
    pub fn backfill(&mut self, limit: usize) -> Result<Portion, E> {
        let backfill = self.backfill.as_mut().expect("only called during a backfill");
        let documents = backfill.documents.by_ref().take(limit).collect::<Result<Vec<_>, E>>()?;
        let (start, end) = (backfill.start, backfill.end);
        let done = documents.len() < limit;
        self.position = match documents.last() {
            Some(last) if !done => last.meta.seqno,
            _ => end.max(self.position),
        };
        if done {
            self.backfill = None;
        }
        let position = ResumePoint {
            vb_uuid: self.vb_uuid,
            seqno: self.position,
            snapshot_start: start.min(self.position),
            snapshot_end: end.max(self.position),
        };
        Ok(Portion { documents, position })
    }

    /// Ends the stream: history no longer waits for it.
    pub fn close(self, vbucket: &mut Vbucket) {
        vbucket.checkpoint_mut().unregister(self.cursor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Cas, Now};
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

    fn shown(portion: &Portion) -> String {
        let names: Vec<String> = portion
            .documents
            .iter()
            .map(|d| format!("{}@{}", String::from_utf8_lossy(d.name()), d.meta.seqno))
            .collect();
        let ResumePoint { seqno, snapshot_start, snapshot_end, .. } = portion.position;
        format!("{} -> {seqno} in {snapshot_start}..={snapshot_end}", names.join(" "))
    }

    fn read(stream: &mut Stream<Infallible>, vbucket: &mut Vbucket) -> String {
        match stream.read(vbucket, 100) {
            Read::Portion(portion) => shown(&portion),
            Read::CaughtUp => "caught up".into(),
            Read::Behind(after) => format!("behind {after}"),
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
        stored.sort_by_key(|d: &Result<Arc<Document>, Infallible>| {
            d.as_ref().map_or(Seqno(0), |d| d.meta.seqno)
        });
        stream.begin_backfill(Box::new(stored.into_iter()), Seqno(3));
        // While the scan runs, the rest is stored too; the stream's cursor keeps it in memory.
        vbucket.set_persisted(Seqno(4), usize::MAX);
        assert_eq!(shown(&stream.backfill(2).unwrap()), "a@1 b@2 -> 2 in 1..=3");
        assert_eq!(shown(&stream.backfill(2).unwrap()), "c@3 -> 3 in 1..=3");
        assert!(!stream.is_backfilling());
        assert_eq!(read(&mut stream, &mut vbucket), "d@4 -> 4 in 4..=4");
        stream.close(&mut vbucket);
        vbucket.set_persisted(Seqno(4), usize::MAX);
        assert_eq!(vbucket.checkpoint().memory_bytes(), 0, "a closed stream holds nothing back");
    }
}
