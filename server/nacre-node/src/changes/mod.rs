//! The changes of one collection over all vBuckets, for consumers that keep one token.
//!
//! A consumer that names its last [`Token`] gets what came after it, and nothing twice, whichever nodes serve the vBuckets
//! meanwhile:
//!
//! ```text
//!              ┌─► Reader: what this node serves, as it is written ─────────────┐
//! Changes::deal┤                                                               ├─► next_change
//!              └─► Others: a question to each other node, which waits for news ─┘
//!                    ▲ part.rs answers it                    │
//!                    └──────────── and so on ────────────────┘
//! ```
//!
//! [`Changes`] keeps where each vBucket stands after what it gave. Whatever happens to a vBucket – it is moved, its node is lost,
//! an answer does not come – it is loose then, and is read on from there by whoever serves it, or not at all if its history
//! was lost. A vBucket is read in one place at a time.

mod others;
mod part;
mod reader;
mod token;

pub(crate) use part::ChangesService;
use part::{ChangesCall, ChangesPart, ChangesReply, Position};
pub(crate) use token::resolve;
pub use token::{NoToken, Token};

use crate::node::Node;
use crate::scatter_gather::{NoReply, Owners, ScatterRequest, UNREACHED_PATIENCE, Vbids};
use nacre_bucket::{Bucket, Waiter};
use nacre_dcp::{Message, ResumePoint};
use nacre_types::{CollectionId, Document, NodeId, Seqno, VbUuid, Vbid};
use others::{Ended, Heard, Others};
use reader::{Read, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long to begin may take.
const BEGIN_PATIENCE: Duration = Duration::from_secs(20);
/// How long another node waits for news before it says that there are none.
const NEWS_WAIT: Duration = Duration::from_secs(5);
/// How long another node may take for its answer besides.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// How soon is asked again what nobody could answer.
const PAUSE: Duration = Duration::from_millis(20);
/// How soon a node is asked again that cannot wait for news.
const CROWD_PAUSE: Duration = Duration::from_millis(250);

/// From where on a consumer wants changes.
#[derive(Clone, Debug)]
pub enum Since {
    /// The first that there is.
    Beginning,
    /// What comes from now on.
    Now,
    /// What came after this.
    Token(Token),
}

/// Up to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// What there is now.
    Now,
    /// Without an end.
    Forever,
}

/// Which changes a consumer wants, and how much of them.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// After what.
    pub since: Since,
    /// Up to where.
    pub until: Until,
    /// Only of these documents.
    pub ids: Option<BTreeSet<Vec<u8>>>,
    /// Whether the bodies are looked at: without, they may be missing.
    pub bodies: bool,
    /// After how many it stops: more may be given.
    pub limit: u64,
}

/// Why the changes after a token cannot be told without gaps, in words: the consumer must begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

/// Why there are no changes, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// See [`Gone`].
    Gone(String),
    /// The nodes that serve the vBuckets do not answer; another try may succeed.
    Unavailable(String),
}

/// One change of a document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The vBucket it belongs to, in whose order it stands.
    pub vbid: Vbid,
    /// The version it led to. What came from another node has only what consumers are told: id, seqno, CAS, revision, whether
    /// it is alive and JSON, and the body if that is wanted.
    pub document: Document,
}

/// What comes next.
#[derive(Clone, Debug)]
pub enum Next {
    /// A change.
    Change(Change),
    /// A change that is not wanted.
    Passed,
    /// Nothing now; the waiter is woken when that may change. It has to look again after [`Changes::pause`] all the same.
    Nothing,
    /// There will not be more: all was told that was asked for.
    Complete,
    /// There will not be more, for this reason.
    Broken(String),
}

/// Where a consumer stands in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stand {
    point: ResumePoint,
    /// The last seqno that it wants.
    end: Seqno,
}

impl Stand {
    /// Before everything, without an end.
    const BEGINNING: Stand = Stand {
        point: ResumePoint {
            vb_uuid: VbUuid(0),
            seqno: Seqno::ZERO,
            snapshot_start: Seqno::ZERO,
            snapshot_end: Seqno::ZERO,
        },
        end: Seqno(u64::MAX),
    };

