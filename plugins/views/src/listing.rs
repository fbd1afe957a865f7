//! Rows or groups of a query, given piece by piece: an answer may be larger than what fits into memory.
//!
//! ```text
//! {"debug_info":{…},"total_rows":7,"rows":[   first piece
//! {"id":…,"key":…,"value":…},                 … as many as fit
//! ],"errors":[…]}                             last piece
//! ```

use crate::design::View;
use crate::mask::Mask;
use crate::query::Query;
use crate::reduction::{ViewReducer, result_json};
use crate::row::{ViewRow, corrupt};
use nacre_js::{Engine, quote};
use nacre_plugin::btree::{Group, Range, Row, Step, Tree};
use nacre_plugin::{Fault, State, collate, successor};
use std::cell::RefCell;
use std::collections::VecDeque;

/// A piece ends with the row that brings it here.
const PIECE_BYTES: usize = 256 << 10;
/// Errors that an answer names; there may be one for each group.
const ERRORS_MAX: usize = 100;

/// What a query asks for and was not given yet.
pub struct Listing {
    /// Number of the view in its design document.
    view: usize,
    reduced: bool,
    group_level: Option<usize>,
    /// What is left of the ranges, in the order of the answer.
    ranges: VecDeque<Range>,
    window: Window,
    mask: Option<Mask>,
    debug: bool,
    stops_on_error: bool,
    errors: Vec<String>,
    has_begun: bool,
    has_rows: bool,
}

impl Listing {
    /// The answer to `query`, before its first piece.
    ///
    /// # Errors
    /// Which parameter has no place in the order of keys.
    pub fn new(
        number: usize,
        view: &View,
        query: &Query,
        mask: Option<Mask>,
    ) -> Result<Listing, String> {
        Ok(Listing {
            view: number,
            reduced: query.reduce.unwrap_or(view.reduce.is_some()),
            group_level: query.group_level,
            ranges: query.ranges()?,
            window: Window { skip: query.skip, limit: query.limit },
            mask,
            debug: query.debug,
            stops_on_error: query.stops_on_error,
            errors: Vec::new(),
            has_begun: false,
            has_rows: false,
        })
    }

