//! The index of a partition: documents in segments, which are written once, merged and deleted.
//!
//! ```text
//! apply   documents ─► one new segment, and marks of what is deleted in the others
//! commit  ─► the metadata: which segments there are; the blobs it names must be kept
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
use std::collections::BTreeMap;
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

/// Memory that a segment in the making has before it is finished, in bytes.
const SEGMENT_MEMORY: usize = 48 << 20;
/// Memory that the dictionary of a segment in the making is laid out for, in bytes.
const DICTIONARY_MEMORY: usize = 4 << 20;

/// The fields that tantivy has of every document.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// The ID, with its collection after a zero in an index over collections.
    pub id: Field,
    /// The vBucket.
    pub vbucket: Field,
    /// Terms as `path 00 term`, with positions.
    pub terms: Field,
    /// The terms of the composite field, in the same form, without positions: those of the fields themselves tell where phrases are.
    pub all: Field,
    /// Columns by path: numbers.
    pub numbers: Field,
    /// Columns by path: dates in nanoseconds.
    pub dates: Field,
    /// Columns by path: places.
    pub places: Field,
    /// Columns by path: terms.
    pub values: Field,
    /// Columns by path: how many tokens.
    pub lengths: Field,
    /// Columns by path: shapes as GeoJSON.
    pub shapes: Field,
    /// The document itself.
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
    /// New content; `None` if it is deleted.
    pub body: Option<&'a [u8]>,
    /// Where it is.
    pub place: Place<'a>,
}

/// Result of a batch of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Documents that are in the index now.
    pub indexed: u64,
    /// Documents that are there no more, those that were replaced included.
    pub removed: u64,
    /// Values of fields that were left out, as they do not suit the mapping or are too many.
    pub skipped: u64,
}

/// Record with which the index can be opened in its present state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Commit {
    /// The metadata, for [`Index::open`].
    pub meta: String,
    /// The names of the blobs that the metadata refers to.
    pub blobs: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    /// The number of the next segment.
    next: u64,
    /// Payload of the caller, kept with the commit.
    caller: String,
}

/// Segments that are open, by what tells them apart.
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
    /// The upper half of the identifiers of segments.
    seed: u64,
    next: u64,
    payload: String,
}

impl Index {
    /// An empty index over an empty store. `seed` tells its segments from those of other partitions.
    ///
    /// # Errors
    /// The store fails.
    pub fn create(definition: Arc<Definition>, blobs: Arc<dyn Blobs>, seed: u64) -> Result<Index> {
        Index::with(definition, blobs, seed, None, BTreeMap::new())
    }

    /// The index of a commit.
    ///
    /// # Errors
    /// The metadata is of no index, or a blob is missing.
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

    /// Makes the index that of another commit. What both have in common stays open.
    ///
    /// # Errors
    /// As [`Index::open`]; the index is then as it was.
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

    /// The definition it was opened with.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// How many documents it has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.metas.iter().map(|meta| u64::from(meta.num_docs())).sum()
    }

    /// Returns the caller's payload of the last commit.
    #[must_use]
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// The segments, in the order of their age.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.metas.iter().filter_map(|meta| self.segments.get(&(meta.id(), meta.delete_opstamp())))
    }

    /// Carries out changes of documents; of several of one document the last counts. They can be searched at once.
    ///
    /// # Errors
    /// The store fails; the index is then as it was.
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

    /// Removes all documents of a vBucket. Returns how many these were.
    ///
    /// # Errors
    /// The store fails; the index is then as it was.
    pub fn remove_vbucket(&mut self, vb: u16) -> Result<u64> {
        let mut applied = Applied::default();
        self.opstamp += 1;
        let before = self.metas.clone();
        let outcome = self.delete(|segment| segment.documents_of_vbucket(vb), &mut applied);
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
            // Nothing of a document is shown that has no such field.
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

    /// Marks documents as deleted: `find` gives those of a segment.
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

    /// Opens the segments that are new, and forgets those that are gone.
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

    /// The metadata of the index as it is now, with a text of the caller, such as how far it has read.
    ///
    /// # Errors
    /// The metadata cannot be written, which does not happen.
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

    /// Deletes the blobs that neither the index as it is now nor a commit that must be kept names. Returns how many these were.
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

/// No threads.
fn settings() -> IndexSettings {
    // Documents take two thirds of the space that they take with LZ4, and are read for the hits of one page only.
    let compressor = ZstdCompressor { compression_level: Some(3) };
    IndexSettings {
        docstore_compress_dedicated_thread: false,
        docstore_compression: Compressor::Zstd(compressor),
        ..IndexSettings::default()
    }
}

/// The name of a column of a path: points would separate names.
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

/// The key of a term in the dictionary.
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
