//! Checks that a backup can be read.

use crate::repository::{manifest_name, object_name};
use crate::{BackupId, Error, Reader, Repository};
use std::collections::BTreeSet;

/// A defect of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the object.
    pub object: String,
    /// The defect.
    pub reason: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of manifests read.
    pub manifests: u64,
    /// Number of block objects.
    pub objects: u64,
    /// Bytes of block objects. They were read only if the check includes data.
    pub bytes: u64,
    /// Number of decoded records.
    pub records: u64,
    /// All defects.
    pub findings: Vec<Finding>,
}

/// Verifies a backup and all backups that it continues: manifests, continuity of parts, and lengths of objects. With `has_data`,
/// also reads every byte, compares checksums and counts records.
///
/// # Errors
/// Errors of the store. Damage is not an error, but a finding.
pub fn verify(repository: &Repository, id: BackupId, has_data: bool) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let needed = match repository.needs(id) {
        Err(Error::Store(error)) if error.is_failure() => return Err(error.into()),
        Err(error) => {
            note(&mut verified, manifest_name(id), error)?;
            BTreeSet::from([id])
        }
        Ok(needed) => needed,
    };
    for id in needed {
        verify_one(repository, id, has_data, &mut verified)?;
    }
    Ok(verified)
}

fn verify_one(
    repository: &Repository,
    id: BackupId,
    has_data: bool,
    verified: &mut Verified,
) -> Result<(), Error> {
    let read = match repository.manifest(id) {
        Err(error) => return note(verified, manifest_name(id), error),
        Ok(read) => read,
    };
    verified.manifests += 1;
    for object in &read.0.objects {
        let name = object_name(id, object.number);
        verified.objects += 1;
        verified.bytes += object.bytes;
        let store = repository.store();
        let looked = store.size(&name).map_err(Error::from).and_then(|bytes| {
            if bytes != object.bytes {
                return Err(Error::damaged(
                    &name,
                    format!("it has {bytes} bytes of {}", object.bytes),
                ));
            }
            if !has_data {
                return Ok(());
            }
            let content = store.read(&name, 0..object.bytes)?;
            match blake3::hash(&content).to_string() == object.blake3 {
                true => Ok(()),
                false => Err(Error::damaged(&name, "its checksum is wrong")),
            }
        });
        if let Err(error) = looked {
            note(verified, name, error)?;
        }
    }
    for bucket in &read.0.buckets {
        let reader = match Reader::new(repository, id, &bucket.name) {
            Err(error) => {
                note(verified, manifest_name(id), error)?;
                continue;
            }
            Ok(reader) => reader,
        };
        for vbid in 0..bucket.vbuckets {
            if let Err(error) = reader.lineage(vbid) {
                note(verified, manifest_name(id), error)?;
            }
        }
        for part in bucket.parts.iter().filter(|_| has_data) {
            let mut records = 0;
            let looked = reader.read_part(id, part, |_| {
                records += 1;
                Ok::<(), Error>(())
            });
            verified.records += records;
            if let Err(error) = looked {
                note(verified, manifest_name(id), error)?;
            }
        }
    }
    Ok(())
}

/// Adds a finding. Returns an error if the store has failed.
fn note(verified: &mut Verified, object: String, error: Error) -> Result<(), Error> {
    let finding = match error {
        Error::Store(error) if error.is_failure() => return Err(error.into()),
        Error::Damaged { object, reason } => Finding { object, reason },
        error => Finding { object, reason: error.to_string() },
    };
    if !verified.findings.contains(&finding) {
        verified.findings.push(finding);
    }
    Ok(())
}
