//! A consumer's position in every vBucket, as opaque text.
//!
//! ```text
//! 1 byte    version, 1
//! bytes     UUID of the bucket, preceded by its length
//! number    collection
//! number    vBuckets, then for each that has a history, in order:
//!   number    vBucket
//!   8 bytes   UUID of the branch
//! 3 numbers seqno, distance back to the start of the snapshot, distance forward to its end
//! ```
//!
//! The text is this in URL-safe base64; numbers are LEB128. This form is stored. Consumers receive a shorter form,
//! because a URL or a header may be limited to 8 KiB:
//!
//! ```text
//! 1 byte    version, 2
//! bytes     UUID of the bucket, preceded by its length
//! number    collection
//! number    vBuckets from 0 to the last one with a history
//! bits      which of them have a history, eight to a byte
//! blocks    of 64 of those: number, the smallest seqno; byte, bits of a difference; the packed differences to it
//! 4 bytes   for each: the lowest 32 bits of its branch's UUID
//! number    of positions within a snapshot, then for each:
//!   3 numbers vBucket, distance back to the start of the snapshot, distance forward to its end
//! ```
//!
//! The node that serves a vBucket knows its branches, and finds the right one by the lowest 32 bits ([`resolve`]).
//! Fewer bits would match a wrong branch too often: a consumer would then not notice that it has lost history.

use super::Gone;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nacre_bucket::Bucket;
use nacre_dcp::ResumePoint;
use nacre_types::{CollectionId, FailoverLog, Seqno, VbUuid, Vbid};
use std::collections::BTreeMap;
use std::fmt;

const VERSION: u8 = 1;
const VERSION_SHORT: u8 = 2;
/// Number of vBuckets whose seqnos are packed together.
const BLOCK: usize = 64;
/// The highest 32 bits of a UUID of which only the lowest 32 bits are known. UUIDs are random: one rarely has these bits by chance,
/// and [`resolve`] finds such a branch too.
const SHORTENED: u64 = 0x6e61_6372_0000_0000;

/// A consumer's position in all vBuckets of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub(super) bucket: String,
    pub(super) collection: CollectionId,
    pub(super) points: BTreeMap<Vbid, ResumePoint>,
}

/// The error for a text that is not a token.
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

impl Token {
    /// Returns the short form, for consumers.
    pub fn short(&self) -> String {
        let mut bytes = vec![VERSION_SHORT];
        push(self.bucket.len() as u64, &mut bytes);
        bytes.extend_from_slice(self.bucket.as_bytes());
        push(u64::from(self.collection.0), &mut bytes);
        let span = self.points.last_key_value().map_or(0, |(last, _)| usize::from(last.0) + 1);
        push(span as u64, &mut bytes);
        let mut present = vec![0u8; span.div_ceil(8)];
        for vbid in self.points.keys() {
            present[usize::from(vbid.0) / 8] |= 1 << (vbid.0 % 8);
        }
        bytes.extend(present);
        let seqnos: Vec<u64> = self.points.values().map(|point| point.seqno.0).collect();
        seqnos.chunks(BLOCK).for_each(|block| pack(block, &mut bytes));
        for point in self.points.values() {
            bytes.extend((point.vb_uuid.0 as u32).to_be_bytes());
        }
        // A position at the end of a snapshot is not within it.
        let is_within = |point: &ResumePoint| point.seqno != point.snapshot_end;
        let within: Vec<_> = self.points.iter().filter(|(_, point)| is_within(point)).collect();
        push(within.len() as u64, &mut bytes);
        for (vbid, point) in within {
            push(u64::from(vbid.0), &mut bytes);
            push(point.seqno.0 - point.snapshot_start.0, &mut bytes);
            push(point.snapshot_end.0 - point.seqno.0, &mut bytes);
        }
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// Returns the branch that a point names: `vb_uuid` itself, or the newest branch in `log` with the same lowest bits if
/// only these are known. If the log does not have such a branch, the result is `vb_uuid`, which matches none.
pub fn resolve(vb_uuid: VbUuid, log: &FailoverLog) -> VbUuid {
    if vb_uuid.0 & !0xffff_ffff != SHORTENED {
        return vb_uuid;
    }
    let is_meant = |known: &VbUuid| known.0 as u32 == vb_uuid.0 as u32;
    let known = log.entries().iter().map(|(known, _)| *known);
    known.into_iter().find(is_meant).unwrap_or(vb_uuid)
}

impl std::str::FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Token, NoToken> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| NoToken)?;
        match bytes.first() {
            Some(&VERSION_SHORT) => read_short(&bytes).ok_or(NoToken),
            _ => read(&bytes).ok_or(NoToken),
        }
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
        // Each vBucket occurs once, in order: a token has a unique form.
        if points.last_key_value().is_some_and(|(last, _)| *last >= vbid) {
            return None;
        }
        points.insert(vbid, point);
    }
    let bucket = std::str::from_utf8(bucket).ok()?.to_owned();
    rest.is_empty().then_some(Token { bucket, collection, points })
}

