//! `nacre cluster`: forms a cluster of nodes and shows its state, over REST.

mod nodes;
mod picture;

use crate::Failure;
use crate::target::Server;
use clap::{Args, Subcommand};
use nacre_cluster::{Address, bracketed};
use nodes::status;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Time limit for nodes that a rebalance has removed to leave.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(30);
/// Path of a node's alternate address.
const ALTERNATE_ADDRESS: &str = "/node/controller/setupAlternateAddresses/external";

/// Options of `nacre cluster`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Name a new cluster and its first node
    Init {
        /// Name of the cluster
        #[arg(long)]
        name: Option<String>,
        /// Name or address by which other nodes and clients reach the node
        #[arg(long)]
        host_name: Option<String>,
    },
    /// Make the node join the cluster of another node; its own data is discarded
    Join {
        /// Management address of any node of that cluster, as host:port or https://host:port
        member: String,
        #[command(flatten)]
        key: Key,
        #[command(flatten)]
        services: Services,
        #[command(flatten)]
        login: Login,
    },
    /// Add another node to the node's cluster
    Add {
        /// Management address of the other node, as host:port or https://host:port
        node: String,
        /// Server group of the node; created if it does not exist
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        key: Key,
        #[command(flatten)]
        services: Services,
        #[command(flatten)]
        login: Login,
    },
    /// Remove a node that has no data; it starts empty
    Remove {
        /// Management address of the node, as `status` shows it
        node: String,
    },
    /// Spread the vBuckets evenly over the nodes; new ones get their share
    Rebalance {
        /// Management address of a node to remove, as `status` shows it; may be given several times
        #[arg(long = "remove")]
        removed: Vec<String>,
        /// All nodes that run the query service after the rebalance, as `status` shows them
        #[arg(long, value_delimiter = ',')]
        query: Option<Vec<String>>,
        /// All nodes that run the eventing service after the rebalance, as `status` shows them
        #[arg(long, value_delimiter = ',')]
        eventing: Option<Vec<String>>,
        /// All nodes that store partitions of indexes after the rebalance, as `status` shows them
        #[arg(long, value_delimiter = ',')]
        index: Option<Vec<String>>,
        /// All nodes that run the search service after the rebalance, as `status` shows them
        #[arg(long, value_delimiter = ',')]
        search: Option<Vec<String>>,
    },
    /// Fail over nodes: other nodes take over their vBuckets
    Failover {
        /// Management addresses of the nodes, as `status` shows them
        #[arg(required = true)]
        nodes: Vec<String>,
        /// Move their vBuckets to other nodes first, without data loss
        #[arg(long, conflicts_with = "allow_unsafe")]
        graceful: bool,
        /// Continue although the majority of nodes is lost: data that only the lost nodes had is
        /// lost, and they must be emptied before they start again
        #[arg(long = "unsafe")]
        allow_unsafe: bool,
    },
    /// Add failed-over nodes again once they run; the next rebalance gives them vBuckets
    Recover {
        /// Management addresses of the nodes, as `status` shows them
        #[arg(required = true)]
        nodes: Vec<String>,
        /// Copy all data to them again, not only the changes that they missed
        #[arg(long)]
        full: bool,
    },
    /// Set the alternate address of the node, for clients outside its network (such as a container
    /// network)
    #[command(alias = "elsewhere")]
    AlternateAddress {
        /// External host name or IP address (default: the alternate address is removed)
        host: Option<String>,
        /// External port of a service, such as kv=9000: mgmt, kv, capi, n1ql, fts,
        /// eventingAdminPort, indexHttp, or with TLS mgmtSSL, kvSSL, capiSSL, n1qlSSL, ftsSSL,
        /// eventingSSL, indexHttps; repeatable (default: the same ports as inside)
        #[arg(long = "port", requires = "host", value_parser = port)]
        ports: Vec<(String, String)>,
    },
    /// Show the nodes
    Status(nodes::Status),
    /// Wait until the cluster is in a state, and show the nodes
    Wait(nodes::Wait),
    /// Show the fingerprint by which other nodes recognise the node
    Fingerprint,
}

/// Fingerprint by which the other node is recognised.
#[derive(Args, Clone, Debug)]
struct Key {
    /// Fingerprint of the other node, as `nacre cluster fingerprint` shows it there (default:
    /// accepted on first use)
    #[arg(long)]
    fingerprint: Option<String>,
}

impl Key {
    fn field(&self) -> (&'static str, &str) {
        ("fingerprint", self.fingerprint.as_deref().unwrap_or_default())
    }
}

/// Services of a node.
#[derive(Args, Clone, Debug)]
struct Services {
    /// Services of the node: kv, n1ql, eventing, index, fts, separated by commas (default: all)
    #[arg(long)]
    services: Option<String>,
}

