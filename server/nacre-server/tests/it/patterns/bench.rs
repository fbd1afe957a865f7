//! `nacre bench patterns` and `nacre bench extract` from outside.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::queries::serving;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A command against a node.
fn command(server: &Server, workloads: &str, options: &[&str]) -> Command {
    let node = format!("http://127.0.0.1:{}", server.port_base);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["bench", "patterns", workloads, "-c", &node, "-u", USER, "-p", PASSWORD]);
    if !options.contains(&"--bucket") {
        command.args(["--bucket", BUCKET]);
    }
    command.args(["--csv", "-"]).args(options);
    command
}

fn run(server: &Server, workloads: &str, options: &[&str]) -> Output {
    command(server, workloads, options).output().unwrap()
}

/// A row by the names of its columns.
type Row = BTreeMap<String, String>;

fn rows(output: &Output) -> Vec<Row> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<String> = lines.next().unwrap().collect();
    lines.map(|line| names.iter().cloned().zip(line).collect()).collect()
}

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap()
}

/// Sizes that take no time.
const SMALL: [&str; 20] = [
    "--property",
    "operationcount=60",
    "--property",
    "recordcount=60",
    "--property",
    "lba.pagination.commentCount=45",
    "--property",
    "enumerableKeys.pagination.commentCount=45",
    "--property",
    "for.usersCount=12",
    "--property",
    "for.friendsPerUser=11",
    "--property",
    "for.activitiesPerUser=2",
    "--property",
    "fow.usersCount=12",
    "--property",
    "fow.friendsPerUser=11",
    "--property",
    "fow.activitiesPerUser=2",
];

#[test]
fn each_pattern_does_its_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let workloads = [
        ("incrementing-key", "USER-REGISTRATION"),
        ("uuid-key", "USER-REGISTRATION"),
        ("secondary-index-insert", "INSERT-USER"),
        ("secondary-index-query", "QUERY-USER"),
        ("hash-index-insert", "INSERT-USER"),
        ("hash-index-query", "QUERY-USER"),
        ("index-table-insert", "INSERT-USER"),
        ("index-table-query", "QUERY-USER"),
        ("lba-post", "INSERT-COMMENT"),
        ("lba-push", "INSERT-COMMENT"),
        ("lba-paginate", "GET-COMMENTS"),
        ("lba-slice", "GET-COMMENTS"),
        ("enumerable-keys-post", "INSERT-COMMENT"),
        ("enumerable-keys-paginate", "GET-COMMENTS"),
        ("for-save", "SAVE-ACTIVITY"),
        ("for-paginate", "PAGINATE-FEED"),
        ("fow-save", "SAVE-ACTIVITY"),
        ("fow-paginate", "PAGINATE-FEED"),
        ("fow-keys-save", "SAVE-ACTIVITY"),
        ("fow-keys-paginate", "PAGINATE-FEED"),
    ];
    let names: Vec<&str> = workloads.iter().map(|(name, _)| *name).collect();
    let options = [&SMALL[..], &["--threads", "1,3"]].concat();
    let found = rows(&run(&server, &names.join(","), &options));
    let runs: Vec<&Row> = found.iter().filter(|row| !row["workload"].ends_with(":load")).collect();
    let told: Vec<String> = runs
        .iter()
        .map(|row| {
            let column = |name: &str| row[name].clone();
            ["workload", "threads", "transaction", "operations"].map(column).join(" ")
        })
        .collect();
    let expected: Vec<String> = workloads
        .iter()
        .flat_map(|(name, transaction)| {
            [1, 3].map(|threads| format!("{name} {threads} {transaction} 60"))
        })
        .collect();
    assert_eq!(told, expected);
    for row in &runs {
        // Clients have something to do all the time, so that latencies times throughput are clients.
        let (in_flight, threads) = (number(row, "in_flight"), number(row, "threads"));
        assert!(in_flight > 0.0 && in_flight < threads * 1.1, "{row:?}");
        assert!(number(row, "avg_us") <= number(row, "max_us"), "{row:?}");
    }
}

/// A counter in another cluster, and users in this one.
#[test]
fn a_counter_can_be_in_another_cluster() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = [0, 1].map(|at: usize| Server::start(directories[at].path()));
    let node = |at: usize| format!("nodes.c{at}=127.0.0.1:{}", servers[at].port_base);
    let clusters = ["clusters=c0,c1", &node(0), &node(1), "incrementingKey.remoteCounter=true"];
    let properties = clusters.iter().flat_map(|one| ["--property", one]);
    let options: Vec<&str> = properties.chain(["--property", "operationcount=50"]).collect();
    let found = rows(&run(&servers[0], "IncrementingKey", &options));
    assert_eq!(found.last().unwrap()["operations"], "50", "{found:?}");
    let count = |at: usize| {
        let bucket = servers[at].rest("GET", &format!("/pools/default/buckets/{BUCKET}"), "");
        bucket.unwrap().json().unwrap()["basicStats"]["itemCount"].clone()
    };
    assert_eq!([count(0), count(1)], [50, 1].map(serde_json::Value::from));
}

