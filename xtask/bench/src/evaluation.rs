//! `cargo xtask bench evaluation`: the operations of one client with the official Python SDK on clusters of one to five nodes, by
//! durability level and number of documents, with queries and full-text searches; a table for each operation.
//!
//! ```text
//! Cluster (as in `chaos`: each node in a network namespace) ◄── conformance/evaluation/evaluation.py ──► Timings ──► tables
//! ```

use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use xtask_setup::cluster::{BUCKET, Cluster};
use xtask_setup::command::{output, workspace};
use xtask_setup::node::{PASSWORD, USER};
use xtask_setup::tools;

/// The SDK, in the version that the conformance suite uses.
const SDK: &str = "couchbase==4.6.3";
const LEVELS: [&str; 3] = ["none", "majority", "persistToMajority"];
/// The operations of the tables, in order.
const OPERATIONS: [&str; 5] = ["insert", "update", "query", "search", "delete"];
/// Seconds of silence after which a node is failed over.
const FAILOVER_S: u64 = 5;

/// The text of the page before its tables.
const INTRODUCTION: &str = "# Evaluation in figures

Written by `cargo xtask bench evaluation --page docs/reference/evaluation-figures.md`. One client of the official Python SDK does one
operation after the other: it inserts, updates, queries by an index, searches for a word, and deletes. The nodes run on one machine of two
processors, each in a network namespace of its own, so that more nodes share what there is. Columns are levels of durability.
[Cluster figures](cluster-figures.md) has the same for the Go SDK, and the throughput while a node is killed.

";

/// Milliseconds of an operation for all documents, and of the slowest single one.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Timings {
    insert: f64,
    update: f64,
    query: f64,
    search: f64,
    delete: f64,
    slowest: f64,
}

impl Timings {
    fn all(&self) -> [f64; OPERATIONS.len()] {
        [self.insert, self.update, self.query, self.search, self.delete]
    }
}

/// One run.
struct Cell {
    nodes: usize,
    level: &'static str,
    documents: usize,
    timings: Timings,
}

/// Measures clusters of up to `nodes_max` nodes with each number of documents, and prints the tables, also to a file.
///
/// # Errors
/// Fails when a cluster or the client does not do its part.
pub fn run(
    nodes_max: usize,
    documents: &[usize],
    page: Option<&Path>,
    named: Option<&Path>,
) -> Result<(), String> {
    let binary = super::binary(named, "release")?;
    let python = tools::python("python-sdk-4.6.3", &[SDK])?;
    let mut cells = Vec::new();
    for nodes in 1..=nodes_max {
        let cluster = Cluster::start(&binary, nodes, FAILOVER_S, false)?;
        for &documents in documents {
            for level in LEVELS {
                let timings = measure(&python, &cluster, documents, level)?;
                println!("{nodes} nodes, {documents} documents, {level}: {timings:?}");
                cells.push(Cell { nodes, level, documents, timings });
            }
        }
        cluster.stop()?;
    }
    let text = tables(&cells);
    println!("{text}");
    match page {
        None => Ok(()),
        Some(path) => std::fs::write(path, format!("{INTRODUCTION}{text}"))
            .map_err(|error| format!("cannot write {}: {error}", path.display())),
    }
}

fn measure(
    python: &Path,
    cluster: &Cluster,
    documents: usize,
    level: &str,
) -> Result<Timings, String> {
    let mut command = Command::new(python);
    command
        .arg(workspace().join("conformance/evaluation/evaluation.py"))
        .args(["--connection", &cluster.connection(), "--user", USER, "--password", PASSWORD])
        .args(["--bucket", BUCKET, "--count", &documents.to_string(), "--durability", level])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let text = output(&mut command, "measure with the Python SDK")?;
    serde_json::from_str(&text).map_err(|error| format!("the client says {text:?}: {error}"))
}

/// Formats a table for each operation: milliseconds per operation, a row for each number of nodes and documents, a column for
/// each level.
fn tables(cells: &[Cell]) -> String {
    let mut text = String::new();
    for (number, operation) in OPERATIONS.iter().enumerate() {
        let _ = writeln!(
            text,
            "## {operation}, in milliseconds\n\n| nodes | documents | {} |\n|---:|---:|{}",
            LEVELS.join(" | "),
            "---:|".repeat(LEVELS.len())
        );
        let mut rows: Vec<(usize, usize)> =
            cells.iter().map(|cell| (cell.nodes, cell.documents)).collect();
        rows.dedup();
        for (nodes, documents) in rows {
            let of_level = |level: &&str| {
                let cell = cells.iter().find(|cell| {
                    (cell.nodes, cell.documents, cell.level) == (nodes, documents, *level)
                });
                let each = |cell: &Cell| cell.timings.all()[number] / documents.max(1) as f64;
                cell.map_or_else(String::new, |cell| format!("{:.2}", each(cell)))
            };
            let values: Vec<String> = LEVELS.iter().map(of_level).collect();
            let _ = writeln!(text, "| {nodes} | {documents} | {} |", values.join(" | "));
        }
        text.push('\n');
    }
    let slowest = cells.iter().map(|cell| cell.timings.slowest).fold(0.0, f64::max);
    let _ = writeln!(text, "The slowest operation of all took {slowest:.0} ms.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_time_of_one_operation_by_level() {
        let timings = Timings {
            insert: 100.0,
            update: 200.0,
            query: 300.0,
            search: 400.0,
            delete: 50.0,
            slowest: 9.0,
        };
        let cell = |level| Cell { nodes: 1, level, documents: 100, timings };
        let text = tables(&[cell("none"), cell("persistToMajority")]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| 1 |")).collect();
        assert_eq!(rows.len(), OPERATIONS.len());
        assert_eq!(rows[0], "| 1 | 100 | 1.00 |  | 1.00 |");
        assert_eq!(rows[3], "| 1 | 100 | 4.00 |  | 4.00 |");
        assert!(text.ends_with("took 9 ms.\n"));
    }
}
