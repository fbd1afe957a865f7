//! Tasks on this node: those that requests begin, and those that are due.

use crate::command::Command;
use crate::plan;
use crate::record::{self, Repository, Run, Scheduled, State, Status, now_ms};
use crate::reply::Failure;
use crate::share::Shares;
use crate::{NAME, settings};
use nacre_cluster::{Cluster, Expected};
use nacre_node::Node;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two looks at what is due, and between two attempts to record an outcome.
const TURN: Duration = Duration::from_secs(1);
/// Attempts to record an outcome: after that the task counts as lost.
const ATTEMPTS_MAX: u32 = 600;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Commands of requests that run at a time, besides tasks: each is a process that may take much memory.
const COMMANDS_MAX: usize = 4;

/// Runs tasks, and knows those that run here.
#[derive(Debug, Default)]
pub(crate) struct Runner {
    state: Mutex<Running>,
    changed: Condvar,
    /// Shares of backups that this node takes.
    pub shares: Mutex<Shares>,
    tasks: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Running {
    /// Names of tasks.
    names: BTreeSet<String>,
    /// Commands of requests.
    commands: usize,
    is_over: bool,
    /// True if something may be due that was not before.
    is_woken: bool,
}

/// A task to be run.
pub(crate) struct Job {
    /// `BACKUP`, `MERGE` or `RESTORE`.
    pub kind: &'static str,
    pub command: Command,
}

/// The place of a command of a request, until it is dropped.
struct CommandPlace<'a>(&'a Runner);

impl Drop for CommandPlace<'_> {
    fn drop(&mut self) {
        self.0.state.lock().commands -= 1;
    }
}

impl Runner {
    /// Returns how many tasks have begun here, and how many have failed.
    pub fn counts(&self) -> [u64; 2] {
        [&self.tasks, &self.failures].map(|count| count.load(Ordering::Relaxed))
    }

    /// Begins to look for tasks that are due, in a thread.
    pub fn start(runner: &Arc<Runner>, node: &Arc<Node>) {
        let (own, node) = (Arc::clone(runner), Arc::clone(node));
        let thread = std::thread::Builder::new().name("backup".to_owned());
        let spawned = thread.spawn(move || {
            while !own.wait(TURN) {
                own.schedule(&node);
            }
        });
        if let Err(error) = spawned {
            tracing::error!("backups are not scheduled: {error}");
        }
    }

    /// Ends all tasks and the threads.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Looks for what is due, now.
    pub fn wake(&self) {
        self.state.lock().is_woken = true;
        self.changed.notify_all();
    }

    /// Waits for a time, or until something may be due. Returns true if it is over.
    fn wait(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_over && !state.is_woken {
            self.changed.wait_for(&mut state, time);
        }
        state.is_woken = false;
        state.is_over
    }

    /// Waits for a time, or until the end. Returns true if it is over.
    fn wait_for_end(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_over {
            self.changed.wait_for(&mut state, time);
        }
        state.is_over
    }

    /// Runs a command in the thread of the caller. Returns its output.
    ///
    /// # Errors
    /// As [`Command::run`], and when [`COMMANDS_MAX`] others run.
    pub fn run(&self, command: &Command) -> Result<String, String> {
        let _place = self.enter().ok_or("too many requests about repositories: try again")?;
        command.run(|time| self.wait_for_end(time)).map(|(output, _)| output)
    }

