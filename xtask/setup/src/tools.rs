//! Tools that chores need and that are not in the repository, each in a folder of the project.
//!
//! They are in `$NACRE_TOOLS`, by default `~/.cache/nacre/tools`. A folder is complete if its marker exists.

use crate::command::run;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of the tools.
///
/// # Errors
/// Fails when there is no home directory and no folder was named.
pub fn dir() -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("NACRE_TOOLS") {
        return Ok(folder.into());
    }
    let home =
        env::var_os("HOME").ok_or("HOME is not set: name a folder for tools in NACRE_TOOLS")?;
    Ok(Path::new(&home).join(".cache/nacre/tools"))
}

/// Installs into `folder` unless an earlier installation is complete.
///
/// # Errors
/// The errors of `install`; fails when the folder cannot be written.
pub fn once(folder: &Path, install: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let marker = folder.join("installed");
    if marker.exists() {
        return Ok(());
    }
    let cannot =
        |error: std::io::Error| format!("cannot install into {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(cannot)?;
    install()?;
    std::fs::write(marker, "").map_err(cannot)
}

/// Installs Java libraries, each as `group:artifact:version`, with their dependencies; returns the folder of
/// the archives.
///
/// # Errors
/// One line that says what is missing.
pub fn java(name: &str, libraries: &[&str]) -> Result<PathBuf, String> {
    let folder = dir()?.join(name);
    let archives = folder.join("archives");
    once(&folder, || {
        eprintln!("Installing {} into {}", libraries.join(" and "), folder.display());
        let dependency = |library: &&str| {
            let mut parts = library.split(':');
            let mut part = || parts.next().unwrap_or_default();
            format!(
                "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>",
                part(),
                part(),
                part()
            )
        };
        let dependencies: String = libraries.iter().map(dependency).collect();
        let project = format!(
            "<project><modelVersion>4.0.0</modelVersion>\
             <groupId>nacre</groupId><artifactId>tools</artifactId><version>1</version>\
             <dependencies>{dependencies}</dependencies></project>"
        );
        std::fs::write(folder.join("pom.xml"), project)
            .map_err(|error| format!("cannot write into {}: {error}", folder.display()))?;
        run(
            Command::new("mvn")
                .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
                .arg(format!("-DoutputDirectory={}", archives.display()))
                .current_dir(&folder),
            "fetch Java libraries (Maven is needed, and its repository in reach)",
        )
    })?;
    Ok(archives)
}

/// Installs a Python environment with `packages`; returns its interpreter.
///
/// # Errors
/// One line that says what is missing.
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = dir()?.join(name);
    let python = folder.join("venv/bin/python");
    once(&folder, || {
        eprintln!("Installing {} into {}", packages.join(" "), folder.display());
        run(
            Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")),
            "make a Python environment (python3 with its venv module is needed)",
        )?;
        run(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(packages),
            "install Python packages with pip (a package index must be in reach)",
        )
    })?;
    Ok(python)
}

/// Installs a Go program, given as `host/owner/path`; returns its path. Uses an installed one if there is one.
///
/// # Errors
/// One line that says what is missing.
pub fn go_program(package: &str, version: &str) -> Result<PathBuf, String> {
    let name = package.rsplit('/').next().unwrap_or(package);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut installed = env::split_paths(&path).map(|folder| folder.join(name));
    if let Some(program) = installed.find(|program| program.is_file()) {
        return Ok(program);
    }
    let folder = dir()?.join(format!("{name}-{version}"));
    once(&folder, || {
        eprintln!("Installing {package} {version} into {}", folder.display());
        run(
            Command::new("go")
                .args(["install", &format!("{package}@{version}")])
                .env("GOBIN", &folder),
            "install a program in Go (Go is needed, and its module proxy in reach)",
        )
    })?;
    Ok(folder.join(name))
}

/// Installs an npm package; returns its folder.
///
/// # Errors
/// One line that says what is missing.
pub fn npm(package: &str, version: &str) -> Result<PathBuf, String> {
    let folder = dir()?.join(format!("{package}-{version}"));
    once(&folder, || {
        eprintln!("Installing {package} {version} into {}", folder.display());
        run(
            Command::new("npm")
                .args([
                    "install",
                    "--silent",
                    "--no-save",
                    "--no-audit",
                    "--no-fund",
                    "--ignore-scripts",
                    "--prefix",
                ])
                .arg(&folder)
                .arg(format!("{package}@{version}")),
            "install an npm package (npm is needed, and a package registry in reach)",
        )
    })?;
    Ok(folder.join("node_modules").join(package))
}
