//! The changes of one collection over all vBuckets, for consumers that store one token.
//!
//! A consumer that names its last [`Token`] receives every later change exactly once, whichever nodes serve the
//! vBuckets in the meantime:
//!
//! ```text
//!              ┌─► Reader: vBuckets of this node, as they are written ────────────────────┐
//! Changes::deal┤                                                                         ├─► next_change
//!              └─► Others: a request to each other node, which waits for new changes ────┘
//!                    ▲ part.rs answers it                              │
//!                    └──────────────────── and repeat ─────────────────┘
//! ```
//!
//! [`Changes`] holds the position in each vBucket. A vBucket becomes loose when it moves, when its node fails, or when
//! an answer does not arrive. The node that serves the vBucket then continues from that position, unless its history
//! was lost. Only one reader or request reads a vBucket at a time.

mod part;
mod peer_reads;
mod reader;
mod token;

pub use part::ChangesService;
use part::{ChangesCall, ChangesPart, ChangesReply, Position};
pub use token::resolve;
pub use token::{NoToken, Token};

use nacre_bucket::{Bucket, Waiter};
use nacre_dcp::{Message, ResumePoint};
use nacre_node::Node;
use nacre_node::scatter_gather::{NoReply, Owners, ScatterRequest, UNREACHED_PATIENCE, Vbids};
use nacre_types::{CollectionId, Document, NodeId, Seqno, VbUuid, Vbid};
use peer_reads::{Ended, PeerEvent, PeerReads};
use reader::{Read, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of the start.
const BEGIN_PATIENCE: Duration = Duration::from_secs(20);
/// Longest time that another node waits for new changes before it reports that there are none.
const NEWS_WAIT: Duration = Duration::from_secs(5);
/// Additional time that another node may take for its answer.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the next request about vBuckets for which no node could answer.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause before the next request to a node that cannot park more requests.
const CROWD_PAUSE: Duration = Duration::from_millis(250);

/// The position at which a consumer starts.
#[derive(Clone, Debug)]
pub enum Since {
    /// Before the first change.
    Beginning,
    /// Only changes from now on.
    Now,
    /// After this token.
    Token(Token),
}

/// The position at which a consumer stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After the changes that exist now.
    Now,
    /// Never.
    Forever,
}

/// The changes that a consumer asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The start.
    pub since: Since,
    /// The end.
    pub until: Until,
    /// Restricts the changes to these documents.
    pub ids: Option<BTreeSet<Vec<u8>>>,
    /// True if the consumer reads the bodies. Otherwise they may be missing.
    pub bodies: bool,
    /// Number of changes after which the reader may stop. It may return more.
    pub limit: u64,
}

/// The reason why the changes after a token cannot be returned without gaps: the consumer must restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

/// The reason why there are no changes, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// See [`Gone`].
    Gone(String),
    /// The nodes that serve the vBuckets do not answer. A retry may succeed.
    Unavailable(String),
}

/// A change of a document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The vBucket of the document. The changes of a vBucket arrive in order.
    pub vbid: Vbid,
    /// The new version. From another node it contains only what consumers receive: ID, seqno, CAS, revision, the flags
    /// for deletion and JSON, and the body if the consumer wants bodies.
    pub document: Document,
}

/// The next result for a consumer.
#[derive(Clone, Debug)]
pub enum Next {
    /// A change.
    Change(Change),
    /// A change that the consumer did not ask for.
    Passed,
    /// No result now. The waiter is woken when that may change. In any case, check again after [`Changes::pause`].
    Nothing,
    /// The end: the consumer has received everything.
    Complete,
    /// The reader has failed, for this reason.
    Broken(String),
}

/// A consumer's position in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    point: ResumePoint,
    /// The last seqno that the consumer asks for.
    end: Seqno,
}

impl Cursor {
    /// The start of the history, without an end.
    const BEGINNING: Cursor = Cursor {
        point: ResumePoint {
            vb_uuid: VbUuid(0),
            seqno: Seqno::ZERO,
            snapshot_start: Seqno::ZERO,
            snapshot_end: Seqno::ZERO,
        },
        end: Seqno(u64::MAX),
    };

