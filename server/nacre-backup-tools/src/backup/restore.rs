//! `nacre restore`.

use super::definitions::{self, Definitions};
use super::expiry::ExpiryRule;
use super::kinds::{Kind, Kinds};
use super::lock::Reading;
use super::mapping::Mapping;
use super::selection::{Select, Selection};
use super::writer::{WriteRule, Writer, Written};
use super::{Place, counted, find, now_ms};
use clap::Args;
use indicatif::ProgressBar;
use jiff::Timestamp;
use nacre_backup::{BackupId, BucketPart, Collection, Error, Reader, Repository};
use nacre_cli::{Cluster, Server};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;

/// Nanoseconds of a millisecond.
const NANOS_PER_MS: u64 = 1_000_000;

/// Options of `nacre restore`.
#[derive(Args, Clone, Debug)]
pub struct Restore {
    #[command(flatten)]
    place: Place,
    /// Backup: its ID, the beginning of its ID, or latest (default: latest; with --at, the first backup that began after that time)
    backup: Option<String>,
    /// Restore the state at this time from a backup that was created with --history. The format is 2026-11-28T12:00:00Z, with up to
    /// nine decimal places of a second. Newer documents in the bucket are kept: restore into another bucket, or use --force
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
    /// Restore only the changes in this backup and in those after it: its ID, the beginning of its ID, or latest (default: all that the
    /// restored backup is based on)
    #[arg(long, value_name = "BACKUP", conflicts_with = "at")]
    from: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Bucket of the backup; repeatable (default: all buckets)
    #[arg(long)]
    bucket: Vec<String>,
    /// Restore a bucket or a collection under another name: from=to, each as bucket or bucket.scope.collection
    #[arg(long, value_name = "FROM=TO")]
    mapping: Vec<String>,
    /// Create missing buckets, with the settings that they had
    #[arg(long)]
    create_buckets: bool,
    /// Give existing buckets the settings that they had
    #[arg(long)]
    bucket_settings: bool,
    /// Also create missing design documents, indexes, functions, plugins and replications, or only some kinds, separated by commas.
    /// Indexes are not built, functions not deployed; deployments of plugins and replications are paused; search indexes begin to
    /// build at once
    #[arg(
        long,
        value_enum,
        value_name = "KINDS",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "all"
    )]
    definitions: Vec<Kind>,
    /// Restore collections and definitions, but no documents
    #[arg(long)]
    no_data: bool,
    /// Also create missing users and groups, with the passwords that they had
    #[arg(long)]
    users: bool,
    /// Replace existing users and groups, including administrators of the cluster
    #[arg(long, requires = "users")]
    overwrite_users: bool,
    /// Restore only into the collections of the backup, not into others with the same names
    #[arg(long)]
    only_same_uid: bool,
    /// Drop collections of the cluster that were dropped between the backups to restore (default: such collections stay)
    #[arg(long)]
    drop_collections: bool,
    /// Replace existing documents even if they are newer (default: the newer version is kept)
    #[arg(long)]
    force: bool,
    /// Also restore the tombstones of a full backup
    #[arg(long)]
    tombstones: bool,
    #[command(flatten)]
    expiry: ExpiryRule,
    #[command(flatten)]
    select: Select,
    /// Skip vBuckets that are damaged in the backup, and exit with an error at the end (default: stop at the first one)
    #[arg(long)]
    skip_damaged: bool,
    /// Count the documents that would be restored, and write none
    #[arg(long)]
    dry_run: bool,
    /// Number of vBuckets that are restored in parallel
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

impl Restore {
    /// Returns true if definitions are created.
    fn wants_definitions(&self) -> bool {
        !self.definitions.is_empty() && !self.dry_run
    }
}

/// What came of the records of a bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    documents: u64,
    tombstones: u64,
    expired: u64,
    /// Records of collections that were dropped before the backup was complete.
    dropped: u64,
    /// Documents and tombstones that are not selected.
    unselected: u64,
    /// vBuckets that were left out.
    damaged: u64,
    written: Written,
}

/// Where the documents of a collection go.
struct Target {
    bucket: String,
    /// Number of the collection there; 0 for a dry run.
    collection: u32,
    /// Seconds after which documents expire there at the latest; 0 for no limit.
    max_ttl_s: u64,
}

