//! Repositories: listed, made, paused, archived, imported and deleted; backups and merges of active ones.

use crate::command::{Command, Target};
use crate::endpoint;
use crate::plan::{self, MergeOptions, PlanTask, TaskType};
use crate::record::{self, OnlyBucket, Repository, State, now_ms};
use crate::reply::{Failure, body, check_name, done, ok, parameter, segment};
use crate::runner::{Job, first_schedule, own_uuid};
use crate::{Backup, ID, NAME, Outcome, info, settings};
use nacre_backup::{RemoteAddress, SCHEMES, Scheme};
use nacre_cluster::Expected;
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Longest archive in bytes.
const ARCHIVE_BYTES_MAX: usize = 1024;

/// `GET /cluster/self`: all repositories by state.
pub(crate) fn of_cluster(node: &Arc<Node>, _request: &HttpRequest) -> Outcome {
    node.catch_up();
    let mut shown = json!({"name": "self"});
    for state in State::ALL {
        let by_id = |one: Repository| (one.id.clone(), one.to_json());
        let all: Map<String, Value> = all(node, state).into_iter().map(by_id).collect();
        shown[state.name()] = all.into();
    }
    Ok(ok(&shown))
}

fn all(node: &Node, state: State) -> Vec<Repository> {
    let runner = &Backup::of(node).runner;
    let all = record::all::<Repository>(node, &state.key("")).into_iter();
    let settled = |(_, mut one, _): (String, Repository, String)| {
        runner.settle(node, &mut one);
        one
    };
    all.map(settled).collect()
}

/// `GET /cluster/self/repository/{state}`.
pub(crate) fn list(node: &Arc<Node>, _request: &HttpRequest, state: State) -> Outcome {
    node.catch_up();
    let shown: Vec<Value> = all(node, state).iter().map(Repository::to_json).collect();
    Ok(ok(&json!(shown)))
}

/// `GET /cluster/self/repository/{state}/{id}`.
pub(crate) fn get(node: &Arc<Node>, request: &HttpRequest, state: State) -> Outcome {
    let (repository, _) = find(node, request, state)?;
    Ok(ok(&repository.to_json()))
}

/// Finds the repository that a request names, with its version.
///
/// # Errors
/// 404.
pub(crate) fn find(
    node: &Arc<Node>,
    request: &HttpRequest,
    state: State,
) -> Result<(Repository, String), Failure> {
    node.catch_up();
    Backup::of(node).runner.repository(node, state, segment(request, 0))
}

/// Where a repository is, as requests name it.
#[derive(Debug, Deserialize)]
struct Place {
    #[serde(default)]
    archive: String,
    #[serde(default)]
    cloud_credential_name: String,
    #[serde(default)]
    cloud_credentials_id: String,
    #[serde(default)]
    cloud_credentials_key: String,
    #[serde(default)]
    cloud_region: String,
    #[serde(default)]
    cloud_endpoint: String,
}

impl Place {
    /// As [`Place::check`]; refuses folders of the node's own files, and endpoints that it may not reach.
    fn check_at(&self, node: &Arc<Node>) -> Result<BTreeMap<String, String>, Failure> {
        let cloud = self.check()?;
        if is_of_node(node, &self.archive) {
            return Err(Failure::bad_request("the archive is in the data directory of this node"));
        }
        endpoint::variables(node, &cloud).map_err(|reason| {
            Failure::bad_request("the endpoint cannot be used").because(reason)
        })?;
        Ok(cloud)
    }

