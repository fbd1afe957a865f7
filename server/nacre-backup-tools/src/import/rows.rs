//! Rows of a file on their way into the cluster: collection, key and document of each, and the file of rows that are not imported.

use super::{Import, SHOWN_ERRORS_MAX};
use crate::backup::members;
use crate::key_pattern::Pattern;
use crate::loader::Loader;
use indicatif::ProgressBar;
use nacre_client::Connection;
use nacre_types::name_bytes_max;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// Creates the file for rows that are not imported.
///
/// # Errors
/// A sentence if the file cannot be created.
pub(super) fn create(path: &Path) -> Result<BufWriter<File>, String> {
    let file = File::create(path);
    file.map(BufWriter::new).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The collections of rows.
pub(super) struct Collections {
    /// The ID of the collection, if all rows have the same.
    one: u32,
    /// Otherwise the pattern of its path, and a connection that finds the ID.
    of_rows: Option<(Pattern, Connection)>,
    known: BTreeMap<String, u32>,
}

impl Collections {
    /// One collection for all rows.
    pub fn one(one: u32) -> Collections {
        Collections { one, of_rows: None, known: BTreeMap::new() }
    }

    /// A collection for each row.
    pub fn of_rows(pattern: Pattern, connection: Connection) -> Collections {
        Collections { one: 0, of_rows: Some((pattern, connection)), known: BTreeMap::new() }
    }

    /// Returns the ID of a row's collection, or the reason why the row has none.
    ///
    /// # Errors
    /// A sentence if the connection is broken.
    fn id(&mut self, row: u64, document: &str) -> Result<Result<u32, String>, String> {
        let Some((pattern, connection)) = &mut self.of_rows else { return Ok(Ok(self.one)) };
        let path = match pattern.fill(row, document) {
            Ok(path) => path,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Some(id) = self.known.get(&path) {
            return Ok(Ok(*id));
        }
        match connection.collection_id(&path) {
            Ok(id) => {
                self.known.insert(path, id);
                Ok(Ok(id))
            }
            Err(error) if error.status().is_some() => Ok(Err(error.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Collection, key and document of a row.
type Keyed = (u32, String, String);

/// Writes rows as documents.
pub(super) struct Rows<'a> {
    pub options: &'a Import,
    /// The pattern of keys.
    pub key: Pattern,
    pub collections: Collections,
    pub loader: Loader<'a>,
    pub bar: ProgressBar,
    /// The file for rows that are not imported.
    pub errors: Option<BufWriter<File>>,
    /// Rows of the file so far.
    pub seen: u64,
    /// Rows that were not imported.
    pub bad: u64,
}

impl Rows<'_> {
    /// Writes a row; returns false after the last row within the limit.
    ///
    /// # Errors
    /// A sentence if a write was refused, a connection broke, or the file of rows cannot be written.
    pub fn take(&mut self, row: Result<String, String>) -> Result<bool, String> {
        let (skip, limit) = (self.options.skip, self.options.limit);
        if limit.is_some_and(|limit| self.seen >= skip.saturating_add(limit)) {
            return Ok(false);
        }
        self.seen += 1;
        if self.seen <= skip {
            return Ok(true);
        }
        let keyed = match &row {
            Ok(row) => self.keyed(row)?,
            Err(reason) => Err(reason.clone()),
        };
        match keyed {
            Ok((collection, key, document)) => self.loader.write(collection, key, document)?,
            Err(reason) => self.note(row.as_deref().ok(), &reason)?,
        }
        Ok(true)
    }

    /// Makes collection, key and document of a row, or returns the reason why the row has none.
    fn keyed(&mut self, row: &str) -> Result<Result<Keyed, String>, String> {
        let collection = match self.collections.id(self.seen, row)? {
            Ok(collection) => collection,
            Err(reason) => return Ok(Err(reason)),
        };
        let key = key_of(&self.key, self.seen, row, name_bytes_max(collection == 0));
        Ok(key.and_then(|key| Ok((collection, key, document(self.options, row)?))))
    }

    /// Reports a row that is not imported.
    fn note(&mut self, row: Option<&str>, reason: &str) -> Result<(), String> {
        self.bad += 1;
        if self.bad <= SHOWN_ERRORS_MAX {
            self.bar.suspend(|| eprintln!("row {}: {reason}", self.seen));
        }
        match &mut self.errors {
            Some(file) => writeln!(file, "{}", bad_row(self.seen, reason, row)).map_err(unwritten),
            None => Ok(()),
        }
    }

    /// Waits for the answers to all writes.
    ///
    /// # Errors
    /// As for [`Rows::take`].
    pub fn finish(&mut self) -> Result<(), String> {
        self.loader.finish()?;
        self.errors.as_mut().map_or(Ok(()), |file| file.flush().map_err(unwritten))
    }
}

fn unwritten(error: std::io::Error) -> String {
    format!("cannot write the file of rows that are not imported: {error}")
}

/// The line of a row that is not imported.
fn bad_row(number: u64, reason: &str, row: Option<&str>) -> String {
    let reason = Value::from(reason);
    let row = row.map(|row| match row.contains(['\n', '\r']) {
        true => serde_json::from_str::<Value>(row).unwrap_or_default().to_string(),
        false => row.to_owned(),
    });
    let row = row.unwrap_or_else(|| "null".to_owned());
    format!("{{\"row\":{number},\"reason\":{reason},\"document\":{row}}}")
}

/// Returns the document of a row.
fn document(options: &Import, row: &str) -> Result<String, String> {
    let document = match &options.document_field {
        Some(field) => document_of(row, field)?,
        None => row.to_owned(),
    };
    match &options.ignore_fields[..] {
        [] => Ok(document),
        ignored => without(&document, ignored),
    }
}

/// Returns a document without some of its fields; the others are as they are written.
fn without(document: &str, ignored: &[String]) -> Result<String, String> {
    let members = members(document).map_err(|error| format!("it is not an object: {error}"))?;
    let kept = members.iter().filter(|(name, _)| !ignored.contains(name));
    let kept = kept.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
    Ok(format!("{{{}}}", kept.collect::<Vec<_>>().join(",")))
}

/// Takes the document of a row from one of its fields.
fn document_of(row: &str, field: &str) -> Result<String, String> {
    let row: BTreeMap<String, &RawValue> =
        serde_json::from_str(row).map_err(|error| format!("it is not an object: {error}"))?;
    let text = row.get(field).ok_or_else(|| format!("it has no field {field:?}"))?;
    let text: String = serde_json::from_str(text.get())
        .map_err(|_| format!("its field {field:?} is not a text with JSON"))?;
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(document) => Ok(document.get().to_owned()),
        Err(error) => Err(format!("its field {field:?} is not JSON: {error}")),
    }
}

/// Fills the pattern of keys for one row; a key has at most `bytes_max`.
fn key_of(pattern: &Pattern, row: u64, document: &str, bytes_max: usize) -> Result<String, String> {
    let key = pattern.fill(row, document)?;
    let length = key.len();
    if (1..=bytes_max).contains(&length) {
        Ok(key)
    } else {
        Err(format!("its key would have {length} bytes, which is not 1 to {bytes_max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_from_rows_and_have_a_limit() {
        let document = r#"{"iata":"SFO","gate":7}"#;
        let key_of =
            |pattern: &str| key_of(&Pattern::read(pattern, ['%', '#']).unwrap(), 3, document, 13);
        assert_eq!(key_of("airport_%iata%_%gate%").unwrap(), "airport_SFO_7");
        assert!(key_of("airports_%iata%_%gate%").unwrap_err().contains("14 bytes"));
        assert!(key_of("%none%").unwrap_err().contains("no field \"none\""));
        assert!(key_of("").unwrap_err().contains("0 bytes"));
    }

    #[test]
    fn ignored_fields_are_left_out_and_the_others_as_they_are_written() {
        let without = |document: &str, fields: &[&str]| {
            let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            without(document, &fields)
        };
        let document = r#"{"z": 1.0, "a\"b": [1, {"z": 2}], "id": 10000000000000000001}"#;
        let kept = r#"{"a\"b":[1, {"z": 2}],"id":10000000000000000001}"#;
        assert_eq!(without(document, &["z", "other"]).as_deref(), Ok(kept));
        assert_eq!(without("{\"z\":1}", &["z"]).as_deref(), Ok("{}"));
        assert!(without("[1]", &["z"]).unwrap_err().contains("not an object"));
    }

    #[test]
    fn a_row_that_is_not_imported_is_a_line_of_json() {
        let line = bad_row(7, "it has no \"id\"", Some("{\n\"a\": 1\n}"));
        assert_eq!(line, r#"{"row":7,"reason":"it has no \"id\"","document":{"a":1}}"#);
        assert_eq!(bad_row(1, "r", None), r#"{"row":1,"reason":"r","document":null}"#);
    }

    #[test]
    fn a_document_may_be_a_field_of_its_row() {
        let of = |row: &str| document_of(row, "document");
        let row = r#"{"key":"k","document":" {\"a\": 1.0} "}"#;
        assert_eq!(of(row).as_deref(), Ok("{\"a\": 1.0}"), "as it was written");
        assert!(of(r#"{"key":"k"}"#).unwrap_err().contains("no field"));
        assert!(of(r#"{"document":{"a":1}}"#).unwrap_err().contains("not a text with JSON"));
        assert!(of(r#"{"document":"{"}"#).unwrap_err().contains("is not JSON"));
        assert!(of("[1]").unwrap_err().contains("not an object"));
    }
}
