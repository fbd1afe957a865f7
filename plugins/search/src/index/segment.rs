//! A segment open for reading.

use super::document::{ALL, LONG};
use super::{END, Fields, column_key, prefix_key, term_key};
use crate::error::{Error, Result};
use crate::query::Range;
use crate::vector::{EXTENSION, VectorFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tantivy::columnar::{Column, DynamicColumn, StrColumn, TermOrdHit};
use tantivy::postings::{SegmentPostings, TermInfo};
use tantivy::schema::{Field, IndexRecordOption, Value};
use tantivy::store::StoreReader;
use tantivy::{DocSet, InvertedIndexReader, SegmentReader, TantivyDocument};

/// Number of document blocks in the cache.
const BLOCKS_KEPT: usize = 2;
/// Number of open columns in the cache.
const COLUMNS_KEPT: usize = 256;

/// A column of numbers, with the narrowest type that can hold all of them.
#[derive(Clone)]
pub enum Numbers {
    /// There is no column.
    Absent,
    /// Integers in the range of `i64`.
    I64(Column<i64>),
    /// Larger integers.
    U64(Column<u64>),
    /// Any numbers.
    F64(Column<f64>),
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

impl Numbers {
    /// Calls `take` with each number of a document.
    pub fn each(&self, doc: u32, mut take: impl FnMut(f64)) {
        match self {
            Numbers::Absent => {}
            Numbers::I64(column) => column.values_for_doc(doc).for_each(|n| take(n as f64)),
            Numbers::U64(column) => column.values_for_doc(doc).for_each(|n| take(n as f64)),
            Numbers::F64(column) => column.values_for_doc(doc).for_each(take),
        }
    }

    /// Calls `take` with each integer of a document.
    pub fn each_integer(&self, doc: u32, mut take: impl FnMut(i64)) {
        match self {
            Numbers::I64(column) => column.values_for_doc(doc).for_each(take),
            Numbers::U64(column) => column.values_for_doc(doc).for_each(|n| take(n as i64)),
            Numbers::F64(column) => column.values_for_doc(doc).for_each(|n| take(n as i64)),
            Numbers::Absent => {}
        }
    }

    /// Returns the documents before `end` with a number in a range, in order.
    pub fn documents(&self, range: &Range<f64>, end: u32) -> Vec<u32> {
        // Within the column's range of numbers, an excluded bound is replaced with the next number.
        let low = range
            .min
            .map_or(f64::NEG_INFINITY, |min| if range.inclusive_min { min } else { min.next_up() });
        let high = range
            .max
            .map_or(f64::INFINITY, |max| if range.inclusive_max { max } else { max.next_down() });
        match self {
            Numbers::Absent => Vec::new(),
            // These casts saturate at the limits of the type.
            Numbers::I64(_) | Numbers::U64(_) if low.ceil() > high.floor() => Vec::new(),
            Numbers::I64(column) => within(column, low.ceil() as i64..=high.floor() as i64, end),
            Numbers::U64(_) if high < 0.0 => Vec::new(),
            Numbers::U64(column) => within(column, low.ceil() as u64..=high.floor() as u64, end),
            Numbers::F64(column) => within(column, low..=high, end),
        }
    }

    /// Returns the documents before `end` with an integer in a range, in order.
    pub fn documents_of_integers(&self, range: RangeInclusive<i64>, end: u32) -> Vec<u32> {
        match self {
            Numbers::Absent => Vec::new(),
            Numbers::I64(column) => within(column, range, end),
            _ => (0..end)
                .filter(|doc| {
                    let mut any = false;
                    self.each_integer(*doc, |integer| any |= range.contains(&integer));
                    any
                })
                .collect(),
        }
    }

    /// Returns the first value of a document, or 0.
    pub fn first(&self, doc: u32) -> u64 {
        match self {
            Numbers::Absent => 0,
            Numbers::I64(column) => column.first(doc).map_or(0, |n| n as u64),
            Numbers::U64(column) => column.first(doc).unwrap_or(0),
            Numbers::F64(column) => column.first(doc).map_or(0, |n| n as u64),
        }
    }
}

/// tantivy's range search is exact only for ranges that overlap the column, so this function compares each number.
fn within<T>(column: &Column<T>, range: RangeInclusive<T>, end: u32) -> Vec<u32>
where
    T: PartialOrd + Copy + Send + Sync + fmt::Debug + 'static,
{
    let has = |doc: &u32| column.values_for_doc(*doc).any(|number| range.contains(&number));
    (0..end).filter(has).collect()
}

/// The terms of each document at a path, as stored for facets and sorts.
pub struct Values {
    column: StrColumn,
    /// True if the first term is the one that replaces too many terms.
    has_long: bool,
}

impl Values {
    fn new(column: StrColumn) -> Result<Values> {
        let mut first = String::new();
        let has_long = column.ord_to_str(0, &mut first)? && first == LONG;
        Ok(Values { column, has_long })
    }

    /// Returns true if a document has more terms than the column stores: only the dictionary contains them.
    pub fn is_long(&self, doc: u32) -> bool {
        self.has_long && self.column.ords().first(doc) == Some(0)
    }

    /// Returns the ordinals of a document's terms.
    pub fn ordinals(&self, doc: u32) -> impl Iterator<Item = u64> {
        self.column.ords().values_for_doc(doc)
    }

    /// Returns the term with an ordinal.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn term(&self, ordinal: u64) -> Result<String> {
        let mut term = String::new();
        self.column.ord_to_str(ordinal, &mut term)?;
        Ok(term)
    }
}

/// A segment open for reading.
pub struct Segment {
    reader: SegmentReader,
    fields: Fields,
    ids: Arc<InvertedIndexReader>,
    terms: Arc<InvertedIndexReader>,
    /// The terms of the composite field, if they are separate from the others.
    all: Option<Arc<InvertedIndexReader>>,
    /// Paths of terms with positions, computed on first use.
    paths: OnceLock<Vec<String>>,
    id_column: Option<StrColumn>,
    columns: Mutex<BTreeMap<(&'static str, String), Numbers>>,
    /// Opened when a document is first read.
    store: OnceLock<StoreReader>,
    /// Number of tokens of a path in all documents.
    tokens: Mutex<BTreeMap<String, u64>>,
    /// Opened when vectors are first compared.
    vectors: OnceLock<VectorFile>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment {}", self.reader.segment_id().uuid_string())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Segment {
    /// Opens a segment. With `has_all`, the composite field is separate from the others.
    ///
    /// # Errors
    /// A file is missing or corrupt.
    pub fn open(segment: &tantivy::Segment, fields: Fields, has_all: bool) -> Result<Segment> {
        let reader = SegmentReader::open(segment)?;
        Ok(Segment {
            ids: reader.inverted_index(fields.id)?,
            terms: reader.inverted_index(fields.terms)?,
            all: has_all.then(|| reader.inverted_index(fields.all)).transpose()?,
            paths: OnceLock::new(),
            id_column: reader.fast_fields().str("id")?,
            fields,
            reader,
            columns: Mutex::default(),
            tokens: Mutex::default(),
            store: OnceLock::new(),
            vectors: OnceLock::new(),
        })
    }

    /// Returns the largest document number plus one.
    #[must_use]
    pub fn max_doc(&self) -> u32 {
        self.reader.max_doc()
    }

    /// Returns the number of documents that are not deleted.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.reader.num_docs()
    }

    /// Returns true if a document is deleted.
    #[must_use]
    pub fn is_deleted(&self, doc: u32) -> bool {
        self.reader.is_deleted(doc)
    }

    /// Returns the document with an ID.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn document(&self, id: &str) -> Result<Option<u32>> {
        let Some(info) = self.ids.terms().get(id)? else { return Ok(None) };
        let mut postings = self.ids.read_postings_from_terminfo(&info, IndexRecordOption::Basic)?;
        while postings.doc() != END {
            if !self.is_deleted(postings.doc()) {
                return Ok(Some(postings.doc()));
            }
            postings.advance();
        }
        Ok(None)
    }

    /// Returns the documents with these IDs that exist in the segment.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn documents<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<Vec<u32>> {
        let mut docs = Vec::new();
        for id in ids {
            docs.extend(self.document(id)?);
        }
        Ok(docs)
    }

    /// Returns the documents of some vBuckets that are not deleted.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn documents_of_vbuckets(&self, vbuckets: &BTreeSet<u16>) -> Result<Vec<u32>> {
        let column = self.vbuckets()?;
        let is_of = |doc: &u32| {
            let vb = column.first(*doc).and_then(|vb| u16::try_from(vb).ok());
            vb.is_some_and(|vb| vbuckets.contains(&vb)) && !self.is_deleted(*doc)
        };
        Ok((0..self.max_doc()).filter(is_of).collect())
    }

    /// Returns the column with the vBucket of each document.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn vbuckets(&self) -> Result<Column<u64>> {
        Ok(self.reader.fast_fields().u64("vbucket")?)
    }

    /// Returns the ID of a document, with its collection.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn id(&self, doc: u32) -> Result<String> {
        let mut id = String::new();
        if let Some(column) = &self.id_column
            && let Some(ordinal) = column.ords().first(doc)
        {
            column.ord_to_str(ordinal, &mut id)?;
        }
        Ok(id)
    }

    /// Returns the position of a document's ID in the sorted IDs of the segment.
    #[must_use]
    pub fn id_ordinal(&self, doc: u32) -> u64 {
        self.id_column.as_ref().and_then(|column| column.ords().first(doc)).unwrap_or(0)
    }

    /// Returns the number of IDs in the segment that sort before `id`, which must not be one of them.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn ids_before(&self, id: &str) -> Result<u64> {
        let Some(column) = &self.id_column else { return Ok(0) };
        Ok(match column.dictionary().term_ord_or_next(id)? {
            TermOrdHit::Exact(before) | TermOrdHit::Next(before) => before,
        })
    }

    /// Returns the dictionary that contains the terms of a path.
    #[must_use]
    pub fn terms(&self, path: &str) -> &InvertedIndexReader {
        self.all.as_ref().filter(|_| path == ALL).unwrap_or(&self.terms)
    }

    /// Returns the paths of terms with positions, in order.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn paths(&self) -> Result<&[String]> {
        if let Some(paths) = self.paths.get() {
            return Ok(paths);
        }
        let (mut paths, mut start) = (Vec::new(), Vec::new());
        loop {
            let mut stream = self.terms.terms().range().ge(&start).into_stream()?;
            if !stream.advance() {
                break;
            }
            let key = stream.key();
            let end = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
            let path = std::str::from_utf8(&key[..end]).map_err(Error::internal)?;
            paths.push(path.to_owned());
            start = [&key[..end], &[1]].concat();
        }
        Ok(self.paths.get_or_init(|| paths))
    }

    /// Returns information about a term at a path, if documents contain it.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn term(&self, path: &str, term: &str) -> Result<Option<TermInfo>> {
        Ok(self.terms(path).terms().get(term_key(path, term))?)
    }

    /// Returns the postings of a term at a path.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn postings(
        &self,
        path: &str,
        info: &TermInfo,
        positions: bool,
    ) -> Result<SegmentPostings> {
        let option = if positions {
            IndexRecordOption::WithFreqsAndPositions
        } else {
            IndexRecordOption::WithFreqs
        };
        Ok(self.terms(path).read_postings_from_terminfo(info, option)?)
    }

    /// Calls `take` with each term of a path from `from` on, until it returns false.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn each_term(
        &self,
        path: &str,
        from: &str,
        mut take: impl FnMut(&str, &TermInfo) -> bool,
    ) -> Result<()> {
        let prefix = prefix_key(path);
        let start = [&prefix[..], from.as_bytes()].concat();
        let mut end = prefix.clone();
        *end.last_mut().expect("it ends with a zero") = 1;
        let mut stream = self.terms(path).terms().range().ge(start).lt(end).into_stream()?;
        while stream.advance() {
            let term =
                std::str::from_utf8(&stream.key()[prefix.len()..]).map_err(Error::internal)?;
            if !take(term, stream.value()) {
                break;
            }
        }
        Ok(())
    }

    fn numeric(&self, field: &'static str, path: &str) -> Result<Numbers> {
        let key = (field, column_key(path));
        if let Some(column) = locked(&self.columns).get(&key) {
            return Ok(column.clone());
        }
        let name = format!("{field}.{}", key.1);
        let mut found = Numbers::Absent;
        for handle in self.reader.fast_fields().dynamic_column_handles(&name)? {
            found = match handle.open()? {
                DynamicColumn::I64(column) => Numbers::I64(column),
                DynamicColumn::U64(column) => Numbers::U64(column),
                DynamicColumn::F64(column) => Numbers::F64(column),
                _ => continue,
            };
        }
        let mut columns = locked(&self.columns);
        if columns.len() >= COLUMNS_KEPT {
            columns.clear();
        }
        columns.insert(key, found.clone());
        Ok(found)
    }

    fn texts(&self, field: &str, path: &str) -> Result<Option<StrColumn>> {
        let name = format!("{field}.{}", column_key(path));
        for handle in self.reader.fast_fields().dynamic_column_handles(&name)? {
            if let DynamicColumn::Str(column) = handle.open()? {
                return Ok(Some(column));
            }
        }
        Ok(None)
    }

    /// Returns the numbers at a path.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn numbers(&self, path: &str) -> Result<Numbers> {
        self.numeric("numbers", path)
    }

    /// Returns the dates at a path, in nanoseconds.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn dates(&self, path: &str) -> Result<Numbers> {
        self.numeric("dates", path)
    }

    /// Returns the points at a path, encoded.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn places(&self, path: &str) -> Result<Numbers> {
        self.numeric("places", path)
    }

    /// Returns the number of tokens of each document at a path.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn lengths(&self, path: &str) -> Result<Numbers> {
        self.numeric("lengths", path)
    }

    /// Returns the total number of tokens of all documents at a path.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn tokens(&self, path: &str) -> Result<u64> {
        if let Some(count) = locked(&self.tokens).get(path) {
            return Ok(*count);
        }
        let lengths = self.lengths(path)?;
        let count = (0..self.max_doc()).map(|doc| lengths.first(doc)).sum();
        locked(&self.tokens).insert(path.to_owned(), count);
        Ok(count)
    }

    /// Returns the terms of each document at a path, as stored for facets and sorts.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn values(&self, path: &str) -> Result<Option<Values>> {
        self.texts("values", path)?.map(Values::new).transpose()
    }

    /// Returns the shapes at a path.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn shapes(&self, path: &str) -> Result<Option<StrColumn>> {
        self.texts("shapes", path)
    }

    /// Returns the vectors, if documents have some.
    ///
    /// # Errors
    /// The file is corrupt.
    pub fn vectors(&self) -> Result<Option<&VectorFile>> {
        if let Some(file) = self.vectors.get() {
            return Ok(Some(file));
        }
        let has_file = self
            .reader
            .index()
            .custom_plugins()
            .iter()
            .any(|plugin| plugin.extensions().contains(&EXTENSION));
        if !has_file {
            return Ok(None);
        }
        let opened = VectorFile::open(&self.reader)?;
        Ok(Some(self.vectors.get_or_init(|| opened)))
    }

    /// Returns a document as it was indexed, if it is stored.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn source(&self, doc: u32) -> Result<Option<Vec<u8>>> {
        let store = match self.store.get() {
            Some(store) => store,
            None => {
                let opened = self.reader.get_store_reader(BLOCKS_KEPT)?;
                self.store.get_or_init(|| opened)
            }
        };
        let document: TantivyDocument = store.get(doc)?;
        Ok(first_bytes(&document, self.fields.source))
    }
}

fn first_bytes(document: &TantivyDocument, field: Field) -> Option<Vec<u8>> {
    document.get_first(field).and_then(|value| value.as_bytes().map(<[u8]>::to_vec))
}
