//! `cargo xtask bench embedded`: an embedded database compared with SQLite, LMDB, RocksDB and libSQL, in Rust, Python and
//! Node.js, one after another; and the sizes of the libraries.

use super::load::median;
use super::search::table;
use super::{Goal, Limit};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask_setup::command::{cargo, output, run as run_command, target_dir, workspace};
use xtask_setup::{node, sdks, tools};

/// The figures of one process, by name.
type Figures = BTreeMap<String, f64>;

/// The build profile of libraries for devices.
const PROFILE: &str = "edge";
/// The Python packages of the other engines.
const WHEELS: [&str; 2] = ["lmdb==3.0.0", "rocksdict==0.3.29"];
const LMDB_NPM: &str = "3.5.6";
const LIBSQL_NPM: &str = "0.5.29";
const COLUMNS: [(&str, &str); 6] = [
    ("getUs", "get, us"),
    ("getParsedUs", "get and parse, us"),
    ("putUs", "put, us"),
    ("durableUs", "durable put, us"),
    ("syncUs", "fdatasync alone, us"),
    ("openMs", "open, ms"),
];

/// Measures each engine `rounds` times, one after another, and prints the sizes of the libraries.
///
/// # Errors
/// Reports what is missing, or which goal was missed.
pub fn run(rounds: usize, seconds: f64) -> Result<(), String> {
    let sizes = sizes()?;
    let libraries = Libraries::build()?;
    sdks::build_js()?;
    let engines = engines(&libraries, seconds)?;
    println!(
        "documents of about 200 bytes, 10,000 keys, all in memory; {seconds} s for each figure, median of {rounds} rounds"
    );
    let mut found: Vec<Vec<Figures>> = vec![Vec::new(); engines.len()];
    for _ in 0..rounds {
        for (engine, rounds) in engines.iter().zip(&mut found) {
            rounds.push(engine.measure()?);
        }
    }
    let mut header = vec!["engine"];
    header.extend(COLUMNS.map(|(_, title)| title));
    let mut table = table(&header);
    for (engine, rounds) in engines.iter().zip(&found) {
        let cell =
            |(name, _)| middle(rounds, name).map_or("-".into(), |value| format!("{value:.2}"));
        table.add_row([engine.name.to_owned()].into_iter().chain(COLUMNS.map(cell)));
    }
    println!("{table}");
    let of = |name: &str| engines.iter().position(|engine| engine.name == name);
    let figure = |engine: &str, name: &str| {
        of(engine).and_then(|place| middle(&found[place], name)).unwrap_or(f64::NAN)
    };
    let ratio =
        |ours: &str, theirs: &str| figure(theirs, "getParsedUs") / figure(ours, "getParsedUs");
    let checks = [
        sizes,
        GET.check(figure(RUST, "getUs")),
        SYNC.check(figure(RUST, "durableUs") / figure(RUST, "syncUs")),
        OPEN.check(figure(RUST, "openMs")),
        EMPTY.check(figure(RUST, "emptyMb")),
        PYTHON.check(ratio("nacre, Python", "LMDB, Python")),
        NODE.check(ratio("nacre, Node.js", "LMDB, Node.js")),
    ];
    let failed: Vec<String> = checks.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Prints the sizes of the libraries and of the gateway, and the gateway's memory.
///
/// # Errors
/// Reports what does not build, or what is too large.
pub fn check_sizes() -> Result<(), String> {
    sizes()?
}

const RUST: &str = "nacre, Rust";
const GET: Limit = Limit { what: "a get in Rust", unit: " us", max: 0.5 };
const SYNC: Limit = Limit { what: "a durable put against fdatasync alone", unit: "x", max: 1.5 };
const OPEN: Limit = Limit { what: "opening 10,000 documents", unit: " ms", max: 5.0 };
const EMPTY: Limit = Limit { what: "memory of an empty database", unit: " MB", max: 3.0 };
const PYTHON: Goal =
    Goal { what: "Python: get and parse, against the bindings of LMDB", unit: "x", min: 1.0 };
const NODE: Goal =
    Goal { what: "Node.js: get and parse, against the bindings of LMDB", unit: "x", min: 1.0 };

/// A library or program, its build options, and its maximum size in MB.
const SIZES: [(&str, &[&str], &str, Limit); 5] = [
    (
        C,
        &["--no-default-features"],
        C_FILE,
        Limit { what: "libnacre.so with documents alone", unit: " MB", max: 2.5 },
    ),
    (
        "nacre-embedded-node",
        &["--no-default-features"],
        ADDON_FILE,
        Limit { what: "the addon for Node.js, with sync and sled", unit: " MB", max: 4.0 },
    ),
    (
        "nacre-embedded-node",
        &[],
        ADDON_FILE,
        Limit {
            what: "the addon for Node.js, with SQL++, views, sync and sled",
            unit: " MB",
            max: 8.0,
        },
    ),
    (
        EDGE,
        &[],
        EDGE,
        Limit { what: "the gateway nacre-edge, with views, sync and sled", unit: " MB", max: 12.0 },
    ),
    // Last, because the SDKs load this build.
    (
        C,
        &[],
        C_FILE,
        Limit { what: "libnacre.so with SQL++, views, sync and sled", unit: " MB", max: 8.0 },
    ),
];
const C: &str = "nacre-embedded-c";
const C_FILE: &str = "libnacre_c.so";
const ADDON_FILE: &str = "libnacre_embedded_node.so";
const EDGE: &str = "nacre-edge";
const WHEEL: Limit = Limit {
    what: "libnacre.so with SQL++, views, sync and sled, as a wheel packs it",
    unit: " MB",
    max: 4.0,
};
const IDLE: Limit = Limit { what: "own memory of an idle gateway", unit: " MB", max: 16.0 };

/// Prints the sizes of the libraries; reports those that are too large.
fn sizes() -> Result<Result<(), String>, String> {
    let mut failed = Vec::new();
    for (package, options, file, limit) in SIZES {
        let path = build(package, options, file)?;
        let bytes = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        failed.extend(limit.check(bytes.len() as f64 / 1e6).err());
    }
    let library = target_dir()?.join(PROFILE).join(C_FILE);
    failed.extend(WHEEL.check(packed_bytes(&library)? as f64 / 1e6).err());
    failed.extend(IDLE.check(idle_bytes()? as f64 / 1e6).err());
    Ok(if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) })
}

