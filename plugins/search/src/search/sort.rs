//! The sort order of hits.

use super::request::Cursor;
use crate::error::{Error, Result};
use crate::geo;
use crate::index::{END, Numbers, Segment, Values};
use nacre_text::{format_rfc3339, parse_rfc3339};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;
use tantivy::DocSet;

/// Sort key of a missing value that comes last.
const HIGH: &str = "\u{10FFFF}\u{10FFFF}\u{10FFFF}";
/// Sort key of a missing value that comes first.
const LOW: &str = "\0";

/// The value that a sort key compares.
#[derive(Clone, Debug)]
pub enum Order {
    /// The ID.
    Id,
    /// The score.
    Score,
    /// A field.
    Field {
        /// The name of the field.
        path: String,
        /// The kind of the values; `Auto` uses the kind that a document has.
        kind: Kind,
        /// True if the largest of several values counts, false for the smallest.
        max: bool,
    },
    /// The distance of a point from another.
    Distance {
        /// The field of the point.
        path: String,
        /// The other point.
        from: (f64, f64),
        /// Length of the unit in metres.
        unit: f64,
    },
}

/// The kind of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kind of the existing values.
    Auto,
    /// Terms.
    Text,
    /// Numbers.
    Number,
    /// Dates.
    Date,
}

/// A sort key.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// The value that the key compares.
    pub order: Order,
    /// True if the largest value comes first.
    pub descending: bool,
    /// True if hits without a value come first.
    pub missing_first: bool,
}

/// The value of a hit for a sort key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SortValue {
    /// The ID, which the hit itself contains.
    Id,
    /// The score, which the hit itself contains.
    Score,
    /// No value.
    Missing,
    /// A number, or a distance.
    Number(f64),
    /// A date.
    Date(i64),
    /// A term.
    Text(String),
}

impl SortKey {
    /// Parses a sort key: a text such as `-field`, or an object.
    ///
    /// # Errors
    /// The member `by` is unknown, or one of its parameters is invalid.
    pub fn parse(value: &Value) -> Result<SortKey> {
        if let Some(text) = value.as_str() {
            let (text, descending) = match text.strip_prefix('-') {
                Some(rest) => (rest, true),
                None => (text.strip_prefix('+').unwrap_or(text), false),
            };
            let order = match text {
                "_id" => Order::Id,
                "_score" => Order::Score,
                path => Order::Field { path: path.into(), kind: Kind::Auto, max: false },
            };
            return Ok(SortKey { order, descending, missing_first: false });
        }
        if !value.is_object() {
            return Err(Error::request("invalid sort value"));
        }
        let text = |name: &str| value[name].as_str();
        let field = || text("field").filter(|field| !field.is_empty()).map(str::to_owned);
        let descending = value["desc"].as_bool().unwrap_or(false);
        let mut missing_first = false;
        let order = match text("by") {
            Some("id") => Order::Id,
            Some("score") => Order::Score,
            Some("field") => {
                let path =
                    field().ok_or_else(|| Error::request("search sort mode must specify field"))?;
                let kind = match text("type").unwrap_or("auto") {
                    "auto" | "" => Kind::Auto,
                    "string" => Kind::Text,
                    "number" => Kind::Number,
                    "date" => Kind::Date,
                    other => {
                        return Err(Error::request(format!("unknown sort field type: {other}")));
                    }
                };
                let max = match text("mode").unwrap_or("default") {
                    "default" | "min" | "" => false,
                    "max" => true,
                    other => {
                        return Err(Error::request(format!("unknown sort field mode: {other}")));
                    }
                };
                missing_first = match text("missing").unwrap_or("last") {
                    "last" | "" => false,
                    "first" => true,
                    other => {
                        return Err(Error::request(format!("unknown sort field missing: {other}")));
                    }
                };
                Order::Field { path, kind, max }
            }
            Some("geo_distance") => {
                let path = field()
                    .ok_or_else(|| Error::request("search sort geo_distance must specify field"))?;
                let from = geo::parse_point(&value["location"])
                    .ok_or_else(|| Error::request("unable to parse geo_distance location"))?;
                let unit = geo::unit(text("unit").unwrap_or("m"))?;
                Order::Distance { path, from, unit }
            }
            Some(other) => return Err(Error::request(format!("unknown search sort by: {other}"))),
            None => return Err(Error::request("search sort must specify by")),
        };
        Ok(SortKey { order, descending, missing_first })
    }

