//! Packages and deployments of plugins, and the requests that deployments answer.
//!
//! ```text
//! GET    /plugins                              packages
//! POST   /plugins                              the body is a package (tar)
//! GET    /plugins/{name}/{version}             its manifest; ?archive=true adds the package itself, in base64
//! DELETE /plugins/{name}/{version}
//! GET    /deployments                          the state of all deployments
//! PUT    /deployments/{name}                   deploy, or upgrade: JSON
//! GET    /deployments/{name}                   the state of a deployment
//! GET    /deployments/{name}/profile           a profile of its calls
//! GET    /deployments/{name}/capsules          its failed calls on this node
//! GET    /deployments/{name}/capsules/{id}     one failed call, for a replay
//! POST   /deployments/{name}/pause|resume
//! POST   /deployments/{name}/replay            restart with a new state: ?since=everything|now|{last_seq}
//! DELETE /deployments/{name}                   undeploy, and delete the state
//! any    /_plugin/{name}/…                     a request that the plugin answers
//! GET    /_plugin/{name}/scan                  entries of an index type, which the node reads itself
//! ```

use super::Call;
use super::answer::{answered, unanswered};
use super::body::{Reply, blocking, invalid, json_reply, not_found, ok};
use super::origin::OfPlugin;
use super::profile::profile;
use super::refusal::refused;
use super::routes::{Route, any, delete, get, post, put, ready};
use super::streams::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::{Method, StatusCode};
use nacre_auth::Privilege;
use nacre_changes_service as changes;
use nacre_cluster::{self as cluster, Change, Cluster, PluginChange, Since, Source};
use nacre_http::Access;
use nacre_node::Error;
use nacre_plugins_service::rights::{self, Need};
use nacre_plugins_service::{Deployment, NodePlugins, Terms, packages};
use nacre_sandbox::{Capabilities, Capsule, Manifest, Request, USER_HEADER, World};
use nacre_state::Scan;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a request that waits until the state reflects earlier writes.
const FRESH_TIMEOUT: Duration = Duration::from_secs(60);

/// Header that names the one document that a request concerns. Only the node with that document answers.
const KEY: &str = "nacre-key";

/// Header with the path as the client sent it, below the deployment and without the query string. In the decoded path, a `/`
/// within a name is indistinguishable from a separator.
const PATH: &str = "nacre-path";

/// Headers that nodes send each other. The server removes them from requests of clients.
pub(super) const OF_NODES: [&str; 5] =
    ["nacre-fresh", "nacre-part", PATH, "nacre-rest", "nacre-vbuckets"];

/// The body of a request to deploy. Unknown members are refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    package: String,
    version: String,
    #[serde(default)]
    bucket: Option<String>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    collection: Option<String>,
    #[serde(default)]
    since: Option<String>,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    grants: Capabilities,
    /// True to deploy without beginning to read documents.
    #[serde(default)]
    paused: bool,
}

const ADMINISTER: Access = Access::Cluster(Privilege::AdministerPlugins);

pub(super) const ROUTES: &[Route] = &[
    get("/plugins", ADMINISTER, |call| ready(list_packages(&call))),
    post("/plugins", ADMINISTER, |call| Box::pin(upload(call))),
    get("/plugins/{name}/{version}", ADMINISTER, |call| Box::pin(show_package(call))),
    delete("/plugins/{name}/{version}", ADMINISTER, |call| Box::pin(drop_package(call))),
    get("/deployments", Access::Handler, |call| ready(list_deployments(&call))),
    put("/deployments/{name}", ADMINISTER, |call| Box::pin(deploy(call))),
    get("/deployments/{name}", Access::Handler, |call| ready(show_deployment(&call))),
    delete("/deployments/{name}", ADMINISTER, |call| Box::pin(undeploy(call))),
    get("/deployments/{name}/profile", ADMINISTER, |call| Box::pin(profiled(call))),
    get("/deployments/{name}/capsules", ADMINISTER, |call| Box::pin(capsules(call))),
    get("/deployments/{name}/capsules/{id}", ADMINISTER, |call| Box::pin(capsule(call))),
    post("/deployments/{name}/pause", ADMINISTER, |call| Box::pin(pause(call))),
    post("/deployments/{name}/resume", ADMINISTER, |call| Box::pin(resume(call))),
    post("/deployments/{name}/replay", ADMINISTER, |call| Box::pin(replay(call))),
    any("/_plugin/{name}/{rest...}", Access::Handler, |call| {
        Box::pin(async move {
            let mut reply = invoke(call).await?;
            reply.extensions_mut().insert(OfPlugin);
            Ok(reply)
        })
    }),
];

