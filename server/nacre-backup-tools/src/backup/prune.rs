//! `nacre backup prune`.

use super::lock;
use super::retention::Retention;
use super::{Place, counted};
use clap::Args;
use jiff::Timestamp;
use nacre_backup::{BackupId, Lock, LockKind, Manifest, Repository};
use nacre_cli::{Format, Listing};
use std::collections::{BTreeMap, BTreeSet};

/// Options of `nacre backup prune`.
#[derive(Args, Clone, Debug)]
pub(super) struct Prune {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    retention: Retention,
    /// Show which backups would be removed, and remove none
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

/// The decisions about the backups of a repository.
#[derive(Debug)]
struct Plan {
    /// All backups, oldest first.
    rows: Vec<Row>,
}

/// The decision about a backup.
#[derive(Debug)]
struct Row {
    id: BackupId,
    began: Timestamp,
    is_full: bool,
    bytes: u64,
    buckets: Vec<String>,
    /// Reasons why the backup stays; empty if it is removed.
    reasons: Vec<String>,
}

/// Removes backups that no rule keeps and that no kept backup needs.
///
/// # Errors
/// A sentence; backups that were removed before the failure are gone.
pub(super) fn prune(options: &Prune) -> Result<(), String> {
    let repository = options.place.open()?;
    if options.retention.is_empty() {
        return Err(
            "no rule says what is kept: give --keep-last 7, for example, or --keep-within 30d"
                .to_owned(),
        );
    }
    if let Some(id) = repository.unfinished()?.first() {
        return Err(format!(
            "the backup {id} is being taken, or was interrupted: complete or remove it first"
        ));
    }
    let readers = lock::readers(&repository)?;
    let plan = Plan::of(&repository, &options.retention, &readers)?;
    options.format.show(&plan.listing());
    let removed = plan.removed();
    let is_shown = !options.format.is_json();
    if is_shown {
        for row in plan.rows.iter().filter(|row| row.is_read()) {
            let reader = readers.iter().find(|reader| reader.covers(row.id));
            let until = reader.map(lock::until).unwrap_or_default();
            println!("kept {}: it is being read, {until}", row.id);
        }
    }
    if !options.dry_run {
        // The newest is removed first: an interruption leaves no increment without its parent.
        lock::remove(&repository, &removed, |id, outcome| {
            outcome?;
            if is_shown {
                println!("removed {id}");
            }
            Ok(())
        })?;
    }
    if is_shown {
        println!("{}", plan.summary(options.dry_run));
    }
    Ok(())
}

/// Reason for keeping a backup that a command is reading.
const READ: &str = "being read";

impl Row {
    fn is_read(&self) -> bool {
        self.reasons.iter().any(|reason| reason == READ)
    }
}

impl Plan {
    /// Decides about all backups of a repository.
    ///
    /// # Errors
    /// A sentence if one of them cannot be read: its parents are unknown.
    fn of(
        repository: &Repository,
        retention: &Retention,
        readers: &[Lock],
    ) -> Result<Plan, String> {
        let cannot = |error| format!("{error}: nothing is removed while a backup cannot be read");
        let mut rows = Vec::new();
        for id in repository.backups()? {
            rows.push(Row::of(&repository.manifest(id).map_err(cannot)?.0)?);
        }
        let names: BTreeSet<String> = rows.iter().flat_map(|row| row.buckets.clone()).collect();
        // By backup and rule: the buckets for which it stays.
        let mut kept: BTreeMap<BackupId, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
        for name in &names {
            let newest_first = rows.iter().rev().filter(|row| row.buckets.contains(name));
            let backups: Vec<_> = newest_first.map(|row| (row.id, row.began)).collect();
            for (id, rules) in retention.kept(&backups) {
                for rule in rules {
                    kept.entry(id).or_default().entry(rule).or_default().push(name);
                }
            }
        }
        for row in &mut rows {
            for (rule, buckets) in kept.get(&row.id).into_iter().flatten() {
                row.reasons.push(match buckets.len() == row.buckets.len() {
                    true => (*rule).to_owned(),
                    false => format!("{rule} of {}", buckets.join(" and ")),
                });
            }
            // A backup without buckets is in no list of a bucket, so no rule can decide about it.
            if row.buckets.is_empty() {
                row.reasons.push("without buckets".to_owned());
            }
            if readers.iter().any(|lock| lock.kind == LockKind::Read && lock.covers(row.id)) {
                row.reasons.push(READ.to_owned());
            }
        }
        // By backup: the newest of the remaining backups that needs it.
        let mut needed: BTreeMap<BackupId, BackupId> = BTreeMap::new();
        for row in rows.iter().filter(|row| !row.reasons.is_empty()) {
            for id in repository.needs(row.id).map_err(cannot)? {
                if id != row.id {
                    needed.insert(id, row.id);
                }
            }
        }
        for row in &mut rows {
            if let Some(by) = needed.get(&row.id) {
                row.reasons.push(format!("needed by {by}"));
            }
        }
        Ok(Plan { rows })
    }

