//! Named parts of replies, so that cases need not know their positions.

use crate::kv::Reply;
use crate::kv::frame::invalid;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io;

/// The result of one operation in the reply to a multi request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpecReply {
    pub(super) index: Option<u8>,
    pub(super) status: u16,
    pub(super) value: Vec<u8>,
}

/// Returns the named parts of a reply to `opcode`: those of every reply, and those of the opcode.
///
/// `cas_hex` is a CAS in the format of `$document.CAS`, `cas_macro` in that of a macro (its bytes
/// reversed).
pub(super) fn fields(opcode: u8, reply: &Reply) -> BTreeMap<String, Json> {
    let mut fields = BTreeMap::new();
    let mut put = |name: &str, value: Json| {
        fields.insert(name.to_owned(), value);
    };
    put("cas", json!(reply.cas));
    put("cas_hex", json!(format!("0x{:016x}", reply.cas)));
    put("cas_macro", json!(format!("0x{:016x}", reply.cas.swap_bytes())));
    put("datatype", json!(reply.datatype));
    put("value_bytes", json!(reply.value.len()));
    let extras = reply.extras.as_slice();
    let value = reply.value.as_slice();
    let is_read = matches!(opcode, 0x00 | 0x09 | 0x0c | 0x0d | 0x1d | 0x1e | 0x83 | 0x94);
    match (opcode, extras.len()) {
        _ if !reply.is_success() && !matches!(reply.status, 0xcc | 0xcd | 0xd3) => {}
        (_, 4..) if is_read => put("flags", json!(number(&extras[..4]))),
        (0xa0, 20..) => {
            put("deleted", json!(number(&extras[..4])));
            put("flags", json!(number(&extras[4..8])));
            put("expiry", json!(number(&extras[8..12])));
            put("rev_seqno", json!(number(&extras[12..20])));
            if let Some(datatype) = extras.get(20) {
                put("document_datatype", json!(datatype));
            }
        }
        (0xbb, 12) => {
            put("manifest_uid", json!(number(&extras[..8])));
            put("collection_id", json!(number(&extras[8..])));
        }
        (0xbc, 12) => {
            put("manifest_uid", json!(number(&extras[..8])));
            put("scope_id", json!(number(&extras[8..])));
        }
        (_, 16) if !is_read => {
            put("vbuuid", json!(number(&extras[..8])));
            put("seqno", json!(number(&extras[8..])));
            put("seqno_hex", json!(format!("0x{:016x}", number(&extras[8..]))));
            put("vbuuid_hex", json!(format!("0x{:016x}", number(&extras[..8]))));
        }
        _ => {}
    }
    match opcode {
        0x05 | 0x06 if value.len() == 8 => put("number", json!(number(value))),
        0x91 if value.len() >= 27 => {
            put("format", json!(value[0]));
            put("vbuuid", json!(number(&value[3..11])));
            put("persisted_seqno", json!(number(&value[11..19])));
            put("current_seqno", json!(number(&value[19..27])));
        }
        0x96 if value.len() >= 16 => {
            put("entries", json!(value.len() / 16));
            put("newest_vbuuid", json!(number(&value[..8])));
        }
        _ => {}
    }
    fields
}

/// Returns the results in the reply to a multi lookup.
pub(super) fn lookup_results(value: &[u8]) -> io::Result<Vec<SpecReply>> {
    let mut results = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let head;
        (head, rest) = cut(rest, 6)?;
        let value;
        (value, rest) = cut(rest, number(&head[2..]) as usize)?;
        results.push(SpecReply {
            index: None,
            status: number(&head[..2]) as u16,
            value: value.to_vec(),
        });
    }
    Ok(results)
}

/// Returns the results in the reply to a multi mutation: those with a value, or the failed one.
pub(super) fn mutation_results(value: &[u8]) -> io::Result<Vec<SpecReply>> {
    let mut results = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let head;
        (head, rest) = cut(rest, 3)?;
        let status = number(&head[1..]) as u16;
        let mut value: &[u8] = &[];
        if status == 0 {
            let length;
            (length, rest) = cut(rest, 4)?;
            (value, rest) = cut(rest, number(length) as usize)?;
        }
        results.push(SpecReply { index: Some(head[0]), status, value: value.to_vec() });
    }
    Ok(results)
}

fn cut(bytes: &[u8], length: usize) -> io::Result<(&[u8], &[u8])> {
    bytes
        .split_at_checked(length)
        .ok_or_else(|| invalid("results of a multi request are cut short"))
}

/// Returns up to eight bytes as a big-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_parts_of_a_mutation_token_have_names() {
        let extras = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9].to_vec();
        let reply = Reply { cas: 0x0102, extras, ..Reply::default() };
        let fields = fields(0x01, &reply);
        assert_eq!(fields["vbuuid"], 7);
        assert_eq!(fields["seqno"], 9);
        assert_eq!(fields["cas_hex"], "0x0000000000000102");
        assert_eq!(fields["cas_macro"], "0x0201000000000000");
    }

    #[test]
    fn results_of_multi_requests_are_divided() {
        let found = lookup_results(b"\0\0\0\0\0\x01\x31\0\xc0\0\0\0\0").unwrap();
        assert_eq!(found[0], SpecReply { index: None, status: 0, value: b"1".to_vec() });
        assert_eq!(found[1], SpecReply { index: None, status: 0xc0, value: vec![] });
        let failed = mutation_results(b"\x02\0\xc9").unwrap();
        assert_eq!(failed, [SpecReply { index: Some(2), status: 0xc9, value: vec![] }]);
        let counted = mutation_results(b"\x01\0\0\0\0\0\x02\x31\x32").unwrap();
        assert_eq!(counted, [SpecReply { index: Some(1), status: 0, value: b"12".to_vec() }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_replies_never_panic(opcode: u8, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let reply = Reply { extras: bytes.clone(), value: bytes.clone(), ..Reply::default() };
            fields(opcode, &reply);
            let _ = lookup_results(&bytes);
            let _ = mutation_results(&bytes);
        }
    }
}