fn list_packages(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let all = cluster.plugins.packages.iter().flat_map(|(name, versions)| {
        versions.iter().map(move |(version, package)| describe(name, version, package))
    });
    Ok(ok(&Value::Array(all.collect())))
}

async fn show_package(call: Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let (name, version) = (call.segment("name"), call.segment("version"));
    let package = cluster.plugins.package(name, version).map_err(no_such)?;
    let mut described = describe(name, version, package);
    if call.parameter("archive").is_some_and(|value| value == "true") {
        let (node, digest) = (Arc::clone(&call.node), package.digest.clone());
        let read = blocking("reading the package", move || packages::archive(&node, &digest));
        let archive = read.await?.map_err(|error| refused(&error))?.ok_or_else(not_found)?;
        described["archive"] = STANDARD.encode(archive).into();
    }
    Ok(ok(&described))
}

async fn drop_package(call: Call) -> Result<Reply, Reply> {
    let [name, version] = ["name", "version"].map(|name| call.segment(name).to_owned());
    call.change(Change::Plugins(PluginChange::DropPackage { name, version })).await?;
    Ok(ok(&json!({"ok": true})))
}

fn no_such(refusal: cluster::Refusal) -> Reply {
    refused(&Error::Refused(refusal))
}

fn describe(name: &str, version: &str, package: &cluster::Package) -> Value {
    let manifest = Manifest::read(&package.manifest).ok();
    json!({"name": name, "version": version, "digest": package.digest, "manifest": manifest})
}

async fn upload(call: Call) -> Result<Reply, Reply> {
    let (node, archive) = (Arc::clone(&call.node), call.body);
    let added = blocking("the check", move || packages::add(&node, &archive)).await?;
    let (name, version) = added.map_err(|error| refused(&error))?;
    let cluster = call.node.cluster();
    let package = cluster.plugins.package(&name, &version).map_err(no_such)?;
    Ok(json_reply(StatusCode::CREATED, &describe(&name, &version, package)))
}

/// Members of a status that contain data of deployers, or messages of plugins about documents.
const CONFIDENTIAL: [&str; 6] =
    ["config", "log", "last_errors", "last_failures", "dead_letters", "dead_timers"];

/// Refuses users who may not see the state of deployments. They need the privilege to manage plugins, or those to read
/// the cluster and its statistics.
fn require_sight(call: &Call) -> Result<(), Reply> {
    let refused = |refusal| {
        let needs = [Privilege::ReadCluster, Privilege::ReadStats];
        match needs.iter().all(|need| call.require(*need, None).is_ok()) {
            true => Ok(()),
            false => Err(refusal),
        }
    };
    call.require(Privilege::AdministerPlugins, None).or_else(refused)
}

fn list_deployments(call: &Call) -> Result<Reply, Reply> {
    require_sight(call)?;
    let cluster = call.node.cluster();
    let names = cluster.plugins.deployments.keys();
    Ok(ok(&Value::Array(names.map(|name| status(call, &cluster, name)).collect())))
}

fn show_deployment(call: &Call) -> Result<Reply, Reply> {
    require_sight(call)?;
    let (cluster, name) = (call.node.cluster(), call.segment("name"));
    cluster.plugins.deployment(name).map_err(no_such)?;
    Ok(ok(&status(call, &cluster, name)))
}

async fn undeploy(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    let plugins = call.node.plugins();
    let running = [plugins.deployment(&name), plugins.building(&name)];
    call.change(Change::Plugins(PluginChange::Undeploy { name })).await?;
    // After the answer, no part of the deployment runs any more and its state is deleted.
    blocking("the wait", move || {
        running.iter().flatten().for_each(|deployment| deployment.wait_for_feeds());
    })
    .await?;
    Ok(ok(&json!({"ok": true})))
}

