//! `nacre backup` and `nacre restore`: copies of running clusters in a repository.
//!
//! ```text
//! create     DCP streams of all vBuckets ─► objects of a repository      history.rs, create.rs
//!            what the cluster has besides documents                      definitions.rs, plugins.rs, replications.rs
//!            by nodes, which write what they serve                       shares.rs
//! restore    records ─► SetWithMeta, DeleteWithMeta                      restore.rs, selection.rs, filter.rs, expiry.rs, kinds.rs, writer.rs
//! list, show, describe, verify, examine, diff, remove                    inspect.rs, describe.rs, diff.rs
//! prune      rules that say what stays                                   prune.rs, retention.rs
//! verify     a sample restored into memory                               sample.rs, memory_bucket.rs
//! merge      records of a chain ─► one backup                            merge.rs
//! objects in a folder, or in an object store                             nacre_backup::FolderStore, remote.rs, connect.rs, patient.rs
//! readers keep others from removing what they read                       lock.rs
//! ```

mod connect;
mod create;
mod definitions;
mod describe;
mod diff;
mod expiry;
mod filter;
mod history;
mod inspect;
mod kinds;
mod limit;
mod lines;
mod lock;
mod mapping;
mod memory_bucket;
mod merge;
mod patient;
mod plugins;
mod prune;
mod remote;
mod replications;
mod restore;
mod retention;
mod sample;
mod selection;
mod shares;
mod writer;

pub(crate) use definitions::present as present_collections;
pub(crate) use history::{Failure, Source, stream_vbucket};
pub(crate) use lines::{ExportedVersion, VersionImporter, members};
pub use restore::{Restore, restore};

use clap::{Args, Subcommand};
use nacre_backup::{
    BackupId, FolderStore, KeySlot, PASSPHRASE_ROUNDS, RemoteAddress, Repository, Store,
    check_store,
};
use nacre_cli::Server;
use patient::{PatientStore, RealTime};
use remote::RemoteStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Options of `nacre backup`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

/// A repository of backups.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Repository of backups: a folder, or s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH in an object store
    repository: String,
    /// File whose first line is the passphrase of the encrypted repository
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Seconds to wait for an object store that responded before and no longer does
    #[arg(long, value_name = "SECONDS", env = "NACRE_STORE_TIMEOUT", default_value_t = 300)]
    store_timeout: u64,
}

/// Options of `nacre backup check` and `nacre backup unlock`.
#[derive(Args, Clone, Debug)]
struct OnlyPlace {
    #[command(flatten)]
    place: Place,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Back up a running cluster: the changes since the last backup, or everything
    Create(create::Create),
    /// Take the vBuckets that one node serves, for a backup that another process completes
    #[command(hide = true)]
    Take(shares::Take),
    /// List backups
    List(inspect::List),
    /// Show the contents of a backup
    Show(inspect::Show),
    /// Show the times to which each bucket can be restored
    Describe(describe::Describe),
    /// Check that a backup can be read
    Verify(inspect::Verify),
    /// Show all versions of a document in the backups
    Examine(inspect::Examine),
    /// Compare a backup with a running cluster
    Diff(diff::Diff),
    /// Merge a backup and the backups that it is based on into one
    Merge(merge::Merge),
    /// Remove backups that no retention rule keeps and no other backup needs
    Prune(prune::Prune),
    /// Remove one backup, complete or interrupted
    Remove(inspect::Remove),
    /// Check that a folder or an object store is suitable for backups; the files of the test are removed
    Check(OnlyPlace),
    /// Release locks that killed commands left in the repository; no other command may use it meanwhile
    Unlock(OnlyPlace),
}

impl Options {
    /// Returns true if the command should leave the processors to other work, such as the requests of a node or of clients on the same
    /// machine.
    pub fn has_low_priority(&self) -> bool {
        match &self.command {
            Command::Create(options) => options.has_low_priority(),
            Command::Take(_) | Command::Merge(_) => true,
            _ => false,
        }
    }
}

/// Runs a command.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn run(options: &Options) -> Result<(), String> {
    match &options.command {
        Command::Create(options) => create::create(options),
        Command::Take(options) => shares::take(options),
        Command::List(options) => inspect::list(options),
        Command::Show(options) => inspect::show(options),
        Command::Describe(options) => describe::describe(options),
        Command::Verify(options) => inspect::verify(options),
        Command::Examine(options) => inspect::examine(options),
        Command::Diff(options) => diff::diff(options),
        Command::Merge(options) => merge::merge(options),
        Command::Prune(options) => prune::prune(options),
        Command::Remove(options) => inspect::remove(options),
        Command::Check(OnlyPlace { place }) => place.check(),
        Command::Unlock(OnlyPlace { place }) => {
            let count = place.open()?.unlock_all()?;
            println!("released {}", counted(count, "lock"));
            Ok(())
        }
    }
}

