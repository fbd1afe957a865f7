//! Requests of scripts that set up a new node: its administrator and its settings. Paths, fields and texts are
//! Couchbase's.
//!
//! A node that was started with `--unclaimed` has no administrator. Until a client claims the node by naming an
//! administrator, only the requests of such scripts are allowed, and only for clients on the same machine or with the
//! token that the node has printed.

use super::Call;
use super::body::{Reply, error_reply, invalid, ok};
use super::nodes::Form;
use super::refusal::in_background;
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use super::{fixed, listeners, nodes, pool, settings, users};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use nacre_auth::{Privilege, Role, User};
use nacre_cluster::{Change, ClusterChange, SettingsChange};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Header with the token by which a client on another machine claims the node.
const TOKEN: &str = "nacre-claim-token";
/// User name for tools that cannot send headers: they log in with this name, and with the token as the password.
const TOKEN_USER: &str = "claim";
/// Value of `--claim-token` that lets clients on other machines claim the node without a token.
const NO_TOKEN: &str = "none";
/// Headers that proxies add. A request with such a header may come from another machine although the proxy runs on this
/// one.
const FORWARDED: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];

/// Whether the node still waits for an administrator, and the token.
#[derive(Debug, Default)]
pub struct Claim {
    is_open: AtomicBool,
    token: Option<String>,
}

impl Claim {
    /// Creates a claim that is not open yet. Clients on other machines must send `token`, unless it is `none`.
    pub fn new(token: &str) -> Claim {
        let token = (token != NO_TOKEN).then(|| token.to_owned());
        Claim { is_open: AtomicBool::new(false), token }
    }

    /// Opens the claim: clients may now claim the node.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// Closes the claim. Returns true if it was open.
    pub fn close(&self) -> bool {
        self.is_open.swap(false, Ordering::AcqRel)
    }

    /// Returns true while the node can be claimed.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Returns instructions for the operator.
    pub fn describe(&self) -> String {
        let how = match &self.token {
            None => "anybody who reaches it may claim it first".to_owned(),
            Some(token) => format!(
                "claim it from this machine, or from elsewhere with the header \"{TOKEN}: {token}\" or as the user {TOKEN_USER} with the password {token}"
            ),
        };
        format!("this node has no administrator: {how}, with POST /settings/web")
    }

    /// Refuses a request to set up the node that comes from another machine and does not name the token.
    ///
    /// Requests that only read need no token: set-up scripts wait for the node with them.
    pub(super) fn check(
        &self,
        head: &Parts,
        from: IpAddr,
        login: Option<&(String, String)>,
    ) -> Result<(), Reply> {
        let Some(token) = &self.token else { return Ok(()) };
        let is_forwarded = FORWARDED.iter().any(|name| head.headers.contains_key(*name));
        let is_here = from.to_canonical().is_loopback() && !is_forwarded;
        let named = head.headers.get(TOKEN).map(HeaderValue::as_bytes);
        let password = login.filter(|(user, _)| user == TOKEN_USER);
        let named = named.or(password.map(|(_, password)| password.as_bytes()));
        if is_here || head.method == Method::GET || named == Some(token.as_bytes()) {
            return Ok(());
        }
        let reason = format!(
            "the node has no administrator yet: to claim it from another machine, send the token that it has printed as the header {TOKEN}, or log in as {TOKEN_USER} with the token as password"
        );
        Err(error_reply(StatusCode::UNAUTHORIZED, "unauthorized", &reason))
    }
}

/// Returns true for requests that set up a node. While the node is unclaimed, they need no login.
pub(super) fn is_part(method: &Method, path: &str) -> bool {
    match path {
        "/pools" | "/pools/default/nodeServices" => method == Method::GET,
        // Another node sends this to take this node into its cluster.
        "/controller/engage" => true,
        "/pools/default"
        | "/settings/web"
        | "/clusterInit"
        | "/nodeInit"
        | "/nodes/self/controller/settings"
        | "/node/controller/rename"
        | "/node/controller/setupServices"
        | "/node/controller/enableExternalListener"
        | "/node/controller/disableExternalListener"
        | "/node/controller/disableUnusedExternalListeners"
        | "/node/controller/setupNetConfig" => method == Method::POST,
        _ => false,
    }
}

pub(super) const ROUTES: &[Route] = &[
    post("/clusterInit", ADMINISTER, |call| Box::pin(all_at_once(call))),
    get("/settings/web", READ, |call| ready(Ok(web_settings(&call)))),
    post("/settings/web", ADMINISTER, |call| Box::pin(async move { claim(&call).await })),
    get("/settings/indexes", READ, |_| ready(Ok(index_settings()))),
    post("/settings/indexes", ADMINISTER, |call| {
        ready(check_index_settings(&call.form()).map(|()| index_settings()))
    }),
    post("/nodes/self/controller/settings", ADMINISTER, |_| {
        let reason = "All data is in the one folder with which the node was started: --data-dir.";
        ready(Err(invalid("path", reason)))
    }),
];

/// Checks that the port that a script names is the one that it has reached.
fn check_port(call: &Call, form: &Form) -> Result<(), Reply> {
    let own = call.node.endpoints().plain.mgmt().to_string();
    match form.optional("port") {
        None | Some("SAME") => Ok(()),
        Some(port) if port == own => Ok(()),
        Some(_) => {
            let reason = format!("The node listens on {own}: --port-base moves all ports.");
            Err(invalid("port", reason))
        }
    }
}

