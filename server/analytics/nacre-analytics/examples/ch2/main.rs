//! Runs the CH2 queries over shadows filled by the generator.
//!
//! ```text
//! ch2 answers FOLDER [WAREHOUSES [DIVISOR]]   writes documents and answers, for nacre-ch2/compare.py
//! ch2 write FOLDER [WAREHOUSES [DIVISOR]]     writes documents and changes, for nacre-ch2/speed.py
//! ch2 serve FOLDER                            loads such files and runs queries as speed.py requests
//! ch2 isolation …                             measures users and an analyst on a node, see isolation.rs
//! ```

mod answers;
mod isolation;
mod speed;

use nacre_analytics::catalog::{Catalog, Collection};
use nacre_analytics::names::Resolver;
use nacre_analytics::plan::{self, Planner};
use nacre_analytics::rows::{Patience, Snapshots};
use nacre_analytics::shadow::{Row, Shadow};
use nacre_ch2::{Options, TABLES};
use nacre_query::Settings;
use nacre_sql::ast::Statement;
use nacre_sql::parse_analytics;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory limit of the queries, in bytes.
const MEMORY_BYTES: usize = 4 << 30;

type Shadows = BTreeMap<String, Shadow>;
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    const USAGE: &str =
        "use: ch2 answers|write|serve FOLDER [WAREHOUSES [DIVISOR]], or ch2 isolation …";
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().ok_or(USAGE)?;
    if mode == "isolation" {
        return isolation::run(&arguments.collect::<Vec<_>>());
    }
    let folder = PathBuf::from(arguments.next().ok_or(USAGE)?);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<i64>());
    let options = Options { warehouses: number(1)?, divisor: number(1)?, seed: 1 };
    match mode.as_str() {
        "answers" => answers::compare(&folder, options),
        "write" => {
            speed::write(&folder, options);
            Ok(())
        }
        "serve" => speed::serve(&folder),
        _ => Err(USAGE.into()),
    }
}

fn row(key: &str, json: &str) -> Row {
    Row { id: key.into(), vbid: 0, cas: 1, flags: 0, expiry: 0, text: json.into() }
}

fn snapshots(shadows: &mut Shadows) -> Snapshots {
    let snapshot = |(table, shadow): (&String, &mut Shadow)| {
        (("Default".to_owned(), table.clone()), shadow.snapshot())
    };
    shadows.iter_mut().map(snapshot).collect()
}

/// Answers a query over columns, or returns the reason why it has no plan.
fn run(
    planner: &Planner,
    text: &str,
    snapshots: &Snapshots,
) -> Outcome<Result<Vec<String>, String>> {
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
        plan::Outcome::Columns(query) => {
            planner.run(query, &patience, &mut |row| {
                rows.push(row);
                Ok(())
            })?;
            Ok(Ok(rows))
        }
        plan::Outcome::Rows(reason) => Ok(Err(reason)),
    }
}
