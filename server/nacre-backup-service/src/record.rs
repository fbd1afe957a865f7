//! Agreed state of the service: plans, repositories with outcomes of their tasks, settings. Each is a
//! [record](nacre_cluster::ServiceRecords) in JSON, so that a later version can add to it.

use crate::ID;
use crate::plan::{PlanTask, TaskType};
use crate::reply::Failure;
use jiff::Timestamp;
use nacre_cluster::{Change, Cluster, Expected, RecordChange, ServiceRecord};
use nacre_node::Node;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Before the name of a plan.
pub(crate) const PLAN: &str = "plan/";
/// Tasks in the history of a repository, at most.
const HISTORY_MAX: usize = 100;
/// Bytes of the reason that a task has failed for, at most.
const REASON_BYTES_MAX: usize = 1000;
/// The time of what has not happened yet. Source: the zero time of Go, which clients compare with.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// State of a repository: its place in the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It has a plan, and gets backups.
    Active,
    /// It is only read.
    Archived,
    /// It is of another cluster, and only read.
    Imported,
}

impl State {
    /// Every state.
    pub const ALL: [State; 3] = [State::Active, State::Archived, State::Imported];

    /// The word in paths and keys.
    pub fn name(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Archived => "archived",
            State::Imported => "imported",
        }
    }

    /// Key of a repository.
    pub fn key(self, id: &str) -> String {
        format!("{}/{id}", self.name())
    }
}

/// The bucket that a repository is limited to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnlyBucket {
    pub name: String,
    pub uuid: String,
}

/// A task of the plan, and when it runs next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scheduled {
    pub task_type: TaskType,
    /// Unix milliseconds.
    pub next_ms: u64,
}

impl Scheduled {
    /// The first run of a task of a plan.
    pub fn first(task: &PlanTask, now_ms: u64) -> Scheduled {
        Scheduled { task_type: task.task_type, next_ms: task.schedule.first_ms(now_ms) }
    }
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Running,
    Done,
    Failed,
}

/// A task that runs or has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// `BACKUP-…`, `MERGE-…` or `RESTORE-…`.
    pub name: String,
    /// `BACKUP`, `MERGE` or `RESTORE`.
    pub kind: String,
    pub status: Status,
    /// Unix milliseconds.
    pub start_ms: u64,
    /// Unix milliseconds; 0 while it runs.
    pub end_ms: u64,
    /// UUID of the node.
    pub node: String,
    /// Output of the command at its end, or the reason for its failure.
    pub said: String,
}

/// A repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repository {
    pub id: String,
    pub state: State,
    /// Empty for one that was imported.
    pub plan_name: String,
    /// Folder or address in which the repository is.
    pub archive: String,
    /// Its name there.
    pub repo: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<OnlyBucket>,
    /// Region and endpoint of the object store; empty for those of the environment.
    #[serde(default)]
    pub cloud: BTreeMap<String, String>,
    /// True while nothing is run by the plan.
    #[serde(default)]
    pub is_paused: bool,
    /// By the name of the task.
    #[serde(default)]
    pub scheduled: BTreeMap<String, Scheduled>,
    /// Unix milliseconds.
    pub created_ms: u64,
    pub updated_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Run>,
    /// Newest first.
    #[serde(default)]
    pub history: Vec<Run>,
}

impl Repository {
    /// The place of the repository, as commands take it.
    pub fn place(&self) -> String {
        format!("{}/{}", self.archive.trim_end_matches('/'), self.repo)
    }

    /// Refuses to go on while a task runs.
    ///
    /// # Errors
    /// 409 with the task.
    pub fn check_idle(&self) -> Result<(), Failure> {
        let Some(run) = &self.running else { return Ok(()) };
        let reason = format!("{} began at {}", run.name, time(run.start_ms));
        Err(Failure::new(409, "the repository has a task that runs").because(reason))
    }

    /// Moves the task that runs into the history, if it has this name.
    pub fn end(&mut self, name: &str, outcome: Result<String, String>, now_ms: u64, keep_ms: u64) {
        let Some(mut run) = self.running.take_if(|run| run.name == name) else { return };
        (run.status, run.said) = match outcome {
            Ok(said) => (Status::Done, said),
            Err(reason) => (Status::Failed, reason),
        };
        truncate(&mut run.said, REASON_BYTES_MAX);
        run.end_ms = now_ms;
        self.note(run, keep_ms);
    }

