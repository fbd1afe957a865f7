//! Vectors: how near they are, and the file of a segment that has them.
//!
//! ```text
//! file    for each path: documents u32 …, vectors f32 … (all little-endian)
//!         directory as JSON: [{path, dims, count, offset}], its length as u32
//! ```
//!
//! A document with several vectors is there several times. The nearest are found by reading all of them: exact, and 4 bytes a number.

use crate::error::{Error, Result};
use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use tantivy::directory::{FileSlice, TerminatingWrite};
use tantivy::index::SegmentComponent;
use tantivy::indexer::DocIdMapping;
use tantivy::{
    HasLen, PluginMergeContext, PluginWriter, PluginWriterContext, SegmentPlugin, SegmentReader,
};

/// The extension of the file.
pub const EXTENSION: &str = "vec";
/// Numbers that are read at a time.
const CHUNK: usize = 256 << 10;

/// How near two vectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The square of the distance; the less the nearer.
    L2,
    /// The product; the more the nearer.
    Dot,
    /// The product of vectors of length 1.
    Cosine,
}

impl Metric {
    /// The metric of a name.
    pub fn parse(name: &str) -> Option<Metric> {
        Some(match name {
            "" | "l2_norm" => Metric::L2,
            "dot_product" => Metric::Dot,
            "cosine" => Metric::Cosine,
            _ => return None,
        })
    }

    /// The score of a vector: one over the square of the distance, or the product.
    pub fn score(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Metric::L2 => {
                let distance = sum(a, b, |x, y| (x - y) * (x - y));
                if distance == 0.0 { f32::MAX } else { 1.0 / distance }
            }
            Metric::Dot | Metric::Cosine => sum(a, b, |x, y| x * y),
        }
    }

    /// A vector as it is compared.
    pub fn prepare(self, vector: &mut [f32]) {
        if self == Metric::Cosine {
            let length = sum(vector, vector, |x, y| x * y).sqrt();
            if length > 0.0 {
                vector.iter_mut().for_each(|number| *number /= length);
            }
        }
    }
}

/// Eight sums at a time, which compilers make instructions for vectors of.
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (mut sums, (a8, rest_a), (b8, rest_b)) =
        ([0.0_f32; 8], a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a8.iter().zip(b8) {
        for at in 0..8 {
            sums[at] += term(x[at], y[at]);
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(x, y)| term(*x, *y)).sum();
    sums.iter().sum::<f32>() + rest
}

/// The vectors of a value: one, or an array of them, two levels deep at most. `None` when a number is none or a length is another.
pub fn parse(value: &Value, dims: usize) -> Option<Vec<Vec<f32>>> {
    let elements = value.as_array()?;
    if elements.first().is_some_and(Value::is_array) {
        return elements.iter().map(|element| numbers(element, dims)).collect();
    }
    Some(vec![numbers(value, dims)?])
}

fn numbers(value: &Value, dims: usize) -> Option<Vec<f32>> {
    let numbers: Vec<f32> = value
        .as_array()?
        .iter()
        .map(|number| {
            number.as_f64().map(|number| number as f32).filter(|number| number.is_finite())
        })
        .collect::<Option<_>>()?;
    (numbers.len() == dims || dims == 0).then_some(numbers)
}

/// The vector of a text: base64 of little-endian numbers of four bytes.
pub fn decode(text: &str) -> Option<Vec<f32>> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (rest.is_empty() && numbers.iter().all(|number| number.is_finite())).then_some(numbers)
}

/// Entry of a path in the directory of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    path: String,
    dims: usize,
    count: usize,
    offset: usize,
}

/// Adds the file to segments.
pub struct VectorPlugin;

/// Vectors of a segment in the making.
#[derive(Default)]
pub struct VectorWriter {
    paths: BTreeMap<String, (Vec<u32>, usize, Vec<f32>)>,
}

impl VectorWriter {
    /// Adds a vector of a document. One of another length than the first of its path is left out; says whether it was taken.
    pub fn push(&mut self, doc: u32, path: &str, vector: &[f32]) -> bool {
        let new = || (Vec::new(), vector.len(), Vec::new());
        let (docs, dims, numbers) = self.paths.entry(path.to_owned()).or_insert_with(new);
        let suits = *dims == vector.len();
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
            let mut docs = Vec::new();
            for (file, new) in &files {
                for doc in file.docs(&path, dims)? {
                    docs.extend(new[doc as usize]);
                }
            }
            output.begin(&path, dims, &docs)?;
            for (file, new) in &files {
                file.each(&path, dims, |doc, vector| {
                    if new[doc as usize].is_some() { output.vector(vector) } else { Ok(()) }
                })?;
            }
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
        for (path, (docs, dims, numbers)) in &self.paths {
            output.begin(path, *dims, docs)?;
            output.vector(numbers)?;
        }
        output.finish()
    }

