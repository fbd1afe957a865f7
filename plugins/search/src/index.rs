//! The index of a partition: documents in immutable segments, which are written, merged and deleted.
//!
//! ```text
//! apply   documents ─► one new segment, and deletion marks in the others
//! commit  ─► the metadata, which lists the segments; the blobs that it names must be kept
//! merge   several segments ─► one
//! ```

mod document;
mod encoded;
mod merge;
mod segment;

pub use document::{ALL, COLLECTION};
pub use segment::{Numbers, Segment, Values};

use crate::blobs::Blobs;
use crate::definition::Definition;
use crate::directory::BlobDirectory;
use crate::document::Place;
use crate::error::{Error, Result};
use crate::vector::{EXTENSION, VectorPlugin, VectorWriter};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tantivy::directory::TerminatingWrite;
use tantivy::fastfield::write_alive_bitset;
use tantivy::index::{IndexMeta, IndexSettings, SegmentComponent, SegmentId, SegmentMeta};
use tantivy::indexer::{AddOperation, SegmentWriter};
use tantivy::schema::{
    BytesOptions, FAST, Field, IndexRecordOption, JsonObjectOptions, Schema, TextFieldIndexing,
    TextOptions,
};
use tantivy::store::{Compressor, ZstdCompressor};
use tantivy::{BitSet, Directory, TERMINATED};

/// Memory limit of a segment that is being written, in bytes.
const SEGMENT_MEMORY: usize = 48 << 20;
/// Expected size of the dictionary of a segment that is being written, in bytes.
const DICTIONARY_MEMORY: usize = 4 << 20;

/// The tantivy fields of every document.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// The ID; in an index of collections, followed by a zero and the collection.
    pub id: Field,
    /// The vBucket.
    pub vbucket: Field,
    /// Terms as `path 00 term`, with positions.
    pub terms: Field,
    /// Terms of the composite field in the same format, without positions: phrases use the positions of the original fields.
    pub all: Field,
    /// Columns of numbers, by path.
    pub numbers: Field,
    /// Columns of dates in nanoseconds, by path.
    pub dates: Field,
    /// Columns of points, by path.
    pub places: Field,
    /// Columns of terms, by path.
    pub values: Field,
    /// Columns of the number of tokens, by path.
    pub lengths: Field,
    /// Columns of shapes as GeoJSON, by path.
    pub shapes: Field,
    /// The stored document.
    pub source: Field,
}

impl Fields {
    fn schema() -> (Schema, Fields) {
        let mut schema = Schema::builder();
        let text = |tokenizer: &str, option| {
            let indexing = TextFieldIndexing::default()
                .set_tokenizer(tokenizer)
                .set_fieldnorms(false)
                .set_index_option(option);
            TextOptions::default().set_indexing_options(indexing)
        };
        let columns = || JsonObjectOptions::default().set_fast("raw");
        let fields = Fields {
            id: schema.add_text_field("id", text("raw", IndexRecordOption::Basic).set_fast("raw")),
            vbucket: schema.add_u64_field("vbucket", FAST),
            terms: schema.add_text_field(
                "terms",
                text(encoded::NAME, IndexRecordOption::WithFreqsAndPositions),
            ),
            all: schema.add_text_field("all", text(encoded::NAME, IndexRecordOption::WithFreqs)),
            numbers: schema.add_json_field("numbers", columns()),
            dates: schema.add_json_field("dates", columns()),
            places: schema.add_json_field("places", columns()),
            values: schema.add_json_field("values", columns()),
            lengths: schema.add_json_field("lengths", columns()),
            shapes: schema.add_json_field("shapes", columns()),
            source: schema.add_bytes_field("source", BytesOptions::default().set_stored()),
        };
        (schema.build(), fields)
    }
}

/// A change of a document.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The vBucket of the document.
    pub vb: u16,
    /// The ID of the document.
    pub id: &'a str,
    /// The new content; `None` if the document is deleted.
    pub body: Option<&'a [u8]>,
    /// The collection of the document.
    pub place: Place<'a>,
}

/// The result of a batch of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of documents added to the index.
    pub indexed: u64,
    /// Number of documents removed from the index, including replaced ones.
    pub removed: u64,
    /// Number of values that were omitted, because they do not suit the mapping or are too many.
    pub skipped: u64,
}

/// A record from which the index can be reopened in its present state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Commit {
    /// The metadata for [`Index::open`].
    pub meta: String,
    /// Names of the blobs that the metadata refers to.
    pub blobs: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    /// The number of the next segment.
    next: u64,
    /// The caller's payload, stored with the commit.
    caller: String,
}