    /// Puts a task that has ended into the history. Those that began more than `keep_ms` before it are forgotten.
    pub fn note(&mut self, run: Run, keep_ms: u64) {
        let since = run.start_ms.saturating_sub(keep_ms);
        self.history.insert(0, run);
        self.history.retain(|run| run.start_ms >= since);
        self.history.truncate(HISTORY_MAX);
    }

    /// Ends a task that nobody runs any more: its node has left the cluster, or was restarted.
    pub fn settle(
        &mut self,
        cluster: &Cluster,
        is_lost: impl Fn(&Run) -> bool,
        now_ms: u64,
    ) -> bool {
        let Some(run) = &self.running else { return false };
        let (name, node) = (run.name.clone(), &run.node);
        let reason = match cluster.nodes.values().any(|member| member.uuid == **node) {
            false => "the node that ran it has left the cluster",
            true if is_lost(run) => "the node that ran it was restarted",
            true => return false,
        };
        self.end(&name, Err(reason.to_owned()), now_ms, u64::MAX);
        true
    }

    /// The repository as clients see it. Source: Couchbase's backup service.
    pub fn to_json(&self) -> Value {
        let scheduled: Map<String, Value> = self
            .scheduled
            .iter()
            .filter(|_| !self.is_paused)
            .map(|(name, task)| {
                let next = time(task.next_ms);
                let shown = json!({"name": name, "task_type": task.task_type, "next_run": next});
                (name.clone(), shown)
            })
            .collect();
        let failure = self.history.first().filter(|run| run.status == Status::Failed);
        let mut shown = json!({
            "id": self.id,
            "plan_name": self.plan_name,
            "state": if self.is_paused { "paused" } else { self.state.name() },
            "archive": self.archive,
            "repo": self.repo,
            "scheduled": scheduled,
            "version": 1,
            "health": match failure {
                None => json!({"healthy": true}),
                Some(run) => json!({"healthy": false, "health_issue": run.said}),
            },
            "creation_time": time(self.created_ms),
            "update_time": time(self.updated_ms),
        });
        if let Some(bucket) = &self.bucket {
            shown["bucket"] = json!(bucket);
        }
        if let Some(run) = &self.running {
            shown["running_one_off"] = json!({run.name.clone(): run.to_json()});
        }
        shown
    }
}

impl Run {
    /// The task as clients see it. Source: Couchbase's backup service.
    pub fn to_json(&self) -> Value {
        let end = if self.end_ms == 0 { NEVER.to_owned() } else { time(self.end_ms) };
        let code = u64::from(self.status == Status::Failed);
        let mut shown = json!({
            "task_name": self.name,
            "type": self.kind,
            "status": self.status,
            "start": time(self.start_ms),
            "end": end,
            "error_code": code,
            "node_runs": [{
                "node_id": self.node,
                "status": self.status,
                "start": time(self.start_ms),
                "end": end,
                "progress": if self.status == Status::Done { 100 } else { 0 },
                "error_code": code,
            }],
        });
        let member = if code == 1 { "error" } else { "output" };
        if !self.said.is_empty() {
            shown["node_runs"][0][member] = self.said.as_str().into();
        }
        shown
    }
}

/// Shortens a text at the boundary of a character.
fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
}

/// A time in Unix milliseconds as clients see it.
pub(crate) fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).map_or_else(|_| NEVER.to_owned(), |time| time.to_string())
}

/// The time in Unix milliseconds.
pub(crate) fn now_ms(node: &Node) -> u64 {
    node.now().unix_ns / 1_000_000
}

/// Reads a record, with its version.
pub(crate) fn read<T: DeserializeOwned>(node: &Node, key: &str) -> Option<(T, String)> {
    decoded(node.cluster().service_records.get(ID, key)?)
}

fn decoded<T: DeserializeOwned>(record: &ServiceRecord) -> Option<(T, String)> {
    Some((serde_json::from_str(&record.body).ok()?, record.version.clone()))
}

