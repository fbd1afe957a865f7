//! Range scans of an index over HTTP: requests and responses. They do not call the plugin.
//!
//! ```text
//! start=a&end=c&limit=2    {"rows": [{"id": "1", "key": "a", "value": ""}, {"id": "2", "key": "b", "value": ""}],
//!                           "after": "ZWIAADIAAAAA"}
//! start=a&end=c&limit=2&after=ZWIAADIAAAAA
//!                          {"rows": [{"id": "3", "key": "c", "value": ""}]}
//! ```
//!
//! Keys are bytes. A URL has them percent-encoded, or in hexadecimal under a name with `_hex`. A response has them as
//! text, or in hexadecimal under such a name if they are not UTF-8. `after` identifies the last entry of a page, so
//! nodes keep no state between pages; each page reflects the index at its own time.

use crate::index::{END, IndexSnapshot, Indexed, Span, bound, indexed, is_place};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nacre_types::CollectionId;
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::ops::Bound;

/// Default number of entries of a page.
const LIMIT_DEFAULT: usize = 1000;
/// Maximum number of entries of a page.
const LIMIT_MAX: usize = 10_000;
/// Bytes of keys and values after which a page ends.
const PAGE_BYTES: usize = 4 << 20;

/// A request for a range of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// The range of keys.
    pub span: Span,
    /// True for descending order.
    pub reverse: bool,
    /// The position after which the scan continues.
    pub after: Option<Vec<u8>>,
    /// Maximum number of entries.
    pub limit: usize,
    /// True if the response must reflect all previous writes.
    pub fresh: bool,
    /// True if keys and values are always in hexadecimal.
    pub hex: bool,
}

/// An entry and its position, which determines the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanEntry {
    /// The key in the state.
    #[serde(with = "serde_bytes")]
    pub place: Vec<u8>,
    /// Value stored with the key.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

/// A page of sorted entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The entries.
    pub entries: Vec<ScanEntry>,
    /// True if no entries follow.
    pub is_whole: bool,
}

/// The parameters of a query string.
#[derive(Default)]
struct Parameters {
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    inclusive_end: Option<bool>,
    descending: Option<bool>,
    limit: Option<usize>,
    after: Option<Vec<u8>>,
    stale: Option<bool>,
    hex: Option<bool>,
}

impl Parameters {
    fn read(query: &str) -> Result<Parameters, String> {
        let mut read = Parameters::default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        for (name, value) in pairs.filter(|(_, value)| !value.is_empty()) {
            let (name, value) = (decoded(name), decoded(value));
            let name = String::from_utf8_lossy(&name).into_owned();
            let is_new = match name.as_str() {
                "start" => put(&mut read.start, value),
                "end" => put(&mut read.end, value),
                "prefix" => put(&mut read.prefix, value),
                "start_hex" => put(&mut read.start, from_hex(&name, &value)?),
                "end_hex" => put(&mut read.end, from_hex(&name, &value)?),
                "prefix_hex" => put(&mut read.prefix, from_hex(&name, &value)?),
                "inclusive_end" => put(&mut read.inclusive_end, truth(&name, &value)?),
                "descending" => put(&mut read.descending, truth(&name, &value)?),
                "hex" => put(&mut read.hex, truth(&name, &value)?),
                "limit" => put(&mut read.limit, limit(&value)?),
                "after" => put(&mut read.after, cursor(&value)?),
                "stale" => put(&mut read.stale, staleness(&value)?),
                _ => return Err(format!("there is no parameter {name:?} of a scan: {NAMES}")),
            };
            if !is_new {
                return Err(format!("{name} is given twice, or once as bytes and once as _hex"));
            }
        }
        Ok(read)
    }

    /// Returns the requested range of keys. `start` is where the scan begins, so it is the greatest key of a descending
    /// scan.
    fn span(&mut self, reverse: bool) -> Result<Span, String> {
        let [start, end, prefix] = [&mut self.start, &mut self.end, &mut self.prefix]
            .map(|key| key.take().unwrap_or_default());
        if !prefix.is_empty() {
            return match start.is_empty() && end.is_empty() {
                true => Ok(Span { end: behind_prefix(&prefix), start: prefix }),
                false => Err("prefix replaces start and end: use one or the other".into()),
            };
        }
        let includes_end = self.inclusive_end.unwrap_or(true);
        let behind = |key: Vec<u8>| if key.is_empty() { key } else { next(key) };
        Ok(match (reverse, includes_end) {
            (false, true) => Span { start, end: behind(end) },
            (false, false) => Span { start, end },
            (true, true) => Span { start: end, end: behind(start) },
            (true, false) => Span { start: behind(end), end: behind(start) },
        })
    }
}

const NAMES: &str = "it has start, end, prefix (each also with _hex), inclusive_end, descending, limit, after, stale and hex";

