//! Reads a bucket of a backup: the records of a vBucket, oldest first.

use crate::block::decode_block;
use crate::repository::{manifest_name, object_name};
use crate::task::{OBJECT_MAGIC, PREFIX_BYTES};
use crate::{
    BackupId, BucketPart, Error, Manifest, Record, Repository, Run, StoreError, VbucketPart,
};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Maximum length of a lineage. A vBucket that changes every minute reaches it two months after the last full backup.
const LINEAGE_MAX: usize = 100_000;

/// The number of documents and the sum of their fingerprints, which does not depend on order or vBuckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The number of documents.
    pub documents: u64,
    /// The sum of their fingerprints, modulo 2^64.
    pub sum: u64,
}

impl Digest {
    /// Adds a document's fingerprint.
    pub fn add(&mut self, fingerprint: u64) {
        self.documents += 1;
        self.sum = self.sum.wrapping_add(fingerprint);
    }
}

/// Consecutive parts of a vBucket, newest first.
pub type Lineage = Vec<(BackupId, VbucketPart)>;

/// For each vBucket: backup, vBucket UUID and last seqno of its parts, newest first.
pub(crate) type ResumePoints = Vec<Vec<(BackupId, u64, u64)>>;

/// A bucket of a backup.
pub struct Reader<'a> {
    repository: &'a Repository,
    manifest: Arc<(Manifest, String)>,
    bucket: String,
    /// The backup with the part of each vBucket.
    parts: Vec<BackupId>,
    /// The CAS up to which history is read; `None` for the whole history.
    moment: Option<u64>,
}

