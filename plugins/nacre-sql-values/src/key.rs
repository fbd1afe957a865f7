//! Index keys: encodes values as bytes that compare as the values collate.
//!
//! ```text
//! MISSING 01      NULL 02      FALSE 03      TRUE 04
//! number  05, 8 bytes of the nearest double (sign bit flipped, all bits when negative; NaN is 0),
//!             2 bytes of the integer's difference from that double, plus 8000
//! string  06, bytes with 00 as 00 FF, then 00 01
//! array   07, elements, 00
//! object  08, count (4 bytes, big-endian), then name (a string) and value of each field by name
//! ```
//!
//! No encoding is a prefix of another, and none starts with 00 or FF. A key of several values is the concatenation
//! of their encodings; a descending part has all its bits inverted. All keys that start with an encoding `e` are in
//! the range from `e`, inclusive, to `e FF`, exclusive.

use crate::value::{Name, Object, Value, sorted};
use std::sync::Arc;

const MISSING: u8 = 1;
const NULL: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;
const NUMBER: u8 = 5;
const STRING: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;

/// Sorts after every byte that can follow an encoding.
pub const AFTER: u8 = 0xFF;

/// Size of a number in bytes, without the first byte.
const NUMBER_BYTES: usize = 10;

/// Maximum nesting of values in keys.
const DEPTH_MAX: usize = 512;

/// Rounding an integer to a double changes it by at most 512.
const TIE_ZERO: i128 = 0x8000;

/// Appends the encoding of `value`, inverted if `descending`.
pub fn encode(value: &Value, descending: bool, out: &mut Vec<u8>) {
    let from = out.len();
    encode_value(value, out);
    if descending {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Returns the encoding of one ascending value.
pub fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, false, &mut out);
    out
}

/// Reads the value at the start of `bytes` and advances `bytes`; `None` if they are not an encoding.
pub fn decode(bytes: &mut &[u8], descending: bool) -> Option<Value> {
    let mut reader = Reader { bytes, invert: if descending { 0xFF } else { 0 } };
    let value = reader.value(0)?;
    let rest = reader.bytes;
    *bytes = rest;
    Some(value)
}

/// Returns the encoding at the start of `bytes` and advances `bytes`, without decoding the value; `None` if there is
/// none.
pub fn split<'e>(bytes: &mut &'e [u8], descending: bool) -> Option<&'e [u8]> {
    let whole = *bytes;
    let mut reader = Reader { bytes: whole, invert: if descending { 0xFF } else { 0 } };
    reader.skip(0)?;
    *bytes = reader.bytes;
    Some(&whole[..whole.len() - bytes.len()])
}

/// Returns true if the encoded value is neither MISSING nor NULL.
pub fn is_known(encoding: &[u8], descending: bool) -> bool {
    let invert = if descending { 0xFF } else { 0 };
    encoding.first().is_some_and(|first| first ^ invert > NULL)
}

fn encode_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Missing => out.push(MISSING),
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Int(number) => {
            let rounded = *number as f64;
            encode_number(rounded, i128::from(*number) - rounded as i128, out);
        }
        Value::Float(number) => encode_number(*number, 0, out),
        Value::String(text) => encode_string(text, out),
        Value::Array(elements) => {
            out.push(ARRAY);
            elements.iter().for_each(|element| encode_value(element, out));
            out.push(0);
        }
        Value::Object(fields) => {
            out.push(OBJECT);
            out.extend_from_slice(&(fields.len() as u32).to_be_bytes());
            for (name, value) in sorted(fields) {
                encode_string(name, out);
                encode_value(value, out);
            }
        }
    }
}

fn encode_number(number: f64, tie: i128, out: &mut Vec<u8>) {
    out.push(NUMBER);
    // -0 and 0 are the same key.
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let ordered = match () {
        () if number.is_nan() => 0,
        () if bits >> 63 == 1 => !bits,
        () => bits ^ (1 << 63),
    };
    out.extend_from_slice(&ordered.to_be_bytes());
    out.extend_from_slice(&((TIE_ZERO + tie) as u16).to_be_bytes());
}

fn encode_string(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    for (at, part) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
        if at > 0 {
            out.extend_from_slice(&[0, 0xFF]);
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&[0, 1]);
}

struct Reader<'a> {
    bytes: &'a [u8],
    invert: u8,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first ^ self.invert)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut fixed = [0; N];
        for byte in &mut fixed {
            *byte = self.byte()?;
        }
        Some(fixed)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        Some(match self.byte()? {
            MISSING => Value::Missing,
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            NUMBER => self.number()?,
            STRING => Value::String(self.string()?),
            ARRAY => {
                let mut elements = Vec::new();
                while self.bytes.first()? ^ self.invert != 0 {
                    elements.push(self.value(depth + 1)?);
                }
                self.byte()?;
                Value::Array(Arc::new(elements))
            }
            OBJECT => {
                let count = u32::from_be_bytes(self.fixed()?);
                let mut fields = Object::default();
                for _ in 0..count {
                    if self.byte()? != STRING {
                        return None;
                    }
                    let name = self.string()?;
                    fields.insert(name, self.value(depth + 1)?);
                }
                Value::Object(Arc::new(fields))
            }
            _ => return None,
        })
    }

    /// Skips a value.
    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.byte()? {
            MISSING | NULL | FALSE | TRUE => {}
            NUMBER => self.bytes = self.bytes.get(NUMBER_BYTES..)?,
            STRING => self.skip_string()?,
            ARRAY => {
                while self.bytes.first()? ^ self.invert != 0 {
                    self.skip(depth + 1)?;
                }
                self.byte()?;
            }
            OBJECT => {
                let count = u32::from_be_bytes(self.fixed()?);
                for _ in 0..count {
                    if self.byte()? != STRING {
                        return None;
                    }
                    self.skip_string()?;
                    self.skip(depth + 1)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Skips a string after its first byte.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            let zero = self.bytes.iter().position(|byte| *byte == self.invert)?;
            self.bytes = &self.bytes[zero + 1..];
            if self.byte()? == 1 {
                return Some(());
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        let ordered = u64::from_be_bytes(self.fixed()?);
        let tie = i128::from(u16::from_be_bytes(self.fixed()?)) - TIE_ZERO;
        let bits = if ordered >> 63 == 1 { ordered ^ (1 << 63) } else { !ordered };
        let number = if ordered == 0 { f64::NAN } else { f64::from_bits(bits) };
        if number.fract() != 0.0 || !(-9.3e18..9.3e18).contains(&number) {
            return Some(Value::Float(number));
        }
        let integer = i64::try_from(number as i128 + tie);
        Some(integer.map_or(Value::Float(number), Value::Int))
    }

    fn string(&mut self) -> Option<Name> {
        let invert = self.invert;
        let mut text = Vec::new();
        loop {
            let zero = self.bytes.iter().position(|byte| *byte == invert)?;
            text.extend(self.bytes[..zero].iter().map(|byte| byte ^ invert));
            self.bytes = &self.bytes[zero + 1..];
            if self.byte()? == 1 {
                break;
            }
            text.push(0);
        }
        Some(String::from_utf8(text).ok()?.into())
    }
}