    /// Takes a place for a command of a request; `None` if there is none.
    fn enter(&self) -> Option<CommandPlace<'_>> {
        let mut state = self.state.lock();
        (state.commands < COMMANDS_MAX).then(|| {
            state.commands += 1;
            CommandPlace(self)
        })
    }

    /// Runs the command of a task. Returns what it has said, also about what it has left out.
    fn run_task(&self, command: &Command) -> Result<String, String> {
        let (output, reported) = command.run(|time| self.wait_for_end(time))?;
        Ok(format!("{output}\n{reported}").trim().to_owned())
    }

    /// Runs the command of a share. Returns what it could not do.
    ///
    /// # Errors
    /// As [`Command::run`].
    pub fn run_share(&self, command: &Command) -> Result<String, String> {
        command.run(|time| self.wait_for_end(time)).map(|(_, reported)| reported)
    }

    /// Reads a repository, with its version. A task that nobody runs any more has ended.
    ///
    /// # Errors
    /// 404.
    pub fn repository(
        &self,
        node: &Node,
        state: State,
        id: &str,
    ) -> Result<(Repository, String), Failure> {
        let missing = || Failure::new(404, "the repository does not exist");
        let (mut found, version) = record::read(node, &state.key(id)).ok_or_else(missing)?;
        self.settle(node, &mut found);
        Ok((found, version))
    }

    /// Ends a task that nobody runs any more. Returns true if there was one.
    pub fn settle(&self, node: &Node, repository: &mut Repository) -> bool {
        let cluster = node.cluster();
        let own = own_uuid(&cluster, node).unwrap_or_default();
        let is_lost = |run: &Run| run.node == own && !self.state.lock().names.contains(&run.name);
        repository.settle(&cluster, is_lost, now_ms(node))
    }

    /// Begins a task: claims the repository, and runs the command in a thread. Returns the name of the task.
    ///
    /// # Errors
    /// 404 without the repository, 409 if it has a task, 503 if this node does not have the service, or the nodes cannot agree.
    pub fn begin(
        self: &Arc<Runner>,
        node: &Arc<Node>,
        state: State,
        id: &str,
        job: Job,
    ) -> Result<String, Failure> {
        let (repository, version) = self.repository(node, state, id)?;
        self.claim(node, repository, version, job)
    }

    fn claim(
        self: &Arc<Runner>,
        node: &Arc<Node>,
        mut repository: Repository,
        version: String,
        job: Job,
    ) -> Result<String, Failure> {
        let cluster = node.cluster();
        let member = cluster.nodes.get(&node.id()).filter(|own| own.services.contains(&NAME));
        let member = member.ok_or_else(|| {
            Failure::new(503, "this node does not have the service backup: ask another one")
        })?;
        repository.check_idle()?;
        let name = format!("{}-{}", job.kind, node.new_uuid());
        let run = Run {
            name: name.clone(),
            kind: job.kind.to_owned(),
            status: Status::Running,
            start_ms: now_ms(node),
            end_ms: 0,
            node: member.uuid.clone(),
            said: String::new(),
        };
        let key = repository.state.key(&repository.id);
        repository.running = Some(run);
        // Known here first: a task that is in the agreed state and not here counts as lost.
        self.state.lock().names.insert(name.clone());
        let claimed = record::put(node, &key, &repository, Expected::Version(version));
        if let Err(failure) = claimed {
            self.state.lock().names.remove(&name);
            return Err(failure);
        }
        self.tasks.fetch_add(1, Ordering::Relaxed);
        let (own, node_of_thread, task) = (Arc::clone(self), Arc::clone(node), name.clone());
        let thread = std::thread::Builder::new().name("backup-task".to_owned());
        let spawned = thread.spawn(move || {
            let outcome = own.run_task(&job.command);
            own.finish(&node_of_thread, &key, &task, outcome);
        });
        if let Err(error) = spawned {
            self.state.lock().names.remove(&name);
            return Err(Failure::new(503, "no thread can be started").because(error.to_string()));
        }
        Ok(name)
    }

    /// Records the outcome of a task.
    fn finish(&self, node: &Arc<Node>, key: &str, name: &str, outcome: Result<String, String>) {
        match &outcome {
            Ok(_) => tracing::info!("backup: {name} is done"),
            Err(reason) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("backup: {name} has failed: {reason}");
            }
        }
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut repository, version)) = record::read::<Repository>(node, key) else {
                break;
            };
            let keep_ms = settings::config(node).history_rotation_period * DAY_MS;
            repository.end(name, outcome.clone(), now_ms(node), keep_ms);
            match record::put(node, key, &repository, Expected::Version(version)) {
                Ok(()) => break,
                // Somebody has changed the repository in between.
                Err(failure) if failure.status == 409 => {}
                Err(failure) if failure.status == 503 && !self.wait_for_end(TURN) => {}
                Err(failure) => {
                    tracing::warn!("backup: the outcome of {name} is lost: {}", failure.message);
                    break;
                }
            }
        }
        self.state.lock().names.remove(name);
    }

    /// Begins what is due, if this node has the service.
    fn schedule(self: &Arc<Runner>, node: &Arc<Node>) {
        let cluster = node.cluster();
        let is_wanted =
            cluster.nodes.get(&node.id()).is_some_and(|own| own.services.contains(&NAME));
        if !is_wanted {
            return;
        }
        for state in State::ALL {
            for (_, mut repository, version) in record::all::<Repository>(node, &state.key("")) {
                let before = repository.clone();
                self.settle(node, &mut repository);
                let due = match state {
                    State::Active => self.plan(node, &mut repository),
                    State::Archived | State::Imported => None,
                };
                let outcome = match due {
                    Some(job) => self.claim(node, repository, version, job).map(drop),
                    None if repository != before => {
                        let key = state.key(&before.id);
                        record::put(node, &key, &repository, Expected::Version(version))
                    }
                    None => Ok(()),
                };
                // After 409 another node runs the task that is due.
                if let Err(failure) = outcome.as_ref()
                    && failure.status != 409
                {
                    tracing::debug!("backup: {}: {}", before.id, failure.message);
                }
            }
        }
    }

    /// Brings the schedule of a repository in line with its plan. Returns the task that is due; of several the first by name. A task that is
    /// due while another one runs has failed.
    fn plan(&self, node: &Arc<Node>, repository: &mut Repository) -> Option<Job> {
        let plan = plan::find(node, &repository.plan_name)?;
        let now_ms = now_ms(node);
        repository.scheduled.retain(|name, _| plan.tasks.iter().any(|task| task.name == *name));
        let mut due = None;
        for task in &plan.tasks {
            let first = || Scheduled::first(task, now_ms);
            let scheduled = repository.scheduled.entry(task.name.clone()).or_insert_with(first);
            scheduled.task_type = task.task_type;
            if scheduled.next_ms > now_ms {
                continue;
            }
            // Runs that were missed, as no node was there, are made up for by one.
            scheduled.next_ms = task.schedule.next_ms(now_ms);
            if repository.is_paused {
                continue;
            }
            let job = crate::repository::job_of(node, repository, task);
            match job {
                Ok(job) if repository.running.is_none() && due.is_none() => due = Some(job),
                refused => {
                    let reason = match refused {
                        Ok(_) => "another task of the repository was running".to_owned(),
                        Err(reason) => reason,
                    };
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    repository.note(missed(node, task, now_ms, reason), u64::MAX);
                }
            }
        }
        due
    }
}

