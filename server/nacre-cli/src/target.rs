//! The node that a command talks to, and the user: options that `sh`, `import`, `plugin`, `cluster` and `bench` share.
//!
//! A command gets the address of any node. It asks the management there for the port that it needs, as SDKs do.

use crate::trust::Trust;
use clap::Args;
use nacre_client::{Rest, RestError, RestReply};
use serde_json::Value;
use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::OnceLock;

/// Path at which a node lists the ports of all nodes.
const PORTS_PATH: &str = "/pools/default/nodeServices";
/// Status of a path that the node does not know.
const NOT_FOUND: u16 = 404;
const NOT_MANAGEMENT: &str = "name the port of management, which is 8091 or the --port-base";

/// A node to talk to.
#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Any node: host[:port] or URL of its management (8091, with TLS https://…:18091)
    #[arg(
        long,
        env = "NACRE_SERVER",
        default_value = "http://127.0.0.1:8091",
        global = true,
        value_name = "NODE"
    )]
    server: NodeAddress,
    /// User
    #[arg(long, env = "NACRE_USER", default_value = "Administrator", global = true)]
    user: String,
    /// Password; a terminal is asked for it when it is missing
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true, global = true)]
    password: Option<String>,
    /// Password that was typed at the prompt.
    #[arg(skip)]
    typed: OnceLock<String>,
    #[command(flatten)]
    trust: Trust,
}

/// An address as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    scheme: Scheme,
    /// Name or address; IPv6 in brackets.
    host: String,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// A host and perhaps a port: of management, or of keys where that is what answers.
    None,
    Http,
    Https,
    /// The port is that of the key-value service.
    Couchbase,
    /// The key-value service with TLS.
    Couchbases,
}

impl Scheme {
    const NAMED: [(&'static str, Scheme); 4] = [
        ("http://", Scheme::Http),
        ("https://", Scheme::Https),
        ("couchbase://", Scheme::Couchbase),
        ("couchbases://", Scheme::Couchbases),
    ];

    fn port(self) -> u16 {
        match self {
            Scheme::None | Scheme::Http => 8091,
            Scheme::Https => 18091,
            Scheme::Couchbase => 11210,
            Scheme::Couchbases => 11207,
        }
    }
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeAddress, String> {
        let named = Scheme::NAMED.iter().find_map(|(prefix, scheme)| {
            let rest = text.strip_prefix(prefix)?;
            Some((*scheme, rest))
        });
        let (scheme, rest) = match named {
            Some(named) => named,
            None if text.contains("://") => {
                return Err("a node is named as host[:port], http://… or https://…".to_owned());
            }
            None => (Scheme::None, text),
        };
        let rest = rest.trim_end_matches('/');
        let host_bytes = if rest.starts_with('[') { rest.find(']').map(|at| at + 1) } else { None };
        let host_bytes = host_bytes.unwrap_or_else(|| rest.find(':').unwrap_or(rest.len()));
        let (host, port) = rest.split_at(host_bytes);
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port"))?,
            None if port.is_empty() => scheme.port(),
            None => return Err(format!("{rest:?} is not host[:port]")),
        };
        let is_host = |c: char| c.is_alphanumeric() || ".-_:[]%".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(format!("{rest:?} is not host[:port]"));
        }
        Ok(NodeAddress { scheme, host: host.to_owned(), port })
    }
}

impl NodeAddress {
    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn is_encrypted(&self) -> bool {
        matches!(self.scheme, Scheme::Https | Scheme::Couchbases)
    }

    fn names_keys(&self) -> bool {
        matches!(self.scheme, Scheme::Couchbase | Scheme::Couchbases)
    }
}

/// The URL of the management, as it is written in messages.
impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::None | Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Couchbase => "couchbase",
            Scheme::Couchbases => "couchbases",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// Address of the key-value service of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// `host:port`.
    pub address: String,
    /// True if connections are encrypted.
    pub is_encrypted: bool,
}

/// Reason why the management has not answered.
enum Silence {
    /// The port does not speak HTTP.
    NotHttp(String),
    Other(String),
}

impl From<Silence> for String {
    fn from(silence: Silence) -> String {
        match silence {
            Silence::NotHttp(reason) | Silence::Other(reason) => reason,
        }
    }
}

impl Server {
    /// A node by its address and login.
    ///
    /// # Errors
    /// When `server` is not an address.
    pub fn new(server: &str, user: &str, password: &str) -> Result<Server, String> {
        Ok(Server {
            server: server.parse()?,
            user: user.to_owned(),
            password: Some(password.to_owned()),
            typed: OnceLock::new(),
            trust: Trust::default(),
        })
    }

    /// Address of the management, for messages.
    pub fn address(&self) -> &NodeAddress {
        &self.server
    }