impl Place {
    fn store(&self) -> Result<Arc<dyn Store>, String> {
        Ok(match RemoteAddress::read(&self.repository)? {
            Some(address) => {
                let patience = Duration::from_secs(self.store_timeout);
                let remote = RemoteStore::new(&address)
                    .map_err(|reason| format!("{}: {reason}", self.repository))?;
                Arc::new(PatientStore::new(remote, RealTime::new(), patience))
            }
            None => Arc::new(FolderStore::new(Path::new(&self.repository))),
        })
    }

    fn passphrase(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.passphrase_file else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Some(line.to_owned())),
            _ => Err(format!("{}: the first line is empty", path.display())),
        }
    }

    /// Checks that the store does what backups rely on.
    fn check(&self) -> Result<(), String> {
        let id = BackupId::new(now_ms(), rand::random(), None);
        check_store(&*self.store()?, id)
            .map_err(|error| format!("{}: {error}", self.repository))?;
        println!("{} can have backups", self.repository);
        Ok(())
    }

    /// Opens the repository.
    ///
    /// # Errors
    /// A sentence if there is none, or it cannot be read.
    pub(crate) fn open(&self) -> Result<Repository, String> {
        let passphrase = self.passphrase()?;
        Repository::open(self.store()?, passphrase.as_deref())
            .map_err(|error| format!("{}: {error}", self.repository))
    }

    /// Opens the repository, and makes the place one first if it is none.
    fn open_or_create(&self) -> Result<Repository, String> {
        let store = self.store()?;
        if !Repository::exists(&*store)? {
            let slot = self.passphrase()?.map(|passphrase| {
                let mut random = [0; 48];
                random.fill_with(rand::random);
                KeySlot::new(&passphrase, PASSPHRASE_ROUNDS, random).0
            });
            let id = BackupId::new(now_ms(), rand::random(), None);
            Repository::create(&*store, id, slot)?;
        }
        self.open()
    }
}

/// Finds a backup by its id, by the beginning of that, or as `latest`.
pub(crate) fn find(repository: &Repository, text: &str) -> Result<BackupId, String> {
    let backups = repository.backups()?;
    let wanted = text.to_uppercase();
    let found: Vec<BackupId> = match text {
        "latest" => backups.last().copied().into_iter().collect(),
        _ => backups.into_iter().filter(|id| id.to_string().starts_with(&wanted)).collect(),
    };
    match found[..] {
        [id] => Ok(id),
        [] => Err(format!(
            "there is no complete backup {text}: `nacre backup list` shows those there are"
        )),
        _ => Err(format!("{text} is the beginning of {} backups", found.len())),
    }
}

/// Returns the time in Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `1 document`, `2 documents`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Splits `bucket.scope.collection`; scope and collection may be missing.
pub(crate) fn split_path(path: &str) -> Result<Vec<&str>, String> {
    // The name of a bucket may have dots, those of scopes and collections have none.
    let parts: Vec<&str> = path.rsplitn(3, '.').collect();
    match parts[..] {
        [collection, scope, bucket] if ![collection, scope, bucket].contains(&"") => {
            Ok(vec![bucket, scope, collection])
        }
        [bucket] if !bucket.is_empty() => Ok(vec![bucket]),
        _ => Err(format!("{path:?} is neither bucket nor bucket.scope.collection")),
    }
}

/// Names of the buckets of a cluster.
fn bucket_names(server: &Server) -> Result<Vec<String>, String> {
    let buckets = server.call("GET", "/pools/default/buckets", b"")?;
    let names = buckets.as_array().into_iter().flatten();
    Ok(names.filter_map(|bucket| bucket["name"].as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn backups_and_merges_leave_the_processors_to_others_unless_they_must_not() {
        let is_low = |arguments: &str| {
            let words = ["backup"].into_iter().chain(arguments.split(' '));
            Program::try_parse_from(words).map(|program| program.options.has_low_priority())
        };
        for (expected, arguments) in [
            (true, "create backups"),
            (true, "create backups --priority low"),
            (false, "create backups --priority usual"),
            (true, "take backups 01J --bucket b --first-number 1"),
            (true, "merge backups"),
            (false, "verify backups"),
        ] {
            assert_eq!(is_low(arguments).ok(), Some(expected), "{arguments}");
        }
        assert!(is_low("create backups --priority high").is_err());
    }
}