async fn profiled(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name");
    call.node.cluster().plugins.deployment(name).map_err(no_such)?;
    profile(&call, name).await
}

async fn pause(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    changed(
        call,
        Change::Plugins(PluginChange::PauseDeployment { name: name.clone(), paused: true }),
        &name,
    )
    .await
}

/// Resumes a deployment. If its owner has lost a privilege, the user who asks becomes its owner.
async fn resume(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    let cluster = call.node.cluster();
    let known = cluster.plugins.deployment(&name).map_err(no_such)?;
    let manifest = manifest_of(&cluster, known)?;
    if packages::held(&call.node, known, &manifest).is_some() {
        require_needs(&call, &packages::needs(known, &manifest))?;
        let (name, owner) = (name.clone(), call.user.clone());
        call.change(Change::Plugins(PluginChange::SetDeploymentOwner { name, owner })).await?;
    }
    changed(
        call,
        Change::Plugins(PluginChange::PauseDeployment { name: name.clone(), paused: false }),
        &name,
    )
    .await
}

/// Restarts a deployment with a new state, from its earlier start or from `since`.
async fn replay(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    let cluster = call.node.cluster();
    let known = cluster.plugins.deployment(&name).map_err(no_such)?;
    let begin = match call.parameter("since") {
        None => None,
        // The known start does not count: `now` means the time of this request.
        Some(since) => Some(begin(&call, Some(&since), known.bucket(), None).await?),
    };
    changed(
        call,
        Change::Plugins(PluginChange::ReplayDeployment { name: name.clone(), begin }),
        &name,
    )
    .await
}

fn manifest_of(cluster: &Cluster, known: &cluster::Deployment) -> Result<Manifest, Reply> {
    let package = cluster.plugins.package(&known.package, &known.version).map_err(no_such)?;
    Manifest::read(&package.manifest).map_err(|reason| invalid("_", reason))
}

/// Refuses users who lack the privileges on documents that a deployment needs.
fn require_needs(call: &Call, needs: &[Need]) -> Result<(), Reply> {
    let users = call.node.users();
    let lacked = match users.get(&call.user) {
        Some(user) => rights::lacking(user, needs).map(Need::role),
        None => Some("of a user".into()),
    };
    let Some(role) = lacked else { return Ok(()) };
    let reason = format!("the user lacks the role {role}: the deployment uses these documents");
    Err(json_reply(StatusCode::FORBIDDEN, &json!({"errors": {"_": reason}})))
}

/// Refuses users who may not read the documents that a deployment reads.
fn require_reading(call: &Call, name: &str) -> Result<(), Reply> {
    let cluster = call.node.cluster();
    let known = cluster.plugins.deployment(name).map_err(no_such)?;
    require_needs(call, &packages::reading(known, &manifest_of(&cluster, known)?))
}

/// Returns the capsules of a deployment, for users who may read its documents: a capsule contains the documents of its
/// call.
async fn capsules_of(call: &Call) -> Result<Vec<(String, Capsule)>, Reply> {
    let name = call.segment("name");
    require_reading(call, name)?;
    call.node.cluster().plugins.deployment(name).map_err(no_such)?;
    let (node, name) = (Arc::clone(&call.node), name.to_owned());
    let read = blocking("the capsules", move || node.plugins().capsules(&node, &name)).await?;
    read.map_err(|error| refused(&Error::from(error)))
}

async fn capsules(call: Call) -> Result<Reply, Reply> {
    let capsules = capsules_of(&call).await?;
    let one = |(id, capsule): &(String, Capsule)| json!({"id": id, "reason": capsule.reason, "is_whole": capsule.is_whole});
    Ok(ok(&Value::Array(capsules.iter().map(one).collect())))
}

