//! Runs the conformance cases against a host; prints the failures, then a table.

#![expect(clippy::disallowed_methods, reason = "the run's name comes from the clock")]

use clap::Parser;
use nacre_conformance::run::{
    Outcome, SQLPP_BUCKET, Target, bucket_exists, run, run_analytics, table,
};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Plays the conformance cases against a host. The bucket has to exist; keys and design documents are named after
/// the cases and removed afterwards.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Name or address of the host.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port of the binary protocol.
    #[arg(long, default_value_t = 11210)]
    kv_port: u16,
    /// Port of cluster management.
    #[arg(long, default_value_t = 8091)]
    mgmt_port: u16,
    /// Port of views.
    #[arg(long, default_value_t = 8092)]
    views_port: u16,
    /// Port of queries.
    #[arg(long, default_value_t = 8093)]
    query_port: u16,
    /// Port of functions.
    #[arg(long, default_value_t = 8096)]
    eventing_port: u16,
    /// Port of analytics: plays the cases for analytics instead of the others.
    #[arg(long)]
    analytics_port: Option<u16>,
    /// Management ports of unclaimed nodes on the same host, separated by commas: plays the cases that need such nodes as well.
    #[arg(long, value_delimiter = ',', value_name = "PORTS")]
    fresh_ports: Vec<u16>,
    /// The user; empty for a host whose sessions need no login.
    #[arg(long, env = "NACRE_USER")]
    user: String,
    /// The password.
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true)]
    password: String,
    /// The bucket.
    #[arg(long, default_value = "default")]
    bucket: String,
    /// Plays only cases whose group or name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Prints a line for each case that passes, too.
    #[arg(long)]
    table: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let target = Target {
        host: arguments.host,
        kv_port: arguments.kv_port,
        mgmt_port: arguments.mgmt_port,
        views_port: arguments.views_port,
        query_port: arguments.query_port,
        eventing_port: arguments.eventing_port,
        fresh_ports: arguments.fresh_ports,
        user: arguments.user,
        password: arguments.password,
        bucket: arguments.bucket,
        filter: arguments.filter,
        run: format!("{seconds:x}"),
    };
    match bucket_exists(&target) {
        Ok(true) => {}
        Ok(false) => {
            eprintln!("bucket {} does not exist", target.bucket);
            return ExitCode::FAILURE;
        }
        // The cases do not need management: a host without it can still be tested.
        Err(error) => eprintln!("cluster management at port {}: {error}", target.mgmt_port),
    }
    if target.bucket != SQLPP_BUCKET && arguments.analytics_port.is_none() {
        eprintln!(
            "the cases for SQL++ are left out: they need a bucket that is called {SQLPP_BUCKET}"
        );
    }
    if target.fresh_ports.is_empty() && arguments.analytics_port.is_none() {
        eprintln!("the cases that need unclaimed nodes are left out: name some with --fresh-ports");
    }
    let report = |Outcome { group, name, problem }: &Outcome| match problem {
        Some(problem) => println!("FAIL {group}/{name}: {problem}"),
        None if arguments.table => println!("ok   {group}/{name}"),
        None => {}
    };
    let outcomes = match arguments.analytics_port {
        Some(port) => run_analytics(&target, port, report),
        None => run(&target, report),
    };
    print!("{}", table(&outcomes));
    let failed = outcomes.iter().any(|outcome| outcome.problem.is_some());
    if failed || outcomes.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
