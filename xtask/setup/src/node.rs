//! A node of this workspace, built and run while a chore needs it.

use crate::command::{cargo, run, target_dir, wrapped};
use crate::{plugins, tools};
use nacre_conformance::http::{self, Answer};
use nacre_conformance::kv::KvClient;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The administrator of nodes that chores start.
pub const USER: &str = "Administrator";
/// Its password.
pub const PASSWORD: &str = "password";

/// The default address of nodes.
const LOCALHOST: &str = "127.0.0.1";

/// The environment variable with the folder for the nodes' log files.
const LOGS: &str = "NACRE_CHORE_LOGS";

/// Time limit for the start of a node; the first start compiles its plugins.
const START_TIMEOUT: Duration = Duration::from_secs(120);

const NOOP: u8 = 0x0a;

/// Builds plugins and server; returns the path of the binary, whose plugins are compiled.
///
/// # Errors
/// Reports what is missing or does not compile.
pub fn build(profile: &str) -> Result<PathBuf, String> {
    plugins::build()?;
    let mut build = cargo();
    build.args(["build", "--quiet", "-p", "nacre-server", "--profile", profile]);
    run(&mut build, "build the server")?;
    built(profile)
}

/// Returns the existing binary, with its plugins compiled for this machine.
///
/// # Errors
/// Fails when the binary does not exist or cannot compile the plugins.
pub fn built(profile: &str) -> Result<PathBuf, String> {
    let folder = if profile == "dev" { "debug" } else { profile };
    let binary = target_dir()?.join(folder).join("nacre");
    let mut compile = Command::new(&binary);
    compile.args(["plugin", "compile", "--plugin-cache"]).arg(aot_dir()?).stdout(Stdio::null());
    run(&mut compile, "compile the plugins for this machine")?;
    Ok(binary)
}

/// Returns the cache of compiled plugins that the nodes of all chores share.
///
/// # Errors
/// As for [`tools::dir`].
pub fn aot_dir() -> Result<PathBuf, String> {
    Ok(tools::dir()?.join("aot"))
}

/// Returns the data directory of a node of this chore at the given address and port.
pub fn data_dir(host: &str, port_base: Option<u16>) -> PathBuf {
    let name = format!("nacre-chore-{}-{host}-{}", std::process::id(), port_base.unwrap_or(0));
    std::env::temp_dir().join(name)
}

/// A running node. Its data directory is removed with it.
pub struct Node {
    process: Child,
    command: Command,
    data_dir: PathBuf,
    host: &'static str,
    /// The lowest port; `None` for the default ports.
    port_base: Option<u16>,
}

impl Node {
    /// Starts a node with an administrator and `buckets`, and waits until it answers.
    ///
    /// # Errors
    /// Fails when it does not start.
    pub fn start(
        binary: &Path,
        port_base: Option<u16>,
        buckets: &[&str],
        wrapper: &[&str],
    ) -> Result<Node, String> {
        let mut node = Node::spawn(binary, port_base, buckets, wrapper)?;
        node.wait_until_ready()?;
        Ok(node)
    }

    /// Like [`Node::start`], without waiting.
    ///
    /// # Errors
    /// Fails when a port is in use or the program cannot be run.
    pub fn spawn(
        binary: &Path,
        port_base: Option<u16>,
        buckets: &[&str],
        wrapper: &[&str],
    ) -> Result<Node, String> {
        Node::spawn_at(binary, LOCALHOST, port_base, buckets, wrapper)
    }

    /// Starts a node without an administrator, and waits until it answers. It ends when it is dropped.
    ///
    /// # Errors
    /// Fails when it does not start.
    pub fn start_unclaimed(binary: &Path, port_base: u16) -> Result<Node, String> {
        let mut node = Node::spawn_as(binary, LOCALHOST, Some(port_base), &[], &["--unclaimed"])?;
        node.wait_until_ready()?;
        Ok(node)
    }

    /// Like [`Node::spawn`], on another address of this machine.
    ///
    /// # Errors
    /// As for [`Node::spawn`].
    pub fn spawn_at(
        binary: &Path,
        host: &'static str,
        port_base: Option<u16>,
        buckets: &[&str],
        wrapper: &[&str],
    ) -> Result<Node, String> {
        let buckets = buckets.join(",");
        let arguments = ["--user", USER, "--password", PASSWORD, "--buckets", &buckets];
        Node::spawn_as(binary, host, port_base, wrapper, &arguments)
    }

