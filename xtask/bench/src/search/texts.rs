//! The same documents and words in SQLite and PostgreSQL, for the kinds of query that they support.

use super::queries::{self, Kind};
use super::table;
use crate::postgres::{self, Postgres};
use crate::{ON_FIRST, PORT_BASE};
use serde_json::Value;
use std::path::Path;
use xtask_setup::command::{output, workspace, wrapped};
use xtask_setup::tools;

/// Measures both, each with one client, and prints the results. Skips PostgreSQL if it is not installed.
///
/// # Errors
/// Fails when one of them fails.
pub fn run(documents: &Path, kinds: &[Kind]) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("nacre-texts-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let queries = folder.join("queries.json");
    let words = serde_json::to_string(&queries::words(kinds)).map_err(|error| error.to_string())?;
    std::fs::write(&queries, words).map_err(failed)?;
    let outcome = measure(&folder, documents, &queries);
    let _ = std::fs::remove_dir_all(&folder);
    let (sqlite, postgres) = outcome?;
    let mut table = table(&["CPU", "SQLite FTS5", "PostgreSQL tsvector"]);
    let number = |value: &Value, digits: usize| {
        value.as_f64().map_or("-".to_owned(), |number| format!("{number:.digits$}"))
    };
    table.add_row([
        "indexing, s",
        &number(&sqlite["index_cpu_s"], 2),
        &number(&postgres["index_cpu_s"], 2),
    ]);
    let megabytes = |figures: &Value| figures["bytes"].as_f64().map(|bytes| bytes / 1e6);
    let size =
        |figures: &Value| megabytes(figures).map_or("-".to_owned(), |size| format!("{size:.1}"));
    table.add_row(["texts and index, MB", &size(&sqlite), &size(&postgres)]);
    for kind in kinds.iter().filter(|kind| !sqlite["cpu_us"][kind.name].is_null()) {
        let of = |figures: &Value| number(&figures["cpu_us"][kind.name], 0);
        table.add_row([&format!("{}, us", kind.name), &of(&sqlite), &of(&postgres)]);
    }
    println!("{table}");
    Ok(())
}

fn measure(folder: &Path, documents: &Path, queries: &Path) -> Result<(Value, Value), String> {
    let python = tools::python("psycopg-1", &["psycopg[binary]==3.3.3"])?;
    let ask = |engine: &str, target: &str| -> Result<Value, String> {
        let mut command = wrapped(&python, &ON_FIRST);
        command.arg(workspace().join("conformance/search/texts.py")).args([engine, target]);
        command.arg(documents).arg(queries);
        let text = output(&mut command, &format!("measure {engine}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{engine}: {error}: {text}"))
    };
    let sqlite = ask("sqlite", &folder.join("sqlite.db").to_string_lossy())?;
    let port = PORT_BASE + 57;
    let postgres = match Postgres::start(port) {
        Err(reason) => {
            println!("{reason}");
            Value::Null
        }
        Ok(server) => {
            println!("{}", server.version());
            let user = postgres::USER;
            ask("postgres", &format!("host=127.0.0.1 port={port} user={user} dbname=postgres"))?
        }
    };
    Ok((sqlite, postgres))
}
