//! Lines of `nacre export --with-meta`, read back.

use super::definitions;
use super::writer::{WriteRule, Writer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nacre_backup::{Record, RecordKind};
use nacre_cli::Cluster;
use nacre_types::DATATYPE_XATTR;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A line as it is written. A map would change the order of attributes, and with it the bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    key: Option<String>,
    key_base64: Option<String>,
    scope: String,
    collection: String,
    cas: String,
    rev: u64,
    flags: u32,
    expiry: u32,
    #[serde(borrow)]
    xattrs: Option<&'a RawValue>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    body_base64: Option<String>,
}

/// A document with its metadata.
pub(crate) struct ExportedVersion {
    key: Vec<u8>,
    place: (String, String),
    cas: u64,
    rev: u64,
    flags: u32,
    expiry: u32,
    datatype: u8,
    value: Vec<u8>,
}

impl ExportedVersion {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &str) -> Result<ExportedVersion, String> {
        let line: Line<'_> = serde_json::from_str(line)
            .map_err(|error| format!("no document with metadata: {error}"))?;
        let bytes = |name: &str, text: &str| {
            STANDARD.decode(text).map_err(|error| format!("{name} is not base64: {error}"))
        };
        let key = match (line.key, line.key_base64) {
            (Some(key), None) => key.into_bytes(),
            (None, Some(key)) => bytes("key_base64", &key)?,
            _ => return Err("a document has one of key and key_base64".to_owned()),
        };
        let body = match (line.body, line.body_base64) {
            (Some(body), None) => body.get().as_bytes().to_vec(),
            (None, Some(body)) => bytes("body_base64", &body)?,
            _ => return Err("a document has one of body and body_base64".to_owned()),
        };
        let cas = line.cas.parse().map_err(|_| format!("{:?} is not a CAS", line.cas))?;
        if cas == 0 {
            return Err("a CAS is not 0".to_owned());
        }
        let (mut datatype, mut value) = (0, Vec::new());
        if let Some(xattrs) = line.xattrs {
            datatype = DATATYPE_XATTR;
            value = section(xattrs)?;
        }
        value.extend(body);
        let (place, rev, flags, expiry) =
            ((line.scope, line.collection), line.rev, line.flags, line.expiry);
        Ok(ExportedVersion { key, place, cas, rev, flags, expiry, datatype, value })
    }
}

/// The section of attributes with its length, in the order of the line.
fn section(xattrs: &RawValue) -> Result<Vec<u8>, String> {
    let pairs = members(xattrs.get()).map_err(|error| format!("xattrs: {error}"))?;
    let mut section = vec![0; 4];
    for (name, value) in pairs {
        if name.contains('\0') {
            return Err("the name of an attribute has a NUL".to_owned());
        }
        let pair = [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
        let length = u32::try_from(pair.len()).map_err(|_| "an attribute is too long")?;
        section.extend(length.to_be_bytes());
        section.extend(pair);
    }
    let length = u32::try_from(section.len() - 4).map_err(|_| "attributes are too long")?;
    section[..4].copy_from_slice(&length.to_be_bytes());
    Ok(section)
}

/// Returns the members of an object in their order, with their values as they are written.
///
/// # Errors
/// The parser's, if the text does not begin with an object.
pub(crate) fn members(object: &str) -> serde_json::Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(object);
    serde::Deserializer::deserialize_map(&mut reader, Pairs(&mut pairs))?;
    Ok(pairs)
}

/// Collects the members of an object in their order.
struct Pairs<'a>(&'a mut Vec<(String, String)>);

impl<'de> serde::de::Visitor<'de> for Pairs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            self.0.push((name, value.get().to_owned()));
        }
        Ok(())
    }
}

/// Writes versions into a bucket.
pub(crate) struct VersionImporter<'a> {
    writer: Writer<'a>,
    collections: BTreeMap<(String, String), u32>,
    bucket: String,
}

impl<'a> VersionImporter<'a> {
    /// Connects to a bucket.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(cluster: &'a Cluster<'a>, bucket: &str) -> Result<VersionImporter<'a>, String> {
        let described = cluster.server.call("GET", &definitions::bucket_path(bucket), b"")?;
        let by_time = described["conflictResolutionType"] == "lww";
        let present = definitions::present(cluster.server, bucket)?;
        let collections =
            present.into_iter().map(|found| ((found.scope, found.name), found.id)).collect();
        let writer = Writer::open(cluster, bucket, WriteRule { by_time, force: false })?;
        Ok(VersionImporter { writer, collections, bucket: bucket.to_owned() })
    }

    /// Adds a version.
    ///
    /// # Errors
    /// A sentence if its collection does not exist, or an earlier one was refused.
    pub fn write(&mut self, version: &ExportedVersion) -> Result<(), String> {
        let ExportedVersion { key, place, cas, rev, flags, expiry, datatype, value } = version;
        let collection = self.collections.get(place).ok_or_else(|| {
            format!(
                "the bucket {} has no collection {}.{}: create it first",
                self.bucket, place.0, place.1
            )
        })?;
        let record = Record {
            kind: RecordKind::Set,
            seqno: 0,
            cas: *cas,
            rev: *rev,
            flags: *flags,
            expiry: *expiry,
            datatype: *datatype,
            collection: *collection,
            key,
            value,
        };
        self.writer.write(*collection, &record, *expiry)
    }

    /// Waits for all answers; returns how many versions were written, and how many were not newer than what is there.
    ///
    /// # Errors
    /// A sentence.
    pub fn finish(mut self) -> Result<(u64, u64), String> {
        self.writer.finish()?;
        let written = self.writer.written();
        Ok((written.written, written.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#""scope":"s","collection":"c","cas":"7","rev":2,"flags":3,"expiry":4"#;

    #[test]
    fn a_line_reads_back_as_its_document() {
        let line =
            format!(r#"{{"key":"k",{META},"xattrs":{{"xy":true,"a":1.0}},"body":{{"b":1}}}}"#);
        let version = ExportedVersion::read(&line).unwrap();
        assert_eq!(
            (&version.key[..], version.cas, version.datatype),
            (&b"k"[..], 7, DATATYPE_XATTR)
        );
        let attributes = b"\0\0\0\x16\0\0\0\x08xy\0true\0\0\0\0\x06a\x001.0\0";
        assert_eq!(version.value, [&attributes[..], b"{\"b\":1}"].concat());
        let line = format!(r#"{{"key_base64":"/w==",{META},"body_base64":"AQ=="}}"#);
        let version = ExportedVersion::read(&line).unwrap();
        assert_eq!((version.key, version.value, version.datatype), (vec![0xff], vec![1], 0));
    }

    #[test]
    fn a_malformed_line_is_refused_with_a_reason() {
        let why = |line: String| ExportedVersion::read(&line).err().unwrap();
        assert!(why("{}".into()).contains("no document with metadata"));
        assert!(why(format!(r#"{{{META},"body":1}}"#)).contains("key_base64"));
        assert!(why(format!(r#"{{"key":"k",{META}}}"#)).contains("body_base64"));
        assert!(why(format!(r#"{{"key":"k",{META},"body_base64":"!"}}"#)).contains("not base64"));
        assert!(
            why(format!(r#"{{"key":"k",{META},"body":1,"xattrs":[1]}}"#)).contains("an object")
        );
        assert!(why(format!(r#"{{"key":"k",{META},"body":1,"other":1}}"#)).contains("other"));
    }
}
