//! The audit log: one line of JSON for each refused login and each administrative request, in `audit/audit.log` of the data
//! directory.
//!
//! A thread writes the file, so that no request waits for the disk. Its queue is bounded: events that do not fit are counted and
//! reported in the log, and the requests continue. The file is closed and renamed once it reaches its maximum age or size, see
//! [`nacre_cluster::Audit`].

use nacre_cluster::Audit;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of queued events.
const QUEUE_MAX: usize = 10_000;
/// The name of the current file.
const FILE: &str = "audit.log";

/// A kind of event. Numbers and names are Couchbase's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditKind {
    /// ID of the event.
    pub id: u32,
    /// The name.
    pub name: &'static str,
    /// A sentence that describes the kind.
    pub description: &'static str,
    /// True if the operator may exclude these events.
    pub filterable: bool,
}

const fn kind(id: u32, name: &'static str, description: &'static str) -> AuditKind {
    AuditKind { id, name, description, filterable: false }
}

const fn filterable(id: u32, name: &'static str, description: &'static str) -> AuditKind {
    AuditKind { id, name, description, filterable: true }
}

/// A browser session has begun.
pub const LOGIN_SUCCESS: AuditKind =
    kind(8192, "login success", "Successful login to couchbase cluster");
/// A login was refused.
pub const LOGIN_FAILURE: AuditKind =
    kind(8193, "login failure", "Unsuccessful attempt to login to couchbase cluster");
/// A user lacked the privilege for a request.
pub const ACCESS_FORBIDDEN: AuditKind =
    kind(8264, "access forbidden", "Access to resource is forbidden");
/// An administrative request without a more specific kind.
pub const OTHER_REQUEST: AuditKind =
    filterable(12_287, "administrative request", "An administrative request was answered");

/// Kinds of administrative requests, by method and path; `*` matches a path segment.
const REQUESTS: [(&str, &str, AuditKind); 39] = [
    ("DELETE", "settings/rbac/users/*/*", kind(8194, "delete user", "User was deleted")),
    ("POST", "controller/changePassword", PASSWORD),
    ("POST", "controller/addNode", ADD_NODE),
    ("POST", "pools/default/serverGroups/*/addNode", ADD_NODE),
    (
        "POST",
        "controller/ejectNode",
        kind(8197, "remove node", "Node was removed from the cluster"),
    ),
    ("POST", "controller/failOver", FAILOVER),
    ("POST", "controller/startFailover", FAILOVER),
    ("POST", "controller/startGracefulFailover", FAILOVER),
    ("POST", "controller/setRecoveryType", RECOVERY),
    ("POST", "controller/reAddNode", RECOVERY),
    ("POST", "controller/rebalance", kind(8200, "rebalance initiated", "Rebalance was initiated")),
    ("POST", "pools/default/buckets", kind(8201, "create bucket", "Bucket was created")),
    ("POST", "pools/default/buckets/*", kind(8202, "modify bucket", "Bucket was modified")),
    ("DELETE", "pools/default/buckets/*", kind(8203, "delete bucket", "Bucket was deleted")),
    (
        "POST",
        "pools/default/buckets/*/controller/doFlush",
        kind(8204, "flush bucket", "Bucket was flushed"),
    ),
    ("POST", "node/controller/rename", kind(8207, "rename node", "The node was renamed")),
    (
        "POST",
        "node/controller/setupServices",
        kind(8208, "setup node services", "The services were set for the node"),
    ),
    (
        "POST",
        "pools/default",
        kind(8209, "change cluster settings", "Cluster settings were changed"),
    ),
    ("POST", "pools/default/serverGroups", kind(8210, "add group", "Server group was added")),
    (
        "DELETE",
        "pools/default/serverGroups/*",
        kind(8211, "delete group", "Server group was deleted"),
    ),
    ("PUT", "pools/default/serverGroups/*", kind(8212, "update group", "Server group was updated")),
    ("PUT", "settings/rbac/users/*/*", SET_USER),
    ("PATCH", "settings/rbac/users/*/*", SET_USER),
    ("PUT", "settings/rbac/groups/*", kind(8244, "set user group", "User group was set")),
    ("DELETE", "settings/rbac/groups/*", kind(8245, "delete user group", "User group was deleted")),
    ("POST", "settings/audit", kind(8240, "modify audit settings", "Audit settings were changed")),
    ("POST", "settings/web", PASSWORD),
    (
        "POST",
        "api/v1/tokens",
        kind(12_288, "create API token", "A token of the HTTP API was created"),
    ),
    ("DELETE", "api/v1/tokens/*", REVOKE_TOKEN),
    ("DELETE", "api/v1/users/*/tokens/*", REVOKE_TOKEN),
    (
        "POST",
        "settings/security",
        kind(8261, "modify security settings", "Security settings were changed"),
    ),
    (
        "POST",
        "pools/default/remoteClusters",
        kind(16_384, "create remote cluster reference", "A reference to a cluster was created"),
    ),
    (
        "POST",
        "pools/default/remoteClusters/*",
        kind(16_385, "modify remote cluster reference", "A reference to a cluster was modified"),
    ),
    (
        "DELETE",
        "pools/default/remoteClusters/*",
        kind(16_386, "delete remote cluster reference", "A reference to a cluster was deleted"),
    ),
    (
        "POST",
        "controller/createReplication",
        kind(16_387, "create replication", "A replication to a cluster was created"),
    ),
    ("POST", "controller/cancelXDCR/*", CANCEL_REPLICATION),
    ("DELETE", "controller/cancelXDCR/*", CANCEL_REPLICATION),
    (
        "POST",
        "settings/replications",
        kind(
            16_391,
            "modify default replication settings",
            "Defaults of replications were changed",
        ),
    ),
    (
        "POST",
        "settings/replications/*",
        kind(
            16_392,
            "modify replication settings",
            "A replication was paused or resumed, or its settings were changed",
        ),
    ),
];
const CANCEL_REPLICATION: AuditKind =
    kind(16_390, "cancel replication", "A replication to a cluster was deleted");
