//! Streams of the hub: positions, and the handling of versions that arrive.
//!
//! ```text
//! a rollback, or another branch ─► from the start, as a sweep ─► until the seqno that the hub had
//!                             │ a version arrives: compared as always
//!                             └ documents that did not arrive: the hub has lost them ─► sent again
//!                                                              the hub has purged their deletions ─► deleted
//! ```

use crate::compare::{HubLoss, Step, compare, is_in_step, limited_to_hub_clock, received, unsent};
use crate::engine::{Engine, Key, LineId};
use crate::handshake::described;
use crate::push::Over;
use crate::replica::{Outcome, Parked, Replica, cas_above};
use crate::wire::{self, Event};
use crate::{Conflict, ConflictMode, Direction, Failure, Fault, Kept, Local, Notice, Point};
use nacre_protocol::{Frame, Status, dcp::StreamEnd};
use nacre_types::{Cas, Document, Kind, Meta, Now, Vbid, leb128_decode};
use nacre_vbucket::{Resolution, Seen, Verdict};
use nacre_xdcr::{Arriving, Site, SourceId, settle};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of comparisons of a version while the application writes the document.
const ATTEMPTS_MAX: u32 = 16;
/// The pause before the next attempt with a locked document, in nanoseconds.
const LOCKED_NS: u64 = 250_000_000;

/// A version of the hub.
#[derive(Clone, Debug)]
pub(crate) struct Pulled {
    /// The version as sent; the seqno is the hub's.
    pub version: Arriving,
    /// The uncertainty when the version arrived. It remains while the version waits.
    hub_loss: HubLoss,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stream {
    #[default]
    None,
    Asked,
    Open,
    /// The stream is being closed, and then starts from the beginning.
    Closing,
}

/// A pass over all documents of a vBucket.
struct Sweep {
    /// True if the hub has lost versions; false if it has purged deletions.
    is_loss: bool,
    /// The seqno at which the hub's present branch began.
    began: u64,
    /// The documents that arrived.
    seen: BTreeSet<Key>,
}

/// A vBucket of the hub.
#[derive(Default)]
pub(crate) struct VbucketState {
    /// The session with the node that serves the vBucket.
    pub line: Option<LineId>,
    pub point: Point,
    snapshot: (u64, u64),
    /// The highest seqno that the hub is known to have.
    pub high: u64,
    /// The hub's high seqno when the session began.
    pub goal: u64,
    stream: Stream,
    /// The hub's branch of history that the device last knew; 0 for none.
    branch: u64,
    /// True until a pass over all documents is complete.
    sweeps: bool,
    sweep: Option<Sweep>,
}

impl VbucketState {
    pub fn at(point: Point) -> VbucketState {
        let (snapshot, branch) = (point.snapshot, point.vb_uuid);
        VbucketState { point, snapshot, branch, ..VbucketState::default() }
    }

    /// Handles the end of the session `id`.
    pub fn lose(&mut self, id: LineId) {
        if self.line == Some(id) {
            (self.line, self.stream) = (None, Stream::None);
            if self.is_sweeping() {
                // Only a complete pass counts.
                self.sweep = None;
                self.restart();
            }
        }
    }

    /// Returns to the start, so that everything arrives again.
    pub fn restart(&mut self) {
        (self.point, self.snapshot) = (Point::default(), (0, 0));
    }

    /// Returns true until a pass over all documents is complete.
    pub fn is_sweeping(&self) -> bool {
        self.sweeps
    }

    pub fn wants_stream(&self) -> bool {
        self.stream == Stream::None
    }

    pub fn ask(&mut self) {
        self.stream = Stream::Asked;
    }

    pub fn is_streaming(&self) -> bool {
        self.stream == Stream::Open
    }

    /// Returns true if the hub's history continues the history of a document that the device knows. During a pass this is known
    /// only after the document has arrived.
    pub fn is_known(&self, key: &Key) -> bool {
        let has_arrived = || self.sweep.as_ref().is_some_and(|sweep| sweep.seen.contains(key));
        self.is_streaming() && (!self.sweeps || has_arrived())
    }

    /// Returns true if the device has everything that the hub had when the session began.
    pub fn is_caught_up(&self) -> bool {
        self.is_streaming() && !self.sweeps && self.point.seqno >= self.goal
    }

