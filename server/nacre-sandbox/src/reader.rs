//! Readers of a partition. Any number of them can run, and each request sees a snapshot of the last commit.

use crate::abi::Exports;
use crate::abi::World;
use crate::abi::exports::nacre::plugin::reader as abi;
use crate::abi::nacre::plugin::types::{self, Fault};
use crate::call::CallView;
use crate::capability::{Database, Header};
use crate::capsule::{Bytes, Call, Capsule, CapsuleRequest};
use crate::context::{Context, Role};
use crate::feed::Fed;
use crate::instance::{Data, Instance};
use crate::pool::{Pool, User};
use crate::{Account, Error, Plugin, Setup, Status};
use nacre_state::{
    FollowerPosition, IndexSnapshot, ProgressDelta, ProgressLog, ProgressStamp, State,
    VbucketProgress,
};
use nacre_types::{Now, Vbid};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Store;

/// The published state of a partition.
#[derive(Default)]
pub struct Published {
    pub state: State,
    /// Progress of each vBucket that was ever fed or followed.
    pub tracks: BTreeMap<Vbid, ProgressLog>,
    /// Size of the steps of all vBuckets, in bytes.
    pub steps_bytes: usize,
    pub stopped: Option<String>,
}

/// Maximum size of the steps that are kept for followers, in bytes. A follower that is further behind gets all timers.
const STEPS_BYTES_MAX: usize = 8 << 20;

impl Published {
    /// Publishes a commit. Steps are kept for vBuckets that are served here.
    pub fn take(
        &mut self,
        fed: Fed,
        standings: &[(Vbid, VbucketProgress)],
        is_served: impl Fn(Vbid) -> bool,
    ) {
        self.state = fed.state;
        let mut timers: BTreeMap<Vbid, Vec<_>> = BTreeMap::new();
        for ((home, name), timer) in fed.writes.timers {
            if let Some(vbid) = home.filter(|vbid| is_served(*vbid)) {
                timers.entry(vbid).or_default().push((name, timer));
            }
        }
        for (vbid, standing) in standings {
            let track = self.tracks.entry(*vbid).or_default();
            match is_served(*vbid) {
                true => {
                    let timers = timers.remove(vbid).unwrap_or_default();
                    self.steps_bytes += track.push(*standing, timers);
                }
                false => *track = ProgressLog::at(*standing),
            }
        }
        if self.steps_bytes > STEPS_BYTES_MAX {
            self.tracks.values_mut().for_each(ProgressLog::trim);
            self.steps_bytes = 0;
        }
    }
}

/// State shared by the writer and the readers of a partition.
pub struct Shared {
    pub published: RwLock<Published>,
    pool: Pool,
}

impl Shared {
    pub fn new(context: Arc<Context>) -> Shared {
        Shared { published: RwLock::default(), pool: Pool::new(context) }
    }

    /// Returns the state as of the last commit, unless the partition is stopped.
    pub fn snapshot(&self) -> Result<State, Error> {
        let published = self.published.read();
        match &published.stopped {
            Some(reason) => Err(Error::Stopped {
                deployment: self.pool.context.setup.name.clone(),
                reason: reason.clone(),
            }),
            None => Ok(published.state.clone()),
        }
    }

    /// Returns the counters of the writer, and the current values of everything else.
    pub fn status(&self, of_writer: &Status) -> Status {
        let published = self.published.read();
        let context = &self.pool.context;
        Status {
            writer: context.usage(Role::Writer),
            readers: context.usage(Role::Reader),
            memory_bytes: context.memory_bytes(),
            metrics: context.metrics(),
            state_bytes: published.state.bytes(),
            next_timer_us: published.state.timers.next(),
            stopped: published.stopped.clone(),
            log: context.log(),
            ..of_writer.clone()
        }
    }

    /// Waits until the documents that the deployment has written are on disk.
    fn settle(&self) -> Result<(), Error> {
        let setup = &self.pool.context.setup;
        setup.documents.settle().map_err(|error| Error::Retry {
            deployment: setup.name.clone(),
            message: error.to_string(),
        })
    }

