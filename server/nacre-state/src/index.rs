//! An index in the host: the sorted entries that a plugin of the world `index-type` projects, and the entry keys of
//! each document.
//!
//! ```text
//! e <key> 00 00 <id> <n>   value                the nth entry of the document with this key; a 00 in the key is 00 ff
//! b <vb> <id>              its entries' keys    to remove the entries when the document changes
//! ```
//!
//! If an index has documents of several collections ([`Form::names_collections`]), the collection ID precedes the
//! document ID, in four bytes, because document IDs are unique only within a collection.
//!
//! Entries are sorted by their keys as bytes, then by document IDs. The index has the entries of a document's newest
//! version, and none for a deleted document.
//!
//! Keys of a partitioned index begin with the partition number; only the partitions in [`Held`] are stored.

use crate::space::{Refused, State, View};
use crate::tree::KEY_BYTES_MAX;
use nacre_types::{CollectionId, Document, Kind, Vbid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

const ENTRY: u8 = b'e';
const BACK: u8 = b'b';
/// Maximum size of an entry's key, in bytes. Entries with longer keys are skipped and reported.
const INDEX_KEY_BYTES_MAX: usize = 8 << 10;

const _: () = assert!(2 * INDEX_KEY_BYTES_MAX + 512 <= KEY_BYTES_MAX);

/// An entry that a plugin projected from an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The position of the event in the batch.
    pub event: u32,
    /// The key, by which entries are sorted.
    pub key: Vec<u8>,
    /// The value stored with the key.
    pub value: Vec<u8>,
}

/// The partitions of an index that a state holds; `None` for an index without partitions.
pub type Held = Option<Arc<BTreeSet<u16>>>;

/// The form of an index.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// The partitions that the state holds.
    pub held: Held,
    /// True if the index has documents of several collections, so that entries name their collection.
    pub names_collections: bool,
}

/// Applies the projections of `documents` to the index, limited to the held partitions. Returns the positions of
/// documents with an oversized entry, which is skipped.
pub fn fold(
    view: &mut View,
    documents: &[(Vbid, Document)],
    mut entries: Vec<Entry>,
    form: &Form,
) -> Result<Vec<usize>, Refused> {
    if let Some(held) = &form.held {
        let is_held = |partition: &[u8; 2]| held.contains(&u16::from_be_bytes(*partition));
        entries.retain(|entry| entry.key.first_chunk().is_some_and(is_held));
    }
    // Stable, because a plugin may return entries in any order.
    entries.sort_by_key(|entry| entry.event);
    let mut rest = &entries[..];
    let mut too_large = Vec::new();
    let (mut back, mut keys) = (Vec::new(), Vec::new());
    for (at, (vbid, document)) in documents.iter().enumerate() {
        let count = rest.iter().take_while(|entry| entry.event as usize == at).count();
        let (ours, others) = rest.split_at(count);
        rest = others;
        let ours = if document.meta.kind == Kind::Alive { ours } else { &[] };
        let fits = |entry: &&Entry| entry.key.len() <= INDEX_KEY_BYTES_MAX;
        if !ours.iter().all(|entry| fits(&entry)) {
            too_large.push(at);
        }
        let collection = document.collection().0.to_be_bytes();
        let prefix = if form.names_collections { &collection[..] } else { &[] };
        let id = [prefix, document.name()];
        back.clear();
        back_key(*vbid, &id, &mut back);
        keys.clear();
        let numbered = ours.iter().enumerate().filter(|(_, entry)| fits(entry));
        numbered.for_each(|(number, entry)| note(&entry.key, &id, number as u32, &mut keys));
        replace(view, &back, &keys, ours.iter().filter(fits).map(|entry| &entry.value[..]))?;
    }
    Ok(too_large)
}

