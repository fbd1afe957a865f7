//! Facets: number of hits by term, number range or date range; histograms and statistics.

use super::histogram::{Buckets, Histogram, Stats, check_buckets};
use crate::error::{Error, Result};
use crate::index::{END, Numbers, Segment, Values};
use nacre_text::{DateParser, format_rfc3339};
use regex_automata::meta::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use tantivy::{BitSet, DocSet};

/// A requested facet.
#[derive(Clone, Debug)]
pub struct FacetRequest {
    field: String,
    size: usize,
    prefix: String,
    pattern: Option<Regex>,
    numbers: Vec<(String, Option<f64>, Option<f64>)>,
    dates: Vec<DateRange>,
    histogram: Option<Histogram>,
    stats: bool,
}

#[derive(Clone, Debug)]
struct DateRange {
    name: String,
    start: Option<String>,
    end: Option<String>,
    parser: Option<String>,
}

/// The counts of a facet in one partition or in several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facet {
    total: u64,
    missing: u64,
    counts: BTreeMap<String, u64>,
    #[serde(default)]
    buckets: Buckets,
    #[serde(default)]
    stats: Stats,
}

impl FacetRequest {
    /// Parses a facet.
    ///
    /// # Errors
    /// The facet has ranges of both kinds, has a name twice, or has a member of the wrong type.
    pub fn parse(value: &Value) -> Result<FacetRequest> {
        let size = value["size"].as_f64().unwrap_or(0.0);
        let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
        let mut names = BTreeSet::new();
        let mut name = |range: &Value, what: &str| -> Result<String> {
            let name = range["name"].as_str().unwrap_or_default().to_owned();
            if !names.insert(name.clone()) {
                return Err(Error::request(format!(
                    "{what} ranges contains duplicate name '{name}'"
                )));
            }
            Ok(name)
        };
        let mut numbers = Vec::new();
        for range in list("numeric_ranges") {
            let (min, max) = (range["min"].as_f64(), range["max"].as_f64());
            if min.is_none() && max.is_none() {
                return Err(Error::request(format!(
                    "numeric range query must specify either min, max or both for range name '{}'",
                    range["name"].as_str().unwrap_or_default()
                )));
            }
            numbers.push((name(&range, "numeric")?, min, max));
        }
        let mut dates = Vec::new();
        for range in list("date_ranges") {
            let text =
                |key: &str| range[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let (start, end, parser) = (text("start"), text("end"), text("datetime_parser"));
            if start.is_none() && end.is_none() {
                return Err(Error::request(format!(
                    "date range query must specify either start, end or both for range name '{}'",
                    range["name"].as_str().unwrap_or_default()
                )));
            }
            dates.push(DateRange { name: name(&range, "date")?, start, end, parser });
        }
        if !numbers.is_empty() && !dates.is_empty() {
            return Err(Error::request(
                "facet can only contain numeric ranges or date ranges, not both",
            ));
        }
        let histogram = Histogram::parse(value)?;
        if histogram.is_some() && !(numbers.is_empty() && dates.is_empty()) {
            return Err(Error::request("facet can only contain ranges or a histogram, not both"));
        }
        let stats = match &value["stats"] {
            Value::Null => false,
            Value::Bool(flag) => *flag,
            _ => return Err(Error::request("facet stats must be true or false")),
        };
        let pattern = match value["term_pattern"].as_str().unwrap_or_default() {
            "" => None,
            pattern => Some(Regex::new(pattern).map_err(|error| {
                Error::request(format!("invalid term pattern: {pattern}: {error}"))
            })?),
        };
        Ok(FacetRequest {
            field: value["field"].as_str().unwrap_or_default().to_owned(),
            size: if size > 0.0 { size as usize } else { 0 },
            prefix: value["term_prefix"].as_str().unwrap_or_default().to_owned(),
            pattern,
            numbers,
            dates,
            histogram,
            stats,
        })
    }

    fn takes(&self, term: &str) -> bool {
        term.starts_with(&*self.prefix)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(term))
    }