/// Targets by the number of the collection in the backup.
type Targets = BTreeMap<u32, Target>;

/// Restores a backup.
///
/// # Errors
/// A sentence. A restore that was interrupted can be run again: what has been written is not written twice.
pub fn restore(options: &Restore) -> Result<(), String> {
    let repository = options.place.open()?;
    let moment = options.at.map(cas_of).transpose()?;
    let id = match (&options.backup, moment) {
        (None, Some(cas)) => first_after(&repository, cas, &options.bucket)?,
        (named, _) => find(&repository, named.as_deref().unwrap_or("latest"))?,
    };
    let from = options.from.as_deref().map(|from| find(&repository, from)).transpose()?;
    if let Some(from) = from.filter(|from| *from > id) {
        return Err(format!("the backup {from} is newer than {id}"));
    }
    let mapping = Mapping::read(&options.mapping)?;
    let reading = Reading::begin(&repository, id)?;
    let manifest = repository.manifest(id)?;
    options.select.check(&manifest.0)?;
    let parts: Vec<&BucketPart> = match &options.bucket[..] {
        [] => manifest.0.buckets.iter().collect(),
        named => {
            let find = |name: &String| {
                manifest
                    .0
                    .bucket(name)
                    .ok_or_else(|| format!("the backup {id} has no bucket {name}"))
            };
            named.iter().map(find).collect::<Result<_, String>>()?
        }
    };
    let cluster = match options.dry_run {
        true => None,
        false => Some(Cluster::open(&options.server)?),
    };
    let mut damaged = 0;
    for part in parts.into_iter().filter(|part| options.select.has_bucket(part)) {
        let targets = targets(options, &mapping, part)?;
        if options.drop_collections && !options.dry_run {
            drop_collections(options, &mapping, part, &dropped(&repository, id, part, from)?)?;
        }
        if !options.no_data {
            let reader = Reader::new(&repository, id, &part.name)?;
            let reader = match moment {
                Some(cas) => at_moment(reader, cas)?,
                None => reader,
            };
            let source = (&reader, &reading, from);
            let counts = restore_bucket(options, cluster.as_ref(), source, &targets)?;
            report(options, part, &mapping, &counts);
            damaged += counts.damaged;
        }
        if options.wants_definitions() {
            let [bucket, ..] = mapping.target(&part.name, "", "");
            let kinds = Kinds(&options.definitions);
            let (created, failed) =
                definitions::create_others(&options.server, &bucket, part, kinds);
            println!("created {} of {bucket}", counted(created, "definition"));
            failed.iter().for_each(|reason| eprintln!("not created: {reason}"));
        }
    }
    restore_others(options, &manifest.0.definitions)?;
    match damaged {
        0 => Ok(()),
        count => Err(format!("{} left out, as they are damaged", counted(count, "vBucket"))),
    }
}

/// Restores what belongs to no bucket. Users come last: the one who restores may have another password then.
fn restore_others(options: &Restore, definitions: &Definitions) -> Result<(), String> {
    if options.dry_run {
        return Ok(());
    }
    if options.wants_definitions() {
        let kinds = Kinds(&options.definitions);
        let (created, failed) = definitions::create_of_cluster(&options.server, definitions, kinds);
        println!("created {} of the cluster", counted(created, "definition"));
        failed.iter().for_each(|reason| eprintln!("not created: {reason}"));
    }
    if options.users {
        let report =
            definitions::restore_users(&options.server, definitions, options.overwrite_users)?;
        println!("{report}");
    }
    Ok(())
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|error: jiff::Error| error.to_string())
}

/// Converts a time to the CAS that a write at that time has: nanoseconds since 1970.
fn cas_of(at: Timestamp) -> Result<u64, String> {
    u64::try_from(at.as_nanosecond()).map_err(|_| format!("{at} is out of range"))
}

/// Finds the oldest backup of some buckets that was begun at or after a moment.
fn first_after(repository: &Repository, cas: u64, buckets: &[String]) -> Result<BackupId, String> {
    for id in repository.backups()? {
        let read = repository.manifest(id)?;
        let has_all = buckets.iter().all(|name| read.0.bucket(name).is_some());
        if has_all && read.0.time_ms.0.saturating_mul(NANOS_PER_MS) >= cas {
            return Ok(id);
        }
    }
    Err("no backup was begun after that moment".to_owned())
}