/// Replaces the entries recorded in the row `back` by those with the keys recorded in `keys`.
fn replace<'a>(
    view: &mut View,
    back: &[u8],
    keys: &[u8],
    values: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<(), Refused> {
    let before = view.get(back)?.map(|found| found.share());
    let mut entries = keys_of(keys).zip(values);
    // Most changes of a document do not change its entries.
    if before.as_deref().unwrap_or_default() == keys {
        let mut is_same = true;
        for (key, value) in entries.clone() {
            is_same &= view.get(key)?.is_some_and(|known| known.bytes() == value);
        }
        if is_same {
            return Ok(());
        }
    }
    before.iter().flat_map(|keys| keys_of(keys)).try_for_each(|key| view.delete(key))?;
    entries.try_for_each(|(key, value)| view.put(key, value))?;
    if keys.is_empty() { view.delete(back) } else { view.put(back, keys) }
}

/// Returns the message about entries skipped by [`fold`].
pub fn too_large() -> String {
    format!("an index entry is larger than {INDEX_KEY_BYTES_MAX} bytes and was left out")
}

/// Removes all documents of a vBucket from the index.
pub fn forget(view: &mut View, vbid: Vbid) -> Result<(), Refused> {
    let [mut start, mut end] = [Vec::new(), Vec::new()];
    back_key(vbid, &[], &mut start);
    back_key(Vbid(vbid.0 + 1), &[], &mut end);
    let all = view.state.space.clone();
    let rows = all.scan((Bound::Included(&start), Bound::Excluded(&end)), false);
    for row in rows.map_err(Refused::Damaged)? {
        let row = row.map_err(Refused::Damaged)?;
        keys_of(row.value()).try_for_each(|key| view.delete(key))?;
        view.delete(row.key())?;
    }
    Ok(())
}

/// Encodes the key of the row with the keys of a document's entries.
fn back_key(vbid: Vbid, id: &[&[u8]], out: &mut Vec<u8>) {
    out.push(BACK);
    out.extend_from_slice(&vbid.0.to_be_bytes());
    id.iter().for_each(|part| out.extend_from_slice(part));
}

/// Records the key of an entry: its length (u32) and its bytes.
fn note(key: &[u8], id: &[&[u8]], number: u32, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(ENTRY);
    escape(key, out);
    out.extend_from_slice(&[0, 0]);
    id.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(&number.to_be_bytes());
    let bytes = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
}

fn escape(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
}

/// Iterates over the recorded keys of a document.
fn keys_of(mut noted: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    std::iter::from_fn(move || {
        let (length, rest) = noted.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        noted = rest;
        Some(key)
    })
}

/// A range of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first key of the range.
    pub start: Vec<u8>,
    /// The first key after the range; empty for no bound.
    pub end: Vec<u8>,
}

/// A decoded entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// Key.
    pub key: Vec<u8>,
    /// Value stored with the key.
    pub value: Vec<u8>,
    /// The ID of the document.
    pub id: Vec<u8>,
    /// The collection of the document, in an index of several collections.
    pub collection: Option<CollectionId>,
    /// Number of the entry among those of the document.
    pub number: u32,
}

/// Keys and values of a state.
pub type Rows<'a> = Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>;

/// An index as of one commit. Clones share the state.
#[derive(Clone)]
pub struct IndexSnapshot {
    state: State,
    names_collections: bool,
}

impl IndexSnapshot {
    /// Creates the snapshot of the index in a state.
    ///
    /// The state must be resident: entries are borrowed from memory, and no scan of an index reads a disk.
    pub fn new(state: State, form: &Form) -> IndexSnapshot {
        debug_assert!(state.space.is_resident(), "segments are read by rows that are not lent");
        IndexSnapshot { state, names_collections: form.names_collections }
    }

