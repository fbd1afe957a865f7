//! `cargo xtask bench store` and `cargo xtask bench crashes`: the speed and safety of the stores.

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{cargo, output, run as run_command, target_dir, workspace};

const ENGINES: [&str; 3] = ["sled", "log", "fjall"];

/// A row of the table, its name in the benchmark, and its number of decimals.
const FIGURES: [(&str, &str, usize); 18] = [
    ("load, k documents/s", "load_kps", 0),
    ("get, k/s", "get_kps", 0),
    ("get p50, us", "get_p50_us", 1),
    ("commits of 100, k documents/s", "b100_kps", 1),
    ("  p50, ms", "b100_p50_ms", 1),
    ("  p99, ms", "b100_p99_ms", 1),
    ("commits of 1000, k documents/s", "b1000_kps", 1),
    ("  p50, ms", "b1000_p50_ms", 1),
    ("  p99, ms", "b1000_p99_ms", 1),
    ("scan by seqno, k documents/s", "scan_kps", 0),
    ("overwrite, k documents/s", "overwrite_kps", 0),
    ("  how often in 60 s, at most 3", "overwrite_times", 1),
    ("disk / live, at most", "disk_per_live_max", 2),
    ("disk / live, after it", "disk_per_live", 2),
    ("memory after it, MB", "rss_mb", 0),
    ("reopen, s", "reopen_s", 2),
    ("memory after reopen, MB", "reopen_rss_mb", 0),
    ("warmup, s", "warmup_s", 2),
];

type Figures = BTreeMap<String, f64>;

/// Runs all engines with the same work, each in its own process, and prints a table.
///
/// # Errors
/// Reports what is missing, or why an engine failed.
pub fn run(documents: u64, csv: Option<&Path>) -> Result<(), String> {
    let binary = build()?;
    let directory = target_dir()?.join("bench-store");
    let mut figures = Vec::new();
    for engine in ENGINES {
        eprintln!("{engine}: {documents} documents");
        let _ = std::fs::remove_dir_all(&directory);
        let mut of_engine = Figures::new();
        for phase in ["work", "reopen"] {
            of_engine.extend(measure(&binary, engine, documents, &directory, phase)?);
        }
        figures.push(of_engine);
    }
    let _ = std::fs::remove_dir_all(&directory);
    println!("{documents} documents of 1 KB, 1024 vBuckets, every commit synced");
    println!("{}", table(&figures));
    csv.map_or(Ok(()), |path| write_csv(path, documents, &figures))
}

/// Builds the benchmark once, so that all engines run the same version even if a change is made
/// meanwhile.
fn build() -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["bench", "--no-run", "--message-format=json", "-p", "nacre-store"]);
    build.args(["--features", "fjall", "--bench", "store"]);
    let messages = output(&mut build, "build the benchmark of the stores")?;
    let executable = |line: &str| -> Option<PathBuf> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "store").then_some(())?;
        Some(message["executable"].as_str()?.into())
    };
    messages.lines().find_map(executable).ok_or_else(|| "cargo names no benchmark".into())
}

fn measure(
    binary: &Path,
    engine: &str,
    documents: u64,
    directory: &Path,
    phase: &str,
) -> Result<Figures, String> {
    let mut bench = Command::new(binary);
    bench.args([engine, &documents.to_string()]).arg(directory).arg(phase);
    let line = output(&mut bench, &format!("measure {engine}"))?;
    let figure = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Ok(line.split_whitespace().filter_map(figure).collect())
}

fn table(figures: &[Figures]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    table.set_header([""].into_iter().chain(ENGINES).chain(["log / sled"]));
    for (label, name, decimals) in FIGURES {
        let value = |engine: usize| figures[engine].get(name).copied().unwrap_or(f64::NAN);
        let mut row = vec![label.to_owned()];
        row.extend((0..ENGINES.len()).map(|engine| format!("{:.decimals$}", value(engine))));
        row.push(format!("{:.2}", value(1) / value(0)));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn write_csv(path: &Path, documents: u64, figures: &[Figures]) -> Result<(), String> {
    let failed = |error: csv::Error| format!("cannot write {}: {error}", path.display());
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    writer.write_record(["documents", "engine", "figure", "value"]).map_err(failed)?;
    for (engine, of_engine) in ENGINES.iter().zip(figures) {
        for (name, value) in of_engine {
            let row =
                [documents.to_string(), (*engine).to_owned(), name.clone(), value.to_string()];
            writer.write_record(row).map_err(failed)?;
        }
    }
    writer.flush().map_err(|error| failed(error.into()))
}

/// Runs the complete crash matrix, and prints its number of points.
///
/// # Errors
/// The first point at which something was lost.
pub fn crashes(seeds: u64) -> Result<(), String> {
    let mut tests = cargo();
    tests
        .current_dir(workspace())
        .args(["test", "--quiet", "--release", "-p", "nacre-store", "--features", "fjall"])
        .args(["--test", "it", "crash", "--", "--nocapture"])
        .env("NACRE_CRASH_SEEDS", seeds.to_string());
    run_command(&mut tests, "go through all crashes")
}
