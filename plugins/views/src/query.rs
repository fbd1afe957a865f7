//! The parameters of a view query, from a query string or a JSON body.

use crate::row::escape;
use nacre_plugin::btree::Range;
use nacre_plugin::{collate, successor};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};

/// The parameters of a view query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    key: Option<String>,
    /// The keys, each as JSON; `None` if the query does not name keys.
    pub keys: Option<Vec<String>>,
    startkey: Option<String>,
    endkey: Option<String>,
    startkey_docid: Option<String>,
    endkey_docid: Option<String>,
    inclusive_end: bool,
    /// True if the query reverses the order of keys.
    pub descending: bool,
    /// Maximum number of rows or groups.
    pub limit: u64,
    /// Number of rows or groups to skip first.
    pub skip: u64,
    /// Whether to reduce; `None` leaves the choice to the view.
    pub reduce: Option<bool>,
    /// `None` for no groups, else the number of elements of an array key that identify a group; `usize::MAX` for whole
    /// keys.
    pub group_level: Option<usize>,
    /// True if the first error ends the answer (`on_error=stop`); otherwise the answer omits what failed.
    pub stops_on_error: bool,
    /// True if the answer contains debug info.
    pub debug: bool,
    /// True if the query asks for documents in the rows, which is not supported.
    pub include_docs: bool,
}

impl Default for Query {
    fn default() -> Query {
        Query {
            key: None,
            keys: None,
            startkey: None,
            endkey: None,
            startkey_docid: None,
            endkey_docid: None,
            inclusive_end: true,
            descending: false,
            limit: u64::MAX,
            skip: 0,
            reduce: None,
            group_level: None,
            stops_on_error: false,
            debug: false,
            include_docs: false,
        }
    }
}

impl Query {
    /// Parses the query string and then a JSON object in `body` (of a `POST`). Members of the object override the query
    /// string.
    ///
    /// Parameters without an effect here (`stale`, `full_set`, …) are ignored.
    ///
    /// # Errors
    /// A message that names the parameter and its value.
    pub fn parse(query: &str, body: &[u8]) -> Result<Query, String> {
        let mut parsed = Query::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parsed.set(&percent_decoded(name)?, &percent_decoded(value)?)?;
        }
        if !body.iter().all(u8::is_ascii_whitespace) {
            let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body)
                .map_err(|error| format!("the body is not a JSON object: {error}"))?;
            for (name, value) in members {
                // Texts and numbers are JSON in the body, but document IDs have no quotes.
                let text = value.get();
                match name.as_str() {
                    "key" | "keys" | "startkey" | "start_key" | "endkey" | "end_key" => {
                        parsed.set(&name, text)?;
                    }
                    _ => {
                        let plain: Option<String> = serde_json::from_str(text).ok();
                        parsed.set(&name, plain.as_deref().unwrap_or(text))?;
                    }
                }
            }
        }
        Ok(parsed)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "key" => self.key = Some(json(name, value)?),
            "startkey" | "start_key" => self.startkey = Some(json(name, value)?),
            "endkey" | "end_key" => self.endkey = Some(json(name, value)?),
            "keys" => {
                let keys: Vec<&RawValue> = serde_json::from_str(value)
                    .map_err(|_| refused(name, value, "a JSON array of keys"))?;
                let keys = keys.into_iter().map(|key| json("keys", key.get()));
                self.keys = Some(keys.collect::<Result<_, _>>()?);
            }
            "startkey_docid" | "start_key_doc_id" => self.startkey_docid = Some(value.into()),
            "endkey_docid" | "end_key_doc_id" => self.endkey_docid = Some(value.into()),
            "inclusive_end" => self.inclusive_end = boolean(name, value)?,
            "descending" => self.descending = boolean(name, value)?,
            "limit" => self.limit = number(name, value)?,
            "skip" => self.skip = number(name, value)?,
            "reduce" => self.reduce = Some(boolean(name, value)?),
            "group" => match boolean(name, value)? {
                true => self.group_level = Some(usize::MAX),
                false => self.group_level = None,
            },
            "group_level" => {
                self.group_level = match number(name, value)? {
                    0 => None,
                    level => Some(usize::try_from(level).unwrap_or(usize::MAX)),
                }
            }
            "on_error" => {
                self.stops_on_error = match value {
                    "stop" => true,
                    "continue" => false,
                    _ => return Err(refused(name, value, "continue or stop")),
                }
            }
            "debug" => self.debug = boolean(name, value)?,
            "include_docs" => self.include_docs = boolean(name, value)?,
            "queries" => {
                return Err("invalid use of queries: a request asks one query".into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the ranges of the tree that the query asks for, in the order of the answer.
    ///
    /// # Errors
    /// A message that names a key that cannot be collated.
    pub fn ranges(&self) -> Result<VecDeque<Range>, String> {
        if self.key.is_some() && self.keys.is_some() {
            return Err("invalid use of key: it does not go with keys".into());
        }
        match &self.keys {
            Some(keys) => keys.iter().map(|key| self.range_of(key)).collect(),
            None => match &self.key {
                Some(key) => Ok([self.range_of(key)?].into()),
                None => Ok([self.range()?].into()),
            },
        }
    }

    /// Returns the range of a `key`, whose start and end are that key.
    fn range_of(&self, key: &str) -> Result<Range, String> {
        self.range_between(Some(key), Some(key))
    }

    /// Returns the range between `startkey` and `endkey`, which are swapped if the order is descending.
    fn range(&self) -> Result<Range, String> {
        self.range_between(self.startkey.as_deref(), self.endkey.as_deref())
    }

    fn range_between(&self, start: Option<&str>, end: Option<&str>) -> Result<Range, String> {
        let first = Bound { key: start, id: &self.startkey_docid, included: true };
        let last = Bound { key: end, id: &self.endkey_docid, included: self.inclusive_end };
        let (low, high) = if self.descending { (last, first) } else { (first, last) };
        if let (Some(low), Some(high)) = (low.key, high.key)
            && collated(low)? > collated(high)?
        {
            return Err("No rows can match your key range, reverse your start_key and end_key or set descending to the opposite".into());
        }
        let range = Range { start: low.below()?, end: high.above()?, reverse: self.descending };
        let empty = !range.end.is_empty() && range.end <= range.start;
        // The range is empty: the keys are equal and the end is excluded, or the document IDs are in the wrong order.
        Ok(if empty { Range { end: range.start.clone(), ..range } } else { range })
    }
}

/// One end of a range: a key, and a document within the rows of that key.
struct Bound<'a> {
    key: Option<&'a str>,
    id: &'a Option<String>,
    included: bool,
}

