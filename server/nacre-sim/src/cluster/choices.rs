//! Checks the choice of copies in a failover: of the copies that were polled, none has acknowledged more than the chosen one,
//! and none has made history since its report.
//!
//! A leader's report of its own copies is not sent as a message, so it is not checked.

use super::index;
use nacre_cluster::orchestrator::{Message, Standing};
use nacre_cluster::{Chain, Change, NodeChange};
use nacre_node::agreement::Proposal;
use nacre_types::NodeId;
use std::collections::BTreeMap;

/// A node's report: the number of the poll, and the standing of each copy by bucket and vBucket.
type Report = (u64, BTreeMap<String, BTreeMap<u16, Standing>>);

/// See the [module](self).
#[derive(Default)]
pub struct Choices {
    /// The last report, by the receiving and the reporting node.
    reports: BTreeMap<(usize, usize), Report>,
    /// Number of decisions checked.
    judged: u64,
    /// The last term of each vBucket, by bucket and number.
    terms: BTreeMap<(String, u16), u64>,
}

impl Choices {
    /// Records a message that `to` has received from `from`.
    pub fn record(&mut self, to: usize, from: usize, message: &[u8]) {
        if let Ok(Message::Report { number, standings, .. }) = postcard::from_bytes(message) {
            self.reports.insert((to, from), (number, standings));
        }
    }

    /// Returns the number of decisions checked.
    pub fn judged(&self) -> u64 {
        self.judged
    }

    /// Checks the next decisions, the last of which `by` has proposed. Returns the first violation. `end` returns the current
    /// end of the history of a node's copy of a vBucket.
    pub fn judge(
        &mut self,
        by: Option<usize>,
        decisions: &[Proposal],
        end: impl Fn(usize, &str, u16) -> Option<u64>,
    ) -> Option<String> {
        self.judged += decisions.len() as u64;
        let mut broken = None;
        for decision in decisions {
            let Proposal::Change(Change::Nodes(NodeChange::MoveCopies { memberships, chains })) =
                decision
            else {
                continue;
            };
            let is_by_poll = !memberships.is_empty();
            for (bucket, chains) in chains {
                for (vbid, chain) in chains {
                    let term = self.terms.entry((bucket.clone(), *vbid)).or_insert(1);
                    let begins = chain.term > *term;
                    *term = chain.term.max(*term);
                    let Some(by) = by.filter(|_| begins && is_by_poll) else { continue };
                    let active = chain.active().map(index);
                    let mut breaks = |node, what| {
                        broken.get_or_insert_with(|| {
                            format!("{active:?} serves vb {vbid} though {node} has {what}")
                        });
                    };
                    if let Some(better) = self.better(by, bucket, *vbid, chain) {
                        breaks(better, "acknowledged more");
                    }
                    let end = |node| end(node, bucket, *vbid);
                    if let Some(node) = self.restless(by, bucket, *vbid, chain, end) {
                        breaks(node, "gone on since it said how far it is");
                    }
                }
            }
        }
        broken
    }

    /// Returns a better copy that was polled together with the active one of `chain`; `None` if the active copy was not
    /// newly chosen.
    fn better(&self, by: usize, bucket: &str, vbid: u16, chain: &Chain) -> Option<usize> {
        let best = |standing: &Standing| (standing.term, standing.prepared);
        let chosen = self
            .standings_of(by, bucket, vbid, chain)
            .next()
            .map(|(_, standing)| best(standing))?;
        let mut standings = self.standings_of(by, bucket, vbid, chain);
        standings.find(|(_, standing)| best(standing) > chosen).map(|(node, _)| node)
    }

    /// Returns a copy whose history has grown since its report.
    fn restless(
        &self,
        by: usize,
        bucket: &str,
        vbid: u16,
        chain: &Chain,
        end: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let mut standings = self.standings_of(by, bucket, vbid, chain);
        standings
            .find(|(node, standing)| end(*node) > Some(standing.high_seqno))
            .map(|(node, _)| node)
    }

    /// Returns the standings of the copies of `chain` that were polled together with the active one, which is the first; nothing
    /// if the active copy was not newly chosen.
    fn standings_of(
        &self,
        by: usize,
        bucket: &str,
        vbid: u16,
        chain: &Chain,
    ) -> impl Iterator<Item = (usize, &Standing)> {
        let standing_of = move |node: NodeId| {
            let (number, standings) = self.reports.get(&(by, index(node)))?;
            Some((*number, index(node), standings.get(bucket)?.get(&vbid)?))
        };
        // The last report need not be the one of the decision: the answer to an earlier poll may arrive after it.
        let chosen = chain.chosen.and_then(|chosen| {
            let is_chosen = |standing: &Standing| {
                (standing.term, standing.high_seqno) == (chosen.term, chosen.high_seqno)
            };
            standing_of(chain.active()?).filter(|(.., standing)| is_chosen(standing))
        });
        let of_chosen = chosen.map(|(number, ..)| number);
        let all = chain.copies.iter().flatten().copied().filter_map(standing_of);
        all.filter(move |(number, ..)| Some(*number) == of_chosen)
            .map(|(_, node, standing)| (node, standing))
    }
}