    fn checked(&self, body: Vec<u8>) -> Result<Vec<u8>, Error> {
        let limit_bytes = self.pool.context.setup.limits.result_bytes;
        match body.len() > limit_bytes {
            true => Err(Error::Result {
                deployment: self.pool.context.setup.name.clone(),
                bytes: body.len(),
                limit_bytes,
            }),
            false => Ok(body),
        }
    }
}

/// A request in the form of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Method such as `GET` or `POST`.
    pub method: String,
    /// The path below the deployment, starting with `/`, percent-decoded.
    pub path: String,
    /// The query string as received, without `?`.
    pub query: String,
    /// Headers for the plugin, with names in lower case, without credentials.
    pub headers: Vec<Header>,
    /// The body.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
}

/// A complete reply to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// An HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    /// The body.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the media type of the body; for none, the type of arbitrary bytes.
    pub fn content_type(&self) -> &str {
        content_type(&self.headers)
    }
}

fn content_type(headers: &[Header]) -> &str {
    let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    found.map_or("application/octet-stream", |(_, value)| value)
}

/// A reader of a partition. Clones are equivalent, and several threads may use them at once.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Reader {
        Reader { shared }
    }

    /// Creates a reader of a plugin that keeps no state: its data arrives with each request.
    ///
    /// # Errors
    /// The errors of [`crate::Partition::open`].
    pub fn stateless(plugin: Plugin, setup: Setup) -> Result<Reader, Error> {
        let shared = Shared::new(Context::new(plugin, setup, World::Service)?);
        // Creates an instance now, so that an error in the configuration is found before the first call.
        shared.pool.give_back(None, shared.pool.take(&None)?);
        Ok(Reader { shared: Arc::new(shared) })
    }

    /// Answers a request from `database` and a snapshot of the last commit. Charges memory to `account`, if given.
    ///
    /// # Errors
    /// The errors of [`Reader::handle`].
    pub fn handle_with(
        &self,
        request: &Request,
        now: Now,
        database: Arc<dyn Database>,
        account: Option<Arc<Account>>,
    ) -> Result<Answer, Error> {
        let request = request_of(request, now);
        let view = CallView { database: Some(database), account, ..CallView::default() };
        self.answer(request.clone(), view, |exports, store| {
            exports.reader()?.call_handle(store, &request)
        })
    }

    /// Answers a request from a snapshot of the last commit.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the partition is stopped; other errors as for any call. The next request gets a new
    /// instance.
    pub fn handle(&self, request: &Request, now: Now) -> Result<Answer, Error> {
        self.handle_for(request, now, None)
    }

    /// Like [`Reader::handle`], but charges memory to `account`, if given.
    ///
    /// # Errors
    /// The errors of [`Reader::handle`]; [`Error::NodeMemory`] when the account has too little memory.
    pub fn handle_for(
        &self,
        request: &Request,
        now: Now,
        account: Option<Arc<Account>>,
    ) -> Result<Answer, Error> {
        self.handle_within(request, now, account, None)
    }

    /// Like [`Reader::handle_for`], but takes at most `left`, if given and shorter than the deadline of calls.
    ///
    /// # Errors
    /// The errors of [`Reader::handle_for`]; [`Error::Deadline`] also when `left` has passed.
    pub fn handle_within(
        &self,
        request: &Request,
        now: Now,
        account: Option<Arc<Account>>,
        left: Option<Duration>,
    ) -> Result<Answer, Error> {
        let request = request_of(request, now);
        let clock = &self.shared.pool.context.plugin.clock;
        let ends_tick = left.map(|left| {
            let ticks = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            clock.ticks().saturating_add(ticks)
        });
        let view = CallView { account, ends_tick, ..CallView::default() };
        self.answer(request.clone(), view, |exports, store| {
            exports.reader()?.call_handle(store, &request)
        })
    }

    /// Returns the progress in each vBucket.
    pub fn moments(&self) -> BTreeMap<Vbid, ProgressStamp> {
        let published = self.shared.published.read();
        let tracks = published.tracks.iter();
        tracks.map(|(vbid, track)| (*vbid, track.standing.moment)).collect()
    }

    /// Returns the changes that a follower of a vBucket lacks, or their first part: about `bytes_max` at most.
    pub fn share(&self, vbid: Vbid, lacking: FollowerPosition, bytes_max: usize) -> ProgressDelta {
        let published = self.shared.published.read();
        let none = ProgressLog::default();
        let track = published.tracks.get(&vbid).unwrap_or(&none);
        let (since, after) = lacking;
        let changes = match after {
            None => track.changes(since, bytes_max),
            Some(_) => None,
        };
        changes.unwrap_or_else(|| {
            let timers = published.state.timers.after(vbid, after.as_deref());
            track.page(after.clone(), timers, bytes_max)
        })
    }

    /// Returns the index as of the last commit, for a plugin of the world `index-type`: scans need no plugin.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the partition is stopped.
    pub fn index(&self) -> Result<IndexSnapshot, Error> {
        let form = &self.shared.pool.context.setup.index;
        Ok(IndexSnapshot::new(self.shared.snapshot()?, form))
    }

    /// Counts a reply from the [index](Reader::index), for which no instance is called, as a reader's call.
    pub fn count_scan(&self, elapsed_ns: u64) {
        self.shared.pool.context.count(Role::Reader, elapsed_ns, &[], false);
    }

    /// Returns the partition's status: `of_writer` from [`crate::Partition::status`] with current values, except the
    /// number of documents and timers that the writer has processed since.
    pub fn status(&self, of_writer: &Status) -> Status {
        self.shared.status(of_writer)
    }

    /// Starts a profile of the deployment's calls, including those of the writer. Returns false if a profile is already
    /// being taken.
    pub fn begin_profile(&self) -> bool {
        self.shared.pool.context.profiler.begin()
    }

    /// Ends the profile. Returns a line for each stack: its functions from outermost to innermost, separated by
    /// semicolons, a space, and the number of ticks in which it was seen. A function that waited for the host is
    /// counted where it continues. Functions have names if the component contains names.
    pub fn end_profile(&self) -> String {
        self.shared.pool.context.profiler.end()
    }

    /// Takes the capsules of failed calls, as a partition does.
    pub fn take_capsules(&self) -> Vec<Capsule> {
        self.shared.pool.context.take_capsules()
    }

    /// Merges the replies of several partitions into one reply to `request`. Charges memory to `account`, if given.
    ///
    /// # Errors
    /// The errors of [`Reader::handle`]; [`Error::Reject`] when the plugin cannot merge replies.
    pub fn merge(
        &self,
        request: &Request,
        partials: &[Response],
        now: Now,
        account: Option<Arc<Account>>,
    ) -> Result<Answer, Error> {
        let request = request_of(request, now);
        let partial = |response: &Response| abi::Response {
            status: response.status,
            headers: response.headers.iter().cloned().map(header).collect(),
            body: response.body.clone(),
            cursor: None,
        };
        let partials: Vec<_> = partials.iter().map(partial).collect();
        let view = CallView { account, ..CallView::default() };
        self.answer(request.clone(), view, |exports, store| {
            exports.reader()?.call_merge(store, &request, &partials)
        })
    }

    fn answer(
        &self,
        request: abi::Request,
        mut view: CallView,
        call: impl FnOnce(&Exports, &mut Store<Data>) -> wasmtime::Result<Result<abi::Response, Fault>>,
    ) -> Result<Answer, Error> {
        view.view.state = self.shared.snapshot()?;
        let is_limited = view.ends_tick.is_some();
        let user = user_of(&request);
        let mut instance = self.shared.pool.take(&user)?;
        let abi::Response { status, headers, body, cursor } = match instance.call(view, call) {
            Ok(response) => response,
            Err(error) => {
                // A deadline caused by the user's short time limit does not indicate a fault of the plugin.
                if !(is_limited && matches!(error, Error::Deadline { .. })) {
                    keep(&self.shared.pool.context, request, &mut instance, &error);
                }
                return Err(error);
            }
        };
        let mut headers: Vec<Header> =
            headers.into_iter().map(|header| (header.name, header.value)).collect();
        let is_durable = headers.extract_if(.., |(name, _)| name == DURABLE).count() > 0;
        if is_durable {
            self.shared.settle()?;
        }
        let mut answer = Answer { status, headers, first: Some(instance.fill(body)?), rest: None };
        match cursor {
            None => self.shared.pool.give_back(user, instance),
            Some(cursor) => {
                let shared = Arc::clone(&self.shared);
                answer.rest = Some(Rest { shared, request, instance, cursor, is_durable });
            }
        }
        Ok(answer)
    }
}

