//! The plan of EXPLAIN as a tree.
//!
//! Operators are in the order in which rows pass them. The inner input of an operator, such as the other side of a
//! join, is drawn below it.
//!
//! ```text
//! Sequence
//! ├─ IndexScan3  default.inventory.airports as a
//! │    index: by_state
//! │    spans: state = "CA"
//! ├─ Fetch  default.inventory.airports as a
//! └─ Limit  5
//! ```

use super::text::printable;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Members that contain operators, in the order in which they are drawn.
const CHILDREN: [&str; 7] =
    ["~child", "~children", "scan", "scans", "first", "second", "~subqueries"];
/// Members that name the source of an operator; they are drawn next to its name.
const PLACE: [&str; 8] =
    ["#operator", "namespace", "bucket", "scope", "keyspace", "as", "alias", "expr"];
/// Members that are not drawn: IDs and members that never differ.
const DULL: [&str; 4] = ["index_id", "index_projection", "using", "nested_loop"];
/// Members that come first, in this order.
const FIRST: [&str; 5] = ["index", "spans", "covers", "keys", "condition"];

/// Draws a plan; `None` if `plan` is not a plan.
pub fn draw(plan: &Value) -> Option<String> {
    let mut out = String::new();
    let plan = unwrapped(operator(plan)?);
    draw_operator(plan, "", "", &mut out);
    Some(out)
}

fn operator(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|members| members.get("#operator").is_some_and(Value::is_string))
}

/// Returns the only operator of a sequence of one, else the operator itself.
fn unwrapped(members: &Map<String, Value>) -> &Map<String, Value> {
    let mut members = members;
    while let ("Sequence" | "Parallel", [only]) = (name(members), &children(members)[..]) {
        members = only;
    }
    members
}

fn name(members: &Map<String, Value>) -> &str {
    members.get("#operator").and_then(Value::as_str).unwrap_or_default()
}

fn children(members: &Map<String, Value>) -> Vec<&Map<String, Value>> {
    let found = CHILDREN.iter().filter_map(|child| members.get(*child));
    let each = found.flat_map(|child| match child {
        Value::Array(children) => children.iter().collect(),
        one => vec![one],
    });
    each.filter_map(operator).collect()
}

/// Draws an operator. `branch` precedes its name, `stem` precedes all lines below it.
fn draw_operator(members: &Map<String, Value>, branch: &str, stem: &str, out: &mut String) {
    let mut title = format!("{branch}{}", printable(name(members)));
    for part in [place(members), members.get("expr").map(text)].into_iter().flatten() {
        let _ = write!(title, "  {part}");
    }
    let _ = writeln!(out, "{title}");
    let children: Vec<_> = children(members).into_iter().map(unwrapped).collect();
    let bar = if children.is_empty() { "     " } else { "│    " };
    for (name, value) in facts(members) {
        let _ = writeln!(out, "{stem}{bar}{}: {value}", printable(name));
    }
    for (index, child) in children.iter().enumerate() {
        let (branch, below) =
            if index + 1 < children.len() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
        draw_operator(child, &format!("{stem}{branch}"), &format!("{stem}{below}"), out);
    }
}

/// Returns the source of an operator: `bucket.scope.keyspace as alias`.
fn place(members: &Map<String, Value>) -> Option<String> {
    let part = |name: &str| members.get(name).and_then(Value::as_str);
    let path: Vec<&str> = ["bucket", "scope", "keyspace"].into_iter().filter_map(part).collect();
    let mut place = path.join(".");
    if let (Some("system"), false) = (part("namespace"), path.is_empty()) {
        place.insert_str(0, "system:");
    }
    if let Some(alias) = part("as").or_else(|| part("alias")) {
        place.push_str(if place.is_empty() { "as " } else { " as " });
        place.push_str(alias);
    }
    (!place.is_empty()).then(|| printable(&place))
}

/// Returns the remaining members to draw, most important first.
fn facts(members: &Map<String, Value>) -> Vec<(&str, String)> {
    let hidden =
        |name: &str| PLACE.contains(&name) || DULL.contains(&name) || CHILDREN.contains(&name);
    let rest = members.keys().map(String::as_str).filter(|name| !FIRST.contains(name));
    let names = FIRST.into_iter().chain(rest).filter(|name| !hidden(name));
    let facts = names.filter_map(|name| {
        let value = members.get(name)?;
        let text = match value {
            Value::Array(items) => list(items),
            other => text(other),
        };
        (!text.is_empty()).then_some((name, text))
    });
    facts.collect()
}

