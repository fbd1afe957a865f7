//! Packages for databases in the process: a wheel with libnacre for sdk-py, and an npm package with the addon for sdk-js.
//!
//! Each is installed without a network into an empty folder, in which the program of the guide then runs, and one that queries a view.

use super::{copy, create, size, write};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{cargo, output, run, target_dir, workspace};
use xtask_setup::sdks;

/// The build profile of libraries for devices.
const PROFILE: &str = "edge";
/// Maximum size of a package, in bytes.
const PACKAGE_BYTES_MAX: u64 = 4_000_000;
/// The page with a program in each language.
const GUIDE: &str = "docs/guides/embed.md";
/// A program that prints the keys of a view whose function needs the engine for JavaScript.
const VIEW_IN_PYTHON: &str = r#"
import asyncio
import sys

from nacre import connect
from nacre.views import DesignDocument, View

MAP = "function (doc, meta) { [doc.n, 4].forEach(function (n) { emit(n, null); }); }"


async def main() -> None:
    async with await connect(f"nacre://{sys.argv[1]}") as cluster:
        bucket = cluster.bucket("default")
        await bucket.default_collection().upsert("a", {"n": 3})
        await bucket.view_indexes().upsert_design_document(DesignDocument("d", {"v": View(MAP)}))
        print([row.key for row in await bucket.view_query("d", "v").execute()])


asyncio.run(main())
"#;
/// The same in JavaScript.
const VIEW_IN_JS: &str = r#"
import { connect, DesignDocument, DesignDocumentView } from 'nacre'

const map = 'function (doc, meta) { [doc.n, 4].forEach(function (n) { emit(n, null); }); }'
const cluster = await connect(`nacre://${process.argv[2]}`)
const bucket = cluster.bucket('default')
await bucket.defaultCollection().upsert('a', { n: 3 })
const views = { v: new DesignDocumentView(map) }
await bucket.viewIndexes().upsertDesignDocument(new DesignDocument({ name: 'd', views }))
console.log((await bucket.viewQuery('d', 'v')).rows.map(({ key }) => key))
await cluster.close()
"#;

/// Builds the packages in `folder` and tests them.
///
/// # Errors
/// Reports what is missing, is too large, or does not work.
pub fn make(folder: &Path) -> Result<(), String> {
    let version = env!("CARGO_PKG_VERSION");
    let mut build = cargo();
    build.args(["build", "--quiet", "--profile", PROFILE]);
    build.args(["-p", "nacre-embedded-c", "-p", "nacre-embedded-node"]);
    run(&mut build, "build the libraries")?;
    let built = target_dir()?.join(PROFILE);
    let _ = std::fs::remove_dir_all(folder);
    create(folder)?;
    let wheel = wheel(&built.join("libnacre_c.so"), version, folder)?;
    let addon = npm_package(&built.join("libnacre_embedded_node.so"), version, folder)?;
    for path in [&wheel, &addon] {
        let bytes = size(path)?;
        println!("{:>10.1} MB  {}", bytes as f64 / 1e6, path.display());
        if bytes > PACKAGE_BYTES_MAX {
            let name = path.display();
            return Err(format!("{name} has {bytes} bytes, more than {PACKAGE_BYTES_MAX}"));
        }
    }
    in_python(&wheel, &folder.join("trial-python"))?;
    in_node(&addon, &folder.join("trial-node"))
}

fn wheel(library: &Path, version: &str, folder: &Path) -> Result<PathBuf, String> {
    let mut pack = Command::new("python3");
    pack.arg(workspace().join("packaging/embedded/wheel.py")).arg(library).arg(version).arg(folder);
    let name = output(&mut pack, "pack the wheel (Python is needed)")?;
    Ok(folder.join(name.trim()))
}

