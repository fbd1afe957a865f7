//! Tests of the examples: scripts and tests of plugins, stateless ones on a node, resolvers in two clusters, new projects, and an
//! application.

mod clusters;

use crate::demo;
use nacre_conformance::kv::KvClient;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{cargo, run as run_command, target_dir, workspace};
use xtask_setup::node::{self, Node, PASSWORD, USER};

/// Ports of the node.
const PORT_BASE: u16 = 19_600;
/// Worlds and languages of projects that no lesson creates.
const PROJECTS: [(&str, &str); 4] =
    [("functions", "rust"), ("functions", "py"), ("resolver", "rust"), ("index-type", "rust")];
/// Two buckets that represent two clusters.
const SIDES: [&str; 2] = ["left", "right"];
/// A CAS from 2020.
const CAS: u64 = 1_600_000_000_000_000_000;

/// Tests all examples.
///
/// # Errors
/// Reports the first failure.
pub fn run(binary: &Path) -> Result<(), String> {
    let folder = workspace().join("examples");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("examples: {error}"))?;
    let mut projects: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("plugin.toml").exists())
        .collect();
    projects.sort();
    for project in projects {
        let name = project.display();
        if project.join("Cargo.toml").exists() {
            let mut tests = cargo();
            // The clone stays unchanged: a missing entry in its lock file is an error, and is not added.
            tests.args(["test", "--quiet", "--locked"]).current_dir(&project);
            tests.env("CARGO_TARGET_DIR", lesson_dir()?);
            run_command(&mut tests, &format!("pass the tests of {name}"))?;
        }
        if project.join("go.mod").exists() {
            let mut tests = Command::new("go");
            tests.args(["test", "./..."]).current_dir(&project);
            run_command(&mut tests, &format!("pass the tests of {name}"))?;
        }
        let mut scripts = plugin(binary, "test")?;
        run_command(scripts.arg(&project), &format!("pass the scripts of {name}"))?;
    }
    for (world, language) in PROJECTS {
        begin(binary, world, language)?;
    }
    let node = Node::start(binary, Some(PORT_BASE), &SIDES, &[])?;
    functions(binary, &node)?;
    resolver(binary, &node)?;
    index_type(binary, &node)?;
    node.stop()?;
    clusters::resolve(binary)?;
    search_app(binary)?;
    couch(binary, "quick")
}

/// Runs the tests of the example `search-app` on a node with the data of the demonstration.
fn search_app(binary: &Path) -> Result<(), String> {
    let tools = demo::Tools::install()?;
    let node = Node::start(binary, Some(PORT_BASE), &[demo::BUCKET], &[])?;
    demo::fill(&node, binary, &tools)?;
    let mut tests = Command::new(&tools.python);
    tests.arg(workspace().join("examples/search-app/test_app.py"));
    tests.env("NACRE_CONNECTION", format!("couchbase://127.0.0.1:{}", node.kv_port()));
    tests.env("NACRE_USER", USER).env("NACRE_PASSWORD", PASSWORD).env("DEMO_DATA", &tools.data);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    run_command(&mut tests, "search movies and airports")?;
    node.stop()
}

/// Runs a script of the example `couch` on nodes that it starts. `quick` runs PouchDB, an SDK, hostile clients and the cases of
/// CouchDB's protocol. `test` also runs the cases against another server, and syncs PouchDB and RxDB in Node.js and in Chromium
/// through restarts of the node; it needs the compiled sdk-js.
///
/// # Errors
/// Fails when a package cannot be built or installed, or a test fails.
pub fn couch(binary: &Path, script: &str) -> Result<(), String> {
    let project = workspace().join("examples/couch");
    let clients = project.join("clients");
    let mut package = plugin(binary, "build")?;
    run_command(package.arg(&project), "build the package couch")?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-fund", "--no-audit", "--no-package-lock"]);
    run_command(install.current_dir(&clients), "install PouchDB and RxDB")?;
    let mut tests = Command::new("npm");
    tests.args(["run", script, "--silent"]).current_dir(&clients);
    tests.env("NACRE_BINARY", binary).env("NACRE_PLUGIN_CACHE", node::aot_dir()?);
    tests.env("COUCH_PACKAGE", project.join("couch-0.1.0.tar"));
    run_command(&mut tests, "serve clients of CouchDB's protocol")
}

