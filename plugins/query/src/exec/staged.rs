//! Index entries as a transaction sees them: without those of documents that it has changed, and with the new entries of
//! these documents.

use crate::run::Run;
use nacre_datastore::{Consistency, IndexRange, Keyspace};
use nacre_sql::index::Definition;
use nacre_sql::{Meta, Name, Result, Value};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// The changes of a transaction, for one index.
#[derive(Default)]
pub(crate) struct Changed {
    ids: BTreeSet<Name>,
    /// The new entries of the documents, in order.
    entries: Vec<Vec<u8>>,
}

impl Changed {
    fn read(index: &Definition, keyspace: &Keyspace, run: &Run<'_>) -> Result<Changed> {
        let mut changed = Changed::default();
        for (id, document) in run.store.staged(keyspace)? {
            changed.ids.insert(id.clone());
            let Some(document) = document else { continue };
            let value = Value::parse(&document.body).unwrap_or_default();
            let meta = Meta {
                id,
                keyspace: keyspace.to_string().into(),
                cas: document.cas,
                expiration: document.expiration,
                flags: document.flags,
                json: document.json,
                ..Meta::default()
            };
            changed.entries.extend(index.entries(&value, &Arc::new(meta))?);
            run.charge(document.body.len())?;
        }
        changed.entries.sort();
        Ok(changed)
    }

    /// Returns the changes for an index, the same for the whole statement.
    fn of(
        index: &Definition,
        number: u64,
        keyspace: &Keyspace,
        run: &Run<'_>,
    ) -> Result<Rc<Changed>> {
        if let Some(known) = run.state.changed.borrow().get(&number) {
            return Ok(Rc::clone(known));
        }
        let changed = Rc::new(Changed::read(index, keyspace, run)?);
        run.state.changed.borrow_mut().insert(number, Rc::clone(&changed));
        Ok(changed)
    }
}

/// Returns the next entries of an index, and true if they are the last.
pub(super) fn entries(
    index: &Definition,
    keyspace: &Keyspace,
    range: &IndexRange<'_>,
    run: &Run<'_>,
) -> Result<(Vec<Vec<u8>>, bool)> {
    let wanted: &Consistency = &run.settings.consistency;
    if !run.state.in_transaction.get() {
        let found = run.store.scan_index(keyspace, range, wanted)?;
        let is_last = found.len() < range.limit;
        return Ok((found, is_last));
    }
    let changed = Changed::of(index, range.index, keyspace, run)?;
    let mut after = range.after.map(<[u8]>::to_vec);
    loop {
        let range = IndexRange { after: after.as_deref(), ..range.clone() };
        let mut found = run.store.scan_index(keyspace, &range, wanted)?;
        let is_last = found.len() < range.limit;
        let until = found.last().cloned();
        found.retain(|entry| {
            let id = index.decode(entry).map(|(_, id)| id);
            id.is_none_or(|id| !changed.ids.contains(&id))
        });
        let until_here = until.as_deref().filter(|_| !is_last);
        found.extend(
            changed.entries.iter().filter(|entry| belongs(entry, &range, until_here)).cloned(),
        );
        if found.is_empty() && !is_last {
            after = until;
            continue;
        }
        found.sort();
        if range.reverse {
            found.reverse();
        }
        let is_last = is_last && found.len() <= range.limit;
        found.truncate(range.limit);
        return Ok((found, is_last));
    }
}

/// Returns true if an entry is within a range and not after `until`.
fn belongs(entry: &[u8], range: &IndexRange<'_>, until: Option<&[u8]>) -> bool {
    let within = |span: &nacre_datastore::Span| {
        span.low.as_slice() <= entry && (span.high.is_empty() || entry < span.high.as_slice())
    };
    let is_behind = |a: &[u8], b: &[u8]| if range.reverse { a < b } else { a > b };
    range.spans.iter().any(within)
        && range.after.is_none_or(|after| is_behind(entry, after))
        && until.is_none_or(|until| !is_behind(entry, until))
}