    /// Returns the result of a facet: `field`, `total`, `missing`, `other` and a list.
    pub fn answer(&self, facet: &Facet) -> Value {
        let mut counts: Vec<(&String, &u64)> =
            facet.counts.iter().filter(|(_, n)| **n > 0).collect();
        counts.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
        counts.truncate(self.size);
        let listed: u64 = counts.iter().map(|(_, count)| **count).sum();
        let mut answer = Map::new();
        answer.insert("field".into(), self.field.clone().into());
        answer.insert("total".into(), facet.total.into());
        answer.insert("missing".into(), facet.missing.into());
        let other = if self.histogram.is_some() { 0 } else { facet.total - listed };
        answer.insert("other".into(), other.into());
        if self.stats {
            answer.insert("stats".into(), facet.stats.answer());
        }
        if let Some(histogram) = self.histogram.filter(|_| !facet.buckets.is_empty()) {
            answer.insert(histogram.key().into(), histogram.rows(&facet.buckets).into());
        }
        if counts.is_empty() {
            return Value::Object(answer);
        }
        let (key, rows): (&str, Vec<Value>) = if !self.numbers.is_empty() {
            (
                "numeric_ranges",
                counts.iter().map(|(name, count)| self.number_row(name, **count)).collect(),
            )
        } else if !self.dates.is_empty() {
            (
                "date_ranges",
                counts.iter().map(|(name, count)| self.date_row(name, **count)).collect(),
            )
        } else {
            let row =
                |(term, count): &(&String, &u64)| serde_json::json!({"term": term, "count": count});
            ("terms", counts.iter().map(row).collect())
        };
        answer.insert(key.into(), rows.into());
        Value::Object(answer)
    }

    fn number_row(&self, name: &str, count: u64) -> Value {
        let mut row = Map::from_iter([("name".to_owned(), Value::from(name))]);
        if let Some((_, min, max)) = self.numbers.iter().find(|(other, _, _)| other == name) {
            row.extend(min.map(|min| ("min".to_owned(), number(min))));
            row.extend(max.map(|max| ("max".to_owned(), number(max))));
        }
        row.insert("count".into(), count.into());
        Value::Object(row)
    }

    fn date_row(&self, name: &str, count: u64) -> Value {
        let mut row = Map::from_iter([("name".to_owned(), Value::from(name))]);
        if let Some(range) = self.dates.iter().find(|range| range.name == name) {
            // The bound was parsed before, so it is valid.
            let parser = DateParser::optional();
            let text = |bound: &Option<String>| {
                let bound = bound.as_ref()?;
                Some(parser.parse(bound).map_or_else(|| bound.clone(), format_rfc3339))
            };
            row.extend(text(&range.start).map(|start| ("start".to_owned(), start.into())));
            row.extend(text(&range.end).map(|end| ("end".to_owned(), end.into())));
        }
        row.insert("count".into(), count.into());
        Value::Object(row)
    }
}

/// Returns a number as JSON, without a decimal point if it is whole.
pub fn number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

impl Facet {
    fn count(&mut self, name: &str) {
        self.total += 1;
        match self.counts.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(name.to_owned(), 1)),
        }
    }

    fn count_in(&mut self, bucket: Option<i64>) {
        self.total += 1;
        if let Some(at) = bucket {
            *self.buckets.entry(at).or_default() += 1;
        }
    }

    /// Refuses a histogram with too many buckets.
    ///
    /// # Errors
    /// There are too many buckets.
    pub fn check(&self, request: &FacetRequest) -> Result<()> {
        check_buckets(&request.field, &self.buckets)
    }

    /// Adds the counts of another partition.
    pub fn merge(&mut self, other: Facet) {
        self.total += other.total;
        self.missing += other.missing;
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        for (at, count) in other.buckets {
            *self.buckets.entry(at).or_default() += count;
        }
        self.stats.merge(&other.stats);
    }
}

/// A date range in nanoseconds: its name, its start, and its excluded end.
type Span = (String, i64, i64);

/// Counts the hits in a segment.
pub struct Counter<'a> {
    request: &'a FacetRequest,
    spans: Vec<Span>,
    column: Source,
    /// The numbers for the statistics, unless `column` contains them.
    stats: Option<Numbers>,
    ordinals: BTreeMap<u64, u64>,
    facet: Facet,
    /// Hits whose terms only the dictionary contains, and their number.
    hits: Option<BitSet>,
    taken: u64,
    max_doc: u32,
}

enum Source {
    Numbers(Numbers),
    Dates(Numbers),
    Texts(Values),
    /// The dictionary, read once all hits are known.
    Dictionary,
}

