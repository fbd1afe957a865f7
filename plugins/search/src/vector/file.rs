//! The file of a segment that has its vectors.
//!
//! ```text
//! file  for each path: documents u32 …, [centroids f32 …, ends of lists u32 …,] [least f32 …, steps f32 …, codes u8 …, squares f32 …,]
//!       vectors f32 … (all little-endian)
//!       directory as JSON: [{path, dims, count, offset, coded, lists}], its length as u32
//! ```
//!
//! | vectors of a path | form | a search reads |
//! | --- | --- | --- |
//! | fewer than 1,000 | the vectors | all of them |
//! | fewer than 4,000 | codes of a byte a number as well | all codes, and the vectors of the best |
//! | more | in lists around centroids, by these | the codes of the nearest lists, and the vectors of the best |
//!
//! A document with several vectors is there several times. Files of earlier versions have the vectors only.

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
/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// From so many vectors on they have codes.
const CODED_MIN: usize = 1_000;
/// From so many vectors on they are in lists.
const LISTS_MIN: usize = 4_000;
/// Vectors of a sample for each list, and bytes of a sample at most: both bound the time of a merge.
const SAMPLED: usize = 16;
const SAMPLE_BYTES_MAX: usize = 24 << 20;
/// Times as many vectors as neighbours that are wanted are compared exactly, and so many at least.
const COMPARED: usize = 4;
const COMPARED_MIN: usize = 64;
/// Up to so many documents that a filter leaves are all compared exactly.
const FILTERED_MAX: usize = 1_000;
/// A filter that leaves a smaller share has more lists read.
const FILTERED_SHARE: f32 = 0.1;

/// Entry of a path in the directory of a file.
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

/// Where the parts of an entry are in the file.
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

/// Adds the file to segments.
pub struct VectorPlugin;

/// Vectors of a segment in the making.
#[derive(Default)]
pub struct VectorWriter {
    paths: BTreeMap<String, New>,
}

/// New vectors of a path.
#[derive(Default)]
struct New {
    docs: Vec<u32>,
    dims: usize,
    numbers: Vec<f32>,
}

impl VectorWriter {
    /// Adds a vector of a document. One of another length than the first of its path is left out; says whether it was taken.
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
            // Segments are put one after the other, without what is deleted.
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

/// Vectors that a file is written of.
trait Rows {
    fn dims(&self) -> usize;

    fn count(&self) -> usize;

    /// The document of a row.
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

/// A row of a file that is merged, and the document that it belongs to afterwards.
struct Row {
    file: usize,
    row: usize,
    doc: u32,
}

/// The vectors of several files that are left.
struct Merged<'a> {
    path: &'a str,
    dims: usize,
    files: Vec<&'a VectorFile>,
    /// In the order of the files, and of their rows.
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

    /// Writes the vectors of a path in the form for their number.
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

/// The code for all vectors.
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

/// Divides vectors into lists: the order of their rows by list, and where each list ends in it.
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

/// The neighbours that are wanted.
pub struct Wanted<'a> {
    /// The vector, prepared for the metric.
    pub vector: &'a [f32],
    /// How near vectors are.
    pub metric: Metric,
    /// How many documents are wanted.
    pub count: usize,
    /// The share of the lists of a large segment that is read.
    pub share: f32,
    /// How many documents of the segment a filter leaves, if there is one.
    pub filtered: Option<usize>,
}

/// What searches of an entry need again.
struct Loaded {
    docs: Vec<u32>,
    /// Vectors of a document, on average.
    vectors_each: usize,
    centroids: Centroids,
    ends: Vec<u32>,
    code: Option<Code>,
}

impl Loaded {
    /// The rows of a list; of all vectors if they are in none.
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
    /// The vectors of a segment.
    ///
    /// # Errors
    /// The file is not there, or broken.
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

    /// The documents that are nearest to a vector, the nearest first, and their scores; of those only that `eligible` takes.
    ///
    /// # Errors
    /// The file is broken.
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

    /// The rows that are nearest by their codes, in their order.
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

    /// The lists, the nearest first.
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

    /// The documents of some rows that are nearest, the nearest first, and their scores.
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

/// A number in the order of all numbers.
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
