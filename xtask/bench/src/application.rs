//! `conformance/evaluation`: an application with the official Go SDK, which says in JSON what it has seen.

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
    /// Compiles it.
    ///
    /// # Errors
    /// When it does not compile.
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

    /// Starts it with these arguments on a cluster.
    ///
    /// # Errors
    /// When the system does not.
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
    /// Waits until it says that it has begun.
    ///
    /// # Errors
    /// When it says something else.
    pub fn wait_until_begun(&mut self) -> Result<(), String> {
        match self.line()?.trim() {
            "begun" => Ok(()),
            line => Err(format!("the client says {line:?}")),
        }
    }

    /// Begins another phase.
    ///
    /// # Errors
    /// When it has ended.
    pub fn next_phase(&mut self) -> Result<(), String> {
        writeln!(self.phases).map_err(|error| format!("the client has ended: {error}"))
    }

    /// Lets it end; what it has to say.
    ///
    /// # Errors
    /// When that is something else, or it fails.
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