const REVOKE_TOKEN: AuditKind =
    kind(12_289, "revoke API token", "A token of the HTTP API was revoked");
const PASSWORD: AuditKind = kind(8195, "user credentials change", "User credentials were changed");
const ADD_NODE: AuditKind = kind(8196, "add node", "Node was added to the cluster");
const FAILOVER: AuditKind = kind(8198, "failover nodes", "Nodes that were failed over");
const RECOVERY: AuditKind = kind(8199, "enter node recovery", "Entered node recovery");
const SET_USER: AuditKind = kind(8232, "set user", "User was created or modified");

/// Returns all kinds, by number.
pub fn kinds() -> Vec<AuditKind> {
    let mut kinds: Vec<AuditKind> = REQUESTS.iter().map(|(.., kind)| *kind).collect();
    kinds.extend([LOGIN_SUCCESS, LOGIN_FAILURE, ACCESS_FORBIDDEN, OTHER_REQUEST]);
    kinds.sort_by_key(|kind| kind.id);
    kinds.dedup();
    kinds
}

/// Returns the kind of an administrative request.
pub fn kind_of(method: &str, path: &[&str]) -> AuditKind {
    let matches = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split('/').collect();
        pattern.len() == path.len()
            && pattern.iter().zip(path).all(|(wanted, is)| *wanted == "*" || wanted == is)
    };
    let known = REQUESTS.iter().find(|(known, pattern, _)| *known == method && matches(pattern));
    known.map_or(OTHER_REQUEST, |(.., kind)| *kind)
}

/// An event: a user, an action, its origin and its result.
#[derive(Clone, Debug)]
pub struct AuditEvent {
    /// The kind.
    pub kind: AuditKind,
    /// The user, or the name that was given as the user.
    pub user: String,
    /// `local` or `external`.
    pub domain: String,
    /// Address and port of the client.
    pub remote: std::net::SocketAddr,
    /// Further members, such as the path.
    pub details: Value,
}

/// The writer of the audit log.
pub struct AuditLog {
    folder: PathBuf,
    queue: OnceLock<SyncSender<(Audit, Value)>>,
    lost: AtomicU64,
}

impl AuditLog {
    /// Creates a log in `folder`, which is created with the first event.
    pub fn new(folder: PathBuf) -> AuditLog {
        AuditLog { folder, queue: OnceLock::new(), lost: AtomicU64::new(0) }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Queues an event, unless the settings exclude it. Does not wait for the disk.
    pub fn write(&self, settings: &Audit, event: &AuditEvent) {
        let who = format!("{}/{}", event.user, event.domain);
        let is_left_out = event.kind.filterable
            && (settings.disabled_events.contains(&event.kind.id)
                || settings.disabled_users.contains(&who));
        if !settings.enabled || is_left_out {
            return;
        }
        let mut line = json!({
            "timestamp": timestamp(SystemTime::now()),
            "id": event.kind.id,
            "name": event.kind.name,
            "description": event.kind.description,
            "real_userid": {"domain": event.domain, "user": event.user},
            "remote": {"ip": event.remote.ip(), "port": event.remote.port()},
        });
        if let (Value::Object(line), Value::Object(details)) = (&mut line, event.details.clone()) {
            line.extend(details);
        }
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = sync_channel(QUEUE_MAX);
            let folder = self.folder.clone();
            let thread = std::thread::Builder::new().name("audit".into());
            if let Err(error) = thread.spawn(move || keep(&folder, &receiver)) {
                tracing::error!("the audit log cannot be written: {error}");
            }
            sender
        });
        if queue.try_send((settings.clone(), line)).is_err() {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost.is_power_of_two() {
                tracing::error!("the audit log lacks {lost} events: the disk does not keep up");
            }
        }
    }
}

