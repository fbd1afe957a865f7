//! The file with a segment's vectors.
//!
//! ```text
//! file  for each path: documents u32 …, [centroids f32 …, ends of lists u32 …,] [least f32 …, steps f32 …, codes u8 …, squares f32 …,]
//!       vectors f32 … (all little-endian)
//!       directory as JSON: [{path, dims, count, offset, coded, lists}], its length as u32
//! ```
//!
//! | vectors of a path | format | a search reads |
//! | --- | --- | --- |
//! | fewer than 1,000 | the vectors | all of them |
//! | fewer than 4,000 | also codes with one byte per number | all codes, and the vectors of the best |
//! | more | lists around centroids, with vectors and codes ordered by list | the codes of the nearest lists, and the vectors of the best |
//!
//! A document with several vectors occurs several times. Files of earlier versions contain the vectors only.

use super::Metric;
use super::cluster::{Centroids, Clusters};
use super::code::{Asked, Code};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tantivy::directory::{FileSlice, TerminatingWrite};
use tantivy::index::SegmentComponent;
use tantivy::indexer::DocIdMapping;
use tantivy::{
    HasLen, PluginMergeContext, PluginWriter, PluginWriterContext, SegmentPlugin, SegmentReader,
    TantivyError,
};

/// The extension of the file.
pub const EXTENSION: &str = "vec";
/// Number of bytes per read.
const CHUNK: usize = 256 << 10;
/// Number of vectors from which the file contains codes.
const CODED_MIN: usize = 1_000;
/// Number of vectors from which the file contains lists.
const LISTS_MIN: usize = 4_000;
/// Number of sampled vectors per list, and maximum size of a sample in bytes. Both limit the duration of a merge.
const SAMPLED: usize = 16;
const SAMPLE_BYTES_MAX: usize = 24 << 20;
/// Number of vectors compared exactly for each requested neighbour, and the minimum number of such vectors.
const COMPARED: usize = 4;
const COMPARED_MIN: usize = 64;
/// If a filter leaves at most this many documents, all of them are compared exactly.
const FILTERED_MAX: usize = 1_000;
/// If a filter leaves a smaller share of the documents, the search reads more lists.
const FILTERED_SHARE: f32 = 0.1;

/// The directory entry of a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    path: String,
    dims: usize,
    count: usize,
    offset: usize,
    #[serde(default)]
    coded: bool,
    #[serde(default)]
    lists: usize,
}

/// The positions of an entry's parts in the file.
struct Layout {
    docs: Range<usize>,
    centroids: Range<usize>,
    ends: Range<usize>,
    least: Range<usize>,
    steps: Range<usize>,
    codes: Range<usize>,
    squares: Range<usize>,
    vectors: Range<usize>,
}

impl Entry {
    fn layout(&self) -> Layout {
        let mut at = self.offset;
        let mut part = |bytes: usize| {
            at = at.saturating_add(bytes);
            at.saturating_sub(bytes)..at
        };
        let vectors = 4_usize.saturating_mul(self.count).saturating_mul(self.dims);
        let if_coded = |bytes| if self.coded { bytes } else { 0 };
        Layout {
            docs: part(4 * self.count),
            centroids: part(4 * self.lists * self.dims),
            ends: part(4 * self.lists),
            least: part(if_coded(4 * self.dims)),
            steps: part(if_coded(4 * self.dims)),
            codes: part(if_coded(vectors / 4)),
            squares: part(if_coded(4 * self.count)),
            vectors: part(vectors),
        }
    }
}

/// Adds the vector file to segments.
pub struct VectorPlugin;

/// The vectors of a segment that is being written.
#[derive(Default)]
pub struct VectorWriter {
    paths: BTreeMap<String, New>,
}

/// The new vectors of a path.
#[derive(Default)]
struct New {
    docs: Vec<u32>,
    dims: usize,
    numbers: Vec<f32>,
}

