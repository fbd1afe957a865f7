//! Tokens: the position of a listener in the history of every vBucket, as text.
//!
//! ```text
//! version 1 | count of vBuckets u16 | of each: branch u64, then seqno, seqno - start, end - seqno of the snapshot, each LEB128
//! ```
//! The bytes are encoded in URL-safe base64. Numbers of a fixed length are big-endian.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nacre_dcp::ResumePoint;
use nacre_types::{Seqno, VbUuid};

const VERSION: u8 = 1;

/// Encodes a token.
pub(crate) fn write(points: &[ResumePoint]) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend((points.len() as u16).to_be_bytes());
    for point in points {
        let ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end } = *point;
        bytes.extend(vb_uuid.0.to_be_bytes());
        for number in [seqno.0, seqno.0 - snapshot_start.0, snapshot_end.0 - seqno.0] {
            write_number(number, &mut bytes);
        }
    }
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a token of `count` vBuckets; `None` when it is malformed.
pub(crate) fn read(text: &str, count: u16) -> Option<Vec<ResumePoint>> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    let rest = bytes.strip_prefix(&[VERSION])?;
    let (written, mut rest) = rest.split_first_chunk::<2>()?;
    if u16::from_be_bytes(*written) != count {
        return None;
    }
    let mut points = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (vb_uuid, behind) = rest.split_first_chunk::<8>()?;
        rest = behind;
        let seqno = read_number(&mut rest)?;
        let snapshot_start = seqno.checked_sub(read_number(&mut rest)?)?;
        let snapshot_end = seqno.checked_add(read_number(&mut rest)?)?;
        points.push(ResumePoint {
            vb_uuid: VbUuid(u64::from_be_bytes(*vb_uuid)),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(snapshot_start),
            snapshot_end: Seqno(snapshot_end),
        });
    }
    rest.is_empty().then_some(points)
}

fn write_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && part > 1 {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seqno: u64, start: u64, end: u64) -> ResumePoint {
        let (snapshot_start, snapshot_end) = (Seqno(start), Seqno(end));
        ResumePoint {
            vb_uuid: VbUuid(seqno ^ 7),
            seqno: Seqno(seqno),
            snapshot_start,
            snapshot_end,
        }
    }

    #[test]
    fn a_token_reads_back_as_written() {
        let points = [
            point(0, 0, 0),
            point(127, 3, 128),
            point(1 << 40, 0, u64::MAX),
            ResumePoint::default(),
        ];
        assert_eq!(read(&write(&points), 4), Some(points.to_vec()));
    }

    #[test]
    fn a_token_of_another_database_is_refused() {
        let whole = write(&[point(5, 5, 5), point(1000, 900, 1000)]);
        assert_eq!(read(&whole, 3), None, "of another number of vBuckets");
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end], 2), None, "cut at {end}");
        }
        assert_eq!(read("???", 2), None);
        let mut bytes = vec![VERSION, 0, 1];
        bytes.extend([0; 8]);
        bytes.extend([0xff; 12]);
        assert_eq!(
            read(&BASE64_URL_SAFE_NO_PAD.encode(&bytes), 1),
            None,
            "a number without an end"
        );
    }
}
