//! Checks that the documentation page of the ABI agrees with the WIT.

use std::collections::BTreeSet;

const WIT: &str = include_str!("../../../../plugins/wit/plugin.wit");
const PAGE: &str = include_str!("../../../../docs/reference/plugin-abi.md");

/// Returns each function of the WIT, as `interface name: func(…)`.
fn declared() -> BTreeSet<String> {
    let mut interface = "";
    let mut functions = BTreeSet::new();
    for line in WIT.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("interface ") {
            interface = name.trim_end_matches(" {");
        } else if line.contains(": func(") {
            functions.insert(format!("{interface} {}", line.trim_end_matches(';')));
        }
    }
    functions
}

/// Returns each function in the tables of the page, in the same form.
fn documented() -> BTreeSet<String> {
    let mut interface = "";
    let mut functions = BTreeSet::new();
    for line in PAGE.lines().filter(|line| line.contains(": func(")) {
        let mut cells =
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`'));
        if let Some(name) = cells.next().filter(|name| !name.is_empty()) {
            interface = name;
        }
        functions.insert(format!("{interface} {}", cells.next().unwrap_or_default()));
    }
    functions
}

#[test]
fn the_page_has_every_function_of_the_wit_as_it_is() {
    assert!(declared().len() > 25);
    assert_eq!(declared(), documented());
}

#[test]
fn the_page_has_every_world_and_package() {
    let worlds = WIT.lines().filter_map(|line| line.strip_prefix("world "));
    for world in worlds.map(|name| name.trim_end_matches(" {")) {
        assert!(PAGE.contains(&format!("| `{world}` |")), "{world}");
    }
    let package = WIT.lines().find_map(|line| line.strip_prefix("package ")).unwrap();
    assert!(PAGE.contains(package.trim_end_matches(';')));
}
