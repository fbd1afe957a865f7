//! Requests of `nacre plugin` to a node, over HTTP.

use super::project;
use clap::Args;
use nacre_cli::{Format, Listing, Server};
use nacre_sandbox::{Capabilities, Manifest, Package, World};
use serde_json::{Value, json};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time in which a deployment must run, and the interval at which its state is read.
const RUNS_TIMEOUT: Duration = Duration::from_secs(30);
const RUNS_INTERVAL: Duration = Duration::from_millis(100);

/// Options of commands that concern one deployment.
#[derive(Args, Clone, Debug)]
pub struct Named {
    /// Name of the deployment
    name: String,
    #[command(flatten)]
    server: Server,
}

/// Options of `nacre plugin logs`.
#[derive(Args, Clone, Debug)]
pub struct Logs {
    #[command(flatten)]
    deployment: Named,
    #[command(flatten)]
    format: Format,
}

/// Options of `nacre plugin replay`.
#[derive(Args, Clone, Debug)]
pub struct Replay {
    /// First position: everything, now, or a last_seq of changes (default: the previous one)
    #[arg(long)]
    since: Option<String>,
    #[command(flatten)]
    deployment: Named,
}

/// Options of `nacre plugin profile`.
#[derive(Args, Clone, Debug)]
pub struct Profile {
    /// Seconds to sample
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    deployment: Named,
}

/// Options of `nacre plugin capsule`.
#[derive(Args, Clone, Debug)]
pub struct OneCapsule {
    #[command(flatten)]
    deployment: Named,
    /// ID of the failed call, as `logs` shows it (default: the newest)
    id: Option<String>,
    /// The file to write (default: the deployment and the id, ending with .json)
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Options of `nacre plugin list`.
#[derive(Args, Clone, Debug)]
pub struct List {
    #[command(flatten)]
    pub all: All,
    #[command(flatten)]
    pub format: Format,
}

/// Options of commands that concern all deployments.
#[derive(Args, Clone, Debug)]
pub struct All {
    #[command(flatten)]
    server: Server,
}

impl All {
    /// The node that is asked.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

/// Options of `nacre plugin packages`.
#[derive(Args, Clone, Debug)]
pub struct Packages {
    /// Remove a version of a package that is not deployed
    #[arg(long, num_args = 2, value_names = ["NAME", "VERSION"])]
    delete: Option<Vec<String>>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    server: Server,
}

/// Options of `nacre plugin deploy`.
#[derive(Args, Clone, Debug)]
pub struct Deploy {
    /// A project or its package
    package: PathBuf,
    /// Name of the deployment (default: the name of the package)
    #[arg(long)]
    name: Option<String>,
    /// Bucket whose documents it processes; functions have none
    #[arg(long)]
    bucket: Option<String>,
    /// Scope (default: all scopes of the bucket)
    #[arg(long, requires = "bucket")]
    scope: Option<String>,
    /// Collection (default: all collections of the scope)
    #[arg(long, requires = "scope")]
    collection: Option<String>,
    /// First position: everything, now, or a last_seq of changes (default: the first position of
    /// the existing deployment, else everything)
    #[arg(long)]
    since: Option<String>,
    /// Configuration for the plugin, JSON
    #[arg(long, default_value = "{}")]
    config: String,
    /// A right to grant, as kv:read=scope.collection, kv:write=… or http-out=host; may be given
    /// several times
    #[arg(long = "grant", value_name = "GRANT")]
    grants: Vec<String>,
    #[command(flatten)]
    server: Server,
}

impl Deploy {
    /// The project, or the package built of it.
    pub fn package(&self) -> &Path {
        &self.package
    }
}

/// Waits until a deployment runs; the inner error is why it does not. One that is built beside another has begun then.
fn until_it_runs(server: &Server, path: &str) -> Result<Result<(), String>, String> {
    let end = std::time::Instant::now() + RUNS_TIMEOUT;
    loop {
        let status = server.call("GET", path, b"")?;
        let newest = if status["building"].is_null() { &status } else { &status["building"] };
        match newest["state"].as_str() {
            Some("failed") => {
                let reason = newest["reason"].as_str().unwrap_or("unknown reason");
                return Ok(Err(reason.to_owned()));
            }
            Some("loading") if std::time::Instant::now() < end => {
                std::thread::sleep(RUNS_INTERVAL);
            }
            Some("loading") => return Ok(Err("it is still being loaded".into())),
            _ => return Ok(Ok(())),
        }
    }
}

/// Reads grants such as `kv:read=a.b`.
fn grants(texts: &[String]) -> Result<Value, String> {
    let (mut read, mut write, mut http_out) = (Vec::new(), Vec::new(), Vec::new());
    for text in texts {
        let (kind, what) = text.split_once('=').unwrap_or((text, ""));
        let list = match kind {
            "kv:read" => &mut read,
            "kv:write" => &mut write,
            "http-out" => &mut http_out,
            _ => {
                return Err(format!(
                    "{text:?} is not a grant: write kv:read=scope.collection, kv:write=scope.collection or http-out=host"
                ));
            }
        };
        list.push(what);
    }
    Ok(json!({"kv": {"read": read, "write": write}, "http-out": http_out}))
}

/// Uploads a package and deploys it.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn deploy(options: &Deploy) -> Result<(), String> {
    let package = project::package(&options.package)?;
    let name = put(options, &package)?;
    println!("{name} runs {} {}", package.manifest.name, package.manifest.version);
    match package.manifest.world {
        World::Service => println!("it answers at {}/_plugin/{name}/", options.server.address()?),
        World::Functions => {
            println!(
                "CREATE FUNCTION name(...) LANGUAGE WASM AS \"function\" AT \"{name}\" makes one known to queries"
            );
        }
        World::Resolver => println!("it resolves the conflicts of the bucket"),
        World::IndexType => {
            println!("its entries are at {}/_plugin/{name}/scan", options.server.address()?);
        }
    }
    Ok(())
}

/// Uploads a package and deploys it; gives the name of the deployment.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn put(options: &Deploy, package: &Package) -> Result<String, String> {
    let config: Value = serde_json::from_str(&options.config)
        .map_err(|error| format!("--config is not JSON: {error}"))?;
    let manifest = &package.manifest;
    let grants = grants(&options.grants)?;
    check_grants(manifest, &grants)?;
    let known = format!("/plugins/{}/{}", manifest.name, manifest.version);
    let is_known = options.server.knows(&known)?;
    options.server.call("POST", "/plugins", &package.write())?;
    let name = options.name.as_ref().unwrap_or(&manifest.name);
    let mut wanted = json!({
        "package": manifest.name,
        "version": manifest.version,
        "config": config,
        "grants": grants,
    });
    for (member, value) in [
        ("bucket", &options.bucket),
        ("scope", &options.scope),
        ("collection", &options.collection),
        ("since", &options.since),
    ] {
        if let Some(value) = value {
            wanted[member] = value.as_str().into();
        }
    }
    let path = format!("/deployments/{name}");
    let put = options.server.call("PUT", &path, wanted.to_string().as_bytes());
    if let Err(refused) = put {
        // What cannot be deployed as it is may be mended, and be uploaded again under the same version.
        if !is_known {
            options.server.call("DELETE", &known, b"").ok();
        }
        return Err(refused.into());
    }
    let runs = until_it_runs(&options.server, &path)?;
    runs.map(|()| name.clone())
        .map_err(|reason| format!("{name} is deployed, and has failed: {reason}"))
}

