//! A partition's part of an answer, as nodes send it to each other.
//!
//! Numbers and lengths are LEB128. *Bytes* have their length as a prefix.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 4 | `NVP1` |
//! | 1 | flags: 1 for groups instead of rows, 2 if `total_rows` follows, 4 if debug info follows; other bits are 0 |
//! | bytes | name of the node |
//! | number | `total_rows` of this part |
//! | 3 numbers | debug info: rows, bytes and ranges |
//! | items | a row: 1, number of its range, tree key, tree value |
//! | | a group: 1, number of its range, length of its name in the tree key, tree key of its first row, the key of that row as JSON, reduction as in the tree |
//! | 1 | the end: 0 if the part contains everything that the answer may need, 2 if the part was cut after its last item |
//!
//! ```text
//! 4e56503101 01 61    groups, of "a"
//! 01 00 01 02 10 .. 04 null 09 c 02 00 00 00 00 00 00 00
//!                     range 0, the group named 10 whose first row is 10 .., emitted with null: a count of 2
//! 02                  the partition may have more items
//! ```
//!
//! Items are in the order of the answer: by range, then by name ([`Item::name`]) in ascending order, or in descending order
//! if the query says so. A group is complete: it includes all of the partition's rows in the group. Only the first round
//! contains `total_rows` and debug info.
//!
//! The merge applies `skip`. A part with `skip + limit` items needs no more, so it does not count as cut: each of its items
//! has the same or a later position in the merged answer. If the query stops on errors, a failed reduction after the skipped
//! items ends the part too: the merged answer then ends there or before.

use crate::Bounds;
use crate::answer::ValidQuery;
use crate::body::{DebugInfo, Head, Window};
use crate::bytes::{Reader, put_bytes, put_number};
use crate::design::View;
use crate::mask::Mask;
use crate::reduction::error_of;
use crate::rest::Rest;
use crate::row::ViewRow;
use crate::scan::{Group, Item, ItemConsumer, Place, Scan, with_tree};
use nacre_js::Functions;
use nacre_plugin::btree::{Row, Step};
use nacre_plugin::{Fault, Response, State};
use std::cell::RefCell;

const MAGIC: &[u8; 4] = b"NVP1";
const GROUPS: u8 = 1;
const TOTAL_ROWS: u8 = 2;
const DEBUG: u8 = 4;

const END: u8 = 0;
const ITEM: u8 = 1;
const CUT: u8 = 2;

/// Returns the part of `from` for the query, after `rest`.
pub fn give(
    asked: &ValidQuery,
    from: &str,
    rest: Option<&Rest>,
    mask: Option<&Mask>,
    view: &View,
    functions: &RefCell<Functions>,
    state: &dyn State,
    bounds: &Bounds,
) -> Result<Response, Fault> {
    let window = Window { skip: asked.query.skip, limit: asked.query.limit };
    let window = rest.map_or(window, |rest| rest.window);
    let mut scan = Scan::new(asked);
    if let Some(rest) = rest {
        scan.pass(rest.place());
    }
    let body = with_tree(view, functions, mask, |tree| {
        let head = match rest {
            Some(_) => Head::default(),
            None => Head::of(asked, tree, state)?,
        };
        let mut giving = PartWriter {
            out: begun(asked.reduced, from, &head),
            given: 0,
            window,
            stops_on_error: asked.query.stops_on_error,
            bounds,
            end: END,
        };
        if window.item_count() > 0 {
            let _ = scan.read(tree, state, &mut giving)?;
        }
        giving.out.push(giving.end);
        Ok(giving.out)
    })?;
    let headers = vec![("content-type".into(), "application/octet-stream".into())];
    Ok(Response { status: 200, headers, body, cursor: None })
}

fn begun(reduced: bool, from: &str, head: &Head) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let flag = |is_there: bool, flag| if is_there { flag } else { 0 };
    out.push(
        flag(reduced, GROUPS)
            | flag(head.total_rows.is_some(), TOTAL_ROWS)
            | flag(head.debug.is_some(), DEBUG),
    );
    put_bytes(from.as_bytes(), &mut out);
    let DebugInfo { index_rows, index_bytes, range_count } = head.debug.unwrap_or_default();
    let debug = head.debug.map(|_| [index_rows, index_bytes, range_count]);
    let numbers = head.total_rows.into_iter().chain(debug.into_iter().flatten());
    numbers.for_each(|number| put_number(number, &mut out));
    out
}

