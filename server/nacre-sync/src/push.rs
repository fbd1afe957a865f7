//! Versions on their way to the hub.

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

/// The pause before a version is sent again that the hub could not take, in nanoseconds.
const BUSY_NS: u64 = 200_000_000;
/// How long the hub's other version may take to arrive, in nanoseconds.
const AWAITED_NS: u64 = 3_000_000_000;

/// The version of the hub that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// None, or a tombstone.
    Nothing,
    /// The one with this CAS, which the hub has shown in this session.
    Version(Cas),
    /// The one with this CAS, which the device knows from before. A hub that has lost it may have another version with the same CAS, that of
    /// a device that wrote at the same time: so it counts only once the hub's history is known to go on from there.
    Remembered(Cas),
}

impl Over {
    /// Replaces just this version.
    pub fn of(version: &Arriving) -> Over {
        match version.meta.kind {
            Kind::Alive => Over::Version(version.meta.cas),
            Kind::Deleted | Kind::Expired | Kind::Aborted => Over::Nothing,
        }
    }

    /// The same version after the session in which it was seen.
    fn remembered(self) -> Over {
        match self {
            Over::Version(cas) | Over::Remembered(cas) => Over::Remembered(cas),
            Over::Nothing => Over::Nothing,
        }
    }

    /// Returns the CAS that the hub's version must have; 0 for any, and for none.
    pub fn cas(self) -> u64 {
        match self {
            Over::Version(cas) | Over::Remembered(cas) => cas.0,
            Over::Nothing => 0,
        }
    }
}

/// A write on its way.
pub(crate) struct Push {
    pub key: Key,
    pub vbid: u16,
    pub line: LineId,
    version: Arriving,
    over: Over,
    /// The version of the device that becomes this one once the hub has it.
    seen: Option<Seen>,
}

impl Push {
    /// Waits for another session.
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
    /// Sends what the application has written, if the hub does not have it.
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
            // The hub has lost it, and what it has instead arrives, if it has anything.
            Some(Cas::ANY) => Over::Nothing,
            Some(_) if self.doubtful.contains_key(&key) => Over::Nothing,
            Some(cas) => Over::Remembered(cas),
            // It was created and deleted in between.
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

    /// Sends a version, which takes the place of the device's version `seen` once the hub has it.
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
            // A deletion names what it deletes: what the hub has, if it has anything, arrives first.
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

    /// Returns true if there is a node to send a version to, and nothing speaks against it.
    ///
    /// A document that the hub does not have is sent once everything has arrived that it had when the session began. An earlier session
    /// may have sent it already without an answer, and others may have deleted it since: over a tombstone it would come back.
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

    /// Sends again what is due, takes what was locked, and reads again what has not arrived.
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
                    // It may still arrive by the stream that has been asked for.
                    self.awaited.insert(key, now.monotonic_ns + AWAITED_NS);
                    continue;
                }
                self.awaited.remove(&key);
                self.read_again(vbid.0, Stream::Open)?;
            }
        }
        Ok(())
    }

    /// The hub has answered a write.
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

    /// Looks at what happened to a document while a write was under way.
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

/// The hub could not take a version for the time being.
const BUSY: [Status; 6] = [
    Status::Locked,
    Status::TemporaryFailure,
    Status::NoMemory,
    Status::Busy,
    Status::SyncWriteInProgress,
    Status::SyncWriteReCommitInProgress,
];
