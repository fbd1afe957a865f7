//! How the type of a document is determined: the member `doc_config` of a definition.

use crate::error::{Error, Result};
use nacre_text::DateParser;
use regex_automata::meta::Regex;
use serde_json::Value;

/// Maximum number of document filters.
const FILTERS_MAX: usize = 100;
/// Maximum depth of nested filters.
const FILTER_DEPTH_MAX: usize = 5;

/// How the type of a document is determined.
#[derive(Clone, Debug)]
enum Mode {
    /// The text in a field.
    Field(String),
    /// The part of the key before a delimiter.
    Prefix(String),
    /// The part of the key that matches a pattern.
    Pattern(Box<Regex>),
    /// The name of the first filter that the document passes.
    Filters(Vec<(i64, String, Filter)>),
    /// Only the collection.
    Collection,
}

#[derive(Clone, Debug)]
enum Filter {
    Term(String, String),
    Bool(String, bool),
    Numbers { field: String, min: Option<f64>, max: Option<f64>, inclusive: (bool, bool) },
    Dates { field: String, start: Option<i64>, end: Option<i64>, inclusive: (bool, bool) },
    All(Vec<Filter>),
    Any(Vec<Filter>, usize),
}

/// How the type of a document is determined.
#[derive(Clone, Debug)]
pub struct DocConfig {
    mode: Mode,
    /// True if types begin with the scope and the collection.
    pub by_collection: bool,
}

impl DocConfig {
    /// Parses the member `doc_config`; `null` means the mode `type_field` with the field `type`.
    ///
    /// # Errors
    /// The mode is unknown, or its parameter is empty or invalid.
    pub fn parse(value: &Value) -> Result<DocConfig> {
        let text = |key: &str| value[key].as_str();
        let whole = text("mode").filter(|mode| !mode.is_empty()).unwrap_or("type_field");
        let (by_collection, mode) = match whole.strip_prefix("scope.collection") {
            Some("") => (true, ""),
            Some(rest) => (true, rest.strip_prefix('.').unwrap_or(rest)),
            None => (false, whole),
        };
        let empty =
            |name: &str| Error::request(format!("with mode {whole}, {name} cannot be empty"));
        let mode = match mode {
            "" if by_collection => Mode::Collection,
            "type_field" => match value.get("type_field").map(|field| field.as_str().unwrap_or(""))
            {
                None => Mode::Field("type".into()),
                Some("") => return Err(empty("type_field")),
                Some(field) => Mode::Field(field.into()),
            },
            "docid_prefix" => match text("docid_prefix_delim").unwrap_or_default() {
                "" => return Err(empty("docid_prefix_delim")),
                delimiter => Mode::Prefix(delimiter.into()),
            },
            "docid_regexp" => match text("docid_regexp").unwrap_or_default() {
                "" => return Err(empty("docid_regexp")),
                pattern => Mode::Pattern(Box::new(Regex::new(pattern).map_err(|error| {
                    Error::request(format!("with mode {whole}, docid_regexp is invalid: {error}"))
                })?)),
            },
            "custom" => Mode::Filters(filters(&value["doc_filter"], &empty("doc_filter"))?),
            _ => return Err(Error::request(format!("unknown mode: {whole}"))),
        };
        Ok(DocConfig { mode, by_collection })
    }

    /// Returns the type of a document without its collection; empty if it has none.
    #[must_use]
    pub fn document_type(&self, id: &str, document: &Value) -> String {
        match &self.mode {
            Mode::Collection => String::new(),
            Mode::Field(field) => {
                lookup(document, field).and_then(Value::as_str).unwrap_or("").into()
            }
            Mode::Prefix(delimiter) => match id.find(&**delimiter) {
                Some(at) if at > 0 => id[..at].into(),
                _ => String::new(),
            },
            Mode::Pattern(pattern) => {
                pattern.find(id).map(|found| id[found.range()].to_owned()).unwrap_or_default()
            }
            Mode::Filters(filters) => filters
                .iter()
                .find(|(_, _, filter)| filter.passes(document))
                .map(|(_, name, _)| name.clone())
                .unwrap_or_default(),
        }
    }
}

/// Returns the value at a dotted path.
fn lookup<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(document, |value, name| value.get(name))
}

