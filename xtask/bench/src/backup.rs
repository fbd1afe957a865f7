//! `cargo xtask bench backup`: the cost of a backup and a restore of documents of 1 KB, and its effect on clients.
//!
//! The node runs on the first processor and commands on the second: their figures are those of one processor.

use super::load::{self, BUCKET, median};
use super::{Goal, Limit, ON_FIRST, ON_SECOND, PORT_BASE};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use xtask_setup::command::{output, wrapped};
use xtask_setup::node::{Node, PASSWORD, USER};

const QUOTA_MB: u32 = 1024;
const DOCUMENT_BYTES: u32 = 1024;
/// The bucket that backups are restored into.
const COPY: &str = "copy";
/// Requests per second while backups are taken.
const RATE: &str = "5000";

const BACKUP: Goal = Goal { what: "full backup to a folder", unit: " MB/s", min: 200.0 };
const RESTORE: Goal = Goal { what: "restore", unit: " documents/s", min: 100_000.0 };
const NOTHING: Limit = Limit { what: "increment of nothing", unit: " s", max: 1.0 };
const NOTHING_BYTES: Limit = Limit { what: "increment of nothing", unit: " KB", max: 20.0 };
const LATENCY: Limit =
    Limit { what: "requests beside backups", unit: " times the p99 without", max: 1.3 };
const MEMORY: Limit =
    Limit { what: "memory of the node in a backup, above idle", unit: " MiB", max: 64.0 };

/// The amount of work to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub documents: u32,
    pub rounds: usize,
    /// Seconds of each measurement of requests.
    pub seconds: f64,
    /// The limit of the backups that run during requests.
    pub limit_mb: Option<u32>,
}

/// The figures of one round.
struct Round {
    backup_s: f64,
    nothing_s: f64,
    nothing_bytes: u64,
    restore_s: f64,
    memory_bytes: u64,
}

struct Bench<'a> {
    binary: &'a Path,
    node: &'a Node,
    folder: PathBuf,
    effort: Effort,
}

