//! The node and user of a command: options that `sh`, `import`, `plugin`, `cluster` and `bench` share.
//!
//! A command gets the address of any node. It asks the management port there for the port that it needs, as SDKs do.

use crate::address::{NodeAddress, Scheme};
use crate::contexts::{self, Context, Contexts};
use crate::failure::{Failure, Kind};
use crate::trust::Trust;
use clap::Args;
use nacre_client::{BASIC_FEATURES, Connection, Rest, RestError, RestReply};
use serde_json::Value;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::OnceLock;

/// The path at which a node lists the ports of all nodes.
const PORTS_PATH: &str = "/pools/default/nodeServices";
/// The status of a path that the node does not have.
const NOT_FOUND: u16 = 404;
const NOT_MANAGEMENT: &str = "name the port of management, which is 8091 or the --port-base";
/// The default user.
const USER_DEFAULT: &str = "Administrator";
/// The default node.
const NODE_DEFAULT: &str = "http://127.0.0.1:8091";
/// The older name of `NACRE_URL`.
const OLDER_VARIABLE: &str = "NACRE_SERVER";

/// A node to talk to, and the user. The node is the one of `-c`, else the one that `nacre dev` runs in this folder, else that of the
/// current context, else the one on this machine.
#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Any node: host[:port], http(s)://host[:port] or couchbase(s)://host[:port]; or @NAME for a context (default: `nacre dev` of this
    /// folder, else the current context, else 127.0.0.1:8091)
    #[arg(
        short = 'c',
        long,
        alias = "server",
        env = "NACRE_URL",
        global = true,
        value_name = "NODE",
        help_heading = "Connection"
    )]
    connect: Option<Target>,
    /// User (default: that of the context, else Administrator)
    #[arg(short, long, env = "NACRE_USER", global = true, help_heading = "Connection")]
    user: Option<String>,
    /// Password (default: that of the context, else a terminal is asked for it)
    #[arg(
        short,
        long,
        env = "NACRE_PASSWORD",
        hide_env_values = true,
        global = true,
        help_heading = "Connection"
    )]
    password: Option<String>,
    /// Token of the HTTP API, in place of user and password; not for commands that read and write keys by themselves
    #[arg(
        long,
        env = "NACRE_TOKEN",
        hide_env_values = true,
        global = true,
        help_heading = "Connection"
    )]
    token: Option<String>,
    #[command(flatten)]
    trust: Trust,
    /// The node and login that result from the options.
    #[arg(skip)]
    resolved: OnceLock<Login>,
    /// The password typed at the prompt.
    #[arg(skip)]
    typed: OnceLock<String>,
}

/// The value of `-c`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Address(NodeAddress),
    Context(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text.strip_prefix('@') {
            Some(name) => Ok(Target::Context(name.to_owned())),
            None => text.parse().map(Target::Address),
        }
    }
}

/// A node and a login.
#[derive(Clone, Debug)]
struct Login {
    node: NodeAddress,
    user: String,
    password: Option<String>,
    trust: Trust,
}

/// The address of the key-value service of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// `host:port`.
    pub address: String,
    /// True if connections are encrypted.
    pub is_encrypted: bool,
}

/// The reason why the management port has not answered.
enum Silence {
    /// The port does not speak HTTP.
    NotHttp(String),
    Other(Failure),
}

impl From<Failure> for Silence {
    fn from(failure: Failure) -> Silence {
        Silence::Other(failure)
    }
}

impl From<Silence> for Failure {
    fn from(silence: Silence) -> Failure {
        match silence {
            Silence::NotHttp(reason) => Failure::new(Kind::Unreachable, reason),
            Silence::Other(failure) => failure,
        }
    }
}

impl Server {
    /// Returns the options for a node with its address and login.
    ///
    /// # Errors
    /// The reason, if `server` is not an address.
    pub fn new(server: &str, user: &str, password: &str) -> Result<Server, String> {
        Ok(Server {
            connect: Some(server.parse()?),
            user: Some(user.to_owned()),
            password: Some(password.to_owned()),
            token: None,
            trust: Trust::default(),
            resolved: OnceLock::new(),
            typed: OnceLock::new(),
        })
    }