impl VectorWriter {
    /// Adds a vector of a document. Returns false, and omits the vector, if its length differs from that of the path's first
    /// vector.
    pub fn push(&mut self, doc: u32, path: &str, vector: &[f32]) -> bool {
        let new = || New { dims: vector.len(), ..New::default() };
        let New { docs, dims, numbers } = self.paths.entry(path.to_owned()).or_insert_with(new);
        let suits = *dims == vector.len() && *dims > 0;
        if suits {
            docs.push(doc);
            numbers.extend_from_slice(vector);
        }
        suits
    }
}

fn component() -> SegmentComponent {
    SegmentComponent::Custom(EXTENSION.to_owned())
}

fn broken(text: impl ToString) -> TantivyError {
    TantivyError::InternalError(text.to_string())
}

impl SegmentPlugin for VectorPlugin {
    fn extensions(&self) -> &[&str] {
        &[EXTENSION]
    }

    fn create_writer(&self, _: &PluginWriterContext<'_>) -> tantivy::Result<Box<dyn PluginWriter>> {
        Ok(Box::<VectorWriter>::default())
    }

    fn merge(&self, ctx: PluginMergeContext<'_>) -> tantivy::Result<()> {
        let mut files = Vec::new();
        let mut first = 0;
        for reader in ctx.readers {
            // The segments are concatenated, without deleted documents.
            let mut new = vec![None; reader.max_doc() as usize];
            for doc in reader.doc_ids_alive() {
                new[doc as usize] = Some(first);
                first += 1;
            }
            files.push((VectorFile::open(reader)?, new));
        }
        let mut paths: BTreeMap<String, usize> = BTreeMap::new();
        for entry in files.iter().flat_map(|(file, _)| &file.entries) {
            paths.entry(entry.path.clone()).or_insert(entry.dims);
        }
        let mut output = Output::new(ctx.target_segment.open_write(component())?);
        for (path, dims) in paths {
            let mut rows = Vec::new();
            for (number, (file, new)) in files.iter().enumerate() {
                let Some(entry) = file.entry(&path, dims) else { continue };
                let docs = file.u32s(entry.layout().docs)?;
                let alive = docs.iter().enumerate().filter_map(|(row, doc)| {
                    Some(Row { file: number, row, doc: (*new.get(*doc as usize)?)? })
                });
                rows.extend(alive);
            }
            let files = files.iter().map(|(file, _)| file).collect();
            output.write(&path, &Merged { path: &path, dims, files, rows })?;
        }
        output.finish()
    }
}

impl PluginWriter for VectorWriter {
    fn serialize(
        self: Box<Self>,
        segment: &tantivy::Segment,
        _: Option<&DocIdMapping>,
    ) -> tantivy::Result<()> {
        let mut output = Output::new(segment.open_write(component())?);
        for (path, new) in &self.paths {
            output.write(path, new)?;
        }
        output.finish()
    }

