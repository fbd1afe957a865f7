//! Plans: which tasks a repository has, and when.

use crate::record::{self, Repository};
use crate::reply::{Failure, body, check_name, done, ok, segment};
use crate::schedule::Schedule;
use crate::{Outcome, record::PLAN};
use nacre_cluster::Expected;
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tasks of a plan, at most. Source: Couchbase's backup service.
const TASKS_MAX: usize = 14;
/// Bytes of a description, at most. Source: Couchbase's backup service.
const DESCRIPTION_BYTES_MAX: usize = 140;
/// Services whose data plans can name. Source: Couchbase's backup service.
const SERVICES: [&str; 8] =
    ["data", "gsi", "cbas", "ft", "eventing", "views", "bucketQuery", "clusterQuery"];

/// Kind of a task of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum TaskType {
    Backup,
    Merge,
}

impl TaskType {
    /// The word in names and answers.
    pub fn name(self) -> &'static str {
        match self {
            TaskType::Backup => "BACKUP",
            TaskType::Merge => "MERGE",
        }
    }
}

/// Range of a merge, in days back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MergeOptions {
    /// Day of the newest backup: 0 is today.
    #[serde(default)]
    pub offset_start: u64,
    /// Day of the oldest backup.
    #[serde(default)]
    pub offset_end: u64,
}

/// A task of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanTask {
    pub name: String,
    pub task_type: TaskType,
    #[serde(default)]
    pub full_backup: Option<bool>,
    pub schedule: Schedule,
    #[serde(default)]
    pub options: Option<MergeOptions>,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Kept as it is given: definitions are always in a backup.
    #[serde(default)]
    pub services: Option<Vec<String>>,
    #[serde(default)]
    pub tasks: Vec<PlanTask>,
    #[serde(default, rename = "default")]
    pub is_default: bool,
}

impl Plan {
    /// Checks what a request says.
    fn check(&self) -> Result<(), Failure> {
        let refused = |message: &str| Err(Failure::bad_request(message));
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return refused("the description of a plan has at most 140 bytes");
        }
        let mut services = self.services.iter().flatten();
        if let Some(other) = services.find(|service| !SERVICES.contains(&&***service)) {
            return refused(&format!("there is no service {other:?}"));
        }
        if self.tasks.is_empty() || self.tasks.len() > TASKS_MAX {
            return refused("a plan has 1 to 14 tasks");
        }
        let mut names = BTreeSet::new();
        for task in &self.tasks {
            check_name("task", &task.name)?;
            if !names.insert(&task.name) {
                return refused(&format!("there are two tasks {}", task.name));
            }
            task.schedule.check().map_err(Failure::bad_request)?;
            match (task.task_type, task.options) {
                (TaskType::Backup, Some(_)) => {
                    return refused("options are those of a merge");
                }
                (TaskType::Merge, _) if task.full_backup.is_some() => {
                    return refused("full_backup is for a backup");
                }
                (TaskType::Merge, options) => options.unwrap_or_default().check()?,
                _ => {}
            }
        }
        match self.tasks.iter().any(|task| task.task_type == TaskType::Backup) {
            true => Ok(()),
            false => refused("a plan has a task of type BACKUP"),
        }
    }
}

impl MergeOptions {
    /// Checks what a request says.
    ///
    /// # Errors
    /// 400.
    pub fn check(self) -> Result<(), Failure> {
        if self.offset_start != 0 {
            // A merged backup is the newest one: of an older range it would hide what came since.
            return Err(Failure::bad_request(
                "a merge ends with the newest backup: offset_start is 0",
            ));
        }
        match self.offset_end {
            0..=36_525 => Ok(()),
            _ => Err(Failure::bad_request("offset_end is a number of days up to 36525")),
        }
    }
}

/// The plans that every cluster has.
fn built_in() -> [Plan; 2] {
    let backup = |name: &str, schedule: &str, full_backup| PlanTask {
        name: name.into(),
        task_type: TaskType::Backup,
        full_backup,
        schedule: serde_json::from_str(schedule).expect("the schedule is one"),
        options: None,
    };
    let merge = |name: &str, schedule: &str, offset_end| PlanTask {
        task_type: TaskType::Merge,
        options: Some(MergeOptions { offset_start: 0, offset_end }),
        ..backup(name, schedule, None)
    };
    let plan = |name: &str, description: &str, tasks| Plan {
        name: name.into(),
        description: description.into(),
        services: None,
        tasks,
        is_default: true,
    };
    [
        plan(
            "_daily_backups",
            "An increment each day, and a full backup each Sunday",
            vec![
                backup(
                    "backup_full",
                    r#"{"job_type":"BACKUP","frequency":1,"period":"SUNDAY","time":"22:00"}"#,
                    Some(true),
                ),
                backup(
                    "backup_daily",
                    r#"{"job_type":"BACKUP","frequency":1,"period":"DAYS","time":"23:00"}"#,
                    None,
                ),
            ],
        ),
        plan(
            "_hourly_backups",
            "An increment each hour, merged each day",
            vec![
                backup(
                    "backup_hourly",
                    r#"{"job_type":"BACKUP","frequency":1,"period":"HOURS","time":"00:00"}"#,
                    None,
                ),
                merge(
                    "merge_daily",
                    r#"{"job_type":"MERGE","frequency":1,"period":"DAYS","time":"23:30"}"#,
                    1,
                ),
            ],
        ),
    ]
}

