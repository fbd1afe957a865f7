//! A backup in progress: its completed vBuckets, and the objects with their blocks.

use crate::block::BlockBuilder;
use crate::cipher::ObjectCipher;
use crate::reader::ResumePoints;
use crate::repository::{
    begin_name, data_folder, manifest_name, object_name, piece_name, progress_folder,
};
use crate::{
    BackupId, BucketPart, Collection, Error, Manifest, ObjectInfo, Parent, Reader, Repository, Run,
    StoreError, VbucketPart, VbucketTake,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes at which a block object is complete.
pub const OBJECT_BYTES: usize = 16 << 20;
/// Maximum size of a block object in bytes: one block of maximum size more.
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// The first bytes of a block object; 16 random bytes follow.
pub(crate) const OBJECT_MAGIC: [u8; 4] = *b"NBK1";
/// Bytes before the first block.
pub(crate) const PREFIX_BYTES: usize = 20;
/// Numbers of objects and pieces that one process may use. The process that completes the backup uses the numbers below this one;
/// each other process that writes into the backup starts at a multiple of it.
pub const SHARE_NUMBERS: u32 = 1 << 20;
/// Maximum number of completed vBuckets that are lost with a killed process, regardless of their size.
const PENDING_MAX: usize = 64;

const _: () =
    assert!(OBJECT_BYTES_MAX as usize > OBJECT_BYTES + crate::block::BLOCK_RAW_BYTES_MAX + 4096);

/// A bucket to back up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSource {
    /// The name.
    pub name: String,
    /// The UUID.
    pub uuid: String,
    /// The number of vBuckets.
    pub vbuckets: u16,
}

/// Values that a task cannot create itself.
#[derive(Clone, Copy, Debug)]
pub struct TaskOptions {
    /// The time in Unix milliseconds.
    pub now_ms: u64,
    /// Unused random bytes.
    pub random: [u8; 16],
    /// True to take the whole history, regardless of existing backups.
    pub is_full: bool,
}

/// The parameters with which a backup was started; a resumed backup continues with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Begin {
    started_ms: u64,
    buckets: Vec<(BucketSource, Option<Parent>)>,
    /// The backups to merge; empty for a backup of a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    merged: Vec<BackupId>,
}

/// Completed vBuckets, and the objects with their blocks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Piece {
    objects: Vec<ObjectInfo>,
    /// The bucket's index in `Begin`, the vBucket, and its part; `None` if the parent has all records.
    done: Vec<(usize, u16, Option<VbucketPart>)>,
}

#[derive(Default)]
struct Progress {
    done: BTreeMap<(usize, u16), Option<VbucketPart>>,
    objects: BTreeMap<u32, ObjectInfo>,
    /// The pieces that have been read.
    pieces: BTreeSet<u32>,
    next_number: u32,
}

impl Progress {
    /// Adds the contents of a piece.
    fn add(&mut self, piece: Piece) {
        let objects = piece.objects.into_iter().map(|object| (object.number, object));
        self.objects.extend(objects);
        let done = piece.done.into_iter().map(|(bucket, vbid, part)| ((bucket, vbid), part));
        self.done.extend(done);
    }
}

/// Returns the number in the name of a piece or an object: `…/7.json`, `…/7.nbk`.
fn number_of(name: &str) -> Option<u32> {
    let (number, ending) = name.rsplit('/').next()?.split_once('.')?;
    ["json", "nbk"].contains(&ending).then(|| number.parse().ok())?
}

/// A backup in progress, with any number of workers.
pub struct Task<'a> {
    repository: &'a Repository,
    id: BackupId,
    begin: Begin,
    salt: [u8; 16],
    /// For each bucket and vBucket: backup, UUID and last seqno of earlier parts, newest first.
    lineages: Vec<ResumePoints>,
    progress: Mutex<Progress>,
}

