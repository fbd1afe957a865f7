//! The compact protocol of Thrift, as far as metadata of Parquet needs it.
//!
//! ```text
//! struct   {1: i32 5, 3: string "ab"}  ─►  15 0a 28 02 61 62 00
//!          1·5: one field further, i32; 0a: 5 as a zigzag varint; 2·8: two fields further, binary; 02 61 62; 00: end
//! ```

/// Types of fields. Source: Thrift compact protocol.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;
/// Elements of a list whose number fits into the byte of its type.
const SHORT_LIST_MAX: usize = 14;

/// A struct that is being written; its fields are added in the order of their ids.
pub(super) struct Struct<'a> {
    output: &'a mut Vec<u8>,
    /// ID of the field that was written last.
    last: u8,
}

impl<'a> Struct<'a> {
    /// Appends a struct, whose fields `fill` adds.
    pub fn write(output: &'a mut Vec<u8>, fill: impl FnOnce(&mut Struct<'_>)) {
        let mut own = Struct { output, last: 0 };
        fill(&mut own);
        own.output.push(0);
    }

    fn begin(&mut self, id: u8, kind: u8) {
        debug_assert!(id > self.last && id - self.last <= 15, "fields are in order");
        self.output.push((id - self.last) << 4 | kind);
        self.last = id;
    }

    /// Adds a number of 32 bits.
    pub fn i32(&mut self, id: u8, value: i32) {
        self.begin(id, I32);
        zigzag(value.into(), self.output);
    }

    /// Adds a number of 64 bits.
    pub fn i64(&mut self, id: u8, value: i64) {
        self.begin(id, I64);
        zigzag(value, self.output);
    }

    /// Adds a text.
    pub fn text(&mut self, id: u8, value: &str) {
        self.begin(id, BINARY);
        text(value, self.output);
    }

    /// Adds a struct.
    pub fn inner(&mut self, id: u8, fill: impl FnOnce(&mut Struct<'_>)) {
        self.begin(id, STRUCT);
        Struct::write(self.output, fill);
    }

    /// Adds a list of structs.
    pub fn structs<T>(&mut self, id: u8, all: &[T], fill: impl Fn(&T, &mut Struct<'_>)) {
        self.list(id, STRUCT, all.len());
        all.iter().for_each(|one| Struct::write(self.output, |own| fill(one, own)));
    }

    /// Adds a list of numbers of 32 bits.
    pub fn numbers(&mut self, id: u8, all: &[i32]) {
        self.list(id, I32, all.len());
        all.iter().for_each(|one| zigzag((*one).into(), self.output));
    }

    /// Adds a list of texts.
    pub fn texts(&mut self, id: u8, all: &[&str]) {
        self.list(id, BINARY, all.len());
        all.iter().for_each(|one| text(one, self.output));
    }

    fn list(&mut self, id: u8, kind: u8, count: usize) {
        self.begin(id, LIST);
        match u8::try_from(count) {
            Ok(short) if count <= SHORT_LIST_MAX => self.output.push(short << 4 | kind),
            _ => {
                self.output.push(0xf0 | kind);
                varint(count as u64, self.output);
            }
        }
    }
}

fn text(value: &str, output: &mut Vec<u8>) {
    varint(value.len() as u64, output);
    output.extend_from_slice(value.as_bytes());
}

fn zigzag(value: i64, output: &mut Vec<u8>) {
    varint((value << 1 ^ value >> 63) as u64, output);
}

/// Appends a number, seven bits in a byte, the lowest first.
pub(super) fn varint(mut value: u64, output: &mut Vec<u8>) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fill: impl FnOnce(&mut Struct<'_>)) -> Vec<u8> {
        let mut output = Vec::new();
        Struct::write(&mut output, fill);
        output
    }

    #[test]
    fn structs_are_written_as_the_protocol_says() {
        let bytes = written(|own| {
            own.i32(1, 5);
            own.text(3, "ab");
        });
        assert_eq!(bytes, [0x15, 0x0a, 0x28, 2, b'a', b'b', 0]);
        let bytes = written(|own| own.i64(2, -300));
        assert_eq!(bytes, [0x26, 0xd7, 0x04, 0]);
        let bytes = written(|own| own.inner(5, |own| own.i32(1, 0)));
        assert_eq!(bytes, [0x5c, 0x15, 0, 0, 0]);
        let bytes = written(|own| own.numbers(2, &[0, 3]));
        assert_eq!(bytes, [0x29, 0x25, 0, 6, 0]);
        let bytes = written(|own| own.structs(1, &[7; 15], |one, own| own.i32(1, *one)));
        assert_eq!(bytes[..6], [0x19, 0xfc, 15, 0x15, 14, 0]);
        assert_eq!(bytes.len(), 3 + 15 * 3 + 1);
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut output = Vec::new();
            varint(value, &mut output);
            assert_eq!(output, bytes);
        }
    }
}
