//! `cargo xtask demo`: loads real data, queries views, and checks each answer against an
//! independent count.

use clap::Args;
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{run as run_command, workspace};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::tools;

/// Options of `cargo xtask demo`.
#[derive(Args, Debug)]
pub struct Demo {
    /// Exit after the tables were shown and checked
    #[arg(long)]
    pub once: bool,
    /// Move all ports, as for `nacre serve`
    #[arg(long)]
    pub port_base: Option<u16>,
}

/// The bucket with the data.
pub const BUCKET: &str = "demo";
const FLIGHTS: usize = 20_000;
/// Movies that `nacre import` loads; the official SDK loads the rest.
const MOVIES_IMPORTED: usize = 1_600;

/// Builds a server and runs the demonstration.
///
/// # Errors
/// Reports what is missing, or which answer was wrong.
pub fn run(options: &Demo) -> Result<(), String> {
    show(options, &node::build("dev")?)
}

/// Runs the demonstration with the server `binary`.
///
/// # Errors
/// As for [`run`].
pub fn show(options: &Demo, binary: &Path) -> Result<(), String> {
    let tools = Tools::install()?;
    let node = Node::start(binary, options.port_base, &[BUCKET], &[])?;
    node.end_together()?;
    fill(&node, binary, &tools)?;
    for design in ["airports", "flights", "movies"] {
        let file = workspace().join("examples/demo-views").join(format!("{design}.json"));
        let document = std::fs::read_to_string(&file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        node.put_design(BUCKET, design, &document)?;
    }
    airports(&node, &tools.data)?;
    flights(&node, &tools.data)?;
    movies(&node, &tools.data)?;

    println!("\nEvery table equals a count by hand. The node is at");
    println!("  management  http://127.0.0.1:{}", node.mgmt_port());
    for view in [
        "airports/_view/by_state?group=true",
        "flights/_view/delay_by_origin?group_level=1",
        "movies/_view/best_by_genre?group=true",
    ] {
        println!("  view        http://127.0.0.1:{}/{BUCKET}/_design/{view}", node.views_port());
    }
    println!(
        "  SDKs        couchbase://127.0.0.1:{}   user {USER}   password {PASSWORD}   bucket {BUCKET}",
        node.kv_port()
    );
    if options.once {
        return node.stop();
    }
    println!("Ctrl-C stops it and removes its data.");
    node.wait()
}

/// Packages that the demonstration needs from registries.
pub struct Tools {
    /// The folder with the files of data.
    pub data: PathBuf,
    /// Python with the official SDK.
    pub python: PathBuf,
}

impl Tools {
    /// Installs the tools, unless they are installed.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn install() -> Result<Tools, String> {
        let data = tools::npm("vega-datasets", "3.2.1")?.join("data");
        let python = tools::python("couchbase-4.6.3", &["couchbase==4.6.3"])?;
        Ok(Tools { data, python })
    }
}

/// Creates the collections in the bucket of the demonstration, and loads their documents.
///
/// # Errors
/// Reports what could not be created or loaded.
pub fn fill(node: &Node, binary: &Path, tools: &Tools) -> Result<(), String> {
    for (path, name) in [
        ("scopes", "vega"),
        ("scopes/vega/collections", "airports"),
        ("scopes/vega/collections", "flights"),
        ("scopes/vega/collections", "movies"),
    ] {
        let path = format!("/pools/default/buckets/{BUCKET}/{path}");
        let answer = node.rest("POST", &path, &[("name", name)])?;
        if answer.status != 200 {
            return Err(format!("cannot create {name}: {}", answer.text()));
        }
    }
    load(node, binary, tools)
}

fn load(node: &Node, binary: &Path, tools: &Tools) -> Result<(), String> {
    let Tools { data, python } = tools;
    let server = format!("127.0.0.1:{}", node.kv_port());
    let import = |arguments: &[&str], file: &str, collection: &str| {
        let mut command = Command::new(binary);
        command.arg("import").args(arguments).arg(data.join(file));
        command.args([
            "--server",
            &server,
            "--user",
            USER,
            "--password",
            PASSWORD,
            "--bucket",
            BUCKET,
            "--collection",
            collection,
        ]);
        run_command(&mut command, &format!("import {file}"))
    };
    let (flights, movies) = (FLIGHTS.to_string(), MOVIES_IMPORTED.to_string());
    import(&["csv", "--infer-types", "--key", "airport_%iata%"], "airports.csv", "vega.airports")?;
    import(
        &["json", "--key", "flight_#MONO_INCR#", "--limit", &flights],
        "flights-20k.json",
        "vega.flights",
    )?;
    import(
        &["json", "--key", "movie_#MONO_INCR#", "--limit", &movies],
        "movies.json",
        "vega.movies",
    )?;
    let mut sdk = Command::new(python);
    sdk.arg(workspace().join("examples/movies-python/load.py")).arg(data.join("movies.json"));
    sdk.args([
        "--connection",
        &format!("couchbase://{server}"),
        "--user",
        USER,
        "--password",
        PASSWORD,
    ]);
    sdk.args([
        "--bucket",
        BUCKET,
        "--collection",
        "vega.movies",
        "--from-row",
        &(MOVIES_IMPORTED + 1).to_string(),
    ]);
    run_command(&mut sdk, "load movies with the official Python SDK")
}

