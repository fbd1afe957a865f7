//! Automatic statistics: a node repeats UPDATE STATISTICS after enough changes of a keyspace.
//!
//! ```text
//! record, with the changes at its time ─► changes now ─► enough of them? ─► UPDATE STATISTICS with the rights of its user
//! ```
//!
//! The node that serves vBucket 0 of the bucket does this for all nodes. Its statement replaces only the statistics that it found,
//! so that it does not bring back keys that a user has removed meanwhile. `system:tasks_cache` shows a scheduled task for each
//! keyspace, and the last refreshes of the node.

use super::eventing_queries::ask;
use super::requester::Requester;
use super::session::{Session, gone_by};
use super::settings::QuerySettings;
use super::statistics::{changes, described, record};
use crate::NodeQueries;
use nacre_auth::Privilege;
use nacre_cluster::Cluster;
use nacre_node::Node;
use nacre_sandbox::{DatabaseKeyspace, Failure};
use nacre_types::Now;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Number of changes up to which statistics are kept, even if that is a large share of the documents.
const CHANGES_MIN: u64 = 100;
/// Minimum time between two refreshes of a keyspace by a node. Each refresh invalidates plans.
const PAUSE: Duration = Duration::from_secs(300);
/// Maximum time of a refresh.
const PATIENCE: Duration = Duration::from_secs(300);

const NS_IN_MS: u64 = 1_000_000;

/// The last refresh of each keyspace by this node.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<BTreeMap<DatabaseKeyspace, Refresh>>);

/// A refresh.
#[derive(Clone)]
struct Refresh {
    /// The version of the statistics that it replaces.
    replaced: String,
    begun: Now,
    /// The end and the outcome; `None` while it runs.
    ended: Option<(Now, Result<(), Failure>)>,
}

/// The members of a record that a refresh needs.
struct Plan {
    version: String,
    statement: String,
    user: String,
    changes: u64,
    documents: u64,
}

impl Plan {
    /// Reads the record of a keyspace; `None` if it is of a version that did not refresh statistics.
    fn read(cluster: &Cluster, keyspace: &DatabaseKeyspace) -> Option<Plan> {
        let record = record(cluster, keyspace)?;
        let row: Value = serde_json::from_str(&record.body).ok()?;
        let refresh = &row["refresh"];
        Some(Plan {
            version: record.version.clone(),
            statement: statement(keyspace, refresh)?,
            user: refresh["user"].as_str()?.to_owned(),
            changes: refresh["changes"].as_u64()?,
            documents: row["docCount"].as_u64()?,
        })
    }

    /// Returns true if the statistics are outdated: more than [`CHANGES_MIN`] changes have followed, and they are at least `percent`
    /// of the documents.
    fn is_outdated(&self, changes: u64, percent: u64) -> bool {
        // After a failover, the number may be smaller.
        let changed = changes.abs_diff(self.changes);
        changed > CHANGES_MIN
            && changed.saturating_mul(100) >= self.documents.saturating_mul(percent)
    }
}

/// Returns the statement that collects all statistics of a keyspace again.
fn statement(keyspace: &DatabaseKeyspace, refresh: &Value) -> Option<String> {
    let keys: Vec<&str> = refresh["keys"].as_object()?.values().filter_map(Value::as_str).collect();
    if keys.is_empty() {
        return None;
    }
    let DatabaseKeyspace { bucket, scope, collection } = keyspace;
    let options = refresh.get("with").map(|with| format!(" WITH {with}")).unwrap_or_default();
    let keys = keys.join(", ");
    // Names of keyspaces contain no back quotes.
    Some(format!("UPDATE STATISTICS FOR `{bucket}`.`{scope}`.`{collection}`({keys}){options}"))
}

/// Collects outdated statistics again, of buckets whose first vBucket this node serves, and returns the number of keyspaces with
/// new statistics. Blocks while statements run: do not call it on a thread that other work needs.
pub fn refresh_statistics(node: &Arc<Node>) -> usize {
    let cluster = node.cluster();
    let settings = QuerySettings::of(&cluster);
    let refreshes = &node.queries().refreshes;
    let keyspaces = described(&cluster);
    refreshes.forget_others(&keyspaces);
    if !settings.refreshes_statistics {
        return 0;
    }
    let own = keyspaces.into_iter().filter(|keyspace| {
        let bucket = cluster.buckets.get(&keyspace.bucket);
        bucket.is_some_and(|bucket| {
            bucket.chains.first().is_some_and(|chain| chain.active() == Some(node.id()))
        })
    });
    let outdated = own.filter_map(|keyspace| {
        if refreshes.is_recent(&keyspace, node.now()) {
            return None;
        }
        let plan = Plan::read(&cluster, &keyspace)?;
        let changes = changes(node, &keyspace).ok()?;
        plan.is_outdated(changes, settings.refresh_percent).then_some((keyspace, plan))
    });
    outdated.filter(|(keyspace, plan)| refreshes.run(node, keyspace, plan)).count()
}

impl Refreshes {
    /// Returns true if the last refresh of the keyspace by this node began less than [`PAUSE`] ago.
    fn is_recent(&self, keyspace: &DatabaseKeyspace, now: Now) -> bool {
        let refreshes = self.0.lock();
        let since = |last: &Refresh| now.monotonic_ns.saturating_sub(last.begun.monotonic_ns);
        refreshes.get(keyspace).is_some_and(|last| Duration::from_nanos(since(last)) < PAUSE)
    }

