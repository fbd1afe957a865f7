//! `nacre sh`: a shell for SQL++.
//!
//! [`split`] divides text into statements and commands, [`session`] runs them over [`ask`], and [`output`], [`plan`] and
//! [`problem`] show the results. These modules do not depend on sockets or terminals, which are the subjects of [`http`]
//! and [`terminal`].

mod ask;
mod command;
mod complete;
mod http;
mod output;
mod plan;
mod problem;
mod session;
mod settings;
mod split;
mod terminal;
mod text;
#[cfg(test)]
mod transcripts;

use crate::failure::{Failure, Kind};
use crate::target::Server;
use clap::Args;
use output::Output;
use session::{Session, Stop};
use settings::{Context, Settings};
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The offset of the query port from `--port-base`.
const PORT_OFFSET: u16 = 2;

/// Options of `nacre sh`.
#[derive(Args, Clone, Debug)]
pub struct Shell {
    #[command(flatten)]
    server: Server,
    /// URL of the query service itself
    #[arg(long, hide = true, conflicts_with = "port_base")]
    url: Option<String>,
    /// The node on this machine that was started with this --port-base
    #[arg(long, hide = true)]
    port_base: Option<u16>,
    /// Scope of unqualified collection names, as bucket.scope
    #[arg(long, value_parser = Context::parse)]
    context: Option<Context>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    /// Run this statement and exit; may be given several times
    #[arg(short, long, value_name = "STATEMENT")]
    execute: Vec<String>,
    /// Run the statements in this file and exit; may be given several times
    #[arg(short, long)]
    file: Vec<PathBuf>,
    /// Continue after a statement that failed
    #[arg(long)]
    keep_going: bool,
}

/// Runs a shell over the text of `--execute` and `--file`, else over standard input.
///
/// # Errors
/// The reason, if a statement failed or the terminal is gone.
pub fn sh(options: &Shell) -> Result<(), Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let mut node = http::Node::new(
        &options.url()?,
        options.server.login()?,
        options.server.trust()?.client_config()?,
        Arc::clone(&interrupted),
    )?;
    let address = node.address();
    let settings = Settings {
        output: options.output,
        context: options.context.clone(),
        ..Settings::default()
    };
    let stdin = io::stdin();
    let is_given = !options.execute.is_empty() || !options.file.is_empty();
    let (mut stdout, mut errors) = (io::stdout(), io::stderr());
    if !is_given && stdin.is_terminal() {
        let mut out = terminal::Silenced::new(stdout, Arc::clone(&interrupted));
        let mut session = Session::new(&mut node, &mut out, &mut errors, width, settings);
        session.keep_going = options.keep_going;
        let (user, _) = options.server.login()?;
        let greeting = format!("Connected to {address} as {user}.");
        return Ok(terminal::run_terminal(&mut session, &greeting, &interrupted)?);
    }
    let mut session = Session::new(&mut node, &mut stdout, &mut errors, width, settings);
    session.keep_going = options.keep_going;
    let outcome = match is_given {
        true => options.run_batch(&mut session),
        false => session.run_script("standard input", &mut stdin.lock()),
    };
    let ended = session.end_transaction();
    let has_failed = session.has_failed;
    match outcome.and(ended) {
        Ok(()) => Ok(()),
        Err(Stop::Quit) if !has_failed => Ok(()),
        Err(Stop::Failed | Stop::Quit) => {
            let kind = node.trouble().unwrap_or(Kind::Failed);
            Err(Failure::new(kind, "not everything was carried out"))
        }
        Err(Stop::Closed(error)) => Err(format!("cannot write: {error}").into()),
    }
}

impl Shell {
    fn url(&self) -> Result<String, Failure> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        let Some(base) = self.port_base else { return self.server.queries() };
        let port = base.checked_add(PORT_OFFSET).ok_or("--port-base is too high")?;
        Ok(format!("http://127.0.0.1:{port}"))
    }

    /// Runs the statements first, then the files.
    fn run_batch(&self, session: &mut Session<'_>) -> Result<(), Stop> {
        let mut outcome = Ok(());
        let statements = self.execute.iter().map(|text| (String::new(), Some(text)));
        let files = self.file.iter().map(|path| (path.display().to_string(), None));
        for (path, statement) in statements.chain(files) {
            let ended = match statement {
                Some(text) => session.run_script("", &mut text.as_bytes() as &mut dyn BufRead),
                None => session.source(&path),
            };
            match ended {
                Ok(()) => {}
                Err(Stop::Failed) if self.keep_going => outcome = Err(Stop::Failed),
                Err(stop) => return Err(stop),
            }
        }
        outcome
    }
}

/// Returns the width of the terminal in characters; `None` if standard output is not a terminal.
fn width() -> Option<u16> {
    comfy_table::Table::new().width()
}
