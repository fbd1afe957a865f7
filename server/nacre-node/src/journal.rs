//! The event log of a node: events of the cluster since the node was started.
//!
//! Entries come from decisions of the nodes, which each node has, and from local events such as refused logins.
//! Numbers, components and descriptions equal those of Couchbase's system events if Couchbase has the event.

use crate::agreement::Proposal;
use nacre_auth::Edit;
use nacre_cluster::{
    BucketChange, Change, Cluster, ClusterChange, Membership, NodeChange, Outcome, SettingsChange,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::sync::Notify;

/// Maximum number of entries; the oldest are dropped first. Source: the smallest limit that Couchbase allows.
const ENTRIES_MAX: usize = 3000;

/// Milliseconds within which events of the same kind are counted as one.
const COUNTED_MS: u64 = 60_000;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// Number of the kind; equals that of Couchbase's system event if there is one.
    pub id: u32,
    /// The part of the server: `ns_server`, `data` or `security`.
    pub component: &'static str,
    /// `info`, `warn` or `error`.
    pub severity: &'static str,
    /// A short description.
    pub description: &'static str,
}

const fn kind(
    id: u32,
    component: &'static str,
    severity: &'static str,
    description: &'static str,
) -> EventKind {
    EventKind { id, component, severity, description }
}

/// A login was refused. Couchbase has no such event; it records refused logins in the audit log only.
pub const LOGIN_REFUSED: EventKind = kind(10_238, "security", "warn", "Login refused");
/// The node was started.
pub const STARTED: EventKind = kind(1, "ns_server", "info", "Service started");

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event on this node, counted from 1.
    pub number: u64,
    /// Time of the event, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// A UUID of version 4 that identifies the event.
    pub uuid: String,
    /// The kind.
    pub kind: EventKind,
    /// An object with the subject, such as the name of a bucket.
    pub attributes: Value,
}

/// The events of a node.
#[derive(Default)]
pub struct Journal {
    events: Mutex<(u64, VecDeque<Event>)>,
    added: Notify,
}

impl Journal {
    /// Adds an event. `seed` distinguishes its ID from those of other nodes and other starts.
    pub fn add(&self, kind: EventKind, attributes: Value, unix_ms: u64, seed: u128) {
        let mut events = self.events.lock();
        events.0 += 1;
        let number = events.0;
        if events.1.len() == ENTRIES_MAX {
            events.1.pop_front();
        }
        let uuid = version_4(seed, number);
        events.1.push_back(Event { number, unix_ms, uuid, kind, attributes });
        drop(events);
        self.added.notify_waiters();
    }

    /// Adds an event that others can cause as often as they like. If the newest event is of the same kind and less than
    /// a minute old, the new one only increments its count, so that it displaces no other event.
    pub fn add_counted(&self, kind: EventKind, attributes: Value, unix_ms: u64, seed: u128) {
        {
            let mut events = self.events.lock();
            let newest = events.1.back_mut().filter(|newest| {
                newest.kind == kind && unix_ms.saturating_sub(newest.unix_ms) < COUNTED_MS
            });
            if let Some(newest) = newest {
                let count = newest.attributes["count"].as_u64().unwrap_or(1) + 1;
                newest.attributes = attributes;
                newest.attributes["count"] = json!(count);
                return;
            }
        }
        self.add(kind, attributes, unix_ms, seed);
    }

    /// Returns the last `count` events after the event `after`, oldest first.
    pub fn last(&self, after: u64, count: usize) -> Vec<Event> {
        let events = self.events.lock();
        let known = events.1.iter().filter(|event| event.number > after).count();
        let newer = events.1.iter().filter(|event| event.number > after);
        newer.skip(known.saturating_sub(count)).cloned().collect()
    }

    /// Waits for the next event. The wait starts with the call.
    pub fn added(&self) -> tokio::sync::futures::Notified<'_> {
        self.added.notified()
    }
}

/// Returns a UUID of version 4 for the event `number`. It uses no randomness, so that events do not influence a
/// simulation.
fn version_4(seed: u128, number: u64) -> String {
    // The golden ratio, which maps neighbours far apart.
    const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let mixed = (seed ^ u128::from(number)).wrapping_mul(SPREAD);
    let digits = format!("{:032x}", mixed ^ (mixed >> 64));
    let [a, b, c, d, e] =
        [&digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..]];
    format!("{a}-{b}-4{c}-a{d}-{e}")
}

