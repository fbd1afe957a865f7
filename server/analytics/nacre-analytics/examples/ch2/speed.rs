//! Documents and changes as files that several engines can read, and the queries on demand.

use crate::answers::Files;
use crate::{MEMORY_BYTES, Outcome, Shadows, row, run, snapshots};
use nacre_analytics::plan::Planner;
use nacre_analytics::rows::Snapshots;
use nacre_ch2::{Options, QUERIES, TABLES, changes, generate};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The beginning of a line: the document's ID is its first field. A document without further fields is a deletion.
const ID: &str = "{\"_id\":\"";

fn line(key: &str, json: &str) -> String {
    match json.strip_prefix('{') {
        Some(fields) => format!("{ID}{key}\",{fields}"),
        None => format!("{ID}{key}\"}}"),
    }
}

/// Writes the documents of each table to `loaded/TABLE.jsonl`, and later versions and deletions to `changes/TABLE.jsonl`.
pub fn write(folder: &Path, options: Options) {
    let changes = changes(options);
    let [mut loaded, mut changed] =
        ["loaded", "changes"].map(|name| Files::new(&folder.join(name)));
    generate(options, &mut |table, key, json| {
        loaded.write(table, &line(key, json));
        if let Some(change) = changes.get(&(table.to_owned(), key.to_owned())) {
            changed.write(table, &line(key, change.as_deref().unwrap_or_default()));
        }
    });
}

/// Answers one line of the input after the other, with a line each: `load FOLDER` takes in the files of a folder and returns the
/// number of documents; the number of a query returns the number of its rows.
///
/// # Errors
/// The first error.
pub fn serve(folder: &Path) -> Outcome<()> {
    let planner = Planner::new(MEMORY_BYTES, folder)?;
    let (mut shadows, mut current) = (Shadows::new(), Snapshots::new());
    for command in std::io::stdin().lines() {
        let command = command?;
        let count = match command.strip_prefix("load ") {
            Some(folder) => {
                // Earlier snapshots would keep their segments in memory.
                current.clear();
                load(Path::new(folder), &mut shadows)?;
                current = snapshots(&mut shadows);
                current.values().map(|snapshot| snapshot.row_count()).sum::<usize>()
            }
            None => {
                let number: usize = command.parse()?;
                let query =
                    QUERIES.iter().find(|query| query.0 == number).ok_or("no such query")?;
                run(&planner, query.1, &current)??.len()
            }
        };
        println!("{count}");
    }
    Ok(())
}

fn load(folder: &Path, shadows: &mut Shadows) -> Outcome<()> {
    for table in TABLES {
        let shadow = shadows.entry(table.to_owned()).or_default();
        let file = File::open(folder.join(format!("{table}.jsonl")))?;
        for text in BufReader::new(file).lines() {
            let text = text?;
            let key = text.strip_prefix(ID).and_then(|text| text.split('"').next());
            let key = key.ok_or("a document without an ID")?;
            match text.len() == ID.len() + key.len() + 2 {
                true => shadow.remove(key),
                false => shadow.upsert(row(key, &text)),
            }
        }
    }
    Ok(())
}
