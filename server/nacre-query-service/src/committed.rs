//! Committed documents, without the changes of a transaction. Calls go to the node that serves each vBucket.

use super::failure::{code, retry};
use super::footprint::Footprint;
use super::message::{CollectionCall, QueryMessage, QueryReply};
use super::part::unexpected;
use super::session::{PAGE_BYTES, path};
use super::transaction::Durability;
use crate::NodeQueries;
use nacre_node::Node;
use nacre_node::scatter_gather::{Owners, ScatterRequest, Vbids};
use nacre_sandbox::{DatabaseKeyspace, Failure, Mutation, Row, RowRefusal};
use nacre_types::Vbid;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time to count documents.
const COUNT_PATIENCE: Duration = Duration::from_secs(10);

/// Access of a request to committed documents.
#[derive(Clone, Copy)]
pub(super) struct Committed<'a> {
    pub node: &'a Arc<Node>,
    pub footprint: &'a Footprint,
}

impl Committed<'_> {
    /// Returns documents by ID, in the order of the IDs.
    pub fn read(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        left: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        self.by_id(owners, keyspace, ids, left, CollectionCall::Fetch, |answer| match answer {
            QueryReply::Fetched(rows) => Some(rows),
            _ => None,
        })
    }

    /// Returns extended attributes by ID, in the order of the IDs.
    pub fn attributes(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        names: &[String],
        left: Duration,
    ) -> Result<Vec<Option<String>>, Failure> {
        let call = |ids| CollectionCall::Attributes(ids, names.to_vec());
        self.by_id(owners, keyspace, ids, left, call, |answer| match answer {
            QueryReply::Attributes(found) => Some(found),
            _ => None,
        })
    }

    /// Requests something for each ID from the node that serves its vBucket, and retries while vBuckets move.
    /// Returns the results in the order of the IDs.
    fn by_id<T>(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        left: Duration,
        ask_for: impl Fn(Vec<String>) -> CollectionCall,
        taken: impl Fn(QueryReply) -> Option<Vec<Option<T>>>,
    ) -> Result<Vec<Option<T>>, Failure> {
        let mut all: Vec<Option<T>> = ids.iter().map(|_| None).collect();
        let mut missing: Vec<(Vbid, usize)> =
            ids.iter().enumerate().map(|(at, id)| (owners.vbid_of(id.as_bytes()), at)).collect();
        while !missing.is_empty() {
            let those = |vbids: &Vbids| -> Vec<usize> {
                let asked = missing.iter().filter(|(vbid, _)| vbids.contains(*vbid));
                asked.map(|(_, at)| *at).collect()
            };
            let call = |vbids: &Vbids| {
                ask_for(those(vbids).into_iter().map(|at| ids[at].clone()).collect())
            };
            let wanted = missing.iter().map(|(vbid, _)| *vbid).collect();
            let mut is_answered = vec![false; ids.len()];
            for (vbids, answer) in self.ask(keyspace, wanted, &call, left)? {
                let found = taken(answer).ok_or_else(unexpected)?;
                for (at, one) in those(&vbids).into_iter().zip(found) {
                    (all[at], is_answered[at]) = (one, true);
                }
            }
            missing.retain(|(_, at)| !is_answered[*at]);
        }
        Ok(all)
    }

    /// Returns documents by vBucket and ID after `after`, and true if there are no more.
    pub fn scan(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        left: Duration,
    ) -> Result<(Vec<Row>, bool), Failure> {
        self.footprint.note(&keyspace.bucket);
        let first = after.map_or(Vbid(0), |id| owners.vbid_of(id.as_bytes()));
        let mut rows: Vec<Row> = Vec::new();
        for vbid in owners.all().iter().filter(|vbid| *vbid >= first) {
            let mut after = after.filter(|_| vbid == first).map(str::to_owned);
            loop {
                let call = |_: &Vbids| CollectionCall::Scan {
                    asker: self.footprint.asker,
                    vbid,
                    after: after.clone(),
                    bodies,
                    limit: limit - rows.len(),
                };
                let answer = self.ask(keyspace, [vbid].into_iter().collect(), &call, left)?.pop();
                let Some((_, QueryReply::Scanned(scanned, is_whole))) = answer else {
                    return Err(unexpected());
                };
                rows.extend(scanned);
                let bytes: usize = rows.iter().map(|row| row.body.len()).sum();
                if rows.len() >= limit || bytes >= PAGE_BYTES {
                    return Ok((rows, false));
                }
                if is_whole {
                    break;
                }
                after = rows.last().map(|row| row.id.clone()).or(after);
            }
        }
        Ok((rows, true))
    }

    /// Returns the number of documents.
    pub fn count(&self, owners: &Owners, keyspace: &DatabaseKeyspace) -> Result<u64, Failure> {
        self.sum(owners, keyspace, CollectionCall::Count)
    }

    /// Returns the sum of the last seqnos of the collection over all vBuckets.
    pub fn changes(&self, owners: &Owners, keyspace: &DatabaseKeyspace) -> Result<u64, Failure> {
        self.sum(owners, keyspace, CollectionCall::Changes)
    }

    /// Asks all owners of a collection for a number, and returns the sum.
    fn sum(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        of: fn(Vbids) -> CollectionCall,
    ) -> Result<u64, Failure> {
        let call = |vbids: &Vbids| of(vbids.clone());
        let counts = self.ask(keyspace, owners.all(), &call, COUNT_PATIENCE)?;
        let count = |(_, answer): (_, QueryReply)| match answer {
            QueryReply::Count(count) => Ok(count),
            _ => Err(unexpected()),
        };
        counts.into_iter().map(count).sum()
    }

    /// Applies mutations independently of each other.
    pub fn write(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        mutations: &[Mutation],
        durability: Durability,
        left: Duration,
    ) -> Result<Vec<Result<u64, RowRefusal>>, Failure> {
        let mut outcomes: Vec<Option<Result<u64, RowRefusal>>> = vec![None; mutations.len()];
        let vbid_of = |at: usize| owners.vbid_of(mutations[at].id.as_bytes());
        loop {
            let missing: Vec<usize> =
                (0..mutations.len()).filter(|at| outcomes[*at].is_none()).collect();
            if missing.is_empty() {
                return Ok(outcomes.into_iter().flatten().collect());
            }
            let those = |vbids: &Vbids| -> Vec<usize> {
                missing.iter().copied().filter(|at| vbids.contains(vbid_of(*at))).collect()
            };
            let call = |vbids: &Vbids| {
                let those = those(vbids).into_iter();
                CollectionCall::Mutate(those.map(|at| mutations[at].clone()).collect(), durability)
            };
            let wanted = missing.iter().map(|at| vbid_of(*at)).collect();
            for (vbids, answer) in self.ask(keyspace, wanted, &call, left)? {
                let QueryReply::Mutated(results) = answer else { return Err(unexpected()) };
                those(&vbids)
                    .into_iter()
                    .zip(results)
                    .for_each(|(at, result)| outcomes[at] = result);
            }
        }
    }

    /// Sends a call about a collection to the node that serves each vBucket.
    fn ask(
        &self,
        keyspace: &DatabaseKeyspace,
        vbids: Vbids,
        call: &dyn Fn(&Vbids) -> CollectionCall,
        left: Duration,
    ) -> Result<Vec<(Vbids, QueryReply)>, Failure> {
        let question = |vbids: &Vbids| QueryMessage::Collection {
            bucket: keyspace.bucket.clone(),
            path: path(keyspace),
            call: call(vbids),
        };
        let want = ScatterRequest { vbids, message: Box::new(question) };
        let gathered = self.node.gather(&keyspace.bucket, &[want], left);
        let gathered = gathered.map_err(|reason| retry(code::INTERNAL, reason))?;
        self.node.queries().vitals().add_document_touches(gathered.len());
        let answers = gathered.into_iter().map(|gathered| match gathered.reply {
            Err(failure) => Err(failure.into()),
            Ok(reply) => Ok((gathered.vbids, reply)),
        });
        answers.collect()
    }
}