    /// Notes where a message leads; gives the document that it shows.
    fn take(&mut self, message: Message) -> Option<Document> {
        let point = &mut self.point;
        match message {
            // It counts with the first seqno in it.
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

/// vBuckets that nobody is asked about for a while.
struct Resting {
    until_ns: u64,
    vbids: Vbids,
    /// They may be asked about before, together with others.
    is_idle: bool,
}

/// A reader of a collection's changes.
pub struct Changes {
    node: Arc<Node>,
    bucket: Arc<Bucket>,
    collection: CollectionId,
    wanted: Wanted,
    waiter: Arc<dyn Waiter>,
    /// Of all vBuckets, after what was given.
    stands: BTreeMap<Vbid, Stand>,
    /// What this node serves.
    here: Reader,
    others: Others,
    /// The vBuckets that nobody was asked about yet.
    loose: Vbids,
    resting: Vec<Resting>,
    /// Those that could not be read, since when.
    troubled: BTreeMap<Vbid, u64>,
    /// Those of others of which not all was told that there was when the reader began.
    behind: Vbids,
    /// The last vBucket of which another node has told something.
    last: Vbid,
    given: u64,
    map_rev: i64,
    broken: Option<String>,
    /// Of a reader that [follows](Changes::follow): the vBuckets that it was not told of to be begun anew.
    begun_anew: Option<Vec<Vbid>>,
}

impl Changes {
    /// Begins to read. `waiter` is woken when there may be more. Blocks until each vBucket has said from where on: not for a
    /// thread that others wait for.
    ///
    /// # Errors
    /// [`Refused`]; the changes are gone when what is wanted does not belong here, or no more.
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
        let stands = begin(node, bucket, collection, &wanted)?;
        Ok(Changes { map_rev, ..Changes::at(node, bucket, collection, wanted, stands, waiter) })
    }

    /// Begins to read all changes after these points, and after nothing in other vBuckets. Where that is not possible the vBucket
    /// is read from its beginning: see [`Changes::take_begun_anew`]. Does not block.
    pub(crate) fn follow(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        collection: CollectionId,
        points: impl IntoIterator<Item = (Vbid, ResumePoint)>,
        waiter: Arc<dyn Waiter>,
    ) -> Changes {
        let (until, limit) = (Until::Forever, u64::MAX);
        let wanted = Wanted { since: Since::Beginning, until, ids: None, bodies: true, limit };
        let vbids = (0..bucket.vbucket_count()).map(Vbid);
        let mut stands: BTreeMap<_, _> = vbids.map(|vbid| (vbid, Stand::BEGINNING)).collect();
        for (vbid, point) in points {
            stands.insert(vbid, Stand { point, ..Stand::BEGINNING });
        }
        let begun_anew = Some(Vec::new());
        Changes { begun_anew, ..Changes::at(node, bucket, collection, wanted, stands, waiter) }
    }

    fn at(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        collection: CollectionId,
        wanted: Wanted,
        stands: BTreeMap<Vbid, Stand>,
        waiter: Arc<dyn Waiter>,
    ) -> Changes {
        node.watch_map(&waiter);
        let vbids: Vbids = stands.keys().copied().collect();
        Changes {
            node: Arc::clone(node),
            bucket: Arc::clone(bucket),
            collection,
            wanted,
            here: Reader::new(node, bucket, collection, Arc::clone(&waiter)),
            waiter,
            stands,
            others: Others::default(),
            loose: vbids.clone(),
            resting: Vec::new(),
            troubled: BTreeMap::new(),
            behind: vbids,
            last: Vbid(0),
            given: 0,
            map_rev: node.map_rev(),
            broken: None,
            begun_anew: None,
        }
    }

    /// The next change, if there is one now. Never waits.
    pub fn next_change(&mut self) -> Next {
        loop {
            self.look_around();
            if let Some(why) = &self.broken {
                return Next::Broken(why.clone());
            }
            if self.begun_anew.as_ref().is_some_and(|begun| !begun.is_empty()) {
                return Next::Passed;
            }
            match self.others.next() {
                Some(Heard::Change(told, point)) => {
                    if let Some(stand) = self.stands.get_mut(&told.vbid) {
                        stand.point = point;
                    }
                    self.last = told.vbid;
                    return self.give(told.vbid, told.document(self.collection));
                }
                Some(Heard::End(ended)) => {
                    self.end(ended);
                    continue;
                }
                None => {}
            }
            let read = self.here.next();
            match read {
                Read::Message(vbid, message) => {
                    let shown = self.stands.get_mut(&vbid).and_then(|stand| stand.take(message));
                    if let Some(document) = shown {
                        return self.give(vbid, document);
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

    /// How soon to look again after [`Next::Nothing`], though nothing has happened.
    pub fn pause(&self) -> Option<Duration> {
        let next_ns = self.resting.iter().map(|resting| resting.until_ns).min()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(self.node.now().monotonic_ns)))
    }

    /// Whether nothing is on its way from the store or from other nodes that was there when the reader began, so that after
    /// [`Next::Nothing`] all that has happened was told.
    pub fn is_caught_up(&self) -> bool {
        self.here.is_caught_up() && self.behind.is_empty()
    }

    /// Where the reader stands after what [`Changes::next_change`] has given.
    pub fn token(&self) -> Token {
        token(&self.bucket, self.collection, &self.stands)
    }

    /// Where the reader stands in each vBucket after what [`Changes::next_change`] has given.
    pub(crate) fn points(&self) -> impl Iterator<Item = (Vbid, ResumePoint)> {
        self.stands.iter().map(|(vbid, stand)| (*vbid, stand.point))
    }

    /// The vBuckets whose history is not the one that was read: what comes next of them is from its beginning. To be asked for
    /// after each [`Changes::next_change`].
    pub(crate) fn take_begun_anew(&mut self) -> Vec<Vbid> {
        self.begun_anew.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was read of a vBucket is not its history, or not any more.
    fn lose(&mut self, vbid: Vbid, why: String) {
        let Some(begun_anew) = &mut self.begun_anew else {
            self.broken = Some(why);
            return;
        };
        begun_anew.push(vbid);
        self.stands.insert(vbid, Stand::BEGINNING);
        self.behind.insert(vbid);
        self.loose.insert(vbid);
    }

    fn give(&mut self, vbid: Vbid, document: Document) -> Next {
        let ids = self.wanted.ids.as_ref();
        if ids.is_some_and(|ids| !ids.contains(document.name())) {
            return Next::Passed;
        }
        self.given += 1;
        Next::Change(Change { vbid, document })
    }

    fn is_idle(&self) -> bool {
        self.others.is_idle() && self.loose.is_empty() && self.resting.is_empty()
    }

    /// Takes in what has happened elsewhere, and has each vBucket read by somebody.
    fn look_around(&mut self) {
        for (vbids, answer) in self.others.take_in() {
            match answer {
                Ok(Err(NoReply::Elsewhere)) => {
                    self.trouble(&vbids, "some vBuckets are on the move")
                }
                Ok(Err(NoReply::NotYet(why))) | Err(why) => self.trouble(&vbids, &why),
                Ok(Ok(ChangesReply::Gone(why))) => self.broken = Some(why),
                Ok(Err(NoReply::Failed(failure))) => self.broken = Some(failure.message),
                Ok(_) => self.broken = Some("a node answers something else".into()),
            }
        }
        let map_rev = self.node.map_rev();
        let is_moved = std::mem::replace(&mut self.map_rev, map_rev) != map_rev;
        if is_moved && let Some(owners) = self.node.owners(&self.bucket.name) {
            let wrong = self.others.take_back(|vbid, node| owners.of(vbid) != Some(node));
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

    /// Has each loose vBucket read where it is served.
    fn deal(&mut self) {
        let mut loose = std::mem::take(&mut self.loose);
        let Some(owners) = self.node.owners(&self.bucket.name) else {
            self.broken = Some("the bucket has ended".into());
            return;
        };
        let is_over =
            |vbid: &Vbid| self.stands.get(vbid).is_none_or(|stand| stand.point.seqno >= stand.end);
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
            let Some(stand) = self.stands.get_mut(&vbid) else { continue };
            match self.here.open(vbid, stand) {
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
        // What is still in the store the reader knows itself.
        self.behind.remove_all(&read);
        self.trouble(&refused, "this node does not serve all of its vBuckets");
    }

    fn ask(&mut self, owners: &Owners, owner: NodeId, mut vbids: Vbids) {
        let (may_ask, may_wait) = self.others.may_ask(owner);
        if !may_ask {
            return self.rest(vbids, PAUSE, true);
        }
        if may_wait {
            // One question about all of them.
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
        // Each vBucket gets its turn, also if those before it have more than one answer takes.
        let (before, after): (Vec<Vbid>, Vec<Vbid>) =
            vbids.iter().partition(|vbid| *vbid <= self.last);
        let in_turn = after.iter().chain(&before);
        let call = ChangesCall::Read {
            after: in_turn.map(|vbid| Position::new(*vbid, &self.stands[vbid])).collect(),
            ids: self.wanted.ids.clone(),
            bodies: self.wanted.bodies,
            limit: self.wanted.limit.saturating_sub(self.given),
            wait_ms: wait.as_millis() as u64,
        };
        let question = part(&self.bucket, self.collection, call);
        let told = self.others.expect(owner, vbids, &self.waiter);
        self.node.ask_then(owner, &question, wait + READ_PATIENCE, told);
    }

    /// Goes on after an answer.
    fn end(&mut self, ended: Ended) {
        for (vbid, stand) in ended.stands {
            self.stands.insert(vbid, stand);
        }
        for (vbid, why) in ended.gone {
            self.lose(vbid, why);
        }
        for vbid in ended.vbids.iter() {
            self.troubled.remove(&vbid);
            if let Some(stand) = self.stands.get_mut(&vbid).filter(|_| ended.is_over) {
                stand.end = stand.point.seqno;
            }
        }
        if ended.is_all {
            self.behind.remove_all(&ended.vbids);
        }
        match ended.rests {
            true => self.rest(ended.vbids, CROWD_PAUSE, true),
            false => self.loose.add_all(&ended.vbids),
        }
        self.trouble(&ended.elsewhere, "some vBuckets are on the move");
    }

    fn rest(&mut self, vbids: Vbids, pause: Duration, is_idle: bool) {
        if !vbids.is_empty() {
            let until_ns = self.node.now().monotonic_ns + pause.as_nanos() as u64;
            self.resting.push(Resting { until_ns, vbids, is_idle });
        }
    }

    /// Tries again soon what could not be read, but not for ever.
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

fn token(bucket: &Bucket, collection: CollectionId, stands: &BTreeMap<Vbid, Stand>) -> Token {
    let told = stands.iter().filter(|(_, stand)| stand.point.seqno > Seqno::ZERO);
    let points = told.map(|(vbid, stand)| (*vbid, stand.point)).collect();
    Token { bucket: bucket.uuid.clone(), collection, points }
}

/// Where a consumer of a whole bucket stands that begins `since`. A token may be one of any collection: what came after it
/// came after it in all of them. Blocks until each vBucket has said whether that can be: not for a thread that others wait for.
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
    let stands = begin(node, bucket, collection, &wanted)?;
    Ok(token(bucket, collection, &stands))
}

/// Asks all vBuckets where the consumer stands.
fn begin(
    node: &Arc<Node>,
    bucket: &Bucket,
    collection: CollectionId,
    wanted: &Wanted,
) -> Result<BTreeMap<Vbid, Stand>, Refused> {
    let question = |vbids: &Vbids| {
        let call = part::begin_call(vbids.clone(), &wanted.since, wanted.until);
        part(bucket, collection, call)
    };
    let want =
        ScatterRequest { vbids: Vbids::first(bucket.vbucket_count()), message: Box::new(question) };
    let gathered = node.gather(&bucket.name, &[want], BEGIN_PATIENCE);
    let mut stands = BTreeMap::new();
    for told in gathered.map_err(Refused::Unavailable)? {
        match told.reply {
            Ok(ChangesReply::Begun(begun)) => {
                stands.extend(begun.iter().map(|position| (position.vbid, position.stand())));
            }
            Ok(ChangesReply::Gone(why)) => return Err(Refused::Gone(why)),
            Err(failure) => return Err(Refused::Unavailable(failure.message)),
            _ => return Err(Refused::Unavailable("a node answers something else".into())),
        }
    }
    Ok(stands)
}

fn part(bucket: &Bucket, collection: CollectionId, call: ChangesCall) -> ChangesPart {
    let bucket = (bucket.name.clone(), bucket.uuid.clone());
    ChangesPart { bucket, collection: collection.0, call }
}
