//! Questions about metrics over a period, as the paths and the JSON of `/pools/default/stats/range` ask them.

use super::function::{Aggregate, Function};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Default period and window in seconds.
const PERIOD_S: u64 = 60;
/// Default time in seconds between two values.
const STEP_S: u64 = 10;
/// Maximum number of values of a metric. Source: Prometheus.
const STEPS_MAX: u64 = 11_000;
/// Longest duration in seconds.
const DURATION_S_MAX: u64 = 366 * 86_400;

/// A part of a question that is not valid, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the part; `_` for the whole question.
    pub field: String,
    /// Why it is not valid.
    pub reason: String,
}

impl Mistake {
    pub(super) fn new(field: &str, reason: impl Into<String>) -> Mistake {
        Mistake { field: field.to_owned(), reason: reason.into() }
    }
}

/// A question.
#[derive(Debug)]
pub struct Question {
    /// Conditions on the labels of metrics.
    pub(super) labels: Vec<Matcher>,
    pub(super) functions: Vec<Function>,
    /// Time in seconds over which a function takes measurements.
    pub(super) window_s: u64,
    /// Names of the nodes; `None` for all.
    nodes: Option<Vec<String>>,
    /// How the values of nodes are combined; `None` if they are not.
    pub(super) across_nodes: Option<Aggregate>,
    /// Times in seconds since 1970.
    pub(super) start_s: u64,
    pub(super) end_s: u64,
    step_s: u64,
    /// The question as the client sent it, if the answer repeats it.
    pub(super) echo: Option<Value>,
}

impl Question {
    /// Reads a question from the name of a metric and of functions, and the fields of a query string. Fields that are no
    /// options are labels.
    ///
    /// # Errors
    /// The first field that is not valid.
    pub fn of_path(
        metric: &str,
        functions: &[String],
        form: Vec<(String, String)>,
        now_s: u64,
    ) -> Result<Question, Mistake> {
        let known: Option<Vec<Function>> =
            functions.iter().map(|name| Function::named(name)).collect();
        let known = known.ok_or_else(|| Mistake::new("function", "invalid list of functions"))?;
        read_path(metric, known, form, now_s)
    }

    /// Reads a question from JSON.
    ///
    /// # Errors
    /// The first member that is not valid.
    pub fn of_json(question: Value, now_s: u64) -> Result<Question, Mistake> {
        read_question(question, now_s)
    }

    /// Returns the names of the nodes in question; `None` for all nodes.
    pub fn nodes(&self) -> Option<&[String]> {
        self.nodes.as_deref()
    }

    /// Returns the time in seconds between two values, at least 1.
    pub(super) fn step(&self) -> usize {
        usize::try_from(self.step_s.max(1)).unwrap_or(usize::MAX)
    }

    /// Returns the maximum number of values of a metric.
    pub(super) fn values_max(&self) -> usize {
        let steps = self.end_s.saturating_sub(self.start_s) / self.step_s.max(1);
        usize::try_from(steps + 1).unwrap_or(usize::MAX)
    }
}

/// A condition on a label. A missing label is an empty text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Matcher {
    label: String,
    /// The texts that match, or that do not if `negated`.
    texts: Texts,
    negated: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Texts {
    /// Any of these.
    These(Vec<String>),
    /// Any text, or any that is not empty.
    Any { empty: bool },
}

impl Matcher {
    fn equal(label: &str, value: &str) -> Matcher {
        let texts = Texts::These(vec![value.to_owned()]);
        Matcher { label: label.to_owned(), texts, negated: false }
    }

    /// Returns true if a metric with these labels fulfils the condition.
    pub fn accepts(&self, labels: &BTreeMap<String, String>) -> bool {
        let text = labels.get(&self.label).map_or("", String::as_str);
        let matches = match &self.texts {
            Texts::These(texts) => texts.iter().any(|one| one == text),
            Texts::Any { empty } => *empty || !text.is_empty(),
        };
        matches != self.negated
    }

