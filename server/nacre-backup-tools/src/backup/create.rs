//! `nacre backup create`.

use super::definitions;
use super::history::{Failure, Source, stream_vbucket};
use super::limit::RateLimit;
use super::patient::RealTime;
use super::shares::Nodes;
use super::{Place, bucket_names, counted, now_ms, plugins};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use nacre_backup::{BackupId, BucketSource, Manifest, Repository, Task, TaskOptions};
use nacre_cli::{Cluster, Server};
use std::collections::BTreeMap;

/// Priority of a command, and of the streams that nodes send to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Priority {
    /// The command and the nodes do other work first
    Low,
    /// The command and the nodes do this work like any other
    Usual,
}

/// Options of `nacre backup create`.
#[derive(Args, Clone, Debug)]
pub(super) struct Create {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    server: Server,
    /// Bucket; repeatable (default: all buckets)
    #[arg(long)]
    bucket: Vec<String>,
    /// Back up everything, not only the changes since the last backup
    #[arg(long)]
    full: bool,
    /// Include every version that the buckets keep (historyRetentionSeconds), so that `nacre restore --at` can restore any point in
    /// time
    #[arg(long)]
    history: bool,
    /// Include users and groups, with the hashes of their passwords: encrypt the repository with a passphrase. Only administrators may
    /// do this
    #[arg(long)]
    with_users: bool,
    /// Include the packages of plugins: all of them in each backup with this option. Only users who administer plugins may do this
    #[arg(long)]
    with_packages: bool,
    /// Continue the most recent interrupted backup
    #[arg(long, conflicts_with_all = ["discard", "full"])]
    resume: bool,
    /// Remove interrupted backups, then begin a new one
    #[arg(long)]
    discard: bool,
    /// Let the nodes with the backup service write their own vBuckets. ID names the repository in that service; it must be the same as
    /// REPOSITORY, without a passphrase. vBuckets that the nodes cannot write are streamed through this command
    #[arg(long, value_name = "ID", conflicts_with = "passphrase_file")]
    by_nodes: Option<String>,
    /// Maximum megabytes of documents read per second, by this command and by each node that writes its own vBuckets
    #[arg(long, value_name = "MB")]
    limit_mb: Option<u32>,
    /// Priority of this command, and of its streams on the nodes. Nodes that write their own vBuckets always do so with low priority
    #[arg(long, value_enum, default_value_t = Priority::Low)]
    priority: Priority,
    /// Number of parallel streams
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

impl Create {
    /// Returns true if other work comes first.
    pub fn has_low_priority(&self) -> bool {
        self.priority == Priority::Low
    }
}

/// Takes a backup.
///
/// # Errors
/// A sentence; what was taken by then can be continued with `--resume`.
pub(super) fn create(options: &Create) -> Result<(), String> {
    let cluster = Cluster::open(&options.server)?;
    let repository = options.place.open_or_create()?;
    let unfinished = unfinished(options, &repository)?;
    let names = match &options.bucket[..] {
        [] => bucket_names(&options.server)?,
        named => named.to_vec(),
    };
    if names.is_empty() {
        return Err("the cluster has no bucket".to_owned());
    }
    // Asked for first, so that a user without the right learns of it before the documents are read.
    let users = options.with_users.then(|| definitions::users(&options.server)).transpose()?;
    let packages = options.with_packages.then(|| plugins::read(&options.server)).transpose()?;
    let mut sources = BTreeMap::new();
    for name in &names {
        let source = Source::open(&cluster, name, options.threads)?;
        let source = if options.history { source.with_versions() } else { source };
        let is_low = options.has_low_priority();
        let source = if is_low { source.with_low_priority() } else { source };
        sources.insert(name.clone(), source);
    }
    let buckets: Result<Vec<BucketSource>, String> = sources
        .iter()
        .map(|(name, source)| {
            let described = options.server.call("GET", &definitions::bucket_path(name), b"")?;
            let uuid = described["uuid"]
                .as_str()
                .ok_or_else(|| format!("the bucket {name} has no uuid"))?;
            let (uuid, vbuckets) = (uuid.to_owned(), source.vbuckets);
            Ok(BucketSource { name: name.clone(), uuid, vbuckets })
        })
        .collect();
    let buckets = buckets?;
    let task_options =
        TaskOptions { now_ms: now_ms(), random: rand::random(), is_full: options.full };
    let task = match unfinished {
        Some(id) => Task::resume(&repository, id, &buckets, task_options)?,
        None => Task::begin(&repository, &buckets, task_options)?,
    };
    let resume = || format!("the backup {} is not complete: --resume continues it", task.id());
    stream(options, &task, &sources).map_err(|reason| format!("{reason}; {}", resume()))?;
    let mut missing = Vec::new();
    let mut about = BTreeMap::new();
    for bucket in task.buckets() {
        // Read at the end: what was dropped meanwhile is not in it, and what was created is.
        let found = definitions::of_bucket(&options.server, &bucket.name, &mut missing)
            .map_err(|reason| format!("{reason}; {}", resume()))?;
        about.insert(bucket.name.clone(), found);
    }
    let mut others = definitions::of_cluster(&options.server, &mut missing);
    others.extend(users.map(|users| ("users".to_owned(), users)));
    others.extend(packages.map(|packages| (plugins::PACKAGES.to_owned(), packages)));
    let writer = concat!("nacre ", env!("CARGO_PKG_VERSION"));
    let manifest = task
        .complete(now_ms(), writer, about, others)
        .map_err(|error| format!("{error}; {}", resume()))?;
    for reason in missing {
        eprintln!("not in the backup: {reason}");
    }
    println!("{}", summary(&manifest));
    Ok(())
}

/// Finds the backup to continue; removes those that are to be discarded.
fn unfinished(options: &Create, repository: &Repository) -> Result<Option<BackupId>, String> {
    let unfinished = repository.unfinished()?;
    if options.discard {
        unfinished.iter().try_for_each(|id| repository.remove(*id))?;
        return Ok(None);
    }
    match (options.resume, unfinished.last()) {
        (true, None) => Err("there is no interrupted backup to resume".to_owned()),
        (true, Some(id)) => Ok(Some(*id)),
        (false, _) => Ok(None),
    }
}

fn stream(
    options: &Create,
    task: &Task<'_>,
    sources: &BTreeMap<String, Source<'_>>,
) -> Result<(), String> {
    let nodes = match &options.by_nodes {
        Some(id) => Some(Nodes::find(&options.server, id, options.history, options.limit_mb)?),
        None => None,
    };
    let limit = RateLimit::new(RealTime::new(), options.limit_mb);
    for (place, bucket) in task.buckets().enumerate() {
        if let Some(nodes) = &nodes {
            let taken = nodes.take(task, place, &bucket.name)?;
            println!("nodes wrote {taken} of {} vBuckets of {}", bucket.vbuckets, bucket.name);
        }
        let source = sources.get(&bucket.name).ok_or_else(|| {
            format!("the interrupted backup has the bucket {}: name it, too", bucket.name)
        })?;
        let bar = if options.quiet { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos} changes, {per_sec}")
            .expect("the template is valid");
        bar.set_style(style);
        bar.set_message(bucket.name.clone());
        let streamed = source.stream_all(
            || task.remaining(place),
            || task.worker(),
            |worker, consumer, vbid, high| {
                let mut take = worker.begin(place, vbid, high);
                stream_vbucket(consumer, &mut take, |take, record| {
                    bar.inc(1);
                    limit.pass(record.key.len() + record.value.len());
                    take.record(record, worker).map_err(Failure::from)
                })?;
                worker.finish(place, take).map_err(Failure::from)
            },
            |mut worker| worker.flush().map_err(String::from),
        );
        bar.finish_and_clear();
        streamed?;
    }
    Ok(())
}

/// `backup 01J… of 2 buckets: 10 documents and 1 deletion, an increment of 01H…`.
fn summary(manifest: &Manifest) -> String {
    let parts = || manifest.buckets.iter().flat_map(|bucket| &bucket.parts);
    let (sets, deletions) =
        (parts().map(|part| part.sets).sum(), parts().map(|part| part.deletions).sum());
    let parents = manifest.buckets.iter().filter(|bucket| bucket.parent.is_some()).count();
    let kind = match parents {
        0 => "full",
        count if count == manifest.buckets.len() => "an increment",
        _ => "partly an increment",
    };
    format!(
        "backup {} of {}, {kind}: {} and {}, {} bytes",
        manifest.id,
        counted(manifest.buckets.len() as u64, "bucket"),
        counted(sets, "document"),
        counted(deletions, "deletion"),
        manifest.bytes()
    )
}
