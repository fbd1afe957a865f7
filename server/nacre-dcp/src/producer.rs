//! The streams of one consumer, and the scheduling among them.
//!
//! A stream is *ready* when memory or a scan may have something for it. Ready streams take turns, one portion each. A
//! stream that is *behind* waits for a free scan; another thread reads its portions, as [`Work`].
//!
//! ```text
//!            note(vBucket) ──► ready ──► read memory ──► messages ──► next()
//!                                ▲           │ behind
//!            finish(work) ───────┘           ▼
//!                  ▲                  waiting ──► take_work() ──► a scan on another thread
//!                  └──────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: at most one portion's messages are queued, plus at most [`SCANS_MAX`] portions of scans, however many
//! streams there are and however slow the consumer is; an idle stream costs nothing.

use crate::outlet::{End, Message, Origin, Outlet, Wanted};
use crate::{Backfill, Limit, Portion, Read, ResumePoint, StoreScan, Stream};
use nacre_types::{Seqno, VbUuid, Vbid};
use nacre_vbucket::Vbucket;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of open scans per consumer.
pub const SCANS_MAX: usize = 4;
/// Maximum number of streams per consumer.
pub const STREAMS_MAX: usize = 16 << 10;
/// The size of one read.
const PORTION: Limit = Limit { count: 256, bytes: 256 << 10 };

/// The vBuckets that streams read, each behind its lock.
pub trait Vbuckets {
    /// Locks a vBucket; `None` when it does not exist.
    fn with<T>(&self, vbid: Vbid, work: impl FnOnce(&mut Vbucket) -> T) -> Option<T>;
}

/// The stream that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The vBucket.
    pub vbid: Vbid,
    /// The ID that the consumer gave the stream.
    pub stream_id: Option<u16>,
    /// The opaque value of the consumer's stream request.
    pub opaque: u32,
}

/// Identifies a stream within its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Serial(u64);

/// The source of a stream's next portion.
enum Source<E> {
    Memory,
    /// The store, once a scan slot is free.
    Waiting,
    /// A scan that another thread is reading.
    Scan,
    /// A portion of a scan that has been read.
    Arrived(Backfill<E>, Portion),
}

struct Outgoing<E> {
    address: Address,
    stream: Stream<E>,
    outlet: Outlet,
    source: Source<E>,
    /// The purge seqno before the scan that the stream waits for or reads.
    purged: Seqno,
    /// True if the stream is in the ready queue.
    queued: bool,
}

/// A portion to read from the store, on a thread that may block on the disk.
pub struct Work<E> {
    serial: Serial,
    /// The vBucket.
    pub vbid: Vbid,
    /// The seqno after which a new scan begins.
    pub after: Seqno,
    /// True if a new scan must return every kept version.
    pub wants_history: bool,
    vb_uuid: VbUuid,
    /// The open scan to continue, if there is one.
    backfill: Option<Backfill<E>>,
}

/// The result of a [`Work`].
pub struct Finished<E> {
    serial: Serial,
    outcome: Result<(Backfill<E>, Portion), E>,
}

impl<E> Work<E> {
    /// Reads the portion. For streams without an open scan, `open` begins a scan of the vBucket after the seqno, with or
    /// without history.
    pub fn run(
        self,
        open: impl FnOnce(Vbid, Seqno, bool) -> Result<StoreScan<E>, E>,
    ) -> Finished<E> {
        let Work { serial, vbid, after, wants_history, vb_uuid, backfill } = self;
        let read = |mut backfill: Backfill<E>| {
            let portion = backfill.read(PORTION)?;
            Ok((backfill, portion))
        };
        let outcome = match backfill {
            Some(backfill) => read(backfill),
            None => open(vbid, after, wants_history)
                .and_then(|past| read(Backfill::new(past, vb_uuid, after))),
        };
        Finished { serial, outcome }
    }
}