    fn mem_usage(&self) -> usize {
        let bytes = |new: &New| 4 * (new.docs.capacity() + new.numbers.capacity());
        self.paths.values().map(bytes).sum()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Vectors that are written to a file.
trait Rows {
    fn dims(&self) -> usize;

    fn count(&self) -> usize;

    /// Returns the document of a row.
    fn doc(&self, row: usize) -> u32;

    /// Reads the vector of a row.
    fn read(&self, row: usize, vector: &mut [f32]) -> tantivy::Result<()>;

    /// Reads all vectors in the order of their rows.
    fn each(&self, take: &mut dyn FnMut(usize, &[f32])) -> tantivy::Result<()>;
}

impl Rows for New {
    fn dims(&self) -> usize {
        self.dims
    }

    fn count(&self) -> usize {
        self.docs.len()
    }

    fn doc(&self, row: usize) -> u32 {
        self.docs[row]
    }

    fn read(&self, row: usize, vector: &mut [f32]) -> tantivy::Result<()> {
        vector.copy_from_slice(&self.numbers[row * self.dims..(row + 1) * self.dims]);
        Ok(())
    }

    fn each(&self, take: &mut dyn FnMut(usize, &[f32])) -> tantivy::Result<()> {
        let vectors = self.numbers.chunks_exact(self.dims.max(1)).enumerate();
        vectors.for_each(|(row, vector)| take(row, vector));
        Ok(())
    }
}

/// A row of a merged file, and its document after the merge.
struct Row {
    file: usize,
    row: usize,
    doc: u32,
}

/// The remaining vectors of several files.
struct Merged<'a> {
    path: &'a str,
    dims: usize,
    files: Vec<&'a VectorFile>,
    /// Rows in the order of their files and of their positions.
    rows: Vec<Row>,
}

impl Rows for Merged<'_> {
    fn dims(&self) -> usize {
        self.dims
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn doc(&self, row: usize) -> u32 {
        self.rows[row].doc
    }

    fn read(&self, row: usize, vector: &mut [f32]) -> tantivy::Result<()> {
        let Row { file, row, .. } = self.rows[row];
        let file = self.files[file];
        let entry = file.entry(self.path, self.dims).ok_or_else(|| broken("no such vectors"))?;
        file.vectors(entry, row..row + 1, |_, found| vector.copy_from_slice(found))
    }

    fn each(&self, take: &mut dyn FnMut(usize, &[f32])) -> tantivy::Result<()> {
        let mut next = 0;
        for (number, file) in self.files.iter().enumerate() {
            let Some(entry) = file.entry(self.path, self.dims) else { continue };
            file.vectors(entry, 0..entry.count, |row, vector| {
                if self.rows.get(next).is_some_and(|next| (next.file, next.row) == (number, row)) {
                    take(next, vector);
                    next += 1;
                }
            })?;
        }
        Ok(())
    }
}

struct Output<W> {
    file: W,
    entries: Vec<Entry>,
    offset: usize,
}

impl<W: TerminatingWrite> Output<W> {
    fn new(file: W) -> Output<W> {
        Output { file, entries: Vec::new(), offset: 0 }
    }

    fn bytes(&mut self, bytes: &[u8]) -> tantivy::Result<()> {
        self.offset += bytes.len();
        Ok(self.file.write_all(bytes)?)
    }

    fn u32s(&mut self, numbers: impl IntoIterator<Item = u32>) -> tantivy::Result<()> {
        numbers.into_iter().try_for_each(|number| self.bytes(&number.to_le_bytes()))
    }

    fn f32s(&mut self, numbers: &[f32]) -> tantivy::Result<()> {
        numbers.iter().try_for_each(|number| self.bytes(&number.to_le_bytes()))
    }

    /// Writes the vectors of a path in the format for their number.
    fn write(&mut self, path: &str, rows: &dyn Rows) -> tantivy::Result<()> {
        let (dims, count, offset) = (rows.dims(), rows.count(), self.offset);
        let mut entry =
            Entry { path: path.to_owned(), dims, count, offset, coded: false, lists: 0 };
        if count < CODED_MIN {
            self.u32s((0..count).map(|row| rows.doc(row)))?;
            let mut outcome = Ok(());
            rows.each(&mut |_, vector| {
                if outcome.is_ok() {
                    outcome = self.f32s(vector);
                }
            })?;
            self.entries.push(entry);
            return outcome;
        }
        let code = code_of(rows)?;
        let mut order: Vec<usize> = (0..count).collect();
        let mut lists = None;
        if count >= LISTS_MIN {
            let (clusters, ends);
            (clusters, order, ends) = in_lists(rows)?;
            entry.lists = clusters.lists().len();
            lists = Some((clusters, ends));
        }
        entry.coded = true;
        self.u32s(order.iter().map(|row| rows.doc(*row)))?;
        if let Some((clusters, ends)) = lists {
            self.f32s(clusters.lists().numbers())?;
            self.u32s(ends)?;
        }
        self.f32s(&code.base)?;
        self.f32s(&code.step)?;
        let (mut vector, mut codes, mut squares) = (vec![0.0; dims], Vec::new(), Vec::new());
        for row in &order {
            rows.read(*row, &mut vector)?;
            squares.push(super::dot(&vector, &vector));
            codes.clear();
            codes.extend(code.encode(&vector));
            self.bytes(&codes)?;
        }
        self.f32s(&squares)?;
        for row in order {
            rows.read(row, &mut vector)?;
            self.f32s(&vector)?;
        }
        self.entries.push(entry);
        Ok(())
    }