fn put_item(range: usize, item: &Item<'_>, out: &mut Vec<u8>) {
    out.push(ITEM);
    put_number(range as u64, out);
    match item {
        Item::Row(Row { key, value }, _) => {
            put_bytes(key, out);
            put_bytes(value, out);
        }
        Item::Group(Group { name, first, key, reduction }) => {
            put_number(name.len() as u64, out);
            put_bytes(first, out);
            put_bytes(key.as_bytes(), out);
            put_bytes(reduction, out);
        }
    }
}

/// A part that is being written.
struct PartWriter<'a> {
    out: Vec<u8>,
    given: u64,
    window: Window,
    stops_on_error: bool,
    bounds: &'a Bounds,
    end: u8,
}

impl ItemConsumer for PartWriter<'_> {
    fn take(&mut self, range: usize, item: Item<'_>) -> Step {
        put_item(range, &item, &mut self.out);
        self.given += 1;
        if self.given >= self.window.item_count() {
            return Step::Break(());
        }
        if let Item::Group(group) = &item {
            let ends = self.stops_on_error && self.given > self.window.skip;
            // Nothing follows the single group of all rows.
            if group.name.is_empty() || (ends && error_of(group.reduction).is_some()) {
                return Step::Break(());
            }
        }
        let is_group = matches!(item, Item::Group(_));
        let is_full = self.out.len() >= self.bounds.part_bytes
            || (is_group && self.given >= self.bounds.reductions);
        if !is_full {
            return Step::Continue(());
        }
        self.end = CUT;
        Step::Break(())
    }
}

/// A decoded part, whose items have all been validated.
pub struct Part<'a> {
    /// The node that sent the part.
    pub from: &'a str,
    /// The part's data before its items.
    pub head: Head,
    /// The items.
    pub items: Items<'a>,
    /// The place at which the part was cut, if it was.
    pub cut: Option<Place<'a>>,
}

impl<'a> Part<'a> {
    /// Decodes a part of the query's answer, after `rest`.
    ///
    /// # Errors
    /// [`Fault::Reject`] with the offset if the bytes are not such a part.
    pub fn read(
        body: &'a [u8],
        asked: &ValidQuery,
        rest: Option<&Rest>,
    ) -> Result<Part<'a>, Fault> {
        let mut reader = Reader(body);
        Part::try_read(&mut reader, asked, rest).ok_or_else(|| {
            let offset = body.len() - reader.0.len();
            Fault::Reject(format!("malformed part of an answer, before byte {offset}"))
        })
    }

    fn try_read(
        reader: &mut Reader<'a>,
        asked: &ValidQuery,
        rest: Option<&Rest>,
    ) -> Option<Part<'a>> {
        for byte in MAGIC {
            only_if(reader.byte()? == *byte)?;
        }
        let flags = reader.byte()?;
        let from = reader.text()?;
        let flag = |flag: u8| flags & flag != 0;
        let total_rows = if flag(TOTAL_ROWS) { Some(reader.number()?) } else { None };
        let debug = if flag(DEBUG) { Some(debug_info(reader)?) } else { None };
        // The part must not answer another query, or another round of this query.
        let is_first = rest.is_none();
        only_if(flags & !(GROUPS | TOTAL_ROWS | DEBUG) == 0 && flag(GROUPS) == asked.reduced)?;
        only_if(total_rows.is_some() == (is_first && !asked.reduced))?;
        only_if(debug.is_some() == (is_first && asked.query.debug))?;

        let items = Items { reader: *reader, reduced: asked.reduced };
        let mut last: Option<Place<'a>> = None;
        loop {
            let (range, item) = match next(reader, asked.reduced)? {
                Next::Item(range, item) => (range, item),
                Next::End { is_cut } => {
                    let cut = last.filter(|_| is_cut);
                    only_if(reader.0.is_empty() && is_cut == cut.is_some())?;
                    return Some(Part { from, head: Head { total_rows, debug }, items, cut });
                }
            };
            let place = Place { range, name: item.name() };
            let before: Option<Place<'_>> = last.or(rest.map(Rest::place));
            let follows =
                |before: Place<'_>| before.compare(&place, asked.query.descending).is_lt();
            only_if(before.is_none_or(follows) && range < asked.ranges.len())?;
            // Only the group of all rows has an empty name.
            let is_all = asked.reduced && asked.query.group_level.is_none();
            only_if(place.name.is_empty() == is_all)?;
            last = Some(place);
        }
    }
}

