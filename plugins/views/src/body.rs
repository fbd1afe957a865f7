//! The JSON of an answer, written incrementally.
//!
//! ```text
//! {"debug_info":{…},"total_rows":7,"rows":[   begin
//! {"id":…,"key":…,"value":…},                 row, or group
//! {"key":…,"value":…}
//! ],"errors":[{"from":…,"reason":…}]}         end
//! ```

use crate::answer::ValidQuery;
use crate::rest::Rest;
use crate::row::{ViewRow, corrupt};
use crate::scan::Place;
use nacre_js::quote;
use nacre_plugin::btree::{Step, Tree};
use nacre_plugin::{Fault, State};
use serde_json::value::RawValue;

/// Maximum number of errors that an answer names. There may be one for each group.
pub const FAILURES_MAX: usize = 100;

/// The name in an answer of the node that sends it.
pub const LOCAL: &str = "local";

/// The reason why a part of an answer is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The node with the missing rows.
    pub from: String,
    /// The error, for the author of the view.
    pub reason: String,
}

impl Failure {
    /// Creates a failure of this node.
    pub fn local(reason: String) -> Failure {
        Failure { from: LOCAL.into(), reason }
    }
}

/// The part of an answer before its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Number of rows in the view, whether the query asks for them or not; `None` for a query that reduces.
    pub total_rows: Option<u64>,
    /// Debug info, if the query asks for it.
    pub debug: Option<DebugInfo>,
}

/// Debug info of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// Number of rows in the view.
    pub index_rows: u64,
    /// Size of the view's tree, in bytes.
    pub index_bytes: u64,
    /// Number of ranges to read.
    pub range_count: u64,
}

impl Head {
    /// Returns the head for the rows in `tree`.
    pub fn of(asked: &ValidQuery, tree: &Tree<'_>, state: &dyn State) -> Result<Head, Fault> {
        let debug = || {
            Ok(DebugInfo {
                index_rows: tree.row_count(state).map_err(corrupt)?,
                index_bytes: tree.bytes(state).map_err(corrupt)?,
                range_count: asked.ranges.len() as u64,
            })
        };
        let total_rows = || tree.row_count(state).map_err(corrupt);
        Ok(Head {
            total_rows: (!asked.reduced).then(total_rows).transpose()?,
            debug: asked.query.debug.then(debug).transpose()?,
        })
    }
}

/// Number of items still to be skipped and to be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Items to skip first.
    pub skip: u64,
    /// Items to return after those.
    pub limit: u64,
}

impl Window {
    /// Returns the number of items that the answer needs to read at most.
    pub fn item_count(&self) -> u64 {
        if self.limit == 0 { 0 } else { self.skip.saturating_add(self.limit) }
    }

    /// Counts an item. Returns true if the answer shows it.
    fn shows(&mut self) -> bool {
        match (self.skip, self.limit) {
            (1.., _) => {
                self.skip -= 1;
                false
            }
            (_, 0) => false,
            _ => {
                self.limit -= 1;
                true
            }
        }
    }
}

/// An answer that is being written.
pub struct Body {
    /// Text that has been written but not taken yet.
    text: String,
    /// Number of items still to be skipped and to be returned.
    pub window: Window,
    group_level: Option<usize>,
    stops_on_error: bool,
    /// Failures so far, as far as the answer names them.
    failures: Vec<Failure>,
    /// True if a row was written.
    has_rows: bool,
}

impl Body {
    /// Creates an empty answer.
    pub fn new(asked: &ValidQuery) -> Body {
        let query = &asked.query;
        Body {
            text: String::new(),
            window: Window { skip: query.skip, limit: query.limit },
            group_level: query.group_level,
            stops_on_error: query.stops_on_error,
            failures: Vec::new(),
            has_rows: false,
        }
    }

    /// Continues where an earlier round ended.
    pub fn resume(&mut self, rest: Rest) {
        let Rest { window, has_rows, failures, .. } = rest;
        (self.window, self.has_rows, self.failures) = (window, has_rows, failures);
    }