    /// Reads an element of `metric`.
    fn read(element: &Value) -> Result<Matcher, String> {
        let fields = element.as_object().ok_or("must be a list of JSON objects")?;
        if let Some(name) =
            fields.keys().find(|name| !["label", "value", "operator"].contains(&name.as_str()))
        {
            return Err(format!("unknown label prop: {name}"));
        }
        let (Some(label), Some(value)) = (fields.get("label"), fields.get("value")) else {
            return Err("all metric labels must contain 'label' and 'value' keys".to_owned());
        };
        let label = label.as_str().ok_or("Label name must be a string")?.to_owned();
        let operator = fields.get("operator").map_or(Some("="), Value::as_str).unwrap_or_default();
        let texts = match operator {
            "=" | "!=" | "=~" | "!~" => {
                let text = value.as_str();
                let text =
                    text.ok_or_else(|| format!("label value for {label} must be a string"))?;
                if operator.contains('~') {
                    pattern(text)?
                } else {
                    Texts::These(vec![text.to_owned()])
                }
            }
            "any" | "not_any" => {
                let items = value.as_array();
                let texts: Option<Vec<String>> = items.and_then(|items| {
                    items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
                });
                let reason = || {
                    format!(
                        "label value for {label} must be a list of strings when used with '{operator}' operation"
                    )
                };
                Texts::These(texts.ok_or_else(reason)?)
            }
            _ => return Err(format!("invalid operator: {operator}")),
        };
        Ok(Matcher { label, texts, negated: matches!(operator, "!=" | "!~" | "not_any") })
    }
}

/// Reads a pattern: texts with `|` between them, `.*` or `.+`. It matches whole texts.
fn pattern(text: &str) -> Result<Texts, String> {
    let is_plain = |text: &str| !text.contains(|c: char| "\\.*+?()[]{}^$".contains(c));
    match text {
        ".*" => Ok(Texts::Any { empty: true }),
        ".+" => Ok(Texts::Any { empty: false }),
        _ if text.split('|').all(is_plain) => {
            Ok(Texts::These(text.split('|').map(str::to_owned).collect()))
        }
        _ => Err(format!("{text}: a pattern is .*, .+ or texts with | between them")),
    }
}

fn read_path(
    metric: &str,
    functions: Vec<Function>,
    form: Vec<(String, String)>,
    now_s: u64,
) -> Result<Question, Mistake> {
    let mut labels = vec![Matcher::equal("name", metric)];
    let mut fields = Map::new();
    for (name, value) in form {
        match name.as_str() {
            "nodes" => {
                let nodes = value.split([',', ' ']).filter(|node| !node.is_empty());
                fields.insert(name, nodes.collect());
            }
            _ if is_field(&name) => drop(fields.insert(name, value.into())),
            _ => labels.push(Matcher::equal(&name, &value)),
        }
    }
    read(labels, functions, &fields, now_s)
}

/// Returns true if the field is an option. All others are labels.
fn is_field(name: &str) -> bool {
    let known = ["timeWindow", "alignTimestamps", "nodesAggregation", "step", "start", "end"];
    known.contains(&name) || name == "timeout"
}

fn read_question(question: Value, now_s: u64) -> Result<Question, Mistake> {
    let echo = question.clone();
    let Value::Object(mut fields) = question else {
        return Err(Mistake::new("_", "must be a JSON object"));
    };
    let elements = match fields.remove("metric") {
        Some(Value::Array(elements)) if elements.is_empty() => {
            return Err(Mistake::new("metric", "must not be empty"));
        }
        Some(Value::Array(elements)) => elements,
        Some(_) => return Err(Mistake::new("metric", "must be a list of JSON objects")),
        None => return Err(Mistake::new("metric", "The value must be supplied")),
    };
    let labels: Result<Vec<Matcher>, String> = elements.iter().map(Matcher::read).collect();
    let labels = labels.map_err(|reason| Mistake::new("metric", reason))?;
    let functions = match fields.remove("applyFunctions") {
        None => Vec::new(),
        Some(names) => {
            let name = |name: &Value| Function::named(name.as_str()?);
            let items = names.as_array();
            let all: Option<Vec<Function>> =
                items.and_then(|items| items.iter().map(name).collect());
            all.ok_or_else(|| Mistake::new("applyFunctions", "invalid list of functions"))?
        }
    };
    let repeats = match fields.remove("returnRequestParams") {
        None => false,
        Some(Value::Bool(repeats)) => repeats,
        Some(_) => return Err(Mistake::new("returnRequestParams", "The value must be a boolean")),
    };
    if let Some(name) = fields.keys().find(|name| !is_field(name) && *name != "nodes") {
        return Err(Mistake::new(name, "Unsupported key"));
    }
    let question = read(labels, functions, &fields, now_s)?;
    Ok(Question { echo: repeats.then_some(echo), ..question })
}

