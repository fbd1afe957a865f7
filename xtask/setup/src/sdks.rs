//! The SDKs: the official packages, installed, and ours, compiled.

use crate::command::{run as run_command, workspace};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the official package for Node.js.
pub const NODE_VERSION: &str = "4.7.1";
/// Version of the official package for Python.
pub const PYTHON_VERSION: &str = "4.6.3";

/// A language that there is an SDK for.
#[derive(Clone, Copy, Debug)]
pub enum Language {
    /// JavaScript, by Node.js.
    Node,
    /// Python.
    Python,
}

/// Where the packages of a language are.
pub struct Targets {
    /// The official one.
    pub official: Target,
    /// Ours.
    pub own: Target,
}

/// A package as the scripts take it, and what runs them.
pub struct Target {
    interpreter: PathBuf,
    package: String,
}

/// Installs the official package of a language.
///
/// # Errors
/// When it cannot be installed.
pub fn targets(language: Language) -> Result<Targets, String> {
    let target = |interpreter: &Path, package: String| Target {
        interpreter: interpreter.to_owned(),
        package,
    };
    Ok(match language {
        Language::Node => {
            let package = tools::npm("couchbase", NODE_VERSION)?;
            let own = workspace().join("sdk-js/dist/src/index.js");
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

/// The interpreter of an environment with the official package for Python.
///
/// # Errors
/// When it cannot be installed.
pub fn official_python() -> Result<PathBuf, String> {
    let package = format!("couchbase=={PYTHON_VERSION}");
    tools::python(&format!("couchbase-{PYTHON_VERSION}"), &[&package])
}

/// A script of the repository, by its path without extension, with a package.
pub fn command(language: Language, target: &Target, script: &str) -> Command {
    let mut command = Command::new(&target.interpreter);
    match language {
        Language::Node => {
            command.arg(workspace().join(format!("{script}.mjs"))).arg(&target.package);
        }
        Language::Python => {
            // The benchmark is of asyncio, where the official package has another name.
            let asynchronous = script.ends_with("load") && target.package == "couchbase";
            let package = if asynchronous { "acouchbase" } else { target.package.as_str() };
            command.arg(workspace().join(format!("{script}.py"))).arg(package);
            command
                .env("PYTHONPATH", workspace().join("sdk-py/src"))
                // Bytecode is kept, as it is of installed packages, but not beside the sources.
                .env_remove("PYTHONDONTWRITEBYTECODE")
                .env("PYTHONPYCACHEPREFIX", std::env::temp_dir().join("nacre-bytecode"))
                .env("PYTHONWARNINGS", "ignore");
        }
    }
    command
}

/// Compiles the SDK for JavaScript.
///
/// # Errors
/// When npm is missing or it does not compile.
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
