//! `nacre backup list`, `show`, `verify`, `examine` and `remove`.

use super::filter::body_of;
use super::lock::{self, Reading};
use super::restore::interval;
use super::sample::{self, Proof, Sample};
use super::{Place, counted, find, split_path};
use clap::Args;
use jiff::Timestamp;
use nacre_backup::{
    BackupId, BucketPart, Error, Manifest, Reader, Record, Repository, Verified,
    verify as verify_backup,
};
use nacre_cli::{Format, Listing};
use nacre_types::{DATATYPE_JSON, Vbid};
use serde_json::{Value, json};

/// Options of `nacre backup list`.
#[derive(Args, Clone, Debug)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    format: Format,
}

/// Options of `nacre backup show`.
#[derive(Args, Clone, Debug)]
pub(super) struct Show {
    #[command(flatten)]
    place: Place,
    /// Backup: its ID, the beginning of its ID, or latest
    #[arg(default_value = "latest")]
    backup: String,
    /// Show all backups, the oldest first, in JSON
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

/// Options of `nacre backup verify`.
#[derive(Args, Clone, Debug)]
pub(super) struct Verify {
    #[command(flatten)]
    place: Place,
    /// Backup: its ID, the beginning of its ID, or latest; the backups that it is based on are checked, too
    #[arg(default_value = "latest")]
    backup: String,
    /// Read all data, not only manifests and the sizes of objects
    #[arg(long)]
    read_data: bool,
    /// Also restore N documents of each bucket into memory and compare them with the archive; PERCENT% restores all documents of that
    /// share of the vBuckets
    #[arg(long, value_name = "N|PERCENT%")]
    restore_sample: Option<Sample>,
    #[command(flatten)]
    format: Format,
}

/// Options of `nacre backup examine`.
#[derive(Args, Clone, Debug)]
pub(super) struct Examine {
    #[command(flatten)]
    place: Place,
    /// Key of the document
    key: String,
    /// Collection, as bucket.scope.collection; or a bucket, for its default collection
    #[arg(long = "in", value_name = "COLLECTION")]
    within: String,
}

/// Options of `nacre backup remove`.
#[derive(Args, Clone, Debug)]
pub(super) struct Remove {
    #[command(flatten)]
    place: Place,
    /// ID of the backup
    backup: String,
}

/// Lists backups, and those that were interrupted.
pub(super) fn list(options: &List) -> Result<(), String> {
    let repository = options.place.open()?;
    let mut listing = Listing::new(&[
        "id",
        "state",
        "kind",
        "started",
        "buckets",
        "documents",
        "deletions",
        "bytes",
        "reason",
    ]);
    let mut add = |id: BackupId, about: &Value| {
        let started = about["startedMs"].as_u64().and_then(|ms| i64::try_from(ms).ok());
        let started = started.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let names = about["buckets"].as_array().into_iter().flatten();
        let names: Vec<Value> = names.map(|bucket| bucket["name"].clone()).collect();
        let field = |name: &str| about[name].clone();
        listing.add([
            id.to_string().into(),
            field("state"),
            field("kind"),
            started.map(|time| time.to_string()).into(),
            names.into(),
            field("documents"),
            field("deletions"),
            field("bytes"),
            field("reason"),
        ]);
    };
    for id in repository.backups()? {
        match repository.manifest(id) {
            Ok(read) => add(id, &described(&read.0)),
            Err(error) if error.is_damage() => {
                add(id, &json!({"state": "damaged", "reason": error.to_string()}));
            }
            Err(error) => return Err(error.into()),
        }
    }
    for id in repository.unfinished()? {
        add(id, &json!({"state": "interrupted"}));
    }
    options.format.show(&listing);
    Ok(())
}

/// A backup in a few fields.
fn described(manifest: &Manifest) -> Value {
    let buckets: Vec<Value> = manifest
        .buckets
        .iter()
        .map(|bucket| {
            let (sets, deletions): (u64, u64) =
                (bucket.parts.iter().map(|part| part.sets).sum(), bucket.parts.iter().map(|part| part.deletions).sum());
            json!({
                "name": bucket.name,
                "uuid": bucket.uuid,
                "vbuckets": bucket.vbuckets,
                "parent": bucket.parent.as_ref().map(|parent| parent.id.to_string()),
                "documents": sets,
                "deletions": deletions,
                "changedVbuckets": bucket.parts.len(),
                "rolledBack": bucket.parts.iter().filter(|part| part.dropped.is_some()).count(),
                "collections": bucket.collections.iter().map(|found| format!("{}.{}", found.scope, found.name)).collect::<Vec<_>>(),
                "counts": counts(bucket),
            })
        })
        .collect();
    let sum = |name: &str| buckets.iter().filter_map(|bucket| bucket[name].as_u64()).sum::<u64>();
    let is_full = manifest.buckets.iter().all(|bucket| bucket.parent.is_none());
    json!({
        "id": manifest.id.to_string(),
        "state": "complete",
        "kind": if is_full { "full" } else { "increment" },
        "startedMs": manifest.time_ms.0,
        "completedMs": manifest.time_ms.1,
        "writer": manifest.writer,
        "documents": sum("documents"),
        "deletions": sum("deletions"),
        "bytes": manifest.bytes(),
        "buckets": buckets,
        "merged": manifest.merged.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "definitions": manifest.definitions.keys().collect::<Vec<_>>(),
    })
}

/// Returns the changes of each collection in a backup, without dropped collections; null if the backup does not record them.
fn counts(bucket: &BucketPart) -> Value {
    let Some(counts) = bucket.counts() else { return Value::Null };
    let shown = bucket.collections.iter().map(|collection| {
        let (documents, deletions) = counts.get(&collection.id).copied().unwrap_or_default();
        json!({
            "scope": collection.scope,
            "scopeId": collection.scope_id,
            "collection": collection.name,
            "id": collection.id,
            "documents": documents,
            "deletions": deletions,
        })
    });
    Value::from_iter(shown)
}

/// Shows a backup.
pub(super) fn show(options: &Show) -> Result<(), String> {
    let repository = options.place.open()?;
    if options.all {
        let describe = |id| Ok(described(&repository.manifest(id)?.0));
        let all: Result<Vec<Value>, Error> =
            repository.backups()?.into_iter().map(describe).collect();
        println!("{}", Value::from(all?));
        return Ok(());
    }
    let read = repository.manifest(find(&repository, &options.backup)?)?;
    let described = described(&read.0);
    if options.format.is_json() {
        options.format.show_one(&described);
        return Ok(());
    }
    let took_ms = read.0.time_ms.1.saturating_sub(read.0.time_ms.0);
    println!(
        "backup {} ({}), by {}, in {took_ms} ms",
        read.0.id,
        described["kind"].as_str().unwrap_or_default(),
        read.0.writer
    );
    if let (Some(first), Some(last)) = (read.0.merged.first(), read.0.merged.last()) {
        println!(
            "merged from {}: {first} to {last}",
            counted(read.0.merged.len() as u64, "backup")
        );
    }
    for (bucket, about) in
        read.0.buckets.iter().zip(described["buckets"].as_array().into_iter().flatten())
    {
        let parent = bucket
            .parent
            .as_ref()
            .map_or_else(String::new, |parent| format!(", continues {}", parent.id));
        println!(
            "bucket {}: {} and {} in {} of {}{parent}",
            bucket.name,
            counted(about["documents"].as_u64().unwrap_or(0), "document"),
            counted(about["deletions"].as_u64().unwrap_or(0), "deletion"),
            bucket.parts.len(),
            counted(bucket.vbuckets.into(), "vBucket"),
        );
        for part in bucket.parts.iter().filter(|part| part.dropped.is_some()) {
            let (vbid, from, dropped) = (part.vbid, part.from, part.dropped.unwrap_or(0));
            println!("  vBucket {vbid} was rolled back from {dropped} to {from}");
        }
        let counts = bucket.counts();
        for collection in &bucket.collections {
            let changes = counts.as_ref().map_or_else(String::new, |counts| {
                let (documents, deletions) =
                    counts.get(&collection.id).copied().unwrap_or_default();
                format!(
                    ": {} and {}",
                    counted(documents, "document"),
                    counted(deletions, "deletion")
                )
            });
            println!("  collection {}.{}{changes}", collection.scope, collection.name);
        }
        if let Some(moments) = Reader::new(&repository, read.0.id, &bucket.name)?.moments()? {
            println!("  can go back to {}", interval(&moments));
        }
        for kind in bucket.definitions.keys() {
            println!("  {kind}");
        }
    }
    Ok(())
}

/// Verifies a backup.
///
/// # Errors
/// A sentence if anything is wrong.
pub(super) fn verify(options: &Verify) -> Result<(), String> {
    let repository = options.place.open()?;
    let id = find(&repository, &options.backup)?;
    // One that is damaged cannot be locked, and is what is looked for.
    let reading = Reading::begin(&repository, id).ok();
    let verified = verify_backup(&repository, id, options.read_data)?;
    if !options.format.is_json() {
        print_verified(&verified, options.read_data);
    }
    let proofs = match options.restore_sample {
        None => Vec::new(),
        Some(sample) => {
            let renew = || reading.iter().for_each(Reading::renew);
            sample::prove(&repository, id, sample, &mut rand::rng(), &renew)?
        }
    };
    if options.format.is_json() {
        options.format.show_one(&verified_json(id, &verified, options.read_data, &proofs));
    } else {
        proofs.iter().for_each(print_proof);
    }
    let faults = verified.findings.len() as u64 + proofs.iter().map(Proof::faults).sum::<u64>();
    match faults {
        0 => Ok(()),
        count => Err(format!("{} in the backup {id}", counted(count, "fault"))),
    }
}

/// Prints what a verification has read, and its findings.
fn print_verified(verified: &Verified, has_data: bool) {
    for finding in &verified.findings {
        println!("{}: {}", finding.object, finding.reason);
    }
    println!(
        "{}, {} of {} bytes, {}",
        counted(verified.manifests, "manifest"),
        counted(verified.objects, "object"),
        verified.bytes,
        if has_data { counted(verified.records, "record") } else { "data not read".to_owned() }
    );
}

/// Prints the result of a sample of a bucket.
fn print_proof(proof: &Proof) {
    proof.findings.iter().for_each(|finding| println!("{finding}"));
    if proof.more > 0 {
        println!("and {} more of {}", proof.more, proof.bucket);
    }
    println!("{}", proof.summary());
}

/// Returns the result of a verification for programs. Without data, the number of records is unknown.
fn verified_json(id: BackupId, verified: &Verified, has_data: bool, proofs: &[Proof]) -> Value {
    let findings = verified.findings.iter();
    let findings: Vec<Value> = findings
        .map(|finding| json!({"object": finding.object, "reason": finding.reason}))
        .collect();
    let samples: Vec<Value> = proofs
        .iter()
        .map(|proof| {
            json!({
                "bucket": proof.bucket,
                "vbuckets": proof.vbuckets,
                "documents": proof.restored.documents,
                "left_out": proof.left_out,
                "findings": proof.findings,
                "more_findings": proof.more,
            })
        })
        .collect();
    json!({
        "id": id.to_string(),
        "manifests": verified.manifests,
        "objects": verified.objects,
        "bytes": verified.bytes,
        "records": has_data.then_some(verified.records),
        "findings": findings,
        "samples": samples,
    })
}

/// Shows all versions of a document.
pub(super) fn examine(options: &Examine) -> Result<(), String> {
    let repository = options.place.open()?;
    let path = split_path(&options.within)?;
    let (bucket, scope, name) = match path[..] {
        [bucket, scope, name] => (bucket, scope, name),
        _ => (path[0], "_default", "_default"),
    };
    for id in repository.backups()? {
        let Ok(read) = repository.manifest(id) else { continue };
        let Some(part) = read.0.bucket(bucket) else { continue };
        let found =
            part.collections.iter().find(|found| found.scope == scope && found.name == name);
        let Some(collection) = found.map(|found| found.id) else { continue };
        let vbid = Vbid::of(options.key.as_bytes(), part.vbuckets);
        if part.part(vbid.0).is_none() {
            continue;
        }
        let reader = Reader::new(&repository, id, bucket)?;
        reader.for_each(vbid.0, |version, record| {
            let is_own = part.part(vbid.0) == Some(version);
            if is_own && record.collection == collection && record.key == options.key.as_bytes() {
                println!("{}", shown(id, record));
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

/// A version with its metadata, as JSON.
fn shown(id: BackupId, record: &Record<'_>) -> Value {
    let mut row = json!({
        "backup": id.to_string(),
        "seqno": record.seqno,
        "cas": record.cas.to_string(),
        "rev": record.rev,
        "flags": record.flags,
        "expiry": record.expiry,
        "deleted": !record.is_document(),
    });
    let parsed = body_of(record).filter(|_| record.datatype & DATATYPE_JSON != 0);
    match parsed.and_then(|value| serde_json::from_slice::<Value>(value).ok()) {
        Some(body) => row["value"] = body,
        None => row["valueBytes"] = record.value.len().into(),
    }
    row
}

/// Removes one backup.
pub(super) fn remove(options: &Remove) -> Result<(), String> {
    let repository = options.place.open()?;
    let id = removable(&repository, &options.backup)?;
    let readers = lock::readers(&repository)?;
    if let Some(reader) = readers.iter().find(|reader| reader.covers(id)) {
        return Err(format!("the backup {id} is being read, {}", lock::until(reader)));
    }
    lock::remove(&repository, &[id], |id, removed| {
        removed?;
        println!("removed {id}");
        Ok(())
    })
}

fn removable(repository: &Repository, text: &str) -> Result<BackupId, String> {
    let id: BackupId = text.parse()?;
    let is_known = repository.backups()?.contains(&id) || repository.unfinished()?.contains(&id);
    if is_known { Ok(id) } else { Err(format!("there is no backup {id}")) }
}