/// Reads all records whose keys begin with `prefix`: the rest of the key, the record and its version.
pub(crate) fn all<T: DeserializeOwned>(node: &Node, prefix: &str) -> Vec<(String, T, String)> {
    let cluster = node.cluster();
    let records = cluster.service_records.of(ID);
    let found = records.filter_map(|(key, record)| {
        let rest = key.strip_prefix(prefix)?;
        let (value, version) = decoded(record)?;
        Some((rest.to_owned(), value, version))
    });
    found.collect()
}

/// Writes a record.
///
/// # Errors
/// 409 if the record is not the expected one; 503 if the nodes cannot agree.
pub(crate) fn put(
    node: &Arc<Node>,
    key: &str,
    value: &impl Serialize,
    expected: Expected,
) -> Result<(), Failure> {
    let body = serde_json::to_string(value).expect("records are plain data");
    let record = ServiceRecord { version: node.new_uuid(), bucket: None, scope: None, body };
    let record = Box::new(record);
    node.change(&Change::Records(RecordChange::PutServiceRecord {
        service: ID.into(),
        name: key.into(),
        record,
        expected,
    }))?;
    Ok(())
}

/// Writes a record, whatever there is.
///
/// # Errors
/// As [`put`].
pub(crate) fn put_any(node: &Arc<Node>, key: &str, value: &impl Serialize) -> Result<(), Failure> {
    put(node, key, value, Expected::Anything)
}

/// Removes a version of a record.
///
/// # Errors
/// As [`put`].
pub(crate) fn drop_version(node: &Arc<Node>, key: &str, version: String) -> Result<(), Failure> {
    let expected = Expected::Version(version);
    node.change(&Change::Records(RecordChange::DropServiceRecord {
        service: ID.into(),
        name: key.into(),
        expected,
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> Repository {
        Repository {
            id: "r".into(),
            state: State::Active,
            plan_name: "p".into(),
            archive: "/backups/".into(),
            repo: "u".into(),
            bucket: None,
            cloud: BTreeMap::new(),
            is_paused: false,
            scheduled: BTreeMap::new(),
            created_ms: 1_000,
            updated_ms: 1_000,
            running: None,
            history: Vec::new(),
        }
    }

    fn run(name: &str, start_ms: u64) -> Run {
        Run {
            name: name.into(),
            kind: "BACKUP".into(),
            status: Status::Running,
            start_ms,
            end_ms: 0,
            node: "n".into(),
            said: String::new(),
        }
    }

    #[test]
    fn a_task_ends_once_and_the_newest_come_first() {
        let mut repository = repository();
        assert_eq!(repository.place(), "/backups/u");
        for (name, start) in [("a", 10), ("b", 20), ("c", 1_000)] {
            repository.running = Some(run(name, start));
            repository.end("other", Ok(String::new()), 0, 500);
            assert!(repository.running.is_some());
            repository.end(name, Err("é".repeat(600)), start + 1, 500);
            assert_eq!(repository.running, None);
        }
        let names: Vec<&str> = repository.history.iter().map(|run| &*run.name).collect();
        assert_eq!(names, ["c"], "older ones are forgotten");
        assert!(repository.history[0].said.len() <= REASON_BYTES_MAX + 3);
        assert_eq!(repository.to_json()["health"]["healthy"], false);
        let shown = repository.history[0].to_json();
        assert_eq!((&shown["status"], &shown["error_code"]), (&json!("failed"), &json!(1)));
        assert_eq!(shown["start"], "1970-01-01T00:00:01Z");
        for n in 0..300 {
            repository.note(run("x", 2_000 + n), u64::MAX);
        }
        assert_eq!(repository.history.len(), HISTORY_MAX);
    }

    #[test]
    fn a_running_task_has_not_ended() {
        let mut repository = repository();
        repository.running = Some(run("a", 10));
        let shown = repository.to_json();
        assert_eq!(shown["running_one_off"]["a"]["end"], NEVER);
        assert_eq!(shown["state"], "active");
        let body = serde_json::to_string(&repository).unwrap();
        assert_eq!(serde_json::from_str::<Repository>(&body).unwrap(), repository);
    }
}