    /// Returns the backups to remove, newest first, so that an increment goes before its parent.
    fn removed(&self) -> Vec<BackupId> {
        let removed = self.rows.iter().rev().filter(|row| row.reasons.is_empty());
        removed.map(|row| row.id).collect()
    }

    fn listing(&self) -> Listing {
        let mut listing =
            Listing::new(&["id", "began", "kind", "buckets", "bytes", "action", "reason"]);
        for row in &self.rows {
            listing.add([
                row.id.to_string().into(),
                row.began.to_string().into(),
                if row.is_full { "full" } else { "increment" }.into(),
                row.buckets.clone().into(),
                row.bytes.into(),
                if row.reasons.is_empty() { "remove" } else { "keep" }.into(),
                row.reasons.join(", ").into(),
            ]);
        }
        listing
    }

    /// `kept 3 backups, removed 2 backups of 1024 bytes`.
    fn summary(&self, is_dry: bool) -> String {
        let removed: Vec<&Row> = self.rows.iter().filter(|row| row.reasons.is_empty()).collect();
        let kept = counted((self.rows.len() - removed.len()) as u64, "backup");
        let bytes: u64 = removed.iter().map(|row| row.bytes).sum();
        let gone = counted(removed.len() as u64, "backup");
        match (removed.is_empty(), is_dry) {
            (true, false) => format!("kept {kept}"),
            (true, true) => format!("would keep {kept}"),
            (false, false) => format!("kept {kept}, removed {gone} with {bytes} bytes"),
            (false, true) => format!("would keep {kept}, and remove {gone} with {bytes} bytes"),
        }
    }
}

impl Row {
    fn of(manifest: &Manifest) -> Result<Row, String> {
        let began = i64::try_from(manifest.time_ms.0).ok();
        let began = began.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Ok(Row {
            id: manifest.id,
            began: began.ok_or_else(|| format!("the backup {} has no time", manifest.id))?,
            is_full: manifest.buckets.iter().all(|bucket| bucket.parent.is_none()),
            bytes: manifest.bytes(),
            buckets: manifest.buckets.iter().map(|bucket| bucket.name.clone()).collect(),
            reasons: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use nacre_backup::{
        BucketSource, MemoryStore, Record, RecordKind, Store, Task, TaskOptions, verify,
    };
    use std::sync::Arc;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        retention: Retention,
    }

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    struct Fixture {
        store: Arc<MemoryStore>,
        repository: Repository,
        seqno: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let store = Arc::new(MemoryStore::default());
            Repository::create(&*store, BackupId::new(1, 1, None), None).unwrap();
            let repository = Repository::open(Arc::clone(&store) as Arc<dyn Store>, None).unwrap();
            Fixture { store, repository, seqno: 0 }
        }

        /// Takes a backup on a day; of each bucket it has one vBucket and one document.
        fn back_up(&mut self, day: u64, buckets: &[&str], is_full: bool) -> BackupId {
            self.seqno += 1;
            let sources: Vec<BucketSource> = buckets
                .iter()
                .map(|name| BucketSource { name: (*name).into(), uuid: "u".into(), vbuckets: 1 })
                .collect();
            let random = [self.seqno as u8; 16];
            let options = TaskOptions { now_ms: day * DAY_MS, random, is_full };
            let task = Task::begin(&self.repository, &sources, options).unwrap();
            let mut worker = task.worker();
            for bucket in 0..sources.len() {
                let mut vbucket = worker.begin(bucket, 0, self.seqno);
                vbucket.accepted(&[(9, 0)]).unwrap();
                vbucket.snapshot(self.seqno, false).unwrap();
                let record = Record {
                    kind: RecordKind::Set,
                    seqno: self.seqno,
                    cas: self.seqno,
                    rev: 1,
                    flags: 0,
                    expiry: 0,
                    datatype: 0,
                    collection: 0,
                    key: b"k",
                    value: b"v",
                };
                vbucket.record(&record, &mut worker).unwrap();
                worker.finish(bucket, vbucket).unwrap();
            }
            worker.flush().unwrap();
            task.complete(day * DAY_MS + 1, "test", BTreeMap::new(), BTreeMap::new()).unwrap().id
        }

        fn plan(&self, options: &str) -> Result<Plan, String> {
            let words = std::iter::once("prune").chain(options.split_whitespace());
            let retention = Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).retention;
            Plan::of(&self.repository, &retention, &lock::readers(&self.repository).unwrap())
        }

        /// Removes what a plan removes; checks that every remaining backup can be read.
        fn prune(&self, options: &str) -> Vec<String> {
            let plan = self.plan(options).unwrap();
            for id in plan.removed() {
                self.repository.remove(id).unwrap();
            }
            for id in self.repository.backups().unwrap() {
                assert_eq!(verify(&self.repository, id, true).unwrap().findings, []);
            }
            plan.rows.iter().map(|row| row.reasons.join(", ")).collect()
        }
    }