    /// Iterates over the state's rows between two bounds as [`bound`] and [`place`] encode them.
    pub fn between<'a>(&'a self, range: (Bound<&[u8]>, Bound<&[u8]>), reverse: bool) -> Rows<'a> {
        let rows = self.state.space.in_memory(range);
        if reverse { Box::new(rows.rev()) } else { Box::new(rows) }
    }

    /// Decodes the entry at a key of the state; `None` if it is not an entry.
    pub fn entry(&self, place: &[u8], value: &[u8]) -> Option<Indexed> {
        indexed(place, value, self.names_collections)
    }

    /// Iterates over the entries of `span` in order, or from its end if `reverse` is set. With `partition`, only over the entries
    /// of that partition, whose number their keys begin with. For an index of one collection only.
    pub fn scan<'a>(
        &'a self,
        partition: Option<u16>,
        span: &Span,
        reverse: bool,
    ) -> Box<dyn Iterator<Item = IndexedRef<'a>> + 'a> {
        debug_assert!(!self.names_collections, "documents have names without their collection");
        let prefix = partition.map_or_else(Vec::new, |partition| partition.to_be_bytes().to_vec());
        let start = bound(&[&prefix, &span.start[..]].concat());
        let end = match (&span.end[..], partition.map(|partition| partition.checked_add(1))) {
            ([], None | Some(None)) => END.to_vec(),
            ([], Some(Some(next))) => bound(&next.to_be_bytes()),
            (end, _) => bound(&[&prefix, end].concat()),
        };
        if end <= start {
            return Box::new(std::iter::empty());
        }
        let range = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        let skipped = prefix.len();
        let entry = move |(place, _): (&'a [u8], &'a [u8])| {
            Some(IndexedRef { skipped, ..IndexedRef::of(place)? })
        };
        Box::new(self.between(range, reverse).filter_map(entry))
    }
}

/// The first key after all entries of a state.
pub const END: &[u8] = &[ENTRY + 1];

/// Returns the state's key at which the entries with this key or greater ones begin.
pub fn bound(key: &[u8]) -> Vec<u8> {
    let mut out = vec![ENTRY];
    escape(key, &mut out);
    out
}

/// Returns true if the state's key is that of an entry.
pub fn is_place(place: &[u8]) -> bool {
    indexed(place, &[], false).is_some()
}

/// Decodes the entry at a key of the state; `None` if it is not an entry.
pub fn indexed(place: &[u8], value: &[u8], names_collections: bool) -> Option<Indexed> {
    let IndexedRef { escaped, document, number, .. } = IndexedRef::of(place)?;
    let (collection, id) = match names_collections {
        true => {
            let (collection, id) = document.split_first_chunk()?;
            (Some(CollectionId(u32::from_be_bytes(*collection))), id)
        }
        false => (None, document),
    };
    Some(Indexed {
        key: unescaped(escaped),
        value: value.to_vec(),
        id: id.to_vec(),
        collection,
        number,
    })
}

/// An entry in its stored form.
#[derive(Clone, Copy)]
pub struct IndexedRef<'a> {
    /// The escaped key.
    escaped: &'a [u8],
    /// The collection and ID of the document.
    document: &'a [u8],
    /// Number of the entry among those of the document.
    number: u32,
    /// Number of bytes before the actual key.
    skipped: usize,
}

impl<'a> IndexedRef<'a> {
    fn of(place: &'a [u8]) -> Option<IndexedRef<'a>> {
        let (kind, rest) = place.split_first()?;
        let (rest, number) = rest.split_last_chunk::<4>().filter(|_| *kind == ENTRY)?;
        let mut at = 0;
        loop {
            at += rest[at..].iter().position(|byte| *byte == 0)?;
            if *rest.get(at + 1)? != 0xff {
                let number = u32::from_be_bytes(*number);
                let (escaped, document) = (&rest[..at], &rest[at + 2..]);
                return Some(IndexedRef { escaped, document, number, skipped: 0 });
            }
            at += 2;
        }
    }

    /// Returns the key.
    pub fn key(&self) -> Vec<u8> {
        let mut key = unescaped(self.escaped);
        key.drain(..self.skipped.min(key.len()));
        key
    }

    /// Returns the ID of the document, for an index of one collection.
    pub fn id(&self) -> &'a [u8] {
        self.document
    }

    /// Returns the number of the entry among those of the document.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Removes the escape bytes of a key.
fn unescaped(escaped: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        key.extend_from_slice(&rest[..=zero]);
        rest = &rest[(zero + 2).min(rest.len())..];
    }
    key.extend_from_slice(rest);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{DocKey, Meta};

    fn document(id: &str, kind: Kind) -> (Vbid, Document) {
        let meta = Meta { kind, ..Meta::default() };
        let key = DocKey::new(CollectionId(8), id.as_bytes());
        (Vbid(id.len() as u16), Document::new(meta, key.prefixed(), b"{}"))
    }