/// Header of a response whose pieces are returned only once the documents that the plugin has written are on disk. Not
/// sent to the client.
const DURABLE: &str = "nacre-durable";

/// Header with the name of the request's user. The embedder sets it, and removes it from clients' requests.
pub const USER_HEADER: &str = "nacre-user";

fn user_of(request: &abi::Request) -> User {
    let user = request.headers.iter().find(|header| header.name == USER_HEADER);
    user.map(|header| header.value.as_str().into())
}

/// A reply whose body is produced in pieces on demand.
pub struct Answer {
    /// An HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    first: Option<Vec<u8>>,
    rest: Option<Rest>,
}

/// The data for continuing a reply. An instance that is dropped with it has answered only half a request, and is not
/// reused.
struct Rest {
    shared: Arc<Shared>,
    request: abi::Request,
    instance: Instance,
    cursor: Vec<u8>,
    /// True if each piece waits until the documents that the plugin has written are on disk.
    is_durable: bool,
}

impl From<Response> for Answer {
    fn from(Response { status, headers, body }: Response) -> Answer {
        Answer { status, headers, first: Some(body), rest: None }
    }
}

impl Answer {
    /// Returns the media type of the body; for none, the type of arbitrary bytes.
    pub fn content_type(&self) -> &str {
        content_type(&self.headers)
    }