/// A16, through the command: what is given up is a transaction under another name, and is told of.
#[test]
fn transactions_that_fail_are_counted_apart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let options = ["--no-load", "--property", "tries=3", "--property", "maxBackoff=1"];
    let output = run(&server, "index-table-query", &[&options[..], &SMALL].concat());
    let found = rows(&output);
    let row = &found[0];
    assert_eq!((&*row["transaction"], &*row["operations"]), ("QUERY-USER-FAILED", "60"));
    assert_eq!((&*row["retries"], &*row["given_up"]), ("120", "60"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("the first failure was: email::"), "{told}");
    assert!(told.contains("1 nodes, 1 replicas") || told.contains("1 nodes, 0 replicas"), "{told}");
    // One that is listed is not tried again.
    let listed = ["--property", "notRetried=KEY_ENOENT"];
    let options = [&options[..], &SMALL, &listed].concat();
    let found = rows(&run(&server, "index-table-query", &options));
    assert_eq!((&*found[0]["retries"], &*found[0]["given_up"]), ("0", "60"));
}

#[test]
fn a_log_of_several_runs_becomes_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (log, curves) = (directory.path().join("log"), directory.path().join("curves.svg"));
    let files = ["--log", log.to_str().unwrap(), "--curves", curves.to_str().unwrap()];
    let options = [&files[..], &SMALL, &["--threads", "1,2,4"]].concat();
    rows(&run(&server, "enumerable-keys-post", &options));
    let results =
        "OVERALL.Throughput(ops/sec),INSERT-COMMENT.Operations,INSERT-COMMENT-FAILED.Operations";
    let extract = ["bench", "extract", "-i", log.to_str().unwrap(), "-d", "0", "-c", ";"];
    let output = Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args(extract)
        .args(["-p", "threads,operationcount", "-r", results])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    assert_eq!(lines.len(), 4, "{text}");
    for (line, threads) in lines[1..].iter().zip(["1", "2", "4"]) {
        assert_eq!((line[0], line[1]), (threads, "60"), "{text}");
        assert!(line[2].parse::<u64>().unwrap() > 0, "{text}");
        assert_eq!((line[3], line[4]), ("60", ""), "{text}");
    }
    assert!(std::fs::read_to_string(&curves).unwrap().contains("polyline"));
}

/// A18. A machine with other things to do may wake one of them late, but hardly each time.
#[test]
fn two_commands_begin_at_the_time_that_they_agreed_on() {
    const CLOSE: Duration = Duration::from_millis(50);
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let differs = |round: u64| {
        let at = SystemTime::now() + Duration::from_millis(1500);
        let at_ms = at.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let logs = [0, 1].map(|which| directory.path().join(format!("{round}-{which}")));
        let start = format!("startAt={at_ms}");
        let begin = |log: &std::path::PathBuf| {
            let options = ["--property", &start, "--log", log.to_str().unwrap()];
            let mut command = command(&server, "uuid-key", &[&options[..], &SMALL].concat());
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let processes = logs.each_ref().map(begin);
        for mut process in processes {
            assert!(process.wait().unwrap().success());
        }
        let [one, other] = logs.map(|log| started(&log));
        let agreed = UNIX_EPOCH + Duration::from_millis(at_ms as u64);
        assert!(one.min(other) >= agreed, "nobody begins before");
        one.abs_diff(other)
    };
    let found: Vec<Duration> = (0..5).map(differs).take_while(|apart| *apart > CLOSE).collect();
    assert!(found.len() < 5, "{found:?} apart");
}

/// The start of the only run of a log.
fn started(log: &Path) -> SystemTime {
    let text = std::fs::read_to_string(log).unwrap();
    let us = text.lines().find_map(|line| line.strip_prefix("[OVERALL], StartTime(us), "));
    UNIX_EPOCH + Duration::from_micros(us.unwrap().parse().unwrap())
}

/// The distance of two times.
trait AbsDiff {
    fn abs_diff(self, other: Self) -> Duration;
}

impl AbsDiff for SystemTime {
    fn abs_diff(self, other: SystemTime) -> Duration {
        self.duration_since(other).unwrap_or_else(|error| error.duration())
    }
}

#[test]
fn nonsensical_requests_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let reason = |workload: &str, options: &[&str]| {
        let output = run(&server, workload, options);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(reason("uuid-key", &["--threads", "0"]).contains("begin at 1"));
    let property = |text: &'static str| ["--property", text];
    assert!(reason("uuid-key", &property("operationcount=0")).contains("begins at 1"));
    assert!(reason("uuid-key", &property("clusters=far")).contains("nodes.far=host:8091"));
    assert!(
        reason("uuid-key", &property("durability=some"))
            .contains("invalid value of the property durability: some")
    );
    let remote = property("incrementingKey.remoteCounter=true");
    assert!(reason("incrementing-key", &remote).contains("needs a second cluster"));
    assert!(reason("uuid-key", &["--bucket", "none"]).contains("none"));
    // Names of other programs are no mistake.
    let output = run(&server, "uuid-key", &["--property", "db=x"]);
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("Ignoring the property db"), "{told}");
}
