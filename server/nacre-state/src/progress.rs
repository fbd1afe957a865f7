//! The progress of a node in a vBucket, and the replication of timers and feed positions to the nodes that may take
//! over.
//!
//! ```text
//! node that serves it:  ProgressLog   7 ── a, b set ── 8 ── a fired ── 9        (the last steps, and all timers)
//! node that follows:    at 8 ─► ProgressDelta { since: 8, timers: [a: none], at 9 }
//!                       at 3 ─► ProgressDelta { since: none, … } pages of all timers, then the changes since
//! ```
//!
//! Invariants: a [`ProgressStamp`] identifies one state of one vBucket's timers and position, even after losses; a node at a
//! moment has all timers of that moment, so that a position is never known without the timers set before it.

use crate::Timer;
use nacre_dcp::ResumePoint;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Orders the commits of a vBucket over all nodes that have served it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ProgressStamp {
    /// The term under which the node served the vBucket.
    pub term: u64,
    /// When the node began to serve, by its clock. After a power cut the node may have lost commits that others have.
    pub begun: u64,
    /// Number of commits since.
    pub count: u64,
}

impl ProgressStamp {
    /// Returns the first moment of a node that begins to serve under `term` at `begun`, given the last known moment.
    #[must_use]
    pub fn begin(self, term: u64, begun: u64) -> ProgressStamp {
        let term = term.max(self.term);
        let begun = if term == self.term { begun.max(self.begun + 1) } else { begun };
        ProgressStamp { term, begun, count: 0 }
    }

    /// Returns the next moment.
    #[must_use]
    pub fn next(self) -> ProgressStamp {
        ProgressStamp { count: self.count + 1, ..self }
    }

    /// Returns true if both moments are of the same node without an interruption.
    fn is_beside(self, other: ProgressStamp) -> bool {
        (self.term, self.begun) == (other.term, other.begun)
    }
}

/// The progress in a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VbucketProgress {
    /// Identifies the state of the vBucket's timers.
    pub moment: ProgressStamp,
    /// Position of the feed.
    pub point: ResumePoint,
}

/// Changes of a vBucket's timers by name; `None` where a timer was removed or has fired.
pub type TimerChanges = Vec<(String, Option<Timer>)>;

/// A message to a follower of a vBucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressDelta {
    /// Base of a delta; `None` means this is a page of a full copy.
    pub since: Option<ProgressStamp>,
    /// The last name before this page; `None` for the first page.
    pub after: Option<String>,
    /// The timers.
    pub timers: TimerChanges,
    /// True if more timers follow.
    pub has_more: bool,
    /// The progress after the delta, or the progress when the page was read.
    pub standing: VbucketProgress,
}

impl ProgressDelta {
    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let timers = self.timers.iter().map(|(name, timer)| bytes(name, timer.as_ref()));
        STEP_BYTES + timers.sum::<usize>()
    }
}

/// A commit.
struct Step {
    standing: VbucketProgress,
    timers: Vec<(Arc<str>, Option<Arc<Timer>>)>,
}

/// The progress of a vBucket on the node that serves it, and the last commits.
#[derive(Default)]
pub struct ProgressLog {
    /// The current progress.
    pub standing: VbucketProgress,
    /// The moment before the first step.
    floor: ProgressStamp,
    steps: VecDeque<Step>,
}

/// Approximate size of a step without its timers.
const STEP_BYTES: usize = 96;

impl ProgressLog {
    /// Creates the track of a node at this progress, without earlier steps.
    pub fn at(standing: VbucketProgress) -> ProgressLog {
        ProgressLog { standing, floor: standing.moment, steps: VecDeque::new() }
    }