    fn finish(mut self) -> tantivy::Result<()> {
        let directory = serde_json::to_vec(&self.entries).map_err(broken)?;
        self.file.write_all(&directory)?;
        self.file.write_all(&(directory.len() as u32).to_le_bytes())?;
        self.file.terminate()?;
        Ok(())
    }
}

/// Returns the quantization for all vectors.
fn code_of(rows: &dyn Rows) -> tantivy::Result<Code> {
    let dims = rows.dims();
    let (mut least, mut greatest) = (vec![f32::INFINITY; dims], vec![f32::NEG_INFINITY; dims]);
    rows.each(&mut |_, vector| {
        for ((low, high), number) in least.iter_mut().zip(&mut greatest).zip(vector) {
            (*low, *high) = (low.min(*number), high.max(*number));
        }
    })?;
    Ok(Code::between(least, &greatest))
}

/// Divides vectors into lists. Returns the clusters, the rows ordered by list, and the end of each list.
fn in_lists(rows: &dyn Rows) -> tantivy::Result<(Clusters, Vec<usize>, Vec<u32>)> {
    let (dims, count) = (rows.dims(), rows.count());
    let lists_count = 4 * count.isqrt();
    let sampled = count.min(SAMPLED * lists_count).min(SAMPLE_BYTES_MAX / (4 * dims)).max(1);
    let (mut sample, mut vector) = (Vec::with_capacity(sampled * dims), vec![0.0; dims]);
    for number in 0..sampled {
        let row = number as u64 * count as u64 / sampled as u64;
        rows.read(row as usize, &mut vector)?;
        sample.extend_from_slice(&vector);
    }
    let clusters = Clusters::train(&sample, dims, lists_count);
    let mut list_of = Vec::with_capacity(count);
    rows.each(&mut |_, vector| list_of.push(clusters.list_of(vector)))?;
    let mut ends = vec![0_u32; clusters.lists().len()];
    list_of.iter().for_each(|list| ends[*list] += 1);
    let mut end = 0;
    for members in &mut ends {
        end += *members;
        *members = end;
    }
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|row| list_of[*row]);
    Ok((clusters, order, ends))
}

/// A search for neighbours.
pub struct Wanted<'a> {
    /// The query vector, prepared for the metric.
    pub vector: &'a [f32],
    /// The metric.
    pub metric: Metric,
    /// The number of requested documents.
    pub count: usize,
    /// The share of a large segment's lists that the search reads.
    pub share: f32,
    /// The number of documents in the segment that pass the filter, if there is one.
    pub filtered: Option<usize>,
}

/// Data of an entry that further searches reuse.
struct Loaded {
    docs: Vec<u32>,
    /// Average number of vectors per document.
    vectors_each: usize,
    centroids: Centroids,
    ends: Vec<u32>,
    code: Option<Code>,
}

impl Loaded {
    /// Returns the rows of a list, or all rows if there are no lists.
    fn rows_of(&self, list: usize) -> Range<usize> {
        let count = self.docs.len();
        let end = self.ends.get(list).map_or(count, |end| *end as usize).min(count);
        let start = list.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        start.min(end)..end
    }
}

/// The vectors of a segment.
pub struct VectorFile {
    file: FileSlice,
    entries: Vec<Entry>,
    loaded: Mutex<BTreeMap<String, Arc<Loaded>>>,
}