/// Open segments, by segment ID and deletion stamp.
type Segments = BTreeMap<(SegmentId, Option<u64>), Arc<Segment>>;

/// The index of a partition.
#[derive(Debug)]
pub struct Index {
    definition: Arc<Definition>,
    directory: BlobDirectory,
    blobs: Arc<dyn Blobs>,
    index: tantivy::Index,
    fields: Fields,
    metas: Vec<SegmentMeta>,
    segments: Segments,
    opstamp: u64,
    /// The upper half of segment IDs.
    seed: u64,
    next: u64,
    payload: String,
}

impl Index {
    /// Creates an empty index in an empty store. `seed` makes the segment IDs differ from those of other partitions.
    ///
    /// # Errors
    /// The store fails.
    pub fn create(definition: Arc<Definition>, blobs: Arc<dyn Blobs>, seed: u64) -> Result<Index> {
        Index::with(definition, blobs, seed, None, BTreeMap::new())
    }

    /// Opens the index of a commit.
    ///
    /// # Errors
    /// The metadata is invalid, or a blob is missing.
    pub fn open(
        definition: Arc<Definition>,
        blobs: Arc<dyn Blobs>,
        seed: u64,
        meta: &str,
    ) -> Result<Index> {
        Index::with(definition, blobs, seed, Some(meta), BTreeMap::new())
    }

    fn with(
        definition: Arc<Definition>,
        blobs: Arc<dyn Blobs>,
        seed: u64,
        meta: Option<&str>,
        segments: Segments,
    ) -> Result<Index> {
        crate::randomness::seed(seed);
        let directory = BlobDirectory::new(blobs.clone());
        let (schema, fields) = Fields::schema();
        let mut index = match meta {
            None => tantivy::Index::create(directory.clone(), schema, settings())?,
            Some(meta) => {
                directory.atomic_write(Path::new("meta.json"), meta.as_bytes())?;
                let index = tantivy::Index::open(directory.clone())?;
                if index.schema() != schema {
                    return Err(Error::internal("the index has the layout of another version"));
                }
                index
            }
        };
        if definition.mapping.has_vectors() {
            index.register_plugin(Arc::new(VectorPlugin));
        }
        index.tokenizers().register(encoded::NAME, encoded::EncodedTokenizer::default());
        *index.settings_mut() = settings();
        let metas = index.load_metas()?;
        let payload = match &metas.payload {
            None => Payload { next: 0, caller: String::new() },
            Some(payload) => serde_json::from_str(payload).map_err(Error::internal)?,
        };
        let mut opened = Index {
            definition,
            directory,
            blobs,
            index,
            fields,
            metas: metas.segments,
            segments,
            opstamp: metas.opstamp,
            seed,
            next: payload.next,
            payload: payload.caller,
        };
        opened.refresh()?;
        Ok(opened)
    }

    /// Advances the index to another commit. Segments that both have in common stay open.
    ///
    /// # Errors
    /// As for [`Index::open`]; the index is then unchanged.
    pub fn advance(&mut self, meta: &str) -> Result<()> {
        let mut other = Index::with(
            self.definition.clone(),
            self.blobs.clone(),
            self.seed,
            Some(meta),
            std::mem::take(&mut self.segments),
        );
        match &mut other {
            Ok(other) => std::mem::swap(self, other),
            Err(_) => self.refresh()?,
        }
        other.map(drop)
    }

