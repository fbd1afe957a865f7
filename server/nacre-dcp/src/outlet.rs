//! Turns the portions of a stream into messages to its consumer.

use crate::interest::Interest;
use crate::{Portion, ResumePoint};
use nacre_types::{Document, Kind, Seqno};

/// The source of a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The checkpoint.
    Memory,
    /// The store.
    Disk,
}

/// The reason why a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream has reached its requested end.
    Complete,
    /// The consumer closed the stream.
    Closed,
    /// The vBucket has left this node, or its history has branched.
    VbucketGone,
    /// The store could not be read.
    BackfillFailed,
    /// The scope or the collections of interest were dropped.
    NothingOfInterest,
    /// The consumer's user has lost the privilege to read the stream.
    Forbidden,
}

/// A message to a consumer.
#[derive(Clone, Debug)]
pub enum Message {
    /// The following versions are within these seqnos. Each key occurs once, unless the snapshot is history.
    Snapshot {
        /// The first seqno or a lower one.
        start: Seqno,
        /// The seqno at which the consumer is consistent.
        end: Seqno,
        /// The source of the snapshot.
        origin: Origin,
        /// True if the snapshot has every version of collections that keep history.
        is_history: bool,
        /// The purge seqno with which the consumer may resume anywhere in the snapshot even though its own seqno is
        /// lower. Zero if it may not.
        purged: Seqno,
    },
    /// A version of a document, or an event.
    Document(Document),
    /// History has advanced to this seqno without a version that the consumer receives.
    Advanced(Seqno),
    /// The stream has ended.
    End(End),
}

/// A consumer's request for a vBucket.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Documents and events to send.
    pub interest: Interest,
    /// The last seqno.
    pub end: Seqno,
    /// True if the consumer is informed of seqnos whose versions it does not receive.
    pub advances: bool,
    /// True if backfills omit tombstones, except in history.
    pub skips_deletes: bool,
    /// True if the consumer receives every version that the vBucket keeps.
    pub history: bool,
}

/// Turns the portions of a stream into messages.
#[derive(Debug)]
pub(crate) struct Outlet {
    wanted: Wanted,
    /// The start of the snapshot within which the consumer resumes. Only used for the first snapshot.
    resumed: Option<Seqno>,
    /// The end of the last announced snapshot.
    announced: Option<Seqno>,
    /// The last seqno that the consumer was informed of.
    last_sent: Seqno,
    /// The last seqno that was read.
    position: Seqno,
    /// The purge seqno up to which the consumer has missed no deletion and will miss none, although its position may be
    /// lower.
    purged: Seqno,
}

impl Outlet {
    /// Creates the outlet of a consumer that resumes at `from`. `purged` was the purge seqno when the stream was
    /// accepted.
    pub fn new(wanted: Wanted, from: ResumePoint, purged: Seqno) -> Outlet {
        let complete = from.seqno == from.snapshot_end;
        let resumed = Some(if complete { from.seqno } else { from.snapshot_start });
        let (last_sent, position) = (from.seqno, from.seqno);
        Outlet { wanted, resumed, announced: None, last_sent, position, purged }
    }

    /// Returns the consumer's request with the current interest.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns the last requested seqno.
    pub fn end(&self) -> Seqno {
        self.wanted.end
    }

    /// Returns the reason why the stream ends at `seqno`, if it does.
    pub fn end_at(&self, seqno: Seqno) -> Option<End> {
        if self.wanted.interest == Interest::Nothing {
            return Some(End::NothingOfInterest);
        }
        (seqno >= self.wanted.end).then_some(End::Complete)
    }

    /// Updates `purged` with the purge seqno of the next portion's read, or of the start of its scan.
    ///
    /// A scan of the newest versions contains no version that a purged tombstone deleted. Memory and history may
    /// contain such a version followed by its tombstone; if the consumer reconnects in between, the tombstone may have
    /// been purged.
    fn note_purged(&mut self, has_newest_only: bool, purged: Seqno) {
        let begins = self.position == Seqno::ZERO;
        let has_all = has_newest_only && (begins || self.purged == purged);
        self.purged = if self.position >= purged || has_all { purged } else { Seqno::ZERO };
    }

