//! Shares of a backup: each node takes the vBuckets that it serves, as a process that writes straight into the store of a repository.
//!
//! ```text
//! POST …/active/ID/share ─► this node ─┬─► `nacre backup take`, for what this node serves
//!                                      └─► ShareMessage ─► each other node with the service, which does the same
//! GET …/active/ID/share/BACKUP ─► how many of them still do
//! ```
//!
//! Who asks has begun the backup, and completes it. What a node has taken is in the store, so that no outcome is agreed on or kept.
//!
//! *Invariant:* a request names a repository of the agreed state, never a folder or an address: nodes write only where somebody with the
//! right to back up has made a repository.

use crate::command::{Command, Target};
use crate::record::State;
use crate::reply::{Failure, body, ok, segment};
use crate::runner::own_uuid;
use crate::{Backup, ID, NAME, Outcome, endpoint, repository, settings};
use nacre_backup::SHARE_NUMBERS;
use nacre_node::service::HttpRequest;
use nacre_node::{NoReply, Node, PeerMessage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Processes of shares that run on a node at a time: each takes as many streams as a task.
const SHARES_MAX: usize = 4;
/// Ranges of numbers of objects: a share has one.
const RANGES: u32 = u32::MAX / SHARE_NUMBERS;
/// Digits of the id of a backup.
const ID_BYTES: usize = 26;
/// Time in which another node must answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a node is to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// ID of a repository.
    repository: String,
    /// ID of a backup that has been begun there.
    backup: String,
    bucket: String,
    has_history: bool,
    /// Megabytes in a second at most.
    limit_mb: Option<u32>,
    /// First number of the objects that the node writes.
    first_number: u32,
}

/// A message to the service of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShareMessage {
    /// Take what you serve.
    Begin(Share),
    /// Say whether you still take something for the backup of this ID.
    Look(String),
}

/// What a node does for a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShareReply {
    /// Processes that run.
    running: u32,
    /// Why not all was taken, for people.
    reasons: Vec<String>,
}

impl PeerMessage for ShareMessage {
    type Reply = ShareReply;

    const SERVICE: &'static str = ID;

    fn subject(&self) -> &'static str {
        "backup"
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<ShareReply, NoReply> {
        let shares = &Backup::of(node).runner.shares;
        Ok(match self {
            ShareMessage::Begin(share) => match begin_here(node, &share) {
                Ok(()) => ShareReply { running: 1, reasons: Vec::new() },
                Err(reason) => ShareReply { running: 0, reasons: vec![reason] },
            },
            ShareMessage::Look(backup) => shares.lock().of(&backup),
        })
    }
}

/// Shares of this node by backup and bucket: those that run, and how those of the newest backup have ended.
#[derive(Debug, Default)]
pub(crate) struct Shares(BTreeMap<(String, String), ShareState>);

#[derive(Debug, PartialEq, Eq)]
enum ShareState {
    Running,
    /// Why not all was taken; empty if all was.
    Ended(String),
}

impl Shares {
    fn of(&self, backup: &str) -> ShareReply {
        let mut reply = ShareReply::default();
        for (_, state) in self.0.iter().filter(|((known, _), _)| known == backup) {
            match state {
                ShareState::Running => reply.running += 1,
                ShareState::Ended(reason) if reason.is_empty() => {}
                ShareState::Ended(reason) => reply.reasons.push(reason.clone()),
            }
        }
        reply
    }

    /// Takes a place for a share. Returns false if it runs already.
    fn begin(&mut self, backup: &str, bucket: &str) -> Result<bool, String> {
        let key = (backup.to_owned(), bucket.to_owned());
        if self.0.get(&key) == Some(&ShareState::Running) {
            return Ok(false);
        }
        let is_running = |state: &ShareState| *state == ShareState::Running;
        if self.0.values().filter(|state| is_running(state)).count() >= SHARES_MAX {
            return Err("this node takes shares of other backups: try again".to_owned());
        }
        self.0.retain(|(known, _), state| is_running(state) || known == backup);
        self.0.insert(key, ShareState::Running);
        Ok(true)
    }