/// Returns the event for a proposal that was applied to `before`; `None` if it is of no interest to people.
pub(crate) fn event_of(proposal: &Proposal, before: &Cluster) -> Option<(EventKind, Value)> {
    let security = |id, description| kind(id, "security", "info", description);
    Some(match proposal {
        Proposal::Change(change) => return of_change(change, before),
        Proposal::Users(change) => match &change.edit {
            Edit::User(edit) if edit.creates => {
                (security(9223, "User added"), json!({"user": edit.name}))
            }
            Edit::Group { name, is_new: true, .. } => {
                (security(9225, "Group added"), json!({"group": name}))
            }
            Edit::User(_)
            | Edit::OwnPassword { .. }
            | Edit::Group { .. }
            | Edit::Grant { .. }
            | Edit::CreateToken(_)
            | Edit::RevokeToken { .. } => return None,
            Edit::RemoveUser { name, .. } => {
                (security(9224, "User deleted"), json!({"user": name}))
            }
            Edit::PutGroup(group) => (security(9225, "Group added"), json!({"group": group.name})),
            Edit::RemoveGroup(name) => (security(9226, "Group deleted"), json!({"group": name})),
            Edit::Restore(restored) => {
                let users: Vec<&str> = restored.users().map(|user| user.name.as_str()).collect();
                let groups = restored.groups.iter().map(|group| group.name.as_str());
                let groups: Vec<&str> = groups.collect();
                let event = security(9223, "Users and groups restored");
                (event, json!({"users": users, "groups": groups}))
            }
        },
        Proposal::PutUser(user) => (security(9223, "User added"), json!({"user": user.name})),
        Proposal::RemoveUser(name) => (security(9224, "User deleted"), json!({"user": name})),
        Proposal::PutGroup(group) => (security(9225, "Group added"), json!({"group": group.name})),
        Proposal::RemoveGroup(name) => (security(9226, "Group deleted"), json!({"group": name})),
        Proposal::SetPasswordPolicy(_) => (security(9222, "Password policy changed"), json!({})),
    })
}

fn of_change(change: &Change, before: &Cluster) -> Option<(EventKind, Value)> {
    let data = |id, description| kind(id, "data", "info", description);
    let cluster = |id, description| kind(id, "ns_server", "info", description);
    let is_failover = |rest: Membership| rest == Membership::FailedOver;
    Some(match change {
        Change::Nodes(NodeChange::PutNode { id, member }) if !before.nodes.contains_key(id) => (
            cluster(0, "Node successfully joined the cluster"),
            json!({"node_joined": member.endpoints.management()}),
        ),
        Change::Nodes(NodeChange::StartRebalance { id, rest, .. }) if is_failover(*rest) => {
            (cluster(6, "Graceful failover initiated"), json!({"operation_id": id}))
        }
        Change::Nodes(NodeChange::StartRebalance { id, .. } | NodeChange::BeginAgain { id }) => {
            (cluster(2, "Rebalance initiated"), json!({"operation_id": id}))
        }
        Change::Nodes(NodeChange::EndRebalance { .. } | NodeChange::StopRebalance) => {
            let rebalance = before.rebalance.as_ref()?;
            let ended = matches!(change, Change::Nodes(NodeChange::EndRebalance { .. }));
            let kind = match (is_failover(rebalance.rest), ended) {
                (true, true) => cluster(7, "Graceful failover completed"),
                (true, false) => cluster(9, "Graceful failover interrupted"),
                (false, true) => cluster(3, "Rebalance completed"),
                (false, false) => cluster(5, "Rebalance interrupted"),
            };
            (kind, json!({"operation_id": rebalance.id}))
        }
        Change::Nodes(NodeChange::FailOver { nodes }) => {
            (cluster(10, "Hard failover initiated"), json!({"nodes": names(before, nodes)}))
        }
        Change::Nodes(NodeChange::MoveCopies { memberships, .. }) => {
            let lost = memberships.iter().filter(|(_, part)| **part == Membership::FailedOver);
            let lost: Vec<_> = lost.map(|(id, _)| *id).collect();
            if lost.is_empty() {
                return None;
            }
            let asked_for = lost.iter().all(|id| before.failing_over.contains(id));
            let kind = match asked_for {
                true => cluster(11, "Hard failover completed"),
                false => cluster(15, "Auto failover completed"),
            };
            (kind, json!({"nodes": names(before, &lost)}))
        }
        Change::Nodes(NodeChange::DropNode { id }) => {
            (kind(25, "ns_server", "info", "Node removed"), json!({"nodes": names(before, &[*id])}))
        }
        Change::Buckets(BucketChange::CreateBucket { name, uuid, .. }) => {
            (data(8192, "Bucket created"), json!({"bucket": name, "bucket_uuid": uuid}))
        }
        Change::Buckets(BucketChange::DropBucket { name }) => {
            (data(8193, "Bucket deleted"), of_bucket(before, name))
        }
        Change::Buckets(BucketChange::FlushBucket { name }) => {
            (data(8198, "Bucket flushed"), of_bucket(before, name))
        }
        Change::Buckets(BucketChange::UpdateBucket { name, .. }) => {
            (data(8201, "Bucket configuration changed"), of_bucket(before, name))
        }
        Change::Buckets(BucketChange::CreateScope { bucket, scope }) => {
            (data(8194, "Scope created"), json!({"bucket": bucket, "scope": scope}))
        }
        Change::Buckets(BucketChange::DropScope { bucket, scope }) => {
            (data(8195, "Scope deleted"), json!({"bucket": bucket, "scope": scope}))
        }
        Change::Buckets(BucketChange::CreateCollection { bucket, scope, collection, .. }) => (
            data(8196, "Collection created"),
            json!({"bucket": bucket, "scope": scope, "collection": collection}),
        ),
        Change::Buckets(BucketChange::DropCollection { bucket, scope, collection }) => (
            data(8197, "Collection deleted"),
            json!({"bucket": bucket, "scope": scope, "collection": collection}),
        ),
        Change::Cluster(ClusterChange::ChangeSettings { change }) => {
            return of_settings(change, before);
        }
        _ => return None,
    })
}