    /// Adds a commit. Returns the bytes kept for it.
    pub fn push(
        &mut self,
        standing: VbucketProgress,
        timers: Vec<(Arc<str>, Option<Arc<Timer>>)>,
    ) -> usize {
        self.standing = standing;
        if timers.is_empty()
            && let Some(last) = self.steps.back_mut().filter(|last| last.timers.is_empty())
        {
            last.standing = standing;
            return 0;
        }
        let bytes = timers.iter().map(|(name, timer)| bytes(name, timer.as_deref())).sum::<usize>();
        self.steps.push_back(Step { standing, timers });
        STEP_BYTES + bytes
    }

    /// Drops all steps.
    pub fn trim(&mut self) {
        *self = ProgressLog::at(self.standing);
    }

    /// Returns the first changes since a moment, limited to `bytes_max`; `None` when they are no longer known.
    pub fn changes(&self, since: ProgressStamp, bytes_max: usize) -> Option<ProgressDelta> {
        let newest = self.standing.moment;
        let is_known = since == self.floor
            || since.is_beside(newest) && self.floor <= since && since <= newest;
        if !is_known {
            return None;
        }
        let mut changed = BTreeMap::new();
        let (mut size, mut standing) = (0, self.standing);
        let steps = self.steps.iter().filter(|step| step.standing.moment > since);
        for (number, step) in steps.enumerate() {
            let of_step = step.timers.iter();
            let of_step = of_step.map(|(name, timer)| bytes(name, timer.as_deref())).sum::<usize>();
            if number > 0 && size + of_step > bytes_max {
                break;
            }
            size += of_step;
            standing = step.standing;
            changed.extend(step.timers.iter().map(|(name, timer)| (name, timer)));
        }
        let timer = |(name, timer): (&Arc<str>, &Option<Arc<Timer>>)| {
            (name.to_string(), timer.as_deref().cloned())
        };
        Some(ProgressDelta {
            since: Some(since),
            after: None,
            timers: changed.into_iter().map(timer).collect(),
            has_more: standing != self.standing,
            standing,
        })
    }

    /// Returns a page of the vBucket's timers after the name `after`. `timers` are the timers that follow that name.
    pub fn page<'a>(
        &self,
        after: Option<String>,
        timers: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Timer>)>,
        bytes_max: usize,
    ) -> ProgressDelta {
        let mut share = ProgressDelta {
            since: None,
            after,
            timers: Vec::new(),
            has_more: false,
            standing: self.standing,
        };
        let mut size = 0;
        for (name, timer) in timers {
            size += bytes(name, Some(timer));
            if size > bytes_max && !share.timers.is_empty() {
                share.has_more = true;
                break;
            }
            share.timers.push((name.to_string(), Some((**timer).clone())));
        }
        share
    }
}

fn bytes(name: &str, timer: Option<&Timer>) -> usize {
    32 + name.len() + timer.map_or(0, |timer| timer.payload.len())
}

/// The position of a follower: its moment, and the last name received if a full copy is in progress.
pub type FollowerPosition = (ProgressStamp, Option<String>);

/// A full copy of a vBucket's timers to a follower, in progress.
#[derive(Default)]
pub struct TimerCopy {
    /// The pages received, whose timers are of that moment or later.
    received: Option<ReceivedPages>,
}

struct ReceivedPages {
    standing: VbucketProgress,
    timers: BTreeMap<String, Timer>,
    /// The last name received, if more follow.
    next: Option<String>,
    /// The moment from which all received pages are consistent.
    holds_at: ProgressStamp,
}

impl TimerCopy {
    /// Returns true if no copy is in progress.
    pub fn is_idle(&self) -> bool {
        self.received.is_none()
    }

    /// Returns the request for the next message, given the own progress.
    pub fn position(&self, own: ProgressStamp) -> FollowerPosition {
        match &self.received {
            Some(received) => (received.standing.moment, received.next.clone()),
            None => (own, None),
        }
    }

