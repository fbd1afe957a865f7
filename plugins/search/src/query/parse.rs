//! Parses queries in JSON.

use super::{Fuzziness, Leaf, Query, Range, Relation, string};
use crate::error::{Error, Result};
use crate::geo::{self, Distance, Polygon, Shape};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Maximum fuzziness.
pub const FUZZINESS_MAX: u8 = 2;

type Members = Map<String, Value>;

impl Query {
    /// Parses a query: an object. `null` and an empty object match no document.
    ///
    /// # Errors
    /// The JSON is not a query, or has invalid parameters.
    pub fn parse(value: &Value) -> Result<Query> {
        let members = match value {
            Value::Null => return Ok(Query::None),
            Value::Object(members) if members.is_empty() => return Ok(Query::None),
            Value::Object(members) => members,
            other => return Err(unmarshal(kind(other), "query.Query")),
        };
        let has = |key: &str| members.contains_key(key);
        let boost = boost(members)?;
        if has("fuzziness") && !has("match") && !has("match_phrase") && !has("terms") {
            return fuzzy(members, boost);
        }
        if has("match") || has("match_phrase") {
            return matching(members, boost);
        }
        if has("terms") {
            let terms = phrase(&members["terms"])?;
            return leaf(members, boost, Leaf::Phrase { terms, fuzziness: fuzziness(members, 0)? });
        }
        if has("term") {
            return leaf(members, boost, Leaf::Term(required(members, "term")?));
        }
        if has("must") || has("should") || has("must_not") || has("filter") {
            return boolean(members, boost);
        }
        if has("conjuncts") {
            return Ok(Query::Conjunction { parts: list(members, "conjuncts")?, boost });
        }
        if has("disjuncts") {
            return disjunction(members, boost);
        }
        if has("query") {
            return string::parse(&required(members, "query")?, boost);
        }
        if has("min") || has("max") {
            return range(members, boost);
        }
        if has("start") || has("end") {
            let bound = |key: &str| optional(members, key);
            let range = Range {
                min: bound("start")?.filter(|text| !text.is_empty()),
                max: bound("end")?.filter(|text| !text.is_empty()),
                inclusive_min: flag(members, "inclusive_start", true)?,
                inclusive_max: flag(members, "inclusive_end", false)?,
            };
            if range.min.is_none() && range.max.is_none() {
                return Err(Error::request("must specify start or end"));
            }
            let parser = optional(members, "datetime_parser")?.filter(|name| !name.is_empty());
            return leaf(members, boost, Leaf::Dates { range, parser });
        }
        single(members, boost)
    }
}

