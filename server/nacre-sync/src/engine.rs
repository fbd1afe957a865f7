//! The engine: sessions with the nodes of the hub, and the versions in flight.

use crate::pull::{Pulled, VbucketState};
use crate::push::Push;
use crate::replica::Replica;
use crate::wire::{self, Event};
use crate::{
    Direction, Failure, Fault, Hello, Issued, Notice, Point, Saved, Settings, State, Status,
};
use nacre_protocol::{Frame, Magic, Opcode, decode};
use nacre_types::{Cas, Now, Vbid};
use nacre_xdcr::SourceId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Interval at which positions are stored, in nanoseconds.
const SAVE_NS: u64 = 1_000_000_000;
/// Maximum number of unanswered writes to the hub.
const PUSHES_MAX: usize = 64;
/// Maximum number of unread notices; the oldest are dropped.
const NOTICES_MAX: usize = 1024;
/// Maximum bytes of an incomplete frame.
const INPUT_BYTES_MAX: usize = nacre_protocol::BODY_BYTES_MAX + (64 << 10);
/// Distance of a stored bound above the CAS values used so far: one second of the clock, so that a busy device stores a bound
/// once a second.
const ISSUED_AHEAD: u64 = 1_000_000_000;
/// The first opaque of writes; smaller ones belong to handshakes.
pub(crate) const PUSH_OPAQUE_MIN: u32 = 1 << 8;
/// Opaque of stream requests: this bit and the vBucket.
pub(crate) const STREAM_OPAQUE: u32 = 1 << 31;

/// The number of a session with a node of the hub. The owner of the sockets assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineId(pub u32);

/// A document: index of the collection, and key.
pub(crate) type Key = (usize, Vec<u8>);

/// A session with one node.
#[derive(Default)]
pub(crate) struct NodeSession {
    input: Vec<u8>,
    pub output: Vec<u8>,
    /// Bytes of streams received and not yet acknowledged.
    taken: u32,
    /// True once the manifest has arrived. `has_seqnos` is the same for the seqnos of the vBuckets.
    pub has_manifest: bool,
    pub has_seqnos: bool,
    pub asks_seqnos: bool,
}

/// The content of the hub's first message.
pub(crate) struct Hub {
    pub source: SourceId,
    pub by_time: bool,
    pub vbuckets: u16,
    /// The hub's clock, read at a time of the monotonic clock.
    unix_ns: u64,
    at_ns: u64,
}

#[cfg(test)]
impl Hub {
    /// Sets the hub's clock at a time of the monotonic clock.
    pub fn set_clock(&mut self, unix_ns: u64, at_ns: u64) {
        (self.unix_ns, self.at_ns) = (unix_ns, at_ns);
    }
}

/// A collection that is kept in step.
pub(crate) struct Collection {
    pub path: String,
    /// Its ID at the hub; `None` if the hub does not show it.
    pub hub_id: Option<u32>,
}

