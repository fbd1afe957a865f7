//! Where functions stand in the history of each vBucket, as nodes tell each other: what one has handled no other handles
//! again when the vBucket comes to it.
//!
//! ```text
//! feed ─► Deployment::places ─┬─► each second to all nodes       a node that is lost has told where it stood
//!                             └─► to who asks (Question::Places)  a node that serves on waits until this one has stopped
//! ```

use super::{Deployment, Plugins};
use crate::node::Node;
use crate::spread::{Answer, Question};
use nacre_dcp::ResumePoint;
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long nodes that are asked have to answer, each time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Points by vBucket.
pub type Points = BTreeMap<Vbid, ResumePoint>;

/// What other nodes have said, by the space of the deployment.
#[derive(Debug, Default)]
pub struct Places(Mutex<BTreeMap<String, Points>>);

impl Places {
    /// Another node stands there.
    pub fn hear(&self, space: &str, told: &Points) {
        let mut known = self.0.lock();
        advance(known.entry(space.to_owned()).or_default(), told);
    }

    fn of(&self, space: &str) -> Points {
        self.0.lock().get(space).cloned().unwrap_or_default()
    }

    /// Forgets deployments that there are no more.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().retain(|space, _| is_there(space));
    }
}

/// Brings `known` to where `told` is, if that is further.
fn advance(known: &mut Points, told: &Points) {
    for (vbid, point) in told {
        let known = known.entry(*vbid).or_default();
        if known.seqno < point.seqno {
            *known = *point;
        }
    }
}

/// What the nodes say of a deployment.
#[derive(Debug, Default)]
pub struct Heard {
    /// How far somebody has come.
    pub points: Points,
    /// vBuckets with which somebody has not finished.
    pub busy: Vec<Vbid>,
}

impl Deployment {
    /// What it says to a node that asks.
    pub(super) fn told(&self) -> Answer {
        let points = self.places.lock().clone();
        let is_busy = |vbid: &Vbid| !self.is_ended() && self.coverage.is_known(*vbid);
        let vbids = (0..self.bucket.vbucket_count()).map(Vbid);
        Answer::Places(points, vbids.filter(is_busy).collect())
    }

    /// Asks all other nodes how far they have come. One that cannot be reached does nothing more, or hears of it first that
    /// it has lost its vBuckets; what it said last is known.
    pub(super) fn ask_places(&self, node: &Arc<Node>) -> Heard {
        let question = Question::Places(self.name.clone(), self.spec.space.clone());
        let others = node.others().into_iter();
        let asked: Vec<_> =
            others.map(|other| node.ask(other, question.clone(), PATIENCE)).collect();
        let mut heard =
            Heard { points: node.plugins().places.of(&self.spec.space), busy: Vec::new() };
        for answer in asked {
            if let Ok(Answer::Places(points, busy)) = node.answered(&answer) {
                advance(&mut heard.points, &points);
                heard.busy.extend(busy);
            }
        }
        heard
    }

    /// Tells all other nodes how far this one has come.
    pub(super) fn tell_places(&self, node: &Arc<Node>, points: &Points) {
        for other in node.others() {
            let told = Question::Told(self.spec.space.clone(), points.clone());
            // Nobody waits for the answer.
            drop(node.ask(other, told, PATIENCE));
        }
    }
}

impl Plugins {
    /// Answers a node that asks how far a deployment has come here.
    pub(crate) fn answer_places(&self, name: &str, space: &str) -> Answer {
        let deployment = self.deployment(name).filter(|found| found.spec.space == space);
        deployment.map_or(Answer::Places(Points::new(), Vec::new()), |found| found.told())
    }
}