/// `POST /settings/web`: names the administrator of a node that has none, or changes the password of the administrator
/// who asks.
async fn claim(call: &Call) -> Result<Reply, Reply> {
    let form = Form(call.form());
    check_port(call, &form)?;
    let (name, password) = administrator(call, &form)?;
    if !call.claim.close() {
        return change_password(call, &name, &password).await;
    }
    let node = Arc::clone(&call.node);
    let put = in_background(move || {
        node.put_user(User::new(&name, &password, vec![Role::admin()], node.new_salt()))?;
        node.change(&Change::Cluster(ClusterChange::NameAdministrator { name }))
    });
    if let Err(reply) = put.await {
        call.claim.open();
        return Err(reply);
    }
    Ok(new_base(call))
}

fn new_base(call: &Call) -> Reply {
    ok(&json!({"newBaseUri": format!("http://{}/", call.host())}))
}

/// Changes the password of an administrator. The name cannot change.
async fn change_password(call: &Call, name: &str, password: &str) -> Result<Reply, Reply> {
    call.require(Privilege::AdministerUsers, None)?;
    if name != call.user {
        let reason = format!(
            "The administrator {} cannot be renamed here: add {name} as a user with the role admin below /settings/rbac/users, and \
             delete {}.",
            call.user, call.user
        );
        return Err(invalid("username", reason));
    }
    users::set_own_password(call, password).await?;
    Ok(new_base(call))
}

/// Returns the new name and password of the administrator.
fn administrator(call: &Call, form: &Form) -> Result<(String, String), Reply> {
    let wanted = |field: &str| {
        let missing = || invalid(field, "The value must be supplied");
        form.optional(field).map(str::to_owned).ok_or_else(missing)
    };
    let (name, password) = (wanted("username")?, wanted("password")?);
    users::check_name(&name)?;
    users::check_password(call, &password)?;
    Ok((name, password))
}

/// `POST /clusterInit`: sets the name of the node, its services, the name of the cluster, and its administrator.
async fn all_at_once(call: Call) -> Result<Reply, Reply> {
    let form = Form(call.form());
    for (field, value) in &form.0 {
        match field.as_str() {
            "username" | "password" | "port" | "hostname" | "services" | "clusterName" => {}
            "indexerStorageMode" => check_storage_mode(field, value)?,
            "sendStats" => read_permission(field, value).map(drop)?,
            // Tools send this before they know that nodes always encrypt their links.
            "nodeEncryption" if value == "off" => {}
            field if pool::is_quota(field) => {}
            field if listeners::check_field(&call, field, value)? => {}
            field => return Err(invalid(field, "Unsupported key")),
        }
    }
    // The last step is checked first, so that the setup is done completely or not at all.
    check_port(&call, &form)?;
    administrator(&call, &form)?;
    let quotas = pool::read_quotas(&call.node.cluster(), &form.0)?;
    if form.optional("hostname").is_some() {
        nodes::rename(&call).await?;
    }
    if form.optional("services").is_some() {
        nodes::give_services(&call).await?;
    }
    if let Some(quotas) = quotas {
        settings::change(&call, SettingsChange::Quotas(quotas)).await?;
    }
    if let Some(value) = form.optional("sendStats") {
        settings::change(&call, SettingsChange::SendStats(read_permission("sendStats", value)?))
            .await?;
    }
    if let Some(name) = form.given("clusterName") {
        call.change(Change::Cluster(ClusterChange::NameCluster { name: name.to_owned() })).await?;
    }
    claim(&call).await
}

fn read_permission(field: &str, value: &str) -> Result<bool, Reply> {
    match value {
        "true" | "on" => Ok(true),
        "false" | "off" => Ok(false),
        _ => Err(invalid(field, "sendStats must be true or false")),
    }
}

/// `GET /settings/web`.
fn web_settings(call: &Call) -> Reply {
    ok(&json!({"port": call.node.endpoints().plain.mgmt(), "username": call.user}))
}

/// Returns the storage settings of indexes: nacre has one kind of storage, and each index names its own number of
/// replicas.
fn known_index_settings() -> Value {
    json!({
        "storageMode": "memory_optimized",
        "numReplica": 0,
        "indexerThreads": 0,
        "logLevel": "info",
        "maxRollbackPoints": 2,
        "memorySnapshotInterval": 200,
        "stableSnapshotInterval": 5000,
        "redistributeIndexes": false,
        "enablePageBloomFilter": false,
        "enableShardAffinity": false,
    })
}

fn index_settings() -> Reply {
    ok(&known_index_settings())
}

/// Checks the storage mode that a script names. The server accepts all modes, and the answer names the real one.
fn check_storage_mode(field: &str, mode: &str) -> Result<(), Reply> {
    if ["memory_optimized", "plasma", "forestdb"].contains(&mode) {
        return Ok(());
    }
    let reason = "Value must be one of [memory_optimized, plasma, forestdb]: indexes are in memory with each.";
    Err(invalid(field, reason))
}

fn check_index_settings(form: &[(String, String)]) -> Result<(), Reply> {
    let known = known_index_settings();
    let known = known.as_object().expect("it is an object");
    for field in form {
        let reason = match field.0.as_str() {
            "storageMode" => {
                check_storage_mode(&field.0, &field.1)?;
                continue;
            }
            "numReplica" => {
                "Each index sets its own number: CREATE INDEX … WITH {\"num_replica\": 1}."
            }
            _ => "The node keeps indexes with their documents.",
        };
        fixed::check_because(known, std::slice::from_ref(field), reason)?;
    }
    Ok(())
}