/// Lets a reader go back to a moment.
fn at_moment(reader: Reader<'_>, cas: u64) -> Result<Reader<'_>, String> {
    let moments = reader.moments()?;
    let name = reader.bucket().name.clone();
    if moments.as_ref().is_some_and(|moments| moments.contains(&cas)) {
        return Ok(reader.at(cas)?);
    }
    Err(match moments {
        None => {
            format!("the backup has no earlier versions of {name}: take backups with --history")
        }
        Some(moments) => format!("{name} can go back to {}", interval(&moments)),
    })
}

/// `any moment up to 2026-11-28T12:00:00Z`.
pub(super) fn interval(moments: &RangeInclusive<u64>) -> String {
    let time = |cas: &u64| {
        let time = Timestamp::from_nanosecond((*cas).into());
        time.map_or_else(|_| cas.to_string(), |time| time.to_string())
    };
    match moments.start() {
        0 => format!("any moment up to {}", time(moments.end())),
        start => format!("any moment from {} to {}", time(start), time(moments.end())),
    }
}

/// Checks that a bucket has collections with the IDs that they have in the backup.
fn check_uids(
    present: &[Collection],
    bucket: &str,
    wanted: &[(u32, Collection)],
) -> Result<(), String> {
    for (id, Collection { scope, name, .. }) in wanted {
        let is_same =
            |found: &Collection| found.id == *id && found.scope == *scope && found.name == *name;
        if !present.iter().any(is_same) {
            return Err(format!(
                "{bucket}.{scope}.{name} is not the collection of the backup: without --only-same-uid, the collection of that name is used"
            ));
        }
    }
    Ok(())
}

/// Finds the collections in which the documents of a bucket are put; creates those that are missing.
fn targets(options: &Restore, mapping: &Mapping, part: &BucketPart) -> Result<Targets, String> {
    let mut wanted: BTreeMap<String, Vec<(u32, Collection)>> = BTreeMap::new();
    let selected = |one: &&Collection| options.select.has_collection(&part.name, one);
    for collection in part.collections.iter().filter(selected) {
        if options.at.is_some() && !collection.keeps_versions {
            let Collection { scope, name, .. } = collection;
            eprintln!("not restored: {}.{scope}.{name} keeps no versions", part.name);
            continue;
        }
        let [bucket, scope, name] = mapping.target(&part.name, &collection.scope, &collection.name);
        let target = Collection { scope, name, ..collection.clone() };
        wanted.entry(bucket).or_default().push((collection.id, target));
    }
    let mut targets = Targets::new();
    for (bucket, collections) in wanted {
        if options.dry_run {
            let target = || Target { bucket: bucket.clone(), collection: 0, max_ttl_s: 0 };
            targets.extend(collections.iter().map(|(id, _)| (*id, target())));
            continue;
        }
        let path = definitions::bucket_path(&bucket);
        let exists = options.server.knows(&path)?;
        if !exists {
            if !options.create_buckets {
                return Err(format!("there is no bucket {bucket}: --create-buckets creates it"));
            }
            definitions::create_bucket(&options.server, &bucket, part)?;
        }
        if options.only_same_uid {
            check_uids(&definitions::present(&options.server, &bucket)?, &bucket, &collections)?;
        }
        if exists && options.bucket_settings {
            definitions::change_bucket(&options.server, &bucket, part)?;
        }
        let of_bucket = options.server.call("GET", &path, b"")?["maxTTL"].as_u64().unwrap_or(0);
        let plain: Vec<_> = collections.iter().map(|(_, target)| target.clone()).collect();
        let present = definitions::create_collections(&options.server, &bucket, &plain)?;
        for (id, target) in collections {
            let found = present
                .iter()
                .find(|found| found.scope == target.scope && found.name == target.name);
            if let Some(found) = found {
                // A negative value exempts the collection from the bucket's limit.
                let max_ttl_s = match found.max_ttl {
                    0 => of_bucket,
                    own => u64::try_from(own).unwrap_or(0),
                };
                let bucket = bucket.clone();
                targets.insert(id, Target { bucket, collection: found.id, max_ttl_s });
            }
        }
    }
    Ok(targets)
}

/// Returns the collections of a bucket that earlier backups of a range have, and the last one does not.
fn dropped(
    repository: &Repository,
    id: BackupId,
    part: &BucketPart,
    from: Option<BackupId>,
) -> Result<Vec<Collection>, Error> {
    let is_there = |one: &Collection| {
        part.collections.iter().any(|known| known.scope == one.scope && known.name == one.name)
    };
    let parent_of = |bucket: &BucketPart| bucket.parent.as_ref().map(|parent| parent.id);
    let mut dropped = BTreeMap::new();
    let (mut last, mut next) = (id, parent_of(part));
    // Only the backups that this bucket continues: the backup may need older ones for other buckets.
    while let Some(earlier) = next
        && earlier < last
        && from.is_none_or(|from| from <= earlier)
    {
        let read = repository.manifest(earlier)?;
        let same = read.0.bucket(&part.name).filter(|known| known.uuid == part.uuid);
        let Some(known) = same else { break };
        for one in known.collections.iter().filter(|one| !is_there(one)) {
            dropped.entry((one.scope.clone(), one.name.clone())).or_insert_with(|| one.clone());
        }
        (last, next) = (earlier, parent_of(known));
    }
    Ok(dropped.into_values().collect())
}

/// Drops the targets of dropped collections, unless another collection is restored into them.
fn drop_collections(
    options: &Restore,
    mapping: &Mapping,
    part: &BucketPart,
    dropped: &[Collection],
) -> Result<(), String> {
    let target = |one: &Collection| mapping.target(&part.name, &one.scope, &one.name);
    let kept: BTreeSet<[String; 3]> = part.collections.iter().map(target).collect();
    for one in dropped.iter().filter(|one| options.select.has_collection(&part.name, one)) {
        let target = target(one);
        if !kept.contains(&target) && definitions::drop_collection(&options.server, &target)? {
            println!("dropped the collection {}", target.join("."));
        }
    }
    Ok(())
}

fn restore_bucket(
    options: &Restore,
    cluster: Option<&Cluster<'_>>,
    (reader, reading, from): (&Reader<'_>, &Reading<'_>, Option<BackupId>),
    targets: &Targets,
) -> Result<Counts, String> {
    let names: BTreeSet<&String> = targets.values().map(|target| &target.bucket).collect();
    let mut rules = BTreeMap::new();
    for name in names {
        let described = match cluster {
            None => serde_json::Value::Null,
            Some(cluster) => cluster.server.call("GET", &definitions::bucket_path(name), b"")?,
        };
        let by_time = described["conflictResolutionType"] == "lww";
        rules.insert(name.clone(), WriteRule { by_time, force: options.force });
    }
    let queue: Mutex<VecDeque<u16>> = Mutex::new((0..reader.bucket().vbuckets).collect());
    let (total, failed) = (Mutex::new(Counts::default()), Mutex::new(None));
    let bar = if options.quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(reader.bucket().vbuckets.into())
    };
    let work = || {
        // Each thread has one: a condition remembers what it has compiled.
        let selection = match Selection::new(&options.select, reader.bucket()) {
            Ok(selection) => selection,
            Err(reason) => return *failed.lock() = Some(reason),
        };
        let mut restorer = Restorer {
            options,
            selection,
            cluster,
            targets,
            from,
            rules: &rules,
            writers: BTreeMap::new(),
            counts: Counts::default(),
        };
        while failed.lock().is_none() {
            let Some(vbid) = queue.lock().pop_front() else { break };
            if let Err(reason) = restorer.restore(reader, vbid) {
                *failed.lock() = Some(reason);
            }
            reading.renew();
            bar.inc(1);
        }
        total.lock().add(&restorer.counts());
    };
    std::thread::scope(|scope| (0..options.threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    match failed.into_inner() {
        Some(reason) => Err(format!("{reason}; the restore can be run again")),
        None => Ok(total.into_inner()),
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.documents += other.documents;
        self.tombstones += other.tombstones;
        self.expired += other.expired;
        self.dropped += other.dropped;
        self.unselected += other.unselected;
        self.damaged += other.damaged;
        self.written.written += other.written.written;
        self.written.kept += other.written.kept;
    }
}

/// Restores vBuckets, one after the other.
struct Restorer<'a> {
    options: &'a Restore,
    selection: Selection<'a>,
    /// None for a dry run.
    cluster: Option<&'a Cluster<'a>>,
    targets: &'a Targets,
    /// The oldest backup whose changes are restored; None for all.
    from: Option<BackupId>,
    rules: &'a BTreeMap<String, WriteRule>,
    writers: BTreeMap<String, Writer<'a>>,
    counts: Counts,
}

impl Restorer<'_> {
    fn counts(&self) -> Counts {
        let mut counts = self.counts;
        for writer in self.writers.values() {
            counts.written.written += writer.written().written;
            counts.written.kept += writer.written().kept;
        }
        counts
    }

    /// Restores a vBucket: of each key the newest version, so that the order of writes does not matter.
    fn restore(&mut self, reader: &Reader<'_>, vbid: u16) -> Result<(), String> {
        // Seqnos rise along a lineage: one names a record.
        let mut newest: HashMap<u128, u64> = HashMap::new();
        let read = reader.for_each(vbid, |_, record| {
            newest.insert(record.key_hash(), record.seqno);
            Ok::<(), Error>(())
        });
        match read {
            // All of a vBucket is read before anything of it is written.
            Err(error) if error.is_damage() && self.options.skip_damaged => {
                eprintln!("left out the vBucket {vbid}: {error}");
                self.counts.damaged += 1;
                return Ok(());
            }
            read => read?,
        }
        let after = self.from.map_or(Ok(0), |from| seqno_before(reader, vbid, from))?;
        let (has_tombstones, now_s) = (self.options.tombstones, now_ms() / 1000);
        reader.for_each(vbid, |part, record| {
            if record.seqno <= after {
                return Ok(());
            }
            let is_newest = newest.get(&record.key_hash()) == Some(&record.seqno);
            let is_optional = !record.is_document() && record.seqno <= part.full_to();
            if !is_newest || (is_optional && !has_tombstones) {
                return Ok(());
            }
            let Some(target) = self.targets.get(&record.collection) else {
                match self.selection.excludes(record.collection) {
                    true => self.counts.unselected += 1,
                    false => self.counts.dropped += 1,
                }
                return Ok(());
            };
            if !self.selection.has(record)? {
                self.counts.unselected += 1;
                return Ok(());
            }
            let rule = self.options.expiry;
            let Some(expiry) = rule.expiry(record, target.max_ttl_s, now_s) else {
                self.counts.expired += 1;
                return Ok(());
            };
            match record.is_document() {
                true => self.counts.documents += 1,
                false => self.counts.tombstones += 1,
            }
            let Some(cluster) = self.cluster else { return Ok(()) };
            let bucket = &target.bucket;
            if !self.writers.contains_key(bucket) {
                let rule = self.rules.get(bucket).copied().ok_or("a bucket has no rule")?;
                self.writers.insert(bucket.clone(), Writer::open(cluster, bucket, rule)?);
            }
            let writer = self.writers.get_mut(bucket).ok_or("a bucket has no writer")?;
            writer.write(target.collection, record, expiry)
        })?;
        self.writers.values_mut().try_for_each(Writer::finish)
    }
}