/// All streams of one consumer.
pub struct Producer<E> {
    streams: BTreeMap<Serial, Outgoing<E>>,
    by_vbucket: BTreeMap<Vbid, Vec<Serial>>,
    opened: u64,
    ready: VecDeque<Serial>,
    waiting: VecDeque<Serial>,
    /// Portions that are being read, or were read but not turned into messages yet.
    scans: usize,
    outbox: VecDeque<(Address, Message)>,
}

impl<E> Default for Producer<E> {
    fn default() -> Producer<E> {
        Producer {
            streams: BTreeMap::new(),
            by_vbucket: BTreeMap::new(),
            opened: 0,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            scans: 0,
            outbox: VecDeque::new(),
        }
    }
}

impl<E> Producer<E> {
    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns true if there is no stream.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the streams and their requests.
    pub fn streams(&self) -> impl Iterator<Item = (Address, &Wanted)> {
        self.streams.values().map(|stream| (stream.address, stream.outlet.wanted()))
    }

    /// Returns true if this vBucket has a stream with this ID.
    pub fn has(&self, vbid: Vbid, stream_id: Option<u16>) -> bool {
        self.find(vbid, stream_id).is_some()
    }

    fn find(&self, vbid: Vbid, stream_id: Option<u16>) -> Option<Serial> {
        let serials = self.by_vbucket.get(&vbid)?;
        serials.iter().copied().find(|serial| {
            self.streams.get(serial).is_some_and(|found| found.address.stream_id == stream_id)
        })
    }

    /// Opens a stream of the history after `from`. The caller has checked that the consumer [shares](crate::resume) the
    /// history up to that point.
    pub fn open(
        &mut self,
        vbucket: &mut Vbucket,
        address: Address,
        from: ResumePoint,
        wanted: Wanted,
    ) {
        let purged = vbucket.purge_seqno();
        let outlet = Outlet::new(wanted, from, purged);
        if let Some(end) = outlet.end_at(from.seqno) {
            self.outbox.push_back((address, Message::End(end)));
            return;
        }
        self.opened += 1;
        let serial = Serial(self.opened);
        let mut stream = Stream::open(vbucket, from.seqno);
        if outlet.wanted().history {
            stream = stream.with_history();
        }
        let source = Source::Memory;
        let outgoing = Outgoing { address, stream, outlet, source, purged, queued: true };
        self.streams.insert(serial, outgoing);
        self.by_vbucket.entry(address.vbid).or_default().push(serial);
        self.ready.push_back(serial);
    }

    /// Closes a stream at the consumer's request. Nothing more is sent, except an end message if `says_so`. Returns false
    /// when the stream does not exist.
    pub fn close(
        &mut self,
        vbid: Vbid,
        stream_id: Option<u16>,
        says_so: bool,
        vbuckets: &impl Vbuckets,
    ) -> bool {
        let Some(serial) = self.find(vbid, stream_id) else { return false };
        let Some(address) = self.remove(serial, vbuckets) else { return false };
        self.outbox.retain(|(known, _)| *known != address);
        if says_so {
            self.outbox.push_back((address, Message::End(End::Closed)));
        }
        true
    }

    /// Ends the streams for which `why` returns a reason, after their queued messages.
    pub fn end_where(
        &mut self,
        vbuckets: &impl Vbuckets,
        why: impl Fn(Address, &Wanted) -> Option<End>,
    ) {
        let reason = |(serial, found): (&Serial, &Outgoing<E>)| {
            why(found.address, found.outlet.wanted()).map(|end| (*serial, end))
        };
        let ending: Vec<(Serial, End)> = self.streams.iter().filter_map(reason).collect();
        for (serial, end) in ending {
            self.end(serial, end, vbuckets);
        }
    }

    fn end(&mut self, serial: Serial, end: End, vbuckets: &impl Vbuckets) {
        if let Some(address) = self.remove(serial, vbuckets) {
            self.outbox.push_back((address, Message::End(end)));
        }
    }

