//! Formats the results as a section of a page.

use super::report::{Outcome, Report};
use super::{PAGE, STATED_VERSION};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- results: written by cargo xtask conformance -->";
const END: &str = "<!-- end of results -->";

/// A new page for the section.
const NEW_PAGE: &str = "# Compatibility

This page shows how a node does in the tests that ship with the official SDKs, in every operation of the Python and Java SDKs, in a
copy of a bucket by the official DCP client for Java, and in this project's own cases. The suites ship in the SDKs' packages and run
unchanged, and the page shows each failure with its reason. One line differs: the copy of Go's DCP suite does not skip the test of change
streams.

The row of this project's cases names the tested version of nacre. Results of version 0.1.0 are older than the services for search and
analytics, and say that these are missing; `cargo xtask test` runs the [search](search.md) calls of the official Node SDK.
";

/// Maximum characters shown of a failed test's message.
const SAID_CHARACTERS_MAX: usize = 160;

/// Formats the section: counts, then the tests that did not pass and the reasons.
pub(super) fn render(reports: &[Report]) -> String {
    let mut text = format!(
        "Nodes are on the default ports, and state version {STATED_VERSION}. Where there are several, they are one cluster, each on \
         an address of its own, and the bucket is spread over them with one replica.\n\n\
         | suite | version | nodes | tests | passed | failed | skipped | reproduce |\n\
         |---|---|--:|--:|--:|--:|--:|---|\n"
    );
    for report in reports {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | `{}` |",
            report.title,
            report.version,
            report.nodes,
            report.tests.len(),
            report.passed(),
            report.failed(),
            report.skipped(),
            report.command
        );
    }
    let mut sections: Vec<(String, &Report, Vec<usize>)> = Vec::new();
    for report in reports {
        let text = details(report);
        // Results that are the same on one node and on several are shown once.
        match sections
            .iter_mut()
            .find(|(seen, other, _)| other.title == report.title && *seen == text)
        {
            Some((_, _, sizes)) => sizes.push(report.nodes),
            None => sections.push((text, report, vec![report.nodes])),
        }
    }
    for (details, report, sizes) in &sections {
        if !details.is_empty() {
            let runs = reports.iter().filter(|other| other.title == report.title).count();
            let heading = match sizes.as_slice() {
                [size] if runs > 1 => format!("{}, {}", report.title, on_nodes(*size)),
                _ => report.title.clone(),
            };
            let _ = write!(text, "\n### {heading}\n{details}");
        }
    }
    text
}

fn on_nodes(count: usize) -> String {
    if count == 1 { "on one node".into() } else { format!("on {count} nodes") }
}

/// Formats the tests that did not pass, and the remarks.
fn details(report: &Report) -> String {
    let mut text = String::new();
    section(&mut text, report, "Failed", |outcome| match outcome {
        Outcome::Failed(said) => Some(said),
        _ => None,
    });
    section(&mut text, report, "Skipped", |outcome| match outcome {
        Outcome::Skipped(said) => Some(said),
        _ => None,
    });
    if !report.remarks.is_empty() {
        let remarks: Vec<String> =
            report.remarks.iter().map(|remark| format!("- {remark}\n")).collect();
        let _ = write!(text, "\nRun in another way:\n\n{}", remarks.concat());
    }
    text
}

/// Formats names by reason, because many tests share one.
fn section(
    text: &mut String,
    report: &Report,
    heading: &str,
    pick: impl Fn(&Outcome) -> Option<&String>,
) {
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for test in &report.tests {
        if let Some(said) = pick(&test.outcome) {
            by_reason.entry(one_line(said)).or_default().push(&test.name);
        }
    }
    if by_reason.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}:\n");
    for (reason, names) in by_reason {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "- {reason}: {}", names.join(", "));
    }
}

fn one_line(said: &str) -> String {
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SAID_CHARACTERS_MAX {
        return line;
    }
    let cut: String = line.chars().take(SAID_CHARACTERS_MAX).collect();
    format!("{cut}…")
}

/// Writes the section into the page between its marks, or at the end if there are none.
///
/// # Errors
/// Fails when the page cannot be read or written.
pub(super) fn write(path: &Path, section: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {PAGE}: {error}");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let page = match std::fs::read_to_string(path) {
        Ok(page) => page,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => NEW_PAGE.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    std::fs::write(path, replace(&page, section)).map_err(failed)
}

fn replace(page: &str, section: &str) -> String {
    let (before, after) = match (page.split_once(BEGIN), page.split_once(END)) {
        (Some((before, _)), Some((_, after))) => (before.to_owned(), after),
        _ => (format!("{}\n\n", page.trim_end()), "\n"),
    };
    format!("{before}{BEGIN}\n\n{section}\n{END}{after}")
}

#[cfg(test)]
mod tests {
    use super::super::report::Test;
    use super::*;

    #[test]
    fn tests_that_did_not_pass_are_listed_by_reason() {
        let test = |name: &str, outcome: Outcome| Test { name: name.into(), outcome };
        let report = Report {
            title: "Suite".into(),
            version: "x 1".into(),
            command: "run".into(),
            nodes: 3,
            remarks: vec!["`a` ran twice".into()],
            is_ours: false,
            tests: vec![
                test("a", Outcome::Passed),
                test("b", Outcome::Failed("no query\n service".into())),
                test("c", Outcome::Failed("no query service".into())),
                test("d", Outcome::Skipped("no TLS".into())),
            ],
        };
        let other = Report { nodes: 1, tests: vec![test("a", Outcome::Passed)], ..report.clone() };
        let text = render(&[report.clone(), report, other]);
        assert!(text.contains("| Suite | x 1 | 3 | 4 | 1 | 2 | 1 | `run` |"), "{text}");
        assert!(text.contains("### Suite\n\nFailed:\n\n- no query service: `b`, `c`\n"), "{text}");
        assert!(text.contains("\nSkipped:\n\n- no TLS: `d`\n"), "{text}");
        assert!(text.contains("\nRun in another way:\n\n- `a` ran twice\n"), "{text}");
    }

    #[test]
    fn only_text_between_the_marks_is_replaced() {
        let first = replace("# Title\n\nWords.\n", "one\n");
        let second = replace(&format!("{first}\nMore words.\n"), "two\n");
        assert!(second.starts_with("# Title\n\nWords.\n") && second.ends_with("\nMore words.\n"));
        assert!(second.contains("two") && !second.contains("one"), "{second}");
    }
}