    fn end(&mut self, backup: &str, bucket: &str, reason: String) {
        let key = (backup.to_owned(), bucket.to_owned());
        self.0.insert(key, ShareState::Ended(reason));
    }
}

/// What a request asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    backup: String,
    bucket: String,
    #[serde(default)]
    history: bool,
    #[serde(default)]
    limit_mb: Option<u32>,
}

/// `POST …/active/{id}/share`: all nodes with the service take what they serve of a bucket.
pub(crate) fn begin(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let Wanted { backup, bucket, history, limit_mb } = body(request)?;
    check_id(&backup)?;
    let (repository, _) = repository::find(node, request, State::Active)?;
    if !node.cluster().buckets.contains_key(&bucket) {
        return Err(Failure::bad_request(format!("there is no bucket {bucket:?}")));
    }
    let range = random_range(&node.new_uuid());
    let message = |place: usize| {
        let range = 1 + (range + place as u32) % (RANGES - 1);
        ShareMessage::Begin(Share {
            repository: repository.id.clone(),
            backup: backup.clone(),
            bucket: bucket.clone(),
            has_history: history,
            limit_mb,
            first_number: range * SHARE_NUMBERS,
        })
    };
    Ok(ok(&ask_all(node, message)))
}

/// `GET …/active/{id}/share/{backup}`: what nodes do for a backup.
pub(crate) fn look(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    let backup = segment(request, 1);
    check_id(backup)?;
    repository::find(node, request, State::Active)?;
    Ok(ok(&ask_all(node, |_| ShareMessage::Look(backup.to_owned()))))
}

/// Sends a message to each node with the service, also to this one; returns what they do, by the sum of it.
fn ask_all(node: &Arc<Node>, message: impl Fn(usize) -> ShareMessage) -> Value {
    let cluster = node.cluster();
    let members = cluster.nodes.iter().filter(|(_, member)| member.services.contains(&NAME));
    let members: Vec<_> = members.map(|(id, member)| (*id, member.uuid.clone())).collect();
    let others: Vec<_> = members
        .iter()
        .enumerate()
        .filter(|(_, (id, _))| *id != node.id())
        .map(|(place, (id, uuid))| (uuid, node.ask(*id, &message(place), PATIENCE)))
        .collect();
    let mut replies = Vec::new();
    for (place, (_, uuid)) in members.iter().enumerate().filter(|(_, (id, _))| *id == node.id()) {
        let own = message(place).answer(node, PATIENCE);
        replies.push((uuid, own.map_err(reason)));
    }
    for (uuid, reply) in others {
        let reply = match reply.wait() {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(none)) => Err(reason(none)),
            Err(error) => Err(error.to_string()),
        };
        replies.push((uuid, reply));
    }
    let (mut running, mut refused) = (0, Vec::new());
    for (uuid, reply) in replies {
        let reasons = match reply {
            Ok(reply) => {
                running += reply.running;
                reply.reasons
            }
            Err(reason) => vec![reason],
        };
        refused.extend(reasons.iter().map(|reason| json!({"node": uuid, "reason": reason})));
    }
    json!({"running": running, "refused": refused})
}

/// Says why a node gives no reply.
fn reason(none: NoReply) -> String {
    match none {
        NoReply::NotOwner => "it does not serve all of these vBuckets".to_owned(),
        NoReply::NotYet(reason) => reason,
        NoReply::Failed(failure) => failure.message,
    }
}

/// Refuses what cannot be the id of a backup.
fn check_id(id: &str) -> Result<(), Failure> {
    let is_id = id.len() == ID_BYTES && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_id { Ok(()) } else { Err(Failure::bad_request("backup is the id of a backup")) }
}