    /// Returns what the next round needs to continue after the last item, at `place`.
    pub fn rest_at(&self, place: Place<'_>) -> Rest {
        Rest {
            range: place.range,
            name: place.name.to_vec(),
            window: self.window,
            has_rows: self.has_rows,
            failures: self.failures.clone(),
        }
    }

    /// Returns true if the answer needs no more items.
    pub fn is_over(&self) -> bool {
        self.window.limit == 0 || (self.stops_on_error && !self.failures.is_empty())
    }

    /// Returns the number of bytes that can be taken.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Takes the text written since the last call.
    pub fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Returns whether a piece of `piece_bytes` bytes has room for another item.
    pub fn step(&self, piece_bytes: usize) -> Step {
        match self.is_over() || self.len() >= piece_bytes {
            true => Step::Break(()),
            false => Step::Continue(()),
        }
    }

    /// Writes the part before the rows. `debug` contains the debug info by node.
    pub fn begin(&mut self, total_rows: Option<u64>, debug: &[(&str, DebugInfo)]) {
        self.text.push('{');
        if !debug.is_empty() {
            let info = |info: &DebugInfo| {
                serde_json::json!({
                    "index_rows": info.index_rows,
                    "index_bytes": info.index_bytes,
                    "ranges": info.range_count,
                })
            };
            let infos: serde_json::Map<_, _> =
                debug.iter().map(|(from, debug)| ((*from).to_owned(), info(debug))).collect();
            let infos = serde_json::Value::Object(infos);
            self.text.push_str(&format!("\"debug_info\":{infos},"));
        }
        if let Some(total) = total_rows {
            self.text.push_str(&format!("\"total_rows\":{total},"));
        }
        self.text.push_str("\"rows\":[");
    }

    /// Processes the next row, and writes it unless it is skipped.
    pub fn row(&mut self, row: &ViewRow<'_>) {
        if self.window.shows() {
            self.begin_row();
            self.text.push_str("{\"id\":");
            quote(&row.id, &mut self.text);
            self.push_key_value(row.key, row.value, ",");
        }
    }

    /// Processes the next group, whose first row has this key. Calls `value` only if the answer shows the group.
    pub fn group(&mut self, key: &str, value: impl FnOnce() -> Result<String, Vec<Failure>>) {
        if self.window.shows() {
            match value() {
                Ok(value) => {
                    self.begin_row();
                    self.push_key_value(&group_key(key, self.group_level), &value, "{");
                }
                Err(failures) => {
                    let room = FAILURES_MAX.saturating_sub(self.failures.len());
                    self.failures.extend(failures.into_iter().take(room));
                }
            }
        }
    }

    /// Writes the part after the rows.
    pub fn end(&mut self) {
        let out = &mut self.text;
        out.push(']');
        for (index, failure) in self.failures.iter().enumerate() {
            out.push_str(if index == 0 { ",\"errors\":[" } else { "," });
            out.push_str("{\"from\":");
            quote(&failure.from, out);
            out.push_str(",\"reason\":");
            quote(&failure.reason, out);
            out.push('}');
        }
        out.push_str(if self.failures.is_empty() { "}" } else { "]}" });
    }

    fn begin_row(&mut self) {
        if std::mem::replace(&mut self.has_rows, true) {
            self.text.push_str(",\n");
        }
    }

    fn push_key_value(&mut self, key: &str, value: &str, before: &str) {
        let out = &mut self.text;
        out.push_str(before);
        out.push_str("\"key\":");
        out.push_str(key);
        out.push_str(",\"value\":");
        out.push_str(value);
        out.push('}');
    }
}

/// Returns the key of a group: the key of its first row, with arrays truncated to the group level.
fn group_key(key: &str, level: Option<usize>) -> String {
    let elements: Option<Vec<&RawValue>> = serde_json::from_str(key).ok();
    match (elements, level) {
        (Some(elements), Some(level)) if elements.len() > level => {
            let texts: Vec<_> = elements[..level].iter().map(|element| element.get()).collect();
            format!("[{}]", texts.join(","))
        }
        _ => key.to_owned(),
    }
}