/// Keeps a device in step with the hub: see the crate's documentation.
pub struct Engine {
    pub(crate) settings: Settings,
    /// The device's name in the hub's list of streams.
    pub(crate) device: String,
    pub(crate) hub: Option<Hub>,
    pub(crate) lines: BTreeMap<LineId, NodeSession>,
    pub(crate) collections: Vec<Collection>,
    /// The collections of the stored positions, with their IDs at the hub.
    pub(crate) known: BTreeMap<String, u32>,
    /// True if the device's history must be read again from the start.
    pub(crate) rewinds: bool,
    pub(crate) vbuckets: Vec<VbucketState>,
    /// Unanswered writes.
    pub(crate) pushes: BTreeMap<u32, Push>,
    /// Writes to send later, with the time in monotonic nanoseconds.
    pub(crate) held: Vec<(u64, Push)>,
    /// Documents with a write in flight.
    pub(crate) busy: BTreeSet<Key>,
    /// Documents that changed while a write was in flight.
    pub(crate) again: BTreeSet<Key>,
    /// Versions of the hub that wait for the end of a write, or for the end of a lock (with the time of the next attempt).
    pub(crate) stash: BTreeMap<Key, (u64, Pulled)>,
    /// Documents of which the hub has another version that has not arrived, with the time by which it should arrive.
    pub(crate) awaited: BTreeMap<Key, u64>,
    /// Documents that may contain versions that the hub has lost, and have not been in step since, with the seqno at which the
    /// hub's history left the branch that the device knew.
    pub(crate) doubtful: BTreeMap<Key, u64>,
    /// Documents to examine.
    pub(crate) queue: VecDeque<Key>,
    pub(crate) next_opaque: u32,
    /// The greatest CAS values used so far.
    pub(crate) issued: Issued,
    pub(crate) saved: Saved,
    /// True if positions have changed since they were last stored.
    is_dirty: bool,
    /// True if changes of the device may not have been examined, because its history is still being read from disk.
    is_reading: bool,
    /// The kinds of comparisons that this session has reported: the vBuckets of a node mostly need them at the same time.
    pub(crate) resync_notices: BTreeSet<bool>,
    save_at_ns: u64,
    notices: VecDeque<Notice>,
    pub(crate) status: Status,
}

impl Engine {
    /// Returns an engine without a session. `device` is the device's name in the hub's list of streams; `saved` is the stored
    /// state of the previous engine.
    pub fn new(settings: Settings, device: &str, saved: Saved) -> Engine {
        let collections = settings.collections.iter();
        let collections =
            collections.map(|path| Collection { path: path.clone(), hub_id: None }).collect();
        let mut engine = Engine {
            settings,
            device: device.to_owned(),
            hub: None,
            lines: BTreeMap::new(),
            collections,
            known: saved.collections.clone(),
            rewinds: false,
            vbuckets: Vec::new(),
            pushes: BTreeMap::new(),
            held: Vec::new(),
            busy: BTreeSet::new(),
            again: BTreeSet::new(),
            stash: BTreeMap::new(),
            awaited: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            queue: VecDeque::new(),
            next_opaque: PUSH_OPAQUE_MIN,
            issued: saved.issued,
            saved: saved.clone(),
            is_dirty: false,
            is_reading: false,
            resync_notices: BTreeSet::new(),
            save_at_ns: 0,
            notices: VecDeque::new(),
            status: Status::default(),
        };
        engine.vbuckets = saved.points.iter().map(|point| VbucketState::at(*point)).collect();
        engine
    }

    /// Starts a session that a node has accepted with `hello`.
    ///
    /// # Errors
    /// [`Failure::Stranger`], and [`Failure::Protocol`] for an invalid hello.
    pub fn connected(&mut self, id: LineId, hello: &Hello, now: Now) -> Result<(), Failure> {
        if !(1..=1024).contains(&hello.vbuckets) {
            return Err(Failure::Protocol(format!("a bucket of {} vBuckets", hello.vbuckets)));
        }
        if self.saved.bucket.is_empty() {
            self.vbuckets = (0..hello.vbuckets).map(|_| VbucketState::default()).collect();
            self.saved.bucket.clone_from(&hello.bucket_uuid);
        } else if self.saved.bucket != hello.bucket_uuid
            || self.vbuckets.len() != usize::from(hello.vbuckets)
        {
            let (known, found) = (self.saved.bucket.clone(), hello.bucket_uuid.clone());
            return Err(Failure::Stranger { known, found });
        }
        self.hub = Some(Hub {
            source: hello.source(),
            by_time: hello.by_time,
            vbuckets: hello.vbuckets,
            unix_ns: hello.unix_ns,
            at_ns: now.monotonic_ns,
        });
        self.resync_notices.clear();
        let mut line = NodeSession::default();
        wire::handshake(&hello.bucket, &self.device, 1, &mut line.output);
        self.lines.insert(id, line);
        self.set_state(State::CatchingUp);
        Ok(())
    }