/// Returns the compressed size of a file.
fn packed_bytes(path: &Path) -> Result<u64, String> {
    let packed = target_dir()?.join(PROFILE).join("library.zip");
    let _ = fs::remove_file(&packed);
    let mut zip = Command::new("python3");
    zip.args(["-c", "import sys, zipfile\nzipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED).write(sys.argv[2], 'library')"]);
    run_command(zip.arg(&packed).arg(path), "pack a library (Python is needed)")?;
    let bytes = fs::metadata(&packed).map_err(|error| format!("{}: {error}", packed.display()))?;
    Ok(bytes.len())
}

/// Starts a gateway over an empty folder, and returns its private memory.
fn idle_bytes() -> Result<u64, String> {
    let folder = target_dir()?.join("bench-edge");
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new(target_dir()?.join(PROFILE).join(EDGE));
    command.arg("--folder").arg(&folder).args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut gateway = command.spawn().map_err(|error| format!("start {EDGE}: {error}"))?;
    // It prints a line once it accepts connections.
    let mut line = String::new();
    let said = gateway.stderr.take().map(|output| BufReader::new(output).read_line(&mut line));
    let bytes = node::own_memory_bytes(gateway.id());
    let _ = gateway.kill().and_then(|()| gateway.wait());
    let _ = fs::remove_dir_all(&folder);
    match said {
        Some(Ok(1..)) if line.contains("://") => bytes,
        _ => Err(format!("{EDGE} does not start: {line}")),
    }
}