    #[test]
    fn an_increment_keeps_the_backups_that_it_continues() {
        let mut fixture = Fixture::new();
        fixture.back_up(1, &["shop"], true);
        fixture.back_up(2, &["shop"], true);
        fixture.back_up(3, &["shop"], false);
        fixture.back_up(4, &["shop"], false);
        let last = fixture.back_up(5, &["shop"], false);
        let needed = format!("needed by {last}");
        let reasons = fixture.prune("--keep-last 1");
        assert_eq!(reasons, ["", &needed, &needed, &needed, "last"]);
        assert_eq!(fixture.repository.backups().unwrap().len(), 4);
        // After a full backup, the chain before it can be removed.
        fixture.back_up(6, &["shop"], true);
        assert_eq!(fixture.prune("--keep-last 1"), ["", "", "", "", "last"]);
    }

    #[test]
    fn the_newest_backup_of_every_bucket_stays() {
        let mut fixture = Fixture::new();
        fixture.back_up(1, &["old", "shop"], true);
        fixture.back_up(2, &["shop"], true);
        fixture.back_up(3, &["other"], true);
        fixture.back_up(4, &["shop"], true);
        assert_eq!(fixture.prune("--keep-last 1"), ["last of old", "", "last", "last"]);
    }

    #[test]
    fn rules_add_up() {
        let mut fixture = Fixture::new();
        // Days 4 and 11 are Mondays.
        for day in 4..=14 {
            fixture.back_up(day, &["shop"], day % 2 == 0);
        }
        let plan = fixture.plan("--keep-daily 2 --keep-weekly 2 --keep-within 3d").unwrap();
        let kept: Vec<(u64, String)> = (4..)
            .zip(&plan.rows)
            .filter(|(_, row)| !row.reasons.is_empty())
            .map(|(day, row)| (day, row.reasons.join(", ")))
            .collect();
        let id = |day: usize| plan.rows[day - 4].id;
        assert_eq!(
            kept,
            [
                (10, format!("weekly, needed by {}", id(11))),
                (11, "within".to_owned()),
                (12, format!("within, needed by {}", id(13))),
                (13, "daily, within".to_owned()),
                (14, "daily, weekly, within".to_owned()),
            ]
        );
        let said = plan.summary(true);
        assert!(said.starts_with("would keep 5 backups, and remove 6 backups with "), "{said}");
    }

    #[test]
    fn backups_in_use_are_kept_with_those_they_continue() {
        let mut fixture = Fixture::new();
        let first = fixture.back_up(1, &["shop"], true);
        let second = fixture.back_up(2, &["shop"], false);
        fixture.back_up(3, &["shop"], true);
        // A reader that has locked fewer backups than it needs.
        let (now_ms, read) = (super::super::now_ms(), BTreeSet::from([second]));
        fixture.repository.lock(LockKind::Read, &read, now_ms, [1; 16]).unwrap();
        let reasons = fixture.prune("--keep-last 1");
        assert_eq!(reasons, [&*format!("needed by {second}"), READ, "last"]);
        assert!(fixture.repository.backups().unwrap().contains(&first));
    }

    #[test]
    fn nothing_is_removed_while_a_backup_cannot_be_read() {
        let mut fixture = Fixture::new();
        let damaged = fixture.back_up(1, &["shop"], true);
        fixture.back_up(2, &["shop"], true);
        fixture.store.tamper(&format!("backups/{damaged}/manifest.json"), Some(vec![b'x']));
        let again = Repository::open(Arc::clone(&fixture.store) as Arc<dyn Store>, None).unwrap();
        fixture.repository = again;
        let refused = fixture.plan("--keep-last 1").unwrap_err();
        assert!(refused.contains(&damaged.to_string()), "{refused}");
        assert!(refused.ends_with("nothing is removed while a backup cannot be read"), "{refused}");
    }
}