impl VectorFile {
    /// Opens the vectors of a segment.
    ///
    /// # Errors
    /// The file is missing or corrupt.
    pub fn open(reader: &SegmentReader) -> tantivy::Result<VectorFile> {
        let file = reader.open_read(component())?;
        let length = file.len();
        if length < 4 {
            return Err(broken("a file of vectors is too short"));
        }
        let tail = file.slice_from(length - 4).read_bytes()?;
        let size = u32::from_le_bytes(tail.as_slice().try_into().expect("four bytes")) as usize;
        let Some(start) = (length - 4).checked_sub(size) else {
            return Err(broken("a file of vectors is too short"));
        };
        let directory = file.slice(start..length - 4).read_bytes()?;
        let entries: Vec<Entry> = serde_json::from_slice(&directory).map_err(broken)?;
        if entries.iter().any(|entry| entry.layout().vectors.end > start || entry.dims == 0) {
            return Err(broken("a file of vectors is too short"));
        }
        Ok(VectorFile { file, entries, loaded: Mutex::default() })
    }

    fn entry(&self, path: &str, dims: usize) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path && entry.dims == dims)
    }

    fn u32s(&self, range: Range<usize>) -> tantivy::Result<Vec<u32>> {
        let bytes = self.file.slice(range).read_bytes()?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    fn f32s(&self, range: Range<usize>) -> tantivy::Result<Vec<f32>> {
        let bytes = self.file.slice(range).read_bytes()?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Reads the vectors of some rows.
    fn vectors(
        &self,
        entry: &Entry,
        rows: Range<usize>,
        mut take: impl FnMut(usize, &[f32]),
    ) -> tantivy::Result<()> {
        let (start, bytes_each) = (entry.layout().vectors.start, 4 * entry.dims);
        let at_once = (CHUNK / bytes_each).max(1);
        let mut vector = vec![0.0; entry.dims];
        for first in rows.clone().step_by(at_once) {
            let end = (first + at_once).min(rows.end);
            let range = start + first * bytes_each..start + end * bytes_each;
            let bytes = self.file.slice(range).read_bytes()?;
            for (row, bytes) in (first..end).zip(bytes.chunks_exact(bytes_each)) {
                for (number, bytes) in vector.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *number = f32::from_le_bytes(*bytes);
                }
                take(row, &vector);
            }
        }
        Ok(())
    }

    fn load(&self, entry: &Entry) -> tantivy::Result<Arc<Loaded>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = loaded.get(&entry.path) {
            return Ok(Arc::clone(loaded));
        }
        let layout = entry.layout();
        let docs = self.u32s(layout.docs)?;
        let mut distinct = docs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let code = match entry.coded {
            true => Some(Code { base: self.f32s(layout.least)?, step: self.f32s(layout.steps)? }),
            false => None,
        };
        let new = Arc::new(Loaded {
            vectors_each: docs.len().div_ceil(distinct.len().max(1)).max(1),
            docs,
            centroids: Centroids::new(self.f32s(layout.centroids)?, entry.dims),
            ends: self.u32s(layout.ends)?,
            code,
        });
        loaded.insert(entry.path.clone(), Arc::clone(&new));
        Ok(new)
    }

    /// Returns the nearest documents to a vector with their scores, nearest first, among the documents that `eligible`
    /// accepts.
    ///
    /// # Errors
    /// The file is corrupt.
    pub fn nearest(
        &self,
        path: &str,
        wanted: &Wanted<'_>,
        eligible: impl Fn(u32) -> bool,
    ) -> Result<Vec<(u32, f32)>> {
        let Some(entry) = self.entry(path, wanted.vector.len()) else { return Ok(Vec::new()) };
        let loaded = self.load(entry)?;
        let rows = match &loaded.code {
            Some(code) if wanted.filtered.is_none_or(|left| left > FILTERED_MAX) => {
                self.candidates(entry, &loaded, code, wanted, &eligible)?
            }
            _ => {
                let docs = loaded.docs.iter().enumerate();
                docs.filter(|(_, doc)| eligible(**doc)).map(|(row, _)| row).collect()
            }
        };
        self.compare(entry, &loaded, wanted, &rows)
    }

    /// Returns the nearest rows according to their codes, in order.
    fn candidates(
        &self,
        entry: &Entry,
        loaded: &Loaded,
        code: &Code,
        wanted: &Wanted<'_>,
        eligible: &impl Fn(u32) -> bool,
    ) -> Result<Vec<usize>> {
        let asked = Asked::new(wanted.vector, code, wanted.metric);
        let compared = (COMPARED * wanted.count).max(COMPARED_MIN) * loaded.vectors_each;
        let lists = self.lists(loaded, wanted);
        let share = match wanted.filtered {
            Some(left) => {
                let left = left as f32 / loaded.docs.len().max(1) as f32;
                wanted.share * (FILTERED_SHARE / left.max(f32::MIN_POSITIVE)).max(1.0)
            }
            None => wanted.share,
        };
        let lists_min = (lists.len() as f32 * share).ceil() as usize;
        let layout = entry.layout();
        let mut best: BinaryHeap<Reverse<(Ordered, usize)>> = BinaryHeap::new();
        let mut seen = 0;
        for (number, list) in lists.into_iter().enumerate() {
            if number >= lists_min && seen >= compared {
                break;
            }
            let rows = loaded.rows_of(list);
            let at_once = (CHUNK / entry.dims).max(1);
            for first in rows.clone().step_by(at_once) {
                let end = (first + at_once).min(rows.end);
                let Some(skipped) = loaded.docs[first..end].iter().position(|doc| eligible(*doc))
                else {
                    continue;
                };
                let first = first + skipped;
                let range = |part: &Range<usize>, bytes: usize| {
                    part.start + first * bytes..part.start + end * bytes
                };
                let codes = self.file.slice(range(&layout.codes, entry.dims)).read_bytes();
                let codes = codes.map_err(TantivyError::from)?;
                let squares = self.f32s(range(&layout.squares, 4))?;
                let codes = codes.chunks_exact(entry.dims).zip(squares);
                for (row, (code, square)) in (first..end).zip(codes) {
                    if !eligible(loaded.docs[row]) {
                        continue;
                    }
                    seen += 1;
                    let near = Ordered(asked.nearness(code, square));
                    if best.len() < compared {
                        best.push(Reverse((near, row)));
                    } else if best.peek().is_some_and(|Reverse((worst, _))| *worst < near) {
                        best.pop();
                        best.push(Reverse((near, row)));
                    }
                }
            }
        }
        let mut rows: Vec<usize> = best.into_iter().map(|Reverse((_, row))| row).collect();
        rows.sort_unstable();
        Ok(rows)
    }

    /// Returns the lists, nearest first.
    fn lists(&self, loaded: &Loaded, wanted: &Wanted<'_>) -> Vec<usize> {
        if loaded.centroids.len() == 0 {
            return vec![0];
        }
        let distances: Vec<f32> = match wanted.metric {
            Metric::L2 => loaded.centroids.distances(wanted.vector).collect(),
            Metric::Dot | Metric::Cosine => {
                let centroids = loaded.centroids.numbers().chunks_exact(wanted.vector.len());
                centroids.map(|centroid| -super::dot(centroid, wanted.vector)).collect()
            }
        };
        let mut lists: Vec<usize> = (0..distances.len()).collect();
        lists.sort_by(|a, b| distances[*a].total_cmp(&distances[*b]));
        lists
    }

    /// Returns the nearest documents among some rows with their scores, nearest first.
    fn compare(
        &self,
        entry: &Entry,
        loaded: &Loaded,
        wanted: &Wanted<'_>,
        rows: &[usize],
    ) -> Result<Vec<(u32, f32)>> {
        let mut scores: BTreeMap<u32, f32> = BTreeMap::new();
        for run in rows.chunk_by(|row, next| row + 1 == *next) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            self.vectors(entry, *first..last + 1, |row, vector| {
                let score = wanted.metric.score(wanted.vector, vector);
                let known = scores.entry(loaded.docs[row]).or_insert(score);
                *known = known.max(score);
            })?;
        }
        let mut best: Vec<(u32, f32)> = scores.into_iter().collect();
        best.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        best.truncate(wanted.count);
        Ok(best)
    }
}

/// A number with a total order.
#[derive(PartialEq)]
struct Ordered(f32);

impl Eq for Ordered {}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
