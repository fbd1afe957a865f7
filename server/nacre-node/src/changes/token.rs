//! Where a consumer of changes stands in every vBucket, as text that means nothing to its holder.
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
//! in base64 for URLs; numbers are LEB128.

use super::Gone;
use crate::bucket::Bucket;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nacre_dcp::ResumePoint;
use nacre_types::{CollectionId, Seqno, VbUuid, Vbid};
use std::collections::BTreeMap;
use std::fmt;

const VERSION: u8 = 1;

/// Where a consumer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub(super) bucket: String,
    pub(super) collection: CollectionId,
    pub(super) points: BTreeMap<Vbid, ResumePoint>,
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

impl Token {
    /// Where its holder stands in each vBucket that has a history.
    pub(crate) fn into_points(self) -> BTreeMap<Vbid, ResumePoint> {
        self.points
    }

    /// Its points, if it belongs to a collection of a bucket.
    pub(super) fn check(
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
