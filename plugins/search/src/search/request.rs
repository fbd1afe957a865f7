//! Parses search requests in JSON.

use super::facet::FacetRequest;
use super::knn::KnnRequest;
use super::sort::SortKey;
use super::suggest::SuggestRequest;
use crate::error::{Error, Result};
use crate::query::Query;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Maximum of `from` plus `size`, unless the node sets another limit.
pub const RESULT_WINDOW: u64 = 10_000;

/// Maximum number of suggestions in a request.
const SUGGESTIONS_MAX: usize = 16;

/// Style and fields of highlights.
#[derive(Clone, Debug)]
pub struct Highlight {
    /// True for the escape codes of terminals instead of HTML tags.
    pub ansi: bool,
    /// The fields; if empty, all matching fields.
    pub fields: Vec<String>,
}

/// A search request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Query for the hits.
    pub query: Query,
    /// Number of hits to return.
    pub size: usize,
    /// Number of hits to skip first.
    pub from: usize,
    /// The fields to return with each hit; `*` means all.
    pub fields: Vec<String>,
    /// Highlighting, if requested.
    pub highlight: Option<Highlight>,
    /// Facets by name.
    pub facets: BTreeMap<String, FacetRequest>,
    /// Suggestions by name.
    pub suggest: BTreeMap<String, SuggestRequest>,
    /// The sort order.
    pub sort: Vec<SortKey>,
    /// True if hits explain their scores.
    pub explain: bool,
    /// True if hits contain the positions of terms.
    pub locations: bool,
    /// True if hits have scores.
    pub scored: bool,
    /// Vectors whose nearest neighbours are hits too.
    pub(crate) knn: Vec<KnnRequest>,
    /// True if a hit must be a neighbour of every vector, and match the query.
    pub(crate) knn_all: bool,
    /// How the rankings by text and by vectors are combined.
    pub(crate) fusion: Option<Fusion>,
    /// Restricts the hits to those after or before a position in the sort order.
    pub cursor: Option<Cursor>,
    /// Restricts the hits to these collections; empty for all.
    pub collections: Vec<String>,
    /// Restricts the hits to these vBuckets; `None` for all. While vBuckets move, each vBucket must be visible on one node
    /// only.
    pub vbuckets: Option<Vec<RangeInclusive<u16>>>,
    /// Timeout in milliseconds; 0 for none.
    pub timeout: u64,
    /// True if fields without a mapping are refused.
    pub validate: bool,
    /// The request as text, which the response repeats.
    pub(crate) text: Value,
}

/// How several lists of hits are combined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fusion {
    /// True to combine ranks, false to combine scores.
    pub reciprocal: bool,
    /// Number of hits of each list that count.
    pub window: usize,
    /// Constant that is added to a rank.
    pub constant: f32,
}

/// A position in the sort order.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// The sort values, as in the member `sort` of a hit.
    pub keys: Vec<String>,
    /// True for hits before the position, false for hits after it.
    pub before: bool,
}

