//! `nacre plugin dev`: tests and deploys a project at each change of its files, and shows what the plugin says.

use super::{project, remote, test};
use clap::Args;
use nacre_engine::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Interval at which the files are checked for changes.
const INTERVAL: Duration = Duration::from_millis(300);
/// Separator of a project's version and the time in versions that `nacre plugin dev` deploys.
const MARK: &str = "-dev.";
/// Folders with what is made of the project, and not by its author.
const MADE: [&str; 5] = [".venv", "__pycache__", "target", "vendor", "wit"];

/// Options of `nacre plugin dev`.
#[derive(Args, Clone, Debug)]
pub struct Dev {
    #[command(flatten)]
    deploy: remote::Deploy,
    /// End after the first deployment
    #[arg(long)]
    once: bool,
    /// Directory for compiled plugins
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Follows a project until it is stopped.
///
/// # Errors
/// When the project cannot be read; what is wrong with the plugin is shown, and the next change waited for.
pub fn dev(options: &Dev) -> Result<(), String> {
    // One for all changes: an engine has a thread and its address space for as long as the process lives.
    let engine = test::engine(options.plugin_cache.as_ref());
    let mut deployed = None;
    let mut running: Option<Running> = None;
    loop {
        let files = sources(options.deploy.package())?;
        if deployed.as_ref() != Some(&files) {
            deployed = Some(files);
            match deploy(options, &engine) {
                Ok(next) => running = Some(next),
                Err(reason) if options.once => return Err(reason),
                Err(reason) => println!("{reason}"),
            }
        }
        if options.once {
            return Ok(());
        }
        if let Some(running) = &mut running {
            running.print_new_lines(options);
        }
        std::thread::sleep(INTERVAL);
    }
}

/// The deployment, and the lines of its log that were printed.
struct Running {
    deployment: String,
    printed: BTreeSet<String>,
}

impl Running {
    /// Prints the log lines of the plugin that were not printed before. A node that does not answer has none.
    fn print_new_lines(&mut self, options: &Dev) {
        for line in remote::said(&options.deploy, &self.deployment).unwrap_or_default() {
            if self.printed.insert(line.clone()) {
                println!("{line}");
            }
        }
    }
}

/// Each change is a version of its own, so that none is refused as known with other content, with a state of its own, so
/// that what is seen is what this code makes of the documents.
///
/// The version before it goes if this command has made it, now or when it ran last; no other.
fn deploy(options: &Dev, engine: &Engine) -> Result<Running, String> {
    let project = options.deploy.package();
    let package = project::package(project)?;
    let plugin = test::load(engine, &package)?;
    test::play_all(&package, &plugin, project, false)?;
    let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let version = format!("{}{MARK}{}", package.manifest.version, stamp.as_millis());
    let before = remote::deployed_version(&options.deploy, &package.manifest.name)
        .filter(|before| is_made(before));
    let put = remote::put(&options.deploy, &package.as_version(&version)?);
    let package = package.manifest.name;
    let now = remote::deployed_version(&options.deploy, &package);
    if let Some(before) = before.filter(|before| now.as_ref().is_some_and(|now| now != before))
        && let Err(reason) = remote::forget(&options.deploy, &package, &before)
    {
        println!("{before} could not be removed: {reason}");
    }
    let deployment = put?;
    println!("{deployment} runs {version}");
    Ok(Running { deployment, printed: BTreeSet::new() })
}

/// Returns true if `nacre plugin dev` has made the version.
fn is_made(version: &str) -> bool {
    let stamp = version.rsplit_once(MARK).map(|(_, stamp)| stamp);
    stamp.is_some_and(|stamp| !stamp.is_empty() && stamp.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The files of a project that its author writes, with the times of their last change.
fn sources(folder: &Path) -> Result<BTreeMap<PathBuf, SystemTime>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_made = path.extension().is_some_and(|kind| kind == "wasm" || kind == "tar");
        if MADE.contains(&name.as_str()) || is_made || name == "Cargo.lock" {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if let Ok(changed) = path.metadata().and_then(|metadata| metadata.modified()) {
            files.insert(path, changed);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::is_made;

    #[test]
    fn only_versions_of_this_command_are_known_as_such() {
        assert!(is_made("0.1.0-dev.1764000000000"));
        for other in ["0.1.0", "0.1.0-dev", "0.1.0-dev.", "0.1.0-dev.next", "-dev.1x"] {
            assert!(!is_made(other), "{other}");
        }
    }
}