    fn mem_usage(&self) -> usize {
        self.paths
            .values()
            .map(|(docs, _, numbers)| 4 * (docs.capacity() + numbers.capacity()))
            .sum()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
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

    fn begin(&mut self, path: &str, dims: usize, docs: &[u32]) -> tantivy::Result<()> {
        let (path, count, offset) = (path.to_owned(), docs.len(), self.offset);
        self.entries.push(Entry { path, dims, count, offset });
        for doc in docs {
            self.file.write_all(&doc.to_le_bytes())?;
        }
        self.offset += 4 * docs.len();
        Ok(())
    }

    fn vector(&mut self, numbers: &[f32]) -> tantivy::Result<()> {
        for number in numbers {
            self.file.write_all(&number.to_le_bytes())?;
        }
        self.offset += 4 * numbers.len();
        Ok(())
    }

    fn finish(mut self) -> tantivy::Result<()> {
        let directory = serde_json::to_vec(&self.entries)
            .map_err(|error| tantivy::TantivyError::InternalError(error.to_string()))?;
        self.file.write_all(&directory)?;
        self.file.write_all(&(directory.len() as u32).to_le_bytes())?;
        self.file.terminate()?;
        Ok(())
    }
}

/// The vectors of a segment.
pub struct VectorFile {
    file: FileSlice,
    entries: Vec<Entry>,
}

impl VectorFile {
    /// The vectors of a segment.
    ///
    /// # Errors
    /// The file is not there, or broken.
    pub fn open(reader: &SegmentReader) -> tantivy::Result<VectorFile> {
        let broken = |text: String| tantivy::TantivyError::InternalError(text);
        let file = reader.open_read(component())?;
        let length = file.len();
        if length < 4 {
            return Err(broken("a file of vectors is too short".into()));
        }
        let tail = file.slice_from(length - 4).read_bytes()?;
        let size = u32::from_le_bytes(tail.as_slice().try_into().expect("four bytes")) as usize;
        let Some(start) = (length - 4).checked_sub(size) else {
            return Err(broken("a file of vectors is too short".into()));
        };
        let directory = file.slice(start..length - 4).read_bytes()?;
        let entries =
            serde_json::from_slice(&directory).map_err(|error| broken(error.to_string()))?;
        Ok(VectorFile { file, entries })
    }

    fn entry(&self, path: &str, dims: usize) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path && entry.dims == dims)
    }

    fn docs(&self, path: &str, dims: usize) -> tantivy::Result<Vec<u32>> {
        let Some(entry) = self.entry(path, dims) else { return Ok(Vec::new()) };
        let bytes = self.file.slice(entry.offset..entry.offset + 4 * entry.count).read_bytes()?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    fn each(
        &self,
        path: &str,
        dims: usize,
        mut take: impl FnMut(u32, &[f32]) -> tantivy::Result<()>,
    ) -> tantivy::Result<()> {
        let Some(entry) = self.entry(path, dims) else { return Ok(()) };
        let docs = self.docs(path, dims)?;
        let start = entry.offset + 4 * entry.count;
        let at_once = (CHUNK / dims.max(1)).max(1);
        let mut vector = vec![0.0; dims];
        for (number, chunk) in docs.chunks(at_once).enumerate() {
            let from = start + number * at_once * 4 * dims;
            let bytes = self.file.slice(from..from + chunk.len() * 4 * dims).read_bytes()?;
            for (doc, bytes) in chunk.iter().zip(bytes.chunks_exact(4 * dims)) {
                for (number, bytes) in vector.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *number = f32::from_le_bytes(*bytes);
                }
                take(*doc, &vector)?;
            }
        }
        Ok(())
    }

    /// The documents that are nearest to a vector, the nearest first, and their scores; of those only that `eligible` takes.
    ///
    /// # Errors
    /// The file is broken.
    pub fn nearest(
        &self,
        path: &str,
        vector: &[f32],
        metric: Metric,
        count: usize,
        eligible: impl Fn(u32) -> bool,
    ) -> Result<Vec<(u32, f32)>> {
        let mut best: BinaryHeap<Near> = BinaryHeap::new();
        // The vectors of a document follow one another.
        let mut current: Option<Near> = None;
        let mut keep = |near: Option<Near>| {
            best.extend(near);
            if best.len() > count {
                best.pop();
            }
        };
        self.each(path, vector.len(), |doc, other| {
            if !eligible(doc) {
                return Ok(());
            }
            let score = metric.score(vector, other);
            match &mut current {
                Some(near) if near.doc == doc => near.score = near.score.max(score),
                _ => keep(current.replace(Near { doc, score })),
            }
            Ok(())
        })
        .map_err(Error::from)?;
        keep(current);
        Ok(best.into_sorted_vec().into_iter().map(|near| (near.doc, near.score)).collect())
    }
}

/// The farthest is the greatest.
struct Near {
    doc: u32,
    score: f32,
}

impl Ord for Near {
    fn cmp(&self, other: &Near) -> Ordering {
        other.score.total_cmp(&self.score).then(self.doc.cmp(&other.doc))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Near) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near {
    fn eq(&self, other: &Near) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Near {}
