//! Manifests: the contents of backups.
//!
//! A manifest, like every JSON object of a repository, is a header line and a body:
//!
//! ```text
//! {"format":1,"bytes":512,"blake3":"…","salt":"…"}⏎        salt only where the body is encrypted
//! {"id":"01J…","buckets":[…],…}
//! ```

use crate::cipher::{Cipher, from_hex, to_hex};
use crate::task::OBJECT_BYTES_MAX;
use crate::{BackupId, Error, Record};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The newest format, which is written and read.
pub const FORMAT: u64 = 1;
/// Maximum size of a JSON object of a repository in bytes.
pub(crate) const JSON_BYTES_MAX: u64 = 256 << 20;
/// Maximum length of a header line in bytes.
const HEADER_BYTES_MAX: usize = 512;
/// Maximum number of vBuckets of a bucket. Source: the key hash is taken modulo this number or a smaller one.
const VBUCKETS_MAX: u16 = 1024;

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The ID, which is also part of its name.
    pub id: BackupId,
    /// The program that wrote it, with its version.
    pub writer: String,
    /// Unix milliseconds of the start and the completion of the backup.
    pub time_ms: (u64, u64),
    /// The buckets, sorted by name.
    pub buckets: Vec<BucketPart>,
    /// The block objects, sorted by number.
    pub objects: Vec<ObjectInfo>,
    /// Definitions outside of buckets, such as functions, in the form of the cluster's answer.
    pub definitions: BTreeMap<String, serde_json::Value>,
    /// The backups that were merged into this one, oldest first. The times are those of the newest one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<BackupId>,
}

/// A bucket in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketPart {
    /// The name.
    pub name: String,
    /// The UUID. A bucket that was deleted and created again has another one.
    pub uuid: String,
    /// The number of vBuckets.
    pub vbuckets: u16,
    /// The backup that this one continues; `None` for a full backup.
    pub parent: Option<Parent>,
    /// The collections at the end of the backup.
    pub collections: Vec<Collection>,
    /// The parts of vBuckets, sorted. For a vBucket without a part, the parent's part applies.
    pub parts: Vec<VbucketPart>,
    /// Definitions of the bucket, such as settings and design documents, in the form of the cluster's answer.
    pub definitions: BTreeMap<String, serde_json::Value>,
}

/// The backup that another one continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The ID.
    pub id: BackupId,
    /// The BLAKE3 hash of its manifest object, in hexadecimal.
    pub blake3: String,
}

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// The collection ID.
    pub id: u32,
    /// The name of its scope.
    pub scope: String,
    /// The ID of its scope. Absent in backups of releases that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<u32>,
    /// The name.
    pub name: String,
    /// Maximum time to live of documents in seconds; 0 for no limit, -1 for no limit although the bucket has one.
    pub max_ttl: i64,
    /// True if the collection kept every version when the backup was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_versions: bool,
}

/// The records of a vBucket in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VbucketPart {
    /// The vBucket.
    pub vbid: u16,
    /// The UUID of the branch of history that contains `to`.
    pub uuid: u64,
    /// The backup whose part ends at `from`; `None` if `from` is 0.
    pub base: Option<BackupId>,
    /// The seqno after which the records begin.
    pub from: u64,
    /// The last seqno, at which a snapshot of the source ended.
    pub to: u64,
    /// The last seqno of the parent's part, if that is not a prefix of this history. The parent's part is then no longer used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// The positions of the records, in order.
    pub runs: Vec<Run>,
    /// The number of written documents.
    pub sets: u64,
    /// The number of deleted or expired documents.
    pub deletions: u64,
    /// The numbers of written and of deleted documents by collection ID, which add up to those above. Absent in backups of
    /// releases that did not record them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub collections: BTreeMap<u32, (u64, u64)>,
    /// The sum of the fingerprints of all records, modulo 2^64.
    pub digest: u64,
    /// The versions in the part. Absent in backups of releases that did not record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// For a merge that begins at 0: the last seqno of the oldest merged backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_to: Option<u64>,
}

/// The versions in a part: for each key only the newest one up to a seqno, and every one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The seqno after which no version is omitted: `from` if the part has all versions, `to` if it has only the newest ones.
    pub complete_after: u64,
    /// The highest CAS of the records up to `complete_after`; 0 without any.
    pub cas: u64,
}

/// Consecutive blocks of a vBucket in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The number of the object.
    pub object: u32,
    /// The offset at which the blocks begin.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
}

