//! `nacre bench` from outside: its counts, and its errors.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::queries::serving;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Duration;

fn run(what: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["bench", what, "--csv", "-"]).args(options).output().unwrap()
}

fn bench(server: &str, options: &[&str]) -> Output {
    run("kv", &[&["--server", server], options].concat())
}

/// The rows that were printed, by the names of their columns.
fn texts(output: &Output) -> Vec<HashMap<String, String>> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<String> = lines.next().unwrap().collect();
    lines.map(|line| names.iter().cloned().zip(line).collect()).collect()
}

fn rows(output: &Output) -> Vec<HashMap<String, f64>> {
    let numbers = |row: HashMap<String, String>| {
        row.into_iter().map(|(name, value)| (name, value.parse().unwrap())).collect()
    };
    texts(output).into_iter().map(numbers).collect()
}

/// Options that lead to a server's query service.
fn login(query: &str) -> Vec<&str> {
    vec!["--query", query, "--user", USER, "--password", PASSWORD]
}

#[test]
fn each_workload_of_ycsb_has_its_operations() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let (keys, query) = (server.kv_address(), format!("127.0.0.1:{}", server.port_base + 2));
    let ycsb = |options: &[&str]| {
        let common = ["--server", &keys, "--bucket", BUCKET, "--records", "300", "--clients", "2"];
        texts(&run("ycsb", &[&login(&query)[..], &common, options].concat()))
    };
    let found = ycsb(&["--seconds", "60", "--operations", "200"]);
    let operations: Vec<_> =
        found.iter().map(|row| format!("{} {}", row["workload"], row["operation"])).collect();
    let expected = [
        "a read", "a update", "a all", "b read", "b update", "b all", "c read", "c all", "f read",
        "f rmw", "f all", "d read", "d insert", "d all", "e insert", "e scan", "e all",
    ];
    assert_eq!(operations, expected);
    let all = found.iter().filter(|row| row["operation"] == "all");
    assert!(all.clone().all(|row| row["operations"] == "200"), "{all:?}");
    let shared = ["--share", "--workload", "a,f,d", "--durability", "persistToMajority"];
    let found = ycsb(&[&shared[..], &["--seconds", "60", "--operations", "200"]].concat());
    let sums: Vec<_> = found.iter().filter(|row| row["operation"] == "all").collect();
    assert_eq!(sums.len(), 3, "{found:?}");
    assert!(sums.iter().all(|row| row["operations"] == "200"), "{sums:?}");
    // Inserted documents are not loaded again, and do not disturb another run.
    let again = [
        "--no-load",
        "--workload",
        "e",
        "--scans",
        "keys",
        "--seconds",
        "60",
        "--operations",
        "100",
    ];
    assert_eq!(ycsb(&again).last().unwrap()["operations"], "100");
    let more = ["--no-load", "--workload", "c", "--records", "3000", "--seconds", "60"];
    let common = ["--server", &keys, "--bucket", BUCKET];
    let output = run("ycsb", &[&login(&query)[..], &common, &more].concat());
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && reason.contains("is not there: load first"), "{reason}");
}

#[test]
fn an_answer_in_pieces_waits_for_no_acknowledgement() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let query = format!("127.0.0.1:{}", server.port_base + 2);
    let statement = "SELECT RAW REPEAT($1, 90000) FROM [1, 2] AS two";
    let options = [statement, "--argument", "\"x{}\"", "--numbers", "1", "--seconds", "1.5"];
    let found = &rows(&run("query", &[&options[..], &login(&query)].concat()))[0];
    assert!(found["bytes"] > 300_000.0, "{found:?}");
    // Systems delay an acknowledgement by 40 ms.
    assert!(found["p50_us"] < 38_000.0, "{found:?}");
    let wrong = run("query", &[&["SELECT nonsense("][..], &login(&query)].concat());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("syntax error"));
}

#[test]
fn each_combination_is_a_row_and_sizes_that_exceed_a_socket_go_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let login = ["--user", USER, "--password", PASSWORD, "--bucket", BUCKET];
    let run = |options: &[&str]| {
        let options: Vec<&str> = login.iter().chain(options).copied().collect();
        rows(&bench(&server.kv_address(), &options))
    };
    let sweep =
        run(&["--connections", "1,3", "--depth", "1,8", "--keys", "50", "--seconds", "0.1"]);
    let cells: Vec<_> = sweep.iter().map(|row| (row["connections"], row["depth"])).collect();
    assert_eq!(cells, [(1.0, 1.0), (1.0, 8.0), (3.0, 1.0), (3.0, 8.0)]);
    assert!(sweep.iter().all(|row| row["operations"] > 0.0 && row["p50_us"] <= row["max_us"]));

    let large = ["--value-bytes", "3000000", "--keys", "4", "--depth", "8", "--connections", "2"];
    let large = run(&large.iter().chain(&["--seconds", "0.3"]).copied().collect::<Vec<_>>());
    assert!(large[0]["operations"] >= 16.0, "{large:?}");

    let durable = ["--durability", "persistToMajority", "--keys", "20", "--read-percent", "0"];
    let durable = run(&durable.iter().chain(&["--seconds", "0.2"]).copied().collect::<Vec<_>>());
    assert!(durable[0]["operations"] > 0.0);

    let filled = run(&["--keys", "777", "--seconds", "0"]);
    assert_eq!(filled[0]["operations"], 777.0);
}

#[test]
fn failures_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let login = ["--user", USER, "--password", PASSWORD, "--bucket", BUCKET];
    let reason = |options: &[&str]| {
        let output = bench(&server.kv_address(), options);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing: Vec<&str> = login.iter().chain(&["--no-load", "--keys", "9"]).copied().collect();
    assert!(reason(&missing).contains("is not there: load first"), "{}", reason(&missing));
    let large = ["--value-bytes", "22000000", "--keys", "1"];
    let large: Vec<&str> = login.iter().chain(&large).copied().collect();
    assert!(reason(&large).contains("loading failed") && reason(&large).contains("E2BIG"));
    assert!(reason(&["--user", USER, "--password", "wrong"]).contains("cannot log in"));
    assert!(reason(&["--durability", "majority"]).contains("needs a login"));
    assert!(reason(&["--depth", "0"]).contains("begin at 1"));
}

#[test]
fn an_open_loop_counts_the_time_that_requests_waited_to_be_sent() {
    const STALL: Duration = Duration::from_millis(400);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // A server that stalls once, with its first request in hand, and then answers every read.
    let stalling = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 40];
        let mut answer = [0; 24];
        answer[0] = 0x81;
        stream.read_exact(&mut request).unwrap();
        std::thread::sleep(STALL);
        while stream.write_all(&answer).is_ok() && stream.read_exact(&mut request).is_ok() {}
    });
    let loops = ["--connections", "1", "--depth", "1", "--no-load", "--read-percent", "100"];
    let open = ["--rate", "100", "--seconds", "0.8"];
    let options: Vec<&str> = loops.iter().chain(&open).copied().collect();
    let found = &rows(&bench(&address, &options))[0];
    stalling.join().unwrap();
    // Half of the 80 requests were due during the stall, though with one in flight only one was sent.
    assert!(found["max_us"] >= 390_000.0, "{found:?}");
    assert!(found["p90_us"] >= 200_000.0, "{found:?}");
    assert!((70.0..=80.0).contains(&found["operations"]), "{found:?}");
}