    fn reach(&mut self, seqno: u64) {
        let (start, end) = self.snapshot;
        self.point.seqno = seqno;
        self.point.snapshot = (start.min(seqno), end.max(seqno));
        self.high = self.high.max(seqno);
    }
}

/// Returns the seqno at which the hub's history left a branch, given the hub's branches, newest first: `None` if the branch is
/// the newest, 0 if it is unknown.
fn left_at(branches: &[(u64, u64)], branch: u64) -> Option<u64> {
    match branches.iter().position(|(vb_uuid, _)| *vb_uuid == branch) {
        Some(0) => None,
        Some(index) => Some(branches[index - 1].1),
        None => Some(0),
    }
}

/// Records that a document may contain versions after `began` that the hub has lost.
fn mark_uncertain(doubtful: &mut BTreeMap<Key, u64>, key: &Key, began: u64) {
    let known = doubtful.entry(key.clone()).or_insert(began);
    *known = began.min(*known);
}

impl Engine {
    pub(crate) fn is_sweeping(&self) -> bool {
        self.vbuckets.iter().any(VbucketState::is_sweeping)
    }

    /// Handles the hub's answer to the request for a stream.
    pub(crate) fn stream_answered(
        &mut self,
        id: LineId,
        frame: &Frame<'_>,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let index = (frame.opaque & u32::from(u16::MAX)) as usize;
        let malformed = || Failure::Protocol("the hub's answer about a stream is malformed".into());
        let vbucket = self.vbuckets.get_mut(index).ok_or_else(malformed)?;
        if vbucket.line != Some(id) || vbucket.stream != Stream::Asked {
            return Ok(());
        }
        let is = |status: Status| frame.vbid == status as u16;
        if is(Status::Success) {
            let branches = wire::read_branches(frame.value).ok_or_else(malformed)?;
            let left_at = left_at(&branches, vbucket.branch);
            if left_at.is_some() && vbucket.point.seqno > 0 {
                // Versions that the device received or sent after its last position may be lost, too.
                return self.read_again(frame.opaque as u16, Stream::Asked);
            }
            vbucket.stream = Stream::Open;
            vbucket.point.vb_uuid = branches[0].0;
            if left_at.is_some() || vbucket.sweeps {
                let (is_loss, began) = (left_at.is_some(), left_at.unwrap_or(0));
                vbucket.sweeps = true;
                vbucket.sweep = Some(Sweep { is_loss, began, seen: BTreeSet::new() });
                let is_known = vbucket.branch != 0;
                if is_known && self.resync_notices.insert(is_loss) {
                    self.notify(Notice::Again { lost: is_loss });
                }
            }
            return self.finish_sweep(index, replica, now);
        }
        vbucket.stream = Stream::None;
        if is(Status::Rollback) && vbucket.point != Point::default() {
            vbucket.sweeps = true;
            vbucket.restart();
            self.begin_streams();
            return Ok(());
        }
        if is(Status::NotMyVbucket) {
            return Err(Failure::Renew("a vBucket has moved".into()));
        }
        let what = format!("the stream of a vBucket is refused: {}", described(frame.vbid));
        Err(match is(Status::AccessDenied) {
            true => Failure::Denied(what),
            // The collection was dropped after the manifest was read.
            false if is(Status::UnknownCollection) => Failure::Renew(what),
            false => Failure::Protocol(what),
        })
    }

    /// Handles a message of a stream.
    pub(crate) fn happened(
        &mut self,
        id: LineId,
        vbid: u16,
        event: Event,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let index = usize::from(vbid);
        let Some(vbucket) = self.vbuckets.get_mut(index).filter(|it| it.line == Some(id)) else {
            return Ok(());
        };
        match event {
            Event::End(reason) => return self.stream_ended(index, reason),
            // Messages that were in flight when the stream was closed.
            _ if vbucket.stream == Stream::Closing => return Ok(()),
            Event::Snapshot(start, end) => vbucket.snapshot = (start, end),
            Event::Advanced(seqno) => vbucket.reach(seqno),
            Event::Version { key, version } => {
                vbucket.reach(version.meta.seqno.0);
                self.arrived(vbid, &key, version, replica, now)?;
            }
            Event::Noop | Event::Other => return Ok(()),
        }
        self.set_dirty();
        self.finish_sweep(index, replica, now)
    }

    fn stream_ended(&mut self, index: usize, reason: u32) -> Result<(), Failure> {
        if self.vbuckets[index].stream == Stream::Closing {
            self.vbuckets[index].stream = Stream::None;
            self.begin_streams();
            return Ok(());
        }
        let is = |end: StreamEnd| reason == end as u32;
        // A new session shows what the user may still read, and where the vBuckets are.
        Err(Failure::Renew(match () {
            () if is(StreamEnd::LostPrivileges) => "the user's rights have changed".into(),
            () if is(StreamEnd::FilterEmpty) => "a collection was dropped".into(),
            () if is(StreamEnd::StateChanged) => "a vBucket has moved".into(),
            () => format!("a stream has ended, reason {reason}"),
        }))
    }

