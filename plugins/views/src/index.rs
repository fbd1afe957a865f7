//! The write side: converts documents into rows.

use crate::LIMITS;
use crate::design::{Design, View};
use crate::meta::Meta;
use crate::plain::Document;
use crate::reduction::ViewReducer;
use crate::row::{
    back_key, back_prefix, corrupt, note, noted, tree_key, tree_value, without_number,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_js::{Argument, Emitted, Functions};
use nacre_plugin::btree::{Change, Tree};
use nacre_plugin::{DocumentError, Event, EventKind, Events, Fault, StateMut, collate, successor};
use std::cell::RefCell;

const DATATYPE_SNAPPY: u8 = 2;
/// Initial capacity for the notes of a document, in bytes.
const NOTES_BYTES_EXPECTED: usize = 256;
/// Number of documents that one call of a rollback removes; this takes some tens of milliseconds.
const ROLLBACK_COUNT: u32 = 2000;

/// The changes that a batch makes in the tree of each view.
type Changes = Vec<Vec<Change>>;

/// Applies a batch to the indexes.
pub fn apply(
    design: &Design,
    functions: &RefCell<Functions>,
    events: &Events<'_>,
    state: &mut dyn StateMut,
) -> Result<Vec<DocumentError>, Fault> {
    let mut changes: Changes = vec![Vec::new(); design.views.len()];
    let mut errors = Vec::new();
    for event in events.iter() {
        let back_key = back_key(event.vb, event.key);
        // If a document changes twice in a batch, this finds what the first change has noted.
        let old = state.get(&back_key);
        if let Some(old) = &old {
            remove_noted(old, &mut changes)?;
        }
        let mut notes = Vec::with_capacity(NOTES_BYTES_EXPECTED);
        if event.kind == EventKind::Upsert {
            let functions = &mut functions.borrow_mut();
            let failures = map(design, functions, &event, &mut changes, &mut notes);
            if !failures.is_empty() {
                let message = failures.join("; ");
                errors.push(DocumentError { index: event.index, message });
            }
        }
        if !notes.is_empty() {
            state.put(&back_key, &notes);
        } else if old.is_some() {
            state.delete(&back_key);
        }
    }
    change_trees(design, functions, changes, state)?;
    Ok(errors)
}

/// Removes the rows of some documents of a vBucket. Returns true if these were the last documents.
pub fn remove_part_of_vbucket(
    design: &Design,
    functions: &RefCell<Functions>,
    vb: u16,
    state: &mut dyn StateMut,
) -> Result<bool, Fault> {
    let mut changes: Changes = vec![Vec::new(); design.views.len()];
    let prefix = back_prefix(vb);
    let end = successor(&prefix);
    for (key, notes) in state.scan(&prefix, &end, ROLLBACK_COUNT, false) {
        remove_noted(&notes, &mut changes)?;
        state.delete(&key);
    }
    change_trees(design, functions, changes, state)?;
    Ok(state.scan(&prefix, &end, 1, false).is_empty())
}

fn remove_noted(notes: &[u8], changes: &mut Changes) -> Result<(), Fault> {
    for (view, key) in noted(notes).ok_or_else(|| corrupt("back index"))? {
        let view = changes.get_mut(view).ok_or_else(|| corrupt("view number"))?;
        view.push((key.to_vec(), None));
    }
    Ok(())
}

fn change_trees(
    design: &Design,
    functions: &RefCell<Functions>,
    changes: Changes,
    state: &mut dyn StateMut,
) -> Result<(), Fault> {
    for (view, changes) in design.views.iter().zip(changes) {
        let reducer = ViewReducer { reduce: view.reduce.as_ref(), functions };
        let changes = in_order(changes);
        Tree::new(&view.prefix, &reducer).apply(state, &changes).map_err(corrupt)?;
        forward_log(&mut functions.borrow_mut());
    }
    Ok(())
}

/// Returns the changes sorted by key, with only the last change of each key.
fn in_order(mut changes: Vec<Change>) -> Vec<Change> {
    // Most keys of a view share a prefix and differ soon after it. Comparing the first word after the prefix therefore
    // avoids most memory accesses.
    let alike = alike_bytes(&changes);
    let key = |at: u32| &changes[at as usize].0[alike..];
    let mut places: Vec<_> =
        (0..changes.len() as u32).map(|at| (first_word(key(at)), at)).collect();
    places.sort_unstable_by(|&(word, at), &(other_word, other)| {
        word.cmp(&other_word).then_with(|| key(at).cmp(key(other))).then(at.cmp(&other))
    });
    let mut ordered: Vec<Change> = Vec::with_capacity(changes.len());
    for (_, at) in places {
        let change = std::mem::take(&mut changes[at as usize]);
        match ordered.last_mut() {
            Some(earlier) if earlier.0 == change.0 => *earlier = change,
            _ => ordered.push(change),
        }
    }
    ordered
}

/// Returns the first eight bytes as a number with the same order; missing bytes count as zeros.
fn first_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let count = bytes.len().min(word.len());
    word[..count].copy_from_slice(&bytes[..count]);
    u64::from_be_bytes(word)
}

/// Returns the number of leading bytes that all keys share.
fn alike_bytes(changes: &[Change]) -> usize {
    let Some(((one, _), others)) = changes.split_first() else { return 0 };
    others.iter().fold(one.len(), |alike, (key, _)| {
        let differs = one[..alike].iter().zip(key).position(|(one, other)| one != other);
        differs.unwrap_or(alike.min(key.len()))
    })
}