    fn remove(&mut self, serial: Serial, vbuckets: &impl Vbuckets) -> Option<Address> {
        let Outgoing { address, stream, source, .. } = self.streams.remove(&serial)?;
        if let Some(serials) = self.by_vbucket.get_mut(&address.vbid) {
            serials.retain(|known| *known != serial);
            if serials.is_empty() {
                self.by_vbucket.remove(&address.vbid);
            }
        }
        match source {
            // [`Producer::next`] skips ended streams.
            Source::Memory => {}
            Source::Waiting => self.waiting.retain(|known| *known != serial),
            // Counted in `scans` until the work is finished.
            Source::Scan => {}
            Source::Arrived(..) => self.scans -= 1,
        }
        vbuckets.with(address.vbid, |vbucket| stream.close(vbucket));
        Some(address)
    }

    /// Ends all streams without a message, and releases the history that they pin.
    pub fn clear(&mut self, vbuckets: &impl Vbuckets) {
        while let Some((&serial, _)) = self.streams.first_key_value() {
            self.remove(serial, vbuckets);
        }
        self.outbox.clear();
    }

    /// Records that a vBucket has new mutations.
    pub fn note(&mut self, vbid: Vbid) {
        for serial in self.by_vbucket.get(&vbid).into_iter().flatten() {
            let Some(stream) = self.streams.get_mut(serial) else { continue };
            if matches!(stream.source, Source::Memory)
                && !std::mem::replace(&mut stream.queued, true)
            {
                self.ready.push_back(*serial);
            }
        }
    }

    /// Returns true if [`Producer::next`] may have a message.
    pub fn is_ready(&self) -> bool {
        !self.outbox.is_empty() || !self.ready.is_empty()
    }

    /// Returns the next message, if there is one.
    pub fn next(&mut self, vbuckets: &impl Vbuckets) -> Option<(Address, Message)> {
        while self.outbox.is_empty() {
            let serial = self.ready.pop_front()?;
            self.read(serial, vbuckets);
        }
        self.outbox.pop_front()
    }

    /// Reads the next portion of a stream.
    fn read(&mut self, serial: Serial, vbuckets: &impl Vbuckets) {
        let Some(found) = self.streams.get_mut(&serial) else { return };
        found.queued = false;
        // A stream follows a single branch of history and ends where another begins: the consumer could not distinguish
        // versions of the two branches.
        let is_readable = |stream: &Stream<E>, vbucket: &Vbucket| {
            vbucket.makes_history() && vbucket.failover_log().current() == stream.vb_uuid()
        };
        let (portion, origin, purged) = match std::mem::replace(&mut found.source, Source::Memory) {
            Source::Arrived(backfill, portion) => {
                self.scans -= 1;
                let vbid = found.address.vbid;
                if vbuckets.with(vbid, |vbucket| is_readable(&found.stream, vbucket)) != Some(true)
                {
                    return self.end(serial, End::VbucketGone, vbuckets);
                }
                found.stream.put_back(backfill);
                (portion, Origin::Disk, found.purged)
            }
            Source::Memory => {
                let left = found.outlet.end().0.saturating_sub(found.stream.position().0);
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(PORTION.count);
                let limit = Limit { count, ..PORTION };
                let read = vbuckets.with(found.address.vbid, |vbucket| {
                    let purged = vbucket.purge_seqno();
                    let is_readable = is_readable(&found.stream, vbucket);
                    let interest = &found.outlet.wanted().interest;
                    let concerns = |collection| interest.concerns(collection);
                    is_readable.then(|| (found.stream.read(vbucket, limit, concerns), purged))
                });
                match read.flatten() {
                    Some((Read::Portion(portion), purged)) => (portion, Origin::Memory, purged),
                    Some((Read::CaughtUp, _)) => return,
                    Some((Read::Behind(_), purged)) => {
                        found.purged = purged;
                        found.source = Source::Waiting;
                        self.waiting.push_back(serial);
                        return;
                    }
                    Some((Read::Gone, _)) | None => {
                        return self.end(serial, End::VbucketGone, vbuckets);
                    }
                }
            }
            other => {
                // A stream that waits for the store is not in the ready queue.
                found.source = other;
                return;
            }
        };
        let (address, outbox) = (found.address, &mut self.outbox);
        found
            .outlet
            .append(portion, origin, purged, |message| outbox.push_back((address, message)));
        if let Some(end) = found.outlet.end_at(found.stream.position()) {
            return self.end(serial, end, vbuckets);
        }
        if found.stream.is_backfilling() {
            found.source = Source::Waiting;
            // Queue it before streams without a scan, so that few scans are open.
            self.waiting.push_front(serial);
        } else {
            found.queued = true;
            self.ready.push_back(serial);
        }
    }