fn npm_package(addon: &Path, version: &str, folder: &Path) -> Result<PathBuf, String> {
    let cpu = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let package = json!({
        "name": "@nacre/embedded",
        "version": version,
        "description": "The native addon of nacre for databases in the process",
        "license": "Apache-2.0",
        "main": "index.cjs",
        "files": ["index.cjs", "nacre.node"],
        "os": ["linux"],
        "cpu": [cpu],
        "libc": ["glibc"],
    });
    let stage = folder.join("embedded");
    create(&stage)?;
    write(&stage.join("package.json"), &package.to_string())?;
    write(&stage.join("index.cjs"), "module.exports = require('./nacre.node')\n")?;
    copy(addon, &stage.join("nacre.node"))?;
    packed(&stage, folder)
}

/// Packs the npm package in `stage`; returns the archive.
fn packed(stage: &Path, folder: &Path) -> Result<PathBuf, String> {
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", "--ignore-scripts", "--pack-destination"]).arg(folder);
    let printed = output(pack.current_dir(stage), "pack an npm package (npm is needed)")?;
    let name = printed.lines().last().unwrap_or_default().trim().to_owned();
    Ok(folder.join(name))
}

/// Installs the wheel into a new environment, and runs the programs.
fn in_python(wheel: &Path, root: &Path) -> Result<(), String> {
    let environment = root.join("venv");
    run(
        Command::new("python3").args(["-m", "venv"]).arg(&environment),
        "make a Python environment (python3 with its venv module is needed)",
    )?;
    let python = environment.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(install.args(["--no-index", "--no-deps"]).arg(wheel), "install the wheel")?;
    for (source, expected) in [
        (shown("python")?, "{'customer': 'ann', 'total': 30}\n"),
        (VIEW_IN_PYTHON.to_owned(), "[3, 4]\n"),
    ] {
        let mut program = Command::new(&python);
        program.args(["-c", &source]).arg(root.join("db"));
        program.env("PYTHONPATH", workspace().join("sdk-py/src")).env_remove("NACRE_LIBRARY");
        program.env("PYTHONDONTWRITEBYTECODE", "1");
        let printed = output(&mut program, "run a program in Python")?;
        is(&printed, expected)?;
    }
    Ok(())
}

/// Installs both npm packages into an empty folder, and runs the programs.
fn in_node(addon: &Path, root: &Path) -> Result<(), String> {
    sdks::build_js()?;
    create(root)?;
    let sdk = packed(&workspace().join("sdk-js"), root)?;
    write(&root.join("package.json"), &json!({"private": true}).to_string())?;
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--silent", "--no-audit", "--no-fund"]);
    install.arg("--ignore-scripts").arg(addon).arg(&sdk).current_dir(root);
    run(&mut install, "install the npm packages without a network")?;
    for (source, expected) in
        [(shown("js")?, "{ customer: 'ann', total: 30 }\n"), (VIEW_IN_JS.to_owned(), "[ 3, 4 ]\n")]
    {
        write(&root.join("main.mjs"), &source)?;
        let mut program = Command::new("node");
        program.arg("main.mjs").arg(root.join("db")).current_dir(root).env_remove("NACRE_ADDON");
        let printed = output(&mut program, "run a program in Node.js")?;
        is(&printed, expected)?;
    }
    Ok(())
}

fn is(printed: &str, expected: &str) -> Result<(), String> {
    match printed == expected {
        true => Ok(()),
        false => Err(format!("a program prints\n{printed}\nand not\n{expected}")),
    }
}

/// Returns the guide's program in a language.
fn shown(language: &str) -> Result<String, String> {
    let page = workspace().join(GUIDE);
    let text = std::fs::read_to_string(&page).map_err(|error| format!("{GUIDE}: {error}"))?;
    let block = text.split_once(&format!("\n```{language}\n")).map(|(_, rest)| rest);
    let block = block.and_then(|rest| rest.split_once("\n```")).map(|(block, _)| block.to_owned());
    block.ok_or_else(|| format!("{GUIDE} has no program in {language}"))
}
