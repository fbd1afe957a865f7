//! Finds the positions of a query's terms in a document.

use super::plan::{Node, PhraseSlot};
use crate::document::{Field, FieldValue, Mapped};
use crate::index::ALL;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of positions in a document.
const PLACES_MAX: usize = 10_000;

/// An occurrence of a term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The number of the word, starting at 1.
    pub position: u32,
    /// The start in bytes.
    pub start: usize,
    /// The end in bytes.
    pub end: usize,
    /// The index in each enclosing array.
    pub array: Vec<u32>,
}

/// Occurrences by field and term.
pub type Places = BTreeMap<String, BTreeMap<String, Vec<Place>>>;

struct Value<'a> {
    field: &'a Field,
    /// The occurrences of each term, in order.
    tokens: BTreeMap<String, Vec<Place>>,
}

/// The tokenised texts of a document.
pub struct Located<'a> {
    values: Vec<Value<'a>>,
}

impl<'a> Located<'a> {
    /// Tokenises the texts of a document.
    pub fn new(mapped: &'a Mapped) -> Located<'a> {
        let mut values = Vec::new();
        for field in &mapped.fields {
            if !field.index || !field.term_vectors {
                continue;
            }
            let mut tokens: BTreeMap<String, Vec<Place>> = BTreeMap::new();
            let place = |position, start, end| Place {
                position,
                start,
                end,
                array: field.positions.clone(),
            };
            match &field.value {
                FieldValue::Text(text, analyzer) => analyzer.analyze_in_parts(text, |found| {
                    for token in found {
                        let place = place(token.position, token.start, token.end);
                        tokens.entry(token.term).or_default().push(place);
                    }
                }),
                FieldValue::Boolean(flag) => {
                    tokens.insert(if *flag { "T" } else { "F" }.into(), vec![place(1, 0, 1)]);
                }
                _ => continue,
            }
            values.push(Value { field, tokens });
        }
        Located { values }
    }

    fn values(&self, path: &str) -> impl Iterator<Item = &Value<'a>> {
        let is_all = path == ALL;
        self.values
            .iter()
            .filter(move |value| if is_all { value.field.in_all } else { value.field.name == path })
    }

    /// Returns the occurrences of what a query has matched.
    pub fn places(&self, node: &Node) -> Places {
        let mut places = Places::new();
        let mut left = PLACES_MAX;
        self.collect(node, &mut places, &mut left);
        for of_term in places.values_mut().flat_map(BTreeMap::values_mut) {
            of_term.sort_by(|a, b| (&a.array, a.start, a.end).cmp(&(&b.array, b.start, b.end)));
            of_term.dedup();
        }
        places
    }

    /// Adds the occurrences for a node, and returns whether the node matches. A node that cannot be located counts as a
    /// match.
    fn collect(&self, node: &Node, places: &mut Places, left: &mut usize) -> bool {
        match node {
            Node::None => false,
            Node::All { .. } | Node::Ids { .. } | Node::Column { .. } | Node::Nearest { .. } => {
                true
            }
            Node::Term { path, term } => {
                let mut any = false;
                for value in self.values(path) {
                    if let Some(found) = value.tokens.get(&term.term) {
                        any = true;
                        add(places, &value.field.name, &term.term, found, left);
                    }
                }
                any || self.values(path).next().is_none()
            }
            Node::Phrase { paths, slots } => {
                let (mut any, mut is_known) = (false, false);
                for value in paths.iter().flat_map(|path| self.values(path)) {
                    is_known = true;
                    any |= collect_phrase(value, slots, places, left);
                }
                any || !is_known
            }
            Node::And(parts) => {
                let mut own = Places::new();
                let all = parts.iter().all(|part| self.collect(part, &mut own, left));
                if all {
                    merge(places, own);
                }
                all
            }
            Node::Or { parts, min, .. } => {
                let mut own = Places::new();
                let matched =
                    parts.iter().filter(|part| self.collect(part, &mut own, left)).count();
                let enough = matched >= (*min).max(1);
                if enough {
                    merge(places, own);
                }
                enough
            }
            Node::Boolean { base, optional, filter, .. } => {
                let matched = self.collect(base, places, left);
                for part in optional.iter().chain(filter) {
                    self.collect(part, places, left);
                }
                matched
            }
        }
    }
}

fn add(places: &mut Places, path: &str, term: &str, found: &[Place], left: &mut usize) {
    let count = found.len().min(*left);
    *left -= count;
    let of_field = places.entry(path.to_owned()).or_default();
    of_field.entry(term.to_owned()).or_default().extend(found[..count].iter().cloned());
}

fn merge(places: &mut Places, other: Places) {
    for (path, terms) in other {
        for (term, found) in terms {
            places.entry(path.clone()).or_default().entry(term).or_default().extend(found);
        }
    }
}

fn collect_phrase(
    value: &Value<'_>,
    slots: &[PhraseSlot],
    places: &mut Places,
    left: &mut usize,
) -> bool {
    let find = |slot: &PhraseSlot, position: u32| {
        slot.terms.iter().find_map(|term| {
            let found =
                value.tokens.get(&term.term)?.iter().find(|place| place.position == position);
            found.map(|place| (term.term.clone(), place.clone()))
        })
    };
    let mut any = false;
    for first in &slots[0].terms {
        for place in value.tokens.get(&first.term).map(Vec::as_slice).unwrap_or_default() {
            let start = place.position;
            let base = slots[0].offset;
            let chain: Option<Vec<_>> =
                slots.iter().map(|slot| find(slot, start + slot.offset - base)).collect();
            for (term, place) in chain.into_iter().flatten() {
                any = true;
                add(places, &value.field.name, &term, &[place], left);
            }
        }
    }
    any
}
