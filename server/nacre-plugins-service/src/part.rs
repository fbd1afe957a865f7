//! Requests to a deployment whose state is distributed over the nodes: each node answers for the vBuckets that it serves, and the
//! plugin merges the answers.

use super::message::{PluginMessage, PluginReply, RequestPart};
use super::{Deployment, Progress};
use crate::NodePlugins;
use crate::consistency::Wanted;
use crate::failure::{code, retry};
use nacre_node::Node;
use nacre_node::block;
use nacre_node::scatter_gather::{
    NoReply, PartialReplies, ScatterRequest, ShardReply, UNREACHED_PATIENCE, Vbids,
};
use nacre_sandbox::{Account, Answer as Given, Error, Header, Request, Response};
use nacre_types::{NodeId, Seqno, Vbid};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Header with the vBuckets that an answer must cover.
const VBUCKETS: &str = "nacre-vbuckets";
/// Header of a request whose answer will be merged with others. Its value is the answering node.
const PART: &str = "nacre-part";
/// Value for the node that received the client's request. Source: Couchbase's views.
const HERE: &str = "local";
/// Header of an answer that has further rounds: the deployment is asked again with this header in the request, and the bodies are
/// concatenated.
const REST: &str = "nacre-rest";
/// Header next to [`REST`]: the deployment is asked again once its state has changed, or after this number of milliseconds.
const WAIT: &str = "nacre-wait";
/// Longest wait that a plugin can ask for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Maximum size in bytes of a request's body whose answer waits; the body is kept as long as the answer.
const WAITING_BODY_BYTES_MAX: usize = 1 << 20;
/// Header of a response that is not an answer yet: the deployment is asked again, with this header in the request, once its state
/// reflects everything that was written before the request.
const FRESH: &str = "nacre-fresh";
/// The text of [`Missing::Late`].
const LATE: &str = "the state was not up to date in time";
/// How long a request waits for a deployment that the node is loading.
const LOADING_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks whether a state has the vBuckets that it should, if no event triggers one.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a state was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Other nodes serve some of the vBuckets.
    NotOwner,
    /// Not possible yet, for this reason; the same request may succeed later.
    NotYet(String),
    /// Not possible within the patience.
    Late,
    /// The deployment exceeded the time limit of its answer.
    TimedOut(String),
    /// The deployment is paused or has stopped.
    Stopped(String),
    /// The deployment cannot answer.
    Failed(String),
    /// The node has no memory for the answer; the same request may succeed later.
    NoMemory(String),
}

impl From<String> for Missing {
    fn from(reason: String) -> Missing {
        Missing::Failed(reason)
    }
}

impl From<&Error> for Missing {
    fn from(error: &Error) -> Missing {
        match error {
            Error::NodeMemory { .. } => Missing::NoMemory(error.to_string()),
            error => Missing::Failed(error.to_string()),
        }
    }
}

/// Options of a request.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The vBuckets that the answer covers; `None` for all of the bucket.
    pub vbids: Option<Vbids>,
    /// True if the answer must reflect all earlier writes.
    pub fresh: bool,
    /// The seqnos that the answer must reflect.
    pub seqnos: Vec<(Vbid, Seqno)>,
    /// True if the deployment should process new changes afterwards.
    pub updates: bool,
    /// Maximum wait for the state.
    pub patience: Duration,
    /// Account for the memory of the answer until its client has received it.
    pub account: Arc<Account>,
    /// Set if the answer may lack the parts of some nodes, and must be complete within the patience.
    pub partial: Option<PartialAnswer>,
}

/// How a request is answered if some nodes return no part in time.
#[derive(Clone, Copy, Debug)]
pub struct PartialAnswer {
    /// Creates the substitute for the part of a node; the plugin merges it with the other parts.
    pub part: fn(&AbsentPart<'_>) -> Response,
    /// Number of rounds that the answer may need. The patience is divided among them.
    pub rounds: u32,
}

/// A part that a node has not returned.
pub struct AbsentPart<'a> {
    /// Name of the deployment.
    pub deployment: &'a str,
    /// Address of the node's cluster management; empty for vBuckets without a node.
    pub node: &'a str,
    /// Why it is absent.
    pub why: &'a Missing,
}