    /// Runs the statement. Returns true if there are new statistics.
    fn run(&self, node: &Arc<Node>, keyspace: &DatabaseKeyspace, plan: &Plan) -> bool {
        let refresh = Refresh { replaced: plan.version.clone(), begun: node.now(), ended: None };
        self.0.lock().insert(keyspace.clone(), refresh);
        let outcome = collect(node, plan);
        let DatabaseKeyspace { bucket, scope, collection } = keyspace;
        match &outcome {
            Ok(()) => tracing::info!("collected statistics of {bucket}.{scope}.{collection} again"),
            Err(Failure { code, message, .. }) => tracing::warn!(
                "cannot collect statistics of {bucket}.{scope}.{collection} again: {message} ({code})"
            ),
        }
        let is_done = outcome.is_ok();
        if let Some(refresh) = self.0.lock().get_mut(keyspace) {
            refresh.ended = Some((node.now(), outcome));
        }
        is_done
    }

    /// Forgets refreshes of keyspaces that have no statistics any more.
    fn forget_others(&self, keyspaces: &[DatabaseKeyspace]) {
        self.0.lock().retain(|keyspace, _| keyspaces.contains(keyspace));
    }
}

fn collect(node: &Arc<Node>, plan: &Plan) -> Result<(), Failure> {
    let gone = Arc::new(AtomicBool::new(false));
    let session =
        Session::new(node, &plan.user, gone_by(&gone)).replacing_statistics(&plan.version);
    let mut body = Map::new();
    body.insert("statement".into(), plan.statement.as_str().into());
    body.insert("timeout".into(), format!("{}s", PATIENCE.as_secs()).into());
    body.insert("signature".into(), false.into());
    body.insert("metrics".into(), false.into());
    // The statement has no rows: it has ended when the first ones are read.
    ask(node, session, gone, body).map(drop)
}

/// Returns the rows of `system:tasks_cache` for keyspaces that the user may query. The instance turns `startMs` and `stopMs`,
/// milliseconds since 1970, into text.
pub(super) fn tasks(requester: &Requester) -> Vec<(String, Value)> {
    let node = &requester.node;
    let cluster = node.cluster();
    let keyspaces = described(&cluster);
    let refreshes = &node.queries().refreshes;
    let is_on = QuerySettings::of(&cluster).refreshes_statistics;
    let seen = keyspaces.iter().filter(|keyspace| requester.may(Privilege::Query, keyspace));
    let of = |keyspace: &DatabaseKeyspace| {
        let last = refreshes.0.lock().get(keyspace).cloned();
        let is_running = last.as_ref().is_some_and(|last| last.ended.is_none());
        let plan = Plan::read(&cluster, keyspace).filter(|_| is_on && !is_running);
        let next = plan.map(|plan| (plan.version, json!({"state": "scheduled"})));
        let last = last.map(|last| (last.replaced.clone(), last.describe(node)));
        let complete = |(id, mut row): (String, Value)| {
            let DatabaseKeyspace { bucket, scope, collection } = keyspace;
            row["id"] = id.as_str().into();
            row["class"] = "update_statistics".into();
            row["subClass"] = "automatic".into();
            row["name"] = format!("default:{bucket}.{scope}.{collection}").into();
            row["queryContext"] = "".into();
            (id, row)
        };
        // After a failure, both have the same ID.
        let next = next.filter(|(id, _)| last.as_ref().is_none_or(|(other, _)| other != id));
        last.into_iter().chain(next).map(complete).collect::<Vec<_>>()
    };
    seen.flat_map(of).collect()
}

impl Refresh {
    /// Returns the members of the task's row that describe how far it is.
    fn describe(&self, node: &Node) -> Value {
        let mut row = json!({
            "node": node.endpoints().management(),
            "state": "running",
            "startMs": self.begun.unix_ns / NS_IN_MS,
        });
        let Some((at, outcome)) = &self.ended else { return row };
        row["stopMs"] = (at.unix_ns / NS_IN_MS).into();
        let state = if outcome.is_ok() { "completed" } else { "failed" };
        row["state"] = state.into();
        if let Err(Failure { code, message, .. }) = outcome {
            row["results"] = json!([{"code": code, "message": message}]);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(changes: u64, documents: u64) -> Plan {
        let text = String::new;
        Plan { version: text(), statement: text(), user: text(), changes, documents }
    }

    #[test]
    fn statistics_are_outdated_after_a_share_of_changes_and_a_hundred_of_them() {
        assert!(!plan(500, 10).is_outdated(600, 10), "few changes, though of all documents");
        assert!(plan(500, 10).is_outdated(601, 10));
        assert!(!plan(500, 10_000).is_outdated(1_499, 10));
        assert!(plan(500, 10_000).is_outdated(1_500, 10));
        assert!(!plan(500, 10_000).is_outdated(1_500, 20));
        assert!(plan(1_500, 10_000).is_outdated(500, 10), "other nodes serve the vBuckets now");
    }

    #[test]
    fn a_refresh_repeats_all_keys_with_the_options_of_the_last_statement() {
        let keyspace = || DatabaseKeyspace {
            bucket: "shop".into(),
            scope: "_default".into(),
            collection: "orders".into(),
        };
        let refresh =
            json!({"keys": {"a": "`a`", "b": "`b` include missing"}, "with": {"sample_size": 5}});
        assert_eq!(
            statement(&keyspace(), &refresh).unwrap(),
            "UPDATE STATISTICS FOR `shop`.`_default`.`orders`(`a`, `b` include missing) WITH {\"sample_size\":5}"
        );
        let plain = statement(&keyspace(), &json!({"keys": {"a": "`a`"}})).unwrap();
        assert_eq!(plain, "UPDATE STATISTICS FOR `shop`.`_default`.`orders`(`a`)");
        for nothing in [json!({}), json!({"keys": {}}), Value::Null] {
            assert_eq!(statement(&keyspace(), &nothing), None);
        }
    }
}