    /// Ends a session. The next session examines unanswered writes again.
    pub fn disconnected(&mut self, id: LineId) {
        if self.lines.remove(&id).is_none() {
            return;
        }
        // A waiting version may no longer be the hub's in the next session, which sends it again.
        let count = self.vbuckets.len() as u16;
        let served = |key: &Key| self.vbuckets[Vbid::of(&key.1, count).index()].line == Some(id);
        let waiting: Vec<Key> = self.stash.keys().filter(|key| served(key)).cloned().collect();
        for key in waiting {
            self.stash.remove(&key);
            self.vbuckets[Vbid::of(&key.1, count).index()].restart();
        }
        for vbucket in &mut self.vbuckets {
            vbucket.lose(id);
        }
        let lost: Vec<u32> =
            self.pushes.iter().filter(|(_, push)| push.line == id).map(|(it, _)| *it).collect();
        for opaque in lost {
            if let Some(push) = self.pushes.remove(&opaque) {
                self.held.push((0, push));
            }
        }
        for (_, push) in &mut self.held {
            push.remember();
        }
        if self.lines.is_empty() {
            self.set_state(State::Offline);
        }
    }

    /// Receives bytes of a session, split anywhere. A failure ends the session: the owner calls [`Engine::disconnected`].
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn receive(
        &mut self,
        id: LineId,
        bytes: &[u8],
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        let Some(line) = self.lines.get_mut(&id) else { return Ok(()) };
        let mut input = std::mem::take(&mut line.input);
        input.extend_from_slice(bytes);
        let mut from = 0;
        loop {
            let broken = |error| Failure::Protocol(format!("the hub's bytes: {error}"));
            let Some((frame, length)) = decode(&input[from..]).map_err(broken)? else { break };
            self.take(id, &frame, length, replica, now)?;
            from += length;
        }
        input.drain(..from);
        if input.len() > INPUT_BYTES_MAX {
            return Err(Failure::Protocol("the hub's frame is too long".into()));
        }
        if let Some(line) = self.lines.get_mut(&id) {
            line.input = input;
        }
        self.advance(replica, now).map(drop)
    }