    fn arrived(
        &mut self,
        vbid: u16,
        key: &[u8],
        version: Arriving,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let malformed = || Failure::Protocol("a key of the hub is malformed".into());
        let (id, name) = leb128_decode(key).ok_or_else(malformed)?;
        let found = self.collections.iter().position(|it| it.hub_id == Some(id));
        let Some(collection) = found else { return Ok(()) };
        let key = (collection, name.to_vec());
        if let Some(sweep) = &mut self.vbuckets[usize::from(vbid)].sweep {
            sweep.seen.insert(key.clone());
            if sweep.is_loss {
                mark_uncertain(&mut self.doubtful, &key, sweep.began);
            }
        }
        // A version that arrives during a pass may be from before the loss, and one from after the loss may arrive after the
        // pass.
        let hub_loss = self.doubtful.get(&key).map_or(HubLoss::None, |began| HubLoss::Lost {
            is_since: version.meta.seqno.0 > *began,
        });
        let pulled = Pulled { version, hub_loss };
        if let Some(index) = self.held.iter().position(|(_, push)| push.key == key) {
            // The write is not in flight: it is decided again, against the hub's version.
            self.held.remove(index);
            self.busy.remove(&key);
            self.again.remove(&key);
        }
        if self.busy.contains(&key) {
            // The hub's newest version is compared once the write has its answer.
            self.stash.insert(key, (0, pulled));
            return Ok(());
        }
        self.stash.remove(&key);
        self.receive_version(key, pulled, replica, now)
    }

    /// Compares a version of the hub with the device's version, and makes both equal.
    pub(crate) fn receive_version(
        &mut self,
        key: Key,
        pulled: Pulled,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        self.awaited.remove(&key);
        let hub = self.hub_source();
        let malformed = |_| Failure::Protocol("attributes of the hub are malformed".into());
        let hubs = received(&pulled.version, &hub).map_err(malformed)?;
        let hub_loss = pulled.hub_loss;
        for _ in 0..ATTEMPTS_MAX {
            let (local, seen) = self.read(&key, replica, now)?;
            // Unreadable attributes do not stop sync: the document counts as a conflict.
            let step = compare(&local, &hubs, &hub, hub_loss).unwrap_or(Step::Decide);
            if matches!(step, Step::Send | Step::Decide)
                && self.mark_unsent(&key, &local, seen, replica, now)?
            {
                continue;
            }
            let version = match step {
                Step::Nothing => {
                    self.doubtful.remove(&key);
                    return Ok(());
                }
                Step::Take => hubs.clone(),
                Step::Send => {
                    let over = Over::of(&hubs);
                    return self.send_local(key, &local, seen, over, now);
                }
                Step::Decide => match self.decide(&key, &local, &hubs, replica, now)? {
                    Decided::Take => hubs.clone(),
                    Decided::Send(version) => {
                        return self.send(key, *version, Over::of(&hubs), seen, now);
                    }
                },
            };
            match replica.store(key.0, &key.1, &version, seen, self.latest_unix_ns(now))? {
                Outcome::Stored => {
                    self.status.pulled += 1;
                    self.doubtful.remove(&key);
                    self.set_dirty();
                    return Ok(());
                }
                Outcome::Changed => {}
                Outcome::Busy => break,
            }
        }
        self.stash.insert(key, (now.monotonic_ns + LOCKED_NS, pulled));
        Ok(())
    }