impl Services {
    fn field(&self) -> (&'static str, &str) {
        ("services", self.services.as_deref().unwrap_or_default())
    }
}

/// Login at the other node, if it differs.
#[derive(Args, Clone, Debug)]
struct Login {
    /// User at the other node (default: the same)
    #[arg(long)]
    other_user: Option<String>,
    /// Password at the other node (default: the same)
    #[arg(long, env = "NACRE_OTHER_PASSWORD", hide_env_values = true)]
    other_password: Option<String>,
}

impl Login {
    fn fields<'a>(&'a self, server: &'a Server) -> Result<[(&'static str, &'a str); 2], String> {
        let (user, password) = server.login()?;
        Ok([
            ("user", self.other_user.as_deref().unwrap_or(user)),
            ("password", self.other_password.as_deref().unwrap_or(password)),
        ])
    }
}

/// Parses a port with its name in cluster maps.
fn port(text: &str) -> Result<(String, String), String> {
    let (name, port) = text.split_once('=').ok_or("a name and a port are wanted, as kv=9000")?;
    Ok((name.to_owned(), port.to_owned()))
}

/// Runs `nacre cluster`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let server = &options.server;
    let send = |method: &str, path: &str, fields: &[(&str, &str)]| {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let fields = fields.iter().map(|(name, value)| format!("{name}={}", encode(value)));
        server.call(method, path, fields.collect::<Vec<_>>().join("&").as_bytes())
    };
    let post = |path: &str, fields: &[(&str, &str)]| send("POST", path, fields);
    match &options.action {
        Action::Init { name, host_name } => {
            if let Some(host) = host_name {
                post("/node/controller/rename", &[("hostname", host)])?;
            }
            if let Some(name) = name {
                post("/pools/default", &[("clusterName", name)])?;
            }
            status(server)
        }
        Action::Join { member, key, services, login } => {
            let Address { host, port, encrypted } = Address::parse(member)?;
            let (scheme, port) = (if encrypted { "https://" } else { "" }, port.to_string());
            let [user, password] = login.fields(server)?;
            let fields = [
                ("clusterMemberHostIp", &*format!("{scheme}{}", bracketed(&host))),
                ("clusterMemberPort", &port),
                key.field(),
                services.field(),
                user,
                password,
            ];
            post("/node/controller/doJoinCluster", &fields).map_err(about_login)?;
            println!("joined the cluster of {member}");
            Ok(())
        }
        Action::Add { node, group, key, services, login } => {
            let path = match group {
                Some(group) => path_of(server, group, post)?,
                None => "/controller".to_owned(),
            };
            let [user, password] = login.fields(server)?;
            let fields =
                [("hostname", node.as_str()), key.field(), services.field(), user, password];
            post(&format!("{path}/addNode"), &fields).map_err(about_login)?;
            status(server)
        }
        Action::Remove { node } => {
            post("/controller/ejectNode", &[("otpNode", &otp_node(node))])
                .map_err(|failure| failure.map(|reason| format!("{node}: {reason}")))?;
            status(server)
        }
        Action::Rebalance { removed, query, eventing, index, search } => {
            let fields = fields_of_rebalance(server, removed, [query, eventing, index, search])?;
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            post("/controller/rebalance", &fields)?;
            wait_for_rebalance(server)
        }
        Action::Failover { nodes, graceful, allow_unsafe } => {
            let names: Vec<String> = nodes.iter().map(|node| otp_node(node)).collect();
            let mut fields: Vec<_> = names.iter().map(|name| ("otpNode", name.as_str())).collect();
            if *graceful {
                post("/controller/startGracefulFailover", &fields)?;
                return wait_for_rebalance(server);
            }
            if *allow_unsafe {
                fields.push(("allowUnsafe", "true"));
            }
            post("/controller/failOver", &fields).map_err(|failure| {
                failure.map(|reason| format!("{}: {reason}", nodes.join(", ")))
            })?;
            status(server)
        }
        Action::Recover { nodes, full } => {
            let kind = if *full { "full" } else { "delta" };
            for node in nodes {
                let fields = [("otpNode", &*otp_node(node)), ("recoveryType", kind)];
                post("/controller/setRecoveryType", &fields)
                    .map_err(|failure| failure.map(|reason| format!("{node}: {reason}")))?;
            }
            status(server)
        }
        Action::AlternateAddress { host, ports } => {
            let ports = ports.iter().map(|(name, port)| (name.as_str(), port.as_str()));
            let fields: Vec<_> =
                host.iter().map(|host| ("hostname", host.as_str())).chain(ports).collect();
            send(if host.is_some() { "PUT" } else { "DELETE" }, ALTERNATE_ADDRESS, &fields)?;
            status(server)
        }
        Action::Status(options) => nodes::show(server, options),
        Action::Wait(options) => nodes::wait(server, options),
        Action::Fingerprint => {
            let own = server.call("GET", "/nodes/self", b"")?;
            println!("{}", own["fingerprint"].as_str().ok_or("the node has no key")?);
            Ok(())
        }
    }
}