/// Prints the first rows, and compares all rows with those counted from the file.
fn present(
    title: &str,
    header: &[&str],
    rows: &[Vec<String>],
    expected: &[Vec<String>],
) -> Result<(), String> {
    const SHOWN: usize = 8;
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_header(header);
    for row in rows.iter().take(SHOWN) {
        table.add_row(row);
    }
    println!("\n{title} ({} rows)\n{table}", rows.len());
    let wrong = rows.iter().zip(expected).find(|(row, expected)| row != expected);
    match wrong {
        Some((row, expected)) => Err(format!("the view says {row:?}, the file says {expected:?}")),
        None if rows.len() != expected.len() => {
            Err(format!("the view has {} rows, the file {}", rows.len(), expected.len()))
        }
        None => Ok(()),
    }
}

/// Returns a JSON value in the form of a table cell.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn airports(node: &Node, data: &Path) -> Result<(), String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut file =
        csv::Reader::from_path(data.join("airports.csv")).map_err(|error| error.to_string())?;
    for record in file.records() {
        let record = record.map_err(|error| error.to_string())?;
        *counts.entry(record[3].to_owned()).or_default() += 1;
    }
    let expected: Vec<Vec<String>> =
        counts.into_iter().map(|(state, count)| vec![state, count.to_string()]).collect();
    let rows = node.view(BUCKET, "airports", "by_state", "group=true")?;
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| vec![shown(&row["key"]), shown(&row["value"])]).collect();
    present("Airports by state, _count", &["state", "airports"], &rows, &expected)
}

fn read(data: &Path, file: &str) -> Result<Vec<Value>, String> {
    let text =
        std::fs::read_to_string(data.join(file)).map_err(|error| format!("{file}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))
}

fn flights(node: &Node, data: &Path) -> Result<(), String> {
    let mut delays: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for flight in read(data, "flights-20k.json")?.iter().take(FLIGHTS) {
        let delay = flight["delay"].as_i64().ok_or("a flight has no delay")?;
        delays.entry(shown(&flight["origin"])).or_default().push(delay);
    }
    let row = |origin: String, count: i64, sum: i64, min: i64, max: i64| {
        let mean = format!("{:.1}", sum as f64 / count as f64);
        vec![origin, count.to_string(), mean, min.to_string(), max.to_string()]
    };
    let expected: Vec<Vec<String>> = delays
        .into_iter()
        .map(|(origin, all)| {
            let extremes =
                (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0));
            row(origin, all.len() as i64, all.iter().sum(), extremes.0, extremes.1)
        })
        .collect();
    let rows = node.view(BUCKET, "flights", "delay_by_origin", "group_level=1")?;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN) as i64;
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|found| {
            let (origin, stats) = (shown(&found["key"][0]), &found["value"]);
            row(
                origin,
                number(&stats["count"]),
                number(&stats["sum"]),
                number(&stats["min"]),
                number(&stats["max"]),
            )
        })
        .collect();
    present(
        "Flight delays by origin in minutes, _stats",
        &["origin", "flights", "mean", "min", "max"],
        &rows,
        &expected,
    )
}

fn movies(node: &Node, data: &Path) -> Result<(), String> {
    let mut best: BTreeMap<String, (f64, String)> = BTreeMap::new();
    for movie in read(data, "movies.json")? {
        let votes = movie["IMDB Votes"].as_f64().unwrap_or(0.0);
        let (Some(genre), Some(rating), true) =
            (movie["Major Genre"].as_str(), movie["IMDB Rating"].as_f64(), votes >= 10_000.0)
        else {
            continue;
        };
        let candidate = (rating, shown(&movie["Title"]));
        let current = best.entry(genre.to_owned()).or_insert_with(|| candidate.clone());
        if candidate.0 > current.0 || candidate.0 == current.0 && candidate.1 < current.1 {
            *current = candidate;
        }
    }
    let expected: Vec<Vec<String>> = best
        .into_iter()
        .map(|(genre, (rating, title))| vec![genre, title, rating.to_string()])
        .collect();
    let rows = node.view(BUCKET, "movies", "best_by_genre", "group=true")?;
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let rating = row["value"]["rating"].as_f64().unwrap_or(f64::NAN);
            vec![shown(&row["key"]), shown(&row["value"]["title"]), rating.to_string()]
        })
        .collect();
    present(
        "The best movie of each genre, a reduce function in JavaScript",
        &["genre", "movie", "rating"],
        &rows,
        &expected,
    )
}
