//! Runs the CH2 queries over shadows filled by the generator, and writes documents and answers for a comparison: first of the
//! loaded documents, then after a third of them has been replaced and some have been deleted.
//!
//! ```text
//! cargo run --release --example ch2 -- FOLDER [WAREHOUSES [DIVISOR]]
//! python ../nacre-ch2/compare.py FOLDER/loaded FOLDER/changed
//! ```
//!
//! The replacing versions come from another seed, so that both data sets can be generated again.

use nacre_analytics::catalog::{Catalog, Collection};
use nacre_analytics::names::Resolver;
use nacre_analytics::plan::{Outcome, Planner};
use nacre_analytics::rows::{Patience, Snapshots};
use nacre_analytics::shadow::{Row, Shadow};
use nacre_ch2::{Options, QUERIES, TABLES, changes, generate};
use nacre_query::Settings;
use nacre_sql::ast::Statement;
use nacre_sql::parse_analytics;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory limit of the queries, in bytes.
const MEMORY_BYTES: usize = 4 << 30;

type Shadows = BTreeMap<String, Shadow>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder")?);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<i64>());
    let options = Options { warehouses: number(1)?, divisor: number(1)?, seed: 1 };
    let mut shadows = Shadows::new();
    let mut missing = Vec::new();
    let mut answer = |name: &str, change: &mut dyn FnMut(&mut Shadows, &Path)| {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let began = Instant::now();
        change(&mut shadows, &folder);
        println!("{name}: taken in within {:.1} s", began.elapsed().as_secs_f64());
        missing.extend(run_all(&mut shadows, &folder)?);
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    answer("loaded", &mut |shadows, folder| load(options, shadows, folder))?;
    answer("changed", &mut |shadows, folder| change(options, shadows, folder))?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("without a plan over columns: {}", missing.join(", ")).into()),
    }
}

fn row(key: &str, json: &str) -> Row {
    Row { id: key.into(), vbid: 0, cas: 1, flags: 0, expiry: 0, text: json.into() }
}

/// Files of documents, one per line.
struct Files(BTreeMap<&'static str, BufWriter<File>>);

impl Files {
    fn new(folder: &Path) -> Files {
        let file = |table| {
            let path = folder.join(format!("{table}.jsonl"));
            let file = File::create(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            (table, BufWriter::new(file))
        };
        Files(TABLES.map(file).into())
    }

    fn write(&mut self, table: &str, json: &str) {
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
fn run_all(
    shadows: &mut Shadows,
    folder: &Path,
) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let began = Instant::now();
    let snapshots: Snapshots = shadows
        .iter_mut()
        .map(|(table, shadow)| (("Default".to_owned(), table.clone()), shadow.snapshot()))
        .collect();
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

/// Answers a query over columns, or returns the reason why it has no plan.
fn run(
    planner: &Planner,
    text: &str,
    snapshots: &Snapshots,
) -> Result<Result<Vec<String>, String>, Box<dyn std::error::Error>> {
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
    let patience = Patience { deadline, is_cancelled: Arc::default(), client: None };
    let mut rows = Vec::new();
    match planner.plan(&select, snapshots, &Settings::default())? {
        Outcome::Columns(query) => {
            planner.run(query, &patience, &mut |row| {
                rows.push(row);
                Ok(())
            })?;
            Ok(Ok(rows))
        }
        Outcome::Rows(reason) => Ok(Err(reason)),
    }
}