    /// Applies a message at the progress `own`. Returns the new progress with the changes, or with all timers.
    pub fn take(
        &mut self,
        own: ProgressStamp,
        share: ProgressDelta,
    ) -> Option<(VbucketProgress, TimerChanges, bool)> {
        let ProgressDelta { since, after, timers, has_more, standing } = share;
        match (since, &mut self.received) {
            (Some(since), None) => {
                let continues = since == own && standing.moment > own;
                return continues.then_some((standing, timers, false));
            }
            (Some(since), Some(received))
                if since == received.standing.moment && since.is_beside(standing.moment) =>
            {
                received.standing = standing;
                for (name, timer) in timers {
                    match timer {
                        Some(timer) => drop(received.timers.insert(name, timer)),
                        None => drop(received.timers.remove(&name)),
                    }
                }
            }
            (None, received) => {
                if after.is_none() {
                    *received = Some(ReceivedPages {
                        standing,
                        timers: BTreeMap::new(),
                        next: None,
                        holds_at: standing.moment,
                    });
                }
                let fits = |received: &&mut ReceivedPages| {
                    received.next == after && received.standing.moment.is_beside(standing.moment)
                };
                let Some(received) = received.as_mut().filter(fits) else {
                    // Another node has taken over, which may lack some of what was sent.
                    self.received = None;
                    return None;
                };
                received.next = timers.last().filter(|_| has_more).map(|(name, _)| name.clone());
                received.holds_at = standing.moment;
                let set = |(name, timer): (String, Option<Timer>)| Some((name, timer?));
                received.timers.extend(timers.into_iter().filter_map(set));
            }
            (Some(_), received) => *received = None,
        }
        let is_complete = |received: &mut ReceivedPages| {
            received.next.is_none() && received.standing.moment >= received.holds_at
        };
        let received = self.received.take_if(is_complete)?;
        let timers = received.timers.into_iter().map(|(name, timer)| (name, Some(timer))).collect();
        (received.standing.moment > own).then_some((received.standing, timers, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Seqno;

    /// Serves a vBucket, and records its timers at each moment.
    struct Source {
        track: ProgressLog,
        timers: BTreeMap<Arc<str>, Arc<Timer>>,
        past: BTreeMap<ProgressStamp, BTreeMap<String, Timer>>,
    }

    impl Source {
        fn new(
            from: VbucketProgress,
            timers: &BTreeMap<String, Timer>,
            term: u64,
            begun: u64,
        ) -> Source {
            let timers = timers.iter();
            let timers = timers.map(|(name, timer)| (name.as_str().into(), timer.clone().into()));
            let (track, past) = (ProgressLog::at(from), BTreeMap::new());
            let mut source = Source { track, timers: timers.collect(), past };
            source.step(from.moment.begin(term, begun), &[]);
            source
        }

        fn step(&mut self, moment: ProgressStamp, changes: &[(&str, Option<u64>)]) {
            let timer = |due_us| Arc::new(Timer { due_us, payload: vec![0; 40] });
            let changes: Vec<(Arc<str>, _)> =
                changes.iter().map(|(name, due)| (Arc::from(*name), due.map(timer))).collect();
            for (name, timer) in changes.clone() {
                match timer {
                    Some(timer) => drop(self.timers.insert(name, timer)),
                    None => drop(self.timers.remove(&name)),
                }
            }
            let point = ResumePoint { seqno: Seqno(moment.count), ..Default::default() };
            self.track.push(VbucketProgress { moment, point }, changes);
            let timers = self.timers.iter();
            let timers = timers.map(|(name, timer)| (name.to_string(), (**timer).clone()));
            self.past.insert(moment, timers.collect());
        }

        fn commit(&mut self, changes: &[(&str, Option<u64>)]) {
            self.step(self.track.standing.moment.next(), changes);
        }

        fn share(&self, (since, after): FollowerPosition, bytes_max: usize) -> ProgressDelta {
            let changes = self.track.changes(since, bytes_max).filter(|_| after.is_none());
            let name = after.clone();
            let is_after = |(other, _): &(&Arc<str>, &Arc<Timer>)| {
                name.as_deref().is_none_or(|name| ***other > *name)
            };
            changes.unwrap_or_else(|| {
                self.track.page(after, self.timers.iter().filter(is_after), bytes_max)
            })
        }
    }

    #[derive(Default)]
    struct Follower {
        standing: VbucketProgress,
        timers: BTreeMap<String, Timer>,
        copying: TimerCopy,
    }

    impl Follower {
        /// Requests one message. A completed copy must have the timers of its moment.
        fn ask(&mut self, source: &Source, bytes_max: usize) {
            let own = self.standing.moment;
            let share = source.share(self.copying.position(own), bytes_max);
            let Some((standing, timers, is_whole)) = self.copying.take(own, share) else { return };
            if is_whole {
                self.timers.clear();
            }
            for (name, timer) in timers {
                match timer {
                    Some(timer) => drop(self.timers.insert(name, timer)),
                    None => drop(self.timers.remove(&name)),
                }
            }
            self.standing = standing;
            assert_eq!(self.timers, source.past[&standing.moment], "at {:?}", standing.moment);
        }
    }

    #[test]
    fn a_follower_has_the_timers_of_its_version() {
        for (seed, bytes_max) in [(1, 1), (2, 100), (3, 300), (4, 1 << 20)] {
            let mut random: u64 = seed;
            let mut roll = |sides: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % sides
            };
            let mut source = Source::new(VbucketProgress::default(), &BTreeMap::new(), 1, 10);
            let (mut follower, mut began) = (Follower::default(), 10);
            let mut reached = 0;
            for _ in 0..5000 {
                let names = ["a", "b", "c", "d", "e", "f"].map(|name| (name, roll(4), roll(99)));
                let changed = names.iter().filter(|(_, chance, _)| *chance == 0);
                let changes: Vec<_> =
                    changed.map(|(name, _, due)| (*name, due.checked_sub(40))).collect();
                match roll(60) {
                    0 => source.track.trim(),
                    1 => {
                        // The node lost its last commits in a power cut, or another node takes over from the copy.
                        began += 1;
                        source = match roll(2) {
                            0 => Source::new(follower.standing, &follower.timers, began, began),
                            _ => {
                                let (moment, timers) = source.past.iter().next().unwrap();
                                let from =
                                    VbucketProgress { moment: *moment, ..Default::default() };
                                let term = source.track.standing.moment.term;
                                Source::new(from, timers, term, began)
                            }
                        };
                    }
                    _ if roll(3) > 0 => source.commit(&changes),
                    _ => follower.ask(&source, bytes_max),
                }
                reached += u32::from(follower.standing == source.track.standing);
            }
            for _ in 0..50 {
                follower.ask(&source, bytes_max);
            }
            assert_eq!(follower.standing, source.track.standing);
            assert!(reached > 100, "{reached} times at the end on the way");
        }
    }

    #[test]
    fn versions_only_grow_on_any_serving_node() {
        let moment = ProgressStamp { term: 3, begun: 50, count: 7 };
        let next = [
            moment.next(),
            moment.begin(3, 40),
            moment.begin(3, 60),
            moment.begin(4, 1),
            moment.begin(2, 99),
        ];
        assert!(next.iter().all(|next| *next > moment), "{next:?}");
        assert!(moment.begin(4, 1) > moment.begin(3, 99).next(), "another node serves");
    }

    #[test]
    fn commits_without_timers_are_one_step() {
        let mut source = Source::new(VbucketProgress::default(), &BTreeMap::new(), 1, 1);
        let first = source.track.standing.moment;
        (0..100).for_each(|_| source.commit(&[]));
        assert_eq!(source.track.steps.len(), 1);
        let share = source.track.changes(first.next(), 1).unwrap();
        assert_eq!((share.timers.len(), share.standing), (0, source.track.standing));
    }
}
