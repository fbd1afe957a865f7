//! The analytics copy of a collection: immutable segments of columns, newer rows, and the place of each document.
//!
//! ```text
//! upsert(id) ─► new row in the memtable, and the old one's bit in the deleted bitmap of its segment
//! snapshot() ─► seals the memtable; merges small older segments into it, without deleted rows
//! ```
//!
//! *Invariant:* each document has exactly one row that is not deleted, and `places` contains its place. A snapshot never changes:
//! bitmaps are copied on write.

use crate::column::{Column, shred, shred_texts};
use datafusion::arrow::array::UInt32Array;
use nacre_sql::{Name, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Rows after which the memtable becomes a segment, even without a snapshot.
pub const SEGMENT_ROWS: usize = 64 << 10;
/// Segments with at least this many rows are merged only if many of their rows are deleted.
const MERGED_ROWS_MAX: usize = 256 << 10;

/// A document as written.
#[derive(Clone, Debug)]
pub struct Row {
    /// The ID.
    pub id: Name,
    /// The vBucket.
    pub vbid: u16,
    /// The CAS.
    pub cas: u64,
    /// The application's flags.
    pub flags: u32,
    /// The Unix second at which it expires, 0 for never.
    pub expiry: u32,
    /// JSON text.
    pub text: Arc<str>,
}

/// Rows as columns.
#[derive(Debug)]
pub struct Segment {
    /// The rows with their texts, from which values without a column are read.
    pub rows: Vec<Row>,
    /// Columns of all paths.
    pub root: Column,
}

impl Segment {
    fn of(rows: Vec<Row>) -> Segment {
        let root = shred_texts(rows.iter().map(|row| &*row.text)).unwrap_or_else(|_| {
            // A document has a name twice, or is no JSON.
            let values = rows.iter().map(|row| Value::parse(row.text.as_bytes()));
            shred(&values.map(Result::unwrap_or_default).collect::<Vec<Value>>())
        });
        Segment { rows, root }
    }
}

/// A segment in a snapshot.
#[derive(Clone, Debug)]
pub struct View {
    /// The segment.
    pub segment: Arc<Segment>,
    /// The bitmap of deleted rows.
    deleted: Arc<Vec<u64>>,
    deleted_count: usize,
}

impl View {
    fn is_deleted(&self, row: usize) -> bool {
        self.deleted.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    fn delete(&mut self, row: usize) {
        let words = self.segment.rows.len().div_ceil(64);
        let deleted = Arc::make_mut(&mut self.deleted);
        deleted.resize(words, 0);
        deleted[row / 64] |= 1 << (row % 64);
        self.deleted_count += 1;
    }

    /// Returns the number of existing rows.
    pub fn live_count(&self) -> usize {
        self.segment.rows.len() - self.deleted_count
    }

    /// Returns the numbers of existing rows as an array; `None` if all exist.
    pub fn live_places(&self) -> Option<UInt32Array> {
        if self.deleted_count == 0 {
            return None;
        }
        let mut places = Vec::with_capacity(self.live_count());
        places.extend(self.live_rows().map(|row| row as u32));
        Some(places.into())
    }

    /// Returns the numbers of existing rows.
    pub fn live_rows(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.segment.rows.len()).filter(|row| !self.is_deleted(*row))
    }
}

/// All documents of a collection at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Segments.
    pub views: Vec<View>,
}

impl Snapshot {
    /// Returns a snapshot with these rows, whose IDs differ.
    pub fn of(rows: Vec<Row>) -> Snapshot {
        let mut views = Vec::new();
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let segment = Arc::new(Segment::of(rows.by_ref().take(SEGMENT_ROWS).collect()));
            views.push(View { segment, deleted: Arc::default(), deleted_count: 0 });
        }
        Snapshot { views }
    }

    /// Returns the bytes of the documents' texts.
    pub fn text_bytes(&self) -> usize {
        let rows = self
            .views
            .iter()
            .flat_map(|view| view.live_rows().map(|row| view.segment.rows[row].text.len()));
        rows.sum()
    }

    /// Returns the number of documents.
    pub fn row_count(&self) -> usize {
        self.views.iter().map(View::live_count).sum()
    }
}