/// Parses the kinds of query that one member identifies.
fn single(members: &Members, boost: f32) -> Result<Query> {
    let has = |key: &str| members.contains_key(key);
    if has("prefix") {
        return leaf(members, boost, Leaf::Prefix(required(members, "prefix")?));
    }
    if has("regexp") {
        return leaf(members, boost, Leaf::Regexp(required(members, "regexp")?));
    }
    if has("wildcard") {
        return leaf(members, boost, Leaf::Wildcard(required(members, "wildcard")?));
    }
    if has("match_all") {
        return Ok(Query::All { boost });
    }
    if has("match_none") {
        return Ok(Query::None);
    }
    if has("ids") {
        let ids = members["ids"].as_array();
        let ids: Option<_> =
            ids.and_then(|ids| ids.iter().map(|id| id.as_str().map(str::to_owned)).collect());
        let ids =
            ids.ok_or_else(|| unmarshal(kind(&members["ids"]), "DocIDQuery.ids of type []string"))?;
        return Ok(Query::Ids { ids, boost });
    }
    if has("bool") {
        let Some(flag) = members["bool"].as_bool() else {
            return Err(unmarshal(kind(&members["bool"]), "BoolFieldQuery.bool of type bool"));
        };
        return leaf(members, boost, Leaf::Boolean(flag));
    }
    if has("top_left") && has("bottom_right") {
        let corner = |key: &str| {
            geo::parse_point(&members[key])
                .ok_or_else(|| Error::request(format!("geo box {key} not in a valid format")))
        };
        let ((west, north), (east, south)) = (corner("top_left")?, corner("bottom_right")?);
        if north < south {
            return Err(Error::request(
                "bottom right latitude must be less than or equal to top left latitude",
            ));
        }
        return leaf(members, boost, Leaf::Box { west, north, east, south });
    }
    if has("location") || has("distance") {
        let (lon, lat) = members
            .get("location")
            .and_then(geo::parse_point)
            .ok_or_else(|| Error::request("geo location not in a valid format"))?;
        let metres = geo::parse_distance(&required(members, "distance")?)?;
        return leaf(members, boost, Leaf::Near(Distance { lon, lat, metres }));
    }
    if has("polygon_points") {
        let points = members["polygon_points"].as_array();
        let points: Option<Vec<_>> =
            points.and_then(|points| points.iter().map(geo::parse_point).collect());
        let points =
            points.ok_or_else(|| Error::request("geo polygon point not in a valid format"))?;
        if points.len() < 3 {
            return Err(Error::request("Too few points specified for the polygon boundary"));
        }
        return leaf(members, boost, Leaf::Polygon(Polygon::new(points)));
    }
    if has("geometry") {
        let geometry = &members["geometry"];
        let relation = match geometry["relation"].as_str().unwrap_or_default() {
            "" | "intersects" => Relation::Intersects,
            "contains" => Relation::Contains,
            "within" => Relation::Within,
            "disjoint" => Relation::Disjoint,
            other => return Err(Error::request(format!("unknown relation: {other}"))),
        };
        let shape = Shape::parse(&geometry["shape"])?;
        return leaf(members, boost, Leaf::Shape(Box::new(shape), relation));
    }
    if has("cidr") {
        let text = required(members, "cidr")?;
        let Some((from, to)) = network(&text) else {
            return Err(Error::request(format!(
                "ip range \"{text}\" is not a valid CIDR or address"
            )));
        };
        return leaf(members, boost, Leaf::Addresses(from, to));
    }
    if has("custom_filter") || has("custom_score") {
        return Err(Error::request("custom queries are not supported"));
    }
    Err(Error::request("unknown query type"))
}

fn fuzzy(members: &Members, boost: f32) -> Result<Query> {
    let term = required(members, "term")?;
    let (prefix, fuzziness) = (prefix_length(members)?, fuzziness(members, 1)?);
    leaf(members, boost, Leaf::Fuzzy { term, prefix, fuzziness })
}

fn matching(members: &Members, boost: f32) -> Result<Query> {
    let analyzer = optional(members, "analyzer")?.filter(|name| !name.is_empty());
    let fuzziness = fuzziness(members, 0)?;
    if members.contains_key("match") {
        let text = required(members, "match")?;
        let all = match members.get("operator") {
            None | Some(Value::Null) => false,
            Some(Value::String(name)) if name == "or" => false,
            Some(Value::String(name)) if name == "and" => true,
            Some(Value::String(name)) => {
                return Err(Error::request(format!(
                    "cannot unmarshal match operator '{name}' from JSON"
                )));
            }
            Some(other) => {
                return Err(unmarshal(kind(other), "MatchQuery.operator of type string"));
            }
        };
        let prefix = prefix_length(members)?;
        return leaf(members, boost, Leaf::Match { text, analyzer, prefix, fuzziness, all });
    }
    let text = required(members, "match_phrase")?;
    leaf(members, boost, Leaf::MatchPhrase { text, analyzer, fuzziness })
}

