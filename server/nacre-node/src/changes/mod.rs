//! The changes of one collection over all vBuckets, for consumers that keep one token.
//!
//! A consumer that names its last [`Token`] gets what came after it, and nothing twice.

mod token;

pub use token::{NoToken, Token};

use crate::bucket::Bucket;
use crate::tap::Tap;
use crate::ticket::Waiter;
use nacre_dcp::{Address, End, Interest, Message, Resume, ResumePoint, Wanted, resume};
use nacre_types::{CollectionId, Document, Seqno, Vbid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// From where on a consumer wants changes.
#[derive(Clone, Debug)]
pub enum Since {
    /// The first that there is.
    Beginning,
    /// What comes from now on.
    Now,
    /// What came after this.
    Token(Token),
}

/// Up to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// What there is now.
    Now,
    /// Without an end.
    Forever,
}

/// Why the changes after a token cannot be told without gaps, in words: the consumer must begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

/// One change of a document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The vBucket it belongs to, in whose order it stands.
    pub vbid: Vbid,
    /// The version it led to.
    pub document: Arc<Document>,
}

/// What comes next.
#[derive(Clone, Debug)]
pub enum Next {
    /// A change.
    Change(Change),
    /// Nothing now; the waiter is woken when that may change.
    Nothing,
    /// There will not be more: all was told that was asked for.
    Complete,
    /// There will not be more, for this reason.
    Broken(&'static str),
}

/// A reader of a collection's changes.
pub struct Changes {
    tap: Tap,
    collection: CollectionId,
    points: BTreeMap<Vbid, ResumePoint>,
    broken: Option<&'static str>,
}

impl Changes {
    /// Begins to read. `waiter` is woken when there may be more.
    ///
    /// # Errors
    /// [`Gone`] when `since` does not belong here, or no more.
    pub fn open(
        bucket: Arc<Bucket>,
        collection: CollectionId,
        since: Since,
        until: Until,
        waiter: Arc<dyn Waiter>,
    ) -> Result<Changes, Gone> {
        let known = match &since {
            Since::Token(token) => token.check(&bucket, collection)?.clone(),
            Since::Beginning | Since::Now => BTreeMap::new(),
        };
        let mut tap = Tap::new(bucket, waiter);
        let mut points = BTreeMap::new();
        let Tap { bucket, producer, .. } = &mut tap;
        for vbid in (0..bucket.vbucket_count()).map(Vbid) {
            let Some(mut vbucket) = bucket.served(vbid) else { continue };
            let (high, current) = (vbucket.high_seqno(), vbucket.failover_log().current());
            let at = |seqno| ResumePoint {
                vb_uuid: current,
                seqno,
                snapshot_start: seqno,
                snapshot_end: seqno,
            };
            let from = match &since {
                Since::Now => at(high),
                _ => known.get(&vbid).copied().unwrap_or(at(Seqno::ZERO)),
            };
            match resume(&from, vbucket.failover_log(), high, vbucket.purge_seqno()) {
                Resume::Continue => {}
                Resume::Rollback(Seqno::ZERO) => {
                    return Err(Gone(format!(
                        "deletions after it were forgotten, or its history is unknown ({vbid})"
                    )));
                }
                Resume::Rollback(to) => {
                    return Err(Gone(format!(
                        "the end of its history was lost: only seqno {to} of {vbid} is left of {}",
                        from.seqno
                    )));
                }
                Resume::Invalid => return Err(Gone("it contradicts itself".into())),
            }
            let wanted = Wanted {
                interest: Interest::Collections(BTreeSet::from([collection])),
                end: match until {
                    Until::Now => high.max(from.seqno),
                    Until::Forever => Seqno(u64::MAX),
                },
                advances: true,
                skips_deletes: false,
                history: false,
            };
            let address = Address { vbid, stream_id: None, opaque: 0 };
            producer.open(&mut vbucket, address, from, wanted);
            // What it has comes from here on in the branch that is current now.
            points.insert(vbid, ResumePoint { vb_uuid: current, ..from });
        }
        Ok(Changes { tap, collection, points, broken: None })
    }

    /// The next change, if there is one now. Never waits.
    pub fn next_change(&mut self) -> Next {
        loop {
            if self.tap.bucket.is_closed() {
                return Next::Broken("the bucket has ended");
            }
            if let Some(why) = self.broken {
                return Next::Broken(why);
            }
            match self.tap.next() {
                Some((address, message)) => {
                    if let Some(document) = self.take(address.vbid, message) {
                        return Next::Change(Change { vbid: address.vbid, document });
                    }
                }
                None if self.tap.has_scanned() || self.tap.is_ready() => {
                    self.tap.refresh();
                    self.tap.begin_scans();
                }
                None if self.tap.producer.is_empty() => return Next::Complete,
                None => return Next::Nothing,
            }
        }
    }

    /// Whether nothing is on its way from the store, so that after [`Next::Nothing`] all that has happened was told.
    pub fn is_caught_up(&self) -> bool {
        !self.tap.producer.holds_scans()
    }

    /// Where the reader stands after what [`Changes::next_change`] has given.
    pub fn token(&self) -> Token {
        let told = self.points.iter().filter(|(_, point)| point.seqno > Seqno::ZERO);
        Token {
            bucket: self.tap.bucket.uuid.clone(),
            collection: self.collection,
            points: told.map(|(vbid, point)| (*vbid, *point)).collect(),
        }
    }

    /// Notes where a message leads; gives the document that it shows.
    fn take(&mut self, vbid: Vbid, message: Message) -> Option<Arc<Document>> {
        let point = self.points.entry(vbid).or_default();
        match message {
            // It counts with the first seqno in it.
            Message::Snapshot { start, end, .. } => {
                point.snapshot_start = start.min(point.seqno);
                point.snapshot_end = end.max(point.seqno);
                None
            }
            Message::Document(document) => {
                point.seqno = document.meta.seqno;
                point.snapshot_start = point.snapshot_start.min(point.seqno);
                (document.collection() == self.collection).then_some(document)
            }
            Message::Advanced(seqno) => {
                point.seqno = seqno;
                None
            }
            Message::End(end) => {
                self.broken = match end {
                    End::Complete => self.broken,
                    End::NothingOfInterest => Some("the collection was dropped"),
                    _ => Some("its history cannot be read"),
                };
                None
            }
        }
    }
}