fn filters(value: &Value, empty: &Error) -> Result<Vec<(i64, String, Filter)>> {
    let members = value.as_object().filter(|members| !members.is_empty());
    let members = members.ok_or_else(|| empty.clone())?;
    if members.len() > FILTERS_MAX {
        return Err(Error::request(format!("number of doc filters exceeds {FILTERS_MAX}")));
    }
    let mut filters = Vec::new();
    for (name, filter) in members {
        let order = filter["order"].as_i64().filter(|order| *order >= 0);
        let order =
            order.ok_or_else(|| Error::request(format!("doc_filter: invalid order for {name}")))?;
        if filters.iter().any(|(other, _, _)| *other == order) {
            return Err(Error::request(format!("doc_filter: duplicate order: {order}")));
        }
        filters.push((order, name.clone(), Filter::parse(filter, 1)?));
    }
    filters.sort_by_key(|(order, _, _)| *order);
    Ok(filters)
}

impl Filter {
    fn parse(value: &Value, depth: usize) -> Result<Filter> {
        if depth > FILTER_DEPTH_MAX {
            return Err(Error::request(format!("doc_filter: depth exceeds {FILTER_DEPTH_MAX}")));
        }
        let list = |key: &str| -> Result<Option<Vec<Filter>>> {
            let Some(all) = value[key].as_array() else { return Ok(None) };
            all.iter().map(|one| Filter::parse(one, depth + 1)).collect::<Result<_>>().map(Some)
        };
        if let Some(all) = list("conjuncts")? {
            return Ok(Filter::All(all));
        }
        if let Some(any) = list("disjuncts")? {
            let min = value["min"].as_u64().unwrap_or(1);
            return Ok(Filter::Any(any, usize::try_from(min).unwrap_or(usize::MAX)));
        }
        let field = value["field"].as_str().unwrap_or_default().to_owned();
        let inclusive = |low: &str, high: &str| {
            (value[low].as_bool().unwrap_or(true), value[high].as_bool().unwrap_or(false))
        };
        if let Some(term) = value["term"].as_str() {
            return Ok(Filter::Term(field, term.to_owned()));
        }
        if let Some(flag) = value["bool"].as_bool() {
            return Ok(Filter::Bool(field, flag));
        }
        if value["min"].is_number() || value["max"].is_number() {
            let (min, max) = (value["min"].as_f64(), value["max"].as_f64());
            let inclusive = inclusive("inclusive_min", "inclusive_max");
            return Ok(Filter::Numbers { field, min, max, inclusive });
        }
        if value["start"].is_string() || value["end"].is_string() {
            let date =
                |key: &str| value[key].as_str().and_then(|text| DateParser::optional().parse(text));
            let (start, end) = (date("start"), date("end"));
            let inclusive = inclusive("inclusive_start", "inclusive_end");
            return Ok(Filter::Dates { field, start, end, inclusive });
        }
        Err(Error::request("doc_filter: unknown filter type"))
    }

    fn passes(&self, document: &Value) -> bool {
        fn within<T: PartialOrd>(
            value: T,
            low: Option<T>,
            high: Option<T>,
            inclusive: (bool, bool),
        ) -> bool {
            low.is_none_or(|low| value > low || inclusive.0 && value == low)
                && high.is_none_or(|high| value < high || inclusive.1 && value == high)
        }
        let at = |field: &str| lookup(document, field);
        match self {
            Filter::Term(field, term) => at(field).and_then(Value::as_str) == Some(term),
            Filter::Bool(field, flag) => at(field).and_then(Value::as_bool) == Some(*flag),
            Filter::Numbers { field, min, max, inclusive } => at(field)
                .and_then(Value::as_f64)
                .is_some_and(|value| within(value, *min, *max, *inclusive)),
            Filter::Dates { field, start, end, inclusive } => at(field)
                .and_then(Value::as_str)
                .and_then(|text| DateParser::optional().parse(text))
                .is_some_and(|value| within(value, *start, *end, *inclusive)),
            Filter::All(all) => all.iter().all(|one| one.passes(document)),
            Filter::Any(any, min) => any.iter().filter(|one| one.passes(document)).count() >= *min,
        }
    }
}