/// Returns the smallest key greater than `key`.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// Returns the first key after those with a prefix; empty if there is none.
fn behind_prefix(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff).map_or(0, |at| at + 1);
    let mut out = prefix[..kept].to_vec();
    if let Some(last) = out.last_mut() {
        *last += 1;
    }
    out
}

/// Sets a parameter. Returns false if it already had a value.
fn put<T>(place: &mut Option<T>, value: T) -> bool {
    place.replace(value).is_none()
}

fn decoded(text: &str) -> Vec<u8> {
    let spaced: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect()
}

fn from_hex(name: &str, text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.chunks(2).map(byte).collect();
    bytes.ok_or_else(|| format!("{name} has two hexadecimal digits for each byte"))
}

fn truth(name: &str, text: &[u8]) -> Result<bool, String> {
    match text {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(format!("{name} is true or false")),
    }
}

fn limit(text: &[u8]) -> Result<usize, String> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| format!("limit is a number from 1 to {LIMIT_MAX}: read on with after"))
}

fn cursor(text: &[u8]) -> Result<Vec<u8>, String> {
    let place = URL_SAFE_NO_PAD.decode(text).ok().filter(|place| is_place(place));
    place.ok_or_else(|| {
        "after must be copied unchanged from the previous page: this value is invalid".into()
    })
}

/// Parses `stale`: returns true if recent writes may be missing.
fn staleness(text: &[u8]) -> Result<bool, String> {
    match text {
        b"ok" | b"true" | b"update_after" => Ok(true),
        b"false" => Ok(false),
        _ => Err("stale is false, ok or update_after".into()),
    }
}

impl Scan {
    /// Parses a query string. Unknown parameters are refused; parameters without a value are ignored.
    ///
    /// # Errors
    /// A description of the invalid parameter.
    pub fn read(query: &str) -> Result<Scan, String> {
        let mut parameters = Parameters::read(query)?;
        let reverse = parameters.descending.unwrap_or(false);
        Ok(Scan {
            span: parameters.span(reverse)?,
            reverse,
            after: parameters.after,
            limit: parameters.limit.unwrap_or(LIMIT_DEFAULT),
            fresh: parameters.stale == Some(false),
            hex: parameters.hex.unwrap_or(false),
        })
    }

    /// Merges pages of several parts, each with the next entries of its part, into one page.
    ///
    /// # Errors
    /// Fails when a part has more entries but its page is empty.
    pub fn merge(&self, parts: Vec<Page>) -> Result<Page, String> {
        let is_before =
            |one: &[u8], other: &[u8]| if self.reverse { one > other } else { one < other };
        // Beyond the last entry of an incomplete part, the next entry may be of that part.
        let mut known_to: Option<Vec<u8>> = None;
        for part in parts.iter().filter(|part| !part.is_whole) {
            let last =
                part.entries.last().ok_or("a node reported more entries but returned none")?;
            if known_to.as_ref().is_none_or(|known| is_before(&last.place, known)) {
                known_to = Some(last.place.clone());
            }
        }
        let mut entries: Vec<ScanEntry> = parts.into_iter().flat_map(|part| part.entries).collect();
        entries.sort_by(|one, other| match self.reverse {
            true => other.place.cmp(&one.place),
            false => one.place.cmp(&other.place),
        });
        let all = entries.len();
        if let Some(known_to) = &known_to {
            entries.retain(|entry| !is_before(known_to, &entry.place));
        }
        entries.truncate(self.limit);
        Ok(Page { is_whole: known_to.is_none() && entries.len() == all, entries })
    }

    /// Formats a page as JSON. `name_of` returns the name of a collection, for an index of several collections.
    pub fn answer(
        &self,
        page: &Page,
        names_collections: bool,
        name_of: impl Fn(CollectionId) -> Option<String>,
    ) -> Value {
        let row = |entry: &ScanEntry| {
            let found = indexed(&entry.place, &entry.value, names_collections)?;
            Some(self.row(&found, &name_of))
        };
        let rows: Vec<Value> = page.entries.iter().filter_map(row).collect();
        let mut answer = json!({"rows": rows});
        if let Some(last) = page.entries.last().filter(|_| !page.is_whole) {
            answer["after"] = URL_SAFE_NO_PAD.encode(&last.place).into();
        }
        answer
    }

