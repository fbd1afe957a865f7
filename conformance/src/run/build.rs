//! Converts a step of a case to the frame that it sends.

use crate::case::{Key, Spec, SpecialKey, Step, Value};
use crate::kv::frame::invalid;
use crate::kv::{Request, leb128, vbid};
use crate::names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io;

/// Builds the requests of one case.
pub(super) struct Builder {
    /// The prefix of its keys.
    pub(super) prefix: String,
    pub(super) vbucket_count: u16,
    /// True if keys include the ID of their collection.
    pub(super) collections: bool,
    /// The named parts of the replies of named steps.
    pub(super) seen: BTreeMap<String, BTreeMap<String, Json>>,
}

impl Builder {
    /// Replaces `$step.field` in a text by that part of an earlier reply; leaves other texts
    /// unchanged.
    pub(super) fn resolve(&self, json: &Json) -> Json {
        match json {
            Json::String(text) => self.reference(text).cloned().unwrap_or_else(|| json.clone()),
            Json::Array(elements) => elements.iter().map(|element| self.resolve(element)).collect(),
            Json::Object(members) => Json::Object(
                members.iter().map(|(name, value)| (name.clone(), self.resolve(value))).collect(),
            ),
            other => other.clone(),
        }
    }

    fn reference(&self, text: &str) -> Option<&Json> {
        let (step, field) = text.strip_prefix('$')?.split_once('.')?;
        self.seen.get(step)?.get(field)
    }

    pub(super) fn number(&self, json: &Json) -> io::Result<u64> {
        let resolved = self.resolve(json);
        resolved
            .as_u64()
            .ok_or_else(|| invalid(&format!("{json} is neither a number nor an earlier reply")))
    }

