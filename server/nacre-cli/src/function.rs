//! `nacre function`: functions that react to changes.

use crate::failure::Failure;
use crate::keyspace::{confirm, escaped};
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand};

const FUNCTIONS: &str = "/api/v1/functions";

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
    Deploy {
        /// Name
        name: String,
    },
    /// Stop a function and discard its progress
    Undeploy {
        /// Name
        name: String,
    },
    /// Pause a function; `resume` continues where it stopped
    Pause {
        /// Name
        name: String,
    },
    /// Resume a paused function
    Resume {
        /// Name
        name: String,
    },
    /// Delete a function that is not deployed
    Rm {
        /// Name
        name: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
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
    let turn = |name: &str, how: &str, done: &str| {
        call("POST", &format!("{}/{how}", path(name)), b"")?;
        println!("the function {name} is {done}");
        Ok::<(), Failure>(())
    };
    match &options.action {
        Action::List { format } => {
            let all = call("GET", "/api/v1/status", b"")?;
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
        Action::Deploy { name } => turn(name, "deploy", "being deployed"),
        Action::Undeploy { name } => turn(name, "undeploy", "being undeployed"),
        Action::Pause { name } => turn(name, "pause", "being paused"),
        Action::Resume { name } => turn(name, "resume", "being resumed"),
        Action::Rm { name, yes } => {
            confirm(*yes, &format!("delete the function {name}"))?;
            call("DELETE", &path(name), b"")?;
            println!("deleted the function {name}");
            Ok(())
        }
    }
}
