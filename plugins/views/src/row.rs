//! Rows of a view as keys and values in its B-tree, and as entries of the back index.

use nacre_plugin::{Fault, collate};

/// Returns the tree key of a row of document `id`. `number` distinguishes rows of the document with equal keys.
///
/// # Errors
/// The reason why the emitted key cannot be collated.
pub fn tree_key(key_json: &str, id: &[u8], number: u32) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(key_json.len() + id.len() + 24);
    collate::encode(key_json, &mut out).map_err(|error| format!("emitted key: {error}"))?;
    escape(id, &mut out);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&number.to_be_bytes());
    Ok(out)
}

/// Returns a tree key without the number of the emit at its end.
pub fn without_number(tree_key: &[u8]) -> &[u8] {
    &tree_key[..tree_key.len().saturating_sub(size_of::<u32>())]
}

/// Appends `id` so that its end can be found: a zero byte is written as `00 ff`.
pub fn escape(id: &[u8], out: &mut Vec<u8>) {
    for (index, piece) in id.split(|&byte| byte == 0).enumerate() {
        if index > 0 {
            out.extend_from_slice(&[0, 0xff]);
        }
        out.extend_from_slice(piece);
    }
}

/// Returns the document ID in a tree key.
fn id_of(tree_key: &[u8]) -> Option<Vec<u8>> {
    let mut rest = tree_key.get(collate::value_bytes(tree_key)?..)?.iter();
    let mut id = Vec::new();
    loop {
        match rest.next()? {
            0 => match rest.next()? {
                0xff => id.push(0),
                _ => return Some(id),
            },
            &byte => id.push(byte),
        }
    }
}

/// Returns the tree value of a row of a document in vBucket `vb`.
pub fn tree_value(vb: u16, key_json: &str, value_json: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(6 + key_json.len() + value_json.len());
    out.extend_from_slice(&vb.to_le_bytes());
    out.extend_from_slice(&(key_json.len() as u32).to_le_bytes());
    out.extend_from_slice(key_json.as_bytes());
    out.extend_from_slice(value_json.as_bytes());
    out
}

/// Returns the emitted key and value in a tree value, both as JSON, or `None` if the value is malformed.
pub fn key_and_value(tree_value: &[u8]) -> Option<(&str, &str)> {
    let (length, rest) = tree_value.get(2..)?.split_first_chunk::<4>()?;
    let (key, value) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((str::from_utf8(key).ok()?, str::from_utf8(value).ok()?))
}

/// Returns the vBucket in a tree value, or `None` if the value is malformed.
pub fn vbucket(tree_value: &[u8]) -> Option<u16> {
    tree_value.first_chunk::<2>().map(|bytes| u16::from_le_bytes(*bytes))
}

/// A decoded row.
pub struct ViewRow<'a> {
    /// The ID of the document, with any bytes that are not UTF-8 replaced.
    pub id: String,
    /// The emitted key as JSON.
    pub key: &'a str,
    /// The emitted value as JSON.
    pub value: &'a str,
}

impl<'a> ViewRow<'a> {
    /// Decodes a row of the tree. Returns `None` if the row is malformed.
    pub fn decode(tree_key: &[u8], tree_value: &'a [u8]) -> Option<ViewRow<'a>> {
        let (key, value) = key_and_value(tree_value)?;
        let id = String::from_utf8_lossy(&id_of(tree_key)?).into_owned();
        Some(ViewRow { id, key, value })
    }
}

/// Returns the fault for state that this plugin has not written.
pub fn corrupt(what: impl std::fmt::Display) -> Fault {
    Fault::Fatal(format!("the index is damaged and must be rebuilt: {what}"))
}

/// Returns the key in the back index for the rows of a document.
pub fn back_key(vb: u16, id: &[u8]) -> Vec<u8> {
    let mut key = back_prefix(vb);
    key.extend_from_slice(id);
    key
}

/// Returns the common prefix of the back keys of all documents in a vBucket.
pub fn back_prefix(vb: u16) -> Vec<u8> {
    let [high, low] = vb.to_be_bytes();
    vec![b'd', high, low]
}

/// Notes a row: the number of its view, and its length-prefixed tree key.
pub fn note(view: usize, tree_key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(view as u16).to_le_bytes());
    out.extend_from_slice(&(tree_key.len() as u32).to_le_bytes());
    out.extend_from_slice(tree_key);
}

/// Returns the noted rows, or `None` if the notes are malformed.
pub fn noted(mut bytes: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let (view, rest) = bytes.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rows.push((usize::from(u16::from_le_bytes(*view)), key));
        bytes = rest;
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back() {
        for id in [&b"a"[..], b"", b"a\0b", b"\0\xff\0"] {
            let key = tree_key(r#"["x",1]"#, id, 3).unwrap();
            let value = tree_value(700, r#"["x",1]"#, "{}");
            assert_eq!(vbucket(&value), Some(700));
            let row = ViewRow::decode(&key, &value).unwrap();
            assert_eq!(
                (row.id, row.key, row.value),
                (String::from_utf8_lossy(id).into(), r#"["x",1]"#, "{}")
            );
        }
    }

    #[test]
    fn rows_order_by_key_then_id_then_emit() {
        let rows = [
            ("1", "b", 0),
            ("2", "a", 0),
            ("2", "a", 1),
            ("2", "a\0", 0),
            ("2", "aa", 0),
            ("3", "", 0),
        ];
        let keys: Vec<_> =
            rows.iter().map(|(key, id, n)| tree_key(key, id.as_bytes(), *n).unwrap()).collect();
        assert!(keys.is_sorted());
    }
}
