//! The write side: documents to rows.

use crate::design::Design;
use crate::reduction::ViewReducer;
use crate::row::{back_key, back_prefix, corrupt, note, noted, tree_key, tree_value};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_js::{Argument, Engine};
use nacre_plugin::btree::Tree;
use nacre_plugin::{
    DATATYPE_JSON, DocumentError, Event, EventKind, Events, Fault, StateMut, successor,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

const DATATYPE_SNAPPY: u8 = 2;
/// Documents that one call of a rollback removes: some tens of milliseconds.
const ROLLBACK_COUNT: u32 = 2000;

/// What a batch changes in each view's tree: a new value, or none to remove the row.
type Changes = Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>>;

/// Takes a batch into the indexes.
pub fn apply(
    design: &Design,
    engine: &RefCell<Engine>,
    events: &Events<'_>,
    state: &mut dyn StateMut,
) -> Result<Vec<DocumentError>, Fault> {
    let mut changes: Changes = vec![BTreeMap::new(); design.views.len()];
    // A document may change twice in a batch: what the first change noted is found here.
    let mut back: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    let mut errors = Vec::new();
    for event in events.iter() {
        let back_key = back_key(event.vb, event.key);
        let old = match back.get(&back_key) {
            Some(old) => old.clone(),
            None => state.get(&back_key),
        };
        if let Some(old) = &old {
            remove_noted(old, &mut changes)?;
        }
        let mut notes = Vec::new();
        if event.kind == EventKind::Upsert {
            let failures = map(design, &mut engine.borrow_mut(), &event, &mut changes, &mut notes);
            if !failures.is_empty() {
                let message = failures.join("; ");
                errors.push(DocumentError { index: event.index, message });
            }
        }
        if old.is_some() || !notes.is_empty() {
            back.insert(back_key, (!notes.is_empty()).then_some(notes));
        }
    }
    for (key, notes) in back {
        match notes {
            Some(notes) => state.put(&key, &notes),
            None => state.delete(&key),
        }
    }
    change_trees(design, engine, changes, state)?;
    Ok(errors)
}

/// Removes the rows of some documents of a vBucket; gives whether those were the last.
pub fn remove_part_of_vbucket(
    design: &Design,
    engine: &RefCell<Engine>,
    vb: u16,
    state: &mut dyn StateMut,
) -> Result<bool, Fault> {
    let mut changes: Changes = vec![BTreeMap::new(); design.views.len()];
    let prefix = back_prefix(vb);
    let end = successor(&prefix);
    for (key, notes) in state.scan(&prefix, &end, ROLLBACK_COUNT, false) {
        remove_noted(&notes, &mut changes)?;
        state.delete(&key);
    }
    change_trees(design, engine, changes, state)?;
    Ok(state.scan(&prefix, &end, 1, false).is_empty())
}

fn remove_noted(notes: &[u8], changes: &mut Changes) -> Result<(), Fault> {
    for (view, key) in noted(notes).ok_or_else(|| corrupt("back index"))? {
        let view = changes.get_mut(view).ok_or_else(|| corrupt("view number"))?;
        view.insert(key.to_vec(), None);
    }
    Ok(())
}

fn change_trees(
    design: &Design,
    engine: &RefCell<Engine>,
    changes: Changes,
    state: &mut dyn StateMut,
) -> Result<(), Fault> {
    for (view, changes) in design.views.iter().zip(changes) {
        let reducer = ViewReducer { reduce: view.reduce.as_ref(), engine };
        let changes: Vec<_> = changes.into_iter().collect();
        Tree::new(&view.prefix, &reducer).apply(state, &changes).map_err(corrupt)?;
        forward_log(&mut engine.borrow_mut());
    }
    Ok(())
}

/// Maps a document with every view; gives what failed, for the author of the views.
fn map(
    design: &Design,
    engine: &mut Engine,
    event: &Event<'_>,
    changes: &mut Changes,
    notes: &mut Vec<u8>,
) -> Vec<String> {
    if event.datatype & DATATYPE_SNAPPY != 0 {
        return vec!["the body is compressed".into()];
    }
    let is_json = event.datatype & DATATYPE_JSON != 0;
    let (id, rev) = (String::from_utf8_lossy(event.key), revision(event));
    let meta = [
        Argument::Text(&id),
        Argument::Text(&rev),
        Argument::Number(event.seqno as f64),
        Argument::Number(f64::from(event.vb)),
        Argument::Number(f64::from(event.expiry)),
        Argument::Number(f64::from(event.flags)),
        Argument::Text(if is_json { "json" } else { "base64" }),
    ];
    let meta = Argument::Made(design.meta, &meta);
    let base64;
    let document = if is_json {
        let text = match str::from_utf8(event.body) {
            Ok(text) => text,
            Err(error) => return vec![format!("the body is not UTF-8: {error}")],
        };
        match engine.set_document(text) {
            Ok(()) => Argument::Document,
            Err(error) => return vec![error.to_string()],
        }
    } else {
        base64 = BASE64_STANDARD.encode(event.body);
        Argument::Text(&base64)
    };
    let mut failures = Vec::new();
    for (number, view) in design.views.iter().enumerate() {
        // Each view gets a copy of its own: a map may change what it is given.
        let rows = engine
            .call_for_emitted(view.map, &[document, meta])
            .map_err(|error| error.to_string())
            .and_then(|emitted| {
                let row = |(number, emitted): (usize, &nacre_js::Emitted)| {
                    let key = tree_key(&emitted.key, event.key, number as u32)?;
                    Ok((key, tree_value(event.vb, &emitted.key, &emitted.value)))
                };
                emitted.iter().enumerate().map(row).collect::<Result<Vec<_>, String>>()
            });
        forward_log(engine);
        match rows {
            Ok(rows) => {
                for (key, value) in rows {
                    note(number, &key, notes);
                    changes[number].insert(key, Some(value));
                }
            }
            Err(message) => failures.push(format!("view {:?}: {message}", view.name)),
        }
    }
    failures
}

fn forward_log(engine: &mut Engine) {
    for line in engine.take_log() {
        nacre_plugin::log(&line);
    }
}

/// A revision as Couchbase writes it: count, then CAS, expiry and flags in hexadecimal.
fn revision(event: &Event<'_>) -> String {
    format!("{}-{:016x}{:08x}{:08x}", event.rev, event.cas, event.expiry, event.flags)
}