    /// Returns the text for the member `sort` of a hit.
    pub fn text(&self, value: &SortValue, id: &str) -> String {
        match value {
            SortValue::Id => id.to_owned(),
            SortValue::Score => "_score".to_owned(),
            // A descending order swaps the two.
            SortValue::Missing if self.missing_first == self.descending => HIGH.to_owned(),
            SortValue::Missing => LOW.to_owned(),
            SortValue::Number(number) => number.to_string(),
            SortValue::Date(nanos) => format_rfc3339(*nanos),
            SortValue::Text(text) => text.clone(),
        }
    }

    /// Compares two hits by this key, which is the `at`-th. If their IDs are empty, these compare as equal.
    pub fn compare(&self, a: &Ranked<'_>, b: &Ranked<'_>, at: usize) -> Ordering {
        let missing = |value: &SortValue| *value == SortValue::Missing;
        let (x, y) = (&a.keys[at], &b.keys[at]);
        match (missing(x), missing(y)) {
            (true, true) => return Ordering::Equal,
            (true, false) => {
                return if self.missing_first { Ordering::Less } else { Ordering::Greater };
            }
            (false, true) => {
                return if self.missing_first { Ordering::Greater } else { Ordering::Less };
            }
            (false, false) => {}
        }
        let order = match (x, y) {
            (SortValue::Id, _) => shown(a.id).cmp(shown(b.id)),
            (SortValue::Score, _) => a.score.total_cmp(&b.score),
            (SortValue::Number(x), SortValue::Number(y)) => x.total_cmp(y),
            (SortValue::Date(x), SortValue::Date(y)) => x.cmp(y),
            (SortValue::Text(x), SortValue::Text(y)) => x.cmp(y),
            (x, y) => rank(x).cmp(&rank(y)),
        };
        if self.descending { order.reverse() } else { order }
    }

    /// Converts the text of a cursor into a value that can be compared with `like`.
    fn cursor_value(&self, text: &str, like: &SortValue) -> SortValue {
        if text == HIGH || text == LOW {
            return SortValue::Missing;
        }
        match (&self.order, like) {
            (Order::Id, _) => SortValue::Id,
            (Order::Score, _) => SortValue::Score,
            (_, SortValue::Number(_)) => text.parse().map_or(SortValue::Missing, SortValue::Number),
            (_, SortValue::Date(_)) => {
                parse_rfc3339(text).map_or(SortValue::Missing, SortValue::Date)
            }
            (_, SortValue::Missing) => SortValue::Text(text.to_owned()),
            _ => SortValue::Text(text.to_owned()),
        }
    }
}

fn rank(value: &SortValue) -> u8 {
    match value {
        SortValue::Number(_) => 0,
        SortValue::Date(_) => 1,
        _ => 2,
    }
}

/// A hit in a comparison.
pub struct Ranked<'a> {
    /// The score.
    pub score: f32,
    /// The ID, which breaks ties.
    pub id: &'a str,
    /// The value of each sort key.
    pub keys: &'a [SortValue],
}

/// Returns an ID without its collection. IDs contain no zero, unless clients have put one there.
pub fn shown(id: &str) -> &str {
    id.rsplit_once('\0').map_or(id, |(id, _)| id)
}

/// Compares two hits.
pub fn compare(sort: &[SortKey], a: &Ranked<'_>, b: &Ranked<'_>) -> Ordering {
    for (at, key) in sort.iter().enumerate() {
        let order = key.compare(a, b, at);
        if order != Ordering::Equal {
            return order;
        }
    }
    a.id.cmp(b.id)
}

/// Returns true if a hit is on the requested side of a cursor. A cursor that names an ID without a collection represents the documents
/// of all collections that have this ID.
pub fn is_beyond(sort: &[SortKey], cursor: &Cursor, hit: &Ranked<'_>) -> bool {
    let keys: Vec<SortValue> = sort
        .iter()
        .zip(&cursor.keys)
        .zip(hit.keys)
        .map(|((key, text), like)| key.cursor_value(text, like))
        .collect();
    let at = |wanted: fn(&Order) -> bool| {
        sort.iter().position(|key| wanted(&key.order)).map(|at| &*cursor.keys[at])
    };
    let score = at(|order| matches!(order, Order::Score)).and_then(|text| text.parse().ok());
    let id = at(|order| matches!(order, Order::Id));
    let own = if id.is_some_and(|id| !id.contains('\0')) { shown(hit.id) } else { hit.id };
    let hit = Ranked { id: own, ..*hit };
    let other = Ranked { score: score.unwrap_or(0.0), id: id.unwrap_or(own), keys: &keys };
    match compare(sort, &hit, &other) {
        Ordering::Less => cursor.before,
        Ordering::Greater => !cursor.before,
        Ordering::Equal => false,
    }
}