    /// Reads a document in the form to send, and returns the condition for its replacement on the device.
    pub(crate) fn read(
        &mut self,
        key: &Key,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(Local, Option<Seen>), Fault> {
        let mut local = replica.read(key.0, &key.1)?;
        let seen = local.document.as_ref().map(|document| Seen::from(&document.meta));
        if let Some(document) = local.document.take() {
            let cas = document.meta.cas;
            let level = limited_to_hub_clock(
                document,
                &local.own,
                self.issued.writes,
                self.hub_unix_ns(now),
            );
            if level.meta.cas != cas {
                // No earlier branch has used that CAS for the document.
                local.own.truncate(1);
            }
            if !is_in_step(&level) {
                self.issued.writes = self.issued.writes.max(level.meta.cas);
                self.bound_issued(replica)?;
            }
            local.document = Some(level);
        }
        Ok((local, seen))
    }

    /// Resolves a conflict between two versions. The loser is parked before it is replaced.
    fn decide(
        &mut self,
        key: &Key,
        local: &Local,
        hubs: &Arriving,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<Decided, Failure> {
        let document = local.document.as_ref().expect("there is a version to decide about");
        let here = Arriving::of(document);
        let collection = self.collections[key.0].path.clone();
        let by_time = self.hub.as_ref().is_some_and(|hub| hub.by_time);
        let rule = if by_time { Resolution::LastWriteWins } else { Resolution::Seqno };
        let verdict = match self.settings.conflicts {
            _ if self.settings.direction == Direction::Pull => Verdict::KeepRemote,
            ConflictMode::Client => replica.resolve(&Conflict {
                collection: &collection,
                name: &key.1,
                device: here.shown(),
                hub: hubs.shown(),
            }),
            _ if rule.takes(&here.meta, &hubs.meta) => Verdict::KeepLocal,
            _ => Verdict::KeepRemote,
        };
        let (kept, loser) = match &verdict {
            Verdict::KeepLocal => (Kept::Device, Some((true, hubs))),
            Verdict::KeepRemote => (Kept::Hub, Some((false, &here))),
            Verdict::Merged(_) => (Kept::Merged, None),
        };
        let is_log = self.settings.conflicts == ConflictMode::Log;
        if let Some((is_hubs, version)) = loser.filter(|_| is_log) {
            let reason = "conflict".to_owned();
            let (name, version) = (key.1.clone(), version.clone());
            self.park(
                Parked { collection: collection.clone(), name, reason, is_hubs, version },
                replica,
            )?;
        }
        self.status.conflicts += 1;
        let (name, device, hub) = (key.1.clone(), document.meta.cas, hubs.meta.cas);
        self.notify(Notice::Conflict { collection, name, kept, device, hub });
        if verdict == Verdict::KeepRemote {
            return Ok(Decided::Take);
        }
        let own = local.own_name().cloned();
        let own = own.ok_or_else(|| Fault("the device has no name".into()))?;
        let site = Site { id: decider(&own), since: Cas::ANY };
        // Above earlier decisions: a decision about a version that contains an earlier decision must count as later, even if the
        // hub has lost the earlier one.
        let versions = [document.meta.cas, hubs.meta.cas, self.issued.decisions];
        let cas = cas_above(versions, self.hub_unix_ns(now), &own);
        self.issued.decisions = cas;
        self.bound_issued(replica)?;
        let merge = settle(document, hubs, &verdict, &site, cas);
        let merge = merge.map_err(|_| Fault("attributes of a document are malformed".into()))?;
        Ok(Decided::Send(Box::new(merge)))
    }

    /// Parks a version on disk, so that it survives a power cut before another version replaces it.
    pub(crate) fn park(
        &mut self,
        parked: Parked,
        replica: &mut dyn Replica,
    ) -> Result<(), Failure> {
        replica.park(&parked)?;
        replica.flush()?;
        self.status.parked += 1;
        let Parked { collection, name, reason, .. } = parked;
        self.notify(Notice::Parked { collection, name, reason });
        Ok(())
    }

    /// Ends a pass over a vBucket once everything that the hub had has arrived.
    fn finish_sweep(
        &mut self,
        index: usize,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let vbucket = &mut self.vbuckets[index];
        // Within a snapshot, a document that changed meanwhile may arrive later than it otherwise would.
        let end = vbucket.high.max(vbucket.snapshot.1);
        if vbucket.sweep.is_none() || vbucket.point.seqno < end {
            return Ok(());
        }
        let Some(sweep) = vbucket.sweep.take() else { return Ok(()) };
        // Only a complete pass makes the hub's branch the known one.
        (vbucket.sweeps, vbucket.branch) = (false, vbucket.point.vb_uuid);
        self.set_dirty();
        let count = self.vbuckets.len() as u16;
        let is_missing =
            |key: &Key| Vbid::of(&key.1, count).index() == index && !sweep.seen.contains(key);
        if sweep.is_loss {
            // The versions that these writes would replace are lost.
            for (_, push) in self.held.extract_if(.., |(_, push)| is_missing(&push.key)) {
                self.busy.remove(&push.key);
                self.again.remove(&push.key);
                mark_uncertain(&mut self.doubtful, &push.key, sweep.began);
            }
        }
        for collection in 0..self.collections.len() {
            if self.collections[collection].hub_id.is_none() {
                continue;
            }
            for name in replica.names(collection)? {
                let key = (collection, name);
                if !is_missing(&key) {
                    continue;
                }
                if sweep.is_loss {
                    mark_uncertain(&mut self.doubtful, &key, sweep.began);
                }
                if self.busy.contains(&key) {
                    continue;
                }
                self.miss(key, sweep.is_loss, replica, now)?;
            }
        }
        Ok(())
    }

    /// Makes a version that the hub has lost an unsent one. It stays unsent until the hub has it again, even if the document
    /// changes meanwhile. Returns false if it is already unsent.
    fn mark_unsent(
        &mut self,
        key: &Key,
        local: &Local,
        seen: Option<Seen>,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<bool, Failure> {
        let Some(document) = local.document.as_ref().filter(|document| is_in_step(document)) else {
            return Ok(false);
        };
        let own = local.own_name().ok_or_else(|| Fault("the device has no name".into()))?;
        let version = unsent(document, own)
            .map_err(|_| Fault("attributes of a document are malformed".into()))?;
        // If it has changed, the caller reads it again.
        replica.store(key.0, &key.1, &version, seen, self.latest_unix_ns(now))?;
        Ok(true)
    }

    /// Handles a document of the device of which the hub has not even a tombstone.
    fn miss(
        &mut self,
        key: Key,
        is_loss: bool,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let (mut local, mut seen) = self.read(&key, replica, now)?;
        if is_loss && self.mark_unsent(&key, &local, seen, replica, now)? {
            (local, seen) = self.read(&key, replica, now)?;
        }
        let Some(document) = local.document.as_ref().filter(|document| document.is_alive()) else {
            return Ok(());
        };
        if is_loss || !is_in_step(document) {
            return self.send_local(key, &local, seen, Over::Nothing, now);
        }
        // It was deleted so long ago that the hub has purged the tombstone.
        let tombstone = tombstone_of(document, self.latest_unix_ns(now));
        match replica.store(key.0, &key.1, &tombstone, seen, self.latest_unix_ns(now))? {
            Outcome::Stored => self.status.pulled += 1,
            // The application has written it meanwhile.
            Outcome::Changed | Outcome::Busy => self.queue.push_back(key),
        }
        Ok(())
    }

    /// Records that the hub has a version of the device: its history reaches at least `seqno`, and a pass over the vBucket does
    /// not end before that seqno.
    pub(crate) fn is_at_hub(&mut self, vbid: u16, seqno: u64) {
        let vbucket = &mut self.vbuckets[usize::from(vbid)];
        vbucket.high = vbucket.high.max(seqno);
    }

    /// Reads a vBucket again from the start, because the hub's history is another one or a version has not arrived in time. Does
    /// nothing unless the stream is in state `at`.
    pub(crate) fn read_again(&mut self, vbid: u16, at: Stream) -> Result<(), Failure> {
        let vbucket = &mut self.vbuckets[usize::from(vbid)];
        let line = vbucket.line.and_then(|id| self.lines.get_mut(&id));
        let Some(line) = line.filter(|_| vbucket.stream == at) else { return Ok(()) };
        (vbucket.sweeps, vbucket.sweep) = (true, None);
        vbucket.restart();
        vbucket.stream = Stream::Closing;
        wire::close(vbid, crate::handshake::CLOSE, &mut line.output);
        Ok(())
    }
}

/// A resolved conflict.
enum Decided {
    /// The device takes the hub's version.
    Take,
    /// The hub gets this version.
    Send(Box<Arriving>),
}

/// Returns the source name of the device's decisions. A decision reaches the hub before the device. Meanwhile the device's own
/// versions of the document may get lower CAS values than the decision, which does not contain them.
fn decider(own: &SourceId) -> SourceId {
    SourceId::parse(&format!("{own}.d")).unwrap_or_else(|| own.clone())
}

/// Returns the tombstone of a document, in step with the hub's last version.
fn tombstone_of(document: &Document, unix_ns: u64) -> Arriving {
    let meta = Meta {
        kind: Kind::Deleted,
        rev: document.meta.rev + 1,
        flags: 0,
        expiry: (unix_ns / 1_000_000_000) as u32,
        ..document.meta
    };
    let mut attributes = nacre_value::xattr::Xattrs::parse(document.xattrs()).unwrap_or_default();
    attributes.retain_system();
    let value = attributes.encode();
    let datatype = if value.is_empty() { 0 } else { nacre_types::DATATYPE_XATTR };
    Arriving { meta: Meta { datatype, ..meta }, value }
}

#[cfg(test)]
mod tests;