    /// Checks the archive, and returns the variables with which commands reach it. A staging directory is not needed, and requests to an
    /// endpoint have the name of the bucket in their path in any case.
    fn check(&self) -> Result<BTreeMap<String, String>, Failure> {
        let archive = &self.archive;
        let remote = RemoteAddress::read(archive);
        let is_folder = archive.starts_with('/') && !archive.split('/').any(|part| part == "..");
        let is_plain = archive.len() <= ARCHIVE_BYTES_MAX && !archive.chars().any(char::is_control);
        let remote = match remote {
            Ok(None) if is_plain && is_folder => None,
            Ok(Some(address)) if is_plain => Some(address.scheme),
            _ => {
                let forms = SCHEMES.iter().map(Scheme::form).collect::<Vec<_>>().join(", ");
                return Err(Failure::bad_request(format!(
                    "the archive is the absolute path of a folder that all nodes share, or one of {forms}"
                )));
            }
        };
        let credentials =
            [&self.cloud_credential_name, &self.cloud_credentials_id, &self.cloud_credentials_key];
        if credentials.iter().any(|text| !text.is_empty()) {
            let names = remote.unwrap_or(&SCHEMES[0]).credentials;
            return Err(Failure::bad_request("credentials are not kept")
                .because(format!("give the nodes {names}, or a role of their machines")));
        }
        let mut variables = BTreeMap::new();
        let region = remote.map(|scheme| scheme.region);
        let endpoint = remote.map(|scheme| scheme.endpoint);
        for (member, value, variable) in [
            ("cloud_region", &self.cloud_region, region),
            ("cloud_endpoint", &self.cloud_endpoint, endpoint),
        ] {
            if value.len() > ARCHIVE_BYTES_MAX || value.chars().any(char::is_control) {
                return Err(Failure::bad_request("cloud_region and cloud_endpoint are plain text"));
            }
            match variable {
                _ if value.is_empty() => {}
                // A folder has neither, and clients may send them all the same.
                None => {}
                Some(Some(name)) => drop(variables.insert(name.to_owned(), value.clone())),
                Some(None) => {
                    return Err(Failure::bad_request(format!(
                        "{member} has no effect on {archive}"
                    ))
                    .because("the environment of the nodes names the store"));
                }
            }
        }
        Ok(variables)
    }
}

/// Returns true if an archive is in the data directory of this node.
pub(crate) fn is_of_node(node: &Node, archive: &str) -> bool {
    let own = node.folder(ID);
    own.is_some_and(|folder| folder.parent().is_some_and(|own| is_in(archive, own)))
}

/// Returns true if a path leads into a folder, by links as well.
fn is_in(path: &str, folder: &Path) -> bool {
    let path = Path::new(path);
    // What does not exist yet will be where its parents are.
    let found = path.ancestors().find_map(|parent| {
        let rest = path.strip_prefix(parent).ok()?;
        Some(parent.canonicalize().ok()?.join(rest))
    });
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    path.starts_with(&folder) || found.is_some_and(|found| found.starts_with(&folder))
}

#[derive(Debug, Deserialize)]
struct New {
    #[serde(default)]
    plan: String,
    #[serde(default)]
    bucket_name: Option<String>,
    #[serde(flatten)]
    place: Place,
}

/// `POST /cluster/self/repository/active/{id}`.
pub(crate) fn create(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let id = segment(request, 0);
    check_name("repository", id)?;
    let new: New = body(request)?;
    let cloud = new.place.check_at(node)?;
    node.catch_up();
    let plan = plan::find(node, &new.plan)
        .ok_or_else(|| Failure::bad_request(format!("there is no plan {:?}", new.plan)))?;
    let bucket = match new.bucket_name.filter(|name| !name.is_empty()) {
        None => None,
        Some(name) => {
            let cluster = node.cluster();
            let found = cluster.buckets.get(&name);
            let uuid = found
                .map(|bucket| bucket.uuid.to_string())
                .ok_or_else(|| Failure::bad_request(format!("there is no bucket {name:?}")))?;
            Some(OnlyBucket { name, uuid })
        }
    };
    let now_ms = now_ms(node);
    let repository = Repository {
        id: id.to_owned(),
        state: State::Active,
        plan_name: new.plan,
        archive: new.place.archive,
        repo: node.new_uuid(),
        bucket,
        cloud,
        is_paused: false,
        scheduled: first_schedule(&plan, now_ms),
        created_ms: now_ms,
        updated_ms: now_ms,
        running: None,
        history: Vec::new(),
    };
    put_new(node, &repository)?;
    Backup::of(node).runner.wake();
    Ok(done())
}

fn put_new(node: &Arc<Node>, repository: &Repository) -> Result<(), Failure> {
    let key = repository.state.key(&repository.id);
    if record::read::<Repository>(node, &key).is_some() {
        let message = format!("there is a repository {}", repository.id);
        return Err(Failure::bad_request(message));
    }
    record::put(node, &key, repository, Expected::Nothing)
}

#[derive(Debug, Deserialize)]
struct Import {
    id: String,
    repo: String,
    #[serde(flatten)]
    place: Place,
}

/// `POST /cluster/self/repository/import`.
pub(crate) fn import(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let import: Import = body(request)?;
    check_name("repository", &import.id)?;
    check_name("repository", &import.repo)?;
    let cloud = import.place.check_at(node)?;
    node.catch_up();
    let now_ms = now_ms(node);
    let repository = Repository {
        id: import.id,
        state: State::Imported,
        plan_name: String::new(),
        archive: import.place.archive,
        repo: import.repo,
        bucket: None,
        cloud,
        is_paused: false,
        scheduled: BTreeMap::new(),
        created_ms: now_ms,
        updated_ms: now_ms,
        running: None,
        history: Vec::new(),
    };
    // One that cannot be read is refused now, and not when it is needed.
    info::backups(node, &repository).map_err(|reason| {
        Failure::bad_request("could not import the repository").because(reason)
    })?;
    put_new(node, &repository)?;
    Ok(done())
}