    /// Returns the node and login that result from options, variables, the folder and contexts.
    fn resolved(&self) -> Result<&Login, Failure> {
        if let Some(login) = self.resolved.get() {
            return Ok(login);
        }
        let older = || std::env::var(OLDER_VARIABLE).ok().filter(|text| !text.is_empty());
        let target = match &self.connect {
            Some(target) => Some(target.clone()),
            None => older().map(|text| text.parse()).transpose()?,
        };
        let login = match target {
            Some(Target::Address(node)) => self.login_by(&Context::default(), node)?,
            Some(Target::Context(name)) => {
                let contexts = Contexts::load(&Contexts::path()?)?;
                let context = contexts.find(&name)?;
                self.login_by(context, context.url.parse()?)?
            }
            None => {
                let context = default_context()?;
                self.login_by(&context, context.url.parse()?)?
            }
        };
        Ok(self.resolved.get_or_init(|| login))
    }

    /// Completes the options with a context. The context's password is used only for the context's user.
    fn login_by(&self, context: &Context, node: NodeAddress) -> Result<Login, Failure> {
        let known = context.user.as_deref().unwrap_or(USER_DEFAULT);
        let user = self.user.as_deref().unwrap_or(known);
        let password = match &self.password {
            None if user == known => context.password()?,
            given => given.clone(),
        };
        let trust = self.trust.clone().or(context.cacert.clone());
        Ok(Login { node, user: user.to_owned(), password, trust })
    }

    /// Returns the address of the management port, for messages.
    ///
    /// # Errors
    /// The reason, if the context is unknown or its file cannot be read.
    pub fn address(&self) -> Result<&NodeAddress, Failure> {
        Ok(&self.resolved()?.node)
    }

    /// Returns the option that names trusted authorities.
    ///
    /// # Errors
    /// As [`Server::address`].
    pub fn trust(&self) -> Result<&Trust, Failure> {
        Ok(&self.resolved()?.trust)
    }