fn phrase(value: &Value) -> Result<Vec<Vec<String>>> {
    let wrong = || unmarshal(kind(value), "PhraseQuery.terms of type []string");
    let terms = value.as_array().ok_or_else(wrong)?;
    if terms.is_empty() {
        return Err(Error::request("phrase query must contain at least one term"));
    }
    terms
        .iter()
        .map(|slot| match slot {
            Value::String(term) => Ok(vec![term.clone()]),
            Value::Array(terms) => terms
                .iter()
                .map(|term| term.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect(),
            _ => Err(wrong()),
        })
        .collect()
}

fn boolean(members: &Members, boost: f32) -> Result<Query> {
    let clause = |key: &str| match members.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => Query::parse(value).map(|query| Some(Box::new(query))),
    };
    let (must, should, must_not) = (clause("must")?, clause("should")?, clause("must_not")?);
    if must.as_deref().is_some_and(|query| !matches!(query, Query::Conjunction { .. })) {
        return Err(Error::request("must clause must be conjunction"));
    }
    let is_disjunction = |query: &Option<Box<Query>>| {
        query.as_deref().is_none_or(|query| matches!(query, Query::Disjunction { .. }))
    };
    if !is_disjunction(&should) {
        return Err(Error::request("should clause must be disjunction"));
    }
    if !is_disjunction(&must_not) {
        return Err(Error::request("must not clause must be disjunction"));
    }
    let filter = clause("filter")?;
    let is_empty = |query: &Option<Box<Query>>| match query.as_deref() {
        None => true,
        Some(Query::Conjunction { parts, .. } | Query::Disjunction { parts, .. }) => {
            parts.is_empty()
        }
        Some(_) => false,
    };
    if is_empty(&must) && is_empty(&should) && is_empty(&must_not) && filter.is_none() {
        return Err(Error::request(
            "boolean query must contain at least one must or should or not must clause",
        ));
    }
    let drop_empty = |query: Option<Box<Query>>| if is_empty(&query) { None } else { query };
    Ok(Query::Boolean {
        must: drop_empty(must),
        should: drop_empty(should),
        must_not: drop_empty(must_not),
        filter,
        boost,
    })
}

fn disjunction(members: &Members, boost: f32) -> Result<Query> {
    let parts = list(members, "disjuncts")?;
    let min = match members.get("min") {
        None | Some(Value::Null) => 0.0,
        Some(value) => value
            .as_f64()
            .ok_or_else(|| unmarshal(kind(value), "DisjunctionQuery.min of type float64"))?,
    };
    if min > parts.len() as f64 && !parts.is_empty() {
        return Err(Error::request(
            "disjunction query has fewer than the minimum number of clauses to satisfy",
        ));
    }
    Ok(Query::Disjunction { parts, min: min.max(0.0) as usize, boost, lenient: false })
}

fn range(members: &Members, boost: f32) -> Result<Query> {
    let bound = |key: &str| members.get(key).filter(|value| !value.is_null());
    let (min, max) = (bound("min"), bound("max"));
    let inclusive_min = flag(members, "inclusive_min", true)?;
    let inclusive_max = flag(members, "inclusive_max", false)?;
    if min.is_none() && max.is_none() {
        return Err(Error::request("numeric range query must specify min or max"));
    }
    if min.is_some_and(Value::is_string) || max.is_some_and(Value::is_string) {
        let text = |bound: Option<&Value>| match bound {
            None => Ok(None),
            Some(Value::String(text)) => Ok((!text.is_empty()).then(|| text.clone())),
            Some(other) => Err(unmarshal(kind(other), "TermRangeQuery.min of type string")),
        };
        let range = Range { min: text(min)?, max: text(max)?, inclusive_min, inclusive_max };
        if range.min.is_none() && range.max.is_none() {
            return Err(Error::request("term range query must specify min or max"));
        }
        return leaf(members, boost, Leaf::Terms(range));
    }
    let number = |bound: Option<&Value>| match bound {
        None => Ok(None),
        Some(value) => value
            .as_f64()
            .map(Some)
            .ok_or_else(|| unmarshal(kind(value), "NumericRangeQuery.min of type float64")),
    };
    let range = Range { min: number(min)?, max: number(max)?, inclusive_min, inclusive_max };
    leaf(members, boost, Leaf::Numbers(range))
}

