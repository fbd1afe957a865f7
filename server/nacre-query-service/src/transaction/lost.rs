//! Lost transactions: their client or their node has ended. Each node cleans up the records that it serves, both of
//! statements and of SDKs. SDKs may clean up at the same time: each write requires a CAS, so only one of them
//! succeeds.

use super::attempt::Attempt;
use super::changes::Place;
use super::record::{ATTEMPTS, Entry, is_id};
use super::step::{Step, StepReply};
use super::stored::{Stored, answer_step, records_in};
use nacre_bucket::Bucket;
use nacre_node::Node;
use nacre_sandbox::DatabaseKeyspace;
use nacre_types::{CollectionId, Vbid, Vbids};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Minimum time since the expiry of a transaction. Its client may still be about to end it, and clocks differ.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum time of a step.
const PATIENCE: Duration = Duration::from_secs(10);

/// Finishes expired transactions whose records are in vBuckets that this node serves. Returns their number. May block
/// on other nodes: do not call it on a thread for which others wait.
pub fn finish_lost_transactions(node: &Arc<Node>) -> usize {
    let buckets: Vec<Arc<Bucket>> = node.buckets();
    buckets.iter().map(|bucket| finish_lost_of(node, bucket)).sum()
}

fn finish_lost_of(node: &Arc<Node>, bucket: &Arc<Bucket>) -> usize {
    let (now, manifest) = (node.now(), bucket.manifest());
    let served = |vbid: &Vbid| bucket.serves(&[*vbid].into_iter().collect(), now);
    let vbids: Vbids = (0..bucket.vbucket_count()).map(Vbid).filter(served).collect();
    let mut finished = 0;
    for scope in &manifest.scopes {
        for collection in &scope.collections {
            let keyspace = DatabaseKeyspace {
                bucket: bucket.name.clone(),
                scope: scope.name.clone(),
                collection: collection.name.clone(),
            };
            let id = CollectionId(collection.id);
            for key in records_in(bucket, id, &vbids, now) {
                let record = Place { keyspace: keyspace.clone(), id: key.clone() };
                finished += finish_those_of(node, bucket, &record);
            }
        }
    }
    finished
}

fn finish_those_of(node: &Arc<Node>, bucket: &Arc<Bucket>, record: &Place) -> usize {
    let path = format!("{}.{}", record.keyspace.scope, record.keyspace.collection);
    let look = Step::Look(vec![ATTEMPTS.into()]);
    let reply = answer_step(node, bucket, &path, record.id.as_bytes(), &look, PATIENCE);
    let Ok(StepReply::Looked(looked)) = reply else { return 0 };
    let Some(Some(entries)) = looked.found.first() else { return 0 };
    let entries: BTreeMap<String, Value> = serde_json::from_slice(entries).unwrap_or_default();
    let stored = Stored { node, patience: PATIENCE };
    let now_ns = node.now().unix_ns;
    let lost = entries.iter().filter_map(|(attempt, value)| {
        let entry = Entry::read(value).filter(|_| is_id(attempt))?;
        (entry.is_over(now_ns, GRACE) && !entry.is_of_newer).then_some((attempt, entry))
    });
    let finished = lost.filter(|(id, entry)| {
        let attempt = Attempt {
            transaction: entry.transaction.clone(),
            id: (*id).clone(),
            records: None,
            record: Some(record.clone()),
            durability: entry.durability,
        };
        let is_finished = attempt.finish(entry, &stored);
        tracing::info!(attempt = %id, state = %entry.state, is_finished, "lost transaction");
        is_finished
    });
    finished.count()
}
