//! The same documents and words in SQLite, PostgreSQL and tantivy itself, for the kinds of query that they support.

use super::queries::{self, Kind};
use super::table;
use crate::postgres::{self, Postgres};
use crate::{ON_FIRST, PORT_BASE};
use serde_json::Value;
use std::path::Path;
use xtask_setup::command::{output, workspace, wrapped};
use xtask_setup::tools;

/// Measures them, each with one client, and prints the results. Skips PostgreSQL if it is not installed. SQLite and tantivy run in the
/// process of the client, so that their queries cost no request.
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
    let figures = outcome?;
    let mut table = table(&["CPU", "SQLite FTS5", "PostgreSQL tsvector", "tantivy, native"]);
    let mut row = |name: &str, of: &dyn Fn(&Value) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(figures.iter().map(of));
        table.add_row(cells);
    };
    let number = |value: &Value, digits: usize| {
        value.as_f64().map_or("-".to_owned(), |number| format!("{number:.digits$}"))
    };
    row("indexing, s", &|figures| number(&figures["index_cpu_s"], 2));
    row("texts and index, MB", &|figures| {
        let megabytes = figures["bytes"].as_f64().map(|bytes| bytes / 1e6);
        megabytes.map_or("-".to_owned(), |size| format!("{size:.1}"))
    });
    for kind in kinds.iter().filter(|kind| !figures[0]["cpu_us"][kind.name].is_null()) {
        row(&format!("{}, us", kind.name), &|figures| number(&figures["cpu_us"][kind.name], 0));
    }
    println!("{table}");
    Ok(())
}

/// Returns the figures of SQLite, PostgreSQL and tantivy.
fn measure(folder: &Path, documents: &Path, queries: &Path) -> Result<[Value; 3], String> {
    let packages = ["psycopg[binary]==3.3.3", "tantivy==0.27.0"];
    let python = tools::python("texts-1", &packages)?;
    let ask = |engine: &str, target: &str| -> Result<Value, String> {
        let mut command = wrapped(&python, &ON_FIRST);
        command.arg(workspace().join("conformance/search/texts.py")).args([engine, target]);
        command.arg(documents).arg(queries);
        let text = output(&mut command, &format!("measure {engine}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{engine}: {error}: {text}"))
    };
    let sqlite = ask("sqlite", &folder.join("sqlite.db").to_string_lossy())?;
    let segments = folder.join("tantivy");
    std::fs::create_dir_all(&segments)
        .map_err(|error| format!("{}: {error}", segments.display()))?;
    let tantivy = ask("tantivy", &segments.to_string_lossy())?;
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
    Ok([sqlite, postgres, tantivy])
}
