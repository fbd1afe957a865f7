//! A network for nodes on this machine: each node in a namespace with its own address, all on one bridge.
//!
//! ```text
//!  clients, in the namespace of all ── bridge 198.18.77.254 ─┬─ nacre-1: 198.18.77.1
//!                                                            ├─ nacre-2: 198.18.77.2
//!                                                            └─ nacre-3: 198.18.77.3
//! ```
//!
//! To cut a node off from another one, it gets a hardware address for it that does not exist. Its packets are then lost
//! without an error, in this direction only. This requires only `ip`.

use crate::command::run;
use std::process::{Command, Stdio};

/// Unused addresses: they are reserved for network measurements (RFC 2544).
pub const HOSTS: [&str; 5] =
    ["198.18.77.1", "198.18.77.2", "198.18.77.3", "198.18.77.4", "198.18.77.5"];
const CLIENTS: &str = "198.18.77.254/24";
const BRIDGE: &str = "nacre-chaos";
/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:01";
/// The names of the namespaces.
const NAMES: [&str; 5] = ["nacre-1", "nacre-2", "nacre-3", "nacre-4", "nacre-5"];

/// The network, which is removed when this value is dropped.
pub struct Network {
    count: usize,
}

impl Network {
    /// Creates a network for `count` nodes, and replaces one that an earlier chore left behind.
    ///
    /// # Errors
    /// Fails when the user lacks the right, or `ip` is missing.
    pub fn start(count: usize) -> Result<Network, String> {
        let network = Network { count };
        network.remove();
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["addr", "add", CLIENTS, "dev", BRIDGE])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        for (name, host) in NAMES.iter().zip(HOSTS).take(count) {
            ip(&["netns", "add", name])?;
            let inside = ["peer", "name", "eth0", "netns", name];
            ip(&[&["link", "add", name, "type", "veth"], &inside[..]].concat())?;
            ip(&["link", "set", name, "master", BRIDGE, "up"])?;
            ip(&["-n", name, "addr", "add", &format!("{host}/24"), "dev", "eth0"])?;
            ip(&["-n", name, "link", "set", "eth0", "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    /// Returns the command that runs a program on a node.
    pub fn wrapper(&self, node: usize) -> [&'static str; 4] {
        ["ip", "netns", "exec", NAMES[node]]
    }

    /// Drops all packets from `from` to `to` from now on.
    ///
    /// # Errors
    /// Fails when `ip` fails.
    pub fn cut(&self, from: usize, to: usize) -> Result<(), String> {
        let lost = ["lladdr", NOBODY, "dev", "eth0", "nud", "permanent"];
        ip(&[&["-n", NAMES[from], "neigh", "replace", HOSTS[to]], &lost[..]].concat())
    }

    /// Stops dropping packets.
    ///
    /// # Errors
    /// Fails when `ip` fails.
    pub fn heal(&self) -> Result<(), String> {
        for name in &NAMES[..self.count] {
            ip(&["-n", name, "neigh", "flush", "dev", "eth0", "nud", "permanent"])?;
        }
        Ok(())
    }

    fn remove(&self) {
        let quietly = |arguments: &[&str]| {
            let _ = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
        };
        for name in NAMES {
            quietly(&["link", "del", name]);
            quietly(&["netns", "del", name]);
        }
        quietly(&["link", "del", BRIDGE]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let purpose = "make a network (`ip` of iproute2 is needed, and the right to make namespaces)";
    run(Command::new("ip").args(arguments), purpose)
}
