//! The help of every command, as people read it. A changed line is a changed interface.

use std::fmt::Write;
use std::process::Command;

/// Runs the program without the variables of the machine, whose values would be shown.
fn nacre(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    let output = command.env_clear().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Names of the subcommands that a help lists.
fn subcommands(help: &str) -> Vec<String> {
    let Some((_, commands)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let rows = commands.lines().take_while(|line| line.starts_with("  "));
    let names = rows.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    names.filter(|name| name != "help").collect()
}

/// Returns all commands in their order, each with its help.
fn commands() -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    let mut left: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = left.pop() {
        let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["-h"]).collect();
        let help = nacre(&arguments);
        for name in subcommands(&help).into_iter().rev() {
            left.push(path.iter().cloned().chain([name]).collect());
        }
        all.push((path, help));
    }
    all
}

#[test]
fn every_command_explains_itself() {
    let mut all = String::new();
    let commands = commands();
    for (path, help) in &commands {
        let words: String = path.iter().flat_map(|word| [word.as_str(), " "]).collect();
        writeln!(all, "$ nacre {words}-h\n{}", help.trim_end()).unwrap();
        writeln!(all).unwrap();
    }
    assert!(commands.len() > 60, "{} commands are not all", commands.len());
    insta::assert_snapshot!(all);
}

/// Last words of commands that read and print rows.
const READERS: [&str; 10] =
    ["list", "show", "status", "describe", "verify", "diff", "stuck", "packages", "logs", "roles"];

#[test]
fn every_command_that_reads_can_print_json() {
    let mut seen = 0;
    for (path, help) in commands() {
        let is_reader = path.last().is_some_and(|last| READERS.contains(&last.as_str()));
        // It prints JSON in any case: the definition that `set` takes.
        let is_definition = path.join(" ") == "function show";
        if !is_reader || is_definition || !subcommands(&help).is_empty() {
            continue;
        }
        assert!(help.contains("--output <FORM>"), "nacre {} has no --output", path.join(" "));
        seen += 1;
    }
    assert!(seen > 15, "{seen} commands are not all that read");
}

#[test]
fn the_exit_status_shows_the_kind_of_failure() {
    let status = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        let folder = tempfile::tempdir().unwrap();
        let output = command.env_clear().current_dir(folder.path()).args(arguments).output();
        output.unwrap().status.code()
    };
    assert_eq!(status(&["--version"]), Some(0));
    assert_eq!(status(&["bucket", "list", "-c", "@none"]), Some(1));
    assert_eq!(status(&["bucket", "lits"]), Some(2));
    assert_eq!(status(&["bucket", "list", "-c", "127.0.0.1:1", "-p", "x"]), Some(3));
    assert_eq!(status(&["bucket", "list", "-c", "127.0.0.1:1"]), Some(4));
}
