//! Flexible indexes: decides whether a search index helps to answer conditions of SQL++, and builds the query for it.
//!
//! The planner sends conditions as a predicate:
//!
//! | predicate | the query |
//! | --- | --- |
//! | `{"field", "eq": TEXT}`, with a number, with a boolean | `term`, a range from the number to itself, `bool` |
//! | `{"field", "prefix": TEXT}` | `prefix` |
//! | `{"field", "min", "max"}` | a range of numbers or terms |
//! | `{"and": [PREDICATE, …]}` | `conjuncts` of those that the index has |
//! | `{"or": [PREDICATE, …]}` | `disjuncts`, if the index has all of them |
//!
//! Invariant: the hits include all documents with the predicate. There may be others, because the statement tests each document. Bounds are
//! therefore inclusive: an index rounds numbers to doubles. Texts must be indexed as one term, that is, by the analyzer `keyword`. A dynamic
//! mapping takes texts that look like dates as dates, so that it helps only with texts that sort after all digits. Dates are not supported:
//! they are compared as texts in SQL++, and as points in time by an index.

use crate::sqlpp::{is_dynamic, is_enabled};
use serde_json::{Value, json};

/// The analyzer that keeps a text as one term.
const KEYWORD: &str = "keyword";
/// The default parser of dates. All dates that it accepts begin with a digit.
const DATES: &str = "dateTimeOptional";

/// Returns the query for a predicate, and the number of conditions in it; `None` if the index does not help. `all` is the member `mapping`
/// of the index, `root` the mapping of the documents.
pub(crate) fn query(all: &Value, root: &Value, predicate: &Value) -> Option<(Value, usize)> {
    if let Some(parts) = predicate["and"].as_array() {
        let parts = parts.iter().filter_map(|part| query(all, root, part));
        return joined("conjuncts", parts.collect());
    }
    if let Some(parts) = predicate["or"].as_array() {
        let parts = parts.iter().map(|part| query(all, root, part));
        return joined("disjuncts", parts.collect::<Option<_>>()?);
    }
    let field = predicate["field"].as_str()?;
    let path = Path { all, root, field };
    let found = if let Some(prefix) = predicate["prefix"].as_str() {
        path.has_text(prefix).then(|| json!({"field": field, "prefix": prefix}))
    } else {
        match &predicate["eq"] {
            Value::Null => path.range(&predicate["min"], &predicate["max"]),
            Value::String(text) => {
                path.has_text(text).then(|| json!({"field": field, "term": text}))
            }
            Value::Bool(flag) => path.has("boolean").then(|| json!({"field": field, "bool": flag})),
            number => path.range(number, number),
        }
    };
    found.map(|found| (found, 1))
}

/// Combines queries.
fn joined(name: &str, mut parts: Vec<(Value, usize)>) -> Option<(Value, usize)> {
    if parts.len() > 1 {
        let count = parts.iter().map(|(_, count)| count).sum();
        let parts: Vec<Value> = parts.into_iter().map(|(query, _)| query).collect();
        return Some((json!({name: parts}), count));
    }
    parts.pop()
}

/// A path in documents.
struct Path<'a> {
    all: &'a Value,
    root: &'a Value,
    field: &'a str,
}

/// How the values at a path are indexed.
enum Indexed<'a> {
    /// As these fields.
    Fields(Vec<&'a Value>),
    /// By their types.
    Dynamic,
    /// Not at all.
    No,
}

