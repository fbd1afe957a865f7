//! The extended attribute `_couch`: the revision tree of a document, with everything that is not in the body.
//!
//! ```json
//! {"v": 1, "r": ["1-a", "2-b", "2-c"], "p": [-1, 0, 0], "x": [], "b": {"1": {"title": "loser"}},
//!  "a": {"2": {"photo.png": {"t": "image/png", "d": "…", "l": 7, "r": 2}}}, "f": [],
//!  "cas": "0x0000…", "crc": "0x1c291ca3"}
//! ```
//!
//! `r` are revisions, `p` the indexes of their parents, `x` those that delete, `b` bodies of leaves other than the document's
//! own, `a` attachments of leaves, `f` leaves whose body is in a separate document because it is large. The server writes `cas`
//! and `crc` as macros: if neither matches the document, a key-value client has changed it since.

use crate::tree::{Node, Rev, Tree};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The name of the attribute: attributes that begin with `_` survive the deletion of a document.
pub const NAME: &str = "_couch";
/// The version of this format.
const VERSION: u32 = 1;
/// Maximum bytes of the attribute. The server accepts 1 MiB for all attributes together.
pub const BYTES_MAX: usize = 768 << 10;

/// An attachment of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The media type, as given.
    #[serde(rename = "t")]
    pub content_type: String,
    /// The MD5 digest in base64.
    #[serde(rename = "d")]
    pub digest: String,
    /// Bytes of the content.
    #[serde(rename = "l")]
    pub length: u64,
    /// The generation of the revision that added it.
    #[serde(rename = "r")]
    pub revpos: u64,
}

/// Attachments by name.
pub type Attachments = BTreeMap<String, Attachment>;

/// The content of a leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// A JSON object without CouchDB's members. `None` for a leaf whose body is the document's, or in a separate document.
    pub body: Option<String>,
    /// True if the body is in a separate document.
    pub is_far: bool,
    /// The attachments.
    pub attachments: Attachments,
}

/// The attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The revisions.
    pub tree: Tree,
    /// The contents of leaves.
    pub contents: BTreeMap<Rev, Content>,
    /// The version of the document when the attribute was written, in the server's format.
    pub cas: String,
    /// The checksum of the body, in the server's format.
    pub crc: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    v: u32,
    r: Vec<String>,
    p: Vec<i32>,
    #[serde(default)]
    x: Vec<usize>,
    #[serde(default)]
    b: BTreeMap<usize, Box<RawValue>>,
    #[serde(default)]
    a: BTreeMap<usize, Attachments>,
    #[serde(default)]
    f: Vec<usize>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cas: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    crc: String,
}

impl Record {
    /// Parses the attribute; `None` if it is invalid or has another version.
    pub fn read(json: &[u8]) -> Option<Record> {
        let stored: Stored = serde_json::from_slice(json).ok()?;
        if stored.v != VERSION || stored.r.len() != stored.p.len() {
            return None;
        }
        let revs: Vec<Rev> = stored.r.iter().map(|text| Rev::parse(text)).collect::<Option<_>>()?;
        let node = |(index, rev): (usize, &Rev)| {
            let parent = usize::try_from(stored.p[index]).ok().and_then(|at| revs.get(at));
            // Values that others have written into the attribute must not cause a cycle.
            let parent = parent.filter(|parent| parent.generation + 1 == rev.generation);
            let deleted = stored.x.contains(&index);
            (rev.clone(), Node { parent: parent.cloned(), deleted })
        };
        let tree = Tree::from_nodes(revs.iter().enumerate().map(node));
        let mut contents: BTreeMap<Rev, Content> = BTreeMap::new();
        for (index, body) in stored.b {
            contents.entry(revs.get(index)?.clone()).or_default().body = Some(body.get().into());
        }
        for (index, attachments) in stored.a {
            contents.entry(revs.get(index)?.clone()).or_default().attachments = attachments;
        }
        for index in stored.f {
            contents.entry(revs.get(index)?.clone()).or_default().is_far = true;
        }
        Some(Record { tree, contents, cas: stored.cas, crc: stored.crc })
    }