impl<'a> Counter<'a> {
    /// Creates a counter for a segment. `date_parser` finds date parsers.
    ///
    /// # Errors
    /// A bound is not a date, or a file is corrupt.
    pub fn new(
        request: &'a FacetRequest,
        segment: &Segment,
        date_parser: impl Fn(Option<&str>) -> Result<std::sync::Arc<DateParser>>,
    ) -> Result<Counter<'a>> {
        let mut spans = Vec::new();
        for range in &request.dates {
            let parser = date_parser(range.parser.as_deref())?;
            let parse = |bound: &Option<String>, default: i64| {
                match bound {
                None => Ok(default),
                Some(text) => parser.parse(text).ok_or_else(|| {
                    Error::request(format!(
                        "ParseDates err: unable to parse datetime with any of the layouts, name: {}, value: {text}",
                        range.name
                    ))
                }),
            }
            };
            let (start, end) = (parse(&range.start, i64::MIN)?, parse(&range.end, i64::MAX)?);
            spans.push((range.name.clone(), start, end));
        }
        let has_numbers = request.histogram.is_some() || !request.numbers.is_empty();
        // A facet that only asks for statistics needs no terms.
        let is_stats = request.stats && request.dates.is_empty() && request.size == 0;
        let is_dates = matches!(request.histogram, Some(Histogram::Dates(_)));
        let column = if (has_numbers || is_stats) && !is_dates {
            Source::Numbers(segment.numbers(&request.field)?)
        } else if is_dates || !request.dates.is_empty() {
            Source::Dates(segment.dates(&request.field)?)
        } else {
            segment.values(&request.field)?.map_or(Source::Dictionary, Source::Texts)
        };
        let stats = request.stats.then(|| segment.numbers(&request.field)).transpose()?;
        Ok(Counter {
            request,
            spans,
            column,
            stats,
            ordinals: BTreeMap::new(),
            facet: Facet::default(),
            hits: None,
            taken: 0,
            max_doc: segment.max_doc(),
        })
    }

    /// Counts a hit.
    pub fn take(&mut self, doc: u32) {
        let mut any = false;
        let (request, facet) = (self.request, &mut self.facet);
        if let Some(numbers) = &self.stats {
            numbers.each(doc, |number| facet.stats.add(number));
        }
        match &self.column {
            Source::Numbers(column) => column.each(doc, |number| {
                any = true;
                if let Some(histogram) = request.histogram {
                    facet.count_in(histogram.of_number(number));
                } else if request.numbers.is_empty() {
                    facet.total += 1;
                }
                for (name, min, max) in &request.numbers {
                    if min.is_none_or(|min| number >= min) && max.is_none_or(|max| number < max) {
                        facet.count(name);
                    }
                }
            }),
            Source::Dates(column) => column.each_integer(doc, |nanos| {
                any = true;
                if let Some(histogram) = request.histogram {
                    facet.count_in(histogram.of_date(nanos));
                }
                for (name, start, end) in &self.spans {
                    if nanos >= *start && (nanos < *end || *end == i64::MAX) {
                        facet.count(name);
                    }
                }
            }),
            Source::Texts(values) if !values.is_long(doc) => {
                for ordinal in values.ordinals(doc) {
                    any = true;
                    *self.ordinals.entry(ordinal).or_default() += 1;
                }
            }
            Source::Texts(_) | Source::Dictionary => {
                let max = self.max_doc.max(1);
                self.hits.get_or_insert_with(|| BitSet::with_max_value(max)).insert(doc);
                self.taken += 1;
                return;
            }
        }
        self.facet.missing += u64::from(!any);
    }

    /// Returns the counts.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn finish(mut self, segment: &Segment) -> Result<Facet> {
        match &self.column {
            Source::Numbers(_) | Source::Dates(_) => {}
            Source::Texts(values) => {
                for (ordinal, count) in &self.ordinals {
                    let term = values.term(*ordinal)?;
                    if self.request.takes(&term) {
                        self.facet.total += count;
                        self.facet.counts.insert(term, *count);
                    }
                }
                self.count_by_terms(segment)?;
            }
            Source::Dictionary => self.count_by_terms(segment)?,
        }
        self.facet.check(self.request)?;
        Ok(self.facet)
    }

    /// Counts the hits whose terms the column does not store, by comparing the documents of each term with the hits.
    fn count_by_terms(&mut self, segment: &Segment) -> Result<()> {
        let Some(hits) = &self.hits else { return Ok(()) };
        let mut terms = Vec::new();
        segment.each_term(&self.request.field, "", |term, info| {
            terms.push((term.to_owned(), info.clone()));
            true
        })?;
        let mut present = BitSet::with_max_value(segment.max_doc().max(1));
        for (term, info) in terms {
            let mut postings = segment.postings(&self.request.field, &info, false)?;
            let mut count = 0;
            while postings.doc() != END {
                if hits.contains(postings.doc()) {
                    count += 1;
                    present.insert(postings.doc());
                }
                postings.advance();
            }
            if count > 0 && self.request.takes(&term) {
                self.facet.total += count;
                *self.facet.counts.entry(term).or_default() += count;
            }
        }
        self.facet.missing += self.taken - present.len() as u64;
        Ok(())
    }
}