/// A block object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// The number in its backup, which determines its name.
    pub number: u32,
    /// The length in bytes.
    pub bytes: u64,
    /// The BLAKE3 hash in hexadecimal.
    pub blake3: String,
}

/// The first line of a JSON object.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u64,
    bytes: u64,
    blake3: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
}

impl Manifest {
    /// Returns the part of a bucket.
    pub fn bucket(&self, name: &str) -> Option<&BucketPart> {
        self.buckets.iter().find(|bucket| bucket.name == name)
    }

    /// Returns the length of all block objects, in bytes.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().fold(0, |sum, object| sum.saturating_add(object.bytes))
    }

    /// Checks the invariants that the rest of the crate relies on.
    fn check(&self) -> Result<(), String> {
        let mut objects = BTreeMap::new();
        for object in &self.objects {
            if object.bytes > OBJECT_BYTES_MAX {
                return Err(format!("object {} announces {} bytes", object.number, object.bytes));
            }
            objects.insert(object.number, object.bytes);
        }
        self.buckets.iter().try_for_each(|bucket| bucket.check(&objects))
    }
}

impl VbucketPart {
    /// Counts a record that belongs to the part.
    pub(crate) fn add(&mut self, record: &Record<'_>) {
        let (sets, deletions) = self.collections.entry(record.collection).or_default();
        let (count, total) = if record.is_document() {
            (sets, &mut self.sets)
        } else {
            (deletions, &mut self.deletions)
        };
        *count += 1;
        *total += 1;
        self.digest = self.digest.wrapping_add(record.fingerprint());
    }

    /// Returns true if the counts by collection are recorded.
    fn has_counts(&self) -> bool {
        !self.collections.is_empty() || (self.sets, self.deletions) == (0, 0)
    }

    /// Returns true if recorded counts by collection add up to those of the part.
    fn adds_up(&self) -> bool {
        let totals = self.collections.values().fold((0_u64, 0_u64), |(sets, deletions), counts| {
            (sets.saturating_add(counts.0), deletions.saturating_add(counts.1))
        });
        self.collections.is_empty() || totals == (self.sets, self.deletions)
    }

    /// Returns the seqno after which the part has every version.
    pub fn complete_after(&self) -> u64 {
        self.versions.map_or(self.to, |versions| versions.complete_after)
    }

    /// Returns the seqno up to which the part was taken from the beginning of history. A tombstone up to there replaces nothing
    /// in an older backup.
    pub fn full_to(&self) -> u64 {
        if self.from == 0 { self.full_to.unwrap_or(self.to) } else { self.from }
    }
}

impl BucketPart {
    /// Returns the part of a vBucket, if this backup has one.
    pub fn part(&self, vbid: u16) -> Option<&VbucketPart> {
        let at = self.parts.binary_search_by_key(&vbid, |part| part.vbid).ok()?;
        self.parts.get(at)
    }

    /// Returns the numbers of written and of deleted documents in this backup by collection ID; `None` if a part does not
    /// record them.
    pub fn counts(&self) -> Option<BTreeMap<u32, (u64, u64)>> {
        let mut counts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for part in &self.parts {
            if !part.has_counts() {
                return None;
            }
            for (id, (sets, deletions)) in &part.collections {
                let known = counts.entry(*id).or_default();
                known.0 = known.0.saturating_add(*sets);
                known.1 = known.1.saturating_add(*deletions);
            }
        }
        Some(counts)
    }

    fn check(&self, objects: &BTreeMap<u32, u64>) -> Result<(), String> {
        let name = &self.name;
        if self.vbuckets == 0 || self.vbuckets > VBUCKETS_MAX {
            return Err(format!("bucket {name} has {} vBuckets", self.vbuckets));
        }
        if !self.parts.is_sorted_by(|a, b| a.vbid < b.vbid) {
            return Err(format!("the vBuckets of {name} are not in order"));
        }
        for part in &self.parts {
            let vbid = part.vbid;
            let is_range = part.from <= part.to && (part.from == 0) == part.base.is_none();
            if vbid >= self.vbuckets || !is_range {
                return Err(format!("vBucket {vbid} of {name} contradicts itself"));
            }
            let versions = part.versions.map_or(part.to, |versions| versions.complete_after);
            if versions < part.from || versions > part.to {
                return Err(format!("vBucket {vbid} of {name} has versions outside of its range"));
            }
            if !part.adds_up() {
                return Err(format!("the counts of vBucket {vbid} of {name} do not add up"));
            }
            let fits = |run: &Run| {
                let end = run.offset.checked_add(run.bytes);
                objects.get(&run.object).zip(end).is_some_and(|(bytes, end)| end <= *bytes)
            };
            if !part.runs.iter().all(fits) {
                return Err(format!("vBucket {vbid} of {name} is in objects that are too short"));
            }
            if self.parent.is_none() && part.base.is_some() {
                return Err(format!(
                    "vBucket {vbid} of {name} continues a vBucket that is missing"
                ));
            }
        }
        let has_all = self.parent.is_some() || self.parts.len() == usize::from(self.vbuckets);
        if has_all { Ok(()) } else { Err(format!("not all vBuckets of {name} are there")) }
    }
}

