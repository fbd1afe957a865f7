//! Merges the parts of an answer.
//!
//! ```text
//! a   1 ── 3 ── 4 ── 7 ┊          cut after 7
//! b   2 ── 3 ── 9                 complete
//!     1  2  3+3  4  7 │ 9         this round ends with 7: a may have more items after it
//! ```
//!
//! The merge takes items in the order of the answer (range, then name), and re-reduces groups with equal names. Up to the
//! smallest last item of the cut parts, no part can have any further items, so that the merge is complete up to that item. If
//! the answer is then not at its end, it has a [`Rest`]: the host sends it to all partitions in the next round, and the next
//! merge continues after that item. A round also ends when its text is long enough, or when it has re-reduced many groups.
//! Each round returns or skips at least one item. The concatenated texts of all rounds are the answer.
//!
//! If a group cannot be reduced, the answer names every node on which that failed. A node may have several parts: their totals
//! are added.

use crate::Bounds;
use crate::answer::ValidQuery;
use crate::body::{Body, DebugInfo, Failure};
use crate::design::View;
use crate::part::{Items, Part};
use crate::reduction::{ViewReducer, error_of, result_json};
use crate::rest::Rest;
use crate::scan::{Group, Item, Place};
use nacre_js::Functions;
use nacre_plugin::btree::Reducer as _;
use nacre_plugin::{Fault, Response};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// A round of an answer.
pub struct Merged {
    /// The pieces of the round's text. There is at least one, which may be empty.
    pub pieces: VecDeque<String>,
    /// The remainder for the next round.
    pub rest: Option<Rest>,
}

/// Creates a round of the answer from the parts in `partials`, after the `rest` of the last round.
///
/// # Errors
/// [`Fault::Reject`] if one of them is not a part of the answer.
pub fn merge(
    asked: &ValidQuery,
    rest: Option<Rest>,
    view: &View,
    functions: &RefCell<Functions>,
    partials: &[Response],
    bounds: &Bounds,
) -> Result<Merged, Fault> {
    let parts = partials.iter().map(|partial| Part::read(&partial.body, asked, rest.as_ref()));
    let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
    let mut body = Body::new(asked);
    match rest {
        Some(rest) => body.resume(rest),
        None => begin(&parts, &mut body),
    }
    let reducer = ViewReducer { reduce: view.reduce.as_ref(), functions };
    let mut round = Round {
        descending: asked.query.descending,
        reducer,
        body,
        pieces: VecDeque::new(),
        bytes: 0,
        reductions: 0,
        bounds,
    };
    let stop = round.run(parts);
    let Round { mut body, mut pieces, .. } = round;
    let rest = stop.map(|place| body.rest_at(place));
    if rest.is_none() {
        body.end();
    }
    if body.len() > 0 || pieces.is_empty() {
        pieces.push_back(body.take_text());
    }
    Ok(Merged { pieces, rest })
}

fn begin(parts: &[Part<'_>], body: &mut Body) {
    let totals = parts.iter().filter_map(|part| part.head.total_rows);
    let mut debug: Vec<(&str, DebugInfo)> = Vec::new();
    for (from, info) in parts.iter().filter_map(|part| Some((part.from, part.head.debug?))) {
        match debug.iter_mut().find(|(known, _)| *known == from) {
            Some((_, sum)) => {
                sum.index_rows = sum.index_rows.saturating_add(info.index_rows);
                sum.index_bytes = sum.index_bytes.saturating_add(info.index_bytes);
            }
            None => debug.push((from, info)),
        }
    }
    body.begin(totals.reduce(u64::saturating_add), &debug);
}

/// A part from which the merge takes items.
struct Source<'a> {
    from: &'a str,
    items: Items<'a>,
    /// The next item.
    head: Option<(usize, Item<'a>)>,
}

impl<'a> Source<'a> {
    fn place(&self) -> Option<Place<'a>> {
        self.head.as_ref().map(|(range, item)| Place { range: *range, name: item.name() })
    }

    /// Takes the next item if its place is `place`.
    fn take_at(&mut self, place: Place<'_>) -> Option<Item<'a>> {
        if self.place() != Some(place) {
            return None;
        }
        let next = self.items.next();
        std::mem::replace(&mut self.head, next).map(|(_, item)| item)
    }
}

/// A round in progress.
struct Round<'a> {
    descending: bool,
    reducer: ViewReducer<'a>,
    body: Body,
    pieces: VecDeque<String>,
    /// Size of the text in the pieces.
    bytes: usize,
    /// Number of groups that were re-reduced.
    reductions: u64,
    bounds: &'a Bounds,
}

