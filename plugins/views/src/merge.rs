//! Putting the parts of an answer together.
//!
//! ```text
//! a   1 ── 3 ── 4 ── 7 ┊          cut behind 7
//! b   2 ── 3 ── 9                 all there is
//!     1  2  3+3  4  7 │ 9         this round ends with 7: behind it, a may have more
//! ```
//!
//! Items are taken in the order of the answer (range, then name), groups of equal name are reduced again. As far as the least
//! last item of the parts that were cut, no part can have more than it gave, so that what is given is complete. An answer that
//! is not at its end then has a [`Rest`]: the host asks all parts again with it, and the next merge goes on behind that
//! item. A round also ends when it has made much of a text, or has reduced many groups. In each round at least one
//! item is given or left out, and the texts of all rounds are one answer.
//!
//! Of a group that cannot be reduced, every node is named on which it failed. A node may have several parts: what they tell of
//! themselves is added up.

use crate::Bounds;
use crate::answer::Asked;
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
    /// The pieces of its text; there is at least one, which may be empty.
    pub pieces: VecDeque<String>,
    /// What is left for the next round.
    pub rest: Option<Rest>,
}

/// Makes a round of the answer from the parts that are `partials`, behind the `rest` of the last round.
///
/// # Errors
/// [`Fault::Reject`] when one of them is no part of the answer.
pub fn merge(
    asked: &Asked,
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

/// A part of which items are taken.
struct Source<'a> {
    from: &'a str,
    items: Items<'a>,
    /// The item that is next.
    head: Option<(usize, Item<'a>)>,
}

impl<'a> Source<'a> {
    fn place(&self) -> Option<Place<'a>> {
        self.head.as_ref().map(|(range, item)| Place { range: *range, name: item.name() })
    }

    /// The next item, if it stands at `place`.
    fn take_at(&mut self, place: Place<'_>) -> Option<Item<'a>> {
        if self.place() != Some(place) {
            return None;
        }
        let next = self.items.next();
        std::mem::replace(&mut self.head, next).map(|(_, item)| item)
    }
}

/// A round that is being made.
struct Round<'a> {
    descending: bool,
    reducer: ViewReducer<'a>,
    body: Body,
    pieces: VecDeque<String>,
    /// How much of a text there is in the pieces.
    bytes: usize,
    /// How many groups were reduced again.
    reductions: u64,
    bounds: &'a Bounds,
}

impl Round<'_> {
    /// Gives what can be given; the place of the last item if the answer is not at its end.
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

    /// Gives the items that stand at `place`.
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

/// The value of a group, of which every part in `groups` has rows; those of a node come one after another.
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
