//! `cargo xtask bench sdk`: this project's SDKs compared with the official ones, on one node, in
//! turn.

use super::load::median;
use super::{Goal, Limit, PORT_BASE};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use xtask_setup::command::{output, workspace};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::sdks::{self, Language};

/// The figures of one process, by name: throughputs and times.
type Figures = BTreeMap<String, f64>;

/// Measures the official SDK and ours in turn, `rounds` times, in each language.
///
/// # Errors
/// Fails when something is missing, or a process fails.
pub fn run(rounds: usize, seconds: f64, binary: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(binary, "release")?;
    sdks::build_js()?;
    println!(
        "documents of about 200 bytes, 10,000 keys, {seconds} s for each cell; SDKs and node share {} processors",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    let mut checked = Vec::new();
    for language in [Language::Node, Language::Python] {
        let targets = sdks::targets(language)?;
        let node = Node::start(&binary, Some(PORT_BASE), &["default"], &[])?;
        let url = format!("couchbase://127.0.0.1:{}", node.kv_port());
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(measure(sdks::command(language, &targets.official, LOAD), &url, seconds)?);
            ours.push(measure(sdks::command(language, &targets.own, LOAD), &url, seconds)?);
        }
        node.stop()?;
        show(language, &theirs, &ours);
        checked.extend(check(language, &theirs, &ours));
    }
    checked.into_iter().collect()
}

const IMPORT: &str = "import, ms";
const MEMORY: &str = "memory, MB";
/// Maximum ratio of the memory of an SDK beyond its runtime to that of the official one.
const MEMORY_RATIO_MAX: f64 = 0.3;
const IMPORT_MS_MAX: f64 = 30.0;
/// The script of a measurement, without its extension.
const LOAD: &str = "conformance/sdk/bench/load";

fn measure(mut load: Command, url: &str, seconds: f64) -> Result<Figures, String> {
    load.args([url, USER, PASSWORD, "default", &seconds.to_string()]).current_dir(workspace());
    let text = output(&mut load, "load the node through an SDK")?;
    let line = text.lines().last().unwrap_or_default();
    let whole: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
    let mut figures = Figures::new();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    figures.insert(IMPORT.into(), number(&whole["importMs"]));
    figures.insert(MEMORY.into(), number(&whole["memoryBytes"]) / 1e6);
    for (cell, found) in whole["cells"].as_object().into_iter().flatten() {
        figures.insert(format!("{cell}: 1/s"), number(&found["perSecond"]));
        figures.insert(format!("{cell}: p50, us"), number(&found["p50Us"]));
        figures.insert(format!("{cell}: CPU, us"), number(&found["cpuUs"]));
    }
    Ok(figures)
}

fn middle(rounds: &[Figures], name: &str) -> f64 {
    median(rounds.iter().filter_map(|round| round.get(name).copied()).collect())
}

fn show(language: Language, theirs: &[Figures], ours: &[Figures]) {
    println!("{language:?}: median of {} rounds, the official SDK and ours in turn", theirs.len());
    println!("{:<26}{:>12}{:>12}{:>9}", "", "official", "ours", "ours/off.");
    for name in theirs.first().into_iter().flat_map(BTreeMap::keys) {
        let (official, own) = (middle(theirs, name), middle(ours, name));
        println!("{name:<26}{official:>12.1}{own:>12.1}{:>9.2}", own / official);
    }
    println!();
}

/// Compares the median of paired ratios, and the slowest cell of all, with the goals.
fn check(language: Language, theirs: &[Figures], ours: &[Figures]) -> Vec<Result<(), String>> {
    let ratio = |name: &str| {
        let pairs = ours.iter().zip(theirs);
        median(
            pairs
                .filter_map(|(own, official)| Some(own.get(name)? / official.get(name)?))
                .collect(),
        )
    };
    let cells = theirs.first().into_iter().flat_map(BTreeMap::keys);
    let cells = cells.filter(|name| name.ends_with("1/s"));
    let slowest = cells.map(|name| ratio(name)).fold(f64::INFINITY, f64::min);
    let (speed, memory, import) = match language {
        Language::Node => (
            Goal {
                what: "Node.js: slowest cell, ours against the official SDK",
                unit: "x",
                min: 1.0,
            },
            "Node.js: memory, ours against the official SDK",
            "Node.js: import of ours",
        ),
        Language::Python => (
            Goal {
                what: "Python: slowest cell, ours against the official SDK",
                unit: "x",
                min: 0.8,
            },
            "Python: memory, ours against the official SDK",
            "Python: import of ours",
        ),
    };
    let memory = Limit { what: memory, unit: "x", max: MEMORY_RATIO_MAX };
    let import = Limit { what: import, unit: " ms", max: IMPORT_MS_MAX };
    vec![speed.check(slowest), memory.check(ratio(MEMORY)), import.check(middle(ours, IMPORT))]
}