/// Returns a plan.
pub(crate) fn find(node: &Node, name: &str) -> Option<Plan> {
    let stored = || record::read(node, &format!("{PLAN}{name}")).map(|(plan, _)| plan);
    built_in().into_iter().find(|plan| plan.name == name).or_else(stored)
}

/// `GET /plan`.
pub(crate) fn list(node: &Arc<Node>, _request: &HttpRequest) -> Outcome {
    node.catch_up();
    let mut plans = built_in().to_vec();
    plans.extend(record::all::<Plan>(node, PLAN).into_iter().map(|(_, plan, _)| plan));
    Ok(ok(&json!(plans)))
}

/// `GET /plan/{name}`.
pub(crate) fn get(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    node.catch_up();
    let plan = find(node, segment(request, 0)).ok_or_else(missing)?;
    Ok(ok(&json!(plan)))
}

fn missing() -> Failure {
    Failure::new(404, "requested plan not found")
}

/// `POST /plan/{name}`.
pub(crate) fn create(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let plan = read(request)?;
    let key = format!("{PLAN}{}", plan.name);
    if record::read::<Plan>(node, &key).is_some() {
        return Err(Failure::bad_request(format!("there is a plan {}", plan.name)));
    }
    record::put(node, &key, &plan, Expected::Nothing)?;
    Ok(done())
}

/// `PUT /plan/{name}`. Repositories that have the plan follow the new one.
pub(crate) fn replace(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let plan = read(request)?;
    let key = format!("{PLAN}{}", plan.name);
    let (_, version) = record::read::<Plan>(node, &key).ok_or_else(missing)?;
    record::put(node, &key, &plan, Expected::Version(version))?;
    crate::Backup::of(node).runner.wake();
    Ok(done())
}

fn read(request: &HttpRequest) -> Result<Plan, Failure> {
    let name = segment(request, 0);
    check_changeable(name)?;
    check_name("plan", name)?;
    let plan = Plan { name: name.to_owned(), is_default: false, ..body(request)? };
    plan.check()?;
    Ok(plan)
}

fn check_changeable(name: &str) -> Result<(), Failure> {
    match built_in().iter().any(|plan| plan.name == name) {
        true => Err(Failure::bad_request("a default plan cannot be changed")),
        false => Ok(()),
    }
}

/// `DELETE /plan/{name}`.
pub(crate) fn delete(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let name = segment(request, 0);
    check_changeable(name)?;
    let key = format!("{PLAN}{name}");
    let (_, version) = record::read::<Plan>(node, &key).ok_or_else(missing)?;
    let repositories = record::all::<Repository>(node, "active/");
    if let Some((id, ..)) = repositories.iter().find(|(_, one, _)| one.plan_name == name) {
        return Err(Failure::bad_request("the plan is in use")
            .because(format!("the repository {id} has it: archive that first")));
    }
    record::drop_version(node, &key, version)?;
    Ok(done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn checked(change: impl FnOnce(&mut Value)) -> Result<(), String> {
        let mut plan = json!({
            "description": "d",
            "services": ["data", "gsi"],
            "tasks": [
                {"name": "b", "task_type": "BACKUP", "full_backup": true,
                 "schedule": {"job_type": "BACKUP", "frequency": 1, "period": "HOURS"}},
                {"name": "m", "task_type": "MERGE", "options": {"offset_start": 0, "offset_end": 2},
                 "schedule": {"job_type": "MERGE", "frequency": 1, "period": "DAYS", "time": "22:00"}},
            ],
        });
        change(&mut plan);
        let plan: Plan = serde_json::from_value(plan).map_err(|error| error.to_string())?;
        plan.check().map_err(|failure| failure.message)
    }

    #[test]
    fn incomplete_or_contradictory_plans_are_refused() {
        assert_eq!(checked(|_| {}), Ok(()));
        for (words, refused) in [
            ("1 to 14 tasks", checked(|plan| plan["tasks"] = json!([]))),
            ("type BACKUP", checked(|plan| drop(plan["tasks"].as_array_mut().unwrap().remove(0)))),
            ("two tasks b", checked(|plan| plan["tasks"][1]["name"] = "b".into())),
            ("name of a task", checked(|plan| plan["tasks"][1]["name"] = "../b".into())),
            ("no service \"x\"", checked(|plan| plan["services"] = json!(["x"]))),
            ("140 bytes", checked(|plan| plan["description"] = "x".repeat(141).into())),
            ("unknown field", checked(|plan| plan["other"] = 1.into())),
            ("frequency", checked(|plan| plan["tasks"][0]["schedule"]["frequency"] = 0.into())),
            ("newest", checked(|plan| plan["tasks"][1]["options"]["offset_start"] = 1.into())),
            ("full_backup", checked(|plan| plan["tasks"][1]["full_backup"] = true.into())),
            (
                "options are those of a merge",
                checked(|plan| plan["tasks"][0]["options"] = json!({"offset_end": 1})),
            ),
        ] {
            assert!(refused.as_ref().unwrap_err().contains(words), "{words}: {refused:?}");
        }
    }

    #[test]
    fn the_built_in_plans_are_valid() {
        for plan in built_in() {
            assert_eq!(plan.check(), Ok(()), "{}", plan.name);
            assert!(plan.is_default && check_changeable(&plan.name).is_err());
        }
    }
}