/// A task that was due and has not run.
fn missed(node: &Node, task: &plan::PlanTask, now_ms: u64, said: String) -> Run {
    let kind = task.task_type.name();
    Run {
        name: format!("{kind}-{}", node.new_uuid()),
        kind: kind.to_owned(),
        status: Status::Failed,
        start_ms: now_ms,
        end_ms: now_ms,
        node: own_uuid(&node.cluster(), node).unwrap_or_default(),
        said,
    }
}

/// The UUID of this node.
pub(crate) fn own_uuid(cluster: &Cluster, node: &Node) -> Option<String> {
    cluster.nodes.get(&node.id()).map(|member| member.uuid.clone())
}

/// The schedule of a repository that was just made.
pub(crate) fn first_schedule(plan: &plan::Plan, now_ms: u64) -> BTreeMap<String, Scheduled> {
    let first = |task: &plan::PlanTask| (task.name.clone(), Scheduled::first(task, now_ms));
    plan.tasks.iter().map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_concurrent_commands_is_limited() {
        let runner = Runner::default();
        let held: Vec<_> = (0..COMMANDS_MAX).map(|_| runner.enter().unwrap()).collect();
        assert!(runner.enter().is_none());
        let refused = runner.run(&Command::new(["--help"])).unwrap_err();
        assert!(refused.contains("try again"), "{refused}");
        drop(held);
        assert!(runner.enter().is_some());
    }
}
