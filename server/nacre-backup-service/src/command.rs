//! Commands of the program `nacre`, as processes.

use nacre_cluster::Ports;
use nacre_node::Node;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// Names the program, if it is not that of the node.
const VARIABLE: &str = "NACRE_PROGRAM";
/// Name of the program.
const PROGRAM: &str = "nacre";
/// Output that is kept, in bytes. The list of all backups has a few hundred for each.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Errors that are kept, in bytes.
const ERRORS_BYTES_MAX: u64 = 64 << 10;
/// Time between two looks at a process.
const TURN: Duration = Duration::from_millis(100);

/// A command: what follows the name of the program, and variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub arguments: Vec<String>,
    pub variables: Vec<(String, String)>,
}

/// A cluster to work on, with the login there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub url: String,
    pub user: String,
    pub password: String,
}

/// Shows no password.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({:?} as {:?})", self.url, self.user)
    }
}

impl Target {
    /// This node, as the user of backups.
    ///
    /// # Errors
    /// A sentence if its management has no port.
    pub fn own(node: &Node) -> Result<Target, String> {
        let password = nacre_auth::backup_password(node.cluster().secret.reveal());
        Ok(Target { url: own_url(node)?, user: nacre_auth::BACKUP.to_owned(), password })
    }
}

/// The address of the management of this node.
///
/// # Errors
/// A sentence if it has no port.
pub(crate) fn own_url(node: &Node) -> Result<String, String> {
    let own = node.endpoints();
    let port = own.plain.get(Ports::MGMT).ok_or("the management of this node has no port")?;
    Ok(format!("http://127.0.0.1:{port}"))
}

impl Command {
    /// A command that works on a repository only.
    pub fn new<const N: usize>(arguments: [&str; N]) -> Command {
        let arguments = arguments.map(str::to_owned).to_vec();
        Command { arguments, variables: Vec::new() }
    }

    /// Adds an argument.
    pub fn with(mut self, argument: impl Into<String>) -> Command {
        self.arguments.push(argument.into());
        self
    }

    /// Adds variables that name a cluster. Passwords stay out of the list of processes.
    pub fn on(mut self, target: &Target) -> Command {
        let Target { url, user, password } = target;
        for (name, value) in [("URL", url), ("USER", user), ("PASSWORD", password)] {
            self.variables.push((format!("NACRE_{name}"), value.clone()));
        }
        self
    }

    /// Adds variables.
    pub fn in_store<'a>(
        mut self,
        variables: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Command {
        let variables = variables.into_iter();
        self.variables.extend(variables.map(|(name, value)| (name.clone(), value.clone())));
        self
    }

    /// Runs the command until it ends, or `is_over` returns true after a wait of the time that it is given. Returns the output,
    /// and what the command has reported besides.
    ///
    /// # Errors
    /// The errors that the command has reported, or why it was not run.
    pub fn run(&self, is_over: impl Fn(Duration) -> bool) -> Result<(String, String), String> {
        let mut command = std::process::Command::new(program()?);
        command
            .args(&self.arguments)
            .env_remove("NACRE_TOKEN")
            .env_remove("NACRE_SERVER")
            .env_remove("NACRE_URL")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("the program {PROGRAM} cannot be started: {error}"))?;
        let output = child.stdout.take().map(|from| collect(from, OUTPUT_BYTES_MAX));
        let errors = child.stderr.take().map(|from| collect(from, ERRORS_BYTES_MAX));
        let ended = attend(&mut child, is_over);
        let text = |collected: Option<JoinHandle<Vec<u8>>>| {
            let bytes = collected.and_then(|thread| thread.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).trim().to_owned()
        };
        let (output, errors) = (text(output), text(errors));
        match ended {
            Ok(true) => Ok((output, errors)),
            Ok(false) if errors.is_empty() => Err("the command has failed".to_owned()),
            Ok(false) => Err(errors),
            Err(reason) => Err(reason),
        }
    }
}

/// Waits for a process; returns whether it has succeeded. One that is not wanted any more is ended.
fn attend(child: &mut Child, is_over: impl Fn(Duration) -> bool) -> Result<bool, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if is_over(TURN) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("the node is being stopped".to_owned());
            }
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Reads a pipe to its end in a thread; what is beyond the limit is dropped.
fn collect(mut from: impl Read + Send + 'static, limit: u64) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(limit).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        bytes
    })
}

/// The program: the one that a variable names, or that of the node. A node in another program has none.
fn program() -> Result<PathBuf, String> {
    let own = || {
        let own = std::env::current_exe().ok()?;
        (own.file_stem()? == PROGRAM).then_some(own)
    };
    let program = std::env::var_os(VARIABLE).map(PathBuf::from).or_else(own);
    program.filter(|program| program.is_file()).ok_or_else(|| {
        format!("this node is not the program {PROGRAM}: name that by the variable {VARIABLE}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_arguments_and_are_not_shown() {
        let target = Target { url: "u".into(), user: "ann".into(), password: "secret".into() };
        let command = Command::new(["restore"]).with("--quiet").on(&target);
        assert_eq!(command.arguments, ["restore", "--quiet"]);
        assert!(command.variables.contains(&("NACRE_PASSWORD".into(), "secret".into())));
        assert!(!format!("{target:?}").contains("secret"));
    }

    #[test]
    fn a_program_that_is_not_nacre_is_not_run() {
        // The program of this test has another name.
        let refused = Command::new(["--help"]).run(|_| false).unwrap_err();
        assert!(refused.contains(VARIABLE), "{refused}");
    }

    #[test]
    fn an_unwanted_process_is_stopped() {
        let mut child = std::process::Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let ended = attend(&mut child, |_| true);
        assert!(ended.unwrap_err().contains("stopped"));
        assert!(child.try_wait().unwrap().is_some());
    }
}