/// Returns the seqno up to which a vBucket has no changes of a backup and those after it.
fn seqno_before(reader: &Reader<'_>, vbid: u16, from: BackupId) -> Result<u64, Error> {
    let lineage = reader.lineage(vbid)?;
    let wanted = lineage.iter().take_while(|(id, _)| *id >= from);
    Ok(wanted.last().map_or(u64::MAX, |(_, part)| part.from))
}

fn report(options: &Restore, part: &BucketPart, mapping: &Mapping, counts: &Counts) {
    let [bucket, ..] = mapping.target(&part.name, "", "");
    let (documents, tombstones) =
        (counted(counts.documents, "document"), counted(counts.tombstones, "tombstone"));
    let mut text = match options.dry_run {
        true => format!("would restore {documents} and {tombstones} into {bucket}"),
        false => format!(
            "restored {documents} and {tombstones} into {bucket}: {} written, {} there already or newer",
            counts.written.written, counts.written.kept
        ),
    };
    if counts.expired > 0 {
        text.push_str(&format!("; {} expired", counts.expired));
    }
    if counts.unselected > 0 {
        text.push_str(&format!("; {} not selected", counts.unselected));
    }
    if counts.dropped > 0 {
        text.push_str(&format!("; {} of dropped collections", counts.dropped));
    }
    println!("{text}");
}
