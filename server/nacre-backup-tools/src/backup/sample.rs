//! Proof that a backup can be restored: a sample of its documents is written into a [bucket in memory](MemoryBucket), read back and compared.
//!
//! ```text
//! 500     documents, chosen at random from vBuckets chosen at random ─┐
//! 5%      all documents of this part of the vBuckets                 ─┴─► MemoryBucket ─► digest = digest in the archive?
//! ```
//!
//! Reading a vBucket compares its records with the digest in the manifest. The documents that come back from the bucket are compared with
//! these records. So the sample also shows documents that a node would refuse, such as those with a key that is too long.
//! *Invariant:* memory holds [`BATCH_BYTES`] of documents, and the keys' hashes of one vBucket.

use super::memory_bucket::MemoryBucket;
use super::writer::{Write, WriteRule};
use super::{counted, now_ms};
use nacre_backup::{BackupId, Digest, Error, Reader, Record, Repository};
use nacre_types::Vbid;
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

/// Size in bytes of a batch of documents; each batch is compared and dropped before the next one.
const BATCH_BYTES: usize = 64 << 20;
/// Minimum number of vBuckets from which documents are chosen, so that a sample does not come from one place.
const SPREAD: usize = 32;
/// Maximum number of findings of a bucket that are described; further ones are counted.
const NAMED_MAX: usize = 10;

/// Size of a sample of each bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sample {
    /// This number of documents.
    Documents(usize),
    /// All documents of this percentage of the vBuckets, at least of one vBucket.
    Percent(f64),
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Sample, String> {
        let malformed = || format!("{text:?} is neither a number of documents nor 0.1% to 100%");
        match text.strip_suffix('%') {
            None => match text.parse() {
                Ok(count) if count > 0 => Ok(Sample::Documents(count)),
                _ => Err(malformed()),
            },
            Some(percent) => match percent.parse() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Sample::Percent(percent)),
                _ => Err(malformed()),
            },
        }
    }
}

/// Hashes of the keys of documents to restore, with the seqnos of their newest versions.
type Wanted = HashMap<u128, u64>;

/// Result for a bucket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    pub bucket: String,
    /// vBuckets whose documents were restored.
    pub vbuckets: u64,
    /// Documents that the bucket returned exactly as in the archive.
    pub restored: Digest,
    /// Documents that a restore leaves out, as they have expired or their collection was dropped, in all vBuckets that were read.
    pub left_out: u64,
    /// Faults, each a sentence.
    pub findings: Vec<String>,
    /// Number of further faults.
    pub more: u64,
}

impl Proof {
    fn find(&mut self, finding: String) {
        match self.findings.len() < NAMED_MAX {
            true => self.findings.push(finding),
            false => self.more += 1,
        }
    }

    /// Returns the number of findings.
    pub fn faults(&self) -> u64 {
        self.findings.len() as u64 + self.more
    }

    /// Returns the result as a sentence.
    pub fn summary(&self) -> String {
        let Proof { bucket, vbuckets, restored, left_out, .. } = self;
        let (documents, vbuckets) =
            (counted(restored.documents, "document"), counted(*vbuckets, "vBucket"));
        let left_out = match left_out {
            0 => String::new(),
            count => format!("; {count} expired or of dropped collections left out"),
        };
        format!(
            "{bucket}: restored {documents} of {vbuckets} into memory, with the digest {:016x} of the archive{left_out}",
            restored.sum
        )
    }
}

/// Restores a sample of each bucket of a backup into memory, and compares it with the archive. Calls `renew` regularly.
///
/// # Errors
/// A sentence if the store fails or the backup has no manifest that can be read. Damage is a finding, not an error.
pub(super) fn prove(
    repository: &Repository,
    id: BackupId,
    sample: Sample,
    random: &mut impl Rng,
    renew: &dyn Fn(),
) -> Result<Vec<Proof>, String> {
    let manifest = repository.manifest(id)?;
    let mut proofs = Vec::new();
    for part in &manifest.0.buckets {
        let mut proof = Proof { bucket: part.name.clone(), ..Proof::default() };
        match Reader::new(repository, id, &part.name) {
            Err(error) => damage(&mut proof, &error)?,
            Ok(reader) => {
                let mut prover = Prover::new(&reader, proof);
                prover.prove(sample, random, renew)?;
                proof = prover.proof;
            }
        }
        proofs.push(proof);
    }
    Ok(proofs)
}