    fn take(
        &mut self,
        id: LineId,
        frame: &Frame<'_>,
        length: usize,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        match frame.magic {
            Magic::Response | Magic::FlexResponse => self.answered(id, frame, replica, now),
            Magic::Request | Magic::FlexRequest => {
                let cut = || Failure::Protocol("a message of the hub is too short".into());
                match wire::read(frame).ok_or_else(cut)? {
                    Event::Noop => {
                        let line = self.lines.get_mut(&id).expect("its bytes are being taken");
                        wire::noop(frame.opaque, &mut line.output);
                        return Ok(());
                    }
                    event => self.happened(id, frame.vbid, event, replica, now)?,
                }
                self.acknowledge(id, length);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Acknowledges bytes of streams once they reach half of the window.
    fn acknowledge(&mut self, id: LineId, length: usize) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.taken = line.taken.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        if line.taken >= wire::WINDOW_BYTES / 2 {
            wire::acknowledge(std::mem::take(&mut line.taken), &mut line.output);
        }
    }

    fn answered(
        &mut self,
        id: LineId,
        frame: &Frame<'_>,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<(), Failure> {
        if frame.opaque & STREAM_OPAQUE != 0 {
            return self.stream_answered(id, frame, replica, now);
        }
        if frame.opaque >= PUSH_OPAQUE_MIN {
            return self.push_answered(frame, replica, now);
        }
        self.handshake_answered(id, frame)
    }

    /// Does all work that needs no answer of the hub: examines changes of the device, sends writes again that were refused
    /// temporarily, and stores positions. Returns the time until more work is due if nothing arrives; `None` for no limit.
    ///
    /// # Errors
    /// [`Failure::Local`].
    pub fn advance(
        &mut self,
        replica: &mut dyn Replica,
        now: Now,
    ) -> Result<Option<Duration>, Failure> {
        self.retry(replica, now)?;
        self.look_at_changes(replica, now)?;
        self.save(replica, now)?;
        self.update_state();
        Ok(self.due(now))
    }

    fn look_at_changes(&mut self, replica: &mut dyn Replica, now: Now) -> Result<(), Failure> {
        let pushes = self.settings.direction == Direction::Both;
        if self.hub.is_none() {
            return Ok(());
        }
        if std::mem::take(&mut self.rewinds) {
            replica.rewind()?;
            self.is_dirty = true;
        }
        while let Some(key) = self.queue.pop_front() {
            self.examine(key, replica, now)?;
        }
        if !pushes || self.wants_to_save(now) || !self.has_all_lines() {
            return Ok(());
        }
        while self.pushes.len() + self.held.len() < PUSHES_MAX {
            let Some(key) = replica.next_change()? else {
                self.is_reading = replica.is_reading();
                break;
            };
            self.is_dirty = true;
            self.examine(key, replica, now)?;
        }
        Ok(())
    }

    /// Returns true if a node serves each vBucket. Until then, changes wait in the device's history.
    fn has_all_lines(&self) -> bool {
        !self.vbuckets.is_empty() && self.vbuckets.iter().all(|vbucket| vbucket.line.is_some())
    }

    pub(crate) fn set_dirty(&mut self) {
        self.is_dirty = true;
    }

    /// Returns true if positions must be stored as soon as no write is in flight.
    fn wants_to_save(&self, now: Now) -> bool {
        self.is_dirty && now.monotonic_ns >= self.save_at_ns
    }

    fn is_quiet(&self) -> bool {
        self.pushes.is_empty()
            && self.held.is_empty()
            && self.stash.is_empty()
            && self.again.is_empty()
            && self.awaited.is_empty()
            && self.queue.is_empty()
    }

    /// Stores positions when no write is in flight, after the documents.
    fn save(&mut self, replica: &mut dyn Replica, now: Now) -> Result<(), Failure> {
        if !self.wants_to_save(now) || !self.is_quiet() {
            return Ok(());
        }
        replica.flush()?;
        let after = Saved {
            bucket: self.saved.bucket.clone(),
            collections: self.known.clone(),
            points: self.points(),
            push: Some(replica.position()),
            issued: self.saved.issued,
        };
        let rows = after.rows_after(&self.saved);
        replica.save(&rows)?;
        self.saved = after;
        self.is_dirty = false;
        self.save_at_ns = now.monotonic_ns + SAVE_NS;
        // Examine the changes that waited for this.
        self.look_at_changes(replica, now)
    }

    /// Stores bounds above the CAS values used so far, before the values are used. Most calls find that the bounds are high
    /// enough.
    pub(crate) fn bound_issued(&mut self, replica: &mut dyn Replica) -> Result<(), Fault> {
        let bound = |stored: Cas, issued: Cas| match issued > stored {
            true => Cas(issued.0.saturating_add(ISSUED_AHEAD)),
            false => stored,
        };
        let Issued { writes, decisions } = self.saved.issued;
        let issued = Issued {
            writes: bound(writes, self.issued.writes),
            decisions: bound(decisions, self.issued.decisions),
        };
        if issued != self.saved.issued {
            let after = Saved { issued, ..self.saved.clone() };
            replica.save(&after.rows_after(&self.saved))?;
            self.saved = after;
        }
        Ok(())
    }

    /// Returns the positions to store. For a vBucket in a pass over all documents, returns the position from before the pass.
    fn points(&self) -> Vec<Point> {
        let point = |(index, vbucket): (usize, &VbucketState)| match vbucket.is_sweeping() {
            true => self.saved.points.get(index).copied().unwrap_or_default(),
            false => vbucket.point,
        };
        self.vbuckets.iter().enumerate().map(point).collect()
    }

    /// Stores positions at once if no write is in flight. Call it before you end a session on purpose.
    ///
    /// # Errors
    /// [`Failure::Local`].
    pub fn save_now(&mut self, replica: &mut dyn Replica, now: Now) -> Result<(), Failure> {
        self.save_at_ns = 0;
        self.save(replica, now)
    }

    fn due(&self, now: Now) -> Option<Duration> {
        let held = self.held.iter().filter(|(_, push)| self.can_send(push)).map(|(due, _)| *due);
        let locked = self.stash.iter().filter(|(key, _)| !self.busy.contains(*key));
        let mut times = held.chain(locked.map(|(_, (due, _))| *due)).collect::<Vec<_>>();
        if !self.lines.is_empty() {
            times.extend(self.awaited.values().copied());
            times.extend(
                self.is_dirty.then_some(self.save_at_ns).filter(|at| *at > now.monotonic_ns),
            );
        }
        let next = times.into_iter().min()?;
        Some(Duration::from_nanos(next.saturating_sub(now.monotonic_ns)))
    }

    /// Asks the nodes for their seqnos, so that [`Engine::is_in_step`] refers to the present state of the hub.
    pub fn ask(&mut self) {
        for line in self.lines.values_mut().filter(|line| line.has_seqnos && !line.asks_seqnos) {
            line.asks_seqnos = true;
            wire::seqnos(crate::handshake::SEQNOS_AGAIN, &mut line.output);
        }
    }

    /// Returns true if the device has everything that the hub had at the last [question](Engine::ask), and the hub has everything
    /// that the device has written.
    pub fn is_in_step(&self) -> bool {
        self.status.state == State::Live
            && self.lines.values().all(|line| !line.asks_seqnos)
            && self.remaining() == 0
            && self.is_quiet()
            && !self.is_dirty
            && !self.is_reading
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.vbuckets.iter().map(|vbucket| vbucket.high.saturating_sub(vbucket.point.seqno)).sum()
    }

    fn update_state(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let is_streaming = self.has_all_lines() && self.vbuckets.iter().all(|it| it.is_streaming());
        let is_live = is_streaming && self.remaining() == 0 && !self.is_sweeping();
        self.set_state(if is_live { State::Live } else { State::CatchingUp });
    }

    pub(crate) fn set_state(&mut self, state: State) {
        if self.status.state != state {
            self.status.state = state;
            self.notify(Notice::State(state));
        }
    }

    pub(crate) fn notify(&mut self, notice: Notice) {
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    /// Returns the oldest unread notice.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Returns the bytes to send to a node; the owner removes those that it has sent.
    pub fn output(&mut self, id: LineId) -> Option<&mut Vec<u8>> {
        self.lines.get_mut(&id).map(|line| &mut line.output)
    }

    /// Returns the figures of the engine.
    pub fn status(&self) -> Status {
        let on_the_way = (self.pushes.len() + self.held.len()) as u64;
        Status { remaining: self.remaining(), on_the_way, ..self.status }
    }

    /// Returns the hub's clock, in nanoseconds since the Unix epoch.
    pub(crate) fn hub_unix_ns(&self, now: Now) -> u64 {
        let read = |hub: &Hub| hub.unix_ns + now.monotonic_ns.saturating_sub(hub.at_ns);
        self.hub.as_ref().map_or(now.unix_ns, read)
    }

    /// Returns the later of both clocks.
    pub(crate) fn latest_unix_ns(&self, now: Now) -> u64 {
        self.hub_unix_ns(now).max(now.unix_ns)
    }

    pub(crate) fn hub_source(&self) -> SourceId {
        self.hub.as_ref().map(|hub| hub.source.clone()).expect("versions come after the hello")
    }

    pub(crate) fn next_opaque(&mut self) -> u32 {
        let opaque = self.next_opaque;
        self.next_opaque = match opaque + 1 {
            STREAM_OPAQUE => PUSH_OPAQUE_MIN,
            next => next,
        };
        opaque
    }

    pub(crate) fn opcode_of(frame: &Frame<'_>) -> String {
        frame.opcode().map_or_else(|| frame.opcode_byte.to_string(), |it: Opcode| format!("{it:?}"))
    }
}
