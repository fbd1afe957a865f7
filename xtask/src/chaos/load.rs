//! The load: `conformance/chaos`, a program with the official Go SDK, which also checks what it has
//! observed.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use xtask_setup::command::{run, workspace};
use xtask_setup::node::{PASSWORD, USER};

/// Observations of a round, or of all.
#[derive(Debug, Deserialize)]
pub struct Sums {
    /// The number of operations.
    pub operations: u64,
    /// The number of operations with an unknown outcome.
    pub unknown: u64,
    /// Documents that are not linearizable registers.
    pub violations: Option<Vec<String>>,
    /// Lost acknowledged writes without durability.
    pub lost: u64,
    /// Errors, by the SDK's names.
    pub errors: BTreeMap<String, u64>,
    /// Gaps, by fault.
    pub gaps: Option<Vec<Gap>>,
}

/// The longest time in which a document affected by a fault could not be read, or written, in
/// milliseconds.
#[derive(Debug, Deserialize)]
pub struct Gap {
    /// The kind of the fault.
    pub fault: String,
    /// The longest time without a read.
    pub reads: f64,
    /// The longest time without a durable write.
    pub writes: f64,
    /// The longest time without a read of all other documents.
    pub other_reads: f64,
    /// The longest time without a durable write of all other documents.
    pub other_writes: f64,
}

/// The running program.
pub struct Load {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Load {
    /// Compiles the program into `folder` and starts it.
    ///
    /// # Errors
    /// Fails when it does not compile.
    pub fn start(folder: &Path, connection: &str, bucket: &str, seed: u64) -> Result<Load, String> {
        let binary = folder.join("load");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&binary).current_dir(workspace().join("conformance/chaos"));
        run(&mut build, "compile the load (go is needed, and a module proxy in reach)")?;
        let mut command = Command::new(&binary);
        command
            .args(["-connection", connection, "-user", USER, "-password", PASSWORD])
            .args(["-bucket", bucket, "-seed", &seed.to_string(), "-history"])
            .arg(folder.join("history.jsonl"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process =
            command.spawn().map_err(|error| format!("cannot start the load: {error}"))?;
        let orders = process.stdin.take().ok_or("the load has no input")?;
        let answers = BufReader::new(process.stdout.take().ok_or("the load has no output")?);
        Ok(Load { process, orders, answers })
    }

    fn order(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.orders, "{line}").map_err(|error| format!("the load has ended: {error}"))
    }

    fn answer(&mut self, word: &str) -> Result<String, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.map_err(|error| format!("the load prints nothing: {error}"))?;
        let rest = line.trim_end().strip_prefix(word);
        rest.map(|rest| rest.trim().to_owned()).ok_or(format!("the load says: {line:?}"))
    }

    fn sums(&mut self, order: &str, word: &str) -> Result<Sums, String> {
        self.order(order)?;
        let answer = self.answer(word)?;
        serde_json::from_str(&answer).map_err(|error| format!("the load says {answer}: {error}"))
    }

    /// Starts work on new documents, and waits until each was read and written.
    ///
    /// # Errors
    /// Fails when the program has ended.
    pub fn round(&mut self, keys: &[String]) -> Result<(), String> {
        self.order(&format!("round {}", keys.join(" ")))?;
        self.answer("ready").map(drop)
    }

    /// Reports a fault that affects these documents, or all.
    ///
    /// # Errors
    /// Fails when the program has ended.
    pub fn fault(&mut self, name: &str, keys: &[&str]) -> Result<(), String> {
        self.order(&format!("fault {name} {}", keys.join(" ")))
    }

    /// Ends the round once each document can be read and written again.
    ///
    /// # Errors
    /// Fails when that is not the case, or the program has ended.
    pub fn rest(&mut self) -> Result<Sums, String> {
        self.sums("rest", "rested")
    }

    /// Reads all documents again, and ends the program.
    ///
    /// # Errors
    /// Fails when one cannot be read.
    pub fn end(mut self) -> Result<Sums, String> {
        self.sums("end", "ended")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
