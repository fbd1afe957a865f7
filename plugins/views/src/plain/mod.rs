//! Map functions that run without the engine.
//!
//! Most map functions read some fields of a document and emit them. A JavaScript engine spends nearly all its time on
//! intermediate values: an object for the document and one for `meta`, a call, and the JSON of each value. This module
//! parses such a function once, and then executes it directly on the JSON text of each document.
//!
//! ```text
//! text of the function ─► parse ─► eval, for each document ─► json ─► emitted rows
//!                           │         │                        │
//!                           └─────────┴────────────────────────┴──► otherwise the engine runs the whole call
//! ```
//!
//! The module leaves everything that might produce another result to the engine: a function outside the few supported
//! forms, a call with an unsupported value, and everything that throws. Nothing has been emitted at that point.
//!
//! Invariant: the rows are those that the engine emits in a global scope that no code has changed. A test compares the
//! two.

mod eval;
mod json;
mod parse;
#[cfg(test)]
mod tests;

use crate::meta::Meta;
use nacre_js::{Emitted, Limits};
use std::ops::Range;

/// A map function that runs without the engine.
pub struct Plain(parse::Function);

impl Plain {
    /// Parses a function that an engine has accepted now or earlier. Returns `None` if the function is outside the supported
    /// forms.
    pub fn read(source: &str) -> Option<Plain> {
        parse::function(source.trim_end().trim_end_matches(';')).map(Plain)
    }

    /// Returns what the function emits for a document, or `None` if only the engine can tell.
    pub fn emitted(
        &self,
        document: &Document<'_>,
        meta: &Meta<'_>,
        limits: &Limits,
    ) -> Option<Vec<Emitted>> {
        eval::emitted(&self.0, document, meta, limits)
    }
}

/// A JSON object, with the positions of its members.
pub struct Document<'a> {
    text: &'a str,
    /// Ranges of the names without their quotation marks, and of the values.
    members: Vec<(Range<usize>, Range<usize>)>,
}

impl<'a> Document<'a> {
    /// Finds the members. Returns `None` if `text` is not an object, nests deeper than `depth_max`, or contains names
    /// with escapes.
    pub fn read(text: &'a str, depth_max: usize) -> Option<Document<'a>> {
        if !text.trim_ascii_start().starts_with('{') {
            return None;
        }
        let mut members = Vec::with_capacity(MEMBERS_EXPECTED);
        let depth = nacre_value::json::members(text, |name, value| members.push((name, value)))?;
        let is_plain = |(name, _): &(Range<usize>, _)| !text[name.clone()].contains('\\');
        (depth <= depth_max && members.iter().all(is_plain)).then_some(Document { text, members })
    }

    /// Returns the value of a member as JSON. If a name occurs several times, the last member counts.
    fn member(&self, name: &str) -> Option<&'a str> {
        let is_wanted = |(own, _): &&(Range<usize>, Range<usize>)| &self.text[own.clone()] == name;
        let (_, value) = self.members.iter().rev().find(is_wanted)?;
        Some(&self.text[value.clone()])
    }

    /// Returns the names of all members in their enumeration order, or `None` if this order differs from the order in the
    /// text.
    fn names(&self) -> Option<Vec<&'a str>> {
        let names: Vec<&str> =
            self.members.iter().map(|(name, _)| &self.text[name.clone()]).collect();
        let is_placed = |(index, name): (usize, &&str)| is_placed(name, &names[..index]);
        names.iter().enumerate().all(is_placed).then_some(names)
    }
}

/// Returns true if a member is enumerated in its textual position, after the names in `before`. Numeric names are
/// enumerated first, equal names are one member, and `__proto__` may not be a member. After [`NAMES_MAX`] names the
/// function returns false.
fn is_placed(name: &str, before: &[&str]) -> bool {
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    !is_number && name != "__proto__" && before.len() < NAMES_MAX && !before.contains(&name)
}

/// Initial capacity for members.
const MEMBERS_EXPECTED: usize = 16;

/// Maximum number of an object's names that are compared for equality.
const NAMES_MAX: usize = 32;