impl Deployment {
    /// Reads the state once it covers all of `vbids` with the wanted consistency, and this node serves them. Both are checked
    /// before and after the read, because a vBucket may leave in between. The argument of `read` is true if the state covers no
    /// other vBuckets; otherwise `read` must filter them out.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn read<T, E: Into<Missing>>(
        &self,
        vbids: &Vbids,
        wanted: &Wanted,
        left: Duration,
        read: impl Fn(bool) -> Result<T, E>,
    ) -> Result<T, Missing> {
        let node = self.node.upgrade().ok_or(Missing::NotYet("the node ends".into()))?;
        let begun_ns = node.now().monotonic_ns;
        let serves = || match self.bucket.serves(vbids, node.now()) {
            true => Ok(()),
            false => Err(Missing::NotOwner),
        };
        loop {
            serves()?;
            match self.progress() {
                Progress::Running => {}
                Progress::Paused if *wanted == Wanted::Anything => {
                    return read(false).map_err(Into::into);
                }
                Progress::Paused => return Err(Missing::Stopped("it is paused".into())),
                Progress::Failed(reason) | Progress::Damaged(reason) => {
                    return Err(Missing::Stopped(reason));
                }
                Progress::Removed | Progress::HandedOver => {
                    return Err(Missing::NotYet("it was replaced or deleted meanwhile".into()));
                }
            }
            let passed = Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
            let left = left.saturating_sub(passed);
            let moved = self.processed.moved();
            // An index that is not complete yet cannot be read.
            let is_built = !self.spec.is_index() || self.is_complete();
            let covered = self.coverage.covers(vbids, &self.processed).filter(|_| is_built);
            let Some(covered) = covered else {
                if left.is_zero() {
                    return Err(Missing::Late);
                }
                self.ask_for_update();
                block::on(&*node.platform, moved, PAUSE.min(left));
                continue;
            };
            let caught_up = match wanted {
                Wanted::Anything => Some(Ok(())),
                Wanted::Everything => {
                    block::on(&*node.platform, self.catch_up_in(Some(vbids)), left)
                }
                Wanted::Vector(vector) => {
                    let ours = vector.iter().filter(|(vbid, _)| vbids.contains(*vbid)).copied();
                    let ours: Vec<_> = ours.collect();
                    block::on(&*node.platform, self.reach(&ours), left)
                }
            };
            match caught_up {
                None => return Err(Missing::Late),
                // A permanent reason was handled above.
                Some(Err(_)) => continue,
                Some(Ok(())) => {}
            }
            let value = read(covered.is_exact).map_err(Into::into)?;
            serves()?;
            if self.coverage.is_still(covered) {
                return Ok(value);
            }
        }
    }

    /// Begins to answer a request from the vBuckets that this node serves, with one answer per lane.
    fn answer_here(
        &self,
        node: &Node,
        request: &Request,
        vbids: &Vbids,
        wanted: &Wanted,
        left: Duration,
        account: Option<&Arc<Account>>,
        is_limited: bool,
    ) -> Result<Vec<Given>, Missing> {
        let begun_ns = node.now().monotonic_ns;
        self.read(vbids, wanted, left, |is_exact| {
            let passed_ns = node.now().monotonic_ns.saturating_sub(begun_ns);
            let limit = left.saturating_sub(Duration::from_nanos(passed_ns));
            let limit = is_limited.then_some(limit);
            match is_exact {
                true => self.handle(request, node.now(), account, limit),
                false => {
                    let mut masked = request.clone();
                    masked.headers.push((VBUCKETS.into(), list(vbids)));
                    self.handle(&masked, node.now(), account, limit)
                }
            }
        })
    }
}

fn wanted(fresh: bool, seqnos: &[(Vbid, Seqno)]) -> Wanted {
    match seqnos {
        _ if fresh => Wanted::Everything,
        [] => Wanted::Anything,
        seqnos => Wanted::Vector(seqnos.to_vec()),
    }
}