async fn capsule(call: Call) -> Result<Reply, Reply> {
    let capsules = capsules_of(&call).await?;
    let found = capsules.into_iter().find(|(id, _)| id == call.segment("id"));
    let (_, capsule) = found.ok_or_else(not_found)?;
    Ok(ok(&json!(capsule)))
}

async fn changed(call: Call, wanted: Change, name: &str) -> Result<Reply, Reply> {
    let cluster = call.change(wanted).await?;
    Ok(ok(&status(&call, &cluster, name)))
}

async fn deploy(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    let name = name.as_str();
    let wanted: Wanted = serde_json::from_slice(&call.body)
        .map_err(|error| invalid("_", format!("the body: {error}")))?;
    let cluster = call.node.cluster();
    let package = cluster.plugins.package(&wanted.package, &wanted.version).map_err(no_such)?;
    let manifest = Manifest::read(&package.manifest).map_err(|reason| invalid("_", reason))?;
    let world = world_of(&manifest, &wanted).map_err(|reason| invalid("_", reason))?;
    if let Some(bucket) = wanted.bucket.as_deref().filter(|bucket| cluster.bucket(bucket).is_err())
    {
        let reason = json!({"errors": {"_": format!("there is no bucket {bucket}")}});
        return Err(json_reply(StatusCode::NOT_FOUND, &reason));
    }
    let missing = manifest.capabilities.missing_from(&wanted.grants);
    if !missing.is_empty() {
        let reason =
            format!("the plugin requires the right to {}: grant it", missing.join(", and to "));
        return Err(invalid("_", reason));
    }
    manifest.capabilities.check_grants(&wanted.grants).map_err(|reason| invalid("_", reason))?;
    let config = wanted.config.unwrap_or_else(|| json!({})).to_string();
    let (node, known, checked) = (Arc::clone(&call.node), package.clone(), config.clone());
    blocking("the check", move || packages::prepare(&node, &known, &checked))
        .await?
        .map_err(|reason| invalid("_", reason))?;
    let known = cluster.plugins.deployments.get(name);
    let (since, begin) =
        begin(&call, wanted.since.as_deref(), wanted.bucket.as_deref(), known).await?;
    let deployment = cluster::Deployment {
        uuid: call.node.new_uuid(),
        package: wanted.package,
        version: wanted.version,
        world,
        source: wanted.bucket.map(|bucket| Source {
            bucket,
            scope: wanted.scope,
            collection: wanted.collection,
        }),
        since,
        begin,
        config,
        grants: serde_json::to_string(&wanted.grants).unwrap_or_default(),
        paused: wanted.paused,
        replays: 0,
        tries: 0,
        owner: call.user.clone(),
    };
    require_needs(&call, &packages::needs(&deployment, &manifest))?;
    let name = name.to_owned();
    changed(call, Change::Plugins(PluginChange::Deploy { name: name.clone(), deployment }), &name)
        .await
}

/// Returns the start of a deployment: the wanted one, or that of the `known` deployment.
async fn begin(
    call: &Call,
    wanted: Option<&str>,
    bucket: Option<&str>,
    known: Option<&cluster::Deployment>,
) -> Result<(Since, Option<String>), Reply> {
    let as_known = known.map(|known| (known.since, known.begin.clone()));
    let since = match (wanted, as_known) {
        (None, Some(known)) => return Ok(known),
        (None | Some("everything"), _) => return Ok((Since::Everything, None)),
        // `now` means the time of the first deployment with `now`.
        (Some("now"), Some(known @ (Since::Now, _))) => return Ok(known),
        (Some("now"), _) => changes::Since::Now,
        (Some(token), _) => {
            let expected = "everything, now, or a last_seq of changes";
            let wrong = |_| invalid("since", format!("it must be {expected}, not {token:?}"));
            changes::Since::Token(token.parse().map_err(wrong)?)
        }
    };
    let bucket = bucket.and_then(|bucket| call.node.bucket(bucket));
    let node = Arc::clone(&call.node);
    let start = bucket.map(|bucket| move || changes::start(&node, &bucket, since));
    let token = match start {
        Some(start) => Some(blocking("the beginning", start).await?.map_err(no_beginning)?),
        None => None,
    };
    Ok(match wanted {
        Some("now") => (Since::Now, token.map(|token| token.to_string())),
        // Kept verbatim, so that repeating the request changes nothing.
        _ => (Since::Everything, wanted.map(str::to_owned)),
    })
}