/// Takes and restores backups, with and without requests.
///
/// # Errors
/// Reports what does not work, or which goal is missed.
pub fn run(effort: Effort, node: Option<&Path>) -> Result<(), String> {
    let Effort { documents, rounds, limit_mb, .. } = effort;
    let binary = super::binary(node, "release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &ON_FIRST)?;
    load::create_bucket(&node, "couchbase", QUOTA_MB)?;
    let (keys, bytes) = (documents.to_string(), DOCUMENT_BYTES.to_string());
    let fill = ["--keys", &keys, "--value-bytes", &bytes, "--seconds", "0"];
    load::measure(&binary, &[], &load::target(&node), &fill)?;
    let folder = std::env::temp_dir().join(format!("nacre-bench-backup-{}", std::process::id()));
    let bench = Bench { binary: &binary, node: &node, folder, effort };
    let measured = bench.measure(rounds);
    let _ = std::fs::remove_dir_all(&bench.folder);
    let (all, pairs) = measured?;
    node.stop()?;
    let middle = |of: fn(&Round) -> f64| median(all.iter().map(of).collect());
    let megabytes = f64::from(documents) * f64::from(DOCUMENT_BYTES) / 1e6;
    println!("{documents} documents of 1 KB, medians of {rounds} rounds");
    if let Some(limit_mb) = limit_mb {
        println!("backups beside requests read {limit_mb} MB in a second");
    }
    for (alone, beside) in &pairs {
        println!("  p99 of requests: {alone:.0} us, {beside:.0} us beside backups");
    }
    let ratio = median(pairs.iter().map(|(alone, beside)| beside / alone).collect());
    // Print all figures before the first missed goal is reported.
    let found = [
        BACKUP.check(megabytes / middle(|round| round.backup_s)),
        NOTHING.check(middle(|round| round.nothing_s)),
        NOTHING_BYTES.check(middle(|round| round.nothing_bytes as f64 / 1e3)),
        RESTORE.check(f64::from(documents) / middle(|round| round.restore_s)),
        LATENCY.check(ratio),
        MEMORY.check(middle(|round| round.memory_bytes as f64 / f64::from(1 << 20))),
    ];
    found.into_iter().collect()
}

/// The figures of all rounds, and the p99 of requests without and with backups, in microseconds.
type Measured = (Vec<Round>, Vec<(f64, f64)>);

impl Bench<'_> {
    fn measure(&self, rounds: usize) -> Result<Measured, String> {
        let all: Result<Vec<Round>, String> = (0..rounds).map(|_| self.round()).collect();
        let pairs: Result<Vec<_>, String> = (0..rounds).map(|_| self.pair()).collect();
        Ok((all?, pairs?))
    }

    /// Runs a command on the second processor; returns the seconds that it takes.
    fn timed(&self, arguments: &[&str]) -> Result<f64, String> {
        let begun = Instant::now();
        let mut command = wrapped(self.binary, &ON_SECOND);
        command
            .args(arguments)
            .env("NACRE_SERVER", format!("http://{}", self.node.address()))
            .env("NACRE_USER", USER)
            .env("NACRE_PASSWORD", PASSWORD);
        output(&mut command, &format!("do `nacre {}`", arguments.join(" ")))?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn back_up(&self, repository: &str, limit_mb: Option<u32>) -> Result<f64, String> {
        let limit = limit_mb.map(|limit_mb| format!("--limit-mb={limit_mb}"));
        let own = ["backup", "create", repository, "--bucket", BUCKET, "--quiet"];
        let arguments: Vec<&str> = own.into_iter().chain(limit.as_deref()).collect();
        self.timed(&arguments)
    }

    fn round(&self) -> Result<Round, String> {
        let _ = std::fs::remove_dir_all(&self.folder);
        let repository = self.folder.display().to_string();
        let (backup_s, memory_bytes) =
            load::with_memory(self.node.id(), || self.back_up(&repository, None))?;
        let before = bytes_in(&self.folder);
        let nothing_s = self.back_up(&repository, None)?;
        let nothing_bytes = bytes_in(&self.folder) - before;
        self.copy("POST", 202)?;
        let mapping = format!("{BUCKET}={COPY}");
        let restore =
            ["restore", &repository, "--bucket", BUCKET, "--mapping", &mapping, "--quiet"];
        let restore_s = self.timed(&restore)?;
        self.copy("DELETE", 200)?;
        Ok(Round { backup_s, nothing_s, nothing_bytes, restore_s, memory_bytes })
    }

    /// Creates or deletes the bucket for restores.
    fn copy(&self, method: &str, status: u16) -> Result<(), String> {
        let quota = QUOTA_MB.to_string();
        let path = "/pools/default/buckets";
        let answer = match method {
            "POST" => {
                self.node.rest(method, path, &[("name", COPY), ("ramQuotaMB", quota.as_str())])?
            }
            _ => self.node.rest(method, &format!("{path}/{COPY}"), &[])?,
        };
        if answer.status == status {
            Ok(())
        } else {
            Err(format!("{method} {path}: {}", answer.text()))
        }
    }

    /// Returns the p99 of requests at a steady rate without backups, and during consecutive full backups.
    fn pair(&self) -> Result<(f64, f64), String> {
        let alone = self.requests()?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let backups = scope.spawn(|| {
                let repository = self.folder.display().to_string();
                while !is_over.load(Ordering::Relaxed) {
                    let _ = std::fs::remove_dir_all(&self.folder);
                    self.back_up(&repository, self.effort.limit_mb)?;
                }
                Ok::<(), String>(())
            });
            let beside = self.requests();
            is_over.store(true, Ordering::Relaxed);
            backups.join().map_err(|_| "no backups were taken".to_owned())??;
            Ok((alone, beside?))
        })
    }

    fn requests(&self) -> Result<f64, String> {
        let (keys, bytes) = (self.effort.documents.to_string(), DOCUMENT_BYTES.to_string());
        let seconds = self.effort.seconds.to_string();
        let options = [
            "--keys",
            &keys,
            "--value-bytes",
            &bytes,
            "--seconds",
            &seconds,
            "--rate",
            RATE,
            "--no-load",
        ];
        Ok(load::measure(self.binary, &[], &load::target(self.node), &options)?.p99)
    }
}

/// Returns the bytes of all files in a folder.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}
