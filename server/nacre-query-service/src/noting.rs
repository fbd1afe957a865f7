//! Access of requests to notes: their user's notes, or all notes for users who manage requests.
//!
//! The second word of a prepared statement's key is its user, with `%` and `/` percent-encoded. Other notes belong to the user of
//! the request that made them, and an order to stop a request belongs to the user of that request. Settings of the service are
//! visible to all, and administrators of the cluster change them. Statistics of a keyspace are visible to its readers, and are
//! stored separately ([`statistics`]).

use super::message::{QueryMessage, QueryReply};
use super::notes::Note;
use super::requester::Requester;
use super::settings::QuerySettings;
use super::statistics::{self, STATISTICS};
use crate::NodeQueries;
use nacre_auth::{Keyspace, Privilege};
use nacre_node::Node;
use parking_lot::Mutex;
use std::time::Duration;

/// First word of the keys of prepared statements.
const PREPARED: &str = "prepared/";

/// First word of the keys of running requests. Their notes are removed with the request.
const RUNNING: &str = "request/";

/// First word of the keys of orders to stop a request.
const STOP: &str = "stop/";

/// First word of the keys of the service's settings.
const SETTINGS: &str = "settings/";

/// Time limit for another node to answer whether it has a prepared statement.
const NOTE_PATIENCE: Duration = Duration::from_secs(1);

/// Notes that are removed with their request.
#[derive(Default)]
pub(super) struct RequestNotes {
    keys: Mutex<Vec<String>>,
    /// JSON that the instance recorded when the request began.
    description: Mutex<Option<Vec<u8>>>,
}

impl RequestNotes {
    /// Returns the description that the instance has noted of the request, until the request ends.
    pub fn described(&self, node: &Node) -> Option<serde_json::Value> {
        let keys = self.keys.lock();
        let note = node.queries().notes.get(keys.first()?)?;
        serde_json::from_slice(&note.value).ok()
    }

    /// Takes the description that the instance recorded when the request began.
    pub fn take_description(&mut self) -> Option<Vec<u8>> {
        self.description.get_mut().take()
    }

    /// Removes the notes at the end of the request.
    pub fn end(&mut self, node: &Node) {
        for key in std::mem::take(self.keys.get_mut()) {
            node.queries().notes.remove(&key);
        }
    }

    /// Stores or removes a note, if the user may do that.
    pub fn make(&self, requester: &Requester, key: &str, value: Option<Vec<u8>>) {
        if key.starts_with(STATISTICS) {
            return;
        }
        let Some(owner) = owner_of(requester, key) else { return };
        if let (true, Some(value)) = (key.starts_with(RUNNING), &value) {
            self.keys.lock().push(key.to_owned());
            *self.description.lock() = Some(value.clone());
        }
        if key.starts_with(PREPARED) && value.is_none() {
            return forget_everywhere(requester, key);
        }
        requester.node.queries().notes.set(key, &owner, value);
    }
}

/// Returns a note, if it exists and the user may see it.
pub(super) fn recall(requester: &Requester, key: &str) -> Option<Vec<u8>> {
    let notes = &requester.node.queries().notes;
    if let Some(name) = key.strip_prefix(SETTINGS) {
        let own = notes.get(key).map(|note| note.value);
        return own.or_else(|| QuerySettings::of(&requester.node.cluster()).note(name));
    }
    let owner = owner_of(requester, key)?;
    if key.starts_with(STATISTICS) {
        return statistics::recall(&requester.node, key);
    }
    if let Some(note) = notes.get(key) {
        return (requester.user == note.owner || requester.manages_requests())
            .then_some(note.value);
    }
    if !key.starts_with(PREPARED) {
        return None;
    }
    // A client prepares a statement on one node and executes it on any.
    let question = QueryMessage::Note(key.to_owned());
    let others = requester.node.others().into_iter();
    let asked: Vec<_> =
        others.map(|other| requester.node.ask(other, &question, NOTE_PATIENCE)).collect();
    let found = asked.iter().find_map(|reply| match reply.wait() {
        Ok(Ok(QueryReply::Note(note))) => note,
        _ => None,
    });
    notes.set(key, &owner, found.clone());
    found
}

/// Returns the keys of the notes that the user sees.
pub(super) fn keys(requester: &Requester, prefix: &str) -> Vec<String> {
    let notes = &requester.node.queries().notes;
    if prefix.starts_with(STATISTICS) {
        return statistics::keys(requester, prefix);
    }
    notes.keys(prefix, (!requester.manages_requests()).then_some(requester.user.as_str()))
}

/// Returns the user to whom a note belongs or would belong; `None` if the request has no access to it.
fn owner_of(requester: &Requester, key: &str) -> Option<String> {
    let note = |key: &str| requester.node.queries().notes.get(key);
    if key.starts_with(SETTINGS) {
        let may = requester.may_in(Privilege::AdministerCluster, Keyspace::default());
        return may.then(String::new);
    }
    if key.starts_with(STATISTICS) {
        let keyspace = statistics::keyspace_of(key)?;
        return requester.may(Privilege::Query, &keyspace).then(String::new);
    }
    let owner = if let Some(rest) = key.strip_prefix(PREPARED) {
        decoded(rest.split_once('/')?.0)
    } else if let Some(id) = key.strip_prefix(STOP) {
        note(&format!("{RUNNING}{id}"))?.owner
    } else {
        note(key).map_or_else(|| requester.user.clone(), |Note { owner, .. }| owner)
    };
    (owner == requester.user || requester.manages_requests()).then_some(owner)
}

/// Removes a prepared statement from all nodes. It asks twice, because a node that had removed the statement may have copied it
/// again from one that had not.
fn forget_everywhere(requester: &Requester, key: &str) {
    for _ in 0..2 {
        requester.node.queries().notes.remove(key);
        let question = QueryMessage::Unnote(key.to_owned());
        let others = requester.node.others().into_iter();
        let asked: Vec<_> =
            others.map(|other| requester.node.ask(other, &question, NOTE_PATIENCE)).collect();
        // A node that does not answer is down, or removes it later.
        asked.iter().for_each(|reply| drop(reply.wait()));
    }
}

fn decoded(word: &str) -> String {
    word.replace("%2F", "/").replace("%25", "%")
}
