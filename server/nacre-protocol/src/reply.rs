//! Responses, which are appended to an output buffer.

use crate::{HEADER_BYTES, Magic, Status};
use nacre_types::DATATYPE_JSON;

/// Size of a response's framing extras: three fields, each with one byte for kind and length, and two bytes for the
/// value.
const FRAMING_BYTES_MAX: usize = 9;

/// A response. Empty fields occupy no bytes on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply<'a> {
    /// The opcode of the request.
    pub opcode: u8,
    /// The opaque of the request.
    pub opaque: u32,
    /// CAS of the document, or 0.
    pub cas: u64,
    /// Status of the request.
    pub status: Status,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Extras.
    pub extras: &'a [u8],
    /// Key, for the opcodes that echo it.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// Microseconds spent in the server, for clients that trace. The frame is then flexible.
    pub duration: Option<u64>,
    /// Units that the request has used, for clients that count them. If they are not zero, the frame is flexible.
    pub units: Units,
}

/// Usage of a request, in the units of Couchbase's serverless service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Number of 4-KiB blocks read, rounded up.
    pub read: u16,
    /// Number of KiB written, rounded up, and doubled for a durable write.
    pub write: u16,
}

/// A message that pushes a new cluster map to a client. The client does not respond.
#[derive(Clone, Copy, Debug)]
pub struct MapPush<'a> {
    /// The bucket of the connection; empty without one.
    pub bucket: &'a [u8],
    /// Epoch and revision of the map.
    pub version: (i64, i64),
    /// The map; empty for clients that fetch it themselves.
    pub map: &'a [u8],
}

impl MapPush<'_> {
    /// The opcode of the server's request.
    const OPCODE: u8 = 0x01;

    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let body = 16 + self.bucket.len() + self.map.len();
        out.extend([Magic::ServerRequest as u8, Self::OPCODE]);
        out.extend((self.bucket.len() as u16).to_be_bytes());
        out.extend([16, if self.map.is_empty() { 0 } else { DATATYPE_JSON }, 0, 0]);
        out.extend((body as u32).to_be_bytes());
        out.extend([0; 12]);
        out.extend(self.version.0.to_be_bytes());
        out.extend(self.version.1.to_be_bytes());
        out.extend_from_slice(self.bucket);
        out.extend_from_slice(self.map);
    }
}

/// Encodes a duration in the protocol's format: `micros = code^1.74 / 2`, so that 16 bits reach two minutes.
///
/// The result is never 0, because clients treat 0 as "not measured". The smallest code means half a microsecond.
pub fn server_duration(micros: u64) -> u16 {
    ((micros as f64 * 2.0).powf(1.0 / 1.74)).round().clamp(1.0, f64::from(u16::MAX)) as u16
}

impl Reply<'_> {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let parts = self.extras.len() + self.key.len() + self.value.len();
        out.reserve(HEADER_BYTES + FRAMING_BYTES_MAX + parts);
        self.encode_before(self.value.len(), out);
        out.extend_from_slice(self.value);
    }

    /// Appends the whole frame except its value, which has `value_bytes` bytes and which the caller sends next. Ignores
    /// `self.value`.
    pub fn encode_before(&self, value_bytes: usize, out: &mut Vec<u8>) {
        let infos = [
            (0x02, self.duration.map_or(0, server_duration)),
            (0x12, self.units.read),
            (0x22, self.units.write),
        ];
        // A field is present if its value is not 0.
        let framing_bytes = infos.iter().filter(|(_, value)| *value > 0).count() * 3;
        let body = framing_bytes + self.extras.len() + self.key.len() + value_bytes;
        if framing_bytes > 0 {
            debug_assert!(self.key.len() <= usize::from(u8::MAX));
            out.extend([
                Magic::FlexResponse as u8,
                self.opcode,
                framing_bytes as u8,
                self.key.len() as u8,
            ]);
        } else {
            out.extend([Magic::Response as u8, self.opcode]);
            out.extend((self.key.len() as u16).to_be_bytes());
        }
        out.extend([self.extras.len() as u8, self.datatype]);
        out.extend((self.status as u16).to_be_bytes());
        out.extend((body as u32).to_be_bytes());
        out.extend(self.opaque.to_be_bytes());
        out.extend(self.cas.to_be_bytes());
        for (kind, value) in infos.iter().filter(|(_, value)| *value > 0) {
            out.push(*kind);
            out.extend(value.to_be_bytes());
        }
        out.extend_from_slice(self.extras);
        out.extend_from_slice(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Reply, Units, server_duration};

    #[test]
    fn durations_survive_their_encoding_within_four_percent() {
        for micros in [100u64, 1_000, 50_000, 2_000_000] {
            let decoded = f64::from(server_duration(micros)).powf(1.74) / 2.0;
            assert!((decoded / micros as f64 - 1.0).abs() < 0.04, "{micros} -> {decoded}");
        }
        assert_eq!(server_duration(u64::MAX), u16::MAX);
        assert_eq!(server_duration(0), 1);
    }

    #[test]
    fn units_follow_the_duration_if_there_are_any() {
        let framing = |duration, units| {
            let mut out = Vec::new();
            Reply { duration, units, ..Reply::default() }.encode(&mut out);
            out.split_off(24)
        };
        assert_eq!(framing(None, Units::default()), b"");
        assert_eq!(framing(None, Units { read: 0, write: 258 }), b"\x22\x01\x02");
        let both = Units { read: 1, write: 2 };
        assert_eq!(framing(Some(0), both), b"\x02\0\x01\x12\0\x01\x22\0\x02");
    }
}
