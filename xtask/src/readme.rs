//! Runs the commands of the README and the lessons as a reader would paste them.

use std::path::Path;
use std::process::{Command, Stdio};
use xtask_setup::command::{target_dir, workspace};
use xtask_setup::node;

/// Returns the fenced blocks of a page, with their languages.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("\n```") {
        let Some((language, after)) = after.split_once('\n') else { break };
        let Some((text, after)) = after.split_once("```") else { break };
        blocks.push((language, text));
        rest = after;
    }
    blocks
}

/// Runs all commands of a lesson in order, in a separate folder, and compares their output. A block without a language contains
/// lines that the previous block of commands prints, and `…` in place of omitted ones. A lone `nacre dev` represents the other
/// terminal. The commands find `programs` before the installed ones.
///
/// # Errors
/// Fails when a command fails, or its output differs from the page.
pub fn follow(page: &str, programs: &[&Path]) -> Result<(), String> {
    let text = std::fs::read_to_string(workspace().join(page))
        .map_err(|error| format!("{page}: {error}"))?;
    let folder = std::env::temp_dir().join(format!("nacre-lesson-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut script = String::from("trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\n");
    let mut expected: Vec<Vec<&str>> = Vec::new();
    let mut sections = 0;
    for (language, block) in blocks(&text) {
        match language {
            "sh" if block.trim() == "nacre dev" => script.push_str(
                "nacre dev > dev.log &\nuntil grep -q Ctrl-C dev.log; do sleep 0.1; done\n",
            ),
            "sh" => {
                script.push_str(&format!("echo; echo {SECTION}{sections}\n{block}\n"));
                sections += 1;
                expected.push(Vec::new());
            }
            "" => {
                if let Some(lines) = expected.last_mut().filter(|lines| lines.is_empty()) {
                    *lines = block.lines().filter(|line| !line.trim().is_empty()).collect();
                }
            }
            _ => {}
        }
    }
    let printed = paste(page, &script, &folder, programs)?;
    for (index, lines) in expected.iter().enumerate() {
        let section = printed.split(&format!("{SECTION}{index}\n")).nth(1).unwrap_or_default();
        let section = section.split(SECTION).next().unwrap_or_default();
        let is_promised = |line: &&&str| line.trim() != OMISSION;
        let mut promised = lines.iter().filter(is_promised);
        if let Some(line) = promised.find(|line| !section.contains(line.trim())) {
            return Err(format!("{page} promises\n{line}\nbut its commands print\n{section}"));
        }
    }
    Ok(())
}

/// A line with only this text marks omitted output.
const OMISSION: &str = "…";
/// Separates the outputs of two blocks.
const SECTION: &str = "--- block ";

/// The first block of commands in the README, its output, and the blocks after it.
struct FirstBlock {
    /// The first commands: a node, a document, a query.
    first: String,
    /// Lines that the first commands print.
    answers: String,
    /// Commands with the reader's own data.
    then: String,
    /// Lines that these commands print.
    rows: String,
    /// The program for the official Python SDK.
    sdk: String,
}

impl FirstBlock {
    fn read() -> Result<FirstBlock, String> {
        let page = std::fs::read_to_string(workspace().join("README.md"))
            .map_err(|error| format!("README.md: {error}"))?;
        let blocks = blocks(&page);
        let first = blocks.iter().position(|(_, text)| text.starts_with("nacre dev"));
        let first = first.ok_or("README.md shows no commands that begin with nacre dev")?;
        let expected = ["sh", "", "sh", "", "python"];
        let mut found =
            expected.iter().zip(&blocks[first..]).map(|(expected, (language, text))| {
                let fits = expected == language;
                fits.then(|| (*text).to_owned()).ok_or_else(|| {
                    format!("README.md has {language:?} where {expected:?} is expected")
                })
            });
        let mut next = || found.next().unwrap_or_else(|| Err("README.md ends too early".into()));
        Ok(FirstBlock {
            first: next()?,
            answers: next()?,
            then: next()?,
            rows: next()?,
            sdk: next()?,
        })
    }
}

/// Returns the first commands of the README.
///
/// # Errors
/// Fails when it has none.
pub fn first_commands() -> Result<String, String> {
    Ok(FirstBlock::read()?.first)
}

/// Returns lines that the first commands of the README print.
///
/// # Errors
/// Fails when the README shows none.
pub fn first_answers() -> Result<String, String> {
    Ok(FirstBlock::read()?.answers)
}

/// Runs the commands of the README, and the Python program after them, against `binary`.
///
/// # Errors
/// Fails when a command fails, or its output differs from the page.
pub fn run(binary: &Path, python: &Path) -> Result<(), String> {
    let shown = FirstBlock::read()?;
    let folder = std::env::temp_dir().join(format!("nacre-readme-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    std::fs::write(folder.join("sdk.py"), &shown.sdk)
        .map_err(|error| format!("sdk.py: {error}"))?;
    let script = format!(
        "trap 'kill %1; wait' EXIT\n{}\n{}\n'{}' sdk.py\n",
        shown.first,
        shown.then,
        python.display()
    );
    let printed = paste("README.md", &script, &folder, &[binary])?;
    let promised = shown.answers.lines().chain(shown.rows.lines()).chain(["'city': 'Chicago'"]);
    for expected in promised.map(str::trim).filter(|line| !line.is_empty()) {
        if !printed.contains(expected) {
            return Err(format!(
                "the README promises\n{expected}\nbut its commands print\n{printed}"
            ));
        }
    }
    Ok(())
}

/// Runs commands as if pasted into a shell with `programs` in its path; returns their output. Removes `folder` at the end.
fn paste(page: &str, script: &str, folder: &Path, programs: &[&Path]) -> Result<String, String> {
    let mut path = String::new();
    for program in programs {
        path.push_str(&format!("{}:", program.parent().unwrap_or(Path::new(".")).display()));
    }
    path.push_str(&std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-e", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        // Rust plugins share one build folder in all runs.
        .env("CARGO_TARGET_DIR", target_dir()?.join("lesson"))
        .env("NACRE_PLUGIN_CACHE", node::aot_dir()?)
        .env("NACRE_LOG", "warn")
        .env("NACRE_SOURCE", workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    let _ = std::fs::remove_dir_all(folder);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("the commands of {page} ended with {}:\n{printed}", output.status))
    }
}
