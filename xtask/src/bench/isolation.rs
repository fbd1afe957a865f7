//! `cargo xtask bench isolation`: what a map function that never ends costs those who read.

use super::PORT_BASE;
use super::load::{self, BUCKET, median};
use crate::node::{self, Node};
use std::time::{Duration, Instant};

/// A design document whose map never ends: each document costs it all the steps it may take.
const ENDLESS: &str = r#"{"views": {"endless": {"map": "function (doc) { while (true) {} }"}}}"#;

/// How many documents the endless function was given and stopped at.
fn given_up(node: &Node) -> Result<u64, String> {
    let info = node.views("GET", &format!("/{BUCKET}/_design/endless/_info"), "")?;
    let info = info.json().map_err(|error| error.to_string())?;
    Ok(info["document_errors"].as_u64().unwrap_or(0))
}

/// Measures pairs with and without the endless function, and prints the median ratio.
///
/// # Errors
/// What is missing, or that the function does not run.
pub fn run(rounds: usize, seconds: f64) -> Result<(), String> {
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &[])?;
    let (target, seconds) = (load::target(&node), seconds.to_string());
    let reads = ["--read-percent", "100", "--connections", "4", "--depth", "1"];
    let options: Vec<&str> =
        reads.into_iter().chain(["--keys", "20000", "--seconds", &seconds]).collect();
    println!(
        "p99 of reads, 4 connections, beside an endless map function / without; {rounds} pairs"
    );
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let alone = load::measure(&binary, &[], &target, &options)?;
        node.put_design(BUCKET, "endless", ENDLESS)?;
        let until = Instant::now() + Duration::from_secs(30);
        while given_up(&node)? == 0 {
            if Instant::now() > until {
                return Err("the endless function does not run".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = given_up(&node)?;
        let beside = load::measure(&binary, &[], &target, &options)?;
        let documents = given_up(&node)? - before;
        node.views("DELETE", &format!("/{BUCKET}/_design/endless"), "")?;
        println!(
            "  alone p50 {:.0} us p99 {:.0} us, beside p50 {:.0} us p99 {:.0} us; {documents} documents were given up meanwhile",
            alone.p50, alone.p99, beside.p50, beside.p99
        );
        ratios.push((beside.p50 / alone.p50, beside.p99 / alone.p99));
    }
    println!(
        "median ratio: p50 {:.2}, p99 {:.2}",
        median(ratios.iter().map(|ratio| ratio.0).collect()),
        median(ratios.iter().map(|ratio| ratio.1).collect())
    );
    node.stop()
}