impl Bound<'_> {
    /// For a lower bound: returns the first tree key inside the range.
    fn below(&self) -> Result<Vec<u8>, String> {
        let Some(key) = self.key else { return Ok(Vec::new()) };
        let mut bytes = collated(key)?;
        if let Some(id) = self.id {
            escape(id.as_bytes(), &mut bytes);
            if !self.included {
                bytes.extend_from_slice(&[0, 0]);
            }
        }
        Ok(if self.included { bytes } else { successor(&bytes) })
    }

    /// For an upper bound: returns the first tree key outside the range.
    fn above(&self) -> Result<Vec<u8>, String> {
        let Some(key) = self.key else { return Ok(Vec::new()) };
        let mut bytes = collated(key)?;
        if let Some(id) = self.id {
            escape(id.as_bytes(), &mut bytes);
            if self.included {
                bytes.extend_from_slice(&[0, 0]);
            }
        }
        Ok(if self.included { successor(&bytes) } else { bytes })
    }
}

fn collated(key: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    collate::encode(key, &mut bytes).map_err(|error| format!("key {key}: {error}"))?;
    Ok(bytes)
}

fn refused(name: &str, value: &str, expected: &str) -> String {
    let shown: String = value.chars().take(100).collect();
    format!("invalid value for {name}: {shown:?}, expected {expected}")
}

fn json(name: &str, value: &str) -> Result<String, String> {
    serde_json::from_str::<&RawValue>(value)
        .map(|raw| raw.get().to_owned())
        .map_err(|_| refused(name, value, "JSON"))
}

fn boolean(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(refused(name, value, "true or false")),
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| refused(name, value, "a whole number, 0 or more"))
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, tail) =
                    tail.split_first_chunk::<2>().ok_or_else(|| malformed(text))?;
                let digits = str::from_utf8(digits).map_err(|_| malformed(text))?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| malformed(text))?);
                rest = tail;
            }
            &byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| malformed(text))
}

fn malformed(text: &str) -> String {
    format!("invalid percent-encoding: {text:?}")
}
