//! Versions in flight to the hub.

use crate::compare::{base_of, is_in_step, outgoing};
use crate::engine::{Engine, Key, LineId};
use crate::handshake::described;
use crate::pull::Stream;
use crate::replica::{Outcome, Parked, Replica};
use crate::{Direction, Failure, Fault, Local, wire};
use nacre_protocol::{Frame, Status};
use nacre_types::{Cas, Kind, Now, Vbid};
use nacre_vbucket::Seen;
use nacre_xdcr::Arriving;

/// The pause before a version is sent again that the hub refused temporarily, in nanoseconds.
const BUSY_NS: u64 = 200_000_000;
/// Time limit for the arrival of the hub's other version, in nanoseconds.
const AWAITED_NS: u64 = 3_000_000_000;

/// The version of the hub that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// No version, or a tombstone.
    Nothing,
    /// The version with this CAS, which the hub has sent in this session.
    Version(Cas),
    /// The version with this CAS, which the device knows from an earlier session. A hub that has lost it may have another version
    /// with the same CAS, written by another device at the same time. So it counts only once the hub's history is known to
    /// continue from there.
    Remembered(Cas),
}

impl Over {
    /// Returns the condition that exactly this version is replaced.
    pub fn of(version: &Arriving) -> Over {
        match version.meta.kind {
            Kind::Alive => Over::Version(version.meta.cas),
            Kind::Deleted | Kind::Expired | Kind::Aborted => Over::Nothing,
        }
    }

    /// Returns the same condition for use after the session in which the version was seen.
    fn remembered(self) -> Over {
        match self {
            Over::Version(cas) | Over::Remembered(cas) => Over::Remembered(cas),
            Over::Nothing => Over::Nothing,
        }
    }

    /// Returns the CAS that the hub's version must have; 0 for any version and for none.
    pub fn cas(self) -> u64 {
        match self {
            Over::Version(cas) | Over::Remembered(cas) => cas.0,
            Over::Nothing => 0,
        }
    }
}

/// A write in flight.
pub(crate) struct Push {
    pub key: Key,
    pub vbid: u16,
    pub line: LineId,
    version: Arriving,
    over: Over,
    /// The device's version that this version replaces once the hub has it.
    seen: Option<Seen>,
}

impl Push {
    /// Prepares the write for another session.
    pub fn remember(&mut self) {
        self.over = self.over.remembered();
    }

    #[cfg(test)]
    pub fn over(&self) -> Over {
        self.over
    }

    #[cfg(test)]
    pub fn version(&self) -> &Arriving {
        &self.version
    }
}

impl Engine {
    /// Sends an unsent version of the application.
    pub(crate) fn examine(
        &mut self,
        key: Key,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        if self.settings.direction == Direction::Pull || self.collections[key.0].hub_id.is_none() {
            return Ok(());
        }
        if self.busy.contains(&key) {
            self.again.insert(key);
            return Ok(());
        }
        let (local, seen) = self.read(&key, replica, now)?;
        let Some(document) = local.document.as_ref().filter(|document| !is_in_step(document))
        else {
            return Ok(());
        };
        let over = match base_of(document) {
            // The hub has lost it. If the hub has another version, it arrives by the pull.
            Some(Cas::ANY) => Over::Nothing,
            Some(_) if self.doubtful.contains_key(&key) => Over::Nothing,
            Some(cas) => Over::Remembered(cas),
            // It was created and deleted between two examinations.
            None if !document.is_alive() => return Ok(()),
            None => Over::Nothing,
        };
        self.send_local(key, &local, seen, over, now)
    }

    /// Sends the device's version.
    pub(crate) fn send_local(
        &mut self,
        key: Key,
        local: &Local,
        seen: Option<Seen>,
        over: Over,
        now: Now,
    ) -> Result<(), Failure> {
        let Some(document) = &local.document else { return Ok(()) };
        let own = local.own_name().ok_or_else(|| Fault("the device has no name".into()))?;
        let version = match is_in_step(document) {
            true => Arriving::of(document),
            false => outgoing(document, own)
                .map_err(|_| Fault("attributes of a document are malformed".into()))?,
        };
        self.send(key, version, over, seen, now)
    }

    /// Sends a version. It replaces the device's version `seen` once the hub has it.
    pub(crate) fn send(
        &mut self,
        key: Key,
        version: Arriving,
        over: Over,
        seen: Option<Seen>,
        now: Now,
    ) -> Result<(), Failure> {
        if self.settings.direction == Direction::Pull {
            return Ok(());
        }
        let Some(hub) = &self.hub else { return Ok(()) };
        let vbid = Vbid::of(&key.1, hub.vbuckets).0;
        if version.meta.kind != Kind::Alive && over == Over::Nothing {
            // A deletion names the version that it deletes: the hub's version, if there is one, must arrive first.
            self.awaited.insert(key, now.monotonic_ns + AWAITED_NS);
            return Ok(());
        }
        self.busy.insert(key.clone());
        let push = Push { key, vbid, line: LineId(0), version, over, seen };
        match self.can_send(&push) {
            true => self.transmit(push),
            false => self.held.push((0, push)),
        }
        Ok(())
    }

    fn transmit(&mut self, mut push: Push) {
        let by_time = self.hub.as_ref().is_some_and(|hub| hub.by_time);
        let hub_id = self.collections[push.key.0].hub_id;
        let line = self.vbuckets[usize::from(push.vbid)].line;
        let (Some(hub_id), Some(line)) = (hub_id, line) else {
            self.held.push((0, push));
            return;
        };
        push.line = line;
        let opaque = self.next_opaque();
        let key = wire::prefixed(hub_id, &push.key.1);
        let Some(output) = self.output(line) else {
            self.held.push((0, push));
            return;
        };
        wire::write(push.vbid, &key, &push.version, push.over, by_time, opaque, output);
        self.pushes.insert(opaque, push);
    }