/// Returns the form of a rebalance that removes `removed` and sets the nodes of the services for queries, functions, indexes and
/// search.
fn fields_of_rebalance(
    server: &Server,
    removed: &[String],
    services: [&Option<Vec<String>>; 4],
) -> Result<Vec<(&'static str, String)>, Failure> {
    let pool = server.call("GET", "/pools/default", b"")?;
    let known = pool["nodes"].as_array().into_iter().flatten();
    let known: Vec<&str> = known.filter_map(|node| node["otpNode"].as_str()).collect();
    check_known(&known, removed.iter().chain(services.into_iter().flatten().flatten()))?;
    let names =
        |nodes: &[String]| nodes.iter().map(|node| otp_node(node)).collect::<Vec<_>>().join(",");
    let mut fields = vec![("knownNodes", known.join(",")), ("ejectedNodes", names(removed))];
    let topologies = ["topology[n1ql]", "topology[eventing]", "topology[index]", "topology[fts]"];
    for (topology, nodes) in topologies.into_iter().zip(services) {
        fields.extend(nodes.as_deref().map(|nodes| (topology, names(nodes))));
    }
    Ok(fields)
}

/// Adds a hint to a refused login: users easily forget the options for the other node's login.
fn about_login(failure: Failure) -> Failure {
    if !failure.reason.contains("Authentication failed") {
        return failure;
    }
    let hint = "The login of the other node is --other-user and --other-password.";
    failure.map(|reason| format!("{reason} {hint}"))
}

/// Refuses nodes that are not in the cluster, and names them.
fn check_known<'a>(
    known: &[&str],
    mut named: impl Iterator<Item = &'a String>,
) -> Result<(), String> {
    match named.find(|node| !known.contains(&&*otp_node(node))) {
        None => Ok(()),
        Some(node) => Err(format!("there is no node {node}: `nacre cluster status` shows them")),
    }
}

/// Returns the path of a group, and creates the group if it is missing.
fn path_of(
    server: &Server,
    group: &str,
    post: impl Fn(&str, &[(&str, &str)]) -> Result<Value, Failure>,
) -> Result<String, Failure> {
    const GROUPS: &str = "/pools/default/serverGroups";
    let find = || -> Result<Option<String>, Failure> {
        let known = server.call("GET", GROUPS, b"")?;
        let mut known = known["groups"].as_array().into_iter().flatten();
        let found = known.find(|known| known["name"] == group);
        Ok(found.and_then(|found| found["uri"].as_str()).map(str::to_owned))
    };
    if let Some(found) = find()? {
        return Ok(found);
    }
    post(GROUPS, &[("name", group)])?;
    find()?.ok_or_else(|| format!("the new group {group} was removed again").into())
}

/// Returns the name of a node in the lists of a cluster, which omit the default port.
fn otp_node(node: &str) -> String {
    let address = node.strip_prefix("ns_1@").unwrap_or(node);
    format!("ns_1@{}", address.strip_suffix(":8091").unwrap_or(address))
}

/// Waits until the rebalance has ended.
fn wait_for_rebalance(server: &Server) -> Result<(), Failure> {
    loop {
        let progress = server.call("GET", "/pools/default/rebalanceProgress", b"")?;
        if progress["status"] == "none" {
            see_off(server)?;
            status(server)?;
            let failure = progress["errorMessage"].as_str().map(str::to_owned);
            return failure.map_or(Ok(()), |reason| Err(reason.into()));
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

/// Waits until the nodes that a rebalance has removed have left. Does not wait for nodes that do not answer.
fn see_off(server: &Server) -> Result<(), Failure> {
    let begun = std::time::Instant::now();
    while begun.elapsed() < FAREWELL {
        let pool = server.call("GET", "/pools/default", b"")?;
        let mut nodes = pool["nodes"].as_array().into_iter().flatten();
        if !nodes.any(|node| node["leaving"] == true && node["status"] == "healthy") {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_node_is_named() {
        let known = ["ns_1@a:1", "ns_1@a:2"];
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            check_known(&known, names.iter())
        };
        assert_eq!(named(&["a:1", "ns_1@a:2"]), Ok(()));
        let of_the_default_port = ["ns_1@a"];
        assert_eq!(check_known(&of_the_default_port, [&"a:8091".to_owned()].into_iter()), Ok(()));
        assert!(named(&["a:1", "a:3"]).unwrap_err().contains("no node a:3"));
    }
}
