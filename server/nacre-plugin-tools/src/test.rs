//! `nacre plugin test`: the scripts of a project, played in the host that a node runs; and calls that failed, made again.

use super::project;
use clap::Args;
use nacre_engine::{self as engine, Engine};
use nacre_sandbox::pure_script::{PureScript, play_pure};
use nacre_sandbox::script::{Script, play};
use nacre_sandbox::{Capsule, Limits, Package, Plugin, Setup, World, replay, validate};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where the scripts of a project lie.
const FOLDER: &str = "tests";

/// Options of `nacre plugin test`.
#[derive(Args, Clone, Debug)]
pub struct Test {
    /// The folder with plugin.toml
    #[arg(default_value = ".")]
    project: PathBuf,
    /// Replace the expected output by the actual output
    #[arg(long)]
    update: bool,
    /// Repeat the failed call of a capsule, in place of the scripts
    #[arg(long, value_name = "CAPSULE")]
    replay: Option<PathBuf>,
    /// Directory for compiled plugins
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Plays all scripts of a project.
///
/// # Errors
/// The number of scripts that have failed, or the reason why none could be played.
pub fn test(options: &Test) -> Result<(), String> {
    let package = project::package(&options.project)?;
    let plugin = load(&engine(options.plugin_cache.as_ref()), &package)?;
    if let Some(capsule) = &options.replay {
        return replay_capsule(&plugin, capsule);
    }
    play_all(&package, &plugin, &options.project, options.update)
}

/// Plays all scripts of a project, and says how each went.
///
/// # Errors
/// The number of scripts that have failed, or the reason why none could be played.
pub fn play_all(
    package: &Package,
    plugin: &Plugin,
    project: &Path,
    update: bool,
) -> Result<(), String> {
    let folder = project.join(FOLDER);
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    scripts.sort();
    let mut failed = 0;
    for path in &scripts {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match play_file(package, plugin, path, update) {
            Ok(true) => println!("ok      {name}"),
            Ok(false) => println!("updated {name}"),
            Err(reason) => {
                failed += 1;
                println!("FAILED  {name}\n{reason}");
            }
        }
    }
    match (failed, scripts.len()) {
        (_, 0) => Err(format!("there are no scripts in {}", folder.display())),
        (0, _) => Ok(()),
        (failed, all) => Err(format!("{failed} of {all} scripts failed")),
    }
}

/// An engine for the command at hand, with the cache that was named, or one that all commands share.
pub fn engine(cache: Option<&PathBuf>) -> Engine {
    let shared = || std::env::temp_dir().join("nacre-plugins");
    Engine::new(cache.cloned().unwrap_or_else(shared))
}

/// The component that runs a package.
///
/// # Errors
/// A sentence for the author of the package.
pub fn load(engine: &Engine, package: &Package) -> Result<Plugin, String> {
    let (name, component) = match package.manifest.script {
        Some(_) => ("js", engine::shipped("js")?),
        None => (package.manifest.name.as_str(), package.code()),
    };
    engine.load(name, &nacre_sandbox::digest(component), component)
}

/// Loads a package, and has its script read if that is what it is: a node does the same before it takes it.
///
/// # Errors
/// A sentence for the author of the package, with the place of the mistake.
pub fn check(engine: &Engine, package: &Package) -> Result<Plugin, String> {
    let plugin = load(engine, package)?;
    if package.manifest.script.is_some() {
        validate(&plugin, setup(package, "{}")?).map_err(|error| error.to_string())?;
    }
    Ok(plugin)
}

/// A deployment of the package that is granted all that it asks for.
///
/// # Errors
/// A sentence about the configuration.
pub fn setup(package: &Package, config: &str) -> Result<Setup, String> {
    let manifest = &package.manifest;
    let most = match manifest.world {
        World::Service | World::IndexType => Limits::default(),
        _ => Limits::pure(),
    };
    Ok(Setup {
        grants: manifest.grants(),
        limits: manifest.limits.within(most),
        runs_script: manifest.script.is_some(),
        ..Setup::new(&manifest.name, package.config(config)?)
    })
}

/// Plays one script; gives whether it went as expected, or was changed to what came.
fn play_file(
    package: &Package,
    plugin: &Plugin,
    path: &Path,
    update: bool,
) -> Result<bool, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let broken = |error: serde_json::Error| error.to_string();
    let failed = |error: nacre_sandbox::Error| error.to_string();
    if matches!(package.manifest.world, World::Service | World::IndexType) {
        let script: Script = serde_json::from_str(&text).map_err(broken)?;
        let setup = setup(package, &script.config.to_string())?;
        let actual = play(plugin, setup, &script).map_err(failed)?;
        let steps = script.steps.iter().zip(&actual.steps);
        let differences = steps.map(|(expected, actual)| expected.differences(actual)).collect();
        return judge(path, (&script, &actual), differences, update);
    }
    let script: PureScript = serde_json::from_str(&text).map_err(broken)?;
    let setup = setup(package, &script.config.to_string())?;
    let actual = play_pure(plugin, setup, &script).map_err(failed)?;
    let steps = script.steps.iter().zip(&actual.steps);
    let differences = steps.map(|(expected, actual)| expected.differences(actual)).collect();
    judge(path, (&script, &actual), differences, update)
}

/// Differences of a step by member: the expected value, and the actual one.
type Differences = Vec<(&'static str, Value, Value)>;

/// Result of a script: the expected and the actual steps, and the differences of each.
fn judge<S: Serialize + PartialEq>(
    path: &Path,
    (expected, actual): (&S, &S),
    differences: Vec<Differences>,
    update: bool,
) -> Result<bool, String> {
    if update && actual != expected {
        let text = serde_json::to_string_pretty(actual).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| error.to_string())?;
        return Ok(false);
    }
    let describe = |(index, of_step): (usize, Differences)| {
        let one = move |(member, expected, actual)| {
            format!("  step {index}: {member}\n    expected {expected}\n    came     {actual}")
        };
        of_step.into_iter().map(one)
    };
    let lines: Vec<String> = differences.into_iter().enumerate().flat_map(describe).collect();
    if lines.is_empty() { Ok(true) } else { Err(lines.join("\n")) }
}

fn replay_capsule(plugin: &Plugin, path: &Path) -> Result<(), String> {
    let text =
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let capsule: Capsule = serde_json::from_slice(&text)
        .map_err(|error| format!("{} is not a capsule: {error}", path.display()))?;
    println!("then: {}", capsule.reason);
    match replay(plugin, &capsule) {
        Ok(()) => {
            println!("now:  it succeeds");
            Ok(())
        }
        Err(error) => Err(format!("now:  {error}")),
    }
}