    /// Advances the position past a message. Returns the document in the message.
    fn take(&mut self, message: Message) -> Option<Document> {
        let point = &mut self.point;
        match message {
            // A snapshot includes its first seqno.
            Message::Snapshot { start, end, .. } => {
                point.snapshot_start = start.min(point.seqno);
                point.snapshot_end = end.max(point.seqno);
                None
            }
            Message::Document(document) => {
                point.seqno = document.meta.seqno;
                point.snapshot_start = point.snapshot_start.min(point.seqno);
                document.collection().holds_documents().then_some(document)
            }
            Message::Advanced(seqno) => {
                point.seqno = seqno;
                None
            }
            Message::End(_) => None,
        }
    }
}

/// vBuckets about which no request is sent for a while.
struct Resting {
    until_ns: u64,
    vbids: Vbids,
    /// True if a request about other vBuckets may include these earlier.
    is_idle: bool,
}

/// A reader of a collection's changes.
pub struct Changes {
    node: Arc<Node>,
    bucket: Arc<Bucket>,
    collection: CollectionId,
    wanted: Wanted,
    waiter: Arc<dyn Waiter>,
    /// Position in each vBucket, after the changes that the consumer has received.
    cursors: BTreeMap<Vbid, Cursor>,
    /// Reads the vBuckets of this node.
    here: Reader,
    peer_reads: PeerReads,
    /// vBuckets that belong to no reader and no request yet.
    loose: Vbids,
    resting: Vec<Resting>,
    /// vBuckets that could not be read, with the time of the first failure.
    troubled: BTreeMap<Vbid, u64>,
    /// vBuckets of other nodes with changes that are older than this reader and have not all been returned.
    behind: Vbids,
    /// The last vBucket about which another node has sent changes.
    last: Vbid,
    given: u64,
    map_rev: i64,
    broken: Option<String>,
    /// Only for [`Changes::follow`]: vBuckets that restart and have not been reported yet.
    restarted: Option<Vec<Vbid>>,
}

impl Changes {
    /// Starts to read. The waiter `waiter` is woken when more changes may be available. The call blocks until each
    /// vBucket has reported its start: do not call it on a thread for which others wait.
    ///
    /// # Errors
    /// [`Refused`]. The changes are gone if the token belongs to another bucket or collection, or to a lost history.
    pub fn open(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        collection: CollectionId,
        wanted: Wanted,
        waiter: Arc<dyn Waiter>,
    ) -> Result<Changes, Refused> {
        if let Since::Token(token) = &wanted.since {
            token.check(bucket, collection).map_err(|Gone(why)| Refused::Gone(why))?;
        }
        let map_rev = node.map_rev();
        let cursors = begin(node, bucket, collection, &wanted)?;
        Ok(Changes { map_rev, ..Changes::at(node, bucket, collection, wanted, cursors, waiter) })
    }

    /// Starts to read all changes after these points, and other vBuckets from their start. If a point does not match the history,
    /// the vBucket restarts: see [`Changes::take_restarted`]. The call does not block.
    pub fn follow(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        collection: CollectionId,
        points: impl IntoIterator<Item = (Vbid, ResumePoint)>,
        waiter: Arc<dyn Waiter>,
    ) -> Changes {
        let (until, limit) = (Until::Forever, u64::MAX);
        let wanted = Wanted { since: Since::Beginning, until, ids: None, bodies: true, limit };
        let vbids = (0..bucket.vbucket_count()).map(Vbid);
        let mut cursors: BTreeMap<_, _> = vbids.map(|vbid| (vbid, Cursor::BEGINNING)).collect();
        for (vbid, point) in points {
            cursors.insert(vbid, Cursor { point, ..Cursor::BEGINNING });
        }
        let restarted = Some(Vec::new());
        Changes { restarted, ..Changes::at(node, bucket, collection, wanted, cursors, waiter) }
    }

    fn at(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        collection: CollectionId,
        wanted: Wanted,
        cursors: BTreeMap<Vbid, Cursor>,
        waiter: Arc<dyn Waiter>,
    ) -> Changes {
        node.watch_map(&waiter);
        let vbids: Vbids = cursors.keys().copied().collect();
        Changes {
            node: Arc::clone(node),
            bucket: Arc::clone(bucket),
            collection,
            wanted,
            here: Reader::new(node, bucket, collection, Arc::clone(&waiter)),
            waiter,
            cursors,
            peer_reads: PeerReads::default(),
            loose: vbids.clone(),
            resting: Vec::new(),
            troubled: BTreeMap::new(),
            behind: vbids,
            last: Vbid(0),
            given: 0,
            map_rev: node.map_rev(),
            broken: None,
            restarted: None,
        }
    }