    pub(super) fn request(&self, step: &Step) -> io::Result<Request> {
        let opcode = match step.op.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => names::opcode(&step.op),
        };
        let opcode = opcode.ok_or_else(|| invalid(&format!("unknown opcode {}", step.op)))?;
        let name = step.key.as_ref().map(|key| self.key(key));
        let vbid = match (&name, &step.vbucket_of) {
            (Some(name), _) => vbid(name, self.vbucket_count),
            (None, Some(other)) => {
                vbid(format!("{}{other}", self.prefix).as_bytes(), self.vbucket_count)
            }
            (None, None) => 0,
        };
        let value = step.value.as_ref().map_or(Ok(Vec::new()), |value| self.bytes(value))?;
        let key = match (name, opcode) {
            (None, _) => Vec::new(),
            // The key of a DCP request is the name of a connection or a setting.
            (Some(name), 0x50..=0x5f) => name,
            (Some(name), _) => self.wire_key(step.collection, &name),
        };
        let mut request = Request {
            opcode,
            vbid,
            key,
            extras: self.extras(opcode, step)?,
            value,
            cas: step.cas.as_ref().map_or(Ok(0), |cas| self.number(cas))?,
            datatype: 0,
            framing: framing(step)?,
        };
        if let Some(path) = &step.path {
            request.value = [self.bytes(path)?, request.value].concat();
        }
        if let Some(specs) = &step.specs {
            for spec in specs {
                self.encode_spec(spec, opcode == 0xd1, &mut request.value)?;
            }
        }
        Ok(request)
    }

    fn encode_spec(&self, spec: &Spec, mutates: bool, out: &mut Vec<u8>) -> io::Result<()> {
        let opcode = names::opcode(&spec.op)
            .ok_or_else(|| invalid(&format!("unknown opcode {}", spec.op)))?;
        let value = spec.value.as_ref().map_or(Ok(Vec::new()), |value| self.bytes(value))?;
        out.extend_from_slice(&[opcode, flags(&spec.flags, names::path_flag)?]);
        out.extend_from_slice(&(spec.path.len() as u16).to_be_bytes());
        if mutates {
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        }
        out.extend_from_slice(spec.path.as_bytes());
        out.extend_from_slice(&value);
        Ok(())
    }

    fn extras(&self, opcode: u8, step: &Step) -> io::Result<Vec<u8>> {
        if let Some(hex) = step.extras.get("hex").and_then(Json::as_str) {
            return from_hex(hex);
        }
        let mut out = Vec::new();
        let get = |name: &str| step.extras.get(name).map(|value| self.number(value)).transpose();
        if let (0xc5..=0xcf | 0xd2, Some(path)) = (opcode, &step.path) {
            out.extend_from_slice(&(self.bytes(path)?.len() as u16).to_be_bytes());
            out.push(flags(&step.path_flags, names::path_flag)?);
        }
        if let 0xc5..=0xd2 = opcode {
            if let Some(expiry) = get("expiry")? {
                out.extend_from_slice(&(expiry as u32).to_be_bytes());
            }
            if !step.doc_flags.is_empty() {
                out.push(flags(&step.doc_flags, names::doc_flag)?);
            }
            return Ok(out);
        }
        let layout: &[(&str, usize)] = match opcode {
            0x01..=0x03 | 0x11..=0x13 => &[("flags", 4), ("expiry", 4)],
            0x05 | 0x06 | 0x15 | 0x16 => &[("delta", 8), ("initial", 8), ("expiry", 4)],
            0x1c..=0x1e => &[("expiry", 4)],
            0x94 if step.extras.is_empty() => &[],
            0x94 => &[("seconds", 4)],
            0xa0 if step.extras.is_empty() => &[],
            0xa0 => &[("version", 1)],
            _ => &[],
        };
        if let Some(unknown) =
            step.extras.keys().find(|name| !layout.iter().any(|field| field.0 == **name))
        {
            return Err(invalid(&format!("{} has no extras named {unknown}", step.op)));
        }
        for (name, width) in layout {
            let number = get(name)?.unwrap_or(0).to_be_bytes();
            out.extend_from_slice(&number[8 - width..]);
        }
        Ok(out)
    }

    pub(super) fn key(&self, key: &Key) -> Vec<u8> {
        match key {
            Key::Name(name) => format!("{}{name}", self.prefix).into_bytes(),
            Key::Special(SpecialKey::Raw(key)) => key.clone().into_bytes(),
            Key::Special(SpecialKey::Bytes(count)) => {
                let mut key = self.prefix.clone().into_bytes();
                key.resize(*count, b'x');
                key
            }
        }
    }

    pub(super) fn bytes(&self, value: &Value) -> io::Result<Vec<u8>> {
        match value {
            Value::Json(json) => Ok(self.resolve(json).to_string().into_bytes()),
            Value::Text(text) => Ok(text.clone().into_bytes()),
            Value::Base64(text) => STANDARD.decode(text).map_err(|_| invalid("base64 of a case")),
            Value::Hex(text) => from_hex(text),
            Value::Repeat { text, count } => Ok(text.repeat(*count).into_bytes()),
            Value::U64(number) => Ok(self.number(number)?.to_be_bytes().to_vec()),
        }
    }

    /// Returns the key in its wire form.
    pub(super) fn wire_key(&self, collection: u32, key: &[u8]) -> Vec<u8> {
        let mut wire = if self.collections { leb128(collection) } else { Vec::new() };
        wire.extend_from_slice(key);
        wire
    }
}

fn flags(names: &[String], number: impl Fn(&str) -> Option<u8>) -> io::Result<u8> {
    names.iter().try_fold(0, |sum, name| {
        number(name).map(|flag| sum | flag).ok_or_else(|| invalid(&format!("unknown flag {name}")))
    })
}

/// Encodes framing extras: four bits of ID, four bits of length, then the data.
fn framing(step: &Step) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    if let Some(level) = &step.durability {
        let level = names::durability(level).ok_or_else(|| invalid("unknown durability level"))?;
        out.extend_from_slice(&[0x11, level]);
    }
    if step.preserve_expiry {
        out.push(0x50);
    }
    Ok(out)
}

