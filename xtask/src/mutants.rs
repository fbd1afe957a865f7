//! `cargo xtask sim --mutants`: checks that the simulations find deliberately inserted faults.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{cargo, run as run_command, target_dir, workspace};

/// Time limit of the seeds with one fault, in processor seconds: the kernel enforces it.
const SECONDS_MAX: u64 = 3000;

/// Files that list the faults of one cluster, of backups and of devices.
const LISTS: [&str; 3] = [
    "server/nacre-sim/mutants.toml",
    "server/nacre-backup/mutants.toml",
    "server/nacre-embedded/mutants.toml",
];
/// The file that lists the faults of clusters that replicate to each other.
const LIST_OF_CLUSTERS: &str = "server/nacre-sim/mutants-clusters.toml";
/// Number of seeds of a simulation that is a test; each takes a few milliseconds.
const TEST_SEEDS: &str = "2000";

#[derive(Deserialize)]
struct List {
    mutant: Vec<Mutant>,
}

/// One fault: a text and its replacement.
#[derive(Deserialize)]
struct Mutant {
    name: String,
    /// The package whose tests find it; `None` for the simulation of complete nodes.
    tests: Option<String>,
    file: PathBuf,
    from: String,
    to: String,
}

impl Mutant {
    /// Returns the file's text with and without the fault.
    fn text(&self, tree: &Path) -> Result<(String, String), String> {
        let path = tree.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        match text.matches(&self.from).count() {
            1 => Ok((text.replace(&self.from, &self.to), text)),
            count => Err(format!(
                "{}: the text that \"{}\" replaces occurs {count} times",
                self.file.display(),
                self.name
            )),
        }
    }
}

fn read(lists: &[&str]) -> Result<Vec<Mutant>, String> {
    let mut mutants = Vec::new();
    for name in lists {
        let cannot = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let text = fs::read_to_string(workspace().join(name)).map_err(|error| cannot(&error))?;
        let list: List = toml::from_str(&text).map_err(|error| cannot(&error))?;
        mutants.extend(list.mutant);
    }
    Ok(mutants)
}

/// Inserts one fault after another into a copy of the sources and runs at most `seeds` seeds with each: of one cluster, or of
/// as many as `clusters` says.
///
/// # Errors
/// Reports the faults that were not found, or what does not build.
pub fn run(seeds: u64, clusters: Option<&str>, only: &[String]) -> Result<(), String> {
    let tree = target_dir()?.join("mutants");
    copy(&tree)?;
    let mut missed = Vec::new();
    let lists = if clusters.is_some() { &[LIST_OF_CLUSTERS][..] } else { &LISTS };
    for mutant in read(lists)? {
        if !only.is_empty() && !only.iter().any(|part| mutant.name.contains(part)) {
            continue;
        }
        let (mutated, original) = mutant.text(&tree)?;
        let path = tree.join(&mutant.file);
        let write = |text: &str| fs::write(&path, text).map_err(|error| error.to_string());
        write(&mutated)?;
        let found = match &mutant.tests {
            None => find(&tree, seeds, clusters),
            Some(package) => find_by_tests(&tree, package),
        };
        write(&original)?;
        match found.map_err(|error| format!("\"{}\": {error}", mutant.name))? {
            Some(seed) => println!("{seed:>6}  {}", mutant.name),
            None => {
                println!("     -  {}", mutant.name);
                missed.push(mutant.name);
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join("; "))) }
}

/// Copies exactly the present sources into a separate folder.
fn copy(tree: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .current_dir(workspace())
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .map_err(|error| format!("git: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: BTreeSet<PathBuf> = listed.lines().map(|name| tree.join(name)).collect();
    remove_others(&tree.join("server"), &names).map_err(|error| error.to_string())?;
    for name in listed.lines() {
        let (from, to) = (workspace().join(name), tree.join(name));
        let Ok(bytes) = fs::read(&from) else { continue };
        // Unchanged files need not be built again.
        if fs::read(&to).is_ok_and(|known| known == bytes) {
            continue;
        }
        let folder = to.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        fs::write(&to, bytes).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

/// Removes the files of a folder that are not in `names`: a module with two files would not compile.
fn remove_others(folder: &Path, names: &BTreeSet<PathBuf>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, names)?;
        } else if !names.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Returns the seed at which a condition is violated.
fn find(tree: &Path, seeds: u64, clusters: Option<&str>) -> Result<Option<u64>, String> {
    let target = tree.join("target");
    let mut build = cargo();
    build.current_dir(tree).env("CARGO_TARGET_DIR", &target);
    // The assertions of the nodes also detect faults, as in tests. Most of the time is spent running, so optimize.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    build.args(["build", "--quiet", "-p", "nacre-sim"]);
    run_command(&mut build, "build the simulation with the fault")?;
    let output = Command::new("prlimit")
        .arg(format!("--cpu={SECONDS_MAX}"))
        .arg(target.join("debug/nacre-sim"))
        .args(["--seeds", &seeds.to_string()])
        .args(clusters.map(|clusters| format!("--clusters={clusters}")))
        .output()
        .map_err(|error| format!("prlimit: {error}"))?;
    if output.status.success() {
        return Ok(None);
    }
    if output.status.signal().is_some() {
        eprintln!("no end after {SECONDS_MAX} s of a processor:");
        return Ok(None);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let seed = told.lines().filter_map(|line| line.strip_prefix("seed ")).next_back();
    let seed = seed.and_then(|seed| seed.parse().ok());
    seed.map(Some).ok_or_else(|| {
        format!("it ended without a seed: {}", told.lines().last().unwrap_or_default())
    })
}

/// Returns the seed at which a test of `package` fails; 0 if it fails without a seed.
fn find_by_tests(tree: &Path, package: &str) -> Result<Option<u64>, String> {
    let mut command = cargo();
    command.current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target"));
    command.env("NACRE_BACKUP_SEEDS", TEST_SEEDS).env("RUST_BACKTRACE", "0");
    command.env("NACRE_DEVICE_SEEDS", TEST_SEEDS);
    let mut build = cargo();
    build.current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target"));
    build.args(["test", "--quiet", "--no-run", "-p", package]);
    run_command(&mut build, "build the tests with the fault")?;
    let output = command
        .args(["test", "--quiet", "--no-fail-fast", "-p", package])
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if output.status.success() {
        return Ok(None);
    }
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    let seed =
        told.lines().find_map(|line| line.split_once("seed ")?.1.split(':').next()?.parse().ok());
    Ok(Some(seed.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_still_fits_the_sources() {
        for (name, least) in [(LISTS[0], 40), (LISTS[1], 6), (LISTS[2], 10), (LIST_OF_CLUSTERS, 15)]
        {
            let list = read(&[name]).unwrap();
            assert!(list.len() >= least, "{name}");
            for mutant in list {
                mutant.text(&workspace()).unwrap();
            }
        }
    }
}
