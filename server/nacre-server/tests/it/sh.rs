//! `nacre sh` from outside: a script goes in, rows come out, and the exit code says how it went.

use crate::process::{BUCKET, PASSWORD, Server};
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn shell(server: &Server, options: &[&str], script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["sh", "--port-base", &server.port_base.to_string()]).args(options);
    command.env("NACRE_PASSWORD", PASSWORD).stdin(Stdio::piped());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that is given statements ends without reading these.
    let _ = process.stdin.take().unwrap().write_all(script.as_bytes());
    process.wait_with_output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// Starts a node, and waits until it answers queries.
fn started(directory: &std::path::Path) -> Server {
    let mut server = Server::start(directory);
    server.wait_for("the query service", |server| {
        (server.query(r#"{"statement": "SELECT 1"}"#)["status"] == "success").then_some(())
    });
    server
}

#[test]
fn piped_statements_are_executed() {
    let directory = tempfile::tempdir().unwrap();
    let server = started(directory.path());
    let context = format!("{BUCKET}._default");
    let script = "\\set consistency request_plus\n\\set timing off\n\\set $least 2\n\
        INSERT INTO _default VALUES ('a', {'n': 1, 'tags': ['x; y']}), ('b', {'n': 2});\n\
        CREATE INDEX by_n ON _default(n); -- one; index\n\
        SELECT n, META().id\nFROM _default WHERE n >= $least;\n\
        EXPLAIN SELECT n FROM _default WHERE n >= 2;\n\
        \\set output jsonl\nSELECT RAW d FROM _default d WHERE n > 0 ORDER BY n;\n\
        \\set output csv\n\\list\n\\indexes\n\\describe _default\n";
    let output = shell(&server, &["--context", &context], script);
    let (rows, errors) = said(&output);
    assert!(output.status.success(), "{rows}{errors}");
    insta::assert_snapshot!(rows);
}

#[test]
fn a_failing_statement_ends_a_script_and_is_reported_with_its_position() {
    let directory = tempfile::tempdir().unwrap();
    let server = started(directory.path());
    let script = "SELECT RAW 1;\nSELECT 1 +\n  FROM;\nSELECT RAW 2;\n";
    let csv = ["--output", "csv"];
    let output = shell(&server, &csv, script);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(format!("{}{}", said(&output).0, said(&output).1), @r"
    value
    1
    standard input:2: error 3000: syntax error - line 2, column 3, at: FROM (expected an expression)
        FROM
        ^
    nacre: not everything was carried out
    ");
    let output = shell(&server, &["--output", "csv", "--keep-going"], script);
    assert_eq!((output.status.code(), said(&output).0.as_str()), (Some(1), "value\n1\nvalue\n2\n"));
    let output =
        shell(&server, &["--output", "jsonl", "-e", "SELECT RAW 1", "-e", "SELECT RAW 2"], "");
    assert_eq!((output.status.code(), said(&output).0.as_str()), (Some(0), "1\n2\n"));

    let quit = "SELECT 1 +;\n\\quit\nSELECT RAW 2;\n";
    let output = shell(&server, &["--output", "csv", "--keep-going"], quit);
    assert_eq!((output.status.code(), said(&output).0.as_str()), (Some(1), ""));

    let output = shell(&server, &["--password", "wrong"], script);
    let (rows, errors) = said(&output);
    assert_eq!((output.status.code(), rows.as_str()), (Some(4), ""));
    assert!(errors.contains("refuses the login of Administrator"), "{errors}");
    server.kill();
}

#[test]
fn an_unreachable_node_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["sh", "--url", "http://127.0.0.1:1", "--password", "x", "-e", "SELECT 1"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).1.starts_with("cannot reach http://127.0.0.1:1: "), "{output:?}");
}

#[test]
fn a_missing_right_is_distinguished_from_a_wrong_password() {
    let directory = tempfile::tempdir().unwrap();
    let server = started(directory.path());
    let form = "password=password&roles=data_reader[*]";
    assert_eq!(server.rest("PUT", "/settings/rbac/users/local/ann", form).unwrap().status, 200);
    let statement = format!("SELECT * FROM {BUCKET}");
    let output = shell(&server, &["--user", "ann", "--password", "password", "-e", &statement], "");
    let (_, errors) = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.starts_with("error 13014: "), "{errors}");
    server.kill();
}

