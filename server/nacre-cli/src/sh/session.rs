//! Runs pieces of text in order: sends statements and shows their rows, and runs commands.

use super::ask::{Answer, Ask, Request};
use super::output::{Output, write_rows};
use super::settings::Settings;
use super::split::{Kind, Piece, Splitter, first_word};
use super::text::{Members, indented, printable};
use super::{plan, problem};
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

/// Maximum bytes of a statement. A node accepts requests of 32 MiB.
const STATEMENT_BYTES_MAX: usize = 32 << 20;
/// Selects the paths of all keyspaces. A separate file, so that the tests of the language run it too.
const KEYSPACES: &str = include_str!("keyspaces.sqlpp");
/// Error codes that end a transaction: it is unknown, has timed out, could not be committed, or may have been
/// committed.
const ENDS_TRANSACTION: [i64; 4] = [17004, 17010, 17007, 17019];
/// Error codes of statements that could not be parsed and therefore have changed nothing.
const SYNTAX_ERRORS: std::ops::Range<i64> = 3000..4000;
/// Maximum depth of files that include each other with `\source`.
const SOURCE_DEPTH_MAX: usize = 16;

/// The reason why the session ends.
#[derive(Debug)]
pub enum Stop {
    /// The user has asked to quit.
    Quit,
    /// A statement or command failed, and the reason was reported.
    Failed,
    /// The output is closed.
    Closed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Closed(error)
    }
}

/// A conversation with a node.
pub struct Session<'a> {
    node: &'a mut dyn Ask,
    out: &'a mut dyn Write,
    errors: &'a mut dyn Write,
    /// Returns the present width of the terminal; `None` without a terminal.
    width: fn() -> Option<u16>,
    /// Settings, which `\set` changes.
    pub settings: Settings,
    /// True if scripts continue after a failure.
    pub keep_going: bool,
    /// True if anything has failed so far.
    pub has_failed: bool,
    source_depth: usize,
    /// The transaction that all statements belong to, from BEGIN WORK to COMMIT or ROLLBACK.
    transaction: Option<String>,
}

