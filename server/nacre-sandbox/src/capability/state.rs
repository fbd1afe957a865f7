//! `state`: the plugin's own key space.
//!
//! This is the most frequently called capability, so keys and values are read directly from the memory of the
//! plugin, and results are copied there directly from the state.

use crate::capability::Capability;
use crate::instance::{Data, Refused};
use nacre_state::{Bytes, View};
use wasmtime::component::{ComponentType, Lift, Linker, Lower, WasmList};
use wasmtime::{Result, StoreContextMut};

/// A result of `scan`.
#[derive(ComponentType, Lower)]
#[component(record)]
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A change for `apply`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Change {
    key: WasmList<u8>,
    value: Option<WasmList<u8>>,
}

type Store<'a> = StoreContextMut<'a, Data>;

/// Adds the functions of the interface to a linker.
pub fn link(linker: &mut Linker<Data>) -> Result<()> {
    let mut state = linker.instance(&Capability::State.interface())?;
    state.func_wrap(
        "get",
        |mut store: Store<'_>, (key,): (WasmList<u8>,)| -> Result<(Option<Bytes>,)> {
            store.data_mut().count(Capability::State)?;
            let key = key.as_le_slice(&store);
            let value = store.data().view.get(key).map_err(Refused::trap)?;
            let (value, key) = (value.map(|found| found.share()), key.to_vec());
            store.data_mut().journal.get(key);
            Ok((value,))
        },
    )?;
    state.func_wrap(
        "put",
        |mut store: Store<'_>, (key, value): (WasmList<u8>, WasmList<u8>)| {
            store.data_mut().count(Capability::State)?;
            write(&mut store, |view, store| {
                view.put(key.as_le_slice(store), value.as_le_slice(store))
            })
        },
    )?;
    state.func_wrap("delete", |mut store: Store<'_>, (key,): (WasmList<u8>,)| {
        store.data_mut().count(Capability::State)?;
        write(&mut store, |view, store| view.delete(key.as_le_slice(store)))
    })?;
    state.func_wrap("apply", |mut store: Store<'_>, (changes,): (Vec<Change>,)| {
        store.data_mut().count(Capability::State)?;
        write(&mut store, |view, store| {
            changes.iter().try_for_each(|Change { key, value }| match value {
                Some(value) => view.put(key.as_le_slice(store), value.as_le_slice(store)),
                None => view.delete(key.as_le_slice(store)),
            })
        })
    })?;
    state.func_wrap("scan", scan)
}

/// Writes entries from the memory of the plugin, which is borrowed while the view changes.
fn write(
    store: &mut Store<'_>,
    change: impl FnOnce(&mut View, &Store<'_>) -> Result<(), nacre_state::Refused>,
) -> Result<()> {
    let mut view = std::mem::take(&mut store.data_mut().view);
    let done = change(&mut view, store);
    store.data_mut().view = view;
    done.map_err(Refused::trap)
}

fn scan(
    mut store: Store<'_>,
    (start, end, limit, reverse): (Vec<u8>, Vec<u8>, u32, bool),
) -> Result<(Vec<Entry>,)> {
    let data = store.data_mut();
    data.count(Capability::State)?;
    let entries = data.view.scan(&start, &end, limit, reverse).map_err(Refused::trap)?;
    data.journal.scan(start, end, limit, reverse, &entries);
    Ok((entries.into_iter().map(|(key, value)| Entry { key, value }).collect(),))
}