#[test]
fn a_closed_pipe_ends_the_shell_without_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let server = started(directory.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["sh", "--port-base", &server.port_base.to_string(), "--output", "jsonl"]);
    command
        .args(["-e", "SELECT i FROM ARRAY_RANGE(0, 100000) AS i"])
        .env("NACRE_PASSWORD", PASSWORD);
    let mut process =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    drop(process.stdout.take());
    let output = process.wait_with_output().unwrap();
    assert!(!output.status.success() && output.stderr.is_empty(), "{:?}", said(&output));
    server.kill();
}

#[test]
fn a_transaction_goes_through_statements_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let server = started(directory.path());
    let node = format!("127.0.0.1:{}", server.port_base);
    let sh = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command.args(["sh", "--output", "jsonl", "--context", BUCKET]).args(arguments);
        command.env("NACRE_PASSWORD", PASSWORD).env("NACRE_SERVER", &node).stdin(Stdio::null());
        let output = command.output().unwrap();
        let (rows, errors) = said(&output);
        (output.status.code(), rows, errors)
    };
    let file = directory.path().join("tx.sqlpp");
    std::fs::write(&file, "UPDATE _default USE KEYS 'a' SET n = 2;\nROLLBACK;\n").unwrap();
    let (insert, read) =
        ("INSERT INTO _default VALUES ('a', {'n': 1})", "SELECT RAW n FROM _default USE KEYS 'a'");
    let file = file.display().to_string();
    let (code, _, errors) = sh(&["-e", insert, "-e", "BEGIN WORK", "-f", &file]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_eq!(sh(&["-e", read]).1, "1\n", "the update was rolled back");

    let change = "UPDATE _default USE KEYS 'a' SET n = 3";
    let (code, _, errors) = sh(&["-e", "BEGIN WORK", "-e", change]);
    assert_eq!(code, Some(1));
    assert!(
        errors.starts_with("the transaction was not committed: it was rolled back"),
        "{errors}"
    );
    assert_eq!(sh(&["-e", read]).1, "1\n");
    let (code, rows, _) = sh(&["-e", "BEGIN WORK", "-e", change, "-e", "COMMIT", "-e", read]);
    assert_eq!((code, rows.ends_with("\n3\n")), (Some(0), true), "{rows}");

    // The long statement ends the transaction, or the one after it does, as the machine is slow or not.
    let late = "\\set txtimeout 10ms\nBEGIN WORK;\n\
        SELECT RAW COUNT(*) FROM ARRAY_RANGE(0, 1000000) AS a;\nSELECT RAW 1;\nSELECT RAW 2;\n";
    std::fs::write(&file, late).unwrap();
    let (code, rows, errors) = sh(&["--keep-going", "-f", &file]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("the transaction has ended: its changes were not kept"), "{errors}");
    assert!(rows.ends_with("\n2\n"), "{rows}");
    server.kill();
}

#[test]
fn a_missing_password_and_a_wrong_port_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = started(directory.path());
    let sh = |password: Option<&str>, port: u16| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command.args(["sh", "--server", &format!("127.0.0.1:{port}"), "-e", "SELECT 1"]);
        command.env_remove("NACRE_PASSWORD").stdin(Stdio::null());
        password.map(|password| command.env("NACRE_PASSWORD", password));
        said(&command.output().unwrap()).1
    };
    let errors = sh(None, server.port_base);
    assert!(errors.contains("give --password, or set NACRE_PASSWORD"), "{errors}");
    for port in [server.port_base + 2, server.port_base + 10] {
        let errors = sh(Some(PASSWORD), port);
        assert!(errors.contains("name the port of management"), "{port}: {errors}");
    }
    server.kill();
}
