//! `cargo xtask bench sdk`: this project's SDKs against the official ones, on one node, in turn.

use super::PORT_BASE;
use super::load::median;
use crate::command::{output, workspace};
use crate::node::{self, Node, PASSWORD, USER};
use crate::sdk::{self, Language};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Figures of one process, by their names; throughputs and times alike.
type Figures = BTreeMap<String, f64>;

/// Measures `rounds` times, the official SDK and ours in turn, in each language.
///
/// # Errors
/// When something is missing, or a process fails.
pub fn run(rounds: usize, seconds: f64, binary: Option<&Path>) -> Result<(), String> {
    let binary = match binary {
        Some(path) => path.to_owned(),
        None => node::build("release")?,
    };
    for language in [Language::Node, Language::Python] {
        let targets = sdk::targets(language)?;
        let node = Node::start(&binary, Some(PORT_BASE), &["default"], &[])?;
        let url = format!("couchbase://127.0.0.1:{}", node.kv_port());
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(measure(sdk::command(language, &targets.official, LOAD), &url, seconds)?);
            ours.push(measure(sdk::command(language, &targets.own, LOAD), &url, seconds)?);
        }
        node.stop()?;
        show(language, &theirs, &ours);
    }
    Ok(())
}

/// The script of a measurement, without its extension.
const LOAD: &str = "conformance/sdk/bench/load";

fn measure(mut load: Command, url: &str, seconds: f64) -> Result<Figures, String> {
    load.args([url, USER, PASSWORD, "default", &seconds.to_string()]).current_dir(workspace());
    let text = output(&mut load, "load the node through an SDK")?;
    let line = text.lines().last().unwrap_or_default();
    let whole: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
    let mut figures = Figures::new();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    figures.insert("import, ms".into(), number(&whole["importMs"]));
    figures.insert("memory, MB".into(), number(&whole["memoryBytes"]) / 1e6);
    for (cell, found) in whole["cells"].as_object().into_iter().flatten() {
        figures.insert(format!("{cell}: 1/s"), number(&found["perSecond"]));
        figures.insert(format!("{cell}: p50, us"), number(&found["p50Us"]));
    }
    Ok(figures)
}

fn show(language: Language, theirs: &[Figures], ours: &[Figures]) {
    let middle = |rounds: &[Figures], name: &str| {
        median(rounds.iter().filter_map(|round| round.get(name).copied()).collect())
    };
    println!("{language:?}: median of {} rounds, the official SDK and ours in turn", theirs.len());
    println!("{:<26}{:>12}{:>12}{:>9}", "", "official", "ours", "ours/off.");
    for name in theirs.first().into_iter().flat_map(BTreeMap::keys) {
        let (official, own) = (middle(theirs, name), middle(ours, name));
        println!("{name:<26}{official:>12.1}{own:>12.1}{:>9.2}", own / official);
    }
    println!();
}
