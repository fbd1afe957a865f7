//! Cooperation of a feed with the same deployment on other nodes: which node owns a vBucket, from where it continues,
//! and how far each node is. [`super::places`] has the messages.

use super::feed::Feed;
use super::places::{Copier, PlaceReports};
use nacre_dcp::ResumePoint;
use nacre_node::scatter_gather::UNREACHED_PATIENCE;
use nacre_sandbox::Error;
use nacre_types::{Seqno, Vbid};
use std::collections::BTreeMap;

/// Interval of progress reports to other nodes, in nanoseconds.
const TELL_NS: u64 = 1_000_000_000;
/// Interval of reports about all vBuckets, in nanoseconds: a node may have missed a report, or have new copies.
const TELL_ALL_NS: u64 = 10_000_000_000;
/// Lifetime of reports from other nodes, in nanoseconds.
const REPORTS_NS: u64 = 50_000_000;
/// Maximum time for another node to finish with a vBucket that it has lost, in nanoseconds; longer than a handler can
/// run.
pub(super) const OTHERS_PATIENCE_NS: u64 = 120_000_000_000;

/// The state of the cooperation with other nodes.
#[derive(Default)]
pub(super) struct Following {
    /// Time of the next report, and of the next report about all vBuckets.
    tell_at_ns: u64,
    tell_all_at_ns: u64,
    copier: Copier,
    /// Reports of other nodes, and when to ask again.
    reports: Option<(u64, PlaceReports)>,
    /// The time since when the feed waits for another node, by vBucket.
    waits_since_ns: BTreeMap<Vbid, u64>,
}

impl Feed {
    /// Returns the point from which the feed continues in a vBucket; `None` while another node has not finished with
    /// it or is further.
    pub(super) fn place(&mut self, vbid: Vbid) -> Result<Option<ResumePoint>, Error> {
        let own = self.partition.standing(vbid);
        if !self.deployment.spec.keeps_places() {
            return Ok(Some(own.point));
        }
        let Some(term) = self.bucket.served(vbid).map(|vbucket| vbucket.term()) else {
            return Ok(None);
        };
        if self.partition.serves(vbid) {
            if own.moment.term >= term {
                return Ok(Some(own.point));
            }
            // Another node has served it in the meantime.
            self.stop_serving(vbid);
            self.others.reports = None;
        }
        let Some(node) = self.deployment.node.upgrade() else { return Ok(None) };
        let now_ns = self.platform.now().monotonic_ns;
        let reports = match self.others.reports.take() {
            Some((ends_ns, reports)) if now_ns < ends_ns => (ends_ns, reports),
            _ => {
                let reports = self.deployment.ask_places(&node);
                (self.platform.now().monotonic_ns + REPORTS_NS, reports)
            }
        };
        let (_, reports) = self.others.reports.insert(reports);
        let further = reports.furthest.get(&vbid).filter(|(moment, _)| *moment > own.moment);
        let since_ns = *self.others.waits_since_ns.entry(vbid).or_insert(now_ns);
        let waits_for_ns =
            match reports.busy.contains(&vbid) || reports.is_silent || further.is_some() {
                true => OTHERS_PATIENCE_NS,
                false if reports.is_missing => UNREACHED_PATIENCE.as_nanos() as u64,
                false => 0,
            };
        if now_ns.saturating_sub(since_ns) < waits_for_ns {
            self.others.copier.note_all(further.map(|further| (vbid, *further)));
            return Ok(None);
        }
        self.others.waits_since_ns.remove(&vbid);
        // From here on other nodes wait until the vBucket is released. Earlier requests see that it is served here.
        self.deployment.coverage.cover(vbid, Seqno::ZERO);
        if self.bucket.served(vbid).is_none_or(|vbucket| vbucket.term() != term) {
            self.stop_serving(vbid);
            return Ok(None);
        }
        self.partition.serve(vbid, term, self.platform.now().unix_ns)?;
        Ok(Some(own.point))
    }

    /// Gives up a vBucket, whose timers and handlers then run on another node.
    pub(super) fn stop_serving(&mut self, vbid: Vbid) {
        self.partition.release(vbid);
        self.deployment.coverage.begin_removal(vbid);
        self.others.waits_since_ns.remove(&vbid);
    }

    /// Returns the time of the next report; `None` if there is nothing to report.
    pub(super) fn next_report_ns(&self) -> Option<u64> {
        let node = self.deployment.node.upgrade()?;
        if self.partition.served().next().is_none() || node.others().is_empty() {
            return None;
        }
        let moved_ns = self.partition.has_moved().then_some(self.others.tell_at_ns);
        Some(
            moved_ns
                .map_or(self.others.tell_all_at_ns, |at_ns| at_ns.min(self.others.tell_all_at_ns)),
        )
    }

    /// Sends reports to other nodes when they are due.
    fn report(&mut self) {
        let now_ns = self.platform.now().monotonic_ns;
        if self.next_report_ns().is_none_or(|at_ns| now_ns < at_ns) {
            return;
        }
        let moved: Vec<Vbid> = self.partition.take_moved().into_iter().collect();
        self.others.tell_at_ns = now_ns + TELL_NS;
        let vbids = if now_ns < self.others.tell_all_at_ns {
            moved
        } else {
            self.others.tell_all_at_ns = now_ns + TELL_ALL_NS;
            self.partition.served().collect()
        };
        let moment = |vbid: Vbid| (vbid, self.partition.standing(vbid).moment);
        let moments: Vec<_> = vbids.into_iter().map(moment).collect();
        if let Some(node) = self.deployment.node.upgrade() {
            self.deployment.report_places(&node, &moments);
        }
    }

    /// Sends and processes reports. Returns false for a paused deployment, which has nothing else to do.
    pub(super) fn follow(&mut self) -> Result<bool, Error> {
        if !self.deployment.spec.keeps_places() {
            return Ok(true);
        }
        let Feed { others, partition, deployment, bucket, signal, .. } = self;
        others.copier.step(deployment, bucket, partition, signal)?;
        self.report();
        if !self.deployment.spec.paused {
            return Ok(true);
        }
        self.waiting.drain(..).for_each(|vbid| self.dirty.mark(vbid));
        while let Some(vbid) = self.next_vbucket() {
            let is_served = self.bucket.served(vbid).is_some();
            if !is_served {
                self.release(vbid)?;
            } else if self.place(vbid)?.is_none() {
                self.waiting.push(vbid);
            }
        }
        Ok(false)
    }

    /// Serves the first vBucket before any other call, because the timers that `OnDeploy` sets belong to it. Returns
    /// false while another node has not finished with it.
    pub(super) fn begins(&mut self) -> Result<bool, Error> {
        let keeps_places = self.deployment.spec.keeps_places();
        if !self.has_begun && keeps_places && self.bucket.served(Vbid(0)).is_some() {
            self.has_begun = self.place(Vbid(0))?.is_some();
            return Ok(self.has_begun);
        }
        self.has_begun = true;
        Ok(true)
    }
}