fn of_settings(change: &SettingsChange, before: &Cluster) -> Option<(EventKind, Value)> {
    let security = |id, description| kind(id, "security", "info", description);
    let kind = match change {
        SettingsChange::Security(_) => security(9220, "Security config changed"),
        SettingsChange::Audit(audit) => match (before.settings.audit.enabled, audit.enabled) {
            (false, true) => security(9216, "Audit enabled"),
            (true, false) => security(9217, "Audit disabled"),
            _ => security(9218, "Audit configuration changed"),
        },
        _ => return None,
    };
    Some((kind, json!({})))
}

fn of_bucket(before: &Cluster, name: &str) -> Value {
    json!({"bucket": name, "bucket_uuid": before.buckets.get(name).map(|bucket| &bucket.uuid)})
}

fn names(cluster: &Cluster, nodes: &[nacre_types::NodeId]) -> Vec<String> {
    let known = nodes.iter().filter_map(|id| cluster.nodes.get(id));
    known.map(|node| node.endpoints.management()).collect()
}

/// Returns the event for a rebalance that failed between `before` and `after`, because nodes that it needed were lost.
pub(crate) fn failure(before: &Cluster, after: &Cluster) -> Option<(EventKind, Value)> {
    let ended = after.last_rebalance.as_ref().filter(|_| after.rebalance.is_none())?;
    let was = before.rebalance.as_ref()?;
    let failed = matches!(ended.outcome, Outcome::Failed { .. }) && was.id == ended.rebalance.id;
    let event = match was.rest {
        Membership::FailedOver => kind(8, "ns_server", "error", "Graceful failover failed"),
        _ => kind(4, "ns_server", "error", "Rebalance failed"),
    };
    failed.then(|| (event, json!({"operation_id": was.id})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::BucketSettings;

    #[test]
    fn the_oldest_events_leave_first_and_a_reader_continues_where_it_was() {
        let journal = Journal::default();
        for count in 0..ENTRIES_MAX as u64 + 5 {
            journal.add(LOGIN_REFUSED, json!({"count": count}), count, 7);
        }
        let all = journal.last(0, usize::MAX);
        assert_eq!((all.len(), all[0].number), (ENTRIES_MAX, 6));
        let numbers =
            |events: Vec<Event>| events.iter().map(|event| event.number).collect::<Vec<_>>();
        let last = ENTRIES_MAX as u64 + 5;
        assert_eq!(numbers(journal.last(0, 2)), [last - 1, last]);
        assert_eq!(numbers(journal.last(last - 1, 250)), [last]);
        assert_eq!(numbers(journal.last(last, 250)), [0; 0]);
        let uuids: std::collections::BTreeSet<&str> =
            all.iter().map(|event| event.uuid.as_str()).collect();
        assert_eq!(uuids.len(), ENTRIES_MAX);
        assert_eq!((all[0].uuid.len(), &all[0].uuid[14..15]), (36, "4"));
    }

    #[test]
    fn refused_logins_in_a_row_are_one_event_with_a_count() {
        let journal = Journal::default();
        for unix_ms in [0, 10, 59_999, 60_000] {
            journal.add_counted(LOGIN_REFUSED, json!({"ip": "::1"}), unix_ms, 7);
        }
        journal.add(STARTED, json!({}), 60_001, 7);
        journal.add_counted(LOGIN_REFUSED, json!({"ip": "::1"}), 60_002, 7);
        let counts: Vec<Value> =
            journal.last(0, 10).iter().map(|event| event.attributes["count"].clone()).collect();
        assert_eq!(counts, [json!(3), Value::Null, Value::Null, Value::Null]);
    }

    #[test]
    fn changes_of_interest_are_events() {
        let cluster = Cluster::new("c".into());
        let described = |change: Change| {
            let event = event_of(&Proposal::Change(change), &cluster);
            event.map(|(kind, attributes)| (kind.description, attributes))
        };
        let created = Change::Buckets(BucketChange::CreateBucket {
            name: "b".into(),
            uuid: "u".into(),
            settings: BucketSettings::default(),
        });
        let expected = json!({"bucket": "b", "bucket_uuid": "u"});
        assert_eq!(described(created), Some(("Bucket created", expected)));
        let moved = Change::Nodes(NodeChange::MoveCopies {
            memberships: Default::default(),
            chains: Default::default(),
        });
        assert_eq!(described(moved), None);
        assert_eq!(described(Change::Nodes(NodeChange::RenewMap)), None);
    }
}