    /// Returns true if [`Producer::take_work`] has a portion to read.
    pub fn has_work(&self) -> bool {
        self.scans < SCANS_MAX && !self.waiting.is_empty()
    }

    /// Returns a portion to read from the store, while fewer than [`SCANS_MAX`] are in progress.
    pub fn take_work(&mut self) -> Option<Work<E>> {
        if !self.has_work() {
            return None;
        }
        let serial = self.waiting.pop_front()?;
        let found = self.streams.get_mut(&serial).expect("a stream that ends leaves the queue");
        self.scans += 1;
        found.source = Source::Scan;
        let (vbid, after) = (found.address.vbid, found.stream.position());
        let (vb_uuid, wants_history) = (found.stream.vb_uuid(), found.stream.wants_history());
        let backfill = found.stream.take_backfill();
        Some(Work { serial, vbid, after, wants_history, vb_uuid, backfill })
    }

    /// Returns true if scans are open. Open scans prevent the store from reclaiming the space of superseded versions.
    pub fn holds_scans(&self) -> bool {
        self.scans > 0 || self.waiting.iter().any(|serial| self.has_begun(*serial))
    }

    fn has_begun(&self, serial: Serial) -> bool {
        self.streams.get(&serial).is_some_and(|found| found.stream.is_backfilling())
    }

    /// Closes the scans that are not being read now. Their streams begin new scans at their positions.
    pub fn close_idle_scans(&mut self) {
        // Streams with an open scan precede all others.
        for serial in &self.waiting {
            let Some(found) = self.streams.get_mut(serial) else { continue };
            if !found.stream.is_backfilling() {
                break;
            }
            found.stream.cut_backfill();
        }
        for found in self.streams.values_mut() {
            if let Source::Arrived(backfill, _) = &mut found.source {
                backfill.cut();
            }
        }
    }