/// Reads the options of a question.
fn read(
    labels: Vec<Matcher>,
    functions: Vec<Function>,
    fields: &Map<String, Value>,
    now_s: u64,
) -> Result<Question, Mistake> {
    let nodes = match fields.get("nodes") {
        None => None,
        Some(names) => {
            let items = names.as_array();
            let names: Option<Vec<String>> = items.and_then(|items| {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            });
            Some(names.ok_or_else(|| Mistake::new("nodes", "must be a list of strings"))?)
        }
    };
    let across_nodes = match text(fields, "nodesAggregation").as_deref() {
        None | Some("none") => None,
        Some(name) => {
            let reason = "invalid aggregation function";
            let known = Aggregate::named(name);
            Some(known.ok_or_else(|| Mistake::new("nodesAggregation", reason))?)
        }
    };
    let step_s = duration(fields, "step", STEP_S)?;
    let mut start_s = time(fields, "start", now_s)?.unwrap_or(now_s.saturating_sub(PERIOD_S));
    let end_s = time(fields, "end", now_s)?.unwrap_or(now_s);
    if end_s < start_s {
        return Err(Mistake::new("end", "The value must be greater or equal than start"));
    }
    match text(fields, "alignTimestamps").as_deref() {
        None | Some("false") => {}
        Some("true") => start_s = start_s.next_multiple_of(step_s),
        Some(_) => return Err(Mistake::new("alignTimestamps", "The value must be a boolean")),
    }
    if end_s.saturating_sub(start_s) / step_s >= STEPS_MAX {
        let reason = format!("a metric would have more than {STEPS_MAX} values");
        return Err(Mistake::new("step", reason));
    }
    // The nodes answer within about a second, so that the timeout is only checked.
    let timeout = text(fields, "timeout").map(|text| text.parse::<u64>());
    if timeout.is_some_and(|ms| !ms.is_ok_and(|ms| (1..=300_000).contains(&ms))) {
        return Err(Mistake::new("timeout", "The value must be in range from 1 to 300000"));
    }
    let window_s = duration(fields, "timeWindow", PERIOD_S)?;
    Ok(Question {
        labels,
        functions,
        window_s,
        nodes,
        across_nodes,
        start_s,
        end_s,
        step_s,
        echo: None,
    })
}

/// Returns a field as text, whether it is a text, a number or a boolean.
fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fields.get(name).map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

/// Reads a time in seconds since 1970. A negative one counts from now.
fn time(fields: &Map<String, Value>, name: &str, now_s: u64) -> Result<Option<u64>, Mistake> {
    let Some(text) = text(fields, name) else { return Ok(None) };
    let seconds: i64 =
        text.parse().map_err(|_| Mistake::new(name, "The value must be an integer"))?;
    let from_s = if seconds < 0 { now_s } else { 0 };
    let time_s = from_s.saturating_add_signed(seconds);
    // A later time has no values, and a loop over all steps until then would not end.
    Ok(Some(time_s.min(now_s)))
}