fn read_short(bytes: &[u8]) -> Option<Token> {
    let mut rest = bytes.strip_prefix(&[VERSION_SHORT])?;
    let length = usize::try_from(pop(&mut rest)?).ok()?;
    let (bucket, behind) = rest.split_at_checked(length)?;
    let bucket = std::str::from_utf8(bucket).ok()?.to_owned();
    rest = behind;
    let collection = CollectionId(u32::try_from(pop(&mut rest)?).ok()?);
    let span = usize::from(u16::try_from(pop(&mut rest)?).ok()?);
    let (present, behind) = rest.split_at_checked(span.div_ceil(8))?;
    rest = behind;
    let is_present = |at: &usize| present[at / 8] >> (at % 8) & 1 == 1;
    // A token has a unique form: the last vBucket has a history, and no later bit is set.
    if (span > 0 && !is_present(&(span - 1))) || (span..present.len() * 8).any(|at| is_present(&at))
    {
        return None;
    }
    let vbids: Vec<Vbid> = (0..span).filter(is_present).map(|at| Vbid(at as u16)).collect();
    let mut seqnos = Vec::with_capacity(vbids.len());
    for block in vbids.chunks(BLOCK) {
        unpack(block.len(), &mut rest, &mut seqnos)?;
    }
    let mut points = BTreeMap::new();
    for (vbid, seqno) in vbids.into_iter().zip(seqnos) {
        let (low, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        let vb_uuid = VbUuid(SHORTENED | u64::from(u32::from_be_bytes(*low)));
        let seqno = Seqno(seqno);
        let point = ResumePoint { vb_uuid, seqno, snapshot_start: seqno, snapshot_end: seqno };
        points.insert(vbid, point);
    }
    let mut last = None;
    for _ in 0..pop(&mut rest)? {
        let vbid = Vbid(u16::try_from(pop(&mut rest)?).ok()?);
        if last.replace(vbid).is_some_and(|last| last >= vbid) {
            return None;
        }
        let point = points.get_mut(&vbid)?;
        point.snapshot_start = Seqno(point.seqno.0.checked_sub(pop(&mut rest)?)?);
        let behind = pop(&mut rest)?;
        if behind == 0 {
            return None;
        }
        point.snapshot_end = Seqno(point.seqno.0.checked_add(behind)?);
    }
    rest.is_empty().then_some(Token { bucket, collection, points })
}

/// Appends seqnos: the smallest one, and the differences to it with as many bits as the largest difference needs.
fn pack(seqnos: &[u64], out: &mut Vec<u8>) {
    let least = seqnos.iter().copied().min().unwrap_or_default();
    let greatest = seqnos.iter().map(|seqno| seqno - least).max().unwrap_or_default();
    let width = u64::BITS - greatest.leading_zeros();
    push(least, out);
    out.push(width as u8);
    let (mut bits, mut count) = (0u128, 0);
    for seqno in seqnos {
        bits |= u128::from(seqno - least) << count;
        count += width;
        while count >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        out.push(bits as u8);
    }
}

/// Reads `count` seqnos that [`pack`] has written.
fn unpack(count: usize, bytes: &mut &[u8], out: &mut Vec<u64>) -> Option<()> {
    let least = pop(bytes)?;
    let (&width, behind) = bytes.split_first()?;
    let width = u32::from(width);
    if width > 63 {
        return None;
    }
    let (packed, behind) = behind.split_at_checked((count * width as usize).div_ceil(8))?;
    *bytes = behind;
    let (mut bits, mut known) = (0u128, 0);
    let mut packed = packed.iter();
    for _ in 0..count {
        while known < width {
            bits |= u128::from(*packed.next()?) << known;
            known += 8;
        }
        let difference = bits as u64 & ((1 << width) - 1);
        out.push(least.checked_add(difference)?);
        bits >>= width;
        known -= width;
    }
    Some(())
}

/// Appends `number` as unsigned LEB128.
fn push(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Removes a number of at most 63 bits from the front. No seqno is larger.
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
    /// Returns the position in each vBucket with a history.
    pub fn into_points(self) -> BTreeMap<Vbid, ResumePoint> {
        self.points
    }

    /// Returns the points if the token belongs to this collection of this bucket.
    pub(super) fn check(
        &self,
        bucket: &Bucket,
        collection: CollectionId,
    ) -> Result<&BTreeMap<Vbid, ResumePoint>, Gone> {
        let count = bucket.vbucket_count();
        if self.bucket != bucket.uuid || self.points.keys().any(|vbid| vbid.0 >= count) {
            return Err(Gone("it belongs to another bucket".into()));
        }
        if self.collection != collection {
            return Err(Gone("it belongs to another collection".into()));
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
    fn a_token_reads_back_as_issued() {
        let text = token().to_string();
        assert_eq!(text, "AQNhYmMJAgMBAgMEBQYHCMgBxwFk_wcBAgMEBQYHCICAgICAIAAA");
        assert_eq!(text.parse(), Ok(token()));
    }

    #[test]
    fn the_short_form_names_branches_by_their_lowest_bits() {
        let text = token().short();
        let read: Token = text.parse().unwrap();
        assert_eq!((&read.bucket, read.collection), (&token().bucket, token().collection));
        let uuid = VbUuid(SHORTENED | 0x0506_0708);
        let with_uuid =
            |(vbid, point): (&Vbid, &ResumePoint)| (*vbid, ResumePoint { vb_uuid: uuid, ..*point });
        assert_eq!(read.points, token().points.iter().map(with_uuid).collect());
        let mut log = FailoverLog::new(VbUuid(0x0102_0304_0506_0708));
        log.begin(VbUuid(0x1111_2222_3333_4444), Seqno(9));
        assert_eq!(resolve(uuid, &log), VbUuid(0x0102_0304_0506_0708));
        assert_eq!(resolve(VbUuid(7), &log), VbUuid(7), "one that is given whole");
        assert_eq!(resolve(VbUuid(SHORTENED | 7), &log), VbUuid(SHORTENED | 7), "a stranger");
        for length in 0..text.len() {
            assert_eq!(text[..length].parse::<Token>(), Err(NoToken), "{length} characters of it");
        }
    }

    #[test]
    fn the_short_form_of_a_usual_bucket_fits_into_a_url() {
        let point = |vbid: u64, seqno: u64| ResumePoint {
            vb_uuid: VbUuid(vbid.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(1),
            snapshot_end: Seqno(seqno),
        };
        let token = |documents: u64| {
            let seqno = |vbid: u64| documents / 1024 + vbid * 7919 % (documents / 4096 + 2);
            let points = (0..1024).map(|vbid| (Vbid(vbid as u16), point(vbid, seqno(vbid) + 1)));
            Token { bucket: "f".repeat(32), collection: CollectionId(8), points: points.collect() }
        };
        for (documents, bytes_max) in [(1000, 6_000), (100_000, 6_800), (100_000_000, 8_400)] {
            let text = token(documents).short();
            assert!(text.len() <= bytes_max, "{documents} documents: {} bytes", text.len());
            assert_eq!(text.parse::<Token>().unwrap().short(), text, "{documents}");
        }
        let empty = Token { points: BTreeMap::new(), ..token(1000) };
        assert!(empty.short().len() < 60 && empty.short().parse() == Ok(empty));
    }

    #[test]
    fn a_malformed_token_is_refused() {
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