/// Checks what the node would refuse only after it has the package.
fn check_grants(manifest: &Manifest, grants: &Value) -> Result<(), String> {
    let granted: Capabilities =
        serde_json::from_value(grants.clone()).map_err(|error| error.to_string())?;
    let missing = manifest.capabilities.missing_from(&granted);
    if !missing.is_empty() {
        return Err(format!(
            "the plugin requires the right to {}: grant it",
            missing.join(", and to ")
        ));
    }
    manifest.capabilities.check_grants(&granted)
}

/// Removes a version of a package that is no longer deployed.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn forget(options: &Deploy, name: &str, version: &str) -> Result<(), String> {
    options.server.call("DELETE", &format!("/plugins/{name}/{version}"), b"")?;
    Ok(())
}

/// Shows which packages the cluster has, and what is deployed of them; or removes one.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn packages(options: &Packages) -> Result<(), String> {
    if let Some([name, version]) = options.delete.as_deref() {
        options.server.call("DELETE", &format!("/plugins/{name}/{version}"), b"")?;
        println!("{name} {version} is gone");
        return Ok(());
    }
    let all = options.server.call("GET", "/plugins", b"")?;
    let deployments = options.server.call("GET", "/deployments", b"")?;
    let mut listing = Listing::new(&["name", "version", "kind", "deployed_as"]);
    for one in all.as_array().into_iter().flatten() {
        let is_of = |deployment: &&Value| {
            deployment["package"] == one["name"] && deployment["version"] == one["version"]
        };
        let used = deployments.as_array().into_iter().flatten().filter(is_of);
        let used: Vec<Value> = used.map(|deployment| deployment["name"].clone()).collect();
        let (name, version) = (one["name"].clone(), one["version"].clone());
        listing.add([name, version, one["manifest"]["world"].clone(), used.into()]);
    }
    options.format.show(&listing);
    Ok(())
}

/// The version of a package that is deployed now, if there is a deployment and it is of that package.
pub fn deployed_version(options: &Deploy, package: &str) -> Option<String> {
    let name = options.name.as_deref().unwrap_or(package);
    let status = options.server.call("GET", &format!("/deployments/{name}"), b"").ok()?;
    let version = status["version"].as_str().filter(|_| status["package"] == package)?;
    Some(version.to_owned())
}

