//! `nacre backup diff`: a backup against a running cluster.

use super::definitions;
use super::history::{Failure, Source, stream_vbucket};
use super::{Place, counted, find};
use clap::Args;
use nacre_backup::{BucketPart, Collection, Error, Reader, Record, VbucketTake};
use nacre_cli::{Cluster, Format, Listing, Server};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Documents that are shown one by one.
const SHOWN_MAX: usize = 20;

/// Options of `nacre backup diff`. Memory grows with the number of documents, about 100 bytes for each.
#[derive(Args, Clone, Debug)]
pub(super) struct Diff {
    #[command(flatten)]
    place: Place,
    /// Backup: its ID, the beginning of its ID, or latest
    #[arg(default_value = "latest")]
    backup: String,
    #[command(flatten)]
    server: Server,
    /// Bucket of the backup
    #[arg(long)]
    bucket: String,
    /// Bucket of the cluster (default: the name of the bucket in the backup)
    #[arg(long)]
    with: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// Fingerprint of each document by collection and key.
type Documents = BTreeMap<(String, Vec<u8>), u64>;

/// Compares a bucket of a backup with one of a cluster.
///
/// # Errors
/// A sentence, also if they differ.
pub(super) fn diff(options: &Diff) -> Result<(), String> {
    let repository = options.place.open()?;
    let id = find(&repository, &options.backup)?;
    let reader = Reader::new(&repository, id, &options.bucket)?;
    let ours = of_backup(&reader)?;
    let theirs = of_cluster(options)?;
    let keys: BTreeSet<&(String, Vec<u8>)> = ours.keys().chain(theirs.keys()).collect();
    let (mut same, mut different) = (0, 0);
    let mut listing = Listing::new(&["collection", "key", "difference"]);
    for key in keys {
        let what = match (ours.get(key), theirs.get(key)) {
            (Some(ours), Some(theirs)) if ours == theirs => {
                same += 1;
                continue;
            }
            (Some(_), Some(_)) => "differs",
            (Some(_), None) => "only in the backup",
            (None, _) => "only in the cluster",
        };
        different += 1;
        let name = String::from_utf8_lossy(&key.1);
        if options.format.is_json() {
            listing.add([key.0.as_str().into(), name.into(), what.into()]);
        } else if different <= SHOWN_MAX {
            println!("{} {name}: {what}", key.0);
        }
    }
    match options.format.is_json() {
        true => options.format.show(&listing),
        false => println!("{} the same, {different} different", counted(same, "document")),
    }
    if different == 0 { Ok(()) } else { Err("the backup and the cluster differ".to_owned()) }
}

/// Names of collections by their numbers.
fn names(collections: &[Collection]) -> BTreeMap<u32, String> {
    collections.iter().map(|found| (found.id, format!("{}.{}", found.scope, found.name))).collect()
}

fn apply(documents: &mut Documents, names: &BTreeMap<u32, String>, record: &Record<'_>) {
    let Some(name) = names.get(&record.collection) else { return };
    let key = (name.clone(), record.key.to_vec());
    match record.is_document() {
        true => drop(documents.insert(key, record.fingerprint())),
        false => drop(documents.remove(&key)),
    }
}

fn of_backup(reader: &Reader<'_>) -> Result<Documents, String> {
    let part: &BucketPart = reader.bucket();
    let (names, mut documents) = (names(&part.collections), Documents::new());
    for vbid in 0..part.vbuckets {
        reader.for_each(vbid, |_, record| {
            apply(&mut documents, &names, record);
            Ok::<(), Error>(())
        })?;
    }
    Ok(documents)
}

fn of_cluster(options: &Diff) -> Result<Documents, String> {
    let bucket = options.with.as_deref().unwrap_or(&options.bucket);
    let cluster = Cluster::open(&options.server)?;
    let source = Source::open(&cluster, bucket, 4)?;
    let names = names(&definitions::present(&options.server, bucket)?);
    let documents: Mutex<Documents> = Mutex::default();
    let remaining: Mutex<BTreeSet<u16>> = Mutex::new((0..source.vbuckets).collect());
    source.stream_all(
        || remaining.lock().iter().copied().collect(),
        || (),
        |(), consumer, vbid, high| {
            let mut take = VbucketTake::new(vbid, Vec::new(), high);
            let mut own = Documents::new();
            stream_vbucket(consumer, &mut take, |take, record| {
                apply(&mut own, &names, record);
                take.advanced(record.seqno).map_err(Failure::from)
            })?;
            // Not `append`, which goes through all that is there.
            documents.lock().extend(own);
            remaining.lock().remove(&vbid);
            Ok(())
        },
        |()| Ok(()),
    )?;
    Ok(documents.into_inner())
}