pub(super) fn no_bucket() -> Missing {
    Missing::NotYet("the bucket is gone".into())
}

/// Returns the answer of the only lane of the only node.
fn only<T>(mut answers: Vec<T>) -> Result<T, Missing> {
    answers.pop().ok_or_else(no_bucket)
}

pub(super) fn not_loaded() -> Missing {
    Missing::NotYet("the plugin is being loaded: try again".into())
}

/// Formats vBuckets as plugins read them.
fn list(vbids: &Vbids) -> String {
    vbids.iter().map(|vbid| vbid.0.to_string()).collect::<Vec<_>>().join(",")
}

/// Answers another node's request for a part.
pub(crate) fn answer_part(
    node: &Arc<Node>,
    part: &RequestPart,
    left: Duration,
) -> Result<PluginReply, NoReply> {
    let deployment = node.plugins().deployment(&part.deployment).ok_or_else(not_loaded)?;
    let wanted = wanted(part.fresh, &part.seqnos);
    let mut request = part.request.clone();
    if !part.is_whole {
        let here = part.asked_by == node.id();
        let from = if here { HERE.to_owned() } else { node.endpoints().management() };
        request.headers.push((PART.into(), from));
    }
    // The requesting node waits no longer than that.
    let given = deployment.answer_here(node, &request, &part.vbids, &wanted, left, None, true);
    if part.updates {
        deployment.ask_for_update();
    }
    let responses = given?.into_iter().map(Given::collect).collect::<Result<_, _>>();
    Ok(PluginReply::Responses(responses.map_err(|error| Missing::from(&error))?))
}

/// Begins to answer a request from the state of a deployment on all nodes. Blocks: do not call it on a thread for which others
/// wait.
///
/// # Errors
/// [`Missing`], except [`Missing::NotOwner`].
pub fn request(
    node: &Arc<Node>,
    name: &str,
    request: &Request,
    terms: &Terms,
) -> Result<Reply, Missing> {
    ask(node, name, terms.patience, |deployment| request_to(node, deployment, request, terms))
}

/// Asks the deployment that answers under `name`, and its successor if it is replaced meanwhile. A node that has just started
/// loads the deployment first, because clients of other protocols may mistake a refusal for an answer.
pub(super) fn ask<T>(
    node: &Node,
    name: &str,
    patience: Duration,
    ask: impl Fn(&Arc<Deployment>) -> Result<T, Missing>,
) -> Result<T, Missing> {
    let begun_ns = node.now().monotonic_ns;
    loop {
        let changed = node.plugins().changed();
        let deployment = node.plugins().deployment(name);
        let outcome = deployment.as_ref().ok_or_else(not_loaded).and_then(&ask);
        let passed = Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
        let left = patience.saturating_sub(passed);
        let Some(deployment) = deployment else {
            let left = left.min(LOADING_PATIENCE.saturating_sub(passed));
            if left.is_zero() || node.is_stopping() {
                return outcome;
            }
            block::on(&*node.platform, changed, PAUSE.min(left));
            continue;
        };
        match outcome {
            // Another version answers now or will soon.
            Err(Missing::NotYet(_)) if deployment.is_replaced() && !left.is_zero() => {
                block::on(&*node.platform, changed, PAUSE.min(left));
            }
            outcome => return outcome,
        }
    }
}