/// Shows the output of a deployment: lines of its log, errors, and documents that were skipped.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn said(options: &Deploy, name: &str) -> Result<Vec<String>, String> {
    let one = options.server.call("GET", &format!("/deployments/{name}"), b"")?;
    Ok(lines_of(&one))
}

/// Shows what a deployment has logged, and which documents failed.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn logs(options: &Logs) -> Result<(), String> {
    let Named { name, server } = &options.deployment;
    let one = server.call("GET", &format!("/deployments/{name}"), b"")?;
    let capsules = server.call("GET", &format!("/deployments/{name}/capsules"), b"")?;
    if options.format.is_json() {
        let members = ["log", "last_errors", "dead_letters", "dead_timers", "last_failures"];
        let members = members.map(|member| (member.to_owned(), one[member].clone()));
        let mut all: serde_json::Map<String, Value> = members.into_iter().collect();
        all.insert("reason".to_owned(), one["reason"].clone());
        all.insert("capsules".to_owned(), capsules);
        options.format.show_one(&all.into());
        return Ok(());
    }
    lines_of(&one).iter().for_each(|line| println!("{line}"));
    for capsule in capsules.as_array().into_iter().flatten() {
        let text = |member: &str| capsule[member].as_str().unwrap_or_default();
        println!("capsule {}: {}", text("id"), text("reason"));
    }
    Ok(())
}

/// Saves a call that failed, so that `nacre plugin test --replay` makes it again.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn capsule(options: &OneCapsule) -> Result<(), String> {
    let Named { name, server } = &options.deployment;
    let path = format!("/deployments/{name}/capsules");
    let id = match &options.id {
        Some(id) => id.clone(),
        None => {
            let all = server.call("GET", &path, b"")?;
            let newest = all.as_array().and_then(|all| all.last()?["id"].as_str());
            let none = || {
                Ok::<_, String>(format!(
                    "{} keeps no call of {name} that failed",
                    server.address()?
                ))
            };
            match newest {
                Some(newest) => newest.to_owned(),
                None => return Err(none()?),
            }
        }
    };
    let capsule = server.call("GET", &format!("{path}/{id}"), b"")?;
    let file = options.output.clone().unwrap_or_else(|| format!("{name}-{id}.json").into());
    // It holds documents, and what the plugin may read.
    std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&file)
        .and_then(|mut open| {
            std::io::Write::write_all(&mut open, format!("{capsule:#}").as_bytes())
        })
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("{}", file.display());
    Ok(())
}

/// Shows where the calls of a deployment spend their time.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn profile(options: &Profile) -> Result<(), String> {
    let Profile { seconds, deployment } = options;
    let path = format!("/deployments/{}/profile?seconds={seconds}", deployment.name);
    let stacks = deployment.server.call("GET", &path, b"")?;
    print!("{}", stacks.as_str().unwrap_or_default());
    Ok(())
}

/// Returns the texts of a status, a line each.
fn lines_of(status: &Value) -> Vec<String> {
    let rows = |member: &str| status[member].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for line in rows("log") {
        lines.push(format!("{:<5} {}", text(&line["level"]), text(&line["message"])));
    }
    for error in rows("last_errors") {
        lines.push(format!("document {:?} failed: {}", text(&error["id"]), text(&error["reason"])));
    }
    for dead in rows("dead_letters") {
        lines.push(format!(
            "document {:?} was skipped: {}",
            text(&dead["id"]),
            text(&dead["reason"])
        ));
    }
    for dead in rows("dead_timers") {
        lines.push(format!(
            "timer {:?} was removed: {}",
            text(&dead["name"]),
            text(&dead["reason"])
        ));
    }
    for failed in rows("last_failures") {
        lines.push(format!("{} failed: {}", text(&failed["call"]), text(&failed["reason"])));
    }
    if let Some(reason) = status["reason"].as_str() {
        lines.push(format!("it has stopped: {reason}"));
    }
    lines
}

/// Builds the state of a deployment again.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn replay(options: &Replay) -> Result<(), String> {
    match &options.since {
        None => command(&options.deployment, "replay"),
        // A token is made of letters, digits and a few signs that mean nothing in a query.
        Some(since) if since.bytes().any(|byte| b"&#% +".contains(&byte)) => {
            Err(format!("{since:?} is neither everything, now nor a last_seq"))
        }
        Some(since) => command(&options.deployment, &format!("replay?since={since}")),
    }
}

/// Pauses, resumes or replays a deployment.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn command(options: &Named, command: &str) -> Result<(), String> {
    let path = format!("/deployments/{}/{command}", options.name);
    let status = options.server.call("POST", &path, b"")?;
    println!("{}: {}", options.name, status["state"].as_str().unwrap_or_default());
    Ok(())
}

/// Ends a deployment.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn undeploy(options: &Named) -> Result<(), String> {
    options.server.call("DELETE", &format!("/deployments/{}", options.name), b"")?;
    println!("{} is gone", options.name);
    Ok(())
}