/// The copy of a collection.
#[derive(Debug, Default)]
pub struct Shadow {
    segments: BTreeMap<u32, View>,
    next_segment: u32,
    memtable: Vec<Option<Row>>,
    places: HashMap<Name, Place>,
    /// By vBucket, the seqno up to which history has been applied.
    seqnos: BTreeMap<u16, u64>,
    /// Bytes of the documents' texts, including deleted rows.
    text_bytes: usize,
    /// Number of mutations and deletions since the start.
    pub change_count: u64,
    /// Number of documents that are not JSON.
    pub unparsed_count: u64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Memtable(usize),
    Segment(u32, usize),
}

impl Shadow {
    /// Writes a document.
    pub fn upsert(&mut self, row: Row) {
        self.change_count += 1;
        self.forget(&row.id.clone());
        self.text_bytes += row.text.len();
        self.places.insert(row.id.clone(), Place::Memtable(self.memtable.len()));
        self.memtable.push(Some(row));
        if self.memtable.len() >= SEGMENT_ROWS {
            self.seal();
        }
    }

    /// Removes a document.
    pub fn remove(&mut self, id: &str) {
        self.change_count += 1;
        self.forget(id);
    }

    fn forget(&mut self, id: &str) {
        match self.places.remove(id) {
            Some(Place::Memtable(at)) => {
                let row = self.memtable[at].take();
                self.text_bytes -= row.map_or(0, |row| row.text.len());
            }
            Some(Place::Segment(number, row)) => {
                let view = self.segments.get_mut(&number).expect("places name segments");
                view.delete(row);
            }
            None => {}
        }
    }

    /// Removes all documents of a vBucket, because its history has branched and is read again from the beginning.
    pub fn clear_vbucket(&mut self, vbid: u16) {
        let in_memory = self.memtable.iter().flatten();
        let in_segments = self.segments.values().flat_map(|view| &view.segment.rows);
        let ids: Vec<Name> = in_memory
            .chain(in_segments)
            .filter(|row| row.vbid == vbid)
            .map(|row| row.id.clone())
            .collect();
        ids.iter().for_each(|id| self.forget(id));
        self.seqnos.insert(vbid, 0);
    }

    /// Records up to which seqno the history of a vBucket has been applied.
    pub fn advance(&mut self, vbid: u16, seqno: u64) {
        let known = self.seqnos.entry(vbid).or_default();
        *known = seqno.max(*known);
    }

    /// Returns the seqno up to which the history of a vBucket has been applied; 0 if none was.
    pub fn seqno(&self, vbid: u16) -> u64 {
        self.seqnos.get(&vbid).copied().unwrap_or(0)
    }

    /// Returns the bytes of the documents' texts.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Converts the memtable to a segment. Older segments that are not much larger are merged into it, so that there are few
    /// segments and each row is merged a logarithmic number of times.
    fn seal(&mut self) {
        let mut rows: Vec<Row> = std::mem::take(&mut self.memtable).into_iter().flatten().collect();
        while let Some((number, view)) = self.segments.last_key_value() {
            let live = view.live_count();
            let is_mostly_gone = live * 4 < view.segment.rows.len() * 3;
            if live > 2 * rows.len() && !is_mostly_gone
                || live >= MERGED_ROWS_MAX && !is_mostly_gone
            {
                break;
            }
            let mut merged: Vec<Row> =
                view.live_rows().map(|row| view.segment.rows[row].clone()).collect();
            merged.append(&mut rows);
            rows = merged;
            let number = *number;
            self.segments.remove(&number);
        }
        if rows.is_empty() {
            return;
        }
        let number = self.next_segment;
        self.next_segment += 1;
        for (at, row) in rows.iter().enumerate() {
            self.places.insert(row.id.clone(), Place::Segment(number, at));
        }
        let segment = Arc::new(Segment::of(rows));
        self.segments.insert(number, View { segment, deleted: Arc::default(), deleted_count: 0 });
        let of_segments = self.segments.values().flat_map(|view| &view.segment.rows);
        self.text_bytes = of_segments.map(|row| row.text.len()).sum();
    }

