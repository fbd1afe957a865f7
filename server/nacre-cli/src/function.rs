//! `nacre function`: functions that react to changes.

use crate::failure::Failure;
use crate::keyspace::{confirm, escaped};
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::time::{Duration, Instant};

const FUNCTIONS: &str = "/api/v1/functions";
/// The path that lists the states of all functions.
const STATES: &str = "/api/v1/status";
/// The pause between two looks at a state.
const PAUSE: Duration = Duration::from_millis(100);

/// Options of `nacre function`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List the functions
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Print the definition of a function, which `set` takes
    Show {
        /// Name
        name: String,
    },
    /// Define a function, or replace its definition
    Set {
        /// Name
        name: String,
        /// File with the definition in JSON; - is standard input
        file: std::path::PathBuf,
    },
    /// Start a function
    Deploy(Turn),
    /// Stop a function and discard its progress
    Undeploy(Turn),
    /// Pause a function; `resume` continues where it stopped
    Pause(Turn),
    /// Resume a paused function
    Resume(Turn),
    /// Delete a function that is not deployed
    Rm {
        /// Name
        name: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
}

/// Options of commands that change the state of a function.
#[derive(Args, Clone, Debug)]
struct Turn {
    /// Name
    name: String,
    /// Wait until the function is in the new state, at most this number of seconds
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
}

/// Runs `nacre function`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let server = &options.server;
    let base = server.functions()?;
    let call = |method: &str, path: &str, body: &[u8]| server.call_at(&base, method, path, body);
    let path = |name: &str| format!("{FUNCTIONS}/{}", escaped(name));
    let turn = |options: &Turn, how: &str, state: &str| {
        let name = &options.name;
        call("POST", &format!("{}/{how}", path(name)), b"")?;
        match options.wait {
            None => println!("the function {name} is being {state}"),
            Some(seconds) => wait_for(|| call("GET", STATES, b""), name, state, seconds)?,
        }
        Ok::<(), Failure>(())
    };
    match &options.action {
        Action::List { format } => {
            let all = call("GET", STATES, b"")?;
            let mut listing = Listing::new(&["function", "status"]);
            for app in all["apps"].as_array().into_iter().flatten() {
                listing.add([app["name"].clone(), app["composite_status"].clone()]);
            }
            format.show(&listing);
            Ok(())
        }
        Action::Show { name } => {
            let definition = call("GET", &path(name), b"")?;
            println!("{}", serde_json::to_string_pretty(&definition).expect("JSON is text"));
            Ok(())
        }
        Action::Set { name, file } => {
            let definition = match file.as_os_str() == "-" {
                true => std::io::read_to_string(std::io::stdin()),
                false => std::fs::read_to_string(file),
            };
            let definition = definition.map_err(|error| format!("{}: {error}", file.display()))?;
            call("POST", &path(name), definition.as_bytes())?;
            println!("defined the function {name}");
            Ok(())
        }
        Action::Deploy(options) => turn(options, "deploy", "deployed"),
        Action::Undeploy(options) => turn(options, "undeploy", "undeployed"),
        Action::Pause(options) => turn(options, "pause", "paused"),
        Action::Resume(options) => turn(options, "resume", "deployed"),
        Action::Rm { name, yes } => {
            confirm(*yes, &format!("delete the function {name}"))?;
            call("DELETE", &path(name), b"")?;
            println!("deleted the function {name}");
            Ok(())
        }
    }
}

/// Waits until a function is in a state; `read` returns the states of all functions.
fn wait_for(
    read: impl Fn() -> Result<Value, Failure>,
    name: &str,
    state: &str,
    seconds: u64,
) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let all = read()?;
        let found = state_of(&all, name);
        if found == state {
            println!("the function {name} is {state}");
            return Ok(());
        }
        if begun.elapsed() >= Duration::from_secs(seconds) {
            let next = "`nacre function list` shows its state, --wait waits longer";
            return Err(format!("after {seconds} s, the function {name} is {found}: {next}").into());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the state of a function among those of all.
fn state_of<'v>(all: &'v Value, name: &str) -> &'v str {
    let mut apps = all["apps"].as_array().into_iter().flatten();
    let found = apps.find(|app| app["name"] == name);
    found.and_then(|app| app["composite_status"].as_str()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wait_that_times_out_names_the_function_and_its_state() {
        let all = json!({"apps": [
            {"name": "a", "composite_status": "deployed"},
            {"name": "b", "composite_status": "deploying"},
        ]});
        let wait = |name: &str| wait_for(|| Ok(all.clone()), name, "deployed", 0);
        assert_eq!(wait("a"), Ok(()));
        let late = wait("b").unwrap_err().reason;
        assert!(late.starts_with("after 0 s, the function b is deploying: `nacre"), "{late}");
        assert!(wait("c").unwrap_err().reason.contains("the function c is unknown"));
    }
}