/// Adds damage to the findings; a failure of the store is an error.
fn damage(proof: &mut Proof, error: &Error) -> Result<(), String> {
    if matches!(error, Error::Store(failure) if failure.is_failure()) {
        return Err(error.to_string());
    }
    proof.find(error.to_string());
    Ok(())
}

/// A written document that is not compared yet.
struct Pending {
    collection: u32,
    name: Vec<u8>,
    fingerprint: u64,
}

/// Proves one bucket.
struct Prover<'a> {
    reader: &'a Reader<'a>,
    now_ms: u64,
    memory: Option<MemoryBucket>,
    pending: Vec<Pending>,
    bytes: usize,
    proof: Proof,
}

impl<'a> Prover<'a> {
    fn new(reader: &'a Reader<'a>, proof: Proof) -> Prover<'a> {
        Prover { reader, now_ms: now_ms(), memory: None, pending: Vec::new(), bytes: 0, proof }
    }

    fn prove(
        &mut self,
        sample: Sample,
        random: &mut impl Rng,
        renew: &dyn Fn(),
    ) -> Result<(), String> {
        let mut order: Vec<u16> = (0..self.reader.bucket().vbuckets).collect();
        order.shuffle(random);
        match sample {
            Sample::Percent(percent) => {
                let count = (order.len() as f64 * percent / 100.0).ceil() as usize;
                for vbid in order.into_iter().take(count.max(1)) {
                    if let Some(wanted) = self.living(vbid)? {
                        self.restore(vbid, &wanted)?;
                    }
                    renew();
                }
            }
            Sample::Documents(count) => {
                for (vbid, wanted) in self.choose(&order, count, random, renew)? {
                    self.restore(vbid, &wanted)?;
                    renew();
                }
            }
        }
        self.compare();
        Ok(())
    }

    /// Chooses documents of the vBuckets that it reads, all with the same probability (reservoir sampling: Vitter, 1985).
    fn choose(
        &mut self,
        order: &[u16],
        count: usize,
        random: &mut impl Rng,
        renew: &dyn Fn(),
    ) -> Result<BTreeMap<u16, Wanted>, String> {
        let (mut chosen, mut seen) = (Vec::new(), 0);
        for (place, vbid) in order.iter().enumerate() {
            if place >= SPREAD && seen >= count {
                break;
            }
            let Some(living) = self.living(*vbid)? else { continue };
            for (hash, seqno) in living {
                seen += 1;
                if chosen.len() < count {
                    chosen.push((*vbid, hash, seqno));
                } else {
                    let at = random.random_range(0..seen);
                    if let Some(other) = chosen.get_mut(at) {
                        *other = (*vbid, hash, seqno);
                    }
                }
            }
            renew();
        }
        let mut wanted: BTreeMap<u16, Wanted> = BTreeMap::new();
        for (vbid, hash, seqno) in chosen {
            wanted.entry(vbid).or_default().insert(hash, seqno);
        }
        Ok(wanted)
    }

    /// Returns the documents of a vBucket that a restore writes; an empty map for a damaged vBucket, which is a finding.
    fn living(&mut self, vbid: u16) -> Result<Option<Wanted>, String> {
        let mut living: HashMap<u128, (u64, bool)> = HashMap::new();
        let read = self.reader.for_each(vbid, |_, record| {
            let (hash, is_restored) = (record.key_hash(), self.is_restored(record));
            match record.is_document() {
                true => drop(living.insert(hash, (record.seqno, is_restored))),
                false => drop(living.remove(&hash)),
            }
            Ok::<(), Error>(())
        });
        if let Err(error) = read {
            return damage(&mut self.proof, &error).map(|()| None);
        }
        let all = living.len();
        let restored = living.into_iter().filter(|(_, (_, is_restored))| *is_restored);
        let wanted: Wanted = restored.map(|(hash, (seqno, _))| (hash, seqno)).collect();
        self.proof.left_out += (all - wanted.len()) as u64;
        Ok(Some(wanted))
    }

    /// Returns true unless a restore leaves out the document.
    fn is_restored(&self, record: &Record<'_>) -> bool {
        let has_expired = record.expiry != 0 && u64::from(record.expiry) <= self.now_ms / 1000;
        let collections = &self.reader.bucket().collections;
        !has_expired && collections.iter().any(|found| found.id == record.collection)
    }

    /// Restores documents of a vBucket.
    fn restore(&mut self, vbid: u16, wanted: &Wanted) -> Result<(), String> {
        self.proof.vbuckets += 1;
        let reader = self.reader;
        reader.for_each(vbid, |_, record| {
            // Seqnos increase along a lineage, so a seqno identifies a record.
            match wanted.get(&record.key_hash()) == Some(&record.seqno) {
                true => self.restore_one(record),
                false => Ok(()),
            }
        })
    }

    fn restore_one(&mut self, record: &Record<'_>) -> Result<(), String> {
        let part = self.reader.bucket();
        if self.memory.is_none() {
            self.memory = Some(MemoryBucket::new(part, self.now_ms)?);
        }
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let rule = WriteRule { by_time: false, force: false };
        let vbid = Vbid::of(record.key, part.vbuckets);
        let write = Write::of(record, vbid, (record.collection, record.expiry), rule);
        match memory.write(&write) {
            Ok(()) => {
                self.bytes += record.key.len() + record.value.len();
                self.pending.push(Pending {
                    collection: record.collection,
                    name: record.key.to_vec(),
                    fingerprint: record.fingerprint(),
                });
            }
            Err(reason) => {
                let (name, bucket) = (String::from_utf8_lossy(record.key), &part.name);
                self.proof.find(format!("{name:?} of {bucket} cannot be restored: {reason}"));
            }
        }
        if self.bytes >= BATCH_BYTES {
            self.compare();
        }
        Ok(())
    }

    /// Compares the documents in memory with the archive, and empties the bucket.
    fn compare(&mut self) {
        let memory = self.memory.take();
        for Pending { collection, name, fingerprint } in self.pending.drain(..) {
            let found = memory.as_ref().and_then(|memory| memory.fingerprint(collection, &name));
            if found == Some(fingerprint) {
                self.proof.restored.add(fingerprint);
                continue;
            }
            let name = String::from_utf8_lossy(&name);
            let bucket = &self.proof.bucket;
            let finding = match found {
                None => format!("{name:?} of {bucket} is missing after a restore"),
                Some(_) => format!("{name:?} of {bucket} is not the same after a restore"),
            };
            self.proof.find(finding);
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_backup::{
        BucketSource, Collection, MemoryStore, RecordKind, Store, Task, TaskOptions,
    };
    use nacre_types::{DATATYPE_JSON, DATATYPE_XATTR};
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::sync::Arc;

    const VBUCKETS: u16 = 8;
    const ATTRIBUTES: &[u8] = b"\0\0\0\x0c\0\0\0\x08_a\x00true\x00";

    struct Fixture {
        store: Arc<MemoryStore>,
        repository: Repository,
        id: BackupId,
    }

    fn document<'a>(key: &'a [u8], datatype: u8, value: &'a [u8]) -> Record<'a> {
        Record {
            kind: RecordKind::Set,
            seqno: 0,
            cas: 1_700_000_000_000_000_000,
            rev: 3,
            flags: 0x0200_0000,
            expiry: 0,
            datatype,
            collection: 8,
            key,
            value,
        }
    }

    /// Backs up records; those of a vBucket get seqnos in their order.
    fn back_up(records: &[Record<'_>]) -> Fixture {
        let store = Arc::new(MemoryStore::default());
        Repository::create(&*store, BackupId::new(1, 1, None), None).unwrap();
        let repository = Repository::open(Arc::clone(&store) as Arc<dyn Store>, None).unwrap();
        let source = BucketSource { name: "b".into(), uuid: "u".into(), vbuckets: VBUCKETS };
        let options = TaskOptions { now_ms: 5, random: [5; 16], is_full: true };
        let task = Task::begin(&repository, &[source], options).unwrap();
        let mut worker = task.worker();
        for vbid in 0..VBUCKETS {
            let own: Vec<&Record<'_>> =
                records.iter().filter(|record| Vbid::of(record.key, VBUCKETS).0 == vbid).collect();
            let mut vbucket = worker.begin(0, vbid, own.len() as u64);
            vbucket.accepted(&[(9, 0)]).unwrap();
            if !own.is_empty() {
                vbucket.snapshot(own.len() as u64, false).unwrap();
            }
            for (record, seqno) in own.into_iter().zip(1..) {
                vbucket.record(&Record { seqno, ..*record }, &mut worker).unwrap();
            }
            worker.finish(0, vbucket).unwrap();
        }
        worker.flush().unwrap();
        let collection = Collection {
            id: 8,
            scope: "s".into(),
            scope_id: None,
            name: "c".into(),
            max_ttl: 0,
            keeps_versions: false,
        };
        let about = BTreeMap::from([("b".to_owned(), (vec![collection], BTreeMap::new()))]);
        let id = task.complete(9, "test", about, BTreeMap::new()).unwrap().id;
        Fixture { store, repository, id }
    }

    fn proof(fixture: &Fixture, sample: &str) -> Proof {
        let mut random = StdRng::seed_from_u64(7);
        let sample = sample.parse().unwrap();
        let proofs = prove(&fixture.repository, fixture.id, sample, &mut random, &|| ()).unwrap();
        let [proof] = <[Proof; 1]>::try_from(proofs).unwrap();
        proof
    }

    #[test]
    fn a_sample_is_a_number_or_a_percentage() {
        assert_eq!("500".parse(), Ok(Sample::Documents(500)));
        assert_eq!("2.5%".parse(), Ok(Sample::Percent(2.5)));
        for text in ["", "0", "-1", "0%", "101%", "NaN%", "%", "5 %", "x"] {
            assert!(text.parse::<Sample>().is_err(), "{text}");
        }
    }

    #[test]
    fn restored_documents_have_the_digest_of_the_archive() {
        let names: Vec<String> = (0..100).map(|n| format!("key-{n}")).collect();
        let with_attributes = [ATTRIBUTES, b"{\"n\":1}"].concat();
        let mut records: Vec<Record<'_>> = names
            .iter()
            .map(|name| document(name.as_bytes(), DATATYPE_JSON, b"{\"n\":1}"))
            .collect();
        records[0] = document(b"key-0", 0, b"\xff\x00no JSON");
        records[1] = document(b"key-1", DATATYPE_JSON | DATATYPE_XATTR, &with_attributes);
        records[2].expiry = 1;
        records[3].expiry = u32::MAX;
        records[4].collection = 9;
        // An older version, and a document that was deleted.
        records.insert(0, document(b"key-7", DATATYPE_JSON, b"1"));
        let gone = document(b"key-8", 0, b"");
        records.push(Record { kind: RecordKind::Deletion, flags: 0, ..gone });
        let fixture = back_up(&records);

        let whole = proof(&fixture, "100%");
        assert_eq!(whole.findings, [""; 0]);
        assert_eq!((whole.vbuckets, whole.restored.documents, whole.left_out), (8, 97, 2));
        let mut expected = Digest::default();
        let skipped = [&b"key-2"[..], b"key-4", b"key-8"];
        for record in records[1..=100].iter().filter(|record| !skipped.contains(&record.key)) {
            expected.add(record.fingerprint());
        }
        assert_eq!(whole.restored, expected);
        let sum = format!("with the digest {:016x} of the archive", expected.sum);
        assert!(whole.summary().contains(&sum), "{}", whole.summary());

        let some = proof(&fixture, "20");
        assert_eq!(some.findings, [""; 0]);
        assert_eq!(some.restored.documents, 20);
        assert_ne!(some.restored, proof(&fixture, "19").restored);
        let all = proof(&fixture, "1000");
        assert_eq!((all.restored, all.left_out), (expected, 2));
        assert_eq!(proof(&fixture, "0.1%").vbuckets, 1);
    }

    #[test]
    fn documents_that_a_node_would_refuse_or_change_are_found() {
        let long = [b'k'; 300];
        let fixture = back_up(&[
            document(&long, 0, b"text"),
            document(b"no JSON", DATATYPE_JSON, b"text"),
            document(b"attributes", DATATYPE_XATTR, b"\0\0\xff\xfftext"),
            document(b"fine", DATATYPE_JSON, b"1"),
        ]);
        let proof = proof(&fixture, "100%");
        assert_eq!((proof.restored.documents, proof.faults()), (1, 3));
        let said = proof.findings.join("\n");
        assert!(said.contains("kkk\" of b cannot be restored: "), "{said}");
        assert!(said.contains("\"attributes\" of b cannot be restored: "), "{said}");
        assert!(said.contains("\"no JSON\" of b is not the same after a restore"), "{said}");
    }

    #[test]
    fn damage_is_located() {
        let fixture = back_up(&[document(b"k", DATATYPE_JSON, b"{\"n\":1}")]);
        let name = format!("backups/{}/data/0.nbk", fixture.id);
        let mut bytes = fixture.store.read(&name, 0..u64::MAX).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fixture.store.tamper(&name, Some(bytes));
        let proof = proof(&fixture, "5");
        assert_eq!((proof.restored.documents, proof.faults()), (0, 1));
        assert!(proof.findings[0].starts_with(&format!("{name} is damaged: ")), "{proof:?}");
    }
}