    fn spawn_as(
        binary: &Path,
        host: &'static str,
        port_base: Option<u16>,
        wrapper: &[&str],
        arguments: &[&str],
    ) -> Result<Node, String> {
        // Another node there would answer in place of this one.
        for port in [port_base.unwrap_or(8091), port_base.map_or(11210, |base| base + 10)] {
            match std::net::TcpListener::bind((host, port)) {
                // This process cannot bind addresses in the namespaces of other networks.
                Err(error) if error.kind() != ErrorKind::AddrNotAvailable => {
                    return Err(format!("{host}:{port} is needed for a node: {error}"));
                }
                _ => {}
            }
        }
        let data_dir = data_dir(host, port_base);
        let _ = std::fs::remove_dir_all(&data_dir);
        let mut command = wrapped(binary, wrapper);
        command.arg("serve").arg("--data-dir").arg(&data_dir).arg("--plugin-cache").arg(aot_dir()?);
        command.args(["--host", host]).args(arguments);
        // Functions in conformance cases call a server that the runner runs on this machine.
        command.env("NACRE_ALLOW_OUTGOING", "127.0.0.0/8");
        if let Some(base) = port_base {
            command.args(["--port-base", &base.to_string()]);
        }
        let log = std::env::var("NACRE_LOG").unwrap_or_else(|_| "error".into());
        command.env("NACRE_LOG", log).stdout(Stdio::null()).stdin(Stdio::null());
        if let Some(folder) = std::env::var_os(LOGS) {
            let path = Path::new(&folder).join(format!("{host}-{}.log", port_base.unwrap_or(0)));
            let file = std::fs::File::create(&path);
            command.stderr(file.map_err(|error| format!("{}: {error}", path.display()))?);
        }
        let process = spawn(&mut command)?;
        Ok(Node { process, command, data_dir, host, port_base })
    }

