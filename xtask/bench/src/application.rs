//! The application of `conformance/evaluation`, which uses the official Go SDK and reports its results in
//! JSON.

use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use xtask_setup::cluster::{BUCKET, Cluster};
use xtask_setup::command::{run, workspace};
use xtask_setup::node::{PASSWORD, USER};

/// The compiled program.
pub struct Program(PathBuf);

impl Program {
    /// Compiles the program.
    ///
    /// # Errors
    /// Fails when it does not compile.
    pub fn build() -> Result<Program, String> {
        let folder = std::env::temp_dir().join("nacre-evaluation");
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let program = folder.join("evaluation");
        let mut build = Command::new("go");
        build
            .args(["build", "-o"])
            .arg(&program)
            .current_dir(workspace().join("conformance/evaluation"));
        run(&mut build, "compile the client (go is needed, and a module proxy in reach)")?;
        Ok(Program(program))
    }

    /// Starts the program with these arguments on a cluster.
    ///
    /// # Errors
    /// Fails when the system does not.
    pub fn start(&self, cluster: &Cluster, arguments: &[&str]) -> Result<Application, String> {
        let mut command = Command::new(&self.0);
        command
            .args(["-connection", &cluster.connection(), "-user", USER, "-password", PASSWORD])
            .args(["-bucket", BUCKET])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process =
            command.spawn().map_err(|error| format!("cannot start the client: {error}"))?;
        let phases = process.stdin.take().ok_or("the client has no input")?;
        let lines = BufReader::new(process.stdout.take().ok_or("the client has no output")?);
        Ok(Application { process, phases, lines })
    }
}

/// The running program.
pub struct Application {
    process: Child,
    phases: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Application {
    /// Waits until the program reports that it has begun.
    ///
    /// # Errors
    /// Fails when its output is unexpected.
    pub fn wait_until_begun(&mut self) -> Result<(), String> {
        match self.line()?.trim() {
            "begun" => Ok(()),
            line => Err(format!("the client says {line:?}")),
        }
    }

    /// Starts the next phase.
    ///
    /// # Errors
    /// Fails when it has ended.
    pub fn next_phase(&mut self) -> Result<(), String> {
        writeln!(self.phases).map_err(|error| format!("the client has ended: {error}"))
    }

    /// Lets the program end; returns its result.
    ///
    /// # Errors
    /// Fails when the result cannot be parsed, or the program fails.
    pub fn answer<T: DeserializeOwned>(self) -> Result<T, String> {
        let Application { mut process, phases, mut lines } = self;
        drop(phases);
        let mut answer = String::new();
        lines.read_line(&mut answer).map_err(|error| format!("the client: {error}"))?;
        let status = process.wait().map_err(|error| format!("the client: {error}"))?;
        serde_json::from_str(&answer)
            .map_err(|error| format!("the client ({status}) says {answer:?}: {error}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(|error| format!("the client: {error}"))?;
        Ok(line)
    }
}
