//! `nacre xdcr`: replication to buckets of other clusters, over REST, and a comparison of two buckets.

mod diff;

use crate::Failure;
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand, ValueEnum};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const REFERENCES: &str = "/pools/default/remoteClusters";
const SETTINGS: &str = "/settings/replications";

/// Options of `nacre xdcr`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Add a reference to another cluster
    Link {
        /// Name for it in this cluster
        name: String,
        /// Management address of any of its nodes, as host:port
        host: String,
        #[command(flatten)]
        login: Login,
        /// Security of the connections
        #[arg(long, value_enum, default_value_t = Security::None)]
        secure: Security,
        /// File with the authority of the other cluster, in PEM
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
        /// File with the certificate by which this cluster logs in, in PEM, in place of user and password
        #[arg(long, value_name = "FILE", requires = "client_key")]
        client_certificate: Option<PathBuf>,
        /// File with the private key of that certificate, in PEM
        #[arg(long, value_name = "FILE", requires = "client_certificate")]
        client_key: Option<PathBuf>,
    },
    /// Remove the reference to a cluster that has no replications
    Unlink {
        /// Its name, as `list` shows it
        name: String,
    },
    /// Start to replicate a bucket to another cluster
    Create {
        /// Name of the other cluster, as `list` shows it
        link: String,
        /// Source bucket, in this cluster
        #[arg(long)]
        from: String,
        /// Target bucket, in the other cluster (default: the same name)
        #[arg(long)]
        to: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Show other clusters and replications
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Show the progress of replications
    Status {
        #[command(flatten)]
        format: Format,
    },
    /// Change settings of a replication
    Set {
        /// ID of the replication, or its source bucket
        id: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Pause a replication
    Pause {
        /// ID of the replication, or its source bucket
        id: String,
    },
    /// Resume a paused replication
    Resume {
        /// ID of the replication, or its source bucket
        id: String,
    },
    /// Delete a replication; the other bucket keeps its documents
    Delete {
        /// ID of the replication, or its source bucket
        id: String,
    },
    /// Show the documents that the other cluster refuses
    Stuck {
        /// ID of the replication, or its source bucket
        id: String,
        #[command(flatten)]
        format: Format,
    },
    /// Drop the version of a document that the other cluster refuses; the next one is sent again
    Skip {
        /// ID of the replication, or its source bucket
        id: String,
        /// Key of the document, as `stuck` shows it
        key: String,
        /// Its scope and collection
        #[arg(long, default_value = "_default._default")]
        collection: String,
    },
    /// Compare both buckets of a replication, document by document
    Diff {
        /// ID of the replication, or its source bucket
        id: String,
        #[command(flatten)]
        login: Login,
        /// Documents that are shown one by one
        #[arg(long, default_value_t = 20)]
        show: usize,
        /// Seconds after which documents that differ are compared again, as they may be on their way
        #[arg(long, default_value_t = 3)]
        wait: u64,
        #[command(flatten)]
        format: Format,
    },
}

/// Login at the other cluster, if it differs.
#[derive(Args, Clone, Debug)]
struct Login {
    /// User at the other cluster (default: the same)
    #[arg(long)]
    other_user: Option<String>,
    /// Password at the other cluster (default: the same)
    #[arg(long, env = "NACRE_OTHER_PASSWORD", hide_env_values = true)]
    other_password: Option<String>,
}

impl Login {
    fn of<'a>(&'a self, server: &'a Server) -> Result<(&'a str, &'a str), String> {
        let (user, password) = server.login()?;
        let user = self.other_user.as_deref().unwrap_or(user);
        Ok((user, self.other_password.as_deref().unwrap_or(password)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Security {
    /// Nothing is encrypted; the password is sent to the management of the other cluster
    None,
    /// Management is encrypted, documents are not
    Half,
    /// Everything is encrypted
    Full,
}

impl Security {
    fn word(self) -> &'static str {
        match self {
            Security::None => "none",
            Security::Half => "half",
            Security::Full => "full",
        }
    }
}

/// Settings of a replication.
#[derive(Args, Clone, Debug)]
struct Settings {
    /// A setting, as filterDeletion=true; may be given several times. The reference lists them
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Log conflicts in this collection of this cluster, as bucket.scope.collection, or `off`: a record and both bodies of each
    #[arg(long, value_name = "COLLECTION", value_parser = conflict_log)]
    log_conflicts: Option<String>,
}

impl Settings {
    fn fields(&self) -> Vec<(&str, &str)> {
        let mut fields: Vec<(&str, &str)> =
            self.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        fields.extend(self.log_conflicts.iter().map(|value| ("conflictLogging", &**value)));
        fields
    }
}

/// Returns the setting `conflictLogging` for a collection. Only a bucket's name may contain dots.
fn conflict_log(text: &str) -> Result<String, String> {
    if text == "off" {
        return Ok("{}".to_owned());
    }
    match text.rmatch_indices('.').nth(1).map(|(at, _)| text.split_at(at)) {
        Some((bucket, path)) if !bucket.is_empty() => {
            Ok(json!({"bucket": bucket, "collection": &path[1..]}).to_string())
        }
        _ => Err("a collection is bucket.scope.collection".to_owned()),
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a setting is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs `nacre xdcr`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), String> {
    let server = &options.server;
    match &options.action {
        Action::Link { name, host, login, secure, certificate, client_certificate, client_key } => {
            let identity = client_certificate.as_deref().zip(client_key.as_deref());
            link(server, [name, host], login, *secure, certificate.as_deref(), identity)
        }
        Action::Unlink { name } => {
            let path = format!("{REFERENCES}/{}", encoded(name));
            server.call("DELETE", &path, b"").map_err(explained)?;
            println!("{name} is forgotten");
            Ok(())
        }
        Action::Create { link, from, to, settings } => {
            let to = to.as_ref().unwrap_or(from);
            let mut fields = vec![
                ("fromBucket", from.as_str()),
                ("toCluster", link),
                ("toBucket", to),
                ("replicationType", "continuous"),
            ];
            fields.extend(settings.fields());
            let made = post(server, "/controller/createReplication", &fields)?;
            println!("{from} is replicated to {to} of {link}: {}", text(&made["id"]));
            Ok(())
        }
        Action::List { format } => list(server, *format),
        Action::Status { format } => status(server, *format),
        Action::Set { id, settings } => {
            set(server, id, &settings.fields())?;
            println!("changed the settings of {id}");
            Ok(())
        }
        Action::Pause { id } => {
            set(server, id, &[("pauseRequested", "true")])?;
            println!("paused {id}");
            Ok(())
        }
        Action::Resume { id } => {
            set(server, id, &[("pauseRequested", "false")])?;
            println!("resumed {id}");
            Ok(())
        }
        Action::Delete { id } => {
            let known = find(server, id)?;
            let path = format!("/controller/cancelXDCR/{}", encoded(text(&known["id"])));
            server.call("DELETE", &path, b"").map_err(explained)?;
            println!("{id} is deleted; replicated documents stay");
            Ok(())
        }
        Action::Stuck { id, format } => stuck(server, id, *format),
        Action::Skip { id, key, collection } => skip(server, id, key, collection),
        Action::Diff { id, login, show, wait, format } => {
            compare(server, id, login.of(server)?, (*show, *format), *wait)
        }
    }
}

fn link(
    server: &Server,
    [name, host]: [&str; 2],
    login: &Login,
    secure: Security,
    certificate: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<(), String> {
    let certificate = certificate.map(read).transpose()?.unwrap_or_default();
    let identity = match identity {
        Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
        None => None,
    };
    let mut fields = vec![("name", name), ("hostname", host), ("secureType", secure.word())];
    match &identity {
        Some((certificate, key)) => {
            fields.push(("clientCertificate", certificate));
            fields.push(("clientKey", key));
        }
        None => {
            let (user, password) = login.of(server)?;
            fields.extend([("username", user), ("password", password)]);
        }
    }
    if !certificate.is_empty() {
        fields.push(("certificate", &certificate));
    }
    let made = post(server, REFERENCES, &fields)?;
    println!("{name} is the cluster {} at {}", text(&made["uuid"]), text(&made["hostname"]));
    Ok(())
}

/// Returns the text of a file.
fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn post(server: &Server, path: &str, fields: &[(&str, &str)]) -> Result<Value, String> {
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    let body = fields.collect::<Vec<_>>().join("&");
    server.call("POST", path, body.as_bytes()).map_err(explained)
}

/// Adds a hint where users easily forget an option.
fn explained(failure: Failure) -> String {
    let reason = failure.reason;
    match reason.contains("Verify username and password") {
        true => format!("{reason} The login there is --other-user and --other-password."),
        false => reason,
    }
}

fn set(server: &Server, id: &str, fields: &[(&str, &str)]) -> Result<(), String> {
    let known = find(server, id)?;
    post(server, &format!("{SETTINGS}/{}", encoded(text(&known["id"]))), fields).map(drop)
}

/// Returns the replication with an ID or, if there is only one, with a source bucket.
fn find(server: &Server, id: &str) -> Result<Value, String> {
    let all = server.call("GET", "/pools/default/replications", b"")?;
    choose(all.as_array().map_or(&[][..], Vec::as_slice), id).cloned()
}

fn choose<'a>(all: &'a [Value], id: &str) -> Result<&'a Value, String> {
    if let Some(known) = all.iter().find(|known| known["id"] == id) {
        return Ok(known);
    }
    let of_bucket: Vec<&Value> = all.iter().filter(|it| it["sourceBucketName"] == id).collect();
    match of_bucket[..] {
        [known] => Ok(known),
        [] => Err(format!("there is no replication {id}: `nacre xdcr list` shows them")),
        _ => Err(format!(
            "{id} is replicated several times: give the ID, as `nacre xdcr list` shows it"
        )),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn list(server: &Server, format: Format) -> Result<(), String> {
    let references = server.call("GET", REFERENCES, b"")?;
    let mut clusters = Listing::new(&["cluster", "node", "user", "security", "state", "uuid"]);
    for reference in references.as_array().into_iter().flatten() {
        let fields = ["name", "hostname", "username", "secureType", "connectivityStatus", "uuid"];
        clusters.add(fields.map(|field| reference[field].clone()));
    }
    let all = server.call("GET", "/pools/default/replications", b"")?;
    let mut replications = Listing::new(&["from", "to", "id"]);
    for replication in all.as_array().into_iter().flatten() {
        let fields = ["sourceBucketName", "targetBucketName", "id"];
        replications.add(fields.map(|field| replication[field].clone()));
    }
    if format.is_json() {
        let both = json!({"clusters": clusters.json(), "replications": replications.json()});
        format.show_one(&both);
        return Ok(());
    }
    format.show(&clusters);
    println!();
    format.show(&replications);
    Ok(())
}

fn status(server: &Server, format: Format) -> Result<(), String> {
    let tasks = server.call("GET", "/pools/default/tasks", b"")?;
    let (progress, errors) = progress_of(&tasks);
    if format.is_json() {
        format.show_one(&json!({"replications": progress.json(), "errors": errors}));
        return Ok(());
    }
    format.show(&progress);
    errors.iter().for_each(|error| println!("{error}"));
    Ok(())
}

/// Returns the progress of the replications among tasks, and their errors.
fn progress_of(tasks: &Value) -> (Listing, Vec<String>) {
    let mut progress =
        Listing::new(&["from", "to", "state", "left", "written", "checked", "aside", "conflicts"]);
    let mut errors = Vec::new();
    for task in tasks.as_array().into_iter().flatten().filter(|task| task["type"] == "xdcr") {
        let target = text(&task["target"]);
        let bucket = target.rsplit_once('/').map_or(target, |(_, bucket)| bucket);
        progress.add([
            task["source"].clone(),
            bucket.into(),
            task["status"].clone(),
            task["changesLeft"].clone(),
            task["docsWritten"].clone(),
            task["docsChecked"].clone(),
            task["stuckDocuments"].clone(),
            task["conflictsLogged"].clone(),
        ]);
        let texts = task["errors"].as_array().into_iter().flatten().map(text);
        errors.extend(texts.map(str::to_owned));
    }
    (progress, errors)
}

fn stuck(server: &Server, id: &str, format: Format) -> Result<(), String> {
    let id = encoded(text(&find(server, id)?["id"]));
    let path = format!("/pools/default/replications/{id}/stuckDocuments");
    let all = server.call("GET", &path, b"")?;
    let mut listing = Listing::new(&["collection", "key", "reason"]);
    for document in all.as_array().into_iter().flatten() {
        listing.add(["collection", "id", "reason"].map(|field| document[field].clone()));
    }
    format.show(&listing);
    Ok(())
}

fn skip(server: &Server, id: &str, key: &str, collection: &str) -> Result<(), String> {
    let id = encoded(text(&find(server, id)?["id"]));
    let fields = [("id", key), ("collection", collection)];
    post(server, &format!("/controller/skipStuckDocument/{id}"), &fields)?;
    println!("{key} of {collection} is dropped");
    Ok(())
}

fn compare(
    server: &Server,
    id: &str,
    (user, password): (&str, &str),
    (show, format): (usize, Format),
    wait_s: u64,
) -> Result<(), String> {
    let known = find(server, id)?;
    let references = server.call("GET", REFERENCES, b"")?;
    let uuid = &known["targetClusterUUID"];
    let mut references = references.as_array().into_iter().flatten();
    let reference = references.find(|reference| reference["uuid"] == *uuid);
    let reference = reference.ok_or("the reference to the other cluster is gone")?;
    let scheme = if reference["secureType"] == "none" { "http" } else { "https" };
    let url = format!("{scheme}://{}", text(&reference["hostname"]));
    let other = Server::new(&url, user, password)?;
    let buckets = [&known["sourceBucketName"], &known["targetBucketName"]].map(text);
    let read = || {
        Ok::<_, String>([
            diff::Side::read(server, buckets[0])?,
            diff::Side::read(&other, buckets[1])?,
        ])
    };
    let mut sides = read()?;
    let mut found = diff::compare(&sides[0], &sides[1]);
    if !found.is_empty() {
        std::thread::sleep(std::time::Duration::from_secs(wait_s));
        // Changes that were in flight have arrived by now; documents written meanwhile are compared in their present version.
        sides = read()?;
        let later = diff::compare(&sides[0], &sides[1]);
        found.retain(|path, _| later.contains_key(path));
    }
    if format.is_json() {
        let mut listing = Listing::new(&["document", "difference"]);
        for (path, difference) in found.iter().take(show) {
            listing.add([path.as_str().into(), difference.to_string().into()]);
        }
        format.show(&listing);
    } else {
        print_differences(&found, show, sides[0].len());
    }
    match found.len() {
        0 => Ok(()),
        count => Err(format!("{count} documents differ between {} and {}", buckets[0], buckets[1])),
    }
}

/// Prints what differs, or how much is equal.
fn print_differences(found: &BTreeMap<String, diff::Difference>, show: usize, equal: usize) {
    for (path, difference) in found.iter().take(show) {
        println!("{path}: {difference}");
    }
    if found.len() > show {
        println!("and {} more", found.len() - show);
    }
    if found.is_empty() {
        println!("{equal} documents and deletions are equal");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collection_of_a_log_is_the_end_of_its_name() {
        let log = r#"{"bucket":"a.b","collection":"logs.all"}"#;
        assert_eq!(conflict_log("a.b.logs.all").as_deref(), Ok(log));
        assert_eq!(conflict_log("off").as_deref(), Ok("{}"));
        for text in ["", "a", "a.b", ".a.b"] {
            assert!(conflict_log(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_progress_of_replications_is_a_row_each() {
        let tasks = json!([
            {"type": "rebalance", "status": "notRunning"},
            {"type": "xdcr", "source": "a", "target": "/remoteClusters/u/buckets/b", "status": "running",
             "changesLeft": 1, "docsWritten": 2, "docsChecked": 3, "stuckDocuments": 4, "conflictsLogged": 5,
             "errors": ["why"]},
        ]);
        let (progress, errors) = progress_of(&tasks);
        let expected = json!([{
            "from": "a", "to": "b", "state": "running", "left": 1, "written": 2, "checked": 3, "aside": 4,
            "conflicts": 5,
        }]);
        assert_eq!((progress.json(), errors), (expected, vec!["why".to_owned()]));
    }

    #[test]
    fn a_replication_is_found_by_its_id_or_its_bucket() {
        let replication = |id: &str, source: &str| json!({"id": id, "sourceBucketName": source});
        let all = [replication("c/a/x", "a"), replication("c/b/x", "b"), replication("d/b/x", "b")];
        assert_eq!(choose(&all, "a").unwrap()["id"], "c/a/x");
        assert_eq!(choose(&all, "d/b/x").unwrap()["id"], "d/b/x");
        assert!(choose(&all, "b").unwrap_err().contains("several times"));
        assert!(choose(&all, "z").unwrap_err().contains("nacre xdcr list"));
    }
}
