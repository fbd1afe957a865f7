//! The changes of one collection over all vBuckets, for consumers that keep one token.
//!
//! A [`Token`] says where a consumer stands in every vBucket. It is text that means nothing to its holder:
//!
//! ```text
//! 1 byte    version, 1
//! bytes     uuid of the bucket, behind its length
//! number    collection
//! number    vBuckets, then for each that has a history, in order:
//!   number    vBucket
//!   8 bytes   UUID of the branch
//!   3 numbers seqno, how far the snapshot begins before it, how far it ends behind it
//! ```
//!
//! in base64 for URLs; numbers are LEB128. A consumer that names its last token gets what came after it, and nothing twice.

use crate::bucket::Bucket;
use crate::tap::Tap;
use crate::ticket::Waiter;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nacre_dcp::{Address, End, Interest, Message, Resume, ResumePoint, Wanted, resume};
use nacre_types::{CollectionId, Document, Seqno, VbUuid, Vbid};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

const VERSION: u8 = 1;

/// Where a consumer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    bucket: String,
    collection: CollectionId,
    points: BTreeMap<Vbid, ResumePoint>,
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoToken;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        push(self.bucket.len() as u64, &mut bytes);
        bytes.extend_from_slice(self.bucket.as_bytes());
        push(u64::from(self.collection.0), &mut bytes);
        push(self.points.len() as u64, &mut bytes);
        for (vbid, point) in &self.points {
            push(u64::from(vbid.0), &mut bytes);
            bytes.extend(point.vb_uuid.0.to_be_bytes());
            push(point.seqno.0, &mut bytes);
            push(point.seqno.0 - point.snapshot_start.0, &mut bytes);
            push(point.snapshot_end.0 - point.seqno.0, &mut bytes);
        }
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl std::str::FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Token, NoToken> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| NoToken)?;
        read(&bytes).ok_or(NoToken)
    }
}

fn read(bytes: &[u8]) -> Option<Token> {
    let mut rest = bytes.strip_prefix(&[VERSION])?;
    let length = usize::try_from(pop(&mut rest)?).ok()?;
    let (bucket, behind) = rest.split_at_checked(length)?;
    rest = behind;
    let collection = CollectionId(u32::try_from(pop(&mut rest)?).ok()?);
    let mut points = BTreeMap::new();
    for _ in 0..pop(&mut rest)? {
        let vbid = Vbid(u16::try_from(pop(&mut rest)?).ok()?);
        let (vb_uuid, behind) = rest.split_first_chunk::<8>()?;
        rest = behind;
        let seqno = pop(&mut rest)?;
        let point = ResumePoint {
            vb_uuid: VbUuid(u64::from_be_bytes(*vb_uuid)),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(seqno.checked_sub(pop(&mut rest)?)?),
            snapshot_end: Seqno(seqno.checked_add(pop(&mut rest)?)?),
        };
        // Each vBucket once, in order: a token has one form.
        if points.last_key_value().is_some_and(|(last, _)| *last >= vbid) {
            return None;
        }
        points.insert(vbid, point);
    }
    let bucket = std::str::from_utf8(bucket).ok()?.to_owned();
    rest.is_empty().then_some(Token { bucket, collection, points })
}

/// Appends `number` as unsigned LEB128.
fn push(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number of at most 63 bits from the front, which is more than a seqno ever has.
fn pop(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

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

impl Token {
    fn check(
        &self,
        bucket: &Bucket,
        collection: CollectionId,
    ) -> Result<&BTreeMap<Vbid, ResumePoint>, Gone> {
        let count = bucket.vbucket_count();
        if self.bucket != bucket.uuid || self.points.keys().any(|vbid| vbid.0 >= count) {
            return Err(Gone("it is one of another bucket".into()));
        }
        if self.collection != collection {
            return Err(Gone("it is one of another collection".into()));
        }
        Ok(&self.points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let point = |seqno, start, end| ResumePoint {
            vb_uuid: VbUuid(0x0102_0304_0506_0708),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
        };
        let points =
            [(Vbid(3), point(200, 1, 300)), (Vbid(1023), point(1 << 40, 1 << 40, 1 << 40))];
        Token { bucket: "abc".into(), collection: CollectionId(9), points: points.into() }
    }

    #[test]
    fn a_token_is_read_as_it_was_given() {
        let text = token().to_string();
        assert_eq!(text, "AQNhYmMJAgMBAgMEBQYHCMgBxwFk_wcBAgMEBQYHCICAgICAIAAA");
        assert_eq!(text.parse(), Ok(token()));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token().to_string()).unwrap();
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length} bytes of it");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()), None, "more than it");
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            read(&bytes)
        };
        assert_eq!(changed(0, 2), None, "another version");
        assert_eq!(changed(1, 0xff), None, "a length beyond its end");
        assert_eq!(changed(6, 0x7f), None, "more vBuckets than there are");
        for text in ["", "?", "0", "AQ==", "now"] {
            assert_eq!(text.parse::<Token>(), Err(NoToken), "{text}");
        }
    }
}