/// Maps a document with every view. Returns the failures, for the author of the views.
fn map(
    design: &Design,
    functions: &mut Functions,
    event: &Event<'_>,
    changes: &mut Changes,
    notes: &mut Vec<u8>,
) -> Vec<String> {
    if event.datatype & DATATYPE_SNAPPY != 0 {
        return vec!["the body is compressed".into()];
    }
    let meta = Meta::of(event);
    let text = match meta.is_json().then(|| simdutf8::compat::from_utf8(event.body)).transpose() {
        Ok(text) => text,
        Err(error) => return vec![format!("the body is not UTF-8: {error}")],
    };
    let document = text
        .filter(|_| design.views.iter().any(|view| view.plain.is_some()))
        .and_then(|text| Document::read(text, LIMITS.json_depth_max));
    // The input of the engine, created when a view first needs it.
    let mut given = None;
    let mut failures = Vec::new();
    for (number, view) in design.views.iter().enumerate() {
        let understood = view.plain.as_ref().zip(document.as_ref());
        let emitted =
            understood.and_then(|(plain, document)| plain.emitted(document, &meta, &LIMITS));
        let emitted = match (emitted, &mut given) {
            (Some(emitted), _) => Ok(emitted),
            (None, Some(given)) => emitted_in_engine(design, functions, view, &meta, given),
            (None, given) => match EngineInput::to(functions, event, &meta, text) {
                Ok(first) => emitted_in_engine(design, functions, view, &meta, given.insert(first)),
                Err(error) => return vec![error.to_string()],
            },
        };
        let rows =
            emitted.map_err(|error| error.to_string()).and_then(|emitted| rows_of(event, &emitted));
        match rows {
            Ok(rows) => {
                for (key, value) in rows {
                    note(number, &key, notes);
                    changes[number].push((key, Some(value)));
                }
            }
            Err(message) => failures.push(format!("view {:?}: {message}", view.name)),
        }
    }
    failures
}

/// A row of the tree: its key and its value.
type Row = (Vec<u8>, Vec<u8>);

/// Returns the rows that a document emitted, as keys and values of a tree. Rows with equal keys are sorted by their values,
/// as in CouchDB.
///
/// # Errors
/// The reason why an emitted key cannot be collated.
fn rows_of(event: &Event<'_>, emitted: &[Emitted]) -> Result<Vec<Row>, String> {
    let row = |(number, emitted): (u32, &Emitted)| {
        let key = tree_key(&emitted.key, event.key, number)?;
        Ok((key, tree_value(event.vb, &emitted.key, &emitted.value)))
    };
    let mut rows = (0..).zip(emitted).map(row).collect::<Result<Vec<_>, String>>()?;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by(|a, b| rows[*a].0.cmp(&rows[*b].0));
    let is_same_key =
        |a: &usize, b: &usize| without_number(&rows[*a].0) == without_number(&rows[*b].0);
    let alike: Vec<Vec<usize>> =
        order.chunk_by(is_same_key).filter(|run| run.len() > 1).map(<[usize]>::to_vec).collect();
    for mut run in alike {
        run.sort_by_cached_key(|at| collated_value(&emitted[*at].value));
        for (number, at) in (0u32..).zip(run) {
            let key = &mut rows[at].0;
            let end = without_number(key).len();
            key[end..].copy_from_slice(&number.to_be_bytes());
        }
    }
    Ok(rows)
}

/// Returns bytes that sort like the value. A value that cannot be a key sorts last, in the order of its text.
fn collated_value(json: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match collate::encode(json, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => [b"\xff", json.as_bytes()].concat(),
    }
}

/// The engine's input for a document.
struct EngineInput {
    rev: String,
    /// The body in base64, unless it is JSON.
    base64: Option<String>,
}

impl EngineInput {
    fn to(
        functions: &mut Functions,
        event: &Event<'_>,
        meta: &Meta<'_>,
        text: Option<&str>,
    ) -> Result<EngineInput, nacre_js::Error> {
        text.map(|text| functions.engine()?.set_document(text)).transpose()?;
        let base64 = text.is_none().then(|| BASE64_STANDARD.encode(event.body));
        Ok(EngineInput { rev: meta.rev(), base64 })
    }
}

fn emitted_in_engine(
    design: &Design,
    functions: &mut Functions,
    view: &View,
    meta: &Meta<'_>,
    given: &EngineInput,
) -> Result<Vec<Emitted>, nacre_js::Error> {
    // Each view gets its own copy, because a map function may change its argument.
    let document = given.base64.as_deref().map_or(Argument::Document, Argument::Text);
    let members = meta.arguments(&given.rev);
    let meta = Argument::Made(design.meta, &members);
    let emitted = functions.engine()?.call_for_emitted(view.map, &[document, meta]);
    forward_log(functions);
    emitted
}

fn forward_log(functions: &mut Functions) {
    for line in functions.take_log() {
        nacre_plugin::log(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn changes_come_in_the_order_of_their_keys_and_the_last_of_one_key_counts(
            alike in prop::collection::vec(0..3_u8, 0..12),
            ends in prop::collection::vec(prop::collection::vec(0..2_u8, 0..12), 0..40),
        ) {
            let key = |end: &Vec<u8>| [&alike[..], end].concat();
            let change = |(number, end)| (key(end), Some(vec![number as u8]));
            let changes: Vec<Change> = ends.iter().enumerate().map(change).collect();
            let expected: BTreeMap<_, _> = changes.iter().cloned().collect();
            prop_assert_eq!(in_order(changes), expected.into_iter().collect::<Vec<_>>());
        }
    }
}
