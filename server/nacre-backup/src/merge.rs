//! Merges: the increments of a chain as one backup.
//!
//! ```text
//! 1 (full) ◄─ 2 ◄─ 3            merge          backup 4 has everything in 3, and needs no other
//! 1 (full) ◄─ 2 ◄─ 3            merge from 2   backup 4 continues 1, and has everything in 3
//! ```
//!
//! A merge is a [`Task`] whose source is the repository: it writes objects, and the manifest last. It changes no existing object,
//! so the merged backups stay readable until they are removed.
//!
//! *Invariants:* each vBucket is read by its lineage, so that a merge contains no versions that a failover discarded. For each
//! key the newest version is kept, also a tombstone, because a backup that continues the merge, or its user, may need it. Where
//! the merged backups have every version, the merge has every version.

use crate::block::BlockBuilder;
use crate::task::Worker;
use crate::{
    BackupId, BucketSource, Error, Manifest, Parent, Reader, Record, Repository, Task, TaskOptions,
    VbucketPart, Versions,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The backups to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRange {
    /// The newest one.
    pub last: BackupId,
    /// The oldest one; `None` for all that `last` continues.
    pub first: Option<BackupId>,
}

/// The merged backups of a bucket, and the backup that the merge continues.
struct Chain {
    source: BucketSource,
    merged: BTreeSet<BackupId>,
    parent: Option<Parent>,
}

/// Writes a backup with everything in the newest backup of a range. It becomes the newest backup of the repository; the merged
/// ones stay unchanged. Ignores `options.is_full`.
///
/// # Errors
/// [`Error::Invalid`] if there is nothing to merge, a newer backup of a bucket exists, or one was interrupted; [`Error::Damaged`]
/// if a backup cannot be read; errors of the store. The repository is then unchanged, except for an interrupted backup, which can
/// be removed.
pub fn merge(
    repository: &Repository,
    range: MergeRange,
    options: TaskOptions,
    writer: &str,
) -> Result<Manifest, Error> {
    let read = repository.manifest(range.last)?;
    let last = &read.0;
    let chains = chains(repository, last, range.first)?;
    let merged: BTreeSet<BackupId> =
        chains.iter().flat_map(|chain| chain.merged.iter().copied()).collect();
    check(repository, last, range, &merged)?;
    let buckets = chains.iter().map(|chain| (chain.source.clone(), chain.parent.clone()));
    let merged = merged.into_iter().collect();
    let task = Task::begin_merge(repository, buckets.collect(), merged, last.time_ms.0, options)?;
    let written = write(repository, &task, last, &chains, writer);
    if written.as_ref().is_err_and(Error::is_damage) {
        // Another attempt would fail in the same way: remove the traces of this one.
        repository.remove(task.id())?;
    }
    written
}

/// Writes the objects of a merge, and its manifest.
fn write(
    repository: &Repository,
    task: &Task<'_>,
    last: &Manifest,
    chains: &[Chain],
    writer: &str,
) -> Result<Manifest, Error> {
    let mut worker = task.worker();
    for (place, chain) in chains.iter().enumerate() {
        let reader = Reader::new(repository, last.id, &chain.source.name)?;
        for vbid in 0..chain.source.vbuckets {
            let parent_to = task.parent_to(place, vbid);
            let part = merge_vbucket(&reader, vbid, &chain.merged, parent_to, &mut worker)?;
            worker.put(place, vbid, part)?;
        }
    }
    worker.flush()?;
    let about: BTreeMap<_, _> = last
        .buckets
        .iter()
        .map(|bucket| {
            (bucket.name.clone(), (bucket.collections.clone(), bucket.definitions.clone()))
        })
        .collect();
    task.complete(last.time_ms.1, writer, about, last.definitions.clone())
}

/// Follows each bucket of a backup to the one that the merge continues.
fn chains(
    repository: &Repository,
    last: &Manifest,
    first: Option<BackupId>,
) -> Result<Vec<Chain>, Error> {
    let mut chains = Vec::new();
    for bucket in &last.buckets {
        let source = BucketSource {
            name: bucket.name.clone(),
            uuid: bucket.uuid.clone(),
            vbuckets: bucket.vbuckets,
        };
        let mut chain = Chain { source, merged: BTreeSet::new(), parent: None };
        let mut read = repository.manifest(last.id)?;
        loop {
            chain.merged.insert(read.0.id);
            let parent = read.0.bucket(&bucket.name).and_then(|bucket| bucket.parent.clone());
            let Some(parent) = parent else { break };
            if first.is_some_and(|first| parent.id < first) {
                chain.parent = Some(parent);
                break;
            }
            read = repository.parent(&read, &bucket.name, &parent)?;
        }
        chains.push(chain);
    }
    Ok(chains)
}

/// Refuses a merge that would merge nothing or hide a newer backup: the merge becomes the newest one.
fn check(
    repository: &Repository,
    last: &Manifest,
    range: MergeRange,
    merged: &BTreeSet<BackupId>,
) -> Result<(), Error> {
    let id = last.id;
    if let Some(first) = range.first.filter(|first| !merged.contains(first)) {
        return Err(Error::Invalid(format!("the backup {id} does not continue {first}")));
    }
    if merged.len() < 2 {
        return Err(Error::Invalid(format!("there is nothing to merge into the backup {id}")));
    }
    if let Some(unfinished) = repository.unfinished()?.first() {
        return Err(Error::Invalid(format!(
            "the backup {unfinished} is being taken, or was interrupted: complete or remove it first"
        )));
    }
    for bucket in &last.buckets {
        let newest = repository.latest_with(&bucket.name)?;
        if let Some(newest) = newest.filter(|newest| newest.0.id > id) {
            let (newest, name) = (newest.0.id, &bucket.name);
            return Err(Error::Invalid(format!(
                "the backup {newest} of {name} is newer than {id}: merge that"
            )));
        }
    }
    Ok(())
}

/// Writes the records of a vBucket in the merged backups; returns its part, or `None` if the parent has all records.
fn merge_vbucket(
    reader: &Reader<'_>,
    vbid: u16,
    merged: &BTreeSet<BackupId>,
    parent_to: Option<u64>,
    worker: &mut Worker<'_>,
) -> Result<Option<VbucketPart>, Error> {
    let lineage = reader.lineage(vbid)?;
    let inside = lineage.iter().take_while(|(id, _)| merged.contains(id)).count();
    let (inside, below) = lineage.split_at(inside);
    let (Some((_, newest)), Some((_, oldest))) = (inside.first(), inside.last()) else {
        return Ok(None);
    };
    let base = below.first();
    let from = base.map_or(0, |(_, part)| part.to);
    let complete_after = complete_after(inside, from);
    // Only the newest record of each key is kept up to here.
    let thinned_to = complete_after.unwrap_or(newest.to);
    let (mut last, mut cas): (HashMap<u128, u64>, u64) = (HashMap::new(), 0);
    for (id, part) in inside.iter().rev() {
        reader.read_part(*id, part, |record| {
            if record.seqno <= thinned_to {
                last.insert(record.key_hash(), record.seqno);
                cas = cas.max(record.cas);
            }
            Ok::<(), Error>(())
        })?;
    }
    let mut output = Output {
        part: VbucketPart {
            base: base.map(|(id, _)| *id),
            from,
            dropped: parent_to.filter(|to| *to != from),
            runs: Vec::new(),
            sets: 0,
            deletions: 0,
            collections: BTreeMap::new(),
            digest: 0,
            versions: complete_after.map(|complete_after| Versions { complete_after, cas }),
            full_to: (from == 0).then(|| oldest.full_to()),
            ..newest.clone()
        },
        block: BlockBuilder::new(vbid),
    };
    for (id, part) in inside.iter().rev() {
        reader.read_part(*id, part, |record| {
            let is_kept =
                record.seqno > thinned_to || last.get(&record.key_hash()) == Some(&record.seqno);
            if is_kept { output.push(record, worker) } else { Ok(()) }
        })?;
    }
    let part = output.finish(worker)?;
    let is_of_parent = part.to == part.from && parent_to == Some(part.from);
    Ok((!is_of_parent).then_some(part))
}

/// Returns the seqno after which consecutive parts, newest first, have every version; `None` if unknown.
fn complete_after(parts: &[(BackupId, VbucketPart)], from: u64) -> Option<u64> {
    for (_, part) in parts {
        let versions = part.versions?;
        if versions.complete_after != part.from {
            return Some(versions.complete_after);
        }
    }
    Some(from)
}

/// The part of a vBucket being written.
struct Output {
    part: VbucketPart,
    block: BlockBuilder,
}

impl Output {
    fn push(&mut self, record: &Record<'_>, worker: &mut Worker<'_>) -> Result<(), Error> {
        let Output { part, block } = self;
        if block.is_better_without(record) {
            worker.append(block, &mut part.runs)?;
        }
        block.push(record);
        part.add(record);
        if block.is_full() { worker.append(block, &mut part.runs) } else { Ok(()) }
    }

    fn finish(mut self, worker: &mut Worker<'_>) -> Result<VbucketPart, Error> {
        if !self.block.is_empty() {
            worker.append(&mut self.block, &mut self.part.runs)?;
        }
        Ok(self.part)
    }
}
