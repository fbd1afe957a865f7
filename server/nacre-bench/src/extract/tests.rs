//! Tests of logs and their CSV. The first log has the layout of YCSB 0.7, the second that of newer versions including standard
//! error, and the third is written by `nacre bench patterns`.

use super::*;
use clap::Parser;

/// Five runs with an increasing number of clients; the third has failures, the fourth has no reads.
const OLD: &str = "\
YCSB Client 0.1
Command line: -db com.yahoo.ycsb.BasicDB -P workloads/workloadc -p tries=10 -threads 1 -t
Using 1 shards
[OVERALL], RunTime(ms), 2871.0
[OVERALL], Throughput(ops/sec), 348.31069313827936
[READ], Operations, 1000.0
[READ], AverageLatency(us), 1.300665
[READ], Return=OK, 1000
YCSB Client 0.1
Command line: -db com.yahoo.ycsb.BasicDB -P workloads/workloadc -p tries=10 -threads 2 -t
[OVERALL], RunTime(ms), 1122.0
[OVERALL], Throughput(ops/sec), 891.2655971479501
[READ], AverageLatency(us), 1.4
YCSB Client 0.1
Command line: -db com.yahoo.ycsb.BasicDB -P workloads/workloadc -p tries=20 -threads 3 -t
[OVERALL], Throughput(ops/sec), 1086.9565217391305
[READ], AverageLatency(us), 1.554953
[READ-FAILED], Operations, 3.0
YCSB Client 0.1
Command line: -db com.yahoo.ycsb.BasicDB -P workloads/workloadc -threads 4 -t
[OVERALL], Throughput(ops/sec), 1076.4262648008612
YCSB Client 0.1
Command line: -db com.yahoo.ycsb.BasicDB -P workloads/workloadc -threads 5 -t
[OVERALL], Throughput(ops/sec), 1088.139281828074
[READ], AverageLatency(us), 2.0
";

const NEW: &str = "\
Command line: -db site.ycsb.BasicDB -P workloads/workloada -threads 8 -load
YCSB Client 0.17.0

Loading workload...
Starting test.
[OVERALL], Throughput(ops/sec), 5000.5
[TOTAL_GCs], Count, 4
[INSERT], AverageLatency(us), 117.25
Command line: -db site.ycsb.BasicDB -P workloads/workloada -threads 16 -load
YCSB Client 0.17.0

Loading workload...
[OVERALL], Throughput(ops/sec), 9000.25
[INSERT], AverageLatency(us), 130.5
";

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    extract: Extract,
}

/// Runs the command over a log. Returns its output.
fn extracted(log: &[u8], options: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("log"), folder.path().join("csv"));
    std::fs::write(&input, log).unwrap();
    let files = ["extract", "-i", input.to_str().unwrap(), "-o", output.to_str().unwrap()];
    let command = Command::parse_from(files.iter().chain(options));
    command.extract.run()?;
    Ok(std::fs::read_to_string(output).unwrap())
}

#[test]
fn a_run_is_a_row_with_empty_cells_for_missing_results() {
    let results = "OVERALL.Throughput(ops/sec),READ.AverageLatency(us),READ-FAILED.Operations,UPDATE.Operations";
    let options = ["-p", "threads,tries", "-r", results, "--latencies-in", "ms"];
    insta::assert_snapshot!(extracted(OLD.as_bytes(), &options).unwrap(), @r"
    threads,tries,OVERALL.Throughput(ops/sec),READ.AverageLatency(us),READ-FAILED.Operations,UPDATE.Operations
    1,10,348.31,1300.66,,
    2,10,891.27,1400.00,,
    3,20,1086.96,1554.95,3.00,
    4,,1076.43,,,
    5,,1088.14,2000.00,,
    ");
}

#[test]
fn numbers_have_the_requested_format() {
    let options =
        ["-p", "threads", "-r", "OVERALL.Throughput(ops/sec)", "-s", ",", "-c", ";", "-d", "1"];
    insta::assert_snapshot!(extracted(NEW.as_bytes(), &options).unwrap(), @r"
    threads;OVERALL.Throughput(ops/sec)
    8;5000,5
    16;9000,2
    ");
    // Numbers with a decimal comma are quoted in a comma-separated file.
    let options = ["-r", "INSERT.AverageLatency(us),OVERALL.Throughput(ops/sec)", "-s", ","];
    let csv = extracted(NEW.as_bytes(), &options).unwrap();
    assert!(csv.contains("\"117,25\",\"5000,50\""), "{csv}");
}

#[test]
fn a_file_has_the_options_under_the_names_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let properties = folder.path().join("p");
    let text = "blockStartMarker=\"YCSB Client 0.1\"\ncharset=ISO-8859-1\ndecimalPlaces=0\n\
                decimalSymbol=,\ncsvSeparator=;\nycsbParams=threads\nycsbResults=OVERALL.RunTime(ms)\n";
    std::fs::write(&properties, text).unwrap();
    let file = properties.to_str().unwrap();
    let csv = extracted(OLD.as_bytes(), &["-P", file]).unwrap();
    assert_eq!(csv, "threads;OVERALL.RunTime(ms)\n1;2871\n2;1122\n3;\n4;\n5;\n");
    // Options take precedence, and this log has no blocks with the marker of another version.
    assert!(extracted(OLD.as_bytes(), &["-P", file, "-d", "1"]).unwrap().contains("2871,0"));
    assert_eq!(extracted(NEW.as_bytes(), &["-P", file]).unwrap().lines().count(), 3);
    assert_eq!(extracted(b"", &["-P", file]).unwrap().lines().count(), 1);
}

#[test]
fn invalid_options_are_refused() {
    let reason = |options: &[&str]| extracted(OLD.as_bytes(), options).unwrap_err();
    assert_eq!(
        reason(&["-r", "Throughput"]),
        "\"Throughput\" is not a result: write SECTION.METRIC"
    );
    assert_eq!(reason(&["-d", "18"]), "decimal places go from 0 to 17");
    assert_eq!(reason(&["-c", "…"]), "'…' cannot separate columns");
    assert!(reason(&["-e", "x"]).contains("utf-8"));
    let latin = b"YCSB Client \xe9".as_slice();
    assert!(extracted(latin, &[]).unwrap_err().contains("name another --charset"));
}