    /// Returns the next change, if one is available. Never waits.
    pub fn next_change(&mut self) -> Next {
        loop {
            self.process_replies();
            if let Some(why) = &self.broken {
                return Next::Broken(why.clone());
            }
            if self.restarted.as_ref().is_some_and(|begun| !begun.is_empty()) {
                return Next::Passed;
            }
            match self.peer_reads.next() {
                Some(PeerEvent::Change(change, point)) => {
                    if let Some(cursor) = self.cursors.get_mut(&change.vbid) {
                        cursor.point = point;
                    }
                    self.last = change.vbid;
                    return self.emit(change.vbid, change.document(self.collection));
                }
                Some(PeerEvent::End(ended)) => {
                    self.end(ended);
                    continue;
                }
                None => {}
            }
            let read = self.here.next();
            match read {
                Read::Message(vbid, message) => {
                    let shown = self.cursors.get_mut(&vbid).and_then(|cursor| cursor.take(message));
                    if let Some(document) = shown {
                        return self.emit(vbid, document);
                    }
                }
                Read::Lost(vbids) => {
                    self.behind.add_all(&vbids);
                    self.loose.add_all(&vbids);
                }
                Read::Broken(why) => self.broken = Some(why.to_owned()),
                Read::Over if self.is_idle() => return Next::Complete,
                Read::Nothing | Read::Over => return Next::Nothing,
            }
        }
    }

