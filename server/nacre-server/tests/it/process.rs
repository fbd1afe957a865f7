//! A node as a process.

use nacre_conformance::http::{self, Answer};
use nacre_conformance::kv::KvClient;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub const USER: &str = "Administrator";
pub const PASSWORD: &str = "password";
pub const BUCKET: &str = "default";

/// Ports that a node takes.
const PORTS: u16 = 20;
/// Port ranges of the nodes of this test binary, relative to `NACRE_TEST_PORT_BASE`.
static NEXT_PORT_OFFSET: AtomicU16 = AtomicU16::new(0);
const PORT_BASE_DEFAULT: u16 = 12_000;
/// The first port that the system gives to connections, on Linux: a node there would find some taken from time to time.
const EPHEMERAL_PORTS: u16 = 32_768;

/// How long a node may take to answer. The first start on a machine compiles the views plugin.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Server {
    process: Child,
    pub port_base: u16,
}

/// The first of as many ports as a node takes, which no other program listens on.
pub fn port_base() -> u16 {
    let first = std::env::var("NACRE_TEST_PORT_BASE")
        .map_or(PORT_BASE_DEFAULT, |base| base.parse().expect("NACRE_TEST_PORT_BASE is a port"));
    loop {
        let base = first + NEXT_PORT_OFFSET.fetch_add(PORTS, Ordering::Relaxed);
        assert!(base + PORTS <= EPHEMERAL_PORTS, "no ports are left for another node");
        if (base..base + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

/// A number that makes a test longer than `default` does: the value of the environment variable `name`.
pub fn from_env(name: &str, default: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{name} is a number"));
    std::env::var(name).map_or(default, number)
}

fn command(data_dir: &Path, port_base: u16, buckets: &str) -> Command {
    let mut command = bare(data_dir, port_base);
    command.args(["--user", USER, "--password", PASSWORD, "--buckets", buckets]);
    command
}

fn bare(data_dir: &Path, port_base: u16) -> Command {
    // Endurance tests can run another build of the node.
    let binary = std::env::var_os("NACRE_TEST_NODE");
    let mut command = Command::new(binary.unwrap_or(env!("CARGO_BIN_EXE_nacre").into()));
    command.arg("serve");
    command.args(["--port-base", &port_base.to_string()]).arg("--data-dir").arg(data_dir);
    let shared_cache = std::env::temp_dir().join("nacre-test-plugins");
    command.env(
        "NACRE_PLUGIN_CACHE",
        std::env::var_os("NACRE_PLUGIN_CACHE").unwrap_or(shared_cache.into()),
    );
    command.env("NACRE_LOG", "error").stdin(Stdio::null());
    command
}

/// Runs a node that is expected not to start.
pub fn failed_start(data_dir: &Path) -> Output {
    command(data_dir, port_base(), BUCKET).output().unwrap()
}

/// Asks again and again until there is an answer.
pub fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "no answer in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Server {
    pub fn start(data_dir: &Path) -> Server {
        Server::start_at(data_dir, port_base())
    }

    pub fn start_at(data_dir: &Path, port_base: u16) -> Server {
        Server::start_with(data_dir, port_base, &[])
    }

    /// Starts it with further arguments.
    pub fn start_with(data_dir: &Path, port_base: u16, arguments: &[&str]) -> Server {
        Server::spawn(command(data_dir, port_base, BUCKET), port_base, arguments)
    }

    /// Starts it with variables in its environment.
    pub fn start_with_env(data_dir: &Path, port_base: u16, variables: &[(&str, &str)]) -> Server {
        let mut command = command(data_dir, port_base, BUCKET);
        command.envs(variables.iter().copied());
        Server::spawn(command, port_base, &[])
    }

    /// Starts one without buckets, as it may join a cluster.
    pub fn start_empty(data_dir: &Path, port_base: u16) -> Server {
        Server::spawn(command(data_dir, port_base, ""), port_base, &[])
    }

    /// Starts one without buckets that listens at all addresses, those of IPv6 too.
    pub fn start_at_all_addresses(data_dir: &Path, port_base: u16) -> Server {
        Server::spawn(command(data_dir, port_base, ""), port_base, &["--host", "::"])
    }

    /// Starts one without buckets that has yet to compile its plugins, which takes seconds.
    pub fn start_cold(data_dir: &Path, port_base: u16) -> Server {
        let mut command = command(data_dir, port_base, "");
        command.arg("--plugin-cache").arg(data_dir.join("plugins"));
        Server::spawn(command, port_base, &[])
    }

    /// Starts one that waits for somebody to name its administrator.
    pub fn start_unclaimed(data_dir: &Path, port_base: u16) -> Server {
        Server::spawn(bare(data_dir, port_base), port_base, &["--unclaimed"])
    }

    /// Starts a node whose data directory is a disk of this many MiB, which is removed with it, as is the path of
    /// [`Server::disk`].
    pub fn start_on_disk(data_dir: &Path, mib: usize) -> Server {
        let port_base = port_base();
        let node = command(data_dir, port_base, BUCKET);
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg(r#"mount -t tmpfs -o size="$1"m tmpfs "$2" && shift 2 && exec "$@""#);
        command.arg("sh").arg(mib.to_string()).arg(data_dir);
        command.arg(node.get_program()).args(node.get_args());
        command.envs(node.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Server::spawn(command, port_base, &[])
    }

    /// Returns the path of such a node's disk.
    pub fn disk(&self, data_dir: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.process.id(), data_dir.display()))
    }

    fn spawn(mut command: Command, port_base: u16, arguments: &[&str]) -> Server {
        let process = command.args(arguments).stdout(Stdio::null()).spawn().unwrap();
        let mut server = Server { process, port_base };
        server.wait_for("the node", |server| {
            assert!(
                server.process.try_wait().unwrap().is_none(),
                "the node ended while it started"
            );
            // The node answers, even if the administrator has another password.
            let answer = server.rest("GET", "/pools", "");
            answer.is_ok_and(|answer| [200, 401].contains(&answer.status)).then_some(())
        });
        server
    }

    /// Asks again and again until there is an answer.
    pub fn wait_for<T>(&mut self, what: &str, mut ask: impl FnMut(&mut Server) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "still waiting for {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Memory of the process that is in use, as the system counts it.
    /// Memory that is the node's own: without the pages of the program's file, which the system drops when it needs them.
    pub fn own_memory_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    pub fn memory_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// The number of threads of this name.
    pub fn threads(&self, name: &str) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        // A thread may end meanwhile.
        names.filter(|found| found.as_ref().is_ok_and(|found| found.trim() == name)).count()
    }

    pub fn kv_address(&self) -> String {
        format!("127.0.0.1:{}", self.port_base + 10)
    }

    pub fn client(&self) -> KvClient {
        KvClient::connect(self.kv_address(), USER, PASSWORD, BUCKET).unwrap()
    }

    pub fn rest(&self, method: &str, path: &str, form: &str) -> std::io::Result<Answer> {
        let address = format!("127.0.0.1:{}", self.port_base);
        http::request(
            &address,
            method,
            path,
            Some((USER, PASSWORD)),
            "application/x-www-form-urlencoded",
            form.as_bytes(),
        )
    }

    pub fn views(&self, method: &str, path: &str, body: &str) -> Answer {
        let address = format!("127.0.0.1:{}", self.port_base + 1);
        let (user, json) = (Some((USER, PASSWORD)), "application/json");
        http::request_within(PATIENCE, &address, method, path, user, json, body.as_bytes()).unwrap()
    }

    /// The answer to a request of SQL++, as JSON.
    pub fn query(&self, body: &str) -> serde_json::Value {
        let address = format!("127.0.0.1:{}", self.port_base + 2);
        let (user, json) = (Some((USER, PASSWORD)), "application/json");
        let answer = http::request(&address, "POST", "/query/service", user, json, body.as_bytes());
        answer.unwrap().json().unwrap()
    }

    /// Deploys a design document.
    pub fn put_design(&self, name: &str, document: &str) {
        let answer = self.views("PUT", &format!("/{BUCKET}/_design/{name}"), document);
        let hint = "`cargo xtask plugins` builds what the tests need";
        assert_eq!(answer.status, 201, "{} ({hint})", answer.text());
    }

    /// The rows of a view, fresh.
    pub fn rows(&self, design: &str, view: &str, query: &str) -> Vec<serde_json::Value> {
        let answer = self.views(
            "GET",
            &format!("/{BUCKET}/_design/{design}/_view/{view}?stale=false&{query}"),
            "",
        );
        let value = answer.json().unwrap();
        value["rows"].as_array().unwrap_or_else(|| panic!("no rows: {value}")).clone()
    }

    /// Lets the process do nothing, while its connections stay, until [`Server::go_on`].
    pub fn freeze(&self) {
        // SAFETY: kill takes numbers only, and the process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, libc::SIGSTOP) }, 0);
    }

    /// Ends [`Server::freeze`].
    pub fn go_on(&self) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, libc::SIGCONT) }, 0);
    }

    /// Like `kill -9`: nothing is written any more.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Like an operator's stop.
    pub fn stop(mut self) {
        // SAFETY: kill takes numbers only, and the process is a child that was not waited for.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