    /// Starts the node again on the same data, after [`Node::halt`]; does not wait for it.
    ///
    /// # Errors
    /// Fails when the program cannot be run.
    pub fn respawn(&mut self) -> Result<(), String> {
        self.process = spawn(&mut self.command)?;
        Ok(())
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the first answer on the key-value port.
    ///
    /// # Errors
    /// Fails when there is none within the time limit of a start, counted from `begun`.
    pub fn wait_for_key_value(&self, begun: Instant) -> Result<(), String> {
        let answers = || {
            let mut client = KvClient::open((self.host, self.kv_port())).ok()?;
            client.request(NOOP, 0, &[], &[], &[], 0).ok()
        };
        while answers().is_none() {
            if begun.elapsed() > START_TIMEOUT {
                return Err("the node does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until the node answers.
    ///
    /// # Errors
    /// Fails when it does not start.
    pub fn wait_until_ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(format!("the node ended while it started: {status}"));
            }
            if self.rest("GET", "/pools", &[]).is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err("the node does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the management address for other nodes.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.mgmt_port())
    }

    /// Returns the port of cluster management.
    pub fn mgmt_port(&self) -> u16 {
        self.port_base.unwrap_or(8091)
    }

    /// Returns the port of views.
    pub fn views_port(&self) -> u16 {
        self.mgmt_port() + 1
    }

    /// Returns the port of queries.
    pub fn query_port(&self) -> u16 {
        self.mgmt_port() + 2
    }

    /// Returns the port of functions.
    pub fn eventing_port(&self) -> u16 {
        self.mgmt_port() + 5
    }

    /// Returns the port of the key-value protocol.
    pub fn kv_port(&self) -> u16 {
        self.port_base.map_or(11210, |base| base + 10)
    }

    /// Sends a request to cluster management; the body is a form.
    ///
    /// # Errors
    /// Fails when it does not answer.
    pub fn rest(&self, method: &str, path: &str, form: &[(&str, &str)]) -> Result<Answer, String> {
        let form: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={}", http::escape(value))).collect();
        self.request(
            self.mgmt_port(),
            method,
            path,
            "application/x-www-form-urlencoded",
            form.join("&").as_bytes(),
        )
    }

    /// Runs `nacre cluster` on the node.
    ///
    /// # Errors
    /// Reports the message of the command.
    pub fn cluster(&self, binary: &Path, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(binary);
        command
            .args(["cluster", "--server", &format!("http://{}", self.address())])
            .args(["--user", USER, "--password", PASSWORD])
            .args(arguments)
            .stdout(Stdio::null());
        run(&mut command, &format!("do `nacre cluster {}`", arguments.join(" ")))
    }

    /// Runs `nacre plugin` on the node.
    ///
    /// # Errors
    /// Reports the message of the command.
    pub fn plugin(&self, binary: &Path, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(binary);
        command
            .arg("plugin")
            .args(arguments)
            .env("NACRE_SERVER", format!("http://{}", self.address()))
            .env("NACRE_USER", USER)
            .env("NACRE_PASSWORD", PASSWORD)
            .stdout(Stdio::null());
        run(&mut command, &format!("do `nacre plugin {}`", arguments.join(" ")))
    }

    /// Sends a JSON request to the query port.
    ///
    /// # Errors
    /// Fails when it does not answer.
    pub fn query(&self, request: &serde_json::Value) -> Result<Answer, String> {
        let body = request.to_string();
        self.request(
            self.query_port(),
            "POST",
            "/query/service",
            "application/json",
            body.as_bytes(),
        )
    }

    /// Sends a request to the port of functions; the body is JSON.
    ///
    /// # Errors
    /// Fails when it does not answer.
    pub fn eventing(&self, method: &str, path: &str, body: &str) -> Result<Answer, String> {
        self.request(self.eventing_port(), method, path, "application/json", body.as_bytes())
    }

    /// Sends a request to the views port.
    ///
    /// # Errors
    /// Fails when it does not answer.
    pub fn views(&self, method: &str, path: &str, body: &str) -> Result<Answer, String> {
        self.request(self.views_port(), method, path, "application/json", body.as_bytes())
    }

    fn request(
        &self,
        port: u16,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        let address = format!("{}:{port}", self.host);
        http::request(&address, method, path, Some((USER, PASSWORD)), content_type, body)
            .map_err(|error| format!("{method} {address}{path}: {error}"))
    }

    /// Deploys a design document.
    ///
    /// # Errors
    /// Reports the node's refusal.
    pub fn put_design(&self, bucket: &str, name: &str, document: &str) -> Result<(), String> {
        let answer = self.views("PUT", &format!("/{bucket}/_design/{name}"), document)?;
        match answer.status {
            201 => Ok(()),
            _ => Err(format!("design document {name}: {}", answer.text())),
        }
    }

    /// Returns the up-to-date rows of a view.
    ///
    /// # Errors
    /// Reports the node's refusal.
    pub fn view(
        &self,
        bucket: &str,
        design: &str,
        view: &str,
        query: &str,
    ) -> Result<Vec<serde_json::Value>, String> {
        let path = format!("/{bucket}/_design/{design}/_view/{view}?stale=false&{query}");
        let answer = self.views("GET", &path, "")?;
        let text = answer.text();
        let value = answer.json().map_err(|error| format!("{path}: {error}"))?;
        value["rows"].as_array().cloned().ok_or(format!("{path}: {text}"))
    }

    /// Stops the node when this program is asked to end. The program then ends with the node and removes its data.
    ///
    /// # Errors
    /// Fails when signals cannot be handled.
    pub fn end_together(&self) -> Result<(), String> {
        let mut signals = Signals::new([SIGTERM, SIGHUP])
            .map_err(|error| format!("cannot wait for signals: {error}"))?;
        let node = self.process.id() as i32;
        std::thread::spawn(move || {
            for _ in &mut signals {
                // SAFETY: kill takes only numbers. The process is a child that is waited for at the end of this program.
                unsafe { libc::kill(node, SIGTERM) };
            }
        });
        Ok(())
    }

    /// Waits until the node ends, for example after Ctrl-C.
    ///
    /// # Errors
    /// Fails when it does not end cleanly.
    pub fn wait(mut self) -> Result<(), String> {
        self.wait_for_end()
    }

    /// Stops the node as an operator would, and waits for its clean end. Removes its data.
    ///
    /// # Errors
    /// Fails when it does not end cleanly.
    pub fn stop(mut self) -> Result<(), String> {
        self.halt()
    }

    /// Like [`Node::stop`], but keeps the data for [`Node::respawn`].
    ///
    /// # Errors
    /// Fails when it does not end cleanly.
    pub fn halt(&mut self) -> Result<(), String> {
        self.signal(libc::SIGTERM);
        self.wait_for_end()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes only numbers, and the process is a child that was not waited for.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// Returns how the process ended, if it has ended.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Kills the node, as a crash would; keeps the data for [`Node::respawn`].
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn kill(&mut self) -> Result<(), String> {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        killed.map(drop).map_err(|error| format!("cannot kill the node: {error}"))
    }

    /// Returns its data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    fn wait_for_end(&mut self) -> Result<(), String> {
        let status = self.process.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the node ended with {status}")) }
    }
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    command.spawn().map_err(|error| {
        format!("cannot start {}: {error}", command.get_program().to_string_lossy())
    })
}

/// Returns the resident set size of a process.
///
/// # Errors
/// Fails when there is no such process.
pub fn memory_bytes(id: u32) -> Result<u64, String> {
    status_bytes(id, "VmRSS:")
}

/// Returns the private memory of a process, without pages of files.
///
/// # Errors
/// Fails when there is no such process.
pub fn own_memory_bytes(id: u32) -> Result<u64, String> {
    status_bytes(id, "RssAnon:")
}

fn status_bytes(id: u32, name: &str) -> Result<u64, String> {
    let path = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let kib = resident.trim().trim_end_matches(" kB").parse::<u64>();
    kib.map(|kib| kib << 10).map_err(|_| format!("{path} does not report its memory"))
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.data_dir);
    }
}