/// Checks that a new project passes its own scripts.
fn begin(binary: &Path, world: &str, language: &str) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("nacre-projects-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = format!("{world}-{language}");
    let mut new = plugin(binary, "new")?;
    new.args([&name, "--world", world, "--lang", language]).current_dir(&folder);
    run_command(&mut new, &format!("begin {name}"))?;
    let mut scripts = plugin(binary, "test")?;
    run_command(scripts.arg(&name).current_dir(&folder), &format!("pass the scripts of {name}"))?;
    std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn lesson_dir() -> Result<PathBuf, String> {
    Ok(target_dir()?.join("lesson"))
}

fn plugin(binary: &Path, action: &str) -> Result<Command, String> {
    let mut command = Command::new(binary);
    command.env("NACRE_PLUGIN_CACHE", node::aot_dir()?).env("CARGO_TARGET_DIR", lesson_dir()?);
    command.args(["plugin", action]);
    Ok(command)
}

fn deploy(binary: &Path, node: &Node, example: &str, options: &[&str]) -> Result<(), String> {
    let mut command = plugin(binary, "deploy")?;
    command.arg(workspace().join("examples").join(example)).args(options);
    command.env("NACRE_SERVER", format!("http://127.0.0.1:{}", node.mgmt_port()));
    command.env("NACRE_USER", USER).env("NACRE_PASSWORD", PASSWORD);
    run_command(&mut command, &format!("deploy {example}"))
}

/// Calls every function of the example in a query.
fn functions(binary: &Path, node: &Node) -> Result<(), String> {
    deploy(binary, node, "functions", &[])?;
    for (name, parameters) in [("distance_km", "a, b"), ("slug", "text"), ("levenshtein", "a, b")] {
        let code = format!("LANGUAGE WASM AS \"{name}\" AT \"text-and-places\"");
        rows(node, &format!("CREATE FUNCTION {name}({parameters}) {code}"))?;
    }
    let oslo_to_rome = "distance_km({'lat': 59.9, 'lon': 10.8}, {'lat': 41.9, 'lon': 12.5})";
    let statement = format!(
        "SELECT RAW [ROUND({oslo_to_rome}), slug('Shells & Pearls'), levenshtein('kitten', 'sitting')]"
    );
    is(&rows(node, &statement)?, &json!([[2005, "shells-pearls", 3]]), &statement)
}

/// Checks that of three places the two that are near each other have a common prefix.
fn index_type(binary: &Path, node: &Node) -> Result<(), String> {
    let bucket = SIDES[0];
    let place = |id: &str, lat: f64, lon: f64| {
        format!("VALUES ('{id}', {{'geo': {{'lat': {lat}, 'lon': {lon}}}}})")
    };
    let places = [
        place("opera", 59.9075, 10.7531),
        place("castle", 59.917, 10.7276),
        place("forum", 41.8925, 12.4853),
    ];
    rows(node, &format!("UPSERT INTO `{bucket}` (KEY, VALUE) {}", places.join(", ")))?;
    deploy(binary, node, "geo-index", &["--bucket", bucket])?;
    let path = "/_plugin/geo-index/scan?prefix=u4xsu&stale=false";
    let answer: Value =
        serde_json::from_str(&node.rest("GET", path, &[])?.text()).unwrap_or_default();
    let ids = answer["rows"].as_array().into_iter().flatten().map(|row| row["id"].clone());
    is(&ids.collect(), &json!(["castle", "opera"]), path)
}

fn rows(node: &Node, statement: &str) -> Result<Value, String> {
    let answer = node.query(&json!({"statement": statement}))?;
    let mut answer: Value = serde_json::from_str(&answer.text()).unwrap_or_default();
    match answer["status"] == "success" {
        true => Ok(answer["results"].take()),
        false => Err(format!("{statement}: {answer}")),
    }
}

fn is(found: &Value, wanted: &Value, what: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found}, not {wanted}")) }
}

/// A version of a document in transit from one cluster to the other.
#[derive(Clone)]
struct Version {
    cas: u64,
    rev: u64,
    body: Vec<u8>,
}

/// Sends the versions of a document to two buckets in different orders, and then each bucket's result to the other.
fn resolver(binary: &Path, node: &Node) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the key-value port: {error}");
    let mut clients = Vec::new();
    for side in SIDES {
        deploy(binary, node, "field-merge", &["--name", side, "--bucket", side])?;
        let address = format!("127.0.0.1:{}", node.kv_port());
        clients.push(KvClient::connect(address, USER, PASSWORD, side).map_err(failed)?);
    }
    let one =
        json!({"title": "Shells", "tags": {"_set": ["blue"]}, "likes": {"_count": {"oslo": 5}}});
    let other = json!({"price": 7, "tags": {"_set": ["old"]}, "likes": {"_count": {"rome": 2}}});
    let version = |second: u64, body: &Value| Version {
        cas: CAS + second * 1_000_000_000,
        rev: second,
        body: body.to_string().into_bytes(),
    };
    let versions = [version(1, &one), version(2, &other)];
    for (client, order) in clients.iter_mut().zip([[0, 1], [1, 0]]) {
        for index in order {
            send(client, &versions[index]).map_err(failed)?;
        }
    }
    let mut made = Vec::new();
    for client in &mut clients {
        made.push(receive(client).map_err(failed)?);
    }
    let wanted = json!({
        "_t": {"price": 1_600_000_002_000_u64, "title": 1_600_000_001_000_u64},
        "likes": {"_count": {"oslo": 5, "rome": 2}},
        "price": 7,
        "tags": {"_set": ["blue", "old"]},
        "title": "Shells",
    });
    for (client, of_other) in clients.iter_mut().zip(made.iter().rev()) {
        send(client, of_other).map_err(failed)?;
    }
    for (client, side) in clients.iter_mut().zip(SIDES) {
        let kept = receive(client).map_err(failed)?;
        let kept: Value = serde_json::from_slice(&kept.body).unwrap_or_default();
        is(&kept, &wanted, side)?;
    }
    if made[0].body != made[1].body {
        return Err("the two sides have made different bodies".into());
    }
    Ok(())
}

/// Sends SetWithMeta. An answer that the existing version stays is accepted.
fn send(client: &mut KvClient, version: &Version) -> std::io::Result<()> {
    let extras = [&[0; 8][..], &version.rev.to_be_bytes(), &version.cas.to_be_bytes()].concat();
    let reply = client.document(0xa2, b"shop/1", &extras, &version.body, 0)?;
    match reply.status {
        0 | 2 => Ok(()),
        status => Err(std::io::Error::other(format!("SetWithMeta was answered {status:#x}"))),
    }
}

fn receive(client: &mut KvClient) -> std::io::Result<Version> {
    let meta = client.document(0xa0, b"shop/1", &[2], &[], 0)?;
    let rev = meta.extras.get(12..20).and_then(|bytes| bytes.try_into().ok());
    let rev = rev.map(u64::from_be_bytes).ok_or_else(|| std::io::Error::other("no metadata"))?;
    Ok(Version { cas: meta.cas, rev, body: client.get(b"shop/1")?.value })
}
