//! The members of an object, and the merge of two members with the same name.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

/// The member with the times of the others.
const TIMES: &str = "_t";

/// The kind and content of a member.
///
/// Two members of the same kind are joined; of two kinds, the later one here is kept, and of two values the greater
/// one. So the order and the number of merges do not matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Member {
    /// A written value; `None` if it was removed.
    Value { at_ms: u64, text: Option<String> },
    /// Elements, which are only added.
    Set(BTreeSet<String>),
    /// The count of each place; each place adds only to its own number.
    Counter(BTreeMap<String, u64>),
}

/// A set in its written form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSet {
    #[serde(rename = "_set")]
    elements: BTreeSet<String>,
}

/// A counter in its written form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCounter {
    #[serde(rename = "_count")]
    counts: BTreeMap<String, u64>,
}

impl Member {
    fn read(text: &str, at_ms: u64) -> Member {
        if let Ok(WrittenSet { elements }) = serde_json::from_str(text) {
            return Member::Set(elements);
        }
        match serde_json::from_str(text) {
            Ok(WrittenCounter { counts }) => Member::Counter(counts),
            Err(_) => Member::Value { at_ms, text: Some(text.to_owned()) },
        }
    }

    fn join(self, other: Member) -> Member {
        match (self, other) {
            (Member::Set(mut all), Member::Set(others)) => {
                all.extend(others);
                Member::Set(all)
            }
            (Member::Counter(mut counts), Member::Counter(others)) => {
                for (place, count) in others {
                    let known = counts.entry(place).or_default();
                    *known = count.max(*known);
                }
                Member::Counter(counts)
            }
            (one, other) => one.max(other),
        }
    }
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    all: BTreeMap<String, Member>,
    /// Names of values without a time of their own, which have the time of their version.
    untimed: BTreeSet<String>,
}

impl Members {
    /// Parses an object; values without a time have the time `written_ms`.
    ///
    /// # Errors
    /// The defect: not an object, or times that are not whole numbers.
    pub fn read(body: &[u8], written_ms: u64) -> Result<Members, String> {
        let mut found: BTreeMap<String, Box<RawValue>> =
            serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let times: BTreeMap<String, u64> = match found.remove(TIMES) {
            Some(times) => serde_json::from_str(times.get())
                .map_err(|error| format!("{TIMES} has a time for each member: {error}"))?,
            None => BTreeMap::new(),
        };
        let removed = |(name, at_ms): (&String, &u64)| {
            (name.clone(), Member::Value { at_ms: *at_ms, text: None })
        };
        let mut members =
            Members { all: times.iter().map(removed).collect(), untimed: BTreeSet::new() };
        for (name, value) in found {
            let time = times.get(&name).copied();
            let member = Member::read(value.get(), time.unwrap_or(written_ms));
            if time.is_none() && matches!(member, Member::Value { .. }) {
                members.untimed.insert(name.clone());
            }
            members.all.insert(name, member);
        }
        Ok(members)
    }

    /// Compares a version, written at `written_ms`, with its ancestor. A value without a time that equals that of `base` gets
    /// the time that it has there. A member of `base` that is missing here was removed at `written_ms`.
    pub fn compare(&mut self, base: &Members, written_ms: u64) {
        for (name, before) in &base.all {
            match (self.all.get(name), before) {
                (None, Member::Value { text: None, .. }) => {
                    self.all.insert(name.clone(), before.clone());
                }
                (None, _) => {
                    let removed = Member::Value { at_ms: written_ms, text: None };
                    self.all.insert(name.clone(), removed);
                }
                (Some(Member::Value { text, .. }), Member::Value { text: same, .. })
                    if text == same && self.untimed.contains(name) =>
                {
                    self.all.insert(name.clone(), before.clone());
                }
                _ => {}
            }
        }
    }

    /// Removes each set and counter of `base` that one of two versions has removed and the other one has not changed. Call
    /// this after both were [compared](Members::compare) with `base`: sets and counters have no times that could decide.
    pub fn drop_removed(&mut self, other: &mut Members, base: &Members) {
        let grows = |member: &Member| !matches!(member, Member::Value { .. });
        for (name, before) in base.all.iter().filter(|(_, member)| grows(member)) {
            if self.has_removed(name) && other.all.get(name) == Some(before) {
                other.all.remove(name);
            } else if other.has_removed(name) && self.all.get(name) == Some(before) {
                self.all.remove(name);
            }
        }
    }

    fn has_removed(&self, name: &str) -> bool {
        matches!(self.all.get(name), Some(Member::Value { text: None, .. }))
    }

    /// Merges two objects. Their order does not matter.
    pub fn join(mut self, other: Members) -> Members {
        for (name, member) in other.all {
            let joined = match self.all.remove(&name) {
                Some(known) => known.join(member),
                None => member,
            };
            self.all.insert(name, joined);
        }
        self.untimed.clear();
        self
    }

    /// Formats the object as JSON, its members by name. Equal objects give equal bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut times = BTreeMap::new();
        let mut written = BTreeMap::new();
        for (name, member) in &self.all {
            let text = match member {
                Member::Value { at_ms, text } => {
                    times.insert(name, at_ms);
                    text.clone()
                }
                Member::Set(elements) => Some(json(&WrittenSet { elements: elements.clone() })),
                Member::Counter(counts) => Some(json(&WrittenCounter { counts: counts.clone() })),
            };
            written.extend(text.map(|text| (name.as_str(), raw(text))));
        }
        if !times.is_empty() {
            written.insert(TIMES, raw(json(&times)));
        }
        json(&written).into_bytes()
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names are strings, and nothing else can fail")
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("it was read, or written, as JSON")
}