    /// Returns true if there are no more pieces.
    pub fn is_over(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }

    /// Returns the next piece of the body; `None` after the last. Takes as long as the plugin does.
    ///
    /// # Errors
    /// The errors of any call. The reply then ends.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(mut rest) = self.rest.take() else { return Ok(None) };
        let cursor = std::mem::take(&mut rest.cursor);
        let chunk =
            rest.instance.resume(|exports, store| exports.reader()?.call_more(store, &cursor));
        let abi::Chunk { body, cursor } = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                keep(&rest.shared.pool.context, rest.request, &mut rest.instance, &error);
                return Err(error);
            }
        };
        if rest.is_durable {
            rest.shared.settle()?;
        }
        let body = rest.instance.fill(body)?;
        match cursor {
            Some(cursor) => self.rest = Some(Rest { cursor, ..rest }),
            None => {
                let user = user_of(&rest.request);
                rest.shared.pool.give_back(user, rest.instance);
            }
        }
        Ok(Some(body))
    }

    /// Returns the time limit for the rest of the reply, if the request sets one. Time between pieces counts.
    pub fn time_left(&self) -> Option<Duration> {
        self.rest.as_ref()?.instance.time_left()
    }

    /// Returns the reply with its complete body.
    ///
    /// # Errors
    /// The errors of [`Answer::next_piece`]; [`Error::Result`] when all pieces together are too large.
    pub fn collect(mut self) -> Result<Response, Error> {
        let mut body = self.next_piece()?.unwrap_or_default();
        while let Some(shared) = self.rest.as_ref().map(|rest| Arc::clone(&rest.shared)) {
            body.append(&mut self.next_piece()?.unwrap_or_default());
            body = shared.checked(body)?;
        }
        Ok(Response { status: self.status, headers: self.headers, body })
    }
}

fn request_of(request: &Request, now: Now) -> abi::Request {
    abi::Request {
        method: request.method.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        headers: request.headers.iter().cloned().map(header).collect(),
        body: request.body.clone(),
        now_us: now.unix_ns / 1000,
    }
}

fn header((name, value): Header) -> types::Header {
    types::Header { name, value }
}

/// Keeps a capsule of a failed request.
fn keep(context: &Context, request: abi::Request, instance: &mut Instance, error: &Error) {
    let abi::Request { method, path, query, headers, body, now_us } = request;
    let request = CapsuleRequest {
        method,
        path,
        query,
        headers: headers.into_iter().map(|header| (header.name, header.value)).collect(),
        body: Bytes(body),
        now_us,
    };
    let journal = instance.take_journal();
    context.keep(Call::Handle { request }, &journal, error);
}