    fn entry(event: u32, key: &[u8]) -> Entry {
        Entry { event, key: key.to_vec(), value: vec![event as u8] }
    }

    fn listed(view: &View, span: &Span, reverse: bool) -> Vec<(Vec<u8>, String)> {
        let snapshot = IndexSnapshot::new(view.state.clone(), &Form::default());
        let named =
            |found: IndexedRef<'_>| (found.key(), String::from_utf8(found.id().to_vec()).unwrap());
        snapshot.scan(None, span, reverse).map(named).collect()
    }

    fn all() -> Span {
        Span::default()
    }

    #[test]
    fn entries_are_ordered_by_keys_then_documents() {
        let mut view = View::writing(State::default(), 1 << 20);
        let documents = [document("b", Kind::Alive), document("a", Kind::Alive)];
        let entries = vec![
            entry(0, b"\0"),
            entry(1, b"\0"),
            entry(0, b"\0\xff"),
            entry(1, b""),
            entry(1, b"\0\0"),
        ];
        assert_eq!(fold(&mut view, &documents, entries, &Form::default()), Ok(vec![]));
        let expected: Vec<(Vec<u8>, String)> = vec![
            (b"".to_vec(), "a".into()),
            (b"\0".to_vec(), "a".into()),
            (b"\0".to_vec(), "b".into()),
            (b"\0\0".to_vec(), "a".into()),
            (b"\0\xff".to_vec(), "b".into()),
        ];
        assert_eq!(listed(&view, &all(), false), expected);
        let back: Vec<_> = expected.iter().rev().cloned().collect();
        assert_eq!(listed(&view, &all(), true), back);
        let span = Span { start: b"\0".to_vec(), end: b"\0\xff".to_vec() };
        assert_eq!(listed(&view, &span, false), expected[1..4]);
    }

    #[test]
    fn a_document_has_the_entries_of_its_newest_version() {
        let mut view = View::writing(State::default(), 1 << 20);
        let one = [document("a", Kind::Alive)];
        fold(
            &mut view,
            &one,
            vec![entry(0, b"x"), entry(0, b"x"), entry(0, b"y")],
            &Form::default(),
        )
        .unwrap();
        assert_eq!(listed(&view, &all(), false).len(), 3, "the same key twice counts twice");
        fold(&mut view, &one, vec![entry(0, b"z")], &Form::default()).unwrap();
        assert_eq!(listed(&view, &all(), false), [(b"z".to_vec(), "a".into())]);
        // One batch contains the document twice, the second time deleted, so its projections must be ignored.
        let batch = [document("a", Kind::Alive), document("a", Kind::Deleted)];
        fold(&mut view, &batch, vec![entry(0, b"p"), entry(1, b"q")], &Form::default()).unwrap();
        assert_eq!((listed(&view, &all(), false), view.state.bytes()), (vec![], 0));
    }

    #[test]
    fn entries_that_stay_are_not_written_again() {
        let mut view = View::writing(State::default(), 1 << 20);
        let one = [document("a", Kind::Alive)];
        let entries = || vec![entry(0, b"x"), entry(0, b"y")];
        fold(&mut view, &one, entries(), &Form::default()).unwrap();
        let mut again = View::writing(view.state.clone(), 1 << 20);
        fold(&mut again, &one, entries(), &Form::default()).unwrap();
        assert!(again.writes.as_ref().unwrap().is_empty());
        let other = vec![entry(0, b"x"), Entry { value: vec![9], ..entry(0, b"y") }];
        fold(&mut again, &one, other, &Form::default()).unwrap();
        assert!(!again.writes.as_ref().unwrap().is_empty(), "a value has changed");
        fold(&mut again, &[document("a", Kind::Deleted)], Vec::new(), &Form::default()).unwrap();
        assert_eq!((listed(&again, &all(), false), again.state.bytes()), (vec![], 0));
    }