    /// Returns a snapshot of the present state.
    pub fn snapshot(&mut self) -> Snapshot {
        if !self.memtable.is_empty() {
            self.seal();
        }
        Snapshot { views: self.segments.values().cloned().collect() }
    }

    /// Returns the number of documents.
    pub fn row_count(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, text: &str) -> Row {
        Row { id: id.into(), vbid: 0, cas: 1, flags: 0, expiry: 0, text: text.into() }
    }

    fn texts(snapshot: &Snapshot) -> Vec<String> {
        let rows = snapshot
            .views
            .iter()
            .flat_map(|view| view.live_rows().map(|at| &view.segment.rows[at]).collect::<Vec<_>>());
        let mut texts: Vec<String> = rows.map(|row| format!("{}{}", row.id, row.text)).collect();
        texts.sort();
        texts
    }

    /// Writes and deletes at random, with snapshots in between, and compares each with a plain map. Earlier snapshots must not
    /// change.
    #[test]
    fn snapshots_have_the_last_version_of_each_document() {
        let mut shadow = Shadow::default();
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        let mut taken: Vec<(Snapshot, Vec<String>)> = Vec::new();
        let mut seed = 1_u64;
        for step in 0..20_000_u64 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let id = format!("k{}", (seed >> 33) % 500);
            if (seed >> 20) % 4 == 0 {
                shadow.remove(&id);
                model.remove(&id);
            } else {
                let text = format!("{{\"step\":{step}}}");
                shadow.upsert(row(&id, &text));
                model.insert(id, text);
            }
            if (seed >> 12) % 97 == 0 {
                let expected: Vec<String> =
                    model.iter().map(|(id, text)| format!("{id}{text}")).collect();
                let mut expected = expected;
                expected.sort();
                let snapshot = shadow.snapshot();
                assert_eq!(texts(&snapshot), expected);
                assert_eq!(snapshot.row_count(), shadow.row_count());
                taken.push((snapshot, expected));
            }
        }
        assert!(taken.len() > 100);
        for (snapshot, expected) in &taken {
            assert_eq!(&texts(snapshot), expected);
        }
        // Merging keeps the number of segments low, however many snapshots are taken.
        assert!(shadow.segments.len() < 12, "{}", shadow.segments.len());
    }

    #[test]
    fn a_snapshot_of_rows_has_all_of_them() {
        let rows: Vec<Row> = (0..SEGMENT_ROWS + 3).map(|n| row(&format!("k{n}"), "[7]")).collect();
        let snapshot = Snapshot::of(rows);
        assert_eq!((snapshot.views.len(), snapshot.row_count()), (2, SEGMENT_ROWS + 3));
        assert_eq!(snapshot.text_bytes(), 3 * (SEGMENT_ROWS + 3));
        assert_eq!(Snapshot::of(Vec::new()).row_count(), 0);
    }

    #[test]
    fn a_vbucket_that_is_cleared_has_no_rows() {
        let mut shadow = Shadow::default();
        shadow.upsert(row("a", "1"));
        shadow.snapshot();
        shadow.upsert(Row { vbid: 1, ..row("b", "2") });
        shadow.upsert(row("c", "3"));
        shadow.advance(0, 9);
        shadow.clear_vbucket(0);
        assert_eq!(texts(&shadow.snapshot()), ["b2"]);
        assert_eq!(shadow.seqno(0), 0);
    }
}