impl Round<'_> {
    /// Returns all items that are complete. The result is the place of the last item unless the answer is at its end.
    fn run<'p>(&mut self, parts: Vec<Part<'p>>) -> Option<Place<'p>> {
        let cuts = parts.iter().filter_map(|part| part.cut);
        let border = self.first_of(cuts);
        let mut sources: Vec<_> = parts
            .into_iter()
            .map(|Part { from, mut items, .. }| Source { from, head: items.next(), items })
            .collect();
        let mut last = None;
        while !self.body.is_over() {
            let Some(place) = self.first_of(sources.iter().filter_map(Source::place)) else {
                return border;
            };
            if border.is_some_and(|border| self.compare(border, place).is_lt()) {
                return border;
            }
            if last.is_some() && self.is_full() {
                return last;
            }
            self.give(place, &mut sources);
            last = Some(place);
        }
        None
    }

    fn compare(&self, a: Place<'_>, b: Place<'_>) -> Ordering {
        a.compare(&b, self.descending)
    }

    fn first_of<'p>(&self, places: impl Iterator<Item = Place<'p>>) -> Option<Place<'p>> {
        places.min_by(|a, b| self.compare(*a, *b))
    }

    fn is_full(&self) -> bool {
        self.bytes + self.body.len() >= self.bounds.round_bytes
            || self.reductions >= self.bounds.reductions
    }

    /// Returns the items at `place`.
    fn give(&mut self, place: Place<'_>, sources: &mut [Source<'_>]) {
        let mut groups = Vec::new();
        for source in sources {
            match source.take_at(place) {
                Some(Item::Row(_, row)) => self.body.row(&row),
                Some(Item::Group(group)) => groups.push((source.from, group)),
                None => {}
            }
        }
        let first = groups.iter().map(|(_, group)| group).min_by(|a, b| {
            let [a, b] = [a, b].map(|group| Place { name: group.first, ..place });
            self.compare(a, b)
        });
        if let Some(&Group { key, .. }) = first {
            let value = || {
                self.reductions += u64::from(groups.len() > 1);
                value_of(&groups, &self.reducer)
            };
            self.body.group(key, value);
        }
        if self.body.len() >= self.bounds.piece_bytes {
            self.bytes += self.body.len();
            self.pieces.push_back(self.body.take_text());
        }
    }
}

/// Returns the value of a group, of which every part in `groups` has rows. The parts of a node follow one another.
fn value_of(
    groups: &[(&str, Group<'_>)],
    reducer: &ViewReducer<'_>,
) -> Result<String, Vec<Failure>> {
    let failure = |(from, group): &(&str, Group<'_>)| {
        let reason = error_of(group.reduction)?;
        Some(Failure { from: (*from).to_owned(), reason })
    };
    let mut failures: Vec<_> = groups.iter().filter_map(failure).collect();
    failures.dedup_by(|one, before| one.from == before.from);
    if !failures.is_empty() {
        return Err(failures);
    }
    let value = match groups {
        [(_, only)] => result_json(only.reduction),
        _ => {
            let parts: Vec<_> = groups.iter().map(|(_, group)| group.reduction).collect();
            result_json(&reducer.rereduce(&parts))
        }
    };
    value.map_err(|reason| vec![Failure::local(reason)])
}