fn from_hex(text: &str) -> io::Result<Vec<u8>> {
    let digit = |pair: &[u8]| {
        std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(digit).collect();
    bytes.ok_or_else(|| invalid("hexadecimal of a case"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{KV, KvFile};

    fn builder() -> Builder {
        Builder {
            prefix: "p:".to_owned(),
            vbucket_count: 1024,
            collections: true,
            seen: BTreeMap::new(),
        }
    }

    fn request(step: &str) -> Request {
        builder().request(&serde_json::from_str(step).unwrap()).unwrap()
    }

    /// Invents replies for later steps: nothing is sent here, so each named reply gets every part.
    fn invent_replies(builder: &mut Builder, step: &Step) {
        let parts = ["cas", "seqno", "vbuuid", "expiry", "rev_seqno"];
        let parts = parts.iter().map(|part| ((*part).to_owned(), Json::from(1u64))).collect();
        builder.seen.extend(step.name.clone().map(|name| (name, parts)));
    }

    #[test]
    fn every_step_of_every_case_makes_a_frame() {
        for (group, text) in KV {
            let file: KvFile = serde_json::from_str(text).unwrap();
            for case in file.cases {
                let mut builder = builder();
                for step in &case.steps {
                    let built = builder.request(step);
                    assert!(built.is_ok(), "{group}/{} {}: {built:?}", case.name, step.op);
                    invent_replies(&mut builder, step);
                }
            }
        }
    }

    #[test]
    fn whole_document_requests_carry_their_extras() {
        let set = request(
            r#"{"op": "SET", "key": "k", "extras": {"flags": 1, "expiry": 2}, "value": {"text": "v"}}"#,
        );
        assert_eq!((set.opcode, set.key, set.value), (1, b"\0p:k".to_vec(), b"v".to_vec()));
        assert_eq!(set.extras, [0, 0, 0, 1, 0, 0, 0, 2]);
        let counter = request(r#"{"op": "INCREMENT", "key": "k", "extras": {"delta": 1}}"#);
        assert_eq!(counter.extras.len(), 20);
        assert!(request(r#"{"op": "GET_LOCKED", "key": "k"}"#).extras.is_empty());
    }

    #[test]
    fn sub_document_requests_put_the_path_before_the_value() {
        let edit = request(
            r#"{"op": "SUBDOC_DICT_ADD", "key": "k", "path": {"text": "a.b"}, "value": {"json": 1},
                "path_flags": ["create_path", "xattr"], "doc_flags": ["mkdoc"], "extras": {"expiry": 3}}"#,
        );
        assert_eq!(edit.extras, [0, 3, 5, 0, 0, 0, 3, 1]);
        assert_eq!(edit.value, b"a.b1");
        let multi = request(
            r#"{"op": "SUBDOC_MULTI_MUTATION", "key": "k", "specs": [{"op": "SUBDOC_COUNTER", "path": "a", "value": {"text": "5"}}]}"#,
        );
        assert_eq!(multi.value, b"\xcf\0\0\x01\0\0\0\x01a5");
        let multi =
            request(r#"{"op": "SUBDOC_MULTI_LOOKUP", "key": "k", "specs": [{"op": "GET"}]}"#);
        assert_eq!(multi.value, b"\0\0\0\0");
    }

    #[test]
    fn durability_and_preserved_expiry_are_framing_extras() {
        let set = request(
            r#"{"op": "SET", "key": "k", "durability": "majority", "preserve_expiry": true}"#,
        );
        assert_eq!(set.framing, [0x11, 1, 0x50]);
    }

    #[test]
    fn keys_are_filled_up_to_a_length() {
        assert_eq!(request(r#"{"op": "GET", "key": {"bytes": 5}}"#).key, b"\0p:xxx");
        assert_eq!(
            request(r#"{"op": "GET", "key": {"raw": ""}, "collection": 200}"#).key,
            [0xc8, 0x01]
        );
    }

    #[test]
    fn unknown_names_are_refused() {
        for step in [
            r#"{"op": "NOPE"}"#,
            r#"{"op": "GET", "cas": "$nobody.cas"}"#,
            r#"{"op": "SET", "extras": {"colour": 1}}"#,
            r#"{"op": "SUBDOC_GET", "path": {"text": "a"}, "path_flags": ["nope"]}"#,
            r#"{"op": "SET", "durability": "nope"}"#,
            r#"{"op": "SET", "value": {"hex": "0"}}"#,
        ] {
            assert!(builder().request(&serde_json::from_str(step).unwrap()).is_err(), "{step}");
        }
    }
}
