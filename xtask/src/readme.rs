//! Runs what the README shows, as a reader would paste it.

use crate::command::workspace;
use crate::node;
use std::path::Path;
use std::process::{Command, Stdio};

/// The fenced blocks of a page, with their languages.
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

/// Runs the commands that begin with `nacre serve`, and the Python that follows, against `binary`.
///
/// # Errors
/// When a command fails, or prints something else than the page says.
pub fn run(binary: &Path, python: &Path) -> Result<(), String> {
    let page = std::fs::read_to_string(workspace().join("README.md"))
        .map_err(|error| format!("README.md: {error}"))?;
    let blocks = blocks(&page);
    let position = blocks.iter().position(|(_, text)| text.starts_with("nacre serve"));
    let shown =
        position.and_then(|at| Some((blocks[at].1, blocks.get(at + 1)?.1, blocks.get(at + 2)?.1)));
    let (commands, answer, sdk) =
        shown.ok_or("README.md shows no commands that begin with nacre serve")?;

    let folder = std::env::temp_dir().join(format!("nacre-readme-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    std::fs::write(folder.join("sdk.py"), sdk).map_err(|error| format!("sdk.py: {error}"))?;
    let script = format!("trap 'kill %1; wait' EXIT\n{commands}\n'{}' sdk.py\n", python.display());
    let path = std::env::var("PATH").unwrap_or_default();
    let programs = binary.parent().unwrap_or(Path::new("."));
    let output = Command::new("bash")
        .args(["-e", "-c", &script])
        .current_dir(&folder)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("NACRE_PLUGIN_CACHE", node::aot_dir()?)
        .env("NACRE_LOG", "warn")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    let _ = std::fs::remove_dir_all(&folder);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("the commands of the README ended with {}:\n{printed}", output.status));
    }
    for expected in [answer.trim(), "'city': 'Chicago'"] {
        if !printed.contains(expected) {
            return Err(format!(
                "the README promises\n{expected}\nbut its commands print\n{printed}"
            ));
        }
    }
    Ok(())
}
