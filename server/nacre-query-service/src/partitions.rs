//! Chooses the node for each partition of an index.
//!
//! The nodes that should have the partition are asked first, and then all others, one at a time: its new node may not
//! have built it yet, and the previous node may still have it.

use super::consistency::Wanted;
use super::failure::{code, failure, retry};
use super::index_merge::Source;
use super::message::{IndexPart, QueryMessage, QueryReply};
use crate::NodeQueries;
use nacre_cluster::Index;
use nacre_node::block;
use nacre_node::scatter_gather::{
    NoReply, PeerFailure, PeerMessage, PendingReply, ScatterRequest, UNREACHED_PATIENCE, Vbids,
};
use nacre_plugins_service::End;
use nacre_sandbox::Failure;
use nacre_types::NodeId;
use std::collections::VecDeque;
use std::time::Duration;

/// Time limit of a node before another one is asked that may have a copy.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before the nodes are asked again, unless the cluster changes sooner.
const PAUSE: Duration = Duration::from_millis(20);

/// The reply about a partition, or why the service failed there.
type PartitionReply = Result<QueryReply, PeerFailure>;

/// A request to one of several nodes.
struct PartitionRequest {
    /// Index of the part.
    part: usize,
    /// Nodes to ask next.
    nodes: VecDeque<NodeId>,
}

impl IndexPart {
    /// Returns the end of each vBucket that an index must have reached.
    pub(super) fn wanted(&self, wanted: Wanted) -> Vec<End> {
        match wanted {
            Wanted::Anything => Vec::new(),
            Wanted::Everything => self.ends.clone(),
            Wanted::Vector(vector) => {
                let end = |(vbid, seqno)| End { vbid, branch: None, seqno };
                vector.into_iter().map(end).collect()
            }
        }
    }
}

impl Source<'_> {
    /// Requests partitions of an index from the nodes that have them. Returns the answers in the order of `parts`.
    ///
    /// # Errors
    /// Fails if some partitions are not available.
    pub(super) fn ask_holders(
        &self,
        index: &Index,
        parts: &mut [IndexPart],
    ) -> Result<Vec<PartitionReply>, Failure> {
        let begun_ns = self.node.now().monotonic_ns;
        let mut answers: Vec<Option<PartitionReply>> = parts.iter().map(|_| None).collect();
        loop {
            let passed_ns = self.node.now().monotonic_ns.saturating_sub(begun_ns);
            let passed = Duration::from_nanos(passed_ns);
            let left = self.left.saturating_sub(passed);
            let changed = self.node.map_changed();
            self.look_at_ends(parts, left)?;
            let is_built = self.round(index, parts, &mut answers, left);
            if answers.iter().all(Option::is_some) {
                return Ok(answers.into_iter().flatten().collect());
            }
            let (reason, patience) = match is_built {
                true => ("No node has the index", self.left.min(UNREACHED_PATIENCE)),
                false => ("The index did not catch up before the request timed out", self.left),
            };
            if passed >= patience || self.node.is_stopping() {
                return Err(retry(code::TIMEOUT, reason));
            }
            block::on(&*self.node.platform, changed, PAUSE.min(left));
        }
    }

    /// Asks each node once for missing partitions, until one answers. Returns true if none of the nodes is still
    /// building one.
    fn round(
        &self,
        index: &Index,
        parts: &[IndexPart],
        answers: &mut [Option<PartitionReply>],
        left: Duration,
    ) -> bool {
        let asked = self.node.cluster().asked_for(index);
        let nodes = |part: &IndexPart| {
            let nodes = part.partition.and_then(|partition| asked.get(usize::from(partition)));
            nodes.cloned().unwrap_or_default().into()
        };
        let missing = (0..parts.len()).filter(|part| answers[*part].is_none());
        let mut requests: Vec<PartitionRequest> =
            missing.map(|part| PartitionRequest { part, nodes: nodes(&parts[part]) }).collect();
        let mut is_built = true;
        while !requests.is_empty() {
            let mut here = Vec::new();
            let mut there: Vec<(usize, PendingReply<QueryMessage>)> = Vec::new();
            requests.retain_mut(|PartitionRequest { part, nodes }| {
                let Some(node) = nodes.pop_front() else { return false };
                let question = QueryMessage::Index(parts[*part].clone());
                if node == self.node.id() {
                    here.push((*part, question));
                } else {
                    self.holders.lock().insert(node);
                    there.push((*part, self.node.ask(node, &question, left.min(PATIENCE))));
                }
                true
            });
            self.node.queries().vitals().add_index_touches(here.len() + there.len());
            // Other nodes work while this node does its part.
            let here = here
                .into_iter()
                .map(|(part, question)| (part, Ok(question.answer(self.node, left))));
            let replies: Vec<_> = here.collect();
            let there = there.into_iter().map(|(part, reply)| (part, reply.wait()));
            for (part, answer) in replies.into_iter().chain(there) {
                match answer {
                    Ok(Err(NoReply::NotYet(_))) => is_built = false,
                    Ok(Err(NoReply::NotOwner)) | Err(_) => {}
                    Ok(Err(NoReply::Failed(failure))) => answers[part] = Some(Err(failure)),
                    Ok(Ok(reply)) => answers[part] = Some(Ok(reply)),
                }
            }
            requests.retain(|request| answers[request.part].is_none());
        }
        is_built
    }

    /// Looks up the ends of the vBuckets, if the index must have reached them.
    fn look_at_ends(&self, parts: &mut [IndexPart], left: Duration) -> Result<(), Failure> {
        let Some(part) = parts.first() else { return Ok(()) };
        if Wanted::read(&part.consistency, self.bucket)? != Wanted::Everything {
            return Ok(());
        }
        let question = |vbids: &Vbids| QueryMessage::Ends(self.bucket.to_owned(), vbids.clone());
        let want = ScatterRequest { vbids: part.vbids.clone(), message: Box::new(question) };
        let gathered = self.node.gather(self.bucket, &[want], left);
        let gathered = gathered.map_err(|reason| retry(code::INDEX_FAILURE, reason))?;
        let mut ends = Vec::new();
        for reply in gathered {
            match reply.reply {
                Ok(QueryReply::Ends(found)) => ends.extend(found),
                Err(failure) => return Err(failure.into()),
                _ => return Err(failure(code::INTERNAL, "a node sent an unexpected reply")),
            }
        }
        parts.iter_mut().for_each(|part| part.ends.clone_from(&ends));
        Ok(())
    }
}