    /// Returns the time after which to check again after [`Next::Nothing`], even without a wake-up.
    pub fn pause(&self) -> Option<Duration> {
        let next_ns = self.resting.iter().map(|resting| resting.until_ns).min()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(self.node.now().monotonic_ns)))
    }

    /// Returns true if no change that is older than this reader is still on its way from the store or from other nodes.
    /// After [`Next::Nothing`], all of them have then been returned.
    pub fn is_caught_up(&self) -> bool {
        self.here.is_caught_up() && self.behind.is_empty()
    }

    /// Returns the token after the last [`Changes::next_change`].
    pub fn token(&self) -> Token {
        token(&self.bucket, self.collection, &self.cursors)
    }

    /// Returns the position in each vBucket after the last [`Changes::next_change`].
    pub fn points(&self) -> impl Iterator<Item = (Vbid, ResumePoint)> {
        self.cursors.iter().map(|(vbid, cursor)| (*vbid, cursor.point))
    }

    /// Takes the vBuckets whose history has changed: their next changes come from the start of the new history. Call it
    /// after each [`Changes::next_change`].
    pub fn take_restarted(&mut self) -> Vec<Vbid> {
        self.restarted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops a vBucket whose history has changed.
    fn lose(&mut self, vbid: Vbid, why: String) {
        let Some(restarted) = &mut self.restarted else {
            self.broken = Some(why);
            return;
        };
        restarted.push(vbid);
        self.cursors.insert(vbid, Cursor::BEGINNING);
        self.behind.insert(vbid);
        self.loose.insert(vbid);
    }

    fn emit(&mut self, vbid: Vbid, document: Document) -> Next {
        let ids = self.wanted.ids.as_ref();
        if ids.is_some_and(|ids| !ids.contains(document.name())) {
            return Next::Passed;
        }
        self.given += 1;
        Next::Change(Change { vbid, document })
    }

    fn is_idle(&self) -> bool {
        self.peer_reads.is_idle() && self.loose.is_empty() && self.resting.is_empty()
    }

    /// Processes reports of other nodes and of the reader, and assigns loose vBuckets.
    fn process_replies(&mut self) {
        for (vbids, answer) in self.peer_reads.take_replies() {
            match answer {
                Ok(Err(NoReply::NotOwner)) => self.trouble(&vbids, "some vBuckets are being moved"),
                Ok(Err(NoReply::NotYet(why))) | Err(why) => self.trouble(&vbids, &why),
                Ok(Ok(ChangesReply::Gone(why))) => self.broken = Some(why),
                Ok(Err(NoReply::Failed(failure))) => self.broken = Some(failure.message),
                Ok(_) => self.broken = Some("a node has sent an unexpected answer".into()),
            }
        }
        let map_rev = self.node.map_rev();
        let is_moved = std::mem::replace(&mut self.map_rev, map_rev) != map_rev;
        if is_moved && let Some(owners) = self.node.owners(&self.bucket.name) {
            let wrong = self.peer_reads.take_back(|vbid, node| owners.of(vbid) != Some(node));
            self.loose.add_all(&wrong);
        }
        if !self.resting.is_empty() {
            let now_ns = self.node.now().monotonic_ns;
            let is_over = |resting: &mut Resting| is_moved || resting.until_ns <= now_ns;
            for resting in self.resting.extract_if(.., is_over) {
                self.loose.add_all(&resting.vbids);
            }
        }
        if !self.loose.is_empty() {
            self.deal();
        }
    }

    /// Assigns each loose vBucket to the reader, or to a request to the node that serves it.
    fn deal(&mut self) {
        let mut loose = std::mem::take(&mut self.loose);
        let Some(owners) = self.node.owners(&self.bucket.name) else {
            self.broken = Some("the bucket has ended".into());
            return;
        };
        let is_over = |vbid: &Vbid| {
            self.cursors.get(vbid).is_none_or(|cursor| cursor.point.seqno >= cursor.end)
        };
        let over: Vbids = loose.iter().filter(is_over).collect();
        loose.remove_all(&over);
        self.behind.remove_all(&over);
        for (owner, vbids) in owners.split(&loose) {
            loose.remove_all(&vbids);
            match owner == self.node.id() {
                true => self.read_here(&vbids),
                false => self.ask(&owners, owner, vbids),
            }
        }
        self.trouble(&loose, "some vBuckets are served by no node");
    }

    fn read_here(&mut self, vbids: &Vbids) {
        let (mut refused, mut lost) = (Vbids::default(), Vbids::default());
        for vbid in vbids.iter() {
            let Some(cursor) = self.cursors.get_mut(&vbid) else { continue };
            match self.here.open(vbid, cursor) {
                Ok(true) => drop(self.troubled.remove(&vbid)),
                Ok(false) => refused.insert(vbid),
                Err(Gone(why)) => {
                    lost.insert(vbid);
                    self.lose(vbid, why);
                }
            }
        }
        let mut read = vbids.clone();
        read.remove_all(&lost);
        read.remove_all(&refused);
        // The reader itself tracks which changes it still has to read from the store.
        self.behind.remove_all(&read);
        self.trouble(&refused, "this node does not serve all of its vBuckets");
    }

    fn ask(&mut self, owners: &Owners, owner: NodeId, mut vbids: Vbids) {
        let (may_ask, may_wait) = self.peer_reads.may_ask(owner);
        if !may_ask {
            return self.rest(vbids, PAUSE, true);
        }
        if may_wait {
            // A single request asks about all idle vBuckets of this node.
            for resting in self.resting.iter_mut().filter(|resting| resting.is_idle) {
                let is_same = |vbid: &Vbid| owners.of(*vbid) == Some(owner);
                let same: Vbids = resting.vbids.iter().filter(is_same).collect();
                resting.vbids.remove_all(&same);
                vbids.add_all(&same);
            }
            self.resting.retain(|resting| !resting.vbids.is_empty());
        }
        let is_behind = vbids.iter().any(|vbid| self.behind.contains(vbid));
        let wait = if may_wait && !is_behind { NEWS_WAIT } else { Duration::ZERO };
        // The order rotates, so that each vBucket has its turn even if one answer cannot hold the changes of all.
        let (before, after): (Vec<Vbid>, Vec<Vbid>) =
            vbids.iter().partition(|vbid| *vbid <= self.last);
        let in_turn = after.iter().chain(&before);
        let call = ChangesCall::Read {
            after: in_turn.map(|vbid| Position::new(*vbid, &self.cursors[vbid])).collect(),
            ids: self.wanted.ids.clone(),
            bodies: self.wanted.bodies,
            limit: self.wanted.limit.saturating_sub(self.given),
            wait_ms: wait.as_millis() as u64,
        };
        let question = part(&self.bucket, self.collection, call);
        let on_reply = self.peer_reads.expect(owner, vbids, &self.waiter);
        self.node.ask_with_callback(owner, &question, wait + READ_PATIENCE, on_reply);
    }

    /// Continues after an answer.
    fn end(&mut self, ended: Ended) {
        for (vbid, cursor) in ended.cursors {
            self.cursors.insert(vbid, cursor);
        }
        for (vbid, why) in ended.gone {
            self.lose(vbid, why);
        }
        for vbid in ended.vbids.iter() {
            self.troubled.remove(&vbid);
            if let Some(cursor) = self.cursors.get_mut(&vbid).filter(|_| ended.is_over) {
                cursor.end = cursor.point.seqno;
            }
        }
        if ended.is_all {
            self.behind.remove_all(&ended.vbids);
        }
        match ended.rests {
            true => self.rest(ended.vbids, CROWD_PAUSE, true),
            false => self.loose.add_all(&ended.vbids),
        }
        self.trouble(&ended.not_owned, "some vBuckets are being moved");
    }

    fn rest(&mut self, vbids: Vbids, pause: Duration, is_idle: bool) {
        if !vbids.is_empty() {
            let until_ns = self.node.now().monotonic_ns + pause.as_nanos() as u64;
            self.resting.push(Resting { until_ns, vbids, is_idle });
        }
    }

    /// Schedules a retry for vBuckets, or fails if the retries have taken too long.
    fn trouble(&mut self, vbids: &Vbids, why: &str) {
        if vbids.is_empty() {
            return;
        }
        let now_ns = self.node.now().monotonic_ns;
        for vbid in vbids.iter() {
            let since_ns = *self.troubled.entry(vbid).or_insert(now_ns);
            if Duration::from_nanos(now_ns.saturating_sub(since_ns)) > UNREACHED_PATIENCE {
                self.broken = Some(why.to_owned());
            }
        }
        self.rest(vbids.clone(), PAUSE, false);
    }
}