/// `POST …/active/{id}/pause`.
pub(crate) fn pause(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    set_paused(node, request, true)
}

/// `POST …/active/{id}/resume`.
pub(crate) fn resume(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    set_paused(node, request, false)
}

fn set_paused(node: &Arc<Node>, request: &HttpRequest, is_paused: bool) -> Outcome {
    let (mut repository, version) = find(node, request, State::Active)?;
    repository.is_paused = is_paused;
    repository.updated_ms = now_ms(node);
    let key = State::Active.key(&repository.id);
    record::put(node, &key, &repository, Expected::Version(version))?;
    Ok(done())
}

#[derive(Debug, Deserialize)]
struct Archive {
    id: String,
}

/// `POST …/active/{id}/archive`: the repository gets no more backups, and another name.
pub(crate) fn archive(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let Archive { id } = body(request)?;
    check_name("repository", &id)?;
    let (mut repository, version) = find(node, request, State::Active)?;
    repository.check_idle()?;
    let before = State::Active.key(&repository.id);
    repository.id = id;
    repository.state = State::Archived;
    repository.is_paused = false;
    repository.scheduled.clear();
    repository.updated_ms = now_ms(node);
    // The new one first: a node that ends in between leaves a repository that is read twice, and not one that is lost.
    put_new(node, &repository)?;
    record::drop_version(node, &before, version)?;
    Ok(done())
}

/// `DELETE …/{archived,imported}/{id}`; with `?remove_repository=true` its backups, too.
pub(crate) fn delete(node: &Arc<Node>, request: &HttpRequest, state: State) -> Outcome {
    let (repository, version) = find(node, request, state)?;
    repository.check_idle()?;
    let has_data = parameter(request, "remove_repository").is_some_and(|value| value != "false");
    if has_data && state == State::Imported {
        return Err(Failure::bad_request(
            "the data of an imported repository belongs to another cluster",
        ));
    }
    if has_data {
        let could_not = |reason| Failure::new(500, "could not remove backup").because(reason);
        let backups = info::backups(node, &repository).map_err(could_not)?;
        // One that others continue goes after them.
        for backup in backups.iter().rev().filter_map(|backup| backup["id"].as_str()) {
            remove(node, &repository, backup).map_err(could_not)?;
        }
    }
    record::drop_version(node, &state.key(&repository.id), version)?;
    Ok(done())
}

/// `DELETE …/active/{id}/backups/{name}`.
pub(crate) fn delete_backup(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let (repository, _) = find(node, request, State::Active)?;
    repository.check_idle()?;
    remove(node, &repository, segment(request, 1))
        .map_err(|reason| Failure::new(500, "could not remove backup").because(reason))?;
    Ok(done())
}

