//! A gateway process, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const USER: &str = "owner";
pub const PASSWORD: &str = "secret";
/// Time limit for any step.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const DOCUMENTS: &str = "/api/v1/buckets/default/documents";

pub struct Gateway {
    process: Child,
    pub address: String,
}

/// An answer: status, head in lower case, body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub fn login() -> String {
    format!("Authorization: {}\r\n", nacre_conformance::http::basic(USER, PASSWORD))
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre-edge"));
    command.arg("--folder").arg(folder).args(arguments);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs a gateway that is expected not to start.
pub fn failed_start(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// Repeats a request until it has an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Gateway {
    /// Starts a gateway with an owner.
    pub fn start(folder: &Path, arguments: &[&str]) -> Gateway {
        let own = ["--user", USER, "--password", PASSWORD];
        Gateway::start_with(folder, &[&own, arguments].concat())
    }

    /// Starts a gateway with only these arguments.
    pub fn start_with(folder: &Path, arguments: &[&str]) -> Gateway {
        let mut process = command(folder, arguments).spawn().unwrap();
        let mut lines =
            BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = loop {
            let Some(line) = lines.next() else { panic!("it ended: {said:?}") };
            if let Some((_, rest)) = line.split_once("://") {
                break rest.split(';').next().unwrap().to_owned();
            }
            said.push(line);
        };
        // The output must be read, or the process would block.
        std::thread::spawn(move || lines.for_each(drop));
        Gateway { process, address }
    }

    /// Sends a request with the given header lines.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n",
            self.address
        );
        // One write: the gateway may answer and close before it has read a second one.
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let head = head.replace("\r\n", "\n");
        Answer { status, head, body: body.to_owned() }
    }

    /// Sends a request as the owner.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send(method, path, &login(), body)
    }

    /// Kills the process without a warning.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends the process with SIGTERM; returns true if it reports success.
    pub fn stop(mut self) -> bool {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.process.wait().unwrap().success()
    }

    /// Returns the private memory of the process, in bytes.
    pub fn own_memory_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