    /// Returns the definition with which the index was opened.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Returns the number of documents.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.metas.iter().map(|meta| u64::from(meta.num_docs())).sum()
    }

    /// Returns the number of documents in other vBuckets than these.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn count_without(&self, vbuckets: &BTreeSet<u16>) -> Result<u64> {
        let mut count = self.count();
        if !vbuckets.is_empty() {
            for segment in self.segments() {
                count -= segment.documents_of_vbuckets(vbuckets)?.len() as u64;
            }
        }
        Ok(count)
    }

    /// Returns the caller's payload of the last commit.
    #[must_use]
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Returns the segments in the order of their age.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.metas.iter().filter_map(|meta| self.segments.get(&(meta.id(), meta.delete_opstamp())))
    }

    /// Applies changes of documents; the last change of each document counts. The changes are searchable immediately.
    ///
    /// # Errors
    /// The store fails; the index is then unchanged.
    pub fn apply(&mut self, changes: &[Change<'_>]) -> Result<Applied> {
        let mut last: BTreeMap<String, &Change<'_>> = BTreeMap::new();
        for change in changes {
            last.insert(self.key(change.id, change.place.collection), change);
        }
        let mut applied = Applied::default();
        self.opstamp += 1;
        let before = (self.metas.clone(), self.next);
        let outcome = self.carry_out(&last, &mut applied);
        if outcome.is_err() {
            (self.metas, self.next) = before;
        }
        self.refresh()?;
        outcome.map(|()| applied)
    }

    /// Removes all documents of some vBuckets. Returns their number. Each segment is searched and reopened once, regardless of the
    /// number of vBuckets.
    ///
    /// # Errors
    /// The store fails; the index is then unchanged.
    pub fn remove_vbuckets(&mut self, vbuckets: &BTreeSet<u16>) -> Result<u64> {
        let mut applied = Applied::default();
        self.opstamp += 1;
        let before = self.metas.clone();
        let outcome = self.delete(|segment| segment.documents_of_vbuckets(vbuckets), &mut applied);
        if outcome.is_err() {
            self.metas = before;
        }
        self.refresh()?;
        outcome.map(|()| applied.removed)
    }

    /// Returns the key that identifies a document.
    pub(crate) fn key(&self, id: &str, collection: &str) -> String {
        if !self.definition.doc_config.by_collection {
            return id.to_owned();
        }
        let collection = if collection.is_empty() { "_default" } else { collection };
        format!("{id}\0{collection}")
    }

    fn carry_out(
        &mut self,
        changes: &BTreeMap<String, &Change<'_>>,
        applied: &mut Applied,
    ) -> Result<()> {
        self.delete(|segment| segment.documents(changes.keys().map(String::as_str)), applied)?;
        let mut writer: Option<(SegmentWriter, SegmentId)> = None;
        let has_all = self.definition.mapping.outside_of_all().is_some();
        for (key, change) in changes {
            let Some(body) = change.body else { continue };
            let mapped = self.definition.map(change.id, body, change.place)?;
            let Some(mapped) = mapped else { continue };
            applied.skipped += mapped.skipped;
            // Hits cannot show any part of a document without such a field.
            let is_shown = mapped.fields.iter().any(|field| field.store || field.term_vectors);
            let keep = is_shown.then_some(body);
            let collection =
                self.definition.doc_config.by_collection.then_some(change.place.collection);
            let identity = document::Identity { key, vb: change.vb, collection };
            let (document, vectors) = document::build(
                &self.fields,
                &identity,
                &mapped,
                has_all,
                keep,
                &mut applied.skipped,
            );
            if writer.is_none() {
                let segment_id = self.segment_id()?;
                let segment = self.index.segment(self.index.new_segment_meta(segment_id, 0));
                let new = SegmentWriter::for_segment(DICTIONARY_MEMORY, segment)?;
                writer = Some((new, segment_id));
            }
            let (open, _) = writer.as_mut().expect("there is one now");
            let doc = open.max_doc();
            open.add_document(AddOperation { opstamp: self.opstamp, document })?;
            if !vectors.is_empty() {
                let plugin = open.custom_plugin_writer_mut(EXTENSION);
                let plugin =
                    plugin.and_then(|plugin| plugin.as_any_mut().downcast_mut::<VectorWriter>());
                let plugin =
                    plugin.ok_or_else(|| Error::internal("there is no writer of vectors"))?;
                for (path, vector) in &vectors {
                    applied.skipped += u64::from(!plugin.push(doc, path, vector));
                }
            }
            applied.indexed += 1;
            if open.mem_usage() > SEGMENT_MEMORY {
                self.finish(writer.take())?;
            }
        }
        self.finish(writer)
    }

    fn finish(&mut self, writer: Option<(SegmentWriter, SegmentId)>) -> Result<()> {
        let Some((writer, id)) = writer else { return Ok(()) };
        let count = writer.max_doc();
        writer.finalize()?;
        self.metas.push(self.index.new_segment_meta(id, count));
        Ok(())
    }

    fn segment_id(&mut self) -> Result<SegmentId> {
        self.next += 1;
        let text = format!("{:016x}{:016x}", self.seed, self.next);
        SegmentId::from_uuid_string(&text).map_err(|error| Error::internal(format!("{error:?}")))
    }

    /// Marks documents as deleted. `find` returns those of a segment.
    fn delete(
        &mut self,
        find: impl Fn(&Segment) -> Result<Vec<u32>>,
        applied: &mut Applied,
    ) -> Result<()> {
        let segments: Vec<Arc<Segment>> = self.segments().cloned().collect();
        let mut kept = Vec::with_capacity(segments.len());
        for (segment, meta) in segments.iter().zip(std::mem::take(&mut self.metas)) {
            let gone = find(segment)?;
            if gone.is_empty() {
                kept.push(meta);
                continue;
            }
            applied.removed += gone.len() as u64;
            let mut alive = BitSet::with_max_value_and_full(meta.max_doc());
            for doc in 0..meta.max_doc() {
                if segment.is_deleted(doc) {
                    alive.remove(doc);
                }
            }
            for doc in gone {
                alive.remove(doc);
            }
            let left = u32::try_from(alive.len()).unwrap_or(u32::MAX);
            if left == 0 {
                continue;
            }
            let deleted = meta.max_doc() - left;
            let marked = self.index.segment(meta).with_delete_meta(deleted, self.opstamp);
            let mut file = marked.open_write(SegmentComponent::Delete).map_err(Error::internal)?;
            write_alive_bitset(&alive, &mut file)?;
            file.terminate()?;
            kept.push(marked.meta().clone());
        }
        self.metas = kept;
        Ok(())
    }

    /// Opens new segments, and closes removed ones.
    fn refresh(&mut self) -> Result<()> {
        let mut segments = BTreeMap::new();
        for meta in &self.metas {
            let key = (meta.id(), meta.delete_opstamp());
            let segment = match self.segments.remove(&key) {
                Some(segment) => segment,
                None => {
                    let has_all = self.definition.mapping.outside_of_all().is_some();
                    Arc::new(Segment::open(
                        &self.index.segment(meta.clone()),
                        self.fields,
                        has_all,
                    )?)
                }
            };
            segments.insert(key, segment);
        }
        self.segments = segments;
        Ok(())
    }

    /// Returns the metadata of the present index, with the caller's payload, such as its position in the feed.
    ///
    /// # Errors
    /// The metadata cannot be serialised, which does not happen.
    pub fn commit(&mut self, payload: &str) -> Result<Commit> {
        self.payload = payload.to_owned();
        let payload = Payload { next: self.next, caller: payload.to_owned() };
        let meta = IndexMeta {
            index_settings: settings(),
            persisted_custom_extensions: if self.definition.mapping.has_vectors() {
                vec![EXTENSION.to_owned()]
            } else {
                Vec::new()
            },
            segments: self.metas.clone(),
            schema: self.index.schema(),
            opstamp: self.opstamp,
            payload: Some(serde_json::to_string(&payload).map_err(Error::internal)?),
        };
        let meta_json = serde_json::to_string(&meta).map_err(Error::internal)?;
        Ok(Commit { meta: meta_json, blobs: self.blobs_in_use()? })
    }

    fn blobs_in_use(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let wanted: Vec<String> = self.metas.iter().map(|meta| meta.id().uuid_string()).collect();
        let deletes: Vec<String> = self
            .metas
            .iter()
            .filter(|meta| meta.has_deletes())
            .map(|meta| meta.relative_path(SegmentComponent::Delete).to_string_lossy().into_owned())
            .collect();
        for name in self.blobs.list()? {
            let of_segment = wanted.iter().any(|id| name.starts_with(&**id));
            if of_segment && (!name.ends_with(".del") || deletes.contains(&name)) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Deletes the blobs that neither the present index nor the commit `kept` refers to. Returns their number.
    ///
    /// # Errors
    /// The store fails.
    pub fn collect_garbage(&self, kept: &Commit) -> Result<u64> {
        let in_use = self.blobs_in_use()?;
        let mut deleted = 0;
        for name in self.blobs.list()? {
            if !in_use.contains(&name) && !kept.blobs.contains(&name) {
                self.blobs.delete(&name)?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// Returns the settings, with no threads.
fn settings() -> IndexSettings {
    // With this compressor, documents occupy two thirds of their LZ4 size, and only the hits of one page are read.
    let compressor = ZstdCompressor { compression_level: Some(3) };
    IndexSettings {
        docstore_compress_dedicated_thread: false,
        docstore_compression: Compressor::Zstd(compressor),
        ..IndexSettings::default()
    }
}

/// Returns the name of the column for a path. Dots would separate names, so they are encoded.
#[must_use]
pub fn column_key(path: &str) -> String {
    path.chars()
        .map(|c| match c {
            '.' => '\u{2}',
            '\\' => '\u{3}',
            '\0' => '\u{4}',
            '\u{1}' => '\u{5}',
            c => c,
        })
        .collect()
}

/// Returns the key of a term in the dictionary.
#[must_use]
pub fn term_key(path: &str, term: &str) -> Vec<u8> {
    let mut key = prefix_key(path);
    key.extend_from_slice(term.as_bytes());
    key
}

/// Returns the common prefix of the keys of all terms of a path.
#[must_use]
pub fn prefix_key(path: &str) -> Vec<u8> {
    let mut key = path.replace('\0', "\u{4}").into_bytes();
    key.push(0);
    key
}

/// The end of a list of documents.
pub const END: u32 = TERMINATED;
