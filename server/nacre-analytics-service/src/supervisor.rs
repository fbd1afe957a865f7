//! The process of analytics: started while the node has the service, and again when it ends.

use crate::NAME;
use nacre_cluster::Ports;
use nacre_node::Node;
use parking_lot::{Condvar, Mutex};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Names the program, if it is not beside that of the node.
const VARIABLE: &str = "NACRE_ANALYTICS";
/// Name of the program.
const PROGRAM: &str = "nacre-analytics";
/// Time between two looks at the process, and at whether it is wanted.
const TURN: Duration = Duration::from_millis(250);
/// Pause before a process that has ended is started again: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A process that ran so many turns was well: the pause is the first again.
const TURNS_WELL: u32 = 240;
/// Memory of the process in MiB. Source: the quota that nodes announce for it.
const MEMORY_MIB: u64 = 1024;

/// A process that answers.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// Port on the loopback.
    pub port: u16,
    /// Secret that it asks for.
    pub token: String,
}

/// Starts the process, and knows its state.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    state: Mutex<State>,
    changed: Condvar,
    /// Starts of the process.
    pub starts: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    /// Why there is none.
    reason: String,
    is_over: bool,
}

impl Supervisor {
    /// The process.
    ///
    /// # Errors
    /// Why there is none, as part of a sentence.
    pub fn process(&self) -> Result<Process, String> {
        let state = self.state.lock();
        state.process.clone().ok_or_else(|| match state.reason.as_str() {
            "" => "it is starting".to_owned(),
            reason => reason.to_owned(),
        })
    }

    /// Begins to supervise, in a thread.
    pub fn start(supervisor: &Arc<Supervisor>, node: &Arc<Node>) {
        let (own, node) = (Arc::clone(supervisor), Arc::clone(node));
        let thread = std::thread::Builder::new().name("analytics".to_owned());
        if let Err(error) = thread.spawn(move || own.run(&node)) {
            tracing::error!("analytics cannot be supervised: {error}");
        }
    }

    /// Ends the process and the thread.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits for a time, or until the end. Returns true if it is over.
    fn wait(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_over {
            self.changed.wait_for(&mut state, time);
        }
        state.is_over
    }

    fn set(&self, process: Option<Process>, reason: impl Into<String>) {
        let mut state = self.state.lock();
        state.process = process;
        state.reason = reason.into();
    }

    fn run(&self, node: &Arc<Node>) {
        let mut pause = PAUSE.0;
        loop {
            if !is_wanted(node) {
                self.set(None, "this node does not have the service cbas");
                if self.wait(TURN) {
                    return;
                }
                continue;
            }
            match self.serve(node) {
                Ok(turns) if turns >= TURNS_WELL => pause = PAUSE.0,
                Ok(_) => {}
                Err(reason) => {
                    tracing::warn!("analytics does not run: {reason}");
                    self.set(None, reason);
                }
            }
            if self.wait(pause) {
                return;
            }
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Runs the process until it ends or is not wanted. Returns the number of turns for which it ran.
    fn serve(&self, node: &Arc<Node>) -> Result<u32, String> {
        let program = program()?;
        let token = node.new_secret().reveal().to_owned();
        let mut child = command(node, program, &token)?
            .spawn()
            .map_err(|error| format!("the program {PROGRAM} cannot be started: {error}"))?;
        self.starts.fetch_add(1, Ordering::Relaxed);
        let outcome = self.attend(node, &mut child, token);
        // A process that is not wanted is told by the end of its input, and need not listen.
        drop(child.stdin.take());
        let _ = child.kill();
        let _ = child.wait();
        outcome
    }

    fn attend(&self, node: &Arc<Node>, child: &mut Child, token: String) -> Result<u32, String> {
        let output = child.stdout.take().ok_or("its output cannot be read")?;
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let port = read.ok().and_then(|_| line.trim().parse().ok());
        let port =
            port.ok_or_else(|| format!("the program {PROGRAM} has ended: the log says why"))?;
        tracing::info!(port, "analytics serves");
        self.set(Some(Process { port, token }), "");
        for turns in 0.. {
            let is_over = self.wait(TURN);
            if let Ok(Some(status)) = child.try_wait() {
                self.set(None, format!("it has ended ({status}) and is started again"));
                tracing::warn!("analytics has ended: {status}");
                return Ok(turns);
            }
            if is_over || !is_wanted(node) {
                self.set(None, "it is being stopped");
                return Ok(turns);
            }
        }
        Ok(u32::MAX)
    }
}

/// Returns true if this node has the service.
fn is_wanted(node: &Node) -> bool {
    let cluster = node.cluster();
    cluster.nodes.get(&node.id()).is_some_and(|member| member.services.contains(&NAME))
}

/// The program: the one that a variable names, or the one beside that of the node.
fn program() -> Result<PathBuf, String> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(PROGRAM));
    let program = named.or_else(beside).filter(|program| program.is_file());
    program.ok_or_else(|| {
        format!(
            "the program {PROGRAM} is not installed: put it next to nacre, or name it with {VARIABLE}"
        )
    })
}

fn command(node: &Node, program: PathBuf, token: &str) -> Result<Command, String> {
    let folder = node.folder("analytics").ok_or("this node keeps no files")?;
    let cluster = node.cluster();
    let own = node.endpoints();
    let own_port = own.plain.get(Ports::KV).map(|port| format!("127.0.0.1:{port}"));
    let others = node.local_node().nodes(&cluster).into_iter().filter(|(id, _)| *id != node.id());
    let others = others.filter_map(|(_, endpoints)| {
        endpoints.host.as_ref()?;
        Some(endpoints.address(endpoints.plain.get(Ports::KV)?))
    });
    let keys: Vec<String> = own_port.into_iter().chain(others).collect();
    let mut command = Command::new(program);
    command
        .args(["--listen", "127.0.0.1:0", "--attached", "--keys", &keys.join(",")])
        .args(["--user", nacre_auth::ANALYTICS, "--memory", &MEMORY_MIB.to_string()])
        .arg("--data")
        .arg(folder)
        // Secrets stay out of the list of processes.
        .env("NACRE_PASSWORD", nacre_auth::analytics_password(cluster.secret.reveal()))
        .env("NACRE_ANALYTICS_TOKEN", token)
        .env_remove("NACRE_USER")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    Ok(command)
}
