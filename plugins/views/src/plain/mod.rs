//! Map functions that need no engine.
//!
//! Most map functions look at some fields of a document and emit them. An engine for all of JavaScript spends nearly all of
//! its time on what nobody keeps: an object for the document and one for `meta`, a call, JSON made of each value. Such a
//! function is read here once, and done for each document on the text of its JSON.
//!
//! ```text
//! text of the function ─► parse ─► eval, for each document ─► json ─► what is emitted
//!                           │         │                        │
//!                           └─────────┴────────────────────────┴──► the engine does it, all of it
//! ```
//!
//! Whatever might come out differently is left to the engine: a text that is not of the few forms known here, a call that
//! meets a value it does not know, and whatever throws. Nothing has been emitted by then.
//!
//! Invariant: what is emitted is what the engine emits in a global scope that no code has changed. A test compares them.

mod eval;
mod json;
mod parse;
#[cfg(test)]
mod tests;

use crate::meta::Meta;
use nacre_js::{Emitted, Limits};
use std::ops::Range;

/// A map function that was understood.
pub struct Plain(parse::Function);

impl Plain {
    /// Reads the text of a function that an engine has accepted, here or before; none when it is not of the forms known here.
    pub fn read(source: &str) -> Option<Plain> {
        parse::function(source.trim_end().trim_end_matches(';')).map(Plain)
    }

    /// What the function emits for a document; none when the engine has to tell.
    pub fn emitted(
        &self,
        document: &Document<'_>,
        meta: &Meta<'_>,
        limits: &Limits,
    ) -> Option<Vec<Emitted>> {
        eval::emitted(&self.0, document, meta, limits)
    }
}

/// An object in JSON, and where its members lie.
pub struct Document<'a> {
    text: &'a str,
    /// Names without their quotation marks, and values.
    members: Vec<(Range<usize>, Range<usize>)>,
}

impl<'a> Document<'a> {
    /// Finds the members; none when `text` is no object, nests deeper than `depth_max`, or has names with escapes.
    pub fn read(text: &'a str, depth_max: usize) -> Option<Document<'a>> {
        if !text.trim_ascii_start().starts_with('{') {
            return None;
        }
        let mut members = Vec::with_capacity(MEMBERS_EXPECTED);
        let depth = nacre_value::json::members(text, |name, value| members.push((name, value)))?;
        let is_plain = |(name, _): &(Range<usize>, _)| !text[name.clone()].contains('\\');
        (depth <= depth_max && members.iter().all(is_plain)).then_some(Document { text, members })
    }

    /// The value of a member as JSON. Of equal names the last one counts.
    fn member(&self, name: &str) -> Option<&'a str> {
        let is_wanted = |(own, _): &&(Range<usize>, Range<usize>)| &self.text[own.clone()] == name;
        let (_, value) = self.members.iter().rev().find(is_wanted)?;
        Some(&self.text[value.clone()])
    }

    /// The names of all members, in the order in which they are gone through; none when that is another one than their own.
    fn names(&self) -> Option<Vec<&'a str>> {
        let names: Vec<&str> =
            self.members.iter().map(|(name, _)| &self.text[name.clone()]).collect();
        let is_placed = |(index, name): (usize, &&str)| is_placed(name, &names[..index]);
        names.iter().enumerate().all(is_placed).then_some(names)
    }
}

/// Whether a member stands where it is written, behind those of the names `before`: numbers come first, equal names are one
/// member, and `__proto__` may be none. Behind [`NAMES_MAX`] names it is not looked for.
fn is_placed(name: &str, before: &[&str]) -> bool {
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    !is_number && name != "__proto__" && before.len() < NAMES_MAX && !before.contains(&name)
}

/// Members for which there is room at once.
const MEMBERS_EXPECTED: usize = 16;

/// Names of one object among which equal ones are looked for.
const NAMES_MAX: usize = 32;