impl<'a> Session<'a> {
    /// Creates a session that writes rows to `out` and failures to `errors`.
    pub fn new(
        node: &'a mut dyn Ask,
        out: &'a mut dyn Write,
        errors: &'a mut dyn Write,
        width: fn() -> Option<u16>,
        settings: Settings,
    ) -> Session<'a> {
        Session {
            node,
            out,
            errors,
            width,
            settings,
            keep_going: false,
            has_failed: false,
            source_depth: 0,
            transaction: None,
        }
    }

    /// Runs all pieces of `script`; reports `name` with failures.
    ///
    /// # Errors
    /// [`Stop::Failed`] when a piece failed; later pieces ran only with `keep_going`.
    pub fn run_script(&mut self, name: &str, script: &mut dyn BufRead) -> Result<(), Stop> {
        let mut splitter = Splitter::new();
        let mut outcome = Ok(());
        let mut line = Vec::new();
        loop {
            line.clear();
            let room = STATEMENT_BYTES_MAX.saturating_sub(splitter.pending_bytes());
            let count = script.take(room as u64 + 1).read_until(b'\n', &mut line);
            let text = count.map_err(|error| error.to_string()).and_then(|_| {
                let text = str::from_utf8(&line).map_err(|error| error.to_string())?;
                if line.len() > room { Err("a statement is too long".into()) } else { Ok(text) }
            });
            match text {
                Ok("") => break,
                Ok(text) => splitter.push(text),
                Err(reason) => return self.fail(&format!("cannot read {name}: {reason}")),
            }
            while let Some(piece) = splitter.next() {
                outcome = self.after(outcome, name, &piece)?;
            }
        }
        match splitter.finish() {
            Some(piece) => self.after(outcome, name, &piece)?,
            None => outcome,
        }
    }

    /// Runs a piece after others. The outer result says whether to continue, the inner one is the result so far.
    fn after(
        &mut self,
        before: Result<(), Stop>,
        name: &str,
        piece: &Piece,
    ) -> Result<Result<(), Stop>, Stop> {
        match self.run(name, piece) {
            Ok(()) => Ok(before),
            Err(Stop::Failed) if self.keep_going => {
                self.has_failed = true;
                Ok(Err(Stop::Failed))
            }
            Err(stop) => Err(stop),
        }
    }

    fn run(&mut self, name: &str, piece: &Piece) -> Result<(), Stop> {
        let place =
            if name.is_empty() { String::new() } else { format!("{name}:{}: ", piece.line) };
        match &piece.kind {
            Kind::Command(text) => super::command::run(self, text),
            Kind::Statement(text) => self.run_statement(&place, text),
        }
    }

    fn run_statement(&mut self, place: &str, statement: &str) -> Result<(), Stop> {
        let mut request = request(&self.settings, statement);
        let role = Role::of(statement);
        if let Some(id) = &self.transaction {
            request.insert("txid".into(), id.as_str().into());
        }
        if let (Role::Begins, Some(timeout)) = (role, &self.settings.txtimeout) {
            request.insert("txtimeout".into(), timeout.as_str().into());
        }
        let answer = match self.node.ask(&request) {
            Ok(answer) => answer,
            Err(reason) => return self.no_answer(place, role, &reason),
        };
        let shown = self.show_answer(place, statement, &answer);
        self.follow_transaction(place, role, &answer)?;
        shown
    }

    /// Handles a statement that was sent and whose outcome is unknown.
    fn no_answer(&mut self, place: &str, role: Role, reason: &str) -> Result<(), Stop> {
        writeln!(self.errors, "{place}{reason}")?;
        if role == Role::Commits && self.transaction.take().is_some() {
            self.fail(&format!("{place}it is not known whether the transaction was committed"))?;
        }
        Err(Stop::Failed)
    }

    /// Stores the transaction that an answer begins, or drops the one that it ends.
    fn follow_transaction(&mut self, place: &str, role: Role, answer: &Answer) -> Result<(), Stop> {
        if self.transaction.is_none() {
            if role == Role::Begins && answer.is_success {
                self.transaction = answer.rows.first().and_then(|row| {
                    let row: Value = serde_json::from_str(row.get()).ok()?;
                    row["txid"].as_str().map(str::to_owned)
                });
            }
            return Ok(());
        }
        let has = |codes: &dyn Fn(i64) -> bool| answer.errors.iter().any(|e| codes(e.code));
        let ends = match role {
            _ if has(&|code| ENDS_TRANSACTION.contains(&code)) => true,
            Role::Commits | Role::RollsBack => !has(&|code| SYNTAX_ERRORS.contains(&code)),
            Role::Begins | Role::Other => false,
        };
        if !ends {
            return Ok(());
        }
        self.transaction = None;
        if !answer.is_success && role != Role::RollsBack {
            let unknown = has(&|code| code == 17019);
            let what = if unknown {
                "it is not known whether its changes were kept"
            } else {
                "its changes were not kept"
            };
            writeln!(self.errors, "{place}the transaction has ended: {what}")?;
        }
        Ok(())
    }

    /// Returns true if statements belong to a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Rolls back an open transaction, and reports it.
    ///
    /// # Errors
    /// [`Stop::Failed`] when there was one: its changes are lost.
    pub fn end_transaction(&mut self) -> Result<(), Stop> {
        let Some(id) = self.transaction.take() else { return Ok(()) };
        let mut request = request(&Settings::default(), "ROLLBACK WORK");
        request.insert("txid".into(), id.into());
        let ended = self.node.ask(&request).is_ok_and(|answer| answer.is_success);
        let how = if ended { "was rolled back" } else { "ends with its time-out" };
        self.has_failed = true;
        self.fail(&format!("the transaction was not committed: it {how}"))
    }

    fn show_answer(&mut self, place: &str, statement: &str, answer: &Answer) -> Result<(), Stop> {
        let shown = self.settings.output == Output::Table && self.settings.plan;
        match shown.then(|| plan_of(statement, &answer.rows)).flatten() {
            Some(plan) => self.out.write_all(plan.as_bytes())?,
            None => self.show_rows(answer)?,
        }
        self.finish(place, statement, answer)
    }

    /// Returns the rows that answer a statement.
    ///
    /// # Errors
    /// As for a statement.
    pub fn rows(&mut self, statement: &str) -> Result<Vec<Box<RawValue>>, Stop> {
        let answer = self.ask("", statement)?;
        if answer.is_success {
            return Ok(answer.rows);
        }
        self.finish("", statement, &answer).map(|()| Vec::new())
    }

    fn ask(&mut self, place: &str, statement: &str) -> Result<Answer, Stop> {
        let request = request(&self.settings, statement);
        match self.node.ask(&request) {
            Ok(answer) => Ok(answer),
            Err(reason) => self.fail(&format!("{place}{reason}")),
        }
    }

    /// Shows rows in the form that the settings choose.
    ///
    /// # Errors
    /// The error, if the output is closed.
    pub fn show(&mut self, rows: &[Box<RawValue>]) -> Result<(), Stop> {
        let width = (self.width)();
        write_rows(self.settings.output, rows, self.settings.pretty, width, &mut self.out)?;
        Ok(())
    }

    fn show_rows(&mut self, answer: &Answer) -> Result<(), Stop> {
        let is_table = self.settings.output == Output::Table;
        let is_plan_text = is_table && matches!(&answer.rows[..], [row] if is_explained(row));
        if is_plan_text {
            writeln!(self.out, "{}", indented(&answer.rows[0], 0))?;
        } else if answer.is_success || !answer.rows.is_empty() {
            self.show(&answer.rows)?;
        }
        Ok(())
    }

    /// Writes the lines after the rows: their number, and failures.
    fn finish(&mut self, place: &str, statement: &str, answer: &Answer) -> Result<(), Stop> {
        if answer.is_success && self.settings.output == Output::Table {
            writeln!(self.out, "{}", summary(answer, self.settings.timing))?;
        }
        self.out.flush()?;
        let kinds = [("warning", &answer.warnings), ("error", &answer.errors)];
        for (kind, problems) in kinds {
            for found in problems {
                write!(self.errors, "{place}{}", problem::describe(kind, found, statement))?;
            }
        }
        match answer.is_success {
            true => Ok(()),
            false if answer.errors.is_empty() => {
                self.fail(&format!("{place}the statement was not carried out"))
            }
            false => Err(Stop::Failed),
        }
    }

    /// Reports a failure.
    ///
    /// # Errors
    /// Always [`Stop::Failed`], unless the output is closed.
    pub fn fail<T>(&mut self, reason: &str) -> Result<T, Stop> {
        self.out.flush()?;
        writeln!(self.errors, "{reason}")?;
        Err(Stop::Failed)
    }

    /// Prints a line.
    ///
    /// # Errors
    /// The error, if the output is closed.
    pub fn print_line(&mut self, line: &str) -> Result<(), Stop> {
        writeln!(self.out, "{line}")?;
        Ok(())
    }

    /// Runs the file at `path`.
    ///
    /// # Errors
    /// The reason, if it cannot be read, or as [`Session::run_script`].
    pub fn source(&mut self, path: &str) -> Result<(), Stop> {
        if self.source_depth >= SOURCE_DEPTH_MAX {
            return self.fail(&format!("{path} is not read: files name each other without end"));
        }
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) => return self.fail(&format!("cannot open {path}: {error}")),
        };
        self.source_depth += 1;
        let outcome = self.run_script(path, &mut io::BufReader::new(file));
        self.source_depth -= 1;
        outcome
    }

    /// Returns the paths of all keyspaces that the user may query; none if the user may not list them.
    ///
    /// # Errors
    /// The reason, if the node does not answer or refuses the login.
    pub fn keyspaces(&mut self) -> Result<Vec<String>, String> {
        let rows = self.node.ask(&request(&self.settings, KEYSPACES))?.rows;
        let paths = rows.iter().filter_map(|row| serde_json::from_str::<String>(row.get()).ok());
        Ok(paths.map(|path| path.trim_start_matches("default:").to_owned()).collect())
    }
}

