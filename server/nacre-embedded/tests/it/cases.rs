//! Checks the page about failures: each case has a row, and each test named in a row exists.

use std::path::Path;

const PAGE: &str = "../../docs/reference/embedded.md";
/// Number of cases on the page.
const CASES: usize = 25;

#[test]
fn each_case_of_a_failure_names_tests_that_exist() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number: usize = cells.first()?.parse().ok()?;
        Some((number, cells[cells.len() - 1].to_owned()))
    });
    let (mut cases, mut named) = (Vec::new(), 0);
    for (number, tests) in rows {
        cases.push(number);
        // Every second piece is in backticks.
        for test in tests.split('`').skip(1).step_by(2) {
            let (file, name) = test.split_once("::").unwrap_or((test, ""));
            let text = std::fs::read_to_string(Path::new("../..").join(file));
            let text = text.unwrap_or_else(|error| panic!("case {number}: {file}: {error}"));
            let exists = name.is_empty() || text.contains(&format!("fn {name}("));
            assert!(exists, "case {number}: {file} has no test {name}");
            named += 1;
        }
    }
    assert_eq!(cases, (1..=CASES).collect::<Vec<_>>(), "a row a case");
    assert!(named > CASES, "{named} tests");
}
