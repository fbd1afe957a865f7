//! Which copies are chosen to serve instead of lost nodes: of those that have said how far they are, none has acknowledged more.
//!
//! What a leader has of itself is not sent, and so not looked at.

use super::index;
use nacre_cluster::orchestrator::{Message, Standing};
use nacre_cluster::{Chain, Change};
use nacre_node::agreement::Proposal;
use nacre_types::NodeId;
use std::collections::BTreeMap;

/// What a node has said of its copies: which question that answers, and how far each copy is, by bucket and vBucket.
type Report = (u64, BTreeMap<String, BTreeMap<u16, Standing>>);

/// See the [module](self).
#[derive(Default)]
pub struct Choices {
    /// What was heard last, by who heard it and of whom it is.
    reports: BTreeMap<(usize, usize), Report>,
    /// How many decisions were looked at.
    judged: u64,
    /// The last term of each vBucket, by bucket and number.
    terms: BTreeMap<(String, u16), u64>,
}

impl Choices {
    /// A message of `from` has come to `to`.
    pub fn hear(&mut self, to: usize, from: usize, message: &[u8]) {
        if let Ok(Message::Report { number, standings, .. }) = postcard::from_bytes(message) {
            self.reports.insert((to, from), (number, standings));
        }
    }

    /// How many decisions were looked at.
    pub fn judged(&self) -> u64 {
        self.judged
    }

    /// The next decisions are these, made as `by` proposed the last. Gives the first that is not as it must be.
    pub fn judge(&mut self, by: Option<usize>, decisions: &[Proposal]) -> Option<String> {
        self.judged += decisions.len() as u64;
        let mut broken = None;
        for decision in decisions {
            let Proposal::Change(Change::MoveCopies { memberships, chains }) = decision else {
                continue;
            };
            let is_by_poll = !memberships.is_empty();
            for (bucket, chains) in chains {
                for (vbid, chain) in chains {
                    let term = self.terms.entry((bucket.clone(), *vbid)).or_insert(1);
                    let begins = chain.term > *term;
                    *term = chain.term.max(*term);
                    if begins
                        && is_by_poll
                        && let Some(by) = by
                        && let Some(better) = self.better(by, bucket, *vbid, chain)
                    {
                        let active = chain.active().map(index);
                        broken = broken.or(Some(format!(
                            "{active:?} serves vb {vbid} though {better} has acknowledged more"
                        )));
                    }
                }
            }
        }
        broken
    }

    /// A copy that was asked when the active one of `chain` was, and is better; none where it only goes on.
    fn better(&self, by: usize, bucket: &str, vbid: u16, chain: &Chain) -> Option<usize> {
        let said = |node: NodeId| {
            let (number, standings) = self.reports.get(&(by, index(node)))?;
            let standing = standings.get(bucket)?.get(&vbid)?;
            Some((number, standing.term, standing.prepared))
        };
        chain.chosen?;
        let (number, term, prepared) = said(chain.active()?)?;
        let is_better = |node: &NodeId| {
            said(*node).is_some_and(|(of, its_term, its_prepared)| {
                of == number && (its_term, its_prepared) > (term, prepared)
            })
        };
        chain.copies.iter().flatten().copied().find(is_better).map(index)
    }
}