fn no_beginning(refused: changes::Refused) -> Reply {
    match refused {
        changes::Refused::Gone(why) => {
            invalid("since", format!("begin with everything, or now: {why}"))
        }
        changes::Refused::Unavailable(why) => {
            json_reply(StatusCode::SERVICE_UNAVAILABLE, &json!({"errors": {"since": why}}))
        }
    }
}

/// Returns the world in which a package is deployed.
fn world_of(manifest: &Manifest, wanted: &Wanted) -> Result<cluster::World, String> {
    let world = match manifest.world {
        World::Service => cluster::World::Service,
        World::Functions => cluster::World::Functions,
        World::Resolver => cluster::World::Resolver,
        World::IndexType => cluster::World::IndexType,
    };
    let nothing = Capabilities::default();
    let is_pure = world != cluster::World::Service;
    if is_pure && (manifest.capabilities != nothing || wanted.grants != nothing) {
        return Err(format!(
            "a plugin of the world `{world}` may log, and be granted nothing else"
        ));
    }
    if wanted.paused && !world.follows_documents() {
        return Err(format!("a deployment of the world `{world}` cannot be paused"));
    }
    if wanted.bucket.is_none() && (wanted.scope.is_some() || wanted.collection.is_some()) {
        return Err("a scope is one of a bucket: name that as well".into());
    }
    Ok(world)
}

/// Describes the state of a deployment, as far as the user may see it.
fn status(call: &Call, cluster: &Cluster, name: &str) -> Value {
    let mut status = whole_status(call, cluster, name);
    let administers = call.require(Privilege::AdministerPlugins, None).is_ok();
    if !administers || require_reading(call, name).is_err() {
        hide_confidential(&mut status);
        if let Some(building) = status.get_mut("building") {
            hide_confidential(building);
        }
    }
    status
}

fn hide_confidential(status: &mut Value) {
    if let Value::Object(members) = status {
        members.retain(|name, _| !CONFIDENTIAL.contains(&name.as_str()));
    }
}

fn whole_status(call: &Call, cluster: &Cluster, name: &str) -> Value {
    let Some(wanted) = cluster.plugins.deployments.get(name) else { return Value::Null };
    let mut value = json!({
        "name": name,
        "package": wanted.package,
        "version": wanted.version,
        "world": wanted.world,
        "config": serde_json::from_str::<Value>(&wanted.config).unwrap_or_default(),
        "owner": wanted.owner,
    });
    if let Some(source) = &wanted.source {
        value["source"] = json!(source);
    }
    if !wanted.world.follows_documents() {
        merge(&mut value, progress_of_pure(call, name));
        return value;
    }
    value["since"] = match (wanted.since, &wanted.begin) {
        (Since::Everything, Some(token)) => json!(token),
        (since, _) => json!(since),
    };
    value["grants"] = serde_json::from_str(&wanted.grants).unwrap_or_default();
    let plugins = call.node.plugins();
    match plugins.deployment(name) {
        Some(serving) => merge(&mut value, progress(&serving)),
        None => merge(&mut value, json!({"state": "loading"})),
    }
    if let Some(building) = plugins.building(name) {
        value["building"] = progress(&building);
    }
    value
}

