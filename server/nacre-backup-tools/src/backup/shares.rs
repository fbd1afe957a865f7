//! Backups that nodes write themselves: each takes the vBuckets that it serves, and its objects go straight to the store.
//!
//! ```text
//! create ── POST …/repository/active/ID/share ─► node ─► each node with the service ─► `nacre backup take`, as a process
//!    ▲                                                                                        │ objects, and pieces that name them
//!    └──── what is complete ◄──────────────── the store ◄─────────────────────────────────────┘
//! ```
//!
//! Nodes write only into repositories of their service, which somebody with the right to back up has made. What they have not taken, as a
//! vBucket has moved meanwhile or a node does not reach the store, they are asked for again while there is progress; the command streams the
//! rest itself.

use super::Place;
use super::history::{Failure, Source, stream_vbucket};
use super::limit::RateLimit;
use super::patient::RealTime;
use clap::Args;
use nacre_backup::{BackupId, Task};
use nacre_cli::{Cluster, Server};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Pause between two looks at what nodes do.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for which a node that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(180);

/// Options of `nacre backup take`.
#[derive(Args, Clone, Debug)]
pub(super) struct Take {
    #[command(flatten)]
    place: Place,
    /// Id of a backup that is being taken
    backup: String,
    #[command(flatten)]
    server: Server,
    /// Bucket
    #[arg(long)]
    bucket: String,
    /// First number of objects
    #[arg(long)]
    first_number: u32,
    /// Take every version that the bucket keeps
    #[arg(long)]
    history: bool,
    /// Megabytes of documents that are read in a second at most
    #[arg(long, value_name = "MB")]
    limit_mb: Option<u32>,
    /// Number of parallel streams
    #[arg(long, default_value_t = 4)]
    threads: usize,
}

/// Takes the vBuckets that a node serves and nobody has taken.
///
/// # Errors
/// A sentence. What was taken by then is in the backup.
pub(super) fn take(options: &Take) -> Result<(), String> {
    let repository = options.place.open()?;
    let id: BackupId = options.backup.parse()?;
    let task = Task::join(&repository, id, options.first_number, rand::random())?;
    let bucket = &options.bucket;
    let place = task.buckets().position(|known| known.name == *bucket);
    let place = place.ok_or_else(|| format!("the backup {id} has no bucket {bucket}"))?;
    let cluster = Cluster::open(&options.server)?;
    let source = Source::open(&cluster, bucket, options.threads)?.with_low_priority();
    let source = if options.history { source.with_versions() } else { source };
    let limit = RateLimit::new(RealTime::new(), options.limit_mb);
    let wanted = task.remaining(place);
    let reason = source.stream_own(
        &wanted,
        || task.worker(),
        |worker, consumer, vbid, high| {
            let mut take = worker.begin(place, vbid, high);
            stream_vbucket(consumer, &mut take, |take, record| {
                limit.pass(record.key.len() + record.value.len());
                take.record(record, worker).map_err(Failure::from)
            })?;
            worker.finish(place, take).map_err(Failure::from)
        },
        |mut worker| worker.flush().map_err(String::from),
    )?;
    println!("took {} of {} vBuckets", wanted.len() - task.remaining(place).len(), wanted.len());
    if let Some(reason) = reason {
        eprintln!("not all that this node serves: {reason}");
    }
    Ok(())
}

/// Nodes that write vBuckets of a backup themselves.
pub(super) struct Nodes<'a> {
    server: &'a Server,
    /// URL of the service, and path of the repository there.
    base: String,
    path: String,
    has_history: bool,
    limit_mb: Option<u32>,
}

impl<'a> Nodes<'a> {
    /// Finds the service.
    ///
    /// # Errors
    /// A sentence if no node has it.
    pub fn find(
        server: &'a Server,
        repository: &str,
        has_history: bool,
        limit_mb: Option<u32>,
    ) -> Result<Nodes<'a>, String> {
        let name = utf8_percent_encode(repository, NON_ALPHANUMERIC);
        let path = format!("/api/v1/cluster/self/repository/active/{name}/share");
        Ok(Nodes { server, base: server.backups()?, path, has_history, limit_mb })
    }

    /// Lets nodes take vBuckets of a bucket while there is progress. Returns how many they have taken.
    ///
    /// # Errors
    /// A sentence if the store fails. What nodes cannot do is left, and why is reported.
    pub fn take(&self, task: &Task<'_>, place: usize, bucket: &str) -> Result<usize, String> {
        let first = task.remaining(place).len();
        loop {
            let before = task.remaining(place).len();
            if before == 0 {
                break;
            }
            let body = json!({
                "backup": task.id().to_string(),
                "bucket": bucket,
                "history": self.has_history,
                "limit_mb": self.limit_mb,
            });
            let asked = self.ask("POST", &self.path, &body);
            let outcome = asked.and_then(|answer| {
                report(&answer);
                self.wait(task.id())
            });
            task.refresh()?;
            if let Err(reason) = outcome {
                eprintln!("nodes do not write themselves: {reason}");
                break;
            }
            if task.remaining(place).len() == before {
                break;
            }
        }
        Ok(first - task.remaining(place).len())
    }

    /// Waits until no node takes anything for a backup.
    fn wait(&self, id: BackupId) -> Result<(), String> {
        let path = format!("{}/{id}", self.path);
        let mut answered_at = Instant::now();
        loop {
            match self.ask("GET", &path, &Value::Null) {
                Ok(answer) => {
                    answered_at = Instant::now();
                    if answer["running"] == 0 {
                        report(&answer);
                        return Ok(());
                    }
                }
                Err(reason) if answered_at.elapsed() > PATIENCE => return Err(reason),
                Err(_) => {}
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Ok(self.server.call_at(&self.base, method, path, body.as_bytes())?)
    }
}

/// Reports what nodes cannot do.
fn report(answer: &Value) {
    for refused in answer["refused"].as_array().into_iter().flatten() {
        let (node, reason) = (refused["node"].as_str(), refused["reason"].as_str());
        eprintln!("node {}: {}", node.unwrap_or_default(), reason.unwrap_or_default());
    }
}