    /// Formats the attribute without the members that the server writes.
    pub fn write(&self) -> String {
        let positions: BTreeMap<&Rev, usize> =
            self.tree.nodes().keys().enumerate().map(|(index, rev)| (rev, index)).collect();
        let nodes = self.tree.nodes();
        let position = |rev: &Rev| positions.get(rev).copied();
        let parent = |node: &Node| {
            node.parent.as_ref().and_then(position).and_then(|at| i32::try_from(at).ok())
        };
        let contents =
            || self.contents.iter().filter_map(|(rev, content)| Some((position(rev)?, content)));
        let raw = |(at, content): (usize, &Content)| {
            let body = content.body.clone()?;
            Some((at, RawValue::from_string(body).ok()?))
        };
        let stored = Stored {
            v: VERSION,
            r: nodes.keys().map(Rev::to_string).collect(),
            p: nodes.values().map(|node| parent(node).unwrap_or(-1)).collect(),
            x: nodes
                .values()
                .enumerate()
                .filter_map(|(index, node)| node.deleted.then_some(index))
                .collect(),
            b: contents().filter_map(raw).collect(),
            a: contents()
                .filter(|(_, content)| !content.attachments.is_empty())
                .map(|(at, content)| (at, content.attachments.clone()))
                .collect(),
            f: contents().filter(|(_, content)| content.is_far).map(|(at, _)| at).collect(),
            cas: String::new(),
            crc: String::new(),
        };
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Formats only the tree, for the plugin's state.
    pub fn write_tree(tree: &Tree) -> String {
        Record { tree: tree.clone(), ..Record::default() }.write()
    }
}

/// Finds the attribute in the section of an event.
pub fn find(section: &[u8]) -> Option<&[u8]> {
    let mut rest = section.get(4..)?;
    while rest.len() >= 4 {
        let (length, behind) = rest.split_at(4);
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let pair = behind.get(..length)?;
        rest = behind.get(length..)?;
        let end = pair.iter().position(|byte| *byte == 0)?;
        if &pair[..end] == NAME.as_bytes() {
            return pair.get(end + 1..pair.len().checked_sub(1)?);
        }
    }
    None
}

/// Returns a version in the format that the server writes into an attribute.
pub fn cas_text(cas: u64) -> String {
    format!("0x{:016x}", cas.swap_bytes())
}

/// Returns the checksum of a body in the format that the server writes into an attribute: CRC-32C.
pub fn crc_text(body: &[u8]) -> String {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let (mut value, mut bit) = (index as u32, 0);
            while bit < 8 {
                value = (value >> 1) ^ (0x82f6_3b78 & (value & 1).wrapping_neg());
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize];
    format!("0x{:08x}", !body.iter().fold(u32::MAX, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_written() {
        let rev = |text| Rev::parse(text).unwrap();
        let mut record = Record::default();
        record.tree.merge_path(&[rev("2-b"), rev("1-a")], false);
        record.tree.merge_path(&[rev("2-c"), rev("1-a")], true);
        let attachment = Attachment {
            content_type: "text/plain".into(),
            digest: "d".into(),
            length: 3,
            revpos: 2,
        };
        let attachments = Attachments::from([("a.txt".into(), attachment)]);
        let content = Content { body: None, is_far: true, attachments };
        record.contents.insert(rev("2-b"), content);
        let body = Some(r#"{"reason":1.0}"#.to_owned());
        record.contents.insert(rev("2-c"), Content { body, ..Content::default() });
        assert_eq!(Record::read(record.write().as_bytes()), Some(record));
    }

    #[test]
    fn attributes_of_others_are_no_records() {
        for text in ["", "1", "{}", r#"{"v":2,"r":[],"p":[]}"#, r#"{"v":1,"r":["x"],"p":[0]}"#] {
            assert_eq!(Record::read(text.as_bytes()), None, "{text}");
        }
        let circle = Record::read(br#"{"v":1,"r":["1-a","2-b"],"p":[1,0]}"#).unwrap();
        assert_eq!(circle.tree.path(&Rev::parse("2-b").unwrap()).len(), 2);
    }

    #[test]
    fn checksums_and_versions_are_those_of_the_server() {
        assert_eq!(crc_text(b"123456789"), "0xe3069283");
        assert_eq!(cas_text(0x0102), "0x0201000000000000");
    }

    #[test]
    fn the_attribute_is_found_in_a_section() {
        let section = b"\0\0\0\x1a\0\0\0\x08x\0{\"a\":\0\0\0\0\x0a_couch\0{}\0";
        assert_eq!(find(section), Some(&b"{}"[..]));
        assert_eq!(find(b""), None);
        assert_eq!(find(b"\0\0\0\x09\0\0\xff\xff_couch"), None);
    }
}
