//! The JSON of an answer, as it grows.
//!
//! ```text
//! {"debug_info":{…},"total_rows":7,"rows":[   begin
//! {"id":…,"key":…,"value":…},                 row, or group
//! {"key":…,"value":…}
//! ],"errors":[{"from":…,"reason":…}]}         end
//! ```

use crate::answer::Asked;
use crate::rest::Rest;
use crate::row::{ViewRow, corrupt};
use crate::scan::Place;
use nacre_js::quote;
use nacre_plugin::btree::{Step, Tree};
use nacre_plugin::{Fault, State};
use serde_json::value::RawValue;

/// Errors that an answer names; there may be one for each group.
pub const FAILURES_MAX: usize = 100;

/// What an answer calls the one who gives it.
pub const LOCAL: &str = "local";

/// Why something is missing in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who has the rows that it is about.
    pub from: String,
    /// What is wrong, for the author of the view.
    pub reason: String,
}

impl Failure {
    /// What failed here.
    pub fn local(reason: String) -> Failure {
        Failure { from: LOCAL.into(), reason }
    }
}

/// What stands before the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// How many rows there are, asked for or not; none when they are reduced.
    pub total_rows: Option<u64>,
    /// When it is asked for.
    pub debug: Option<DebugInfo>,
}

/// What an answer tells about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// Rows of the view.
    pub index_rows: u64,
    /// Bytes of its tree.
    pub index_bytes: u64,
    /// How many ranges are read.
    pub range_count: u64,
}

impl Head {
    /// What there is to tell about the rows of `tree`.
    pub fn of(asked: &Asked, tree: &Tree<'_>, state: &dyn State) -> Result<Head, Fault> {
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

/// What is left to leave out and to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Items to leave out first.
    pub skip: u64,
    /// Items to give then.
    pub limit: u64,
}

impl Window {
    /// How many items are of interest at all.
    pub fn item_count(&self) -> u64 {
        if self.limit == 0 { 0 } else { self.skip.saturating_add(self.limit) }
    }

    /// Counts one item: whether it is to be shown.
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
    /// What was written and not handed out yet.
    text: String,
    /// What is left of skip and limit.
    pub window: Window,
    group_level: Option<usize>,
    stops_on_error: bool,
    /// What failed so far, as much of it as is named.
    failures: Vec<Failure>,
    /// Whether a row was written.
    has_rows: bool,
}

impl Body {
    /// An answer without a text.
    pub fn new(asked: &Asked) -> Body {
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

    /// Goes on where an earlier text ended.
    pub fn resume(&mut self, rest: Rest) {
        let Rest { window, has_rows, failures, .. } = rest;
        (self.window, self.has_rows, self.failures) = (window, has_rows, failures);
    }

    /// What is needed to go on behind `place`, the item that was dealt with last.
    pub fn rest_at(&self, place: Place<'_>) -> Rest {
        Rest {
            range: place.range,
            name: place.name.to_vec(),
            window: self.window,
            has_rows: self.has_rows,
            failures: self.failures.clone(),
        }
    }

    /// Whether there are no more items to come.
    pub fn is_over(&self) -> bool {
        self.window.limit == 0 || (self.stops_on_error && !self.failures.is_empty())
    }

    /// Bytes that can be handed out.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// What was written since the last call.
    pub fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Whether an item leaves room for more in a piece of so many bytes.
    pub fn step(&self, piece_bytes: usize) -> Step {
        match self.is_over() || self.len() >= piece_bytes {
            true => Step::Break(()),
            false => Step::Continue(()),
        }
    }

    /// Writes what comes before the rows; `debug` by who tells it.
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

    /// The next row, which is written when it is to be shown.
    pub fn row(&mut self, row: &ViewRow<'_>) {
        if self.window.shows() {
            self.begin_row();
            self.text.push_str("{\"id\":");
            quote(&row.id, &mut self.text);
            self.push_key_value(row.key, row.value, ",");
        }
    }

    /// The next group, whose first row has this key; its value is asked for when it is to be shown.
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

    /// Writes what comes behind the rows.
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

/// The key of a group: that of its first row, an array cut to the level.
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
