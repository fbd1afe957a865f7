//! The world `index-type`.

use super::{fault, ready};
use crate::{Events, Fault, IndexType};
use exports::nacre::plugin::projection::Entry;

wit_bindgen::generate!({
    path: "../wit",
    world: "index-type",
    pub_export_macro: true,
    export_macro_name: "export_index_type",
    default_bindings_module: "nacre_plugin::bindings::world",
});

/// Calls `projection.project` of the index type in `slot`.
pub fn project<I: IndexType>(
    slot: &mut Option<I>,
    buffer: &[u8],
) -> Result<Vec<Entry>, super::types::Fault> {
    let events = Events::decode(buffer)
        .map_err(|error| fault(Fault::Fatal(format!("the host packed no events: {error}"))))?;
    let entries = ready(slot)?.project(&events).map_err(fault)?;
    let entry =
        |entry: crate::IndexEntry| Entry { event: entry.event, key: entry.key, value: entry.value };
    Ok(entries.into_iter().map(entry).collect())
}