/// A number that depends on a random UUID.
fn random_range(uuid: &str) -> u32 {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(7).collect();
    u32::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Takes what this node serves, in a thread.
fn begin_here(node: &Arc<Node>, share: &Share) -> Result<(), String> {
    let Share { backup, bucket, .. } = share;
    let command = command(node, share)?;
    let runner = Arc::clone(&Backup::of(node).runner);
    if !runner.shares.lock().begin(backup, bucket)? {
        return Ok(());
    }
    let (own, share) = (Arc::clone(&runner), share.clone());
    let thread = std::thread::Builder::new().name("backup-share".to_owned());
    let spawned = thread.spawn(move || {
        let reason = match own.run_share(&command) {
            Ok(reported) => reported,
            Err(reason) => reason,
        };
        own.shares.lock().end(&share.backup, &share.bucket, reason);
    });
    spawned.map(drop).map_err(|error| {
        let reason = format!("no thread can be started: {error}");
        runner.shares.lock().end(backup, bucket, reason.clone());
        reason
    })
}

/// The command that takes a share.
///
/// # Errors
/// Why this node does not take it.
fn command(node: &Arc<Node>, share: &Share) -> Result<Command, String> {
    let Share { repository: id, backup, bucket, has_history, limit_mb, first_number } = share;
    let cluster = node.cluster();
    let own = cluster.nodes.get(&node.id()).filter(|own| own.services.contains(&NAME));
    own.ok_or("this node does not have the service backup")?;
    let runner = &Backup::of(node).runner;
    let found = runner.repository(node, State::Active, id);
    let (repository, _) = found.map_err(|failure| failure.message)?;
    let only = repository.bucket.as_ref().map(|only| &only.name);
    if only.is_some_and(|only| only != bucket) {
        return Err(format!("the repository {id} is not for the bucket {bucket}"));
    }
    if repository::is_of_node(node, &repository.archive) {
        return Err("the archive is in the data directory of this node".to_owned());
    }
    let uuid = own_uuid(&cluster, node).unwrap_or_default();
    let mut command = Command::new(["backup", "take"])
        .with(format!("--threads={}", settings::own_threads(node, &uuid)))
        .with(format!("--bucket={bucket}"))
        .with(format!("--first-number={first_number}"));
    if *has_history {
        command = command.with("--history");
    }
    if let Some(limit_mb) = limit_mb {
        command = command.with(format!("--limit-mb={limit_mb}"));
    }
    let store = endpoint::variables(node, &repository.cloud)?;
    let command = command.with("--").with(repository.place()).with(backup.as_str());
    Ok(command.on(&Target::own(node)?).in_store(&store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_runs_once_and_its_outcome_is_known_until_the_next_backup() {
        let mut shares = Shares::default();
        assert_eq!(shares.begin("1", "a"), Ok(true));
        assert_eq!(shares.begin("1", "a"), Ok(false), "it runs already");
        assert_eq!(shares.begin("1", "b"), Ok(true));
        assert_eq!(shares.of("1"), ShareReply { running: 2, reasons: Vec::new() });
        shares.end("1", "a", String::new());
        shares.end("1", "b", "no room".to_owned());
        assert_eq!(shares.of("1"), ShareReply { running: 0, reasons: vec!["no room".to_owned()] });
        assert_eq!(shares.begin("1", "b"), Ok(true), "a vBucket may have come meanwhile");
        assert_eq!(shares.begin("2", "a"), Ok(true));
        assert_eq!(shares.0.len(), 2, "outcomes of other backups are forgotten");
        for bucket in ["b", "c"] {
            assert_eq!(shares.begin("2", bucket), Ok(true));
        }
        assert!(shares.begin("2", "d").unwrap_err().contains("try again"));
    }

    #[test]
    fn ids_are_plain_and_ranges_of_numbers_fit() {
        assert!(check_id("01J00000000000000000000000").is_ok());
        for id in ["", "01J", "01J0000000000000000000000/", "--force-force-force-force-"] {
            assert!(check_id(id).is_err(), "{id}");
        }
        assert_eq!(random_range("ffffffff-0000"), 0x0fff_ffff);
        let last = 1 + (random_range("ffffffff") + 64) % (RANGES - 1);
        let first = last.checked_mul(SHARE_NUMBERS);
        assert!(first.is_some_and(|first| first.checked_add(SHARE_NUMBERS - 1).is_some()));
        assert!((RANGES - 1).checked_mul(SHARE_NUMBERS).is_some());
    }
}