fn remove(node: &Arc<Node>, repository: &Repository, backup: &str) -> Result<(), String> {
    let command = Command::new(["backup", "remove", "--"])
        .with(repository.place())
        .with(backup)
        .in_store(&endpoint::variables(node, &repository.cloud)?);
    Backup::of(node).runner.run(&command).map(drop)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackUp {
    #[serde(default)]
    full_backup: bool,
}

/// `POST …/active/{id}/backup`.
pub(crate) fn back_up(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let BackUp { full_backup } = body(request)?;
    let (repository, _) = find(node, request, State::Active)?;
    let job = backup_job(node, &repository, full_backup)
        .map_err(|reason| Failure::new(500, "could not begin the backup").because(reason))?;
    begin(node, &repository, job)
}

/// `POST …/active/{id}/merge`.
pub(crate) fn merge(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let options: MergeOptions = body(request)?;
    options.check()?;
    let (repository, _) = find(node, request, State::Active)?;
    let job = merge_job(node, &repository, options)
        .map_err(|reason| Failure::new(500, "could not begin the merge").because(reason))?;
    begin(node, &repository, job)
}

/// Begins a task, and answers with its name.
///
/// # Errors
/// As [`Runner::begin`](crate::runner::Runner::begin).
pub(crate) fn begin(node: &Arc<Node>, repository: &Repository, job: Job) -> Outcome {
    let runner = &Backup::of(node).runner;
    let name = runner.begin(node, repository.state, &repository.id, job)?;
    Ok(ok(&json!({"task_name": name})))
}

/// The job of a task of a plan.
///
/// # Errors
/// A sentence.
pub(crate) fn job_of(
    node: &Arc<Node>,
    repository: &Repository,
    task: &PlanTask,
) -> Result<Job, String> {
    match task.task_type {
        TaskType::Backup => backup_job(node, repository, task.full_backup.unwrap_or(false)),
        TaskType::Merge => merge_job(node, repository, task.options.unwrap_or_default()),
    }
}

fn backup_job(node: &Arc<Node>, repository: &Repository, is_full: bool) -> Result<Job, String> {
    let uuid = own_uuid(&node.cluster(), node).unwrap_or_default();
    // Nobody else writes into the repository, so that remains of an earlier task are of no use.
    let mut command = Command::new(["backup", "create", "--quiet", "--discard"])
        .with(format!("--threads={}", settings::own_threads(node, &uuid)));
    if is_full {
        command = command.with("--full");
    }
    if let Some(bucket) = &repository.bucket {
        command = command.with(format!("--bucket={}", bucket.name));
    }
    let cluster = node.cluster();
    let with_service = cluster.nodes.values().filter(|member| member.services.contains(&NAME));
    if with_service.count() > 1 {
        command = command.with(format!("--by-nodes={}", repository.id));
    }
    let command = command.with("--").with(repository.place());
    let store = endpoint::variables(node, &repository.cloud)?;
    let command = command.on(&Target::own(node)?).in_store(&store);
    Ok(Job { kind: TaskType::Backup.name(), command })
}

fn merge_job(
    node: &Arc<Node>,
    repository: &Repository,
    options: MergeOptions,
) -> Result<Job, String> {
    let command = Command::new(["backup", "merge", "--remove"])
        .with(format!("--days={}", options.offset_end))
        .with("--")
        .with(repository.place())
        .in_store(&endpoint::variables(node, &repository.cloud)?);
    Ok(Job { kind: TaskType::Merge.name(), command })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<BTreeMap<String, String>, String> {
        let place: Place = serde_json::from_str(text).unwrap();
        place.check().map_err(|failure| failure.message)
    }

    #[test]
    fn archives_are_folders_that_all_nodes_share_or_buckets() {
        assert_eq!(checked(r#"{"archive":"/mnt/backups"}"#), Ok(BTreeMap::new()));
        let remote = r#"{"archive":"s3://b/p","cloud_region":"eu","cloud_staging_dir":"/tmp"}"#;
        assert_eq!(checked(remote).unwrap()["AWS_REGION"], "eu");
        for archive in ["gs://b", "az://c/p"] {
            let text = format!("{{\"archive\":\"{archive}\"}}");
            assert_eq!(checked(&text), Ok(BTreeMap::new()), "{archive}");
        }
        for archive in
            ["", "backups", "../x", "/a/../b", "s3://", "ftp://b/p", "--full", "/a\\u0000b"]
        {
            let text = format!("{{\"archive\":\"{archive}\"}}");
            assert!(checked(&text).unwrap_err().contains("absolute path"), "{archive}");
        }
        let secret = r#"{"archive":"s3://b/p","cloud_credentials_key":"k"}"#;
        assert!(checked(secret).unwrap_err().contains("credentials"));
    }

    /// The token of the node would be in the requests to whatever was named.
    #[test]
    fn an_endpoint_is_named_only_where_requests_contain_no_secret() {
        let named = |archive| {
            checked(&format!(r#"{{"archive":"{archive}","cloud_endpoint":"http://10.0.0.1"}}"#))
        };
        assert_eq!(named("s3://b/p").unwrap()["AWS_ENDPOINT_URL"], "http://10.0.0.1");
        for archive in ["gs://b/p", "az://c/p"] {
            let refused = named(archive).unwrap_err();
            assert!(refused.contains("cloud_endpoint has no effect"), "{refused}");
        }
        assert_eq!(named("/mnt/backups"), Ok(BTreeMap::new()));
    }

    #[test]
    fn a_folder_is_found_by_links_and_before_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let (data, link) = (folder.path().join("data"), folder.path().join("link"));
        std::fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        for inside in [data.join("new/a"), data.clone(), link.join("new"), link.clone()] {
            assert!(is_in(&inside.to_string_lossy(), &data), "{}", inside.display());
        }
        for outside in ["data2", "other/data"] {
            assert!(!is_in(&folder.path().join(outside).to_string_lossy(), &data), "{outside}");
        }
        assert!(!is_in("s3://bucket/data", &data));
    }
}
