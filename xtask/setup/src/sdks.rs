//! The SDKs: the official packages, which are installed, and ours, which are compiled.

use crate::command::{run as run_command, workspace};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the official package for Node.js.
pub const NODE_VERSION: &str = "4.7.1";
/// The version of the official package for Python.
pub const PYTHON_VERSION: &str = "4.6.3";

/// A language with an SDK.
#[derive(Clone, Copy, Debug)]
pub enum Language {
    /// JavaScript, with Node.js.
    Node,
    /// Python.
    Python,
}

/// The packages of a language.
pub struct Targets {
    /// The official package.
    pub official: Target,
    /// Our package.
    pub own: Target,
}

/// A package in the form that the scripts take, and its interpreter.
pub struct Target {
    interpreter: PathBuf,
    package: String,
}

/// Installs the official package of a language.
///
/// # Errors
/// Fails when it cannot be installed.
pub fn targets(language: Language) -> Result<Targets, String> {
    let target = |interpreter: &Path, package: String| Target {
        interpreter: interpreter.to_owned(),
        package,
    };
    Ok(match language {
        Language::Node => {
            let package = tools::npm("couchbase", NODE_VERSION)?;
            let own = workspace().join("sdk-js/dist/lib/index.js");
            let node = Path::new("node");
            Targets {
                official: target(node, package.to_string_lossy().into_owned()),
                own: target(node, own.to_string_lossy().into_owned()),
            }
        }
        Language::Python => {
            let python = official_python()?;
            Targets {
                official: target(&python, "couchbase".into()),
                own: target(&python, "nacre".into()),
            }
        }
    })
}

/// Returns the interpreter of an environment with the official Python package.
///
/// # Errors
/// Fails when it cannot be installed.
pub fn official_python() -> Result<PathBuf, String> {
    let package = format!("couchbase=={PYTHON_VERSION}");
    tools::python(&format!("couchbase-{PYTHON_VERSION}"), &[&package])
}

/// Returns the command that runs a script of the repository, given by its path without extension,
/// with a package.
pub fn command(language: Language, target: &Target, script: &str) -> Command {
    let mut command = Command::new(&target.interpreter);
    match language {
        Language::Node => {
            command.arg(workspace().join(format!("{script}.mjs"))).arg(&target.package);
        }
        Language::Python => {
            // The benchmark uses asyncio, for which the official package has another name.
            let asynchronous = script.ends_with("load") && target.package == "couchbase";
            let package = if asynchronous { "acouchbase" } else { target.package.as_str() };
            command.arg(workspace().join(format!("{script}.py"))).arg(package);
            command
                .env("PYTHONPATH", workspace().join("sdk-py/src"))
                // Bytecode is cached, as for installed packages, but not next to the sources.
                .env_remove("PYTHONDONTWRITEBYTECODE")
                .env("PYTHONPYCACHEPREFIX", std::env::temp_dir().join("nacre-bytecode"))
                .env("PYTHONWARNINGS", "ignore");
        }
    }
    command
}

/// Compiles the JavaScript SDK.
///
/// # Errors
/// Fails when npm is missing or it does not compile.
pub fn build_js() -> Result<(), String> {
    let folder = workspace().join("sdk-js");
    let mut install = Command::new("npm");
    install.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
    if !folder.join("node_modules/.bin/tsc").exists() {
        run_command(install.current_dir(&folder), "install the compiler of sdk-js")?;
    }
    let mut build = Command::new("npm");
    build.args(["run", "--silent", "build"]).current_dir(&folder);
    run_command(&mut build, "compile sdk-js")
}