impl<'a> Reader<'a> {
    /// Opens a bucket of a backup.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the backup or the bucket does not exist, [`Error::Damaged`] if a backup that it continues is
    /// missing; errors of the store.
    pub fn new(
        repository: &'a Repository,
        id: BackupId,
        bucket: &str,
    ) -> Result<Reader<'a>, Error> {
        let (manifest, parts) = (repository.manifest(id)?, repository.parts(id, bucket)?);
        Ok(Reader { repository, manifest, bucket: bucket.to_owned(), parts, moment: None })
    }

    /// Returns the moments that the bucket can be read at, as a range of CAS: from the first moment after which every version
    /// exists, to the start of the backup. `None` if only the end of the backup can be read. The CAS is the time of a write in
    /// nanoseconds since 1970, by the clock of its node.
    ///
    /// # Errors
    /// As [`Reader::lineage`].
    pub fn moments(&self) -> Result<Option<RangeInclusive<u64>>, Error> {
        let mut first = 0;
        for vbid in 0..self.bucket().vbuckets {
            for (_, part) in self.lineage(vbid)? {
                let Some(versions) = part.versions else { return Ok(None) };
                if versions.complete_after != part.from {
                    first = first.max(versions.cas);
                    break;
                }
            }
        }
        let last = self.manifest.0.time_ms.0.saturating_mul(1_000_000);
        Ok((first <= last).then_some(first..=last))
    }

    /// Sets the moment to read at: for each vBucket, the reader returns the records up to the first one with a higher CAS.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the moment is outside of [`Reader::moments`]; as [`Reader::lineage`].
    pub fn at(mut self, cas: u64) -> Result<Reader<'a>, Error> {
        match self.moments()? {
            Some(moments) if moments.contains(&cas) => {
                self.moment = Some(cas);
                Ok(self)
            }
            moments => {
                let id = self.manifest.0.id;
                let bucket = &self.bucket;
                let has = match moments {
                    None => "nothing but its end".to_owned(),
                    Some(moments) => {
                        format!("the moments from {} to {}", moments.start(), moments.end())
                    }
                };
                Err(Error::Invalid(format!("of {bucket}, the backup {id} has {has}")))
            }
        }
    }

    /// Returns the bucket in the backup's manifest.
    pub fn bucket(&self) -> &BucketPart {
        self.manifest.0.bucket(&self.bucket).expect("the repository has found its parts")
    }

    /// Returns the parts of a vBucket, newest first.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a part is missing or does not end where the next one begins; errors of the store.
    pub fn lineage(&self, vbid: u16) -> Result<Lineage, Error> {
        let mut lineage: Lineage = Vec::new();
        let mut next = self.parts.get(usize::from(vbid)).copied();
        while let Some(id) = next {
            let part = self.part(id, vbid)?;
            if let Some((younger, last)) = lineage.last() {
                let name = manifest_name(*younger);
                if *younger <= id || lineage.len() >= LINEAGE_MAX {
                    return Err(Error::damaged(
                        &name,
                        format!("vBucket {vbid} continues a younger backup"),
                    ));
                }
                if last.from != part.to {
                    let (from, to) = (last.from, part.to);
                    let reason = format!(
                        "vBucket {vbid} begins after seqno {from}, but backup {id} has it up to {to}"
                    );
                    return Err(Error::damaged(&name, reason));
                }
            }
            next = part.base;
            lineage.push((id, part));
        }
        Ok(lineage)
    }

    fn part(&self, id: BackupId, vbid: u16) -> Result<VbucketPart, Error> {
        let read = match self.repository.manifest(id) {
            Err(Error::Invalid(_)) => {
                return Err(Error::damaged(
                    &manifest_name(id),
                    "it is missing, and others continue it",
                ));
            }
            read => read?,
        };
        let part = read.0.bucket(&self.bucket).and_then(|bucket| bucket.part(vbid)).cloned();
        part.ok_or_else(|| Error::damaged(&manifest_name(id), format!("it has no vBucket {vbid}")))
    }

    /// Returns for each vBucket the backup, vBucket UUID and last seqno of its parts, newest first.
    pub(crate) fn resume_points(&self) -> Result<ResumePoints, Error> {
        let points = |vbid| {
            let lineage = self.lineage(vbid)?;
            Ok(lineage.into_iter().map(|(id, part)| (id, part.uuid, part.to)).collect())
        };
        (0..self.bucket().vbuckets).map(points).collect()
    }

    /// Passes all records of a vBucket to `each`, oldest first. A key occurs once for each change between two backups or
    /// snapshots; its last record applies. After [`Reader::at`], passes the records up to that moment.
    ///
    /// # Errors
    /// [`Error::Damaged`]; errors of the store; errors of `each`.
    pub fn for_each<E: From<Error>>(
        &self,
        vbid: u16,
        mut each: impl FnMut(&VbucketPart, &Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut is_over = false;
        for (id, part) in self.lineage(vbid)?.iter().rev() {
            // Records up to `complete_after` precede every allowed moment, even with a CAS from another cluster.
            let is_later = |record: &Record<'_>| {
                record.seqno > part.complete_after()
                    && self.moment.is_some_and(|moment| record.cas > moment)
            };
            self.read_part(*id, part, |record| {
                is_over |= is_later(record);
                if is_over { Ok(()) } else { each(part, record) }
            })?;
        }
        Ok(())
    }

    /// Passes the records of one part to `each`, and compares them with the manifest.
    pub(crate) fn read_part<E: From<Error>>(
        &self,
        id: BackupId,
        part: &VbucketPart,
        mut each: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut last, mut digest) = (part.from, 0_u64);
        let mut counts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for run in &part.runs {
            let mut look = |record: &Record<'_>| {
                if record.seqno <= last || record.seqno > part.to {
                    let reason =
                        format!("vBucket {}: seqno {} comes out of order", part.vbid, record.seqno);
                    return Err(Error::damaged(&object_name(id, run.object), reason).into());
                }
                last = record.seqno;
                let (sets, deletions) = counts.entry(record.collection).or_default();
                *if record.is_document() { sets } else { deletions } += 1;
                digest = digest.wrapping_add(record.fingerprint());
                each(record)
            };
            self.read_run(id, part.vbid, run, &mut look)?;
        }
        let sets: u64 = counts.values().map(|(sets, _)| sets).sum();
        let deletions: u64 = counts.values().map(|(_, deletions)| deletions).sum();
        let is_same = (sets, deletions, digest) == (part.sets, part.deletions, part.digest);
        if !is_same || !part.collections.is_empty() && part.collections != counts {
            let reason =
                format!("the records of vBucket {} are not those that were written", part.vbid);
            return Err(Error::damaged(&manifest_name(id), reason).into());
        }
        Ok(())
    }

    fn read_run<E: From<Error>>(
        &self,
        id: BackupId,
        vbid: u16,
        run: &Run,
        each: &mut impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let name = object_name(id, run.object);
        let store = self.repository.store();
        let end = run.offset.saturating_add(run.bytes);
        let bytes = store.read(&name, run.offset..end).map_err(|error| missing(&name, error))?;
        if bytes.len() as u64 != run.bytes {
            return Err(Error::damaged(&name, format!("it ends before byte {end}")).into());
        }
        let cipher = match self.repository.cipher() {
            None => None,
            Some(cipher) => {
                let prefix = store.read(&name, 0..PREFIX_BYTES as u64).map_err(Error::from)?;
                let salt = prefix.strip_prefix(&OBJECT_MAGIC).and_then(|salt| salt.try_into().ok());
                let salt: [u8; 16] =
                    salt.ok_or_else(|| Error::damaged(&name, "it has no beginning"))?;
                Some(cipher.of_object(&name, &salt))
            }
        };
        let (mut rest, mut offset) = (&bytes[..], run.offset);
        while !rest.is_empty() {
            let at = |reason: String| {
                Error::damaged(&name, format!("vBucket {vbid}, block at byte {offset}: {reason}"))
            };
            let (block, length) = decode_block(rest, offset, cipher.as_ref()).map_err(at)?;
            if block.vbid != vbid {
                return Err(at(format!("it is of vBucket {}", block.vbid)).into());
            }
            block.for_each(|record| each(&record).map_err(Stop::Caller)).map_err(
                |stop| match stop {
                    Stop::Caller(error) => error,
                    Stop::Block(reason) => at(reason).into(),
                },
            )?;
            rest = &rest[length..];
            offset += length as u64;
        }
        Ok(())
    }

    /// Returns the digest of the documents of a vBucket by collection ID. Memory grows with the number of documents.
    ///
    /// # Errors
    /// As [`Reader::for_each`].
    pub fn digest(&self, vbid: u16) -> Result<BTreeMap<u32, Digest>, Error> {
        let mut live: HashMap<(u32, Vec<u8>), u64> = HashMap::new();
        self.for_each(vbid, |_, record| {
            let key = (record.collection, record.key.to_vec());
            match record.is_document() {
                true => drop(live.insert(key, record.fingerprint())),
                false => drop(live.remove(&key)),
            }
            Ok::<(), Error>(())
        })?;
        let mut digests: BTreeMap<u32, Digest> = BTreeMap::new();
        for ((collection, _), fingerprint) in live {
            digests.entry(collection).or_default().add(fingerprint);
        }
        Ok(digests)
    }
}

/// The reason to stop reading the records of a block.
enum Stop<E> {
    Block(String),
    Caller(E),
}

impl<E> From<String> for Stop<E> {
    fn from(reason: String) -> Stop<E> {
        Stop::Block(reason)
    }
}

/// Returns the error for a failed read: an object that a manifest names and that is missing is damage.
fn missing(name: &str, error: StoreError) -> Error {
    match error {
        StoreError::Missing(_) => Error::damaged(name, "it is missing"),
        error => error.into(),
    }
}
