//! Writes documents and answers for a comparison with another engine: first of the loaded documents, then after a third of them
//! has been replaced and some have been deleted.
//!
//! The replacing versions come from another seed, so that both data sets can be generated again.

use crate::{MEMORY_BYTES, Outcome, Shadows, row, run, snapshots};
use nacre_analytics::plan::Planner;
use nacre_ch2::{Options, QUERIES, TABLES, changes, generate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

/// Writes the documents and answers into two folders, `loaded` and `changed`.
///
/// # Errors
/// Names the queries without a plan over columns.
pub fn compare(folder: &Path, options: Options) -> Outcome<()> {
    let mut shadows = Shadows::new();
    let mut missing = Vec::new();
    let mut answer = |name: &str, change: &mut dyn FnMut(&mut Shadows, &Path)| {
        let folder = folder.join(name);
        let began = Instant::now();
        change(&mut shadows, &folder);
        println!("{name}: taken in within {:.1} s", began.elapsed().as_secs_f64());
        missing.extend(run_all(&mut shadows, &folder)?);
        Outcome::Ok(())
    };
    answer("loaded", &mut |shadows, folder| load(options, shadows, folder))?;
    answer("changed", &mut |shadows, folder| change(options, shadows, folder))?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("without a plan over columns: {}", missing.join(", ")).into()),
    }
}

/// Files of documents, one per line.
pub struct Files(BTreeMap<&'static str, BufWriter<File>>);

impl Files {
    /// Creates a file for each table in a folder.
    pub fn new(folder: &Path) -> Files {
        std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let file = |table| {
            let path = folder.join(format!("{table}.jsonl"));
            let file = File::create(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            (table, BufWriter::new(file))
        };
        Files(TABLES.map(file).into())
    }

    /// Appends a document.
    pub fn write(&mut self, table: &str, json: &str) {
        let file = self.0.get_mut(table).expect("all tables have a file");
        writeln!(file, "{json}").expect("the file can be written");
    }
}

fn load(options: Options, shadows: &mut Shadows, folder: &Path) {
    let mut files = Files::new(folder);
    generate(options, &mut |table, key, json| {
        shadows.entry(table.to_owned()).or_default().upsert(row(key, json));
        files.write(table, json);
    });
}

fn change(options: Options, shadows: &mut Shadows, folder: &Path) {
    let changes = changes(options);
    println!("{} documents are replaced or deleted", changes.len());
    let mut files = Files::new(folder);
    generate(options, &mut |table, key, json| {
        let shadow = shadows.get_mut(table).expect("it was loaded");
        match changes.get(&(table.to_owned(), key.to_owned())) {
            None => files.write(table, json),
            Some(Some(json)) => {
                shadow.upsert(row(key, json));
                files.write(table, json);
            }
            Some(None) => shadow.remove(key),
        }
    });
}

/// Runs all queries and writes their answers. Returns those without a plan over columns.
fn run_all(shadows: &mut Shadows, folder: &Path) -> Outcome<Vec<String>> {
    let began = Instant::now();
    let snapshots = snapshots(shadows);
    println!("sealed within {:.1} s", began.elapsed().as_secs_f64());
    let planner = Planner::new(MEMORY_BYTES, folder)?;
    let (mut logs, mut missing) = (0.0, Vec::new());
    for (number, text, _) in QUERIES {
        let began = Instant::now();
        let rows = match run(&planner, text, &snapshots) {
            Ok(Ok(rows)) => rows,
            Ok(Err(reason)) => {
                println!("Q{number:<3} no plan: {reason}");
                missing.push(format!("Q{number}"));
                continue;
            }
            Err(error) => {
                println!("Q{number:<3} failed: {error}");
                missing.push(format!("Q{number}"));
                continue;
            }
        };
        let took = began.elapsed().as_secs_f64() * 1000.0;
        logs += took.ln();
        println!("Q{number:<3} {:>6} rows {took:>10.1} ms", rows.len());
        let text = format!("[{}]", rows.join(",\n"));
        std::fs::write(folder.join(format!("{number:02}.json")), text)?;
    }
    println!("geometric mean {:.1} ms", (logs / QUERIES.len() as f64).exp());
    Ok(missing)
}
