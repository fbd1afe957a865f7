//! Other servers, run on one processor for comparison.

use super::PORT_BASE;
use clap::ValueEnum;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Server to compare with.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// memcached with one thread, at its best: as many requests handled at a time as it likes
    Memcached,
    /// Redis with one thread, without persistence
    Redis,
    /// Both
    All,
}

/// A running server, which ends when this value is dropped.
pub struct Process {
    child: Child,
    /// The name.
    pub name: &'static str,
    /// A description of how it runs.
    pub title: &'static str,
    /// Options that make `nacre bench kv` use it.
    pub target: Vec<String>,
}

impl Peer {
    /// Starts the chosen servers that are installed. Prints the names of the others, with their packages.
    pub fn start_all(self) -> Vec<Process> {
        let wanted = [Peer::Memcached, Peer::Redis];
        let wanted = wanted.into_iter().filter(|peer| self == Peer::All || self == *peer);
        let started = wanted.map(Peer::start);
        started
            .filter_map(|peer| peer.map_err(|reason| println!("left out: {reason}")).ok())
            .collect()
    }

    /// Starts one server.
    ///
    /// # Errors
    /// Reports what is missing, and the package that contains it.
    pub fn start(self) -> Result<Process, String> {
        let (title, program, port, protocol) = match self {
            Peer::Redis => ("redis, one thread", "redis-server", PORT_BASE + 51, "redis"),
            Peer::Memcached | Peer::All => {
                ("memcached -t 1 -R 500", "memcached", PORT_BASE + 50, "memcached")
            }
        };
        let mut command = Command::new("taskset");
        command.args(["-c", "0", program]);
        match self {
            Peer::Redis => {
                command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            }
            Peer::Memcached | Peer::All => command
                .args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-R", "500", "-m", "4096"])
                .args(["-I", "32m", "-u", "root"]),
        };
        command.args([if protocol == "redis" { "--port" } else { "-p" }, &port.to_string()]);
        // The Debian packages have the names of their programs.
        let install = format!("{program} does not run: apt-get install {program} util-linux");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|_| install.clone())?;
        let target = ["--server", &format!("127.0.0.1:{port}"), "--protocol", protocol];
        let mut process =
            Process { child, name: protocol, title, target: target.map(str::to_owned).into() };
        for _ in 0..500 {
            if process.child.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(install);
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(process);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("{program} does not answer on port {port}"))
    }
}

impl Process {
    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