impl<'a> Task<'a> {
    /// Starts a backup. It continues the newest backup of a bucket if that has the same UUID and number of vBuckets.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn begin(
        repository: &'a Repository,
        buckets: &[BucketSource],
        options: TaskOptions,
    ) -> Result<Task<'a>, Error> {
        let TaskOptions { now_ms, random, is_full } = options;
        let mut begin = Begin { started_ms: now_ms, buckets: Vec::new(), merged: Vec::new() };
        for source in buckets {
            let parent = if is_full { None } else { parent_of(repository, source)? };
            begin.buckets.push((source.clone(), parent));
        }
        begin.buckets.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        Task::begin_with(repository, begin, now_ms, random)
    }

    /// Starts a merge of backups, the first of which started at `started_ms`. `buckets` are sorted by name, each with the backup
    /// that it continues.
    pub(crate) fn begin_merge(
        repository: &'a Repository,
        buckets: Vec<(BucketSource, Option<Parent>)>,
        merged: Vec<BackupId>,
        started_ms: u64,
        options: TaskOptions,
    ) -> Result<Task<'a>, Error> {
        let begin = Begin { started_ms, buckets, merged };
        Task::begin_with(repository, begin, options.now_ms, options.random)
    }

    fn begin_with(
        repository: &'a Repository,
        begin: Begin,
        now_ms: u64,
        random: [u8; 16],
    ) -> Result<Task<'a>, Error> {
        // A list may be older than a manifest that was read meanwhile.
        let parents =
            begin.buckets.iter().filter_map(|(_, parent)| parent.as_ref().map(|parent| parent.id));
        let known = parents.chain(begin.merged.iter().copied());
        let newest = known.chain(repository.backups()?).chain(repository.unfinished()?).max();
        let id = BackupId::new(now_ms, u128::from_le_bytes(random), newest);
        let task = Task::new(repository, id, begin, random)?;
        repository.create_json(&begin_name(id), &task.begin, &task.salt_of(&[0]))?;
        Ok(task)
    }

    /// Resumes an interrupted backup and keeps its completed vBuckets.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a bucket differs from the one at the start of the backup, or the backup is complete or a merge;
    /// [`Error::Damaged`] if the backup was interrupted before it did anything. Such a backup must be removed.
    pub fn resume(
        repository: &'a Repository,
        id: BackupId,
        buckets: &[BucketSource],
        options: TaskOptions,
    ) -> Result<Task<'a>, Error> {
        if repository.backups()?.contains(&id) && repository.manifest(id).is_ok() {
            return Err(Error::Invalid(format!("the backup {id} is complete")));
        }
        let begin: Begin = repository.read_json(&begin_name(id))?;
        if !begin.merged.is_empty() {
            let reason = format!("the interrupted backup {id} is a merge: remove it");
            return Err(Error::Invalid(reason));
        }
        for (source, _) in &begin.buckets {
            if !buckets.contains(source) {
                let reason = format!(
                    "the bucket {} is not the one of the interrupted backup {id}: discard that",
                    source.name
                );
                return Err(Error::Invalid(reason));
            }
        }
        let task = Task::new(repository, id, begin, options.random)?;
        task.refresh()?;
        let mut progress = task.progress.lock();
        let pieces = repository.store().list(&progress_folder(id))?;
        let objects = repository.store().list(&data_folder(id))?;
        // Includes numbers of a process that ended before it recorded them.
        let numbers = pieces.iter().chain(&objects).filter_map(|name| number_of(name));
        let numbers = numbers.chain(progress.objects.keys().copied());
        let own = numbers.filter(|number| *number < SHARE_NUMBERS).max();
        progress.next_number = own.map_or(0, |number| number + 1);
        drop(progress);
        Ok(task)
    }

    /// Joins a backup that another process has started and will complete, to write some of its vBuckets. Objects and pieces get
    /// numbers from `first_number`, a multiple of [`SHARE_NUMBERS`] that no other process uses.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the backup is complete or a merge, or the number is invalid; [`Error::Damaged`] and
    /// [`StoreError::Missing`] if the backup does not exist.
    pub fn join(
        repository: &'a Repository,
        id: BackupId,
        first_number: u32,
        random: [u8; 16],
    ) -> Result<Task<'a>, Error> {
        if first_number == 0 || !first_number.is_multiple_of(SHARE_NUMBERS) {
            let reason = format!("{first_number} is not a multiple of {SHARE_NUMBERS}");
            return Err(Error::Invalid(reason));
        }
        let begin: Begin = repository.read_json(&begin_name(id))?;
        if !begin.merged.is_empty() {
            return Err(Error::Invalid(format!("the backup {id} is a merge")));
        }
        let task = Task::new(repository, id, begin, random)?;
        task.refresh()?;
        task.progress.lock().next_number = first_number;
        Ok(task)
    }

    /// Reads which vBuckets are complete, including those of other processes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn refresh(&self) -> Result<(), Error> {
        let names = self.repository.store().list(&progress_folder(self.id))?;
        let mut progress = self.progress.lock();
        for name in names {
            let Some(number) = number_of(&name).filter(|number| !progress.pieces.contains(number))
            else {
                continue;
            };
            // A partly written piece is ignored: its vBuckets are taken again.
            let Ok(piece) = self.repository.read_json::<Piece>(&name) else { continue };
            progress.pieces.insert(number);
            progress.add(piece);
        }
        let Progress { done, objects, .. } = &mut *progress;
        // A list may lack the piece with the object.
        done.retain(|_, part| {
            part.iter().flat_map(|part| &part.runs).all(|run| objects.contains_key(&run.object))
        });
        Ok(())
    }

    fn new(
        repository: &'a Repository,
        id: BackupId,
        begin: Begin,
        random: [u8; 16],
    ) -> Result<Task<'a>, Error> {
        let mut lineages = Vec::new();
        for (source, parent) in &begin.buckets {
            let none = vec![Vec::new(); source.vbuckets.into()];
            lineages.push(match parent {
                None => none,
                Some(parent) => {
                    Reader::new(repository, parent.id, &source.name)?.resume_points()?
                }
            });
        }
        let progress = Mutex::default();
        Ok(Task { repository, id, begin, salt: random, lineages, progress })
    }

    /// Returns the ID of the backup.
    pub fn id(&self) -> BackupId {
        self.id
    }

    /// Returns the buckets, in the order of their indexes.
    pub fn buckets(&self) -> impl Iterator<Item = &BucketSource> {
        self.begin.buckets.iter().map(|(source, _)| source)
    }

    /// Returns the vBuckets of a bucket that are not complete.
    pub fn remaining(&self, bucket: usize) -> Vec<u16> {
        let progress = self.progress.lock();
        let count = self.begin.buckets.get(bucket).map_or(0, |(source, _)| source.vbuckets);
        (0..count).filter(|vbid| !progress.done.contains_key(&(bucket, *vbid))).collect()
    }

    /// Returns the last seqno of the parent's part of a vBucket.
    pub(crate) fn parent_to(&self, bucket: usize, vbid: u16) -> Option<u64> {
        let points = self.lineages.get(bucket)?.get(usize::from(vbid))?;
        points.first().map(|(.., to)| *to)
    }

    /// Creates a worker. Each thread has its own.
    pub fn worker(&self) -> Worker<'_> {
        Worker { task: self, object: None, written: Vec::new(), pending: Vec::new() }
    }

    /// Returns random bytes for one object. A process uses each name of a JSON object once, and each salt for one name.
    fn salt_of(&self, use_: &[u8]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.salt).update(use_);
        let mut salt = [0; 16];
        salt.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        salt
    }

    fn next_number(&self) -> u32 {
        let mut progress = self.progress.lock();
        let number = progress.next_number;
        progress.next_number = number.saturating_add(1);
        number
    }

    /// Completes the backup. `collections` and `definitions` are those at the end, by bucket.
    ///
    /// # Errors
    /// [`Error::Invalid`] if vBuckets are missing; errors of the store, after which the call can be repeated.
    pub fn complete(
        &self,
        now_ms: u64,
        writer: &str,
        mut about: BTreeMap<String, (Vec<Collection>, BTreeMap<String, serde_json::Value>)>,
        definitions: BTreeMap<String, serde_json::Value>,
    ) -> Result<Manifest, Error> {
        let progress = self.progress.lock();
        let mut buckets = Vec::new();
        for (place, (source, parent)) in self.begin.buckets.iter().enumerate() {
            let mut parts = Vec::new();
            for vbid in 0..source.vbuckets {
                match progress.done.get(&(place, vbid)) {
                    Some(part) => parts.extend(part.clone()),
                    None => {
                        let reason = format!("vBucket {vbid} of {} is missing", source.name);
                        return Err(Error::Invalid(reason));
                    }
                }
            }
            let (collections, definitions) = about.remove(&source.name).unwrap_or_default();
            buckets.push(BucketPart {
                name: source.name.clone(),
                uuid: source.uuid.clone(),
                vbuckets: source.vbuckets,
                parent: parent.clone(),
                collections,
                parts,
                definitions,
            });
        }
        let used: BTreeSet<u32> = buckets
            .iter()
            .flat_map(|bucket| {
                bucket.parts.iter().flat_map(|part| part.runs.iter().map(|run| run.object))
            })
            .collect();
        let objects =
            progress.objects.values().filter(|object| used.contains(&object.number)).cloned();
        let manifest = Manifest {
            id: self.id,
            writer: writer.to_owned(),
            time_ms: (self.begin.started_ms, now_ms),
            buckets,
            objects: objects.collect(),
            definitions,
            merged: self.begin.merged.clone(),
        };
        self.check_presence(&manifest)?;
        self.publish(manifest)
    }

    /// Checks that all objects of the manifest still exist: another process may have discarded this backup or removed its bases.
    fn check_presence(&self, manifest: &Manifest) -> Result<(), Error> {
        let store = self.repository.store();
        for object in &manifest.objects {
            let name = object_name(self.id, object.number);
            let bytes = store.size(&name)?;
            if bytes != object.bytes {
                return Err(Error::damaged(
                    &name,
                    format!("it has {bytes} bytes of {}", object.bytes),
                ));
            }
        }
        let mut needed = BTreeSet::new();
        for bucket in &manifest.buckets {
            let bases = bucket.parts.iter().filter_map(|part| part.base);
            for id in bucket.parent.iter().map(|parent| parent.id).chain(bases) {
                if !needed.contains(&id) {
                    needed.extend(self.repository.needs(id)?);
                }
            }
        }
        // Ask the store, because the repository caches manifests that it has read.
        needed.into_iter().try_for_each(|id| Ok(store.size(&manifest_name(id)).map(drop)?))
    }

    /// Writes the manifest, which completes the backup, and removes the progress objects.
    fn publish(&self, manifest: Manifest) -> Result<Manifest, Error> {
        let (store, name) = (self.repository.store(), manifest_name(self.id));
        let create = || {
            let salt = self.salt_of(&[b"manifest", &manifest.time_ms.1.to_le_bytes()[..]].concat());
            self.repository.create_json(&name, &manifest, &salt)
        };
        let written = match create() {
            Err(StoreError::Exists(_)) => match self.repository.manifest(self.id) {
                // An earlier attempt has succeeded, whatever the store has answered.
                Ok(read) => return Ok(read.0.clone()),
                Err(Error::Damaged { .. }) => {
                    store.remove(&name)?;
                    create()
                }
                Err(error) => return Err(error),
            },
            written => written,
        };
        written?;
        // The backup is complete: objects that remain here are removed with it.
        for name in store.list(&progress_folder(self.id)).unwrap_or_default() {
            let _ = store.remove(&name);
        }
        Ok(manifest)
    }
}