    fn row(&self, found: &Indexed, name_of: impl Fn(CollectionId) -> Option<String>) -> Value {
        let mut row = Map::new();
        let mut tell = |name: &str, bytes: &[u8], hex: bool| match str::from_utf8(bytes) {
            Ok(text) if !hex => row.insert(name.to_owned(), text.into()),
            _ => row.insert(format!("{name}_hex"), to_hex(bytes).into()),
        };
        tell("id", &found.id, false);
        tell("key", &found.key, self.hex);
        tell("value", &found.value, self.hex);
        if let Some(collection) = found.collection {
            row.insert("collection".into(), name_of(collection).into());
        }
        Value::Object(row)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl IndexSnapshot {
    /// Returns the next page of a scan, limited to wanted entries.
    pub fn page(&self, scan: &Scan, is_wanted: impl Fn(&Indexed) -> bool) -> Page {
        let start = bound(&scan.span.start);
        let end = if scan.span.end.is_empty() { END.to_vec() } else { bound(&scan.span.end) };
        let mut range = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        match &scan.after {
            Some(after) if scan.reverse && *after < end => range.1 = Bound::Excluded(after),
            Some(after) if !scan.reverse && *after >= start => range.0 = Bound::Excluded(after),
            _ => {}
        }
        let mut page = Page { entries: Vec::new(), is_whole: true };
        let mut bytes = 0;
        for (place, value) in self.between(range, scan.reverse) {
            if !self.entry(place, value).is_some_and(|found| is_wanted(&found)) {
                continue;
            }
            if page.entries.len() >= scan.limit || bytes >= PAGE_BYTES {
                page.is_whole = false;
                break;
            }
            bytes += place.len() + value.len();
            page.entries.push(ScanEntry { place: place.to_vec(), value: value.to_vec() });
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Entry, Form, fold};
    use crate::space::{State, View};
    use nacre_types::{DocKey, Document, Meta, Vbid};

    /// Returns an index with these keys, each of its own document.
    fn index(keys: &[&[u8]]) -> IndexSnapshot {
        let mut view = View::writing(State::default(), 1 << 20);
        let document = |at: usize| {
            let key = DocKey::new(CollectionId(8), format!("d{at}").as_bytes());
            (Vbid(0), Document::new(Meta::default(), key.prefixed(), b"{}"))
        };
        let documents: Vec<_> = (0..keys.len()).map(document).collect();
        let entry = |(at, key): (usize, &&[u8])| Entry {
            event: at as u32,
            key: key.to_vec(),
            value: vec![0xff, at as u8],
        };
        let entries = keys.iter().enumerate().map(entry).collect();
        fold(&mut view, &documents, entries, &Form::default()).unwrap();
        IndexSnapshot::new(view.state, &Form::default())
    }

    fn keys(snapshot: &IndexSnapshot, page: &Page) -> Vec<Vec<u8>> {
        let found = |entry: &ScanEntry| snapshot.entry(&entry.place, &entry.value).unwrap().key;
        page.entries.iter().map(found).collect()
    }

    fn asked(snapshot: &IndexSnapshot, query: &str) -> String {
        let scan = Scan::read(query).unwrap();
        let keys = keys(snapshot, &snapshot.page(&scan, |_| true));
        keys.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn bounds_have_the_meaning_of_bounds_in_views() {
        let index = index(&[b"a", b"b", b"b\0", b"ba", b"c", b"\xff", b"\xff\xff", b" "]);
        let cases = [
            ("", r"  a b b\x00 ba c \xff \xff\xff"),
            ("start=b", r"b b\x00 ba c \xff \xff\xff"),
            ("start=b&end=c", r"b b\x00 ba c"),
            ("start=b&end=c&inclusive_end=false", r"b b\x00 ba"),
            ("start=c&end=b&descending=true", r"c ba b\x00 b"),
            ("start=c&end=b&descending=true&inclusive_end=false", r"c ba b\x00"),
            ("start=c&end=b", ""),
            ("start=b&end=c&descending=true", ""),
            ("end=a", r"  a"),
            ("prefix=b", r"b b\x00 ba"),
            ("prefix=b&descending=true", r"ba b\x00 b"),
            ("prefix=%FF", r"\xff \xff\xff"),
            ("prefix_hex=ffff", r"\xff\xff"),
            ("start_hex=6200&end_hex=6261", r"b\x00 ba"),
            ("start=+&end=+", " "),
            ("start=&end=&prefix=&limit=2", "  a"),
            ("limit=1&descending=true", r"\xff\xff"),
        ];
        for (query, expected) in cases {
            assert_eq!(asked(&index, query), expected, "{query}");
        }
    }

    #[test]
    fn unsupported_scans_are_refused_with_a_reason() {
        let refused = |query: &&str| format!("{query}: {}", Scan::read(query).unwrap_err());
        let queries = [
            "limit=0",
            "limit=10001",
            "limit=few",
            "descending=yes",
            "start=a&start_hex=61",
            "start_hex=6",
            "end_hex=6g",
            "prefix=a&start=a",
            "after=none",
            "after=ZQ",
            "stale=later",
            "startkey=a",
        ];
        insta::assert_snapshot!(queries.iter().map(refused).collect::<Vec<_>>().join("\n"), @r#"
        limit=0: limit is a number from 1 to 10000: read on with after
        limit=10001: limit is a number from 1 to 10000: read on with after
        limit=few: limit is a number from 1 to 10000: read on with after
        descending=yes: descending is true or false
        start=a&start_hex=61: start_hex is given twice, or once as bytes and once as _hex
        start_hex=6: start_hex has two hexadecimal digits for each byte
        end_hex=6g: end_hex has two hexadecimal digits for each byte
        prefix=a&start=a: prefix replaces start and end: use one or the other
        after=none: after must be copied unchanged from the previous page: this value is invalid
        after=ZQ: after must be copied unchanged from the previous page: this value is invalid
        stale=later: stale is false, ok or update_after
        startkey=a: there is no parameter "startkey" of a scan: it has start, end, prefix (each also with _hex), inclusive_end, descending, limit, after, stale and hex
        "#);
    }

    /// Every entry occurs once, for all page sizes and partitions.
    #[test]
    fn merged_pages_of_parts_are_complete_and_in_order() {
        let all: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n % 7, 0, n]).collect();
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let index = index(&all);
        for (reverse, limit, parts) in [
            (false, 1, 1),
            (false, 3, 2),
            (true, 3, 3),
            (true, 7, 1),
            (false, 40, 3),
            (true, 41, 2),
        ] {
            let mut scan = Scan::read(&format!("limit={limit}&descending={reverse}")).unwrap();
            let mut seen = Vec::new();
            loop {
                let part = |part: usize| {
                    let of =
                        |found: &Indexed| found.id.iter().map(|b| usize::from(*b)).sum::<usize>();
                    index.page(&scan, |found| of(found) % parts == part)
                };
                let page = scan.merge((0..parts).map(part).collect()).unwrap();
                seen.extend(keys(&index, &page));
                let answer = scan.answer(&page, false, |_| None);
                match answer["after"].as_str() {
                    Some(after) => scan.after = Some(cursor(after.as_bytes()).unwrap()),
                    None => break,
                }
            }
            let mut expected: Vec<Vec<u8>> = all.iter().map(|key| key.to_vec()).collect();
            expected.sort();
            if reverse {
                expected.reverse();
            }
            assert_eq!(seen, expected, "{reverse} {limit} {parts}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_scan_is_answered_in_order_or_refused(
            text in "[a-z_]{0,7}=[ -~]{0,9}",
            start: Vec<u8>,
            end: Vec<u8>,
            after: Vec<u8>,
            more in "(&descending=true)?(&inclusive_end=false)?(&limit=2)?",
        ) {
            let _ = Scan::read(&text);
            let after = [b"e", &after[..]].concat();
            let _ = cursor(URL_SAFE_NO_PAD.encode(&after).as_bytes());
            let query = format!("start_hex={}&end_hex={}{more}", to_hex(&start), to_hex(&end));
            let scan = Scan { after: Some(after.clone()), ..Scan::read(&query).unwrap() };
            let index = index(&[b"", b"\0", b"a", b"b", b"\xff\xff"]);
            let places = index.page(&scan, |_| true).entries.into_iter().map(|found| found.place);
            let behind = |place: &Vec<u8>| if scan.reverse { *place < after } else { *place > after };
            let places: Vec<_> = places.collect();
            let mut sorted = places.clone();
            sorted.sort();
            if scan.reverse {
                sorted.reverse();
            }
            assert!(places.iter().all(behind) && places == sorted);
        }
    }

    #[test]
    fn a_position_outside_of_the_range_does_not_extend_the_range() {
        let index = index(&[b"a", b"b", b"c", b"d"]);
        let page = index.page(&Scan::read("limit=1").unwrap(), |_| true);
        let at_a = page.entries[0].place.clone();
        let from = |query: &str| {
            let scan = Scan { after: Some(at_a.clone()), ..Scan::read(query).unwrap() };
            keys(&index, &index.page(&scan, |_| true)).concat()
        };
        assert_eq!(from("start=c"), b"cd");
        assert_eq!(from("start=c&descending=true"), b"");
        assert_eq!(from("end=a"), b"");
        assert_eq!(from("start=b&end=a"), b"");
    }

    #[test]
    fn bytes_are_shown_as_text_where_possible() {
        let index = index(&[b"\xc3\xa9", b"\xc3"]);
        let told = |query: &str| {
            let scan = Scan::read(query).unwrap();
            scan.answer(&index.page(&scan, |_| true), false, |_| None)
        };
        let expected = json!({"rows": [
            {"id": "d1", "key_hex": "c3", "value_hex": "ff01"},
            {"id": "d0", "key": "é", "value_hex": "ff00"},
        ]});
        assert_eq!(told(""), expected);
        let of_hex = told("hex=true&prefix_hex=c3a9");
        assert_eq!(of_hex, json!({"rows": [{"id": "d0", "key_hex": "c3a9", "value_hex": "ff00"}]}));
    }
}