/// Reads a duration in whole seconds, such as `10`, `10s` or `5m`.
fn duration(fields: &Map<String, Value>, name: &str, usual_s: u64) -> Result<u64, Mistake> {
    let Some(text) = text(fields, name) else { return Ok(usual_s) };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => Some(1),
        "" | "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        "w" => Some(7 * 86_400_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let ms = number.zip(unit_ms).and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    let seconds = ms.map(|ms: u64| ms.div_ceil(1_000));
    let seconds = seconds.filter(|seconds| (1..=DURATION_S_MAX).contains(seconds));
    seconds.ok_or_else(|| Mistake::new(name, "must be a duration such as 10, 10s or 5m"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(question: Value) -> Result<Question, String> {
        read_question(question, 10_000)
            .map_err(|Mistake { field, reason }| format!("{field}: {reason}"))
    }

    #[test]
    fn a_path_and_json_ask_the_same() {
        let form = [("bucket", "b"), ("start", "-300"), ("step", "1m"), ("nodes", "one:1, two:2")];
        let form = form.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let of_path = read_path("kv_ops", Vec::new(), form, 10_000).unwrap();
        let of_json = read(json!({
            "metric": [{"label": "name", "value": "kv_ops"}, {"label": "bucket", "value": "b", "operator": "="}],
            "start": -300,
            "step": 60,
            "nodes": ["one:1", "two:2"],
        }));
        let of_json = of_json.unwrap();
        assert_eq!(of_path.labels, of_json.labels);
        assert_eq!(of_path.nodes, of_json.nodes);
        for question in [of_path, of_json] {
            let times = (question.start_s, question.end_s, question.step(), question.window_s);
            assert_eq!(times, (9_700, 10_000, 60, 60));
        }
    }

    #[test]
    fn conditions_are_those_of_prometheus() {
        let labels: BTreeMap<String, String> = [("bucket".to_owned(), "b".to_owned())].into();
        for (operator, value, expected) in [
            ("=", json!("b"), true),
            ("!=", json!("b"), false),
            ("=~", json!("a|b"), true),
            ("!~", json!("a|b"), false),
            ("=~", json!(".+"), true),
            ("any", json!(["a", "b"]), true),
            ("not_any", json!(["a", "b"]), false),
        ] {
            let element = json!({"label": "bucket", "value": value, "operator": operator});
            let matcher = Matcher::read(&element).unwrap();
            assert_eq!(matcher.accepts(&labels), expected, "{element}");
        }
        let missing = |operator, value| {
            let element = json!({"label": "scope", "value": value, "operator": operator});
            Matcher::read(&element).unwrap().accepts(&labels)
        };
        assert!(
            missing("=", "") && missing("=~", ".*") && !missing("=~", ".+") && missing("!=", "s")
        );
    }

    #[test]
    fn members_that_are_not_valid_are_named() {
        let metric = json!([{"label": "name", "value": "kv_ops"}]);
        for (question, field) in [
            (json!(7), "_"),
            (json!({}), "metric"),
            (json!({"metric": []}), "metric"),
            (json!({"metric": [{"label": "name"}]}), "metric"),
            (json!({"metric": [{"label": "name", "value": "a.*b", "operator": "=~"}]}), "metric"),
            (json!({"metric": [{"label": "name", "value": "a", "operator": "~"}]}), "metric"),
            (json!({"metric": metric, "applyFunctions": ["median"]}), "applyFunctions"),
            (json!({"metric": metric, "nodes": "one:1"}), "nodes"),
            (json!({"metric": metric, "nodesAggregation": "special"}), "nodesAggregation"),
            (json!({"metric": metric, "start": "soon"}), "start"),
            (json!({"metric": metric, "start": -10, "end": -20}), "end"),
            (json!({"metric": metric, "step": 0}), "step"),
            (json!({"metric": metric, "step": "1x"}), "step"),
            (json!({"metric": metric, "start": 0, "step": 1, "end": 100_000}), ""),
            (json!({"metric": metric, "timeout": 0}), "timeout"),
            (json!({"metric": metric, "alignTimestamps": 1}), "alignTimestamps"),
            (json!({"metric": metric, "colour": "red"}), "colour"),
        ] {
            let said = read(question.clone()).err().unwrap_or_default();
            let named = said.split(':').next().unwrap_or_default();
            assert_eq!(named, field, "{question}: {said}");
        }
        let long = read_question(json!({"metric": metric, "start": 0, "step": 1}), 20_000);
        assert_eq!(long.unwrap_err().field, "step");
    }

    #[test]
    fn times_are_aligned_with_the_step() {
        let metric = json!([{"label": "name", "value": "kv_ops"}]);
        let aligned =
            json!({"metric": metric, "start": 9_911, "step": 20, "alignTimestamps": true});
        assert_eq!(read(aligned).unwrap().start_s, 9_920);
        assert!(read(json!({"metric": metric, "start": 99_999_999})).unwrap().end_s <= 10_000);
    }
}