    /// Returns true if a version can be sent now: a node serves its vBucket, and its condition is certain.
    ///
    /// A document that the hub does not have is sent only once everything has arrived that the hub had when the session began. An
    /// earlier session may already have sent it without an answer, and another client may have deleted it since: a write over
    /// that tombstone would restore it.
    pub(crate) fn can_send(&self, push: &Push) -> bool {
        let vbucket = &self.vbuckets[usize::from(push.vbid)];
        let is_ready = vbucket.line.is_some_and(|id| {
            self.lines.get(&id).is_some_and(|line| line.has_manifest && line.has_seqnos)
        });
        let may_replace = match push.over {
            Over::Version(_) => true,
            Over::Remembered(_) => vbucket.is_known(&push.key),
            Over::Nothing => vbucket.is_caught_up(),
        };
        self.collections[push.key.0].hub_id.is_some() && is_ready && may_replace
    }

    /// Sends writes that are due, compares versions that waited for a lock, and reads vBuckets again whose versions have not
    /// arrived.
    pub(crate) fn retry(&mut self, replica: &mut dyn Replica, now: Now) -> Result<(), Failure> {
        let mut index = 0;
        while index < self.held.len() {
            let (due, push) = &self.held[index];
            if *due <= now.monotonic_ns && self.can_send(push) {
                let (_, push) = self.held.remove(index);
                self.transmit(push);
            } else {
                index += 1;
            }
        }
        let is_due = |(key, (due, _)): (&Key, &(u64, _))| {
            *due <= now.monotonic_ns && !self.busy.contains(key)
        };
        let due: Vec<Key> =
            self.stash.iter().filter(|it| is_due(*it)).map(|it| it.0.clone()).collect();
        for key in due {
            if let Some((_, pulled)) = self.stash.remove(&key) {
                self.receive_version(key, pulled, replica, now)?;
            }
        }
        if self.hub.is_some() && !self.lines.is_empty() {
            let late = self.awaited.iter().filter(|(_, until)| **until <= now.monotonic_ns);
            let late: Vec<Key> = late.map(|(key, _)| key.clone()).collect();
            for key in late {
                let vbid = Vbid::of(&key.1, self.vbuckets.len() as u16);
                let vbucket = &self.vbuckets[vbid.index()];
                if !vbucket.is_streaming() && !vbucket.is_sweeping() {
                    // It may still arrive by the stream that has been requested.
                    self.awaited.insert(key, now.monotonic_ns + AWAITED_NS);
                    continue;
                }
                self.awaited.remove(&key);
                self.read_again(vbid.0, Stream::Open)?;
            }
        }
        Ok(())
    }

    /// Handles the hub's answer to a write.
    pub(crate) fn push_answered(
        &mut self,
        frame: &Frame<'_>,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let Some(push) = self.pushes.remove(&frame.opaque) else { return Ok(()) };
        let is = |all: &[Status]| all.iter().any(|status| *status as u16 == frame.vbid);
        if is(&[Status::NotMyVbucket]) {
            self.held.push((now.monotonic_ns + BUSY_NS, push));
            return Err(Failure::Renew("a vBucket has moved".into()));
        }
        if is(&BUSY) {
            self.held.push((now.monotonic_ns + BUSY_NS, push));
            return Ok(());
        }
        let Push { key, vbid, version, seen, .. } = push;
        self.busy.remove(&key);
        self.set_dirty();
        if is(&[Status::Success]) {
            self.status.pushed += 1;
            let seqno = wire::read_written(frame).unwrap_or(0);
            self.is_at_hub(vbid, seqno);
            match replica.store(key.0, &key.1, &version, seen, self.latest_unix_ns(now))? {
                Outcome::Stored => drop(self.doubtful.remove(&key)),
                Outcome::Changed | Outcome::Busy => drop(self.again.insert(key.clone())),
            }
        } else if is(&[Status::KeyExists, Status::KeyNotFound]) {
            // The hub has another version, which arrives by the stream and is compared then.
            self.awaited.insert(key.clone(), now.monotonic_ns + AWAITED_NS);
        } else {
            let reason = match () {
                () if is(&[Status::AccessDenied]) => "no_access".to_owned(),
                () if is(&[Status::UnknownCollection]) => "collection_gone".to_owned(),
                () => format!("refused: {}", described(frame.vbid)),
            };
            let (collection, name) = (self.collections[key.0].path.clone(), key.1.clone());
            self.park(Parked { collection, name, reason, is_hubs: false, version }, replica)?;
        }
        self.settle_key(key, replica, now)
    }

    /// Examines a document that changed while a write was in flight.
    fn settle_key(&mut self, key: Key, replica: &mut dyn Replica, now: Now) -> Result<(), Failure> {
        if let Some((_, pulled)) = self.stash.remove(&key) {
            self.again.remove(&key);
            return self.receive_version(key, pulled, replica, now);
        }
        if self.again.remove(&key) && !self.awaited.contains_key(&key) {
            return self.examine(key, replica, now);
        }
        Ok(())
    }
}

/// Statuses with which the hub refuses a version temporarily.
const BUSY: [Status; 6] = [
    Status::Locked,
    Status::TemporaryFailure,
    Status::NoMemory,
    Status::Busy,
    Status::SyncWriteInProgress,
    Status::SyncWriteReCommitInProgress,
];