fn merge(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

fn progress(deployment: &Deployment) -> Value {
    let (state, _) = super::views::state_of(&deployment.progress());
    let mut value = super::views::counts_of(deployment);
    value["state"] = state.into();
    value["reason"] = deployment.reason().into();
    value["running_version"] = deployment.version().into();
    value["lag"] = deployment.lag().into();
    value
}

/// Describes the state of a deployment that does not follow documents.
fn progress_of_pure(call: &Call, name: &str) -> Value {
    let plugins = call.node.plugins();
    let Some(pure) = plugins.pure().get(name) else {
        return match plugins.unloadable(&call.node, name) {
            Some(reason) => json!({"state": "failed", "reason": reason}),
            None => json!({"state": "loading"}),
        };
    };
    let status = pure.status();
    let failures: Vec<Value> = pure
        .failures()
        .iter()
        .map(|failed| json!({"call": failed.what, "reason": failed.reason}))
        .collect();
    json!({
        "state": if pure.failure().is_some() { "failed" } else { "running" },
        "reason": pure.failure(),
        "running_version": pure.version(),
        "last_failures": failures,
        "log": super::views::log_of(&status),
        "readers": super::views::usage_of(&status.readers),
        "memory_bytes": status.memory_bytes,
    })
}

/// Returns entries of an index, which the node reads without the plugin.
async fn scan(call: Call, name: &str) -> Result<Reply, Reply> {
    if call.method != Method::GET {
        let reason = "a scan is asked for with GET";
        let errors = json!({"errors": {"_": reason}});
        return Err(json_reply(StatusCode::METHOD_NOT_ALLOWED, &errors));
    }
    let mut scan = Scan::read(&call.query).map_err(|reason| invalid("_", reason))?;
    scan.fresh |= call.consistent;
    let desk = call.desk();
    let _place = desk.enter(Kind::Answer)?;
    let (node, name) = (Arc::clone(&call.node), name.to_owned());
    let answer = desk.work("the scan", move || {
        let scanned = nacre_plugins_service::scan(&node, &name, &scan, FRESH_TIMEOUT)?;
        Ok(scanned.answer(&scan))
    });
    let stopped = ("plugin_failed", StatusCode::SERVICE_UNAVAILABLE);
    answer.await?.map(|answer| ok(&answer)).map_err(|missing| unanswered(&missing, stopped))
}

/// Encodes a path: everything except letters, digits and some marks is percent-encoded.
fn encoded(segments: &[String]) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let segment = |segment: &String| format!("/{}", utf8_percent_encode(segment, KEPT));
    let path: String = segments.iter().map(segment).collect();
    if path.is_empty() { "/".to_owned() } else { path }
}

/// Lets a deployment answer a request.
async fn invoke(call: Call) -> Result<Reply, Reply> {
    let (name, rest) = (call.segment("name").to_owned(), call.rest.clone());
    let name = name.as_str();
    let cluster = call.node.cluster();
    let wanted = cluster.plugins.deployment(name).map_err(no_such)?;
    call.require(Privilege::InvokePlugins, wanted.bucket())?;
    let bucket = match (wanted.world, wanted.bucket(), &rest[..]) {
        (cluster::World::Service, Some(bucket), _) => bucket,
        (cluster::World::IndexType, _, [path]) if path == "scan" => return scan(call, name).await,
        (cluster::World::IndexType, ..) => {
            let reason = format!(
                "{name} is of the world `index-type`, whose entries are at /_plugin/{name}/scan: it answers nothing else"
            );
            return Err(json_reply(StatusCode::NOT_FOUND, &json!({"errors": {"_": reason}})));
        }
        (world, ..) => {
            return Err(invalid(
                "_",
                format!("a deployment of the world `{world}` answers no requests"),
            ));
        }
    };
    let desk = call.desk().with_right(Privilege::InvokePlugins, bucket);
    let mut headers = call.headers;
    headers.push((USER_HEADER.to_owned(), call.user));
    headers.push((PATH.to_owned(), encoded(&rest)));
    let request = Request {
        method: call.method.to_string(),
        path: format!("/{}", rest.join("/")),
        query: call.query.clone(),
        headers,
        body: call.body,
    };
    let failure = ("plugin_failed", StatusCode::SERVICE_UNAVAILABLE);
    let key = request.headers.iter().find(|(name, _)| name == KEY);
    let vbids = key.and_then(|(_, key)| call.node.vbids_of(bucket, [key.as_bytes()]));
    let terms = Terms {
        vbids,
        fresh: call.consistent,
        seqnos: Vec::new(),
        updates: false,
        patience: FRESH_TIMEOUT,
        account: Arc::clone(&desk.account),
        partial: None,
    };
    answered(&call.node, &desk, name, request, terms, failure).await
}