fn request_to(
    node: &Arc<Node>,
    deployment: &Arc<Deployment>,
    request: &Request,
    terms: &Terms,
) -> Result<Reply, Missing> {
    let owners = node.owners(&deployment.bucket.name);
    let owners = owners.ok_or_else(no_bucket)?;
    let vbids = terms.vbids.clone().unwrap_or_else(|| owners.all());
    if owners.only() == Some(node.id()) && deployment.spec.lanes() == 1 {
        // Must precede the read of the state, so that no change in between is missed.
        let moved = deployment.processed.moved();
        let wanted = wanted(terms.fresh, &terms.seqnos);
        let (left, account) = (terms.patience, Some(&terms.account));
        let is_limited = terms.partial.is_some();
        let given =
            deployment.answer_here(node, request, &vbids, &wanted, left, account, is_limited);
        if terms.updates {
            deployment.ask_for_update();
        }
        match given {
            // vBuckets have just moved.
            Err(Missing::NotOwner) => {}
            given => {
                let mut given = only(given?)?;
                if take(&mut given.headers, FRESH).is_some() {
                    return request_fresh(node, deployment, request, terms);
                }
                let rest = Rest::take(&mut given.headers, moved);
                if let Some(Rest { pause: Some(_), .. }) = &rest
                    && request.body.len() > WAITING_BODY_BYTES_MAX
                {
                    let reason = "the body of a request whose answer waits has at most 1 MiB";
                    return Err(Missing::Failed(reason.into()));
                }
                let rest = rest.map(|rest| {
                    let targets = vec![Target {
                        deployment: Arc::clone(deployment),
                        vbids,
                        seqnos: terms.seqnos.clone(),
                    }];
                    (Box::new(Spread::new(node, targets, request, terms)), rest)
                });
                return Ok(Reply { given, rest });
            }
        }
    }
    let target = Target { deployment: Arc::clone(deployment), vbids, seqnos: terms.seqnos.clone() };
    let reply = Spread::begin(node, vec![target], request, terms)?;
    match reply.given.headers.iter().any(|(name, _)| name == FRESH) {
        true => request_fresh(node, deployment, request, terms),
        false => Ok(reply),
    }
}

/// Repeats the request with a state that reflects all earlier writes.
fn request_fresh(
    node: &Arc<Node>,
    deployment: &Arc<Deployment>,
    request: &Request,
    terms: &Terms,
) -> Result<Reply, Missing> {
    if request.headers.iter().any(|(name, _)| name == FRESH) {
        return Err(Missing::Failed("the plugin asks for a fresh state a second time".into()));
    }
    let mut again = request.clone();
    again.headers.push((FRESH.to_owned(), "true".to_owned()));
    request_to(node, deployment, &again, &Terms { fresh: true, ..terms.clone() })
}

/// Begins to answer a request from the states of several deployments of one component, which merges their answers. Each target is
/// a name and the seqnos that its state must reflect. Blocks: do not call it on a thread for which others wait.
///
/// # Errors
/// As [`request`].
pub fn request_all(
    node: &Arc<Node>,
    targets: &[(String, Vec<(Vbid, Seqno)>)],
    request: &Request,
    terms: &Terms,
) -> Result<Reply, Missing> {
    if let [(name, seqnos)] = targets {
        let terms = Terms { seqnos: seqnos.clone(), ..terms.clone() };
        return self::request(node, name, request, &terms);
    }
    let target = |(name, seqnos): &(String, Vec<(Vbid, Seqno)>)| {
        let deployment = node.plugins().deployment(name).ok_or_else(not_loaded)?;
        let owners = node.owners(&deployment.bucket.name).ok_or_else(no_bucket)?;
        Ok(Target { deployment, vbids: owners.all(), seqnos: seqnos.clone() })
    };
    let targets = targets.iter().map(target).collect::<Result<_, Missing>>()?;
    Spread::begin(node, targets, request, terms)
}

/// Waits at most `patience` until this node runs a deployment with that name. Blocks.
pub fn await_deployment(node: &Node, name: &str, patience: Duration) -> Option<Arc<Deployment>> {
    let end_ns = node.now().monotonic_ns.saturating_add(patience.as_nanos() as u64);
    loop {
        let changed = node.plugins().changed();
        if let Some(deployment) = node.plugins().deployment(name) {
            return Some(deployment);
        }
        let left_ns = end_ns.saturating_sub(node.now().monotonic_ns);
        block::on(&*node.platform, changed, Duration::from_nanos(left_ns))?;
    }
}