    /// Returns user and password. Prompts for a missing password if there is a terminal.
    ///
    /// # Errors
    /// A message, if there is no password.
    pub fn login(&self) -> Result<(&str, &str), Failure> {
        let Login { user, password, .. } = self.resolved()?;
        if let Some(password) = password.as_ref().or_else(|| self.typed.get()) {
            return Ok((user, password));
        }
        if self.has_token() {
            let reason = "a token is for HTTP only: this command needs --password too";
            return Err(Failure::new(Kind::Denied, reason));
        }
        let missing = "the password is missing: give --password, or set NACRE_PASSWORD";
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::new(Kind::Denied, missing));
        }
        let typed = rpassword::prompt_password(format!("Password of {user}: "));
        let typed =
            typed.map_err(|error| format!("{missing} (it cannot be asked for: {error})"))?;
        Ok((user, self.typed.get_or_init(|| typed)))
    }

    /// Returns the URL of the query service, on this node or another one of its cluster.
    ///
    /// # Errors
    /// The reason, if the address cannot be determined.
    pub fn queries(&self) -> Result<String, Failure> {
        self.url_of(["n1ql", "n1qlSSL"], "queries")
    }

    /// Returns the URL of the eventing service, on this node or another one of its cluster.
    ///
    /// # Errors
    /// The reason, if the address cannot be determined.
    pub fn functions(&self) -> Result<String, Failure> {
        self.url_of(["eventingAdminPort", "eventingSSL"], "functions")
    }

    /// Returns the URL of the search service, on this node or another one of its cluster.
    ///
    /// # Errors
    /// The reason, if the address cannot be determined.
    pub fn searches(&self) -> Result<String, Failure> {
        self.url_of(["fts", "ftsSSL"], "searches")
    }

    /// Returns the URL of the backup service, on this node or another one of its cluster.
    ///
    /// # Errors
    /// The reason, if the address cannot be determined.
    pub fn backups(&self) -> Result<String, Failure> {
        self.url_of(["backupAPI", "backupAPIHTTPS"], "requests about backups")
    }

    /// Returns the URL of the view service, on this node or another one of its cluster.
    ///
    /// # Errors
    /// The reason, if the address cannot be determined.
    pub fn views(&self) -> Result<String, Failure> {
        self.url_of(["capi", "capiSSL"], "queries of views")
    }

    fn url_of(&self, [plain, encrypted]: [&str; 2], what: &str) -> Result<String, Failure> {
        let node = self.address()?;
        let is_encrypted = node.is_encrypted();
        let (scheme, port) = if is_encrypted { ("https", encrypted) } else { ("http", plain) };
        let address = port_of(&self.ports()?, node, port);
        let unserved = || format!("no node of the cluster of {node} answers {what}");
        let address = address.ok_or_else(|| Failure::new(Kind::Unreachable, unserved()))?;
        Ok(format!("{scheme}://{address}"))
    }

    /// Returns the address of the key-value service. An address of that service itself is returned unchanged.
    ///
    /// # Errors
    /// The reason, if the address cannot be determined.
    pub fn keys(&self) -> Result<Keys, Failure> {
        let node = self.address()?;
        let is_encrypted = node.is_encrypted();
        let given = Keys { address: node.authority(), is_encrypted };
        if node.names_keys() {
            return Ok(given);
        }
        let ports = match self.ports() {
            Err(Silence::NotHttp(_)) if node.scheme == Scheme::None => return Ok(given),
            ports => ports?,
        };
        let port = if is_encrypted { "kvSSL" } else { "kv" };
        let address = port_of(&ports, node, port);
        let unserved = || format!("no node of the cluster of {node} keeps documents");
        let address = address.ok_or_else(|| Failure::new(Kind::Unreachable, unserved()))?;
        Ok(Keys { address, is_encrypted })
    }

    /// Opens a bucket on all nodes that have it.
    ///
    /// # Errors
    /// The reason, if it cannot be opened.
    pub fn bucket(&self, bucket: &str) -> Result<nacre_client::Bucket, Failure> {
        let keys = self.keys()?;
        let tls = keys.is_encrypted.then(|| self.trust()?.client_config().map_err(Failure::from));
        let (user, password) = self.login()?;
        let login = nacre_client::Login {
            user: user.to_owned(),
            password: password.to_owned(),
            bucket: bucket.to_owned(),
        };
        Ok(nacre_client::Bucket::connect(&[keys.address], tls.transpose()?, login)?)
    }

    /// Connects to the key-value service and logs in.
    ///
    /// # Errors
    /// The reason, if that fails.
    pub fn open_keys(&self) -> Result<(), Failure> {
        let keys = self.keys()?;
        let tls = keys.is_encrypted.then(|| self.trust()?.client_config().map_err(Failure::from));
        let (user, password) = self.login()?;
        let tls = tls.transpose()?;
        let login = [user, password];
        Connection::connect_without_bucket(&keys.address, tls.as_ref(), login, BASIC_FEATURES)?;
        Ok(())
    }

    /// Returns the same options; their node and login are determined again.
    pub fn again(&self) -> Server {
        Server { resolved: OnceLock::new(), ..self.clone() }
    }

    /// Returns true if a password is known without a prompt.
    pub fn has_password(&self) -> bool {
        self.resolved().is_ok_and(|login| login.password.is_some() || self.typed.get().is_some())
    }

    /// Returns node and user as a context, and the password if it is to be saved.
    ///
    /// # Errors
    /// The reason, if the options name an unknown context or the password to save is missing.
    pub fn as_context(&self, with_password: bool) -> Result<Context, Failure> {
        let password = with_password.then(|| self.login().map(|(_, password)| password.to_owned()));
        let Login { node, user, trust, .. } = self.resolved()?;
        Ok(Context {
            url: node.to_string(),
            user: Some(user.clone()),
            password: password.transpose()?,
            password_file: None,
            cacert: trust.path().map(std::path::absolute).transpose().map_err(|e| e.to_string())?,
        })
    }

    fn ports(&self) -> Result<Value, Silence> {
        let node = self.address()?;
        let (status, ports) = self.exchange(&node.to_string(), "GET", PORTS_PATH, b"")?;
        match is_success(status) && ports["nodesExt"].is_array() {
            true => Ok(ports),
            false if status == NOT_FOUND => {
                let reason = format!("{node} does not list services: {NOT_MANAGEMENT}");
                Err(Silence::Other(reason.into()))
            }
            false => Err(Silence::Other(self.refusal(status, &ports)?)),
        }
    }

    /// Sends a request to the management port; returns the answer, as JSON if it is JSON.
    ///
    /// # Errors
    /// The reason as a message, if there is no answer or the node refuses.
    pub fn call(&self, method: &str, path: &str, body: &[u8]) -> Result<Value, Failure> {
        self.call_at(&self.address()?.to_string(), method, path, body)
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
    ) -> Result<Value, Failure> {
        let (status, value) = self.exchange(base, method, path, body)?;
        if is_success(status) { Ok(value) } else { Err(self.refusal(status, &value)?) }
    }

    /// Requests a public path of the management port, without a login.
    ///
    /// # Errors
    /// The reason, if there is no answer.
    pub fn probe(&self, path: &str) -> Result<(u16, Value), Failure> {
        let Login { node, trust, .. } = self.resolved()?;
        let rest = Rest::new(&[node.to_string()], "", "", &trust.roots()?);
        let RestReply { status, text, .. } = rest.call("GET", path, b"")?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Sends a request to another service, whose URL is `base`. Returns the status, and the answer as JSON if it is JSON.
    ///
    /// # Errors
    /// The reason, if there is no answer.
    pub fn answer_at(
        &self,
        base: &str,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(u16, Value), Failure> {
        Ok(self.exchange(base, method, path, body)?)
    }

    /// Returns true if `path` exists. An answer that does not say so is an error, not a missing path.
    ///
    /// # Errors
    /// As [`Server::call`], except for 404.
    pub fn knows(&self, path: &str) -> Result<bool, Failure> {
        let (status, value) = self.exchange(&self.address()?.to_string(), "GET", path, b"")?;
        self.is_there(status, &value)
    }

    fn is_there(&self, status: u16, value: &Value) -> Result<bool, Failure> {
        match status {
            NOT_FOUND => Ok(false),
            status if is_success(status) => Ok(true),
            status => Err(self.refusal(status, value)?),
        }
    }

    /// Sends a request; returns the answer with any status.
    fn exchange(
        &self,
        server: &str,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(u16, Value), Silence> {
        if self.address()?.names_keys() {
            let hint = "name its management, as http://host:8091";
            return Err(Silence::Other(format!("{server} is an address for keys: {hint}").into()));
        }
        let RestReply { status, text, .. } =
            self.rest(server)?.call(method, path, body).map_err(|error| match error {
                RestError::NotHttp { .. } => Silence::NotHttp(format!("{error}: {NOT_MANAGEMENT}")),
                other => Silence::Other(other.into()),
            })?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((status, value))
    }

    /// Returns a client of the service at `base`, with the token if there is one, else with user and password.
    ///
    /// # Errors
    /// The reason, if there is neither, or the trusted authorities cannot be read.
    pub fn rest(&self, base: &str) -> Result<Rest, Failure> {
        let (roots, hosts) = (self.trust()?.roots()?, [base.to_owned()]);
        match &self.token {
            Some(token) if !token.is_empty() => Ok(Rest::with_token(&hosts, token, &roots)),
            _ => {
                let (user, password) = self.login()?;
                Ok(Rest::new(&hosts, user, password, &roots))
            }
        }
    }

    fn has_token(&self) -> bool {
        self.token.as_ref().is_some_and(|token| !token.is_empty())
    }

    /// Returns the failure for a refused answer.
    ///
    /// # Errors
    /// The reason, if the node is unknown.
    pub fn failure(&self, status: u16, value: &Value) -> Result<Failure, Failure> {
        self.refusal(status, value)
    }

    /// Describes why a request was refused, and names the node if the answer has no reason.
    fn refusal(&self, status: u16, value: &Value) -> Result<Failure, Failure> {
        let Login { node, user, .. } = self.resolved()?;
        let denied = |reason: String| Ok(Failure::new(Kind::Denied, reason));
        if status == 401 && self.has_token() {
            let next = "create another with nacre token create";
            return denied(format!(
                "{node} refuses the token (unknown, revoked or expired): {next}"
            ));
        }
        if status == 401 {
            let next = "check -u and -p, or the context that names them";
            return denied(format!("{node} refuses the login of {user}: {next}"));
        }
        if let Value::Array(rights) = &value["permissions"] {
            let rights: Vec<&str> = rights.iter().filter_map(Value::as_str).collect();
            let rights = rights.join(" or ");
            let who = if self.has_token() { "the token" } else { user.as_str() };
            return denied(format!("{who} may not do that at {node}: it needs {rights}"));
        }
        let kind = if status == 403 { Kind::Denied } else { Kind::Failed };
        let reason = reason(value).unwrap_or_else(|| format!("{node} answers {status}: {value}"));
        Ok(Failure::new(kind, reason))
    }
}

/// Returns the default context.
fn default_context() -> Result<Context, Failure> {
    if let Some(context) = contexts::dev_context()? {
        return Ok(context);
    }
    let fallback = Context { url: NODE_DEFAULT.to_owned(), ..Context::default() };
    // Without a home folder there are no contexts.
    let Ok(path) = Contexts::path() else { return Ok(fallback) };
    let contexts = Contexts::load(&path)?;
    match &contexts.current {
        Some(name) => Ok(contexts.find(name)?.clone()),
        None => Ok(fallback),
    }
}

/// Returns `host:port` of a service, on the asked node if it runs the service, else on another one.
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
        // The name by which the user reached the node is as good as its own.
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

/// Returns the reason of a refusal in the node's words.
fn reason(value: &Value) -> Option<String> {
    let texts: Vec<&str> = match (&value["errors"], value) {
        (Value::Object(errors), _) => errors.values().filter_map(Value::as_str).collect(),
        // A problem of RFC 9457.
        (_, Value::Object(problem)) if problem.contains_key("detail") => {
            problem["detail"].as_str().into_iter().collect()
        }
        (_, Value::Array(errors)) => errors.iter().filter_map(Value::as_str).collect(),
        (_, Value::String(error)) => vec![error.trim()],
        // References to other clusters and settings of replications: messages by field.
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

    #[test]
    fn the_password_of_a_context_is_for_its_user_alone() {
        let context = Context {
            url: "https://db1".into(),
            user: Some("ann".into()),
            password: Some("secret".into()),
            ..Context::default()
        };
        let options = |user: Option<&str>, password: Option<&str>| Server {
            user: user.map(str::to_owned),
            password: password.map(str::to_owned),
            ..Server::new("a", "", "").unwrap()
        };
        let login = |user, password| {
            let login = options(user, password).login_by(&context, "b".parse().unwrap()).unwrap();
            (login.user, login.password)
        };
        assert_eq!(login(None, None), ("ann".into(), Some("secret".into())));
        assert_eq!(login(Some("bob"), None), ("bob".into(), None));
        assert_eq!(login(None, Some("other")), ("ann".into(), Some("other".into())));
    }

    #[test]
    fn the_address_of_a_service_comes_from_the_cluster_map() {
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
    fn only_a_not_found_response_means_unknown() {
        let server = Server::new("http://n", "u", "p").unwrap();
        let said = |status| server.is_there(status, &json!({"errors": {"_": "why"}}));
        assert_eq!(said(200), Ok(true));
        assert_eq!(said(404), Ok(false));
        for status in [403, 503] {
            assert_eq!(said(status).unwrap_err().reason, "why", "{status}");
        }
    }
}