/// Builds a library or program and returns its path.
fn build(package: &str, options: &[&str], file: &str) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--profile", PROFILE, "-p", package]).args(options);
    run_command(&mut command, &format!("build {package}"))?;
    Ok(target_dir()?.join(PROFILE).join(file))
}

/// The libraries that the SDKs load.
struct Libraries {
    c: PathBuf,
    addon: PathBuf,
}

impl Libraries {
    fn build() -> Result<Libraries, String> {
        Ok(Libraries {
            c: build(C, &[], C_FILE)?,
            addon: build("nacre-embedded-node", &[], ADDON_FILE)?,
        })
    }
}

/// A program that takes a folder and seconds, and prints figures.
struct Engine {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(&'static str, PathBuf)>,
    seconds: f64,
}

impl Engine {
    fn measure(&self) -> Result<Figures, String> {
        let folder = target_dir()?.join("bench-embedded");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(&folder)
            .arg(self.seconds.to_string())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        let text = output(&mut command, &format!("measure {}", self.name))?;
        let _ = fs::remove_dir_all(&folder);
        let line = text.lines().last().unwrap_or_default();
        let figures: BTreeMap<String, Value> = serde_json::from_str(line)
            .map_err(|error| format!("{}: {line}: {error}", self.name))?;
        let number = |(name, value): (String, Value)| Some((name, value.as_f64()?));
        Ok(figures.into_iter().filter_map(number).collect())
    }
}

fn engines(libraries: &Libraries, seconds: f64) -> Result<Vec<Engine>, String> {
    let script = |name: &str| workspace().join("conformance/embedded").join(name);
    let python = tools::python("embedded-1", &WHEELS)?;
    let in_python = |name, engine: &str| Engine {
        name,
        program: python.clone(),
        arguments: vec![script("access.py").to_string_lossy().into_owned(), engine.to_owned()],
        variables: vec![
            ("PYTHONPATH", workspace().join("sdk-py/src")),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("NACRE_LIBRARY", libraries.c.clone()),
        ],
        seconds,
    };
    let in_node = |name, engine: &str, package: &Path| Engine {
        name,
        program: "node".into(),
        arguments: vec![
            script("access.mjs").to_string_lossy().into_owned(),
            engine.to_owned(),
            package.to_string_lossy().into_owned(),
        ],
        variables: vec![("NACRE_ADDON", libraries.addon.clone())],
        seconds,
    };
    let lmdb = tools::npm("lmdb", LMDB_NPM)?;
    let libsql = tools::npm("libsql", LIBSQL_NPM)?;
    let own = workspace().join("sdk-js/dist/src/index.js");
    Ok(vec![
        Engine {
            name: RUST,
            program: bench()?,
            arguments: Vec::new(),
            variables: Vec::new(),
            seconds,
        },
        in_python("nacre, Python", "nacre"),
        in_python("SQLite, Python", "sqlite"),
        in_python("LMDB, Python", "lmdb"),
        in_python("RocksDB, Python", "rocksdb"),
        in_node("nacre, Node.js", "nacre", &own),
        in_node("LMDB, Node.js", "lmdb", &lmdb),
        in_node("libSQL, Node.js", "libsql", &libsql),
    ])
}

/// Builds the Rust benchmark and returns its path.
fn bench() -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["bench", "--quiet", "--no-run", "--message-format=json", "--profile", PROFILE]);
    command.args(["-p", "nacre-embedded", "--bench", "access"]);
    let messages = output(&mut command, "build the benchmark in Rust")?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = built.filter(|message| message["target"]["name"] == "access");
    let program = programs.find_map(|message| Some(message["executable"].as_str()?.into()));
    program.ok_or_else(|| "cargo names no program of the benchmark in Rust".to_owned())
}

fn middle(rounds: &[Figures], name: &str) -> Option<f64> {
    let values: Vec<f64> = rounds.iter().filter_map(|round| round.get(name).copied()).collect();
    (!values.is_empty()).then(|| median(values))
}