    /// Takes back finished work. Returns the error of a failed scan if its stream still exists.
    pub fn finish(&mut self, finished: Finished<E>, vbuckets: &impl Vbuckets) -> Option<E> {
        let Finished { serial, outcome } = finished;
        let Some(found) = self.streams.get_mut(&serial) else {
            self.scans -= 1;
            return None;
        };
        match outcome {
            Ok((backfill, portion)) => {
                found.source = Source::Arrived(backfill, portion);
                found.queued = true;
                self.ready.push_back(serial);
                None
            }
            Err(error) => {
                self.scans -= 1;
                self.end(serial, End::BackfillFailed, vbuckets);
                Some(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interest;
    use nacre_types::{Cas, Document, Now, VbUuid};
    use nacre_vbucket::{Command, Condition};
    use std::cell::RefCell;

    /// Some vBuckets with a store that has their state as of the last [`Bucket::store`].
    struct Bucket {
        vbuckets: Vec<RefCell<Vbucket>>,
        stored: RefCell<BTreeMap<Vbid, Vec<Document>>>,
    }

    impl Vbuckets for Bucket {
        fn with<T>(&self, vbid: Vbid, work: impl FnOnce(&mut Vbucket) -> T) -> Option<T> {
            self.vbuckets.get(vbid.index()).map(|vbucket| work(&mut vbucket.borrow_mut()))
        }
    }

    impl Bucket {
        fn new(count: u16) -> Bucket {
            let vbucket = |id| RefCell::new(Vbucket::create(Vbid(id), VbUuid(5), 0));
            Bucket { vbuckets: (0..count).map(vbucket).collect(), stored: RefCell::default() }
        }

        fn set(&self, vbid: u16, key: &str) {
            let command = Command::Store {
                condition: Condition::Always,
                cas: Cas::ANY,
                flags: 0,
                expiry: 0,
                keep_expiry: false,
                body: b"1",
            };
            let key = format!("\0{key}");
            let mut vbucket = self.vbuckets[usize::from(vbid)].borrow_mut();
            vbucket.apply(key.as_bytes(), &command, Now::default()).0.unwrap();
        }

        /// Stores all of a vBucket, and drops the history that no reader needs from memory.
        fn store(&self, vbid: u16) {
            let mut vbucket = self.vbuckets[usize::from(vbid)].borrow_mut();
            let mut documents: Vec<_> = vbucket.documents().cloned().collect();
            documents.sort_unstable_by_key(|document| document.meta.seqno);
            self.stored.borrow_mut().insert(Vbid(vbid), documents);
            let high_seqno = vbucket.high_seqno();
            vbucket.set_persisted(high_seqno, usize::MAX);
        }

        fn open(&self, producer: &mut Producer<&'static str>, vbid: u16, from: u64, end: u64) {
            let address = Address { vbid: Vbid(vbid), stream_id: None, opaque: u32::from(vbid) };
            let at = Seqno(from);
            let from =
                ResumePoint { vb_uuid: VbUuid(5), seqno: at, snapshot_start: at, snapshot_end: at };
            let wanted = Wanted {
                interest: Interest::Everything,
                end: Seqno(end),
                advances: true,
                skips_deletes: false,
                history: false,
            };
            producer.open(
                &mut self.vbuckets[usize::from(vbid)].borrow_mut(),
                address,
                from,
                wanted,
            );
        }

        fn scan(&self, work: Work<&'static str>) -> Finished<&'static str> {
            work.run(|vbid, after, _| {
                let stored = self.stored.borrow();
                let documents = stored.get(&vbid).ok_or("not stored")?.clone();
                let end = documents.last().map_or(after, |last| last.meta.seqno);
                let behind = documents.into_iter().filter(move |d| d.meta.seqno > after);
                let documents = Box::new(behind.map(Ok));
                Ok(StoreScan { documents, end, history_start: None })
            })
        }
    }

    fn shown((address, message): (Address, Message)) -> String {
        let what = match message {
            Message::Snapshot { start, end, origin, .. } => format!("{start}..{end} {origin:?}"),
            Message::Document(document) => {
                format!("{}@{}", String::from_utf8_lossy(document.name()), document.meta.seqno)
            }
            Message::Advanced(seqno) => format!("->{seqno}"),
            Message::End(end) => format!("{end:?}"),
        };
        format!("{} {what}", address.vbid.0)
    }

    fn sent(producer: &mut Producer<&'static str>, bucket: &Bucket) -> Vec<String> {
        std::iter::from_fn(|| producer.next(bucket)).map(shown).collect()
    }

    #[test]
    fn streams_follow_writes_and_end_at_their_end_seqno() {
        let bucket = Bucket::new(2);
        let mut producer = Producer::default();
        bucket.set(0, "a");
        bucket.open(&mut producer, 0, 0, u64::MAX);
        bucket.open(&mut producer, 1, 0, 2);
        assert_eq!(sent(&mut producer, &bucket), ["0 0..1 Memory", "0 a@1"]);
        assert!(!producer.is_ready());
        for key in ["b", "c", "d"] {
            bucket.set(1, key);
        }
        assert_eq!(sent(&mut producer, &bucket), [""; 0], "nobody has said so");
        producer.note(Vbid(1));
        producer.note(Vbid(1));
        assert_eq!(sent(&mut producer, &bucket), ["1 0..2 Memory", "1 b@1", "1 c@2", "1 Complete"]);
        assert_eq!(producer.len(), 1);
        bucket.open(&mut producer, 1, 2, 2);
        assert_eq!(sent(&mut producer, &bucket), ["1 Complete"], "there is nothing to do");
    }

    #[test]
    fn changes_of_a_new_branch_are_not_sent_to_consumers_of_the_previous_one() {
        let bucket = Bucket::new(2);
        let mut producer = Producer::default();
        for vbid in [0, 1] {
            bucket.set(vbid, "a");
            bucket.open(&mut producer, vbid, 0, u64::MAX);
        }
        assert_eq!(sent(&mut producer, &bucket).len(), 4);
        bucket.set(0, "of the first");
        bucket.vbuckets[0].borrow_mut().begin_branch(VbUuid(6));
        bucket.set(0, "of the second");
        producer.note(Vbid(0));
        assert_eq!(sent(&mut producer, &bucket), ["0 VbucketGone"], "it asks again, from 1");
        // The same applies if the branch changes while a scan is read.
        let mut producer = Producer::default();
        bucket.store(1);
        bucket.open(&mut producer, 1, 0, u64::MAX);
        assert_eq!(sent(&mut producer, &bucket), [""; 0]);
        let work = producer.take_work().unwrap();
        bucket.vbuckets[1].borrow_mut().begin_branch(VbUuid(6));
        bucket.set(1, "of the second");
        bucket.store(1);
        assert_eq!(producer.finish(bucket.scan(work), &bucket), None);
        assert_eq!(sent(&mut producer, &bucket), ["1 VbucketGone"]);
        bucket.open(&mut producer, 1, 0, u64::MAX);
        assert_eq!(sent(&mut producer, &bucket), [""; 0]);
        assert!(producer.take_work().is_some(), "no scan is counted for ever");
    }

    #[test]
    fn evicted_history_is_read_by_workers_a_few_scans_at_a_time() {
        let bucket = Bucket::new(9);
        let mut producer = Producer::default();
        for vbid in 0..9 {
            for key in 0..PORTION.count + 1 {
                bucket.set(vbid, &key.to_string());
            }
            bucket.store(vbid);
            bucket.open(&mut producer, vbid, 0, u64::MAX);
        }
        assert_eq!(sent(&mut producer, &bucket), [""; 0], "all are behind");
        let work: Vec<_> = std::iter::from_fn(|| producer.take_work()).collect();
        assert_eq!(work.len(), SCANS_MAX);
        for work in work {
            assert_eq!(producer.finish(bucket.scan(work), &bucket), None);
        }
        assert!(producer.take_work().is_none(), "what arrived was not sent yet");
        let first = sent(&mut producer, &bucket);
        assert_eq!(first[..2], ["0 0..257 Disk", "0 0@1"]);
        assert_eq!(first.len(), SCANS_MAX * (PORTION.count + 1));
        // Streams with an open scan continue before others begin.
        let mut rounds = 0;
        let mut rest = Vec::new();
        while let Some(work) = producer.take_work() {
            assert_eq!(work.backfill.is_some(), work.after > Seqno(0));
            assert_eq!(producer.finish(bucket.scan(work), &bucket), None);
            rest.extend(sent(&mut producer, &bucket));
            rounds += 1;
        }
        assert_eq!(rounds, 2 * 9 - SCANS_MAX);
        assert_eq!(rest.len(), 9 * (PORTION.count + 2) - first.len());
        bucket.set(3, "live");
        producer.note(Vbid(3));
        assert_eq!(sent(&mut producer, &bucket), ["3 258..258 Memory", "3 live@258"]);
    }

    #[test]
    fn a_closed_stream_sends_nothing_more() {
        let bucket = Bucket::new(1);
        let mut producer = Producer::default();
        bucket.set(0, "a");
        bucket.set(0, "b");
        bucket.open(&mut producer, 0, 0, u64::MAX);
        assert_eq!(producer.next(&bucket).map(shown).unwrap(), "0 0..2 Memory");
        assert!(producer.close(Vbid(0), None, true, &bucket));
        assert_eq!(sent(&mut producer, &bucket), ["0 Closed"]);
        assert!(!producer.close(Vbid(0), None, true, &bucket), "it is gone");
        bucket.store(0);
        assert_eq!(bucket.vbuckets[0].borrow().checkpoint().memory_bytes(), 0);
    }

    #[test]
    fn a_stream_that_is_closed_while_its_scan_is_read_leaves_room_for_others() {
        let bucket = Bucket::new(1);
        let mut producer = Producer::default();
        bucket.set(0, "a");
        bucket.store(0);
        for _ in 0..2 * SCANS_MAX {
            bucket.open(&mut producer, 0, 0, u64::MAX);
            assert_eq!(sent(&mut producer, &bucket), [""; 0]);
            let work = producer.take_work().unwrap();
            assert!(producer.close(Vbid(0), None, false, &bucket));
            assert_eq!(producer.finish(bucket.scan(work), &bucket), None);
        }
        assert_eq!(sent(&mut producer, &bucket), [""; 0]);
    }

    #[test]
    fn closed_scans_are_continued_by_new_ones() {
        let bucket = Bucket::new(2);
        let mut producer = Producer::default();
        for vbid in 0..2 {
            for key in 0..3 * PORTION.count {
                bucket.set(vbid, &key.to_string());
            }
            bucket.store(vbid);
            bucket.open(&mut producer, vbid, 0, u64::MAX);
        }
        assert!(!producer.holds_scans());
        let mut told = sent(&mut producer, &bucket);
        let first = bucket.scan(producer.take_work().unwrap());
        producer.finish(first, &bucket);
        told.extend(sent(&mut producer, &bucket));
        let second = bucket.scan(producer.take_work().unwrap());
        producer.finish(second, &bucket);
        assert!(producer.holds_scans(), "one has arrived, and is not sent");
        producer.close_idle_scans();
        told.extend(sent(&mut producer, &bucket));
        assert!(!producer.holds_scans());
        while let Some(work) = producer.take_work() {
            producer.finish(bucket.scan(work), &bucket);
            producer.close_idle_scans();
            told.extend(sent(&mut producer, &bucket));
        }
        for vbid in 0..2 {
            let documents: Vec<&String> = told
                .iter()
                .filter(|t| t.starts_with(&format!("{vbid} ")) && t.contains('@'))
                .collect();
            let expected: Vec<String> =
                (0..3 * PORTION.count).map(|n| format!("{vbid} {n}@{}", n + 1)).collect();
            assert!(documents.iter().zip(&expected).all(|(told, expected)| *told == expected));
            assert_eq!(documents.len(), expected.len(), "each once, in order");
        }
    }

    #[test]
    fn a_scan_that_fails_ends_its_stream_only() {
        let bucket = Bucket::new(2);
        let mut producer = Producer::default();
        for vbid in [0, 1] {
            bucket.set(vbid, "a");
            bucket.store(vbid);
            bucket.open(&mut producer, vbid, 0, 1);
        }
        bucket.stored.borrow_mut().remove(&Vbid(0));
        assert_eq!(sent(&mut producer, &bucket), [""; 0]);
        let failed = bucket.scan(producer.take_work().unwrap());
        assert_eq!(producer.finish(failed, &bucket), Some("not stored"));
        let read = bucket.scan(producer.take_work().unwrap());
        assert_eq!(producer.finish(read, &bucket), None);
        assert_eq!(
            sent(&mut producer, &bucket),
            ["0 BackfillFailed", "1 0..1 Disk", "1 a@1", "1 Complete"]
        );
        assert!(producer.is_empty());
    }

    #[test]
    fn consumers_with_many_streams_hold_few_documents() {
        let bucket = Bucket::new(64);
        let mut producer = Producer::default();
        for vbid in 0..64 {
            for key in 0..10 {
                bucket.set(vbid, &key.to_string());
            }
            bucket.open(&mut producer, vbid, 0, u64::MAX);
        }
        let mut messages = 0;
        while producer.next(&bucket).is_some() {
            messages += 1;
            assert!(producer.outbox.len() <= 11, "of one stream at a time");
        }
        assert_eq!(messages, 64 * 11);
    }
}