    /// Appends the messages of a portion. `purged` is the purge seqno when the portion was read, or when its scan
    /// began.
    pub fn append(
        &mut self,
        portion: Portion,
        origin: Origin,
        purged: Seqno,
        mut emit: impl FnMut(Message),
    ) {
        self.note_purged(origin == Origin::Disk && !portion.is_history, purged);
        let ResumePoint { seqno, snapshot_start, snapshot_end, .. } = portion.position;
        self.position = seqno;
        let is_history = portion.is_history;
        let skips_deletes = self.wanted.skips_deletes && origin == Origin::Disk && !is_history;
        let Wanted { interest, end, .. } = &mut self.wanted;
        let shown: Vec<Document> = portion
            .documents
            .into_iter()
            .filter(|document| document.meta.seqno <= *end && interest.admits(document))
            .filter(|document| {
                !(skips_deletes && document.collection().holds_documents() && is_gone(document))
            })
            .collect();
        let last = shown.last().map(|document| document.meta.seqno);
        let reached = seqno.min(self.wanted.end);
        let ends = seqno == snapshot_end || reached == self.wanted.end;
        let lags = ends && self.wanted.advances && last.unwrap_or(self.last_sent) < reached;
        if last.is_none() && !lags {
            return;
        }
        if self.announced != Some(snapshot_end) {
            self.announced = Some(snapshot_end);
            let start = self.resumed.take().unwrap_or(snapshot_start).min(snapshot_start);
            // A consumer that is not informed of the seqnos of other versions would wait for them at the end of the
            // snapshot.
            let end = match last {
                Some(last) if origin == Origin::Memory && !self.wanted.advances => last,
                _ => snapshot_end,
            };
            emit(Message::Snapshot { start, end, origin, is_history, purged: self.purged });
        }
        shown.into_iter().for_each(|document| emit(Message::Document(document)));
        if lags {
            emit(Message::Advanced(reached));
        }
        self.last_sent = if lags { reached } else { last.unwrap_or(self.last_sent) };
    }
}