/// An answer from one node or several; its body comes in pieces.
pub struct Reply {
    given: Given,
    /// For an answer in rounds: the request for the next round.
    rest: Option<(Box<Spread>, Rest)>,
}

/// A future that ends once the state of a deployment has changed.
type StateChange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A pause of an answer before its next piece.
pub struct Pause {
    /// The maximum duration.
    pub at_most: Duration,
    /// A future that ends the pause early.
    pub moved: StateChange,
}

/// The request for the next round of an answer.
struct Rest {
    value: String,
    /// The pause before it, unless the pause was taken.
    pause: Option<Pause>,
}

impl Rest {
    /// Takes the request for the next round out of the headers of a response. `moved` must have been created before the state was
    /// read.
    fn take(
        headers: &mut Vec<Header>,
        moved: impl Future<Output = ()> + Send + 'static,
    ) -> Option<Rest> {
        let wait = take(headers, WAIT);
        let value = take(headers, REST)?;
        let pause = wait.and_then(|ms| ms.parse().ok()).map(|ms| Pause {
            at_most: Duration::from_millis(ms).min(WAIT_MAX),
            moved: Box::pin(moved),
        });
        Some(Rest { value, pause })
    }
}

/// Removes all headers with that name. Returns the value of the first one.
fn take(headers: &mut Vec<Header>, name: &str) -> Option<String> {
    headers.extract_if(.., |header| header.0 == name).map(|(_, value)| value).next()
}

impl Reply {
    /// Returns the HTTP status and the headers.
    pub fn head(&self) -> (u16, &[Header]) {
        (self.given.status, &self.given.headers)
    }

    /// Takes the pause that is due before the next piece, if any, so that the caller can wait without a thread. Otherwise
    /// [`Reply::next_piece`] waits.
    pub fn take_pause(&mut self) -> Option<Pause> {
        let (_, rest) = self.rest.as_mut().filter(|_| self.given.is_over())?;
        rest.pause.take()
    }

    /// Returns true if a pause is due before the next piece.
    pub fn is_held(&self) -> bool {
        self.given.is_over() && self.rest.as_ref().is_some_and(|(_, rest)| rest.pause.is_some())
    }

    /// Returns the next piece of the body; `None` after the last. Blocks while the plugin runs.
    ///
    /// # Errors
    /// The reason why the rest is missing.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            if let Some(piece) = self.given.next_piece().map_err(|error| error.to_string())? {
                return Ok(Some(piece));
            }
            let Some((spread, rest)) = self.rest.take() else { return Ok(None) };
            if let Some(Pause { at_most, moved }) = rest.pause {
                block::on(&*spread.node.platform, moved, at_most);
            }
            let begun = self.given.status;
            let round = spread.round(Some(&rest.value));
            let (given, rest) = round.map_err(|missing| missing.to_string())?;
            if given.status != begun {
                return Err(format!("a node answers {} in the middle", given.status));
            }
            *self = Reply { given, rest: rest.map(|rest| (spread, rest)) };
        }
    }
}

/// A request that is sent to several nodes.
struct Spread {
    node: Arc<Node>,
    targets: Vec<Target>,
    request: Request,
    terms: Terms,
    /// Monotonic time of the start, and the number of rounds so far.
    begun_ns: u64,
    rounds: AtomicU32,
    /// Nodes that have returned no part, and why. They are not asked again.
    silent: Mutex<BTreeMap<Option<NodeId>, Missing>>,
}

/// A deployment to ask, for some or all vBuckets.
struct Target {
    deployment: Arc<Deployment>,
    vbids: Vbids,
    /// The seqnos that its state must reflect.
    seqnos: Vec<(Vbid, Seqno)>,
}

impl Spread {
    fn new(node: &Arc<Node>, targets: Vec<Target>, request: &Request, terms: &Terms) -> Spread {
        let (node, request, terms) = (Arc::clone(node), request.clone(), terms.clone());
        let begun_ns = node.now().monotonic_ns;
        let (rounds, silent) = (AtomicU32::new(0), Mutex::default());
        Spread { node, targets, request, terms, begun_ns, rounds, silent }
    }