impl Request {
    /// Parses a request.
    ///
    /// # Errors
    /// The text is not JSON, a member has the wrong type, the query is invalid, or a limit is exceeded.
    pub fn parse(body: &[u8]) -> Result<Request> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| Error::request(format!("parsing searchRequest, err: {error}")))?;
        Request::from_value(value, RESULT_WINDOW)
    }

    /// Like [`Request::parse`], with another limit for `from` plus `size`.
    ///
    /// # Errors
    /// As for [`Request::parse`].
    pub fn from_value(value: Value, window: u64) -> Result<Request> {
        if !value.is_object() {
            return Err(Error::request(
                "parsing searchRequest, err: the request must be an object",
            ));
        }
        let alias = |name: &str, other: &str| match &value[name] {
            Value::Null => value[other].clone(),
            found => found.clone(),
        };
        let size = whole(&alias("size", "limit"), "size")?.unwrap_or(10);
        let from = whole(&alias("from", "offset"), "from")?.unwrap_or(0);
        let size = if size < 0 { 10 } else { size as u64 };
        let from = if from < 0 { 0 } else { from as u64 };
        if from.saturating_add(size) > window {
            return Err(Error::request(format!(
                "bleveMaxResultWindow exceeded, from: {from}, size: {size}, bleveMaxResultWindow: {window}"
            )));
        }
        let query = Query::parse(&value["query"])?;
        let knn = value["knn"].as_array().map(Vec::as_slice).unwrap_or_default();
        let knn = knn.iter().map(KnnRequest::parse).collect::<Result<Vec<_>>>()?;
        let knn_all = match value["knn_operator"].as_str().unwrap_or_default() {
            "" | "or" => false,
            "and" => true,
            _ => return Err(Error::request("knn_operator must be either 'and' / 'or'")),
        };
        let scored = match value["score"].as_str().unwrap_or_default() {
            "" => true,
            "none" => false,
            "rrf" | "rsf" => true,
            other => return Err(Error::request(format!("unknown score mode: {other}"))),
        };
        let sort = match &value["sort"] {
            Value::Null => vec![SortKey::parse(&Value::from("-_score"))?],
            Value::Array(keys) if keys.is_empty() => vec![SortKey::parse(&Value::from("-_score"))?],
            Value::Array(keys) => keys.iter().map(SortKey::parse).collect::<Result<_>>()?,
            _ => return Err(Error::request("sort must be an array")),
        };
        let cursor = cursor(&value, &sort, from)?;
        let mut facets = BTreeMap::new();
        if let Some(members) = value["facets"].as_object() {
            for (name, facet) in members {
                facets.insert(name.clone(), FacetRequest::parse(facet)?);
            }
        }
        let mut suggest = BTreeMap::new();
        if let Some(members) = value["suggest"].as_object() {
            if members.len() > SUGGESTIONS_MAX {
                return Err(Error::request(format!(
                    "suggest: there are more than {SUGGESTIONS_MAX} of them"
                )));
            }
            for (name, one) in members {
                suggest.insert(name.clone(), SuggestRequest::parse(one)?);
            }
        }
        let ctl = &value["ctl"];
        if ctl["consistency"]["level"] == "scan_plus" && ctl["consistency"]["vectors"].is_object() {
            return Err(Error::request("scan_plus consistency does not take vectors"));
        }
        let flag = |name: &str| value[name].as_bool().unwrap_or(false);
        Ok(Request {
            query,
            size: size as usize,
            from: from as usize,
            fields: strings(&value["fields"], "fields")?,
            highlight: highlight(&value["highlight"])?,
            facets,
            suggest,
            sort,
            explain: flag("explain"),
            locations: flag("includeLocations"),
            scored,
            knn,
            knn_all,
            fusion: fusion(&value, size)?,
            cursor,
            collections: strings(&value["collections"], "collections")?,
            vbuckets: None,
            timeout: ctl["timeout"].as_u64().unwrap_or(10_000),
            validate: ctl["validate"].as_bool().unwrap_or(false),
            text: value,
        })
    }

    /// Returns true if documents of the vBucket are visible.
    pub(crate) fn sees(&self, vb: Option<u64>) -> bool {
        let vb = vb.and_then(|vb| u16::try_from(vb).ok()).unwrap_or_default();
        self.vbuckets.as_ref().is_none_or(|seen| seen.iter().any(|range| range.contains(&vb)))
    }

    /// Returns true if the request searches for nearest neighbours.
    pub(crate) fn has_vectors(&self) -> bool {
        !self.knn.is_empty()
    }

    /// Returns true if scores are needed, because hits show them or are sorted by them.
    pub(crate) fn needs_scores(&self) -> bool {
        self.scored
    }
}

fn fusion(value: &Value, size: u64) -> Result<Option<Fusion>> {
    let reciprocal = match value["score"].as_str() {
        Some("rrf") => true,
        Some("rsf") => false,
        _ => return Ok(None),
    };
    let params = &value["params"];
    let window = params["score_window_size"].as_u64().unwrap_or(size);
    if window < size {
        return Err(Error::request(format!(
            "score_window_size: {window} must be greater than or equal to size: {size}"
        )));
    }
    let constant = params["score_rank_constant"].as_f64().unwrap_or(60.0) as f32;
    Ok(Some(Fusion { reciprocal, window: window.min(RESULT_WINDOW) as usize, constant }))
}

fn highlight(value: &Value) -> Result<Option<Highlight>> {
    if !value.is_object() {
        return Ok(None);
    }
    let ansi = match value["style"].as_str().unwrap_or("html") {
        "html" | "" => false,
        "ansi" => true,
        other => {
            return Err(Error::request(format!(
                "no highlighter with name or type '{other}' registered"
            )));
        }
    };
    Ok(Some(Highlight { ansi, fields: strings(&value["fields"], "highlight.fields")? }))
}

fn cursor(value: &Value, sort: &[SortKey], from: u64) -> Result<Option<Cursor>> {
    let (after, before) = (&value["search_after"], &value["search_before"]);
    let (keys, is_before) = match (after.is_null(), before.is_null()) {
        (true, true) => return Ok(None),
        (false, false) => {
            return Err(Error::request("cannot use search after and search before together"));
        }
        (false, true) => (strings(after, "search_after")?, false),
        (true, false) => (strings(before, "search_before")?, true),
    };
    let name = if is_before { "search before" } else { "search after" };
    if from != 0 {
        return Err(Error::request(format!("cannot use {name} with from !=0")));
    }
    if keys.len() != sort.len() {
        return Err(Error::request(format!("{name} must have same size as sort order")));
    }
    Ok(Some(Cursor { keys, before: is_before }))
}

fn strings(value: &Value, name: &str) -> Result<Vec<String>> {
    let wrong = || Error::request(format!("{name} must be an array of strings"));
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(all) => {
            all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        _ => Err(wrong()),
    }
}

fn whole(value: &Value, name: &str) -> Result<Option<i64>> {
    match value {
        Value::Null => Ok(None),
        value => match value
            .as_i64()
            .or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
        {
            Some(number) => Ok(Some(number)),
            None => Err(Error::request(format!(
                "json: cannot unmarshal {} into Go struct field SearchRequest.{name} of type int",
                crate::query::kind(value)
            ))),
        },
    }
}