impl Path<'_> {
    /// Returns the query for a range, if both bounds have a type that is indexed.
    fn range(&self, min: &Value, max: &Value) -> Option<Value> {
        let is_indexed = match (min, max) {
            (Value::Number(_), Value::Number(_) | Value::Null)
            | (Value::Null, Value::Number(_)) => self.has("number"),
            (Value::String(min), Value::String(_) | Value::Null) => self.has_text(min),
            _ => false,
        };
        let mut query = json!({"field": self.field, "inclusive_min": true, "inclusive_max": true});
        for (name, bound) in [("min", min), ("max", max)] {
            if !bound.is_null() {
                query[name] = bound.clone();
            }
        }
        is_indexed.then_some(query)
    }

    fn indexed(&self) -> Indexed<'_> {
        let mut mapping = self.root;
        for name in self.field.split('.') {
            if !is_enabled(mapping) {
                return Indexed::No;
            }
            match mapping["properties"].get(name) {
                Some(property) => mapping = property,
                None if is_dynamic(mapping) && self.flag("index_dynamic") => {
                    return Indexed::Dynamic;
                }
                None => return Indexed::No,
            }
        }
        let fields: Vec<&Value> = mapping["fields"].as_array().into_iter().flatten().collect();
        let kind = |field: &Value| field["type"].as_str().unwrap_or_default().to_owned();
        // The elements of an array are not indexed one by one if it can be a vector.
        if !is_enabled(mapping) || fields.iter().any(|field| kind(field).starts_with("vector")) {
            return Indexed::No;
        }
        Indexed::Fields(fields)
    }

    fn flag(&self, name: &str) -> bool {
        self.all[name].as_bool().unwrap_or(true)
    }

    /// Returns true if all values of a type are in the index.
    fn has(&self, kind: &str) -> bool {
        match self.indexed() {
            Indexed::Fields(fields) => fields.iter().any(|field| self.is_field(field, kind)),
            Indexed::Dynamic => true,
            Indexed::No => false,
        }
    }

    /// Returns true if all texts from `from` on are terms of the index.
    fn has_text(&self, from: &str) -> bool {
        match self.indexed() {
            Indexed::Fields(fields) => fields.iter().any(|field| {
                let own = field["analyzer"].as_str().filter(|name| !name.is_empty());
                self.is_field(field, "text") && self.is_keyword(own)
            }),
            Indexed::Dynamic => {
                let dates = self.all["default_datetime_parser"].as_str().unwrap_or(DATES);
                let is_after_dates = from.bytes().next().is_some_and(|first| first > b'9');
                dates == DATES && is_after_dates && self.is_keyword(None)
            }
            Indexed::No => false,
        }
    }

    /// Returns true if a field has the values of a type under their own path.
    fn is_field(&self, field: &Value, kind: &str) -> bool {
        let own = field["name"].as_str().unwrap_or_default();
        let is_at_path = own.is_empty() || self.field.rsplit('.').next() == Some(own);
        field["type"] == kind && field["index"].as_bool().unwrap_or(false) && is_at_path
    }

    /// Returns true if the analyzer is `keyword`: that of the field, or else the default at the path.
    fn is_keyword(&self, own: Option<&str>) -> bool {
        let default = |mapping: &Value| {
            let name = mapping["default_analyzer"].as_str().filter(|name| !name.is_empty());
            name.map(str::to_owned)
        };
        let mut analyzer = default(self.root).or_else(|| default(self.all));
        let mut mapping = self.root;
        for name in self.field.split('.') {
            let Some(property) = mapping["properties"].get(name) else { break };
            mapping = property;
            analyzer = default(mapping).or(analyzer);
        }
        let is_redefined = self.all["analysis"]["analyzers"].get(KEYWORD).is_some();
        own.or(analyzer.as_deref()) == Some(KEYWORD) && !is_redefined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query_of(mapping: &Value, predicate: &Value) -> Option<Value> {
        query(mapping, &mapping["default_mapping"], predicate).map(|(query, _)| query)
    }

    fn typed() -> Value {
        let field = |kind: &str| json!({"fields": [{"type": kind, "index": true}]});
        let keyword = json!({"fields": [{"type": "text", "index": true, "analyzer": "keyword"}]});
        let renamed = json!({"fields": [
            {"type": "text", "index": true, "analyzer": "keyword", "name": "other"},
        ]});
        let vector = json!({"fields": [
            {"type": "number", "index": true}, {"type": "vector", "dims": 2, "index": true},
        ]});
        let off = json!({"enabled": false, "properties": {"k": keyword}});
        let properties = json!({
            "k": keyword, "t": field("text"), "n": field("number"), "b": field("boolean"),
            "d": field("datetime"), "o": {"properties": {"k": keyword}}, "r": renamed, "v": vector,
            "off": off,
        });
        json!({"default_mapping": {"dynamic": false, "properties": properties}})
    }

    #[test]
    fn conditions_become_queries_for_fields_that_have_all_values() {
        let mapping = typed();
        let range = |field: &str, min: Value, max: Value| json!({"field": field, "min": min, "max": max, "inclusive_min": true, "inclusive_max": true});
        let eq = |field: &str, value: Value| json!({"field": field, "eq": value});
        for (predicate, expected) in [
            (eq("k", json!("v")), Some(json!({"field": "k", "term": "v"}))),
            (eq("o.k", json!("2020-01-01")), Some(json!({"field": "o.k", "term": "2020-01-01"}))),
            (eq("b", json!(true)), Some(json!({"field": "b", "bool": true}))),
            (eq("n", json!(7)), Some(range("n", json!(7), json!(7)))),
            (json!({"field": "k", "prefix": "ab"}), Some(json!({"field": "k", "prefix": "ab"}))),
            (
                json!({"field": "k", "min": "a", "max": "b"}),
                Some(range("k", json!("a"), json!("b"))),
            ),
            (
                json!({"field": "n", "max": 3}),
                Some(json!({"field": "n", "max": 3, "inclusive_min": true, "inclusive_max": true})),
            ),
            (eq("k", json!(7)), None),
            (eq("n", json!("v")), None),
            (eq("t", json!("v")), None),
            (eq("d", json!("2020-01-01")), None),
            (eq("r", json!("v")), None),
            (eq("v", json!(1)), None),
            (eq("off.k", json!("v")), None),
            (eq("none", json!("v")), None),
            (json!({"field": "k", "min": "a", "max": 3}), None),
            (json!({"field": "k", "max": "a"}), None),
        ] {
            assert_eq!(query_of(&mapping, &predicate), expected, "{predicate}");
        }
    }

    #[test]
    fn and_omits_what_an_index_does_not_have_and_or_needs_all() {
        let mapping = typed();
        let (known, other) = (json!({"field": "k", "eq": "v"}), json!({"field": "b", "eq": true}));
        let unknown = json!({"field": "none", "eq": 1});
        let (term, flag) =
            (json!({"field": "k", "term": "v"}), json!({"field": "b", "bool": true}));
        for (predicate, expected) in [
            (json!({"and": [known, unknown]}), Some(term.clone())),
            (json!({"and": [known, other]}), Some(json!({"conjuncts": [term, flag]}))),
            (json!({"or": [known, other]}), Some(json!({"disjuncts": [term, flag]}))),
            (json!({"or": [known, unknown]}), None),
            (json!({"and": [unknown]}), None),
            (
                json!({"and": [known, {"or": [known, unknown]}]}),
                Some(json!({"field": "k", "term": "v"})),
            ),
        ] {
            assert_eq!(query_of(&mapping, &predicate), expected, "{predicate}");
        }
        let both = query(&mapping, &mapping["default_mapping"], &json!({"and": [known, other]}));
        assert_eq!(both.map(|(_, count)| count), Some(2));
    }

    #[test]
    fn dynamic_mappings_need_the_analyzer_and_no_dates() {
        let eq = |value: Value| json!({"field": "a.b", "eq": value});
        let is_known = |mapping: &Value, value: Value| query_of(mapping, &eq(value)).is_some();
        let keyword = json!({"default_analyzer": "keyword"});
        assert!(is_known(&keyword, json!("v")) && is_known(&keyword, json!(7)));
        assert!(!is_known(&keyword, json!("2020-01-01")), "it may be indexed as a date");
        assert!(!is_known(&Value::Null, json!("v")) && is_known(&Value::Null, json!(true)));
        let below =
            json!({"default_mapping": {"properties": {"a": {"default_analyzer": "keyword"}}}});
        assert!(is_known(&below, json!("v")));
        for other in [
            json!({"default_analyzer": "keyword", "index_dynamic": false}),
            json!({"default_analyzer": "keyword", "default_datetime_parser": "own"}),
            json!({"default_analyzer": "keyword", "analysis": {"analyzers": {"keyword": {}}}}),
            json!({"default_analyzer": "keyword", "default_mapping": {"dynamic": false}}),
        ] {
            assert!(!is_known(&other, json!("v")), "{other}");
        }
    }
}