/// The effect of a statement on a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Begins,
    Commits,
    RollsBack,
    Other,
}

impl Role {
    fn of(statement: &str) -> Role {
        let mut words = statement.split_whitespace();
        match first_word(statement).as_str() {
            "BEGIN" | "START" => Role::Begins,
            "COMMIT" => Role::Commits,
            // After a rollback to a savepoint the transaction continues.
            "ROLLBACK" if words.any(|word| word.eq_ignore_ascii_case("TO")) => Role::Other,
            "ROLLBACK" => Role::RollsBack,
            _ => Role::Other,
        }
    }
}

fn request(settings: &Settings, statement: &str) -> Request {
    let mut request = Request::new();
    request.insert("statement".into(), statement.into());
    for (name, value) in [
        ("scan_consistency", settings.consistency.clone()),
        ("query_context", settings.context.as_ref().map(|context| context.query_context())),
        ("timeout", settings.timeout.clone()),
    ] {
        if let Some(value) = value {
            request.insert(name.into(), value.into());
        }
    }
    let arguments = settings.arguments.iter();
    request.extend(arguments.map(|(name, value)| (format!("${name}"), value.clone())));
    request
}

/// Returns the tree of a plan if the statement asked for one and the rows contain one.
fn plan_of(statement: &str, rows: &[Box<RawValue>]) -> Option<String> {
    let [row] = rows else { return None };
    if first_word(statement) != "EXPLAIN" {
        return None;
    }
    let row: Value = serde_json::from_str(row.get()).ok()?;
    plan::draw(&row["plan"])
}

/// Returns true if a row is a plan of EXPLAIN, which a table would show badly in a single cell.
fn is_explained(row: &RawValue) -> bool {
    let members = Members::of(row).map(|members| members.0).unwrap_or_default();
    let plan = members.iter().find(|(name, _)| name == "plan");
    plan.and_then(|(_, plan)| Members::of(plan))
        .is_some_and(|plan| plan.0.iter().any(|(name, _)| name == "#operator"))
}

/// Returns a summary such as `3 rows, 1 change in 1.2 ms`.
fn summary(answer: &Answer, timing: bool) -> String {
    let count = |count: u64, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let mut text = count(answer.rows.len() as u64, "row");
    if answer.mutation_count > 0 {
        text.push_str(", ");
        text.push_str(&count(answer.mutation_count, "change"));
    }
    if timing {
        text.push_str(" in ");
        text.push_str(&time(answer.elapsed));
    }
    printable(&text)
}

fn time(elapsed: Duration) -> String {
    match elapsed.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}