/// The first and the last term of each document, by document number.
type Ends = BTreeMap<u32, (Rc<str>, Rc<str>)>;

/// Reads the values of a sort key in a segment.
pub struct KeyReader<'a> {
    key: &'a SortKey,
    numbers: Numbers,
    dates: Numbers,
    places: Numbers,
    texts: Option<Values>,
    segment: &'a Segment,
    /// The first and the last term of documents with many terms, computed on first use.
    ends: OnceCell<Ends>,
}

impl<'a> KeyReader<'a> {
    /// Creates a reader for a segment.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn new(key: &'a SortKey, segment: &'a Segment) -> Result<KeyReader<'a>> {
        let mut reader = KeyReader {
            key,
            numbers: Numbers::Absent,
            dates: Numbers::Absent,
            places: Numbers::Absent,
            texts: None,
            segment,
            ends: OnceCell::new(),
        };
        match &key.order {
            Order::Id | Order::Score => {}
            Order::Field { path, kind, .. } => {
                let wants = |other: Kind| *kind == Kind::Auto || *kind == other;
                if wants(Kind::Number) {
                    reader.numbers = segment.numbers(path)?;
                }
                if wants(Kind::Date) {
                    reader.dates = segment.dates(path)?;
                }
                if wants(Kind::Text) {
                    reader.texts = segment.values(path)?;
                }
            }
            Order::Distance { path, .. } => reader.places = segment.places(path)?,
        }
        Ok(reader)
    }

    /// Returns the value of a document.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn value(&self, doc: u32) -> Result<SortValue> {
        let (from, unit) = match &self.key.order {
            Order::Id => return Ok(SortValue::Id),
            Order::Score => return Ok(SortValue::Score),
            Order::Field { max, .. } => return self.field(doc, *max),
            Order::Distance { from, unit, .. } => (*from, *unit),
        };
        let mut nearest: Option<f64> = None;
        self.places.each_integer(doc, |code| {
            let distance = geo::distance(from, geo::decode(code as u64)) / unit;
            nearest = Some(nearest.map_or(distance, |nearest| nearest.min(distance)));
        });
        Ok(nearest.map_or(SortValue::Missing, SortValue::Number))
    }

    fn field(&self, doc: u32, max: bool) -> Result<SortValue> {
        fn better<T: PartialOrd>(best: &mut Option<T>, value: T, max: bool) {
            if best.as_ref().is_none_or(|best| if max { value > *best } else { value < *best }) {
                *best = Some(value);
            }
        }
        let mut number = None;
        self.numbers.each(doc, |value| better(&mut number, value, max));
        if let Some(number) = number {
            return Ok(SortValue::Number(number));
        }
        let mut date = None;
        self.dates.each_integer(doc, |value| better(&mut date, value, max));
        if let Some(date) = date {
            return Ok(SortValue::Date(date));
        }
        if let Some(values) = &self.texts {
            if values.is_long(doc) {
                let ends = self.ends(values)?.get(&doc);
                let end = ends.map(|(first, last)| if max { last } else { first });
                return Ok(end.map_or(SortValue::Missing, |term| SortValue::Text(term.to_string())));
            }
            let mut ordinal = None;
            for value in values.ordinals(doc) {
                better(&mut ordinal, value, max);
            }
            if let Some(ordinal) = ordinal {
                return Ok(SortValue::Text(values.term(ordinal)?));
            }
        }
        Ok(SortValue::Missing)
    }

    /// Returns the first and the last term of each document with many terms, which the dictionary contains in order.
    fn ends(&self, values: &Values) -> Result<&Ends> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let Order::Field { path, .. } = &self.key.order else {
            return Err(Error::internal("only fields have terms"));
        };
        let mut terms = Vec::new();
        self.segment.each_term(path, "", |term, info| {
            terms.push((Rc::<str>::from(term), info.clone()));
            true
        })?;
        let mut ends: BTreeMap<u32, (Rc<str>, Rc<str>)> = BTreeMap::new();
        for (term, info) in terms {
            let mut postings = self.segment.postings(path, &info, false)?;
            while postings.doc() != END {
                if values.is_long(postings.doc()) {
                    let first = || (Rc::clone(&term), Rc::clone(&term));
                    ends.entry(postings.doc()).or_insert_with(first).1 = Rc::clone(&term);
                }
                postings.advance();
            }
        }
        Ok(self.ends.get_or_init(|| ends))
    }
}