    fn begin(
        node: &Arc<Node>,
        targets: Vec<Target>,
        request: &Request,
        terms: &Terms,
    ) -> Result<Reply, Missing> {
        let spread = Box::new(Spread::new(node, targets, request, terms));
        let (given, rest) = spread.round(None)?;
        Ok(Reply { given, rest: rest.map(|rest| (spread, rest)) })
    }

    /// Lets all nodes answer, and the plugin merge their answers. Also returns the request for the next round, if there is one.
    fn round(&self, rest: Option<&str>) -> Result<(Given, Option<Rest>), Missing> {
        let mut request = self.request.clone();
        request.headers.extend(rest.map(|rest| (REST.to_owned(), rest.to_owned())));
        let merging = &self.targets.first().ok_or_else(no_bucket)?.deployment;
        let moved = merging.processed.moved();
        let is_whole = match &self.targets[..] {
            [Target { deployment, vbids, .. }] => {
                let owners = self.node.owners(&deployment.bucket.name).ok_or_else(no_bucket)?;
                owners.split(vbids).len() == 1 && deployment.spec.lanes() == 1
            }
            _ => false,
        };
        let mut parts: Vec<Response> = Vec::new();
        let mut absent = Vec::new();
        for target in &self.targets {
            parts.extend(self.ask(target, &request, is_whole, &mut absent)?);
        }
        self.rounds.fetch_add(1, Ordering::Relaxed);
        if let (true, Some((_, why))) = (parts.is_empty(), absent.first()) {
            return Err(why.clone());
        }
        parts.extend(absent.into_iter().map(|(part, _)| part));
        let mut given = match is_whole {
            true if parts.len() > 1 => return self.round(rest),
            true => only(parts).map(Given::from)?,
            false => {
                let account = Some(Arc::clone(&self.terms.account));
                merging.merge(&request, &parts, self.node.now(), account)?
            }
        };
        let rest = Rest::take(&mut given.headers, moved);
        Ok((given, rest))
    }

    /// Returns the time limit of the nodes for a part of a target.
    fn patience(&self) -> Duration {
        let Some(PartialAnswer { rounds, .. }) = self.terms.partial else {
            return self.terms.patience;
        };
        let passed_ns = self.node.now().monotonic_ns.saturating_sub(self.begun_ns);
        let left = self.terms.patience.saturating_sub(Duration::from_nanos(passed_ns));
        let rounds = rounds.saturating_sub(self.rounds.load(Ordering::Relaxed)).max(1);
        // The rest of the time is for merging the parts, and for sending the answer to the client.
        left * 9 / (10 * rounds)
    }