    /// The next piece, and whether it is the last.
    pub fn piece(
        &mut self,
        views: &[View],
        engine: &RefCell<Engine>,
        state: &dyn State,
    ) -> Result<(String, bool), Fault> {
        let view = &views[self.view];
        let reducer = ViewReducer { reduce: view.reduce.as_ref(), engine };
        let mask = self.mask.clone();
        let sees = |row: Row<'_>| mask.as_ref().is_none_or(|mask| mask.sees(row));
        let mut tree = Tree::new(&view.prefix, &reducer);
        if mask.is_some() {
            tree = tree.seeing(&sees);
        }
        let mut out = String::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin(&tree, state, &mut out)?;
        }
        while let Some(range) = self.ranges.pop_front() {
            let left = match self.reduced {
                true => self.groups(&tree, range, state, &mut out)?,
                false => self.rows(&tree, range, state, &mut out)?,
            };
            if let Some(left) = left {
                self.ranges.push_front(left);
                return Ok((out, false));
            }
            if self.is_over() {
                break;
            }
        }
        self.end(&mut out);
        Ok((out, true))
    }

    fn is_over(&self) -> bool {
        self.window.limit == 0 || (self.stops_on_error && !self.errors.is_empty())
    }

    fn begin(&self, tree: &Tree<'_>, state: &dyn State, out: &mut String) -> Result<(), Fault> {
        out.push('{');
        if self.debug {
            let info = serde_json::json!({"local": {
                "index_rows": tree.row_count(state).map_err(corrupt)?,
                "index_bytes": tree.bytes(state).map_err(corrupt)?,
                "ranges": self.ranges.len(),
            }});
            out.push_str(&format!("\"debug_info\":{info},"));
        }
        if !self.reduced {
            let total = tree.row_count(state).map_err(corrupt)?;
            out.push_str(&format!("\"total_rows\":{total},"));
        }
        out.push_str("\"rows\":[");
        Ok(())
    }

    fn end(&self, out: &mut String) {
        out.push(']');
        for (index, reason) in self.errors.iter().take(ERRORS_MAX).enumerate() {
            out.push_str(if index == 0 { ",\"errors\":[" } else { "," });
            out.push_str("{\"from\":\"local\",\"reason\":");
            quote(reason, out);
            out.push('}');
        }
        out.push_str(if self.errors.is_empty() { "}" } else { "]}" });
    }

    /// The rows of a range; gives what is left of it when the piece is full.
    fn rows(
        &mut self,
        tree: &Tree<'_>,
        range: Range,
        state: &dyn State,
        out: &mut String,
    ) -> Result<Option<Range>, Fault> {
        // Of a single range the tree skips whole pages; of several, each may end within the skipped part.
        let skip = match self.ranges.is_empty() {
            true => std::mem::take(&mut self.window.skip),
            false => 0,
        };
        let mut damaged = false;
        let mut last_key = None;
        let each = |row: Row<'_>| {
            let Some(view_row) = ViewRow::decode(row.key, row.value) else {
                damaged = true;
                return Step::Break(());
            };
            if self.window.shows() {
                self.begin_row(out);
                out.push_str("{\"id\":");
                quote(&view_row.id, out);
                push_key_value(view_row.key, view_row.value, ",", out);
            }
            if out.len() >= PIECE_BYTES {
                last_key = Some(row.key.to_vec());
                return Step::Break(());
            }
            self.window.step()
        };
        tree.rows(state, &range, skip, each).map_err(corrupt)?;
        if damaged {
            return Err(corrupt("row"));
        }
        Ok(last_key.filter(|_| !self.is_over()).map(|key| match range.reverse {
            true => Range { end: key, ..range },
            false => Range { start: [&key[..], b"\0"].concat(), ..range },
        }))
    }

    /// The groups of a range; gives what is left of it when the piece is full.
    fn groups(
        &mut self,
        tree: &Tree<'_>,
        range: Range,
        state: &dyn State,
        out: &mut String,
    ) -> Result<Option<Range>, Fault> {
        let level = self.group_level;
        let group = |key: &[u8]| match level {
            None => 0,
            // A key that is no encoding makes a group of its own, and is reported when it is read.
            Some(usize::MAX) => collate::value_bytes(key).unwrap_or(key.len()),
            Some(level) => collate::group_bytes(key, level).unwrap_or(key.len()),
        };
        let mut last_group = None;
        let mut each = |found: Group| {
            if self.window.shows() {
                match result_json(&found.reduction) {
                    Ok(value) => {
                        self.begin_row(out);
                        push_key_value(&group_key(&found, level), &value, "{", out);
                    }
                    Err(reason) => self.errors.push(reason),
                }
            }
            if out.len() >= PIECE_BYTES
                && let Some((key, _)) = &found.first
            {
                last_group = Some(key[..group(key).min(key.len())].to_vec());
                return Step::Break(());
            }
            if self.is_over() { Step::Break(()) } else { Step::Continue(()) }
        };
        tree.groups(state, &range, &group, &mut each).map_err(corrupt)?;
        Ok(last_group.filter(|_| !self.is_over()).map(|name| match range.reverse {
            true => Range { end: name, ..range },
            false => Range { start: successor(&name), ..range },
        }))
    }

    fn begin_row(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.has_rows, true) {
            out.push_str(",\n");
        }
    }
}

/// What is left to leave out and to give.
struct Window {
    skip: u64,
    limit: u64,
}

impl Window {
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

    fn step(&self) -> Step {
        if self.limit == 0 { Step::Break(()) } else { Step::Continue(()) }
    }
}

fn push_key_value(key: &str, value: &str, before: &str, out: &mut String) {
    out.push_str(before);
    out.push_str("\"key\":");
    out.push_str(key);
    out.push_str(",\"value\":");
    out.push_str(value);
    out.push('}');
}

/// The key of a group: the key of its first row, an array cut to the level.
fn group_key(group: &Group, level: Option<usize>) -> String {
    let Some((key, value)) = &group.first else { return "null".into() };
    let Some(row) = ViewRow::decode(key, value) else { return "null".into() };
    let elements: Option<Vec<&serde_json::value::RawValue>> = serde_json::from_str(row.key).ok();
    match (elements, level) {
        (Some(elements), Some(level)) if elements.len() > level => {
            let texts: Vec<_> = elements[..level].iter().map(|element| element.get()).collect();
            format!("[{}]", texts.join(","))
        }
        _ => row.key.to_owned(),
    }
}