fn list(items: &[Value]) -> String {
    items.iter().map(text).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Returns a member in SQL++ form if its structure is known, else as JSON.
fn text(value: &Value) -> String {
    let Value::Object(members) = value else {
        return match value {
            Value::String(text) => printable(text),
            other => printable(&other.to_string()),
        };
    };
    let part = |name: &str| members.get(name).map(text);
    if let Some(Value::Array(range)) = members.get("range") {
        return range
            .iter()
            .map(bounds)
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(" and ");
    }
    if let (Some(name), Some(expr)) = (part("var").or_else(|| part("alias")), part("expr")) {
        return format!("{name} = {expr}");
    }
    if members.get("star") == Some(&Value::Bool(true)) {
        return match part("expr").as_deref() {
            None | Some("self") => "*".to_owned(),
            Some(expr) => format!("{expr}.*"),
        };
    }
    match part("expr") {
        Some(expr) => {
            let name = part("as").map_or_else(String::new, |name| format!(" as {name}"));
            let desc = if members.contains_key("desc") { " desc" } else { "" };
            format!("{expr}{name}{desc}")
        }
        None => printable(&value.to_string()),
    }
}

/// Returns the range of a part of an index in SQL++ form; empty for a range without bounds.
fn bounds(range: &Value) -> String {
    let part = |name: &str| range.get(name).map(text);
    let Some(key) = part("index_key") else { return printable(&range.to_string()) };
    let inclusion = range.get("inclusion").and_then(Value::as_i64).unwrap_or_default();
    let (low_in, high_in) = (inclusion & 1 != 0, inclusion & 2 != 0);
    let above = |low: &str| format!("{key} {} {low}", if low_in { ">=" } else { ">" });
    let below = |high: &str| format!("{key} {} {high}", if high_in { "<=" } else { "<" });
    match (part("low"), part("high")) {
        (Some(low), Some(high)) if low == high && inclusion == 3 => match low.as_str() {
            "null" => format!("{key} is null"),
            _ => format!("{key} = {low}"),
        },
        (Some(low), None) if low == "null" => {
            format!("{key} {}", if low_in { "is not missing" } else { "is not null" })
        }
        (None, Some(high)) if high == "null" && !high_in => format!("{key} is missing"),
        // Values that compare with a bound are not NULL.
        (Some(low), Some(high)) if low == "null" && !low_in => below(&high),
        (Some(low), Some(high)) => format!("{} and {}", above(&low), below(&high)),
        (Some(low), None) => above(&low),
        (None, Some(high)) => below(&high),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operators_are_shown_in_order_with_their_main_properties() {
        let plan = json!({"#operator": "Sequence", "~children": [
            {"#operator": "IndexScan3", "as": "a", "bucket": "travel", "scope": "inventory", "keyspace": "airports",
             "namespace": "default", "index": "by_state", "index_id": "1f", "using": "gsi", "reverse": true,
             "spans": [{"exact": true, "range": [
                {"index_key": "`state`", "low": "\"CA\"", "high": "\"CA\"", "inclusion": 3},
                {"index_key": "`n`", "low": "1", "high": "5", "inclusion": 2},
                {"index_key": "`m`", "low": "null", "high": "5", "inclusion": 0},
                {"index_key": "`x`", "inclusion": 0}]}],
             "index_projection": {"primary_key": true},
             "covers": ["cover ((a.`state`))"]},
            {"#operator": "Filter", "condition": "((a.`state`) = \"CA\")"},
            {"#operator": "Group", "aggregates": ["count(*)"], "group_keys": []},
            {"#operator": "Order", "limit": "5", "sort_terms": [{"desc": "\"desc\"", "expr": "(a.`n`)"}, {"expr": "b"}]},
            {"#operator": "InitialProject", "result_terms": [{"as": "n", "expr": "(a.`n`)"}, {"expr": "self", "star": true}]},
            {"#operator": "Limit", "expr": "5"}]});
        insta::assert_snapshot!(draw(&plan).unwrap());
    }

    #[test]
    fn inputs_of_an_operator_are_shown_below_it() {
        let scan = |name: &str| {
            let scan = json!({"#operator": "PrimaryScan3", "as": name, "bucket": "b", "scope": "_default",
                "keyspace": name, "namespace": "default", "index": "p"});
            json!({"#operator": "Sequence", "~children": [scan, {"#operator": "Fetch", "as": name}]})
        };
        let plan = json!({"#operator": "Sequence", "~children": [
            {"#operator": "UnionScan", "scans": [
                {"#operator": "IndexScan3", "index": "one", "spans": []},
                {"#operator": "DistinctScan", "scan": {"#operator": "IndexScan3", "index": "two"}}]},
            {"#operator": "HashJoin", "alias": "o", "outer": true, "on_clause": "(o.`k`) = (c.`k`)",
             "build_exprs": ["(o.`k`)"], "probe_exprs": ["(c.`k`)"], "~child": scan("o")},
            {"#operator": "ExceptAll", "first": scan("x"), "second": {"#operator": "Sequence", "~children": [{"#operator": "DummyScan"}]}},
            {"#operator": "Let", "bindings": [{"var": "v", "expr": "1"}]}]});
        insta::assert_snapshot!(draw(&plan).unwrap());
    }

    #[test]
    fn values_other_than_plans_are_not_drawn() {
        for value in [json!(1), json!({}), json!({"#operator": 1}), json!([])] {
            assert_eq!(draw(&value), None);
        }
        let odd = json!({"#operator": "Sequence", "~children": [1, {"x": 2}], "new": {"a": [1]}});
        assert_eq!(draw(&odd).unwrap(), "Sequence\n     new: {\"a\":[1]}\n");
    }
}