/// Formats a time for the log.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    nacre_http::dates::date(
        i64::try_from(since.as_secs()).unwrap_or_default(),
        since.subsec_millis(),
    )
}

/// Writes queued events until the sender is dropped.
fn keep(folder: &Path, receiver: &Receiver<(Audit, Value)>) {
    let mut open: Option<OpenFile> = None;
    while let Ok((settings, line)) = receiver.recv() {
        let written = append(folder, &mut open, &settings, &line);
        if let Err(error) = written {
            open = None;
            tracing::error!("the audit log {} lacks an event: {error}", folder.display());
        }
    }
}

/// The current file.
struct OpenFile {
    file: File,
    bytes: u64,
    begun: SystemTime,
}

fn append(
    folder: &Path,
    open: &mut Option<OpenFile>,
    settings: &Audit,
    line: &Value,
) -> io::Result<()> {
    let now = SystemTime::now();
    let path = folder.join(FILE);
    let is_done = |known: &OpenFile| {
        let age = now.duration_since(known.begun).unwrap_or_default();
        known.bytes >= settings.rotate_bytes
            || age >= Duration::from_secs(u64::from(settings.rotate_s))
    };
    if open.is_none() {
        fs::create_dir_all(folder)?;
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(&path)?;
        let about = file.metadata()?;
        let begun = about.created().or_else(|_| about.modified()).unwrap_or(now);
        *open = Some(OpenFile { bytes: about.len(), file, begun });
    }
    if open.as_ref().is_some_and(|known| known.bytes > 0 && is_done(known)) {
        *open = None;
        let name = format!("audit-{}.log", timestamp(now).replace([':', '.'], "-"));
        fs::rename(&path, folder.join(name))?;
        prune(folder, settings, now)?;
        return append(folder, open, settings, line);
    }
    let mut bytes = line.to_string().into_bytes();
    bytes.push(b'\n');
    if let Some(known) = open {
        known.file.write_all(&bytes)?;
        known.bytes += bytes.len() as u64;
    }
    Ok(())
}

/// Removes closed files past the retention that the operator has set.
fn prune(folder: &Path, settings: &Audit, now: SystemTime) -> io::Result<()> {
    if settings.prune_s == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_closed = name.to_string_lossy().starts_with("audit-");
        let age = now.duration_since(entry.metadata()?.modified()?).unwrap_or_default();
        if is_closed && age >= Duration::from_secs(u64::from(settings.prune_s)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_kind_of_its_path() {
        let kind =
            |method: &str, path: &str| kind_of(method, &path.split('/').collect::<Vec<_>>()).id;
        assert_eq!(kind("POST", "pools/default/buckets"), 8201);
        assert_eq!(kind("POST", "pools/default/buckets/b"), 8202);
        assert_eq!(kind("DELETE", "pools/default/buckets/b"), 8203);
        assert_eq!(kind("PUT", "settings/rbac/users/local/ann"), 8232);
        assert_eq!(kind("POST", "pools/default/remoteClusters"), 16_384);
        assert_eq!(kind("POST", "pools/default/remoteClusters/other"), 16_385);
        assert_eq!(kind("DELETE", "pools/default/remoteClusters/other"), 16_386);
        for method in ["POST", "DELETE"] {
            assert_eq!(kind(method, "controller/cancelXDCR/id"), 16_390);
        }
        assert_eq!(kind("POST", "settings/replications/id"), 16_392);
        assert_eq!(kind("POST", "settings/stats"), OTHER_REQUEST.id);
        assert!(kinds().windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn a_file_is_closed_when_it_is_large_and_removed_when_it_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let mut open = None;
        let settings = Audit { rotate_bytes: 10, ..Audit::default() };
        let names = || -> Vec<String> {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        append(folder.path(), &mut open, &settings, &json!({"event": 1})).unwrap();
        append(folder.path(), &mut open, &settings, &json!({"event": 2})).unwrap();
        assert_eq!(names().len(), 2);
        let now = fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(now, "{\"event\":2}\n");
        let later = SystemTime::now() + Duration::from_secs(100);
        prune(folder.path(), &Audit { prune_s: 1000, ..Audit::default() }, later).unwrap();
        assert_eq!(names().len(), 2);
        prune(folder.path(), &Audit { prune_s: 99, ..Audit::default() }, later).unwrap();
        assert_eq!(names(), [FILE]);
    }
}