fn is_gone(document: &Document) -> bool {
    document.meta.kind != Kind::Alive
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{CollectionId, DocKey, Meta, VbUuid};

    fn portion(documents: &[(u32, u64)], seqno: u64, start: u64, end: u64) -> Portion {
        let document = |(collection, seqno): &(u32, u64)| {
            let meta = Meta { seqno: Seqno(*seqno), ..Meta::default() };
            let key = DocKey::new(CollectionId(*collection), b"k");
            Document::new(meta, key.prefixed(), b"1")
        };
        let position = ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
        };
        Portion { documents: documents.iter().map(document).collect(), position, is_history: false }
    }

    fn outlet(interest: Interest, end: u64, advances: bool) -> Outlet {
        let wanted =
            Wanted { interest, end: Seqno(end), advances, skips_deletes: false, history: false };
        Outlet::new(wanted, ResumePoint::default(), Seqno::ZERO)
    }

    fn told(outlet: &mut Outlet, portion: Portion, origin: Origin) -> String {
        let mut said = Vec::new();
        outlet.append(portion, origin, Seqno::ZERO, |message| {
            said.push(match message {
                Message::Snapshot { start, end, .. } => format!("{start}..{end}"),
                Message::Document(document) => format!("@{}", document.meta.seqno),
                Message::Advanced(seqno) => format!("->{seqno}"),
                Message::End(end) => format!("{end:?}"),
            });
        });
        said.join(" ")
    }

    #[test]
    fn each_snapshot_is_announced_once() {
        let mut outlet = outlet(Interest::Everything, u64::MAX, true);
        let mut tell = |portion| told(&mut outlet, portion, Origin::Disk);
        assert_eq!(tell(portion(&[(0, 1), (0, 2)], 2, 1, 9)), "0..9 @1 @2");
        assert_eq!(tell(portion(&[(0, 7)], 7, 1, 9)), "@7");
        assert_eq!(tell(portion(&[], 9, 1, 9)), "->9", "nothing is at the end of the scan");
        assert_eq!(tell(portion(&[(0, 10)], 10, 10, 10)), "10..10 @10");
    }

    #[test]
    fn unseen_documents_advance_a_consumer_too() {
        let mut outlet = outlet(Interest::DefaultCollection, u64::MAX, true);
        let mut tell = |portion| told(&mut outlet, portion, Origin::Memory);
        assert_eq!(tell(portion(&[(0, 1), (8, 2)], 2, 1, 2)), "0..2 @1 ->2");
        assert_eq!(tell(portion(&[(8, 3)], 3, 3, 3)), "3..3 ->3");
        assert_eq!(tell(portion(&[(8, 4), (0, 5)], 5, 4, 5)), "4..5 @5");
    }

    #[test]
    fn a_consumer_without_seqno_advances_gets_snapshots_that_end_with_a_visible_document() {
        let mut outlet = outlet(Interest::DefaultCollection, u64::MAX, false);
        let mut tell = |portion| told(&mut outlet, portion, Origin::Memory);
        assert_eq!(tell(portion(&[(0, 1), (8, 2)], 2, 1, 2)), "0..1 @1");
        assert_eq!(tell(portion(&[(8, 3)], 3, 3, 3)), "");
    }

    #[test]
    fn nothing_beyond_the_end_is_sent_though_the_scan_continues() {
        let mut outlet = outlet(Interest::Everything, 5, true);
        let mut tell = |portion| told(&mut outlet, portion, Origin::Disk);
        assert_eq!(tell(portion(&[(0, 2), (0, 8)], 8, 1, 20)), "0..20 @2 ->5");
        assert_eq!(outlet.end_at(Seqno(8)), Some(End::Complete));
        assert_eq!(outlet.end_at(Seqno(4)), None);
    }

    #[test]
    fn a_consumer_that_stopped_within_a_snapshot_continues_in_it() {
        let wanted = Wanted {
            interest: Interest::Everything,
            end: Seqno(u64::MAX),
            advances: true,
            skips_deletes: false,
            history: false,
        };
        let at = |seqno, start, end| ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
        };
        let next = || portion(&[(0, 8)], 8, 6, 8);
        let mut within = Outlet::new(wanted.clone(), at(5, 3, 9), Seqno::ZERO);
        assert_eq!(told(&mut within, next(), Origin::Memory), "3..8 @8");
        let mut behind = Outlet::new(wanted, at(5, 3, 5), Seqno::ZERO);
        assert_eq!(told(&mut behind, next(), Origin::Memory), "5..8 @8");
    }

    #[test]
    fn deletions_are_left_out_of_a_backfill_only() {
        let wanted = Wanted {
            interest: Interest::Everything,
            end: Seqno(u64::MAX),
            advances: true,
            skips_deletes: true,
            history: false,
        };
        let mut outlet = Outlet::new(wanted, ResumePoint::default(), Seqno::ZERO);
        let deleted = |seqno| {
            let meta = Meta { seqno: Seqno(seqno), kind: Kind::Deleted, ..Meta::default() };
            let documents = vec![Document::new(meta, b"\0k", b"")];
            Portion { documents, ..portion(&[], seqno, seqno, seqno) }
        };
        assert_eq!(told(&mut outlet, deleted(1), Origin::Disk), "0..1 ->1");
        assert_eq!(told(&mut outlet, deleted(2), Origin::Memory), "2..2 @2");
        let history = Portion { is_history: true, ..deleted(3) };
        assert_eq!(
            told(&mut outlet, history, Origin::Disk),
            "3..3 @3",
            "nothing is left out of it"
        );
    }

    /// Returns the purge seqno in each snapshot of `portions`. A portion has a source, a first and a last seqno, and a
    /// purge seqno. The consumer resumes at `from`; `purged` was the purge seqno when its stream was accepted.
    fn purged(from: u64, purged: u64, portions: &[(Origin, u64, u64, u64)]) -> Vec<u64> {
        let wanted = outlet(Interest::Everything, u64::MAX, true).wanted;
        let at = Seqno(from);
        let from =
            ResumePoint { vb_uuid: VbUuid(1), seqno: at, snapshot_start: at, snapshot_end: at };
        let mut outlet = Outlet::new(wanted, from, Seqno(purged));
        let mut named = Vec::new();
        for &(origin, start, end, purged) in portions {
            outlet.append(
                portion(&[(0, end)], end, start, end),
                origin,
                Seqno(purged),
                |message| {
                    if let Message::Snapshot { purged, .. } = message {
                        named.push(purged.0);
                    }
                },
            );
        }
        named
    }

    #[test]
    fn a_snapshot_names_the_purge_seqno_that_is_as_good_as_seen() {
        use Origin::{Disk, Memory};
        assert_eq!(purged(0, 0, &[(Disk, 1, 50, 60), (Disk, 51, 90, 60)]), [60, 60], "one scan");
        assert_eq!(purged(10, 60, &[(Disk, 11, 50, 60)]), [60], "it came back with that");
        assert_eq!(
            purged(10, 0, &[(Disk, 11, 90, 60), (Memory, 91, 91, 60)]),
            [0, 60],
            "purged since"
        );
        assert_eq!(purged(70, 60, &[(Memory, 71, 71, 60), (Memory, 72, 72, 65)]), [60, 65]);
        assert_eq!(
            purged(0, 60, &[(Memory, 1, 40, 60), (Disk, 41, 90, 60)]),
            [0, 0],
            "it may have what was deleted"
        );
        assert_eq!(purged(0, 60, &[(Disk, 1, 40, 60), (Memory, 41, 50, 60)]), [60, 0]);
        let mut all = outlet(Interest::Everything, u64::MAX, true);
        let history = Portion { is_history: true, ..portion(&[(0, 5)], 5, 1, 9) };
        let mut named = None;
        all.append(history, Disk, Seqno(8), |message| {
            if let Message::Snapshot { purged, .. } = message {
                named = Some(purged);
            }
        });
        assert_eq!(named, Some(Seqno::ZERO), "what was superseded is in it");
    }
}