    /// Returns the option that names trusted authorities.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Name of the user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// User and password. A password that was not given is asked for when there is a terminal.
    ///
    /// # Errors
    /// A sentence if there is no password.
    pub fn login(&self) -> Result<(&str, &str), String> {
        if let Some(password) = self.password.as_ref().or_else(|| self.typed.get()) {
            return Ok((&self.user, password));
        }
        let missing = "the password is missing: give --password, or set NACRE_PASSWORD";
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(missing.to_owned());
        }
        let typed = rpassword::prompt_password(format!("Password of {}: ", self.user))
            .map_err(|error| format!("{missing} (it cannot be asked for: {error})"))?;
        Ok((&self.user, self.typed.get_or_init(|| typed)))
    }

    /// URL of the query service, of this node or of another one of its cluster.
    ///
    /// # Errors
    /// Why it cannot be found out.
    pub fn queries(&self) -> Result<String, String> {
        self.url_of(["n1ql", "n1qlSSL"], "queries")
    }

    /// URL of the view service, of this node or of another one of its cluster.
    ///
    /// # Errors
    /// Why it cannot be found out.
    pub fn views(&self) -> Result<String, String> {
        self.url_of(["capi", "capiSSL"], "queries of views")
    }

    /// URL of the service of functions, of this node or of another one of its cluster.
    ///
    /// # Errors
    /// Why it cannot be found out.
    pub fn functions(&self) -> Result<String, String> {
        self.url_of(["eventingAdminPort", "eventingSSL"], "requests about functions")
    }

    fn url_of(&self, [plain, encrypted]: [&str; 2], what: &str) -> Result<String, String> {
        let is_encrypted = self.server.is_encrypted();
        let (scheme, port) = if is_encrypted { ("https", encrypted) } else { ("http", plain) };
        let address = port_of(&self.ports()?, &self.server, port);
        let address = address
            .ok_or_else(|| format!("no node of the cluster of {} answers {what}", self.server))?;
        Ok(format!("{scheme}://{address}"))
    }

    /// Where the key-value service is. The address of that service itself is taken as it is.
    ///
    /// # Errors
    /// Why it cannot be found out.
    pub fn keys(&self) -> Result<Keys, String> {
        let is_encrypted = self.server.is_encrypted();
        let given = Keys { address: self.server.authority(), is_encrypted };
        if self.server.names_keys() {
            return Ok(given);
        }
        let ports = match self.ports() {
            Err(Silence::NotHttp(_)) if self.server.scheme == Scheme::None => return Ok(given),
            ports => ports?,
        };
        let port = if is_encrypted { "kvSSL" } else { "kv" };
        let address = port_of(&ports, &self.server, port);
        let address = address
            .ok_or_else(|| format!("no node of the cluster of {} keeps documents", self.server))?;
        Ok(Keys { address, is_encrypted })
    }

    fn ports(&self) -> Result<Value, Silence> {
        let (status, ports) = self.exchange(&self.server.to_string(), "GET", PORTS_PATH, b"")?;
        match is_success(status) && ports["nodesExt"].is_array() {
            true => Ok(ports),
            false if status == NOT_FOUND => {
                let server = &self.server;
                Err(Silence::Other(format!("{server} does not list services: {NOT_MANAGEMENT}")))
            }
            false => Err(Silence::Other(self.refusal(status, &ports))),
        }
    }

    /// Sends a request to the management; gives what is answered, as JSON where it is.
    ///
    /// # Errors
    /// Why there is no answer, or what the node says against it, in a sentence.
    pub fn call(&self, method: &str, path: &str, body: &[u8]) -> Result<Value, String> {
        self.call_at(&self.server.to_string(), method, path, body)
    }

    /// Sends a request to another service, whose URL is `base`.
    ///
    /// # Errors
    /// As [`Server::call`].
    pub fn call_at(
        &self,
        base: &str,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Value, String> {
        let (status, value) = self.exchange(base, method, path, body)?;
        if is_success(status) { Ok(value) } else { Err(self.refusal(status, &value)) }
    }

    /// Returns true if `path` exists. A node that cannot tell is an error, and not a path that does not exist.
    ///
    /// # Errors
    /// As [`Server::call`], but for 404.
    pub fn knows(&self, path: &str) -> Result<bool, String> {
        let (status, value) = self.exchange(&self.server.to_string(), "GET", path, b"")?;
        self.is_there(status, &value)
    }

    fn is_there(&self, status: u16, value: &Value) -> Result<bool, String> {
        match status {
            NOT_FOUND => Ok(false),
            status if is_success(status) => Ok(true),
            status => Err(self.refusal(status, value)),
        }
    }

    /// Sends a request; returns the answer, whatever its status.
    fn exchange(
        &self,
        server: &str,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(u16, Value), Silence> {
        if self.server.names_keys() {
            let hint = "name its management, as http://host:8091";
            return Err(Silence::Other(format!("{server} is an address for keys: {hint}")));
        }
        let roots = self.trust.roots().map_err(Silence::Other)?;
        let (user, password) = self.login().map_err(Silence::Other)?;
        let rest = Rest::new(&[server.to_owned()], user, password, &roots);
        let RestReply { status, text } =
            rest.call(method, path, body).map_err(|error| match error {
                RestError::NotHttp { .. } => Silence::NotHttp(format!("{error}: {NOT_MANAGEMENT}")),
                other => Silence::Other(other.to_string()),
            })?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((status, value))
    }

    /// Describes why a request was refused, with the node where it gives no reason.
    fn refusal(&self, status: u16, value: &Value) -> String {
        if status == 401 && value["error"] == "unauthorized" {
            return format!("{} refuses the login of {}", self.server, self.user);
        }
        if let Value::Array(rights) = &value["permissions"] {
            let rights: Vec<&str> = rights.iter().filter_map(Value::as_str).collect();
            let rights = rights.join(" or ");
            return format!("{} may not do that at {}: it needs {rights}", self.user, self.server);
        }
        reason(value).unwrap_or_else(|| format!("{} answers {status}: {value}", self.server))
    }
}

/// `host:port` of a service, of the node that was asked where it runs it, else of another one.
fn port_of(ports: &Value, asked: &NodeAddress, service: &str) -> Option<String> {
    let nodes = ports["nodesExt"].as_array()?;
    let own = |node: &&Value| node["thisNode"] == true;
    let mut ordered: Vec<&Value> = nodes.iter().filter(own).collect();
    ordered.extend(nodes.iter().filter(|node| !own(node)));
    let asked_port = u64::from(asked.port);
    ordered.into_iter().find_map(|node| {
        let names_asked = |ports: &Value| {
            ["mgmt", "mgmtSSL"].iter().any(|name| ports[*name].as_u64() == Some(asked_port))
        };
        let alternate = &node["alternateAddresses"]["external"];
        let is_outside = !names_asked(&node["services"]) && names_asked(&alternate["ports"]);
        let (entry, services) = match is_outside {
            true => (alternate, &alternate["ports"]),
            false => (node, &node["services"]),
        };
        let port = services[service].as_u64()?;
        // The name by which the user has reached the node is as good as its own.
        let host = match entry["hostname"].as_str() {
            Some(host) if node["thisNode"] != true && host.contains(':') => format!("[{host}]"),
            Some(host) if node["thisNode"] != true => host.to_owned(),
            _ => asked.host.clone(),
        };
        Some(format!("{host}:{port}"))
    })
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Returns the reason of a refusal in the words of the node.
fn reason(value: &Value) -> Option<String> {
    let texts: Vec<&str> = match (&value["errors"], value) {
        (Value::Object(errors), _) => errors.values().filter_map(Value::as_str).collect(),
        (_, Value::Array(errors)) => errors.iter().filter_map(Value::as_str).collect(),
        (_, Value::String(error)) => vec![error.trim()],
        // References to other clusters and settings of replications: texts by field.
        (Value::Null, Value::Object(fields)) if fields.values().all(Value::is_string) => {
            fields.values().filter_map(Value::as_str).collect()
        }
        _ => return None,
    };
    (!texts.concat().is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(text: &str) -> Result<String, String> {
        text.parse::<NodeAddress>().map(|address| address.to_string())
    }

    #[test]
    fn a_node_is_named_by_host_port_or_url() {
        for (text, expected) in [
            ("a", "http://a:8091"),
            ("a:9000", "http://a:9000"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("[::1]", "http://[::1]:8091"),
            ("http://a/", "http://a:8091"),
            ("https://a.b", "https://a.b:18091"),
            ("couchbase://a", "couchbase://a:11210"),
            ("couchbases://a", "couchbases://a:11207"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "http://", "ftp://a", "a:b", "a:70000", "a b", "[::1]x", "http://a/b"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_service_is_where_the_map_of_the_node_has_it() {
        let ports = json!({"nodesExt": [
            {"hostname": "other", "services": {"mgmt": 8091, "n1ql": 8093}},
            {"thisNode": true, "hostname": "inside", "services": {"mgmt": 8091, "kv": 11210},
             "alternateAddresses": {"external": {"hostname": "outside", "ports": {"mgmt": 32000, "kv": 32010}}}},
        ]});
        let of = |address: &str, service: &str| port_of(&ports, &address.parse().unwrap(), service);
        assert_eq!(of("me", "kv").as_deref(), Some("me:11210"));
        assert_eq!(of("me", "n1ql").as_deref(), Some("other:8093"));
        assert_eq!(of("me:32000", "kv").as_deref(), Some("me:32010"));
        assert_eq!(of("me", "eventing"), None);
    }

    #[test]
    fn only_who_is_told_that_something_is_not_there_takes_it_for_unknown() {
        let server = Server::new("http://n", "u", "p").unwrap();
        let said = |status| server.is_there(status, &json!({"errors": {"_": "why"}}));
        assert_eq!(said(200), Ok(true));
        assert_eq!(said(404), Ok(false));
        for status in [403, 503] {
            assert_eq!(said(status), Err("why".into()), "{status}");
        }
    }
}
