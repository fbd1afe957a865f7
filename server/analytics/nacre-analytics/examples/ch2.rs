//! Runs the queries of CH2 over shadows that are filled from the generator, and writes documents and answers for a comparison.
//!
//! ```text
//! cargo run --release --example ch2 -- FOLDER [WAREHOUSES [DIVISOR]]
//! python ../nacre-ch2/compare.py FOLDER
//! ```
//!
//! The documents are loaded twice: first all of them with other values, then a part of them as they are and some more that are deleted, so
//! that segments have deleted rows when they are read.

use nacre_analytics::catalog::{Catalog, Collection};
use nacre_analytics::names::Resolver;
use nacre_analytics::plan::{Outcome, Planner};
use nacre_analytics::rows::{Patience, Snapshots};
use nacre_analytics::shadow::{Row, Shadow};
use nacre_ch2::{Options, QUERIES, TABLES, generate};
use nacre_query::Settings;
use nacre_sql::ast::Statement;
use nacre_sql::parse_analytics;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every so many-th document is written twice.
const UPDATED: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder")?);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<i64>());
    let options = Options { warehouses: number(1)?, divisor: number(1)?, seed: 1 };
    std::fs::create_dir_all(&folder)?;
    let began = Instant::now();
    let mut shadows = load(options, &folder)?;
    println!("loaded in {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let snapshots: Snapshots = shadows
        .iter_mut()
        .map(|(table, shadow)| (("Default".to_owned(), table.clone()), shadow.snapshot()))
        .collect();
    println!("sealed in {:.1} s", began.elapsed().as_secs_f64());
    let planner = Planner::new(4 << 30, &folder)?;
    let mut product = 0.0;
    for (number, text, _) in QUERIES {
        let began = Instant::now();
        let (engine, rows) = run(&planner, text, &snapshots)?;
        let took = began.elapsed().as_secs_f64() * 1000.0;
        product += took.ln();
        println!("Q{number:<3} {engine:<8} {:>6} rows {took:>10.1} ms", rows.len());
        std::fs::write(
            folder.join(format!("{number:02}.json")),
            format!("[{}]", rows.join(",\n")),
        )?;
    }
    println!("geometric mean {:.1} ms", (product / QUERIES.len() as f64).exp());
    Ok(())
}

fn load(options: Options, folder: &Path) -> std::io::Result<BTreeMap<String, Shadow>> {
    let mut shadows: BTreeMap<String, Shadow> = BTreeMap::new();
    let mut files: BTreeMap<&str, BufWriter<File>> = BTreeMap::new();
    for table in TABLES {
        files.insert(table, BufWriter::new(File::create(folder.join(format!("{table}.jsonl")))?));
    }
    let mut count = 0;
    generate(options, &mut |table, key, json| {
        let row = |text: &str| Row {
            id: key.into(),
            vbid: 0,
            cas: 1,
            flags: 0,
            expiry: 0,
            text: text.into(),
        };
        let shadow = shadows.entry(table.to_owned()).or_default();
        count += 1;
        if count % UPDATED == 0 {
            // A version that is replaced, and a document that is deleted.
            shadow.upsert(row("{\"stale\":true}"));
            let gone = format!("gone {key}");
            shadow.upsert(Row { id: gone.as_str().into(), ..row(json) });
            if count % (100 * UPDATED) == 0 {
                shadow.snapshot();
            }
            shadow.remove(&gone);
        }
        shadow.upsert(row(json));
        if let Some(file) = files.get_mut(table) {
            writeln!(file, "{json}").expect("the file can be written");
        }
    });
    Ok(shadows)
}

fn run(
    planner: &Planner,
    text: &str,
    snapshots: &Snapshots,
) -> Result<(String, Vec<String>), Box<dyn std::error::Error>> {
    let mut catalog = Catalog::default();
    for table in TABLES {
        let source = ["ch2".to_owned(), "_default".to_owned(), table.to_owned()];
        let collection = Collection { source, condition: None, indexes: BTreeMap::new() };
        catalog.scope_mut("Default")?.collections.insert(table.to_owned(), collection);
    }
    let Statement::Select(mut select) = parse_analytics(text)? else {
        return Err("no query".into());
    };
    Resolver::new(&catalog, "Default", text).select(&mut select)?;
    let deadline = Instant::now() + Duration::from_secs(3600);
    let patience = Patience { deadline, is_cancelled: Arc::default() };
    let mut rows = Vec::new();
    match planner.plan(&select, snapshots, &Settings::default())? {
        Outcome::Columns(query) => {
            planner.run(query, &patience, &mut |row| {
                rows.push(row);
                Ok(())
            })?;
            Ok(("columns".to_owned(), rows))
        }
        Outcome::Rows(reason) => Ok((format!("no plan: {reason}"), rows)),
    }
}