    #[test]
    fn a_vbucket_is_forgotten_alone() {
        let mut view = View::writing(State::default(), 1 << 20);
        let documents = [document("a", Kind::Alive), document("bb", Kind::Alive)];
        fold(&mut view, &documents, vec![entry(0, b"x"), entry(1, b"x")], &Form::default())
            .unwrap();
        forget(&mut view, Vbid(1)).unwrap();
        assert_eq!(listed(&view, &all(), false), [(b"x".to_vec(), "bb".into())]);
    }

    #[test]
    fn ids_of_several_collections_are_distinguished() {
        let mut view = View::writing(State::default(), 1 << 20);
        let form = Form { names_collections: true, ..Form::default() };
        let of = |collection: u32, kind| {
            let key = DocKey::new(CollectionId(collection), b"a");
            let meta = Meta { kind, ..Meta::default() };
            (Vbid(1), Document::new(meta, key.prefixed(), b"{}"))
        };
        let both = [of(300, Kind::Alive), of(8, Kind::Alive)];
        fold(&mut view, &both, vec![entry(0, b"x"), entry(1, b"x")], &form).unwrap();
        let listed = |view: &View| {
            let snapshot = IndexSnapshot::new(view.state.clone(), &form);
            let everything = (Bound::Included(&[ENTRY][..]), Bound::Excluded(END));
            let found = snapshot.between(everything, false);
            let found = found.filter_map(|(place, value)| snapshot.entry(place, value));
            found.map(|found| (found.id, found.collection.unwrap().0)).collect::<Vec<_>>()
        };
        assert_eq!(listed(&view), [(b"a".to_vec(), 8), (b"a".to_vec(), 300)]);
        fold(&mut view, &[of(8, Kind::Deleted)], Vec::new(), &form).unwrap();
        assert_eq!(listed(&view), [(b"a".to_vec(), 300)]);
    }

    #[test]
    fn oversized_entries_are_skipped_and_reported() {
        let mut view = View::writing(State::default(), 1 << 20);
        let large = vec![0; INDEX_KEY_BYTES_MAX + 1];
        let entries = vec![entry(0, &large), entry(0, b"k")];
        let told = fold(&mut view, &[document("a", Kind::Alive)], entries, &Form::default());
        assert_eq!(told, Ok(vec![0]));
        assert_eq!(listed(&view, &all(), false), [(b"k".to_vec(), "a".into())]);
    }

    #[test]
    fn only_held_partitions_are_stored_and_each_is_read_separately() {
        let mut view = View::writing(State::default(), 1 << 20);
        let one = [document("a", Kind::Alive)];
        let held = Some(Arc::new(BTreeSet::from([0, 255, u16::MAX])));
        let form = Form { held: held.clone(), ..Form::default() };
        let keyed =
            |partition: u16, key: &[u8]| entry(0, &[&partition.to_be_bytes()[..], key].concat());
        let partitions = [0, 1, 255, 256, u16::MAX];
        let entries =
            partitions.iter().flat_map(|p| [keyed(*p, b""), keyed(*p, b"\0"), keyed(*p, b"x")]);
        fold(&mut view, &one, entries.collect(), &form).unwrap();
        let snapshot = IndexSnapshot::new(view.state.clone(), &Form::default());
        let keys = |partition, span: &Span, reverse| {
            let found = snapshot.scan(Some(partition), span, reverse);
            found.map(|found| found.key()).collect::<Vec<_>>()
        };
        for partition in partitions {
            let expected: Vec<Vec<u8>> = match held.as_ref().unwrap().contains(&partition) {
                true => vec![b"".to_vec(), b"\0".to_vec(), b"x".to_vec()],
                false => Vec::new(),
            };
            assert_eq!(keys(partition, &all(), false), expected, "partition {partition}");
            let back: Vec<_> = expected.iter().rev().cloned().collect();
            assert_eq!(keys(partition, &all(), true), back, "partition {partition}");
        }
        let span = Span { start: b"\0".to_vec(), end: b"x".to_vec() };
        assert_eq!(keys(255, &span, false), [b"\0"]);
        // An entry that moves to a partition that is not held is removed.
        fold(&mut view, &one, vec![keyed(1, b"x")], &form).unwrap();
        assert_eq!(view.state.bytes(), 0);
    }
}
