//! The nodes of a cluster: a table for people, rows for programs, and a command that waits for a state.

use super::{check_known, otp_node, picture};
use crate::failure::{Failure, Kind};
use crate::listing::Format;
use crate::target::Server;
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The path that lists the nodes.
const POOL: &str = "/pools/default";
/// The pause between two looks at the nodes.
const PAUSE: Duration = Duration::from_millis(200);

/// Options of `nacre cluster status`.
#[derive(Args, Clone, Debug)]
pub(super) struct Status {
    /// Show which node serves each vBucket of a bucket, too
    #[arg(long, value_name = "BUCKET")]
    map: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// Options of `nacre cluster wait`.
#[derive(Args, Clone, Debug)]
pub(super) struct Wait {
    /// State to wait for
    #[arg(value_enum)]
    state: State,
    /// Management address of a node, as `status` shows it; may be given several times (default: all
    /// nodes; for failed-over, any node)
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// Seconds after which the command fails
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// The nodes respond to each other
    Healthy,
    /// The cluster has failed over the nodes
    FailedOver,
    /// Every node has its share of the vBuckets, and no rebalance runs
    Balanced,
}

/// Runs `nacre cluster status`.
///
/// # Errors
/// The reason, if the nodes or the map cannot be read.
pub(super) fn show(server: &Server, options: &Status) -> Result<(), Failure> {
    match &options.map {
        Some(_) if options.format.is_json() => {
            Err("--map draws a picture: leave out --output json".into())
        }
        Some(bucket) => {
            status(server)?;
            show_map(server, bucket)
        }
        None if options.format.is_json() => {
            options.format.show_one(&rows(&server.call("GET", POOL, b"")?));
            Ok(())
        }
        None => status(server),
    }
}

/// Prints the nodes and their problems.
///
/// # Errors
/// The reason, if the nodes cannot be read.
pub(super) fn status(server: &Server) -> Result<(), Failure> {
    let pool = server.call("GET", POOL, b"")?;
    println!("{}", table(&pool));
    for problem in problems(&pool) {
        println!("{problem}");
    }
    Ok(())
}

/// Runs `nacre cluster wait`.
///
/// # Errors
/// The reason, if the nodes are not in the state in time, or a named node does not exist.
pub(super) fn wait(server: &Server, options: &Wait) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let left = match server.call("GET", POOL, b"") {
            Ok(pool) => missing(&pool, options.state, &options.nodes)?,
            // The node that is asked may still start.
            Err(failure) if failure.kind == Kind::Unreachable => vec![failure.reason],
            Err(failure) => return Err(failure),
        };
        if left.is_empty() {
            return status(server);
        }
        if begun.elapsed() >= Duration::from_secs(options.timeout) {
            let (seconds, left) = (options.timeout, left.join(", "));
            let next = "`nacre cluster status` shows all nodes, --timeout waits longer";
            return Err(format!("after {seconds} s, {left}: {next}").into());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns what is missing for a state; nothing if the cluster is in it.
fn missing(pool: &Value, state: State, names: &[String]) -> Result<Vec<String>, Failure> {
    let all: Vec<&Value> = pool["nodes"].as_array().into_iter().flatten().collect();
    let known: Vec<&str> = all.iter().filter_map(|node| node["otpNode"].as_str()).collect();
    check_known(&known, names.iter())?;
    let is_meant = |node: &&Value| {
        names.is_empty() || names.iter().any(|name| node["otpNode"] == otp_node(name))
    };
    let nodes: Vec<&Value> = all.into_iter().filter(is_meant).collect();
    let is_failed_over = |node: &Value| node["clusterMembership"] == "inactiveFailed";
    let left: Vec<String> = match state {
        State::Healthy => {
            let ill = nodes.into_iter().filter(|node| node["status"] != "healthy");
            ill.map(|node| format!("{} is {}", name_of(node), text(node, "status"))).collect()
        }
        State::FailedOver if names.is_empty() => {
            let is_any = nodes.into_iter().any(is_failed_over);
            if is_any { Vec::new() } else { vec!["no node is failed over".to_owned()] }
        }
        State::FailedOver => {
            let others = nodes.into_iter().filter(|node| !is_failed_over(node));
            others.map(|node| format!("{} is {}", name_of(node), membership(node))).collect()
        }
        State::Balanced if pool["rebalanceStatus"] != "none" => {
            vec!["a rebalance runs".to_owned()]
        }
        State::Balanced if pool["balanced"] != true => {
            vec!["the vBuckets are not spread evenly (`nacre cluster rebalance` does that)".into()]
        }
        State::Balanced => Vec::new(),
    };
    Ok(left)
}

/// Draws which node serves each vBucket of a bucket.
fn show_map(server: &Server, bucket: &str) -> Result<(), Failure> {
    let name = utf8_percent_encode(bucket, NON_ALPHANUMERIC);
    let map = server.call("GET", &format!("/pools/default/buckets/{name}"), b"");
    let about = |failure: Failure| {
        failure
            .map(|reason| format!("bucket {bucket}: {reason} `nacre bucket list` shows them all"))
    };
    print!("\n{}", picture::draw(&map.map_err(about)?));
    Ok(())
}

/// Returns the problems that the node reports about itself.
fn problems(pool: &Value) -> Vec<String> {
    let nodes = pool["nodes"].as_array().into_iter().flatten();
    let of_node = |node: &Value| {
        let name = name_of(node);
        let problems = node["problems"].as_array().cloned().unwrap_or_default();
        let texts = problems.into_iter().filter_map(|problem| Some(problem.as_str()?.to_owned()));
        texts.map(|text| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    nodes.flat_map(of_node).collect()
}

fn text(node: &Value, field: &str) -> String {
    node[field].as_str().unwrap_or_default().to_owned()
}

fn name_of(node: &Value) -> String {
    text(node, "otpNode").trim_start_matches("ns_1@").to_owned()
}

/// Returns a node's membership in the cluster.
fn membership(node: &Value) -> &'static str {
    match node["clusterMembership"].as_str() {
        _ if node["leaving"] == true => "leaving",
        Some("inactiveAdded") => "added",
        Some("inactiveFailed") => "failed over",
        _ => "active",
    }
}

/// Returns the nodes of `/pools/default` for programs.
fn rows(pool: &Value) -> Value {
    let row = |node: &Value| {
        json!({
            "node": name_of(node),
            "status": node["status"],
            "membership": membership(node),
            "services": node["services"],
            "group": node["serverGroup"],
            "is_asked": node["thisNode"] == true,
            "alternate_address": node["alternateAddresses"]["external"]["hostname"],
            "problems": node["problems"].as_array().cloned().unwrap_or_default(),
        })
    };
    pool["nodes"].as_array().into_iter().flatten().map(row).collect()
}

/// Returns the nodes of `/pools/default`, one per row.
fn table(pool: &Value) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "node",
        "status",
        "membership",
        "services",
        "group",
        "",
    ]);
    for node in pool["nodes"].as_array().into_iter().flatten() {
        let alternate = node["alternateAddresses"]["external"]["hostname"].as_str();
        let own = (node["thisNode"] == true).then_some("(asked)");
        let alternate = alternate.map(|host| format!("alternate {host}"));
        let more: Vec<&str> = own.into_iter().chain(alternate.as_deref()).collect();
        let services = node["services"].as_array().into_iter().flatten();
        let services = services.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        let (status, group) = (text(node, "status"), text(node, "serverGroup"));
        let membership = membership(node).to_owned();
        table.add_row([name_of(node), status, membership, services, group, more.join(", ")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16, status: &str, membership: &str, services: &[&str], own: bool) -> Value {
        let otp_node = format!("ns_1@a:{port}");
        json!({
            "otpNode": otp_node, "status": status, "clusterMembership": membership, "services": services,
            "serverGroup": "Group 1", "thisNode": own,
        })
    }

    #[test]
    fn the_status_shows_one_node_a_row() {
        let nodes = [
            node(1, "healthy", "active", &["kv", "n1ql"], true),
            node(2, "unhealthy", "inactiveAdded", &["n1ql"], false),
            json!({"otpNode": "ns_1@a:3", "status": "healthy", "clusterMembership": "inactiveAdded",
                "leaving": true, "services": ["kv"], "serverGroup": "Group 1"}),
        ];
        let shown = table(&json!({ "nodes": nodes })).to_string();
        let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert_eq!(
            shown,
            [
                " node  status     membership  services  group",
                " a:1   healthy    active      kv,n1ql   Group 1  (asked)",
                " a:2   unhealthy  added       n1ql      Group 1",
                " a:3   healthy    leaving     kv        Group 1"
            ]
        );
    }

    #[test]
    fn programs_receive_the_same_nodes_as_objects() {
        let pool = json!({ "nodes": [node(1, "healthy", "inactiveFailed", &["kv"], true)] });
        let expected = json!([{
            "node": "a:1", "status": "healthy", "membership": "failed over", "services": ["kv"],
            "group": "Group 1", "is_asked": true, "alternate_address": null, "problems": [],
        }]);
        assert_eq!(rows(&pool), expected);
    }

    #[test]
    fn a_state_that_is_not_reached_names_the_nodes() {
        let pool = json!({
            "nodes": [
                node(1, "healthy", "active", &["kv"], true),
                node(2, "unhealthy", "inactiveFailed", &["kv"], false),
            ],
            "rebalanceStatus": "none",
            "balanced": false,
        });
        let left = |state: State, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            missing(&pool, state, &names).unwrap_or_else(|failure| vec![failure.reason])
        };
        let none: [&str; 0] = [];
        assert_eq!(left(State::Healthy, &[]), ["a:2 is unhealthy"]);
        assert_eq!(left(State::Healthy, &["a:1"]), none);
        assert_eq!(left(State::FailedOver, &[]), none);
        assert_eq!(left(State::FailedOver, &["a:1"]), ["a:1 is active"]);
        assert!(left(State::Balanced, &[])[0].contains("nacre cluster rebalance"));
        assert!(left(State::Healthy, &["a:9"])[0].contains("there is no node a:9"));
    }
}