/// Returns the backup that a new one of a bucket can continue.
fn parent_of(repository: &Repository, source: &BucketSource) -> Result<Option<Parent>, Error> {
    let Some(read) = repository.latest_with(&source.name)? else { return Ok(None) };
    let known = read.0.bucket(&source.name);
    let is_same =
        |known: &BucketPart| known.uuid == source.uuid && known.vbuckets == source.vbuckets;
    if !known.is_some_and(is_same) {
        return Ok(None);
    }
    let points =
        Reader::new(repository, read.0.id, &source.name).and_then(|reader| reader.resume_points());
    match points {
        Ok(_) => Ok(Some(Parent { id: read.0.id, blake3: read.1.clone() })),
        // A damaged chain is not continued: a full backup is better than an unreadable one.
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An object being filled.
struct OpenObject {
    number: u32,
    bytes: Vec<u8>,
    cipher: Option<ObjectCipher>,
}

/// Takes vBuckets one after the other, and writes their blocks into objects.
pub struct Worker<'a> {
    task: &'a Task<'a>,
    object: Option<OpenObject>,
    /// Objects written since the last piece of progress.
    written: Vec<ObjectInfo>,
    /// vBuckets that are complete once the open object is written.
    pending: Vec<(usize, u16, Option<VbucketPart>)>,
}

impl Worker<'_> {
    /// Starts a vBucket with the high seqno `target`.
    pub fn begin(&self, bucket: usize, vbid: u16, target: u64) -> VbucketTake {
        let lineages = self.task.lineages.get(bucket);
        let lineage = lineages.and_then(|lineages| lineages.get(usize::from(vbid)));
        VbucketTake::new(vbid, lineage.cloned().unwrap_or_default(), target)
    }

    /// Adds a completed vBucket.
    ///
    /// # Errors
    /// [`Error::Source`] if it is not complete; errors of the store.
    pub fn finish(&mut self, bucket: usize, take: VbucketTake) -> Result<(), Error> {
        let vbid = take.vbid();
        let part = take.finish(self)?;
        self.put(bucket, vbid, part)
    }

    /// Adds the part of a vBucket; `None` if its parent has all records.
    pub(crate) fn put(
        &mut self,
        bucket: usize,
        vbid: u16,
        part: Option<VbucketPart>,
    ) -> Result<(), Error> {
        self.pending.push((bucket, vbid, part));
        if self.pending.len() >= PENDING_MAX { self.flush() } else { Ok(()) }
    }

    /// Adds a block to the open object.
    pub(crate) fn append(
        &mut self,
        block: &mut BlockBuilder,
        runs: &mut Vec<Run>,
    ) -> Result<(), Error> {
        let task = self.task;
        let object = self.object.get_or_insert_with(|| {
            let number = task.next_number();
            let salt = task.salt_of(&number.to_le_bytes());
            let name = object_name(task.id, number);
            let cipher = task.repository.cipher().map(|cipher| cipher.of_object(&name, &salt));
            let bytes = [&OBJECT_MAGIC[..], &salt].concat();
            OpenObject { number, bytes, cipher }
        });
        let offset = object.bytes.len() as u64;
        block.finish(&mut object.bytes, object.cipher.as_ref());
        let bytes = object.bytes.len() as u64 - offset;
        match runs.last_mut() {
            Some(run) if run.object == object.number && run.offset + run.bytes == offset => {
                run.bytes += bytes;
            }
            _ => runs.push(Run { object: object.number, offset, bytes }),
        }
        if object.bytes.len() >= OBJECT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the open object, and the progress.
    ///
    /// # Errors
    /// Errors of the store. The worker is unusable afterwards, but the backup can be resumed.
    pub fn flush(&mut self) -> Result<(), Error> {
        let (task, store) = (self.task, self.task.repository.store());
        if let Some(OpenObject { number, bytes, .. }) = self.object.take() {
            store.create(&object_name(task.id, number), &bytes)?;
            let (length, blake3) = (bytes.len() as u64, blake3::hash(&bytes).to_string());
            self.written.push(ObjectInfo { number, bytes: length, blake3 });
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let piece = Piece {
            objects: std::mem::take(&mut self.written),
            done: std::mem::take(&mut self.pending),
        };
        let number = task.next_number();
        let salt = task.salt_of(&[b"piece", &number.to_le_bytes()[..]].concat());
        task.repository.create_json(&piece_name(task.id, number), &piece, &salt)?;
        let mut progress = task.progress.lock();
        progress.pieces.insert(number);
        progress.add(piece);
        Ok(())
    }
}