fn leaf(members: &Members, boost: f32, leaf: Leaf) -> Result<Query> {
    let field = optional(members, "field")?.filter(|field| !field.is_empty());
    Ok(Query::Leaf { field, leaf, boost })
}

fn list(members: &Members, key: &str) -> Result<Vec<Query>> {
    match &members[key] {
        Value::Null => Ok(Vec::new()),
        Value::Array(parts) => parts.iter().map(Query::parse).collect(),
        other => Err(unmarshal(kind(other), &format!("{key} of type []json.RawMessage"))),
    }
}

fn boost(members: &Members) -> Result<f32> {
    match members.get("boost") {
        None | Some(Value::Null) => Ok(1.0),
        Some(value) => match value.as_f64() {
            Some(boost) => Ok(boost as f32),
            None => Err(unmarshal(kind(value), "boost of type query.Boost")),
        },
    }
}

fn fuzziness(members: &Members, default: u8) -> Result<Fuzziness> {
    match members.get("fuzziness") {
        None | Some(Value::Null) => Ok(Fuzziness::Exact(default)),
        Some(Value::String(text)) if text == "auto" => Ok(Fuzziness::Auto),
        Some(value) => {
            let count = value
                .as_f64()
                .filter(|count| count.fract() == 0.0)
                .ok_or_else(|| unmarshal(kind(value), "fuzziness of type int"))?;
            if count > f64::from(FUZZINESS_MAX) {
                return Err(Error::request(format!("fuzziness exceeds max ({FUZZINESS_MAX})")));
            }
            if count < 0.0 {
                return Err(Error::request("invalid fuzziness, negative"));
            }
            Ok(Fuzziness::Exact(count as u8))
        }
    }
}

fn prefix_length(members: &Members) -> Result<usize> {
    match members.get("prefix_length") {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value
            .as_f64()
            .map(|count| count.max(0.0) as usize)
            .ok_or_else(|| unmarshal(kind(value), "prefix_length of type int")),
    }
}

fn required(members: &Members, key: &str) -> Result<String> {
    match members.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        None | Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(unmarshal(kind(other), &format!("{key} of type string"))),
    }
}

fn optional(members: &Members, key: &str) -> Result<Option<String>> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(unmarshal(kind(other), &format!("{key} of type string"))),
    }
}

fn flag(members: &Members, key: &str, default: bool) -> Result<bool> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => {
            value.as_bool().ok_or_else(|| unmarshal(kind(value), &format!("{key} of type bool")))
        }
    }
}

/// Returns the name of a value's type, in the words of the vendor's parser.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the error for a value of the wrong type, in the words of the vendor's parser.
pub fn unmarshal(kind: &str, wanted: &str) -> Error {
    Error::request(format!("json: cannot unmarshal {kind} into Go value of type {wanted}"))
}

/// Parses an IP address. An IPv4 address is mapped into IPv6.
#[must_use]
pub fn parse_address(text: &str) -> Option<u128> {
    Some(match text.parse().ok()? {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    })
}

/// Parses a network, and returns its first and last address. A single address is a network too.
fn network(text: &str) -> Option<(u128, u128)> {
    let Some((address, length)) = text.split_once('/') else {
        return parse_address(text).map(|address| (address, address));
    };
    let bits = if address.contains(':') { 128 } else { 32 };
    let length: u32 = length.parse().ok().filter(|length| *length <= bits)?;
    let address = parse_address(address)?;
    let host = u128::MAX.checked_shr(128 - bits + length).filter(|_| length < bits).unwrap_or(0);
    let host = if bits == 32 { host & 0xFFFF_FFFF } else { host };
    Some((address & !host, address | host))
}