fn token(bucket: &Bucket, collection: CollectionId, cursors: &BTreeMap<Vbid, Cursor>) -> Token {
    let started = cursors.iter().filter(|(_, cursor)| cursor.point.seqno > Seqno::ZERO);
    let points = started.map(|(vbid, cursor)| (*vbid, cursor.point)).collect();
    Token { bucket: bucket.uuid.clone(), collection, points }
}

/// Returns the positions at which a consumer of a whole bucket starts. `since` may be a token of any collection: its
/// positions are valid for all. The call blocks until each vBucket has answered: do not call it on a thread for which
/// others wait.
///
/// # Errors
/// As for [`Changes::open`].
pub fn start(node: &Arc<Node>, bucket: &Bucket, since: Since) -> Result<Token, Refused> {
    let mut collection = CollectionId(0);
    if let Since::Token(token) = &since {
        collection = token.collection;
        token.check(bucket, collection).map_err(|Gone(why)| Refused::Gone(why))?;
    }
    let wanted = Wanted { since, until: Until::Forever, ids: None, bodies: false, limit: 0 };
    let cursors = begin(node, bucket, collection, &wanted)?;
    Ok(token(bucket, collection, &cursors))
}

/// Asks all vBuckets for their start.
fn begin(
    node: &Arc<Node>,
    bucket: &Bucket,
    collection: CollectionId,
    wanted: &Wanted,
) -> Result<BTreeMap<Vbid, Cursor>, Refused> {
    let question = |vbids: &Vbids| {
        let call = part::begin_call(vbids.clone(), &wanted.since, wanted.until);
        part(bucket, collection, call)
    };
    let want =
        ScatterRequest { vbids: Vbids::first(bucket.vbucket_count()), message: Box::new(question) };
    let gathered = node.gather(&bucket.name, &[want], BEGIN_PATIENCE);
    let mut cursors = BTreeMap::new();
    for shard in gathered.map_err(Refused::Unavailable)? {
        match shard.reply {
            Ok(ChangesReply::Begun(begun)) => {
                cursors.extend(begun.iter().map(|position| (position.vbid, position.cursor())));
            }
            Ok(ChangesReply::Gone(why)) => return Err(Refused::Gone(why)),
            Err(failure) => return Err(Refused::Unavailable(failure.message)),
            _ => return Err(Refused::Unavailable("a node has sent an unexpected answer".into())),
        }
    }
    Ok(cursors)
}

fn part(bucket: &Bucket, collection: CollectionId, call: ChangesCall) -> ChangesPart {
    let bucket = (bucket.name.clone(), bucket.uuid.clone());
    ChangesPart { bucket, collection: collection.0, call }
}