    /// Returns the parts of a target, one from each lane of each node. Substitutes for missing parts are added to `absent`.
    fn ask(
        &self,
        target: &Target,
        request: &Request,
        is_whole: bool,
        absent: &mut Vec<(Response, Missing)>,
    ) -> Result<Vec<Response>, Missing> {
        let Target { deployment, vbids, seqnos } = target;
        let Terms { fresh, updates, partial, .. } = self.terms;
        let patience = self.patience();
        let question = |vbids: &Vbids| {
            PluginMessage::Request(RequestPart {
                deployment: deployment.name.clone(),
                vbids: vbids.clone(),
                asked_by: self.node.id(),
                is_whole,
                fresh,
                seqnos: seqnos.clone(),
                updates,
                request: request.clone(),
            })
        };
        let bucket = &deployment.bucket.name;
        let mut wanted = vbids.clone();
        let owners = self.node.owners(bucket).ok_or_else(no_bucket)?;
        let orphans: Vbids = vbids.iter().filter(|vbid| owners.of(*vbid).is_none()).collect();
        let of_nodes = owners.split(vbids).into_iter().map(|(node, vbids)| (Some(node), vbids));
        for (node, vbids) in of_nodes.chain([(None, orphans)]) {
            if let Some(why) = self.silent.lock().get(&node) {
                wanted.remove_all(&vbids);
                absent.extend(self.substitute(target, node, why));
            }
        }
        let want = ScatterRequest { vbids: wanted, message: Box::new(question) };
        let gathered = self.node.gather_partial(bucket, &[want], patience);
        let PartialReplies { shards, missing, reason } = gathered.map_err(Missing::NotYet)?;
        let missing: Vbids = missing.into_iter().next().unwrap_or_default();
        if !missing.is_empty() {
            // Nodes report lateness by this text, because the type of their answer only says that the request may be repeated.
            // Lateness matters if the state must reflect certain writes.
            let is_behind = fresh || seqnos.iter().any(|(vbid, _)| missing.contains(*vbid));
            if partial.is_none() || is_behind {
                let is_late = reason == LATE || (partial.is_some() && is_behind);
                return Err(if is_late { Missing::Late } else { Missing::NotYet(reason) });
            }
            let owners = self.node.owners(bucket).ok_or_else(no_bucket)?;
            let mut lost: Vec<Option<NodeId>> =
                owners.split(&missing).into_iter().map(|(node, _)| Some(node)).collect();
            if missing.iter().any(|vbid| owners.of(vbid).is_none()) {
                lost.push(None);
            }
            // Less patience means that the time ran out first.
            let why = match self.patience().is_zero() || patience < UNREACHED_PATIENCE {
                true => Missing::TimedOut(reason),
                false => Missing::NotYet(reason),
            };
            self.mark_silent(target, &lost, &why, absent);
        }
        let mut parts: Vec<Response> = Vec::new();
        for ShardReply { vbids, reply, .. } in shards {
            let failure = match reply {
                Ok(PluginReply::Responses(responses)) => {
                    parts.extend(responses);
                    continue;
                }
                Err(failure) if failure.retry => {
                    return Err(Missing::NoMemory(failure.message));
                }
                Err(failure) => failure.message,
                _ => "a node sent an unexpected reply".into(),
            };
            if partial.is_none() {
                return Err(Missing::Failed(failure));
            }
            let lost = owners.split(&vbids).into_iter().map(|(node, _)| Some(node));
            self.mark_silent(target, &lost.collect::<Vec<_>>(), &Missing::Failed(failure), absent);
        }
        Ok(parts)
    }

    /// Records nodes that have returned no part, and adds substitutes for their parts.
    fn mark_silent(
        &self,
        target: &Target,
        nodes: &[Option<NodeId>],
        why: &Missing,
        absent: &mut Vec<(Response, Missing)>,
    ) {
        for node in nodes {
            self.silent.lock().insert(*node, why.clone());
            absent.extend(self.substitute(target, *node, why));
        }
    }

    /// Returns the substitute for the part of a node.
    fn substitute(
        &self,
        target: &Target,
        node: Option<NodeId>,
        why: &Missing,
    ) -> Option<(Response, Missing)> {
        let cluster = self.node.cluster();
        let address = node.and_then(|node| cluster.nodes.get(&node));
        let address = address.map(|node| node.endpoints.management()).unwrap_or_default();
        let part = self.terms.partial?.part;
        let absent = AbsentPart { deployment: &target.deployment.name, node: &address, why };
        Some((part(&absent), why.clone()))
    }
}

impl From<Missing> for NoReply {
    fn from(missing: Missing) -> NoReply {
        match missing {
            Missing::NotOwner => NoReply::NotOwner,
            Missing::NotYet(_) | Missing::Late => NoReply::NotYet(missing.to_string()),
            Missing::Stopped(reason) | Missing::Failed(reason) | Missing::TimedOut(reason) => {
                NoReply::internal(reason)
            }
            Missing::NoMemory(reason) => retry(code::NODE_MEMORY, reason).into(),
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::NotOwner => f.write_str("other nodes serve some of the vBuckets"),
            Missing::NotYet(reason)
            | Missing::TimedOut(reason)
            | Missing::Stopped(reason)
            | Missing::Failed(reason)
            | Missing::NoMemory(reason) => f.write_str(reason),
            Missing::Late => f.write_str(LATE),
        }
    }
}