/// The items of a part, in order.
#[derive(Clone)]
pub struct Items<'a> {
    reader: Reader<'a>,
    reduced: bool,
}

impl<'a> Iterator for Items<'a> {
    type Item = (usize, Item<'a>);

    fn next(&mut self) -> Option<(usize, Item<'a>)> {
        match next(&mut self.reader, self.reduced)? {
            Next::Item(range, item) => Some((range, item)),
            Next::End { .. } => None,
        }
    }
}

enum Next<'a> {
    Item(usize, Item<'a>),
    End { is_cut: bool },
}

fn next<'a>(reader: &mut Reader<'a>, reduced: bool) -> Option<Next<'a>> {
    match reader.byte()? {
        ITEM => {
            let range = reader.index()?;
            let item = if reduced { group(reader)? } else { row(reader)? };
            Some(Next::Item(range, item))
        }
        END => Some(Next::End { is_cut: false }),
        CUT => Some(Next::End { is_cut: true }),
        _ => None,
    }
}

fn row<'a>(reader: &mut Reader<'a>) -> Option<Item<'a>> {
    let row = Row { key: reader.bytes()?, value: reader.bytes()? };
    Some(Item::Row(row, ViewRow::decode(row.key, row.value)?))
}

fn group<'a>(reader: &mut Reader<'a>) -> Option<Item<'a>> {
    let name_bytes = reader.index()?;
    let first = reader.bytes()?;
    let name = first.get(..name_bytes)?;
    Some(Item::Group(Group { name, first, key: reader.text()?, reduction: reader.bytes()? }))
}

fn debug_info(reader: &mut Reader<'_>) -> Option<DebugInfo> {
    let (index_rows, index_bytes) = (reader.number()?, reader.number()?);
    Some(DebugInfo { index_rows, index_bytes, range_count: reader.number()? })
}

/// Returns `None` unless `is_so`.
fn only_if(is_so: bool) -> Option<()> {
    is_so.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    fn asked(query: &str) -> ValidQuery {
        let query = Query::parse(query, b"").unwrap();
        ValidQuery { view: 0, reduced: true, ranges: query.ranges().unwrap(), query }
    }

    const EXAMPLE: &[u8] = b"NVP1\x01\x01a\
        \x01\x00\x01\x02\x10.\x04null\x09c\x02\0\0\0\0\0\0\0\
        \x02";

    #[test]
    fn the_example_of_the_format_is_correct() {
        let group = Group {
            name: b"\x10",
            first: b"\x10.",
            key: "null",
            reduction: b"c\x02\0\0\0\0\0\0\0",
        };
        let mut out = begun(true, "a", &Head::default());
        put_item(0, &Item::Group(group), &mut out);
        out.push(CUT);
        assert_eq!(out, EXAMPLE);
    }

    #[test]
    fn only_the_requested_part_is_read() {
        let rest = |name: &[u8]| {
            let window = Window { skip: 0, limit: 9 };
            Rest { range: 0, name: name.into(), window, has_rows: true, failures: Vec::new() }
        };
        let is_read =
            |query: &str, rest: Option<&Rest>| Part::read(EXAMPLE, &asked(query), rest).is_ok();
        assert!(is_read("group=true", None));
        assert!(is_read("group=true", Some(&rest(b"\x0f"))));
        assert!(!is_read("group=true", Some(&rest(b"\x10"))), "that was the last round");
        assert!(is_read("group=true&descending=true", Some(&rest(b"\x11"))));
        assert!(!is_read("group=true&descending=true", Some(&rest(b"\x0f"))));
        assert!(!is_read("", None), "a group has a name");
        assert!(!is_read("group=true&keys=[]", None), "there is no range");
        assert!(!is_read("group=true&debug=true", None));
        let error = Part::read(&EXAMPLE[..20], &asked("group=true"), None).err();
        let error = error.map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("malformed part of an answer, before byte 19"));
    }
}