/// Decodes a manifest.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Newer`].
pub fn decode_manifest(
    name: &str,
    bytes: &[u8],
    cipher: Option<&Cipher>,
) -> Result<Manifest, Error> {
    let manifest: Manifest = open_json(name, bytes, cipher)?;
    manifest.check().map_err(|reason| Error::damaged(name, reason))?;
    Ok(manifest)
}

/// Encodes a JSON object. The salt must be random, and used for one name only.
pub(crate) fn seal_json(
    name: &str,
    value: &impl Serialize,
    cipher: Option<(&Cipher, &[u8; 16])>,
) -> Vec<u8> {
    let mut body = serde_json::to_vec(value).expect("maps of these types have names for keys");
    if let Some((cipher, salt)) = cipher {
        cipher.of_object(name, salt).seal(0, &mut body);
    }
    let blake3 = blake3::hash(&body).to_string();
    let salt = cipher.map(|(_, salt)| to_hex(salt));
    let header = Header { format: FORMAT, bytes: body.len() as u64, blake3, salt };
    let mut bytes = serde_json::to_vec(&header).expect("a header is plain data");
    bytes.push(b'\n');
    bytes.extend(body);
    bytes
}

/// Decodes a JSON object.
pub(crate) fn open_json<T: DeserializeOwned>(
    name: &str,
    bytes: &[u8],
    cipher: Option<&Cipher>,
) -> Result<T, Error> {
    let line_end = bytes.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n');
    let (line, body) = line_end
        .map(|at| (&bytes[..at], &bytes[at + 1..]))
        .ok_or_else(|| Error::damaged(name, "it has no header"))?;
    let header: serde_json::Value = serde_json::from_slice(line)
        .map_err(|error| Error::damaged(name, format!("its header: {error}")))?;
    // Check the format first: later headers may have unknown members.
    match header["format"].as_u64() {
        Some(FORMAT) => {}
        Some(found) if found > FORMAT => {
            return Err(Error::Newer { object: name.to_owned(), found, known: FORMAT });
        }
        _ => return Err(Error::damaged(name, "its header names no format")),
    }
    let header: Header = serde_json::from_value(header)
        .map_err(|error| Error::damaged(name, format!("its header: {error}")))?;
    if header.bytes != body.len() as u64 {
        return Err(Error::damaged(
            name,
            format!("it has {} bytes of {}", body.len(), header.bytes),
        ));
    }
    if blake3::hash(body).to_string() != header.blake3 {
        return Err(Error::damaged(name, "its checksum is wrong"));
    }
    let opened = match (&header.salt, cipher) {
        (None, None) => None,
        (Some(salt), Some(cipher)) => {
            let salt = from_hex(salt).and_then(|salt| salt.try_into().ok());
            let salt: [u8; 16] =
                salt.ok_or_else(|| Error::damaged(name, "its salt is malformed"))?;
            let mut opened = body.to_vec();
            let object = cipher.of_object(name, &salt);
            object
                .open(0, &mut opened)
                .ok_or_else(|| Error::damaged(name, "it cannot be decrypted"))?;
            Some(opened)
        }
        (None, Some(_)) => return Err(Error::damaged(name, "it is not encrypted")),
        (Some(_), None) => return Err(Error::damaged(name, "it is encrypted")),
    };
    serde_json::from_slice(opened.as_deref().unwrap_or(body))
        .map_err(|error| Error::damaged(name, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeySlot;

    fn manifest() -> Manifest {
        let part = |vbid| VbucketPart {
            vbid,
            uuid: 1 << 63,
            base: None,
            from: 0,
            to: 9,
            dropped: None,
            runs: vec![Run { object: 0, offset: 20, bytes: 80 }],
            sets: 1,
            deletions: 0,
            collections: BTreeMap::from([(8, (1, 0))]),
            digest: u64::MAX,
            versions: None,
            full_to: None,
        };
        let bucket = BucketPart {
            name: "travel".into(),
            uuid: "u".into(),
            vbuckets: 2,
            parent: None,
            collections: Vec::new(),
            parts: vec![part(0), part(1)],
            definitions: BTreeMap::new(),
        };
        Manifest {
            id: BackupId::new(1, 2, None),
            writer: "nacre 0".into(),
            time_ms: (1, 2),
            buckets: vec![bucket],
            objects: vec![ObjectInfo { number: 0, bytes: 100, blake3: String::new() }],
            definitions: BTreeMap::new(),
            merged: Vec::new(),
        }
    }

    fn refusal(change: impl FnOnce(&mut Manifest)) -> String {
        let mut manifest = manifest();
        change(&mut manifest);
        let bytes = seal_json("m", &manifest, None);
        decode_manifest("m", &bytes, None).unwrap_err().to_string()
    }

    #[test]
    fn a_manifest_reads_back_as_written_also_encrypted() {
        let bytes = seal_json("m", &manifest(), None);
        assert_eq!(decode_manifest("m", &bytes, None).unwrap(), manifest());
        let (_, cipher) = KeySlot::new("p", 1, [3; 48]);
        let sealed = seal_json("m", &manifest(), Some((&cipher, &[1; 16])));
        assert!(!String::from_utf8_lossy(&sealed).contains("travel"));
        assert_eq!(decode_manifest("m", &sealed, Some(&cipher)).unwrap(), manifest());
        assert!(decode_manifest("other", &sealed, Some(&cipher)).is_err());
        assert!(decode_manifest("m", &sealed, None).is_err());
        assert!(decode_manifest("m", &bytes, Some(&cipher)).is_err());
    }

    #[test]
    fn case_23_a_manifest_that_contradicts_itself_is_refused() {
        for (expected, said) in [
            ("announces", refusal(|m| m.objects[0].bytes = 1 << 60)),
            ("too short", refusal(|m| m.buckets[0].parts[0].runs[0].offset = u64::MAX)),
            ("too short", refusal(|m| m.buckets[0].parts[0].runs[0].object = 7)),
            ("contradicts", refusal(|m| m.buckets[0].parts[0].from = 3)),
            ("contradicts", refusal(|m| m.buckets[0].parts[1].vbid = 2)),
            ("not in order", refusal(|m| m.buckets[0].parts[1].vbid = 0)),
            ("not all", refusal(|m| drop(m.buckets[0].parts.pop()))),
            ("do not add up", refusal(|m| m.buckets[0].parts[1].sets = 2)),
            (
                "do not add up",
                refusal(|m| {
                    m.buckets[0].parts[0].collections.insert(9, (u64::MAX, 0));
                }),
            ),
            ("65535 vBuckets", refusal(|m| m.buckets[0].vbuckets = u16::MAX)),
        ] {
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn counts_by_collection_are_known_if_every_part_has_them() {
        let mut bucket = manifest().buckets.remove(0);
        assert_eq!(bucket.counts(), Some(BTreeMap::from([(8, (2, 0))])));
        bucket.parts[0].collections = BTreeMap::from([(0, (1, 0))]);
        assert_eq!(bucket.counts(), Some(BTreeMap::from([(0, (1, 0)), (8, (1, 0))])));
        bucket.parts[1].collections.clear();
        assert_eq!(bucket.counts(), None);
        bucket.parts[1].sets = 0;
        assert_eq!(bucket.counts(), Some(BTreeMap::from([(0, (1, 0))])), "it has no documents");
    }

    #[test]
    fn truncated_changed_and_newer_manifests_are_refused_by_name() {
        let bytes = seal_json("m", &manifest(), None);
        for length in 0..bytes.len() {
            assert!(decode_manifest("m", &bytes[..length], None).is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode_manifest("m", &changed, None).is_err(), "byte {at}");
        }
        let newer = String::from_utf8(bytes).unwrap().replacen(":1,", ":2,", 1);
        let said = decode_manifest("m", newer.as_bytes(), None).unwrap_err().to_string();
        assert_eq!(
            said,
            "m has format 2, and this version of nacre reads formats up to 1: use a newer one"
        );
    }
}
