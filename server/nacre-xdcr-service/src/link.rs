//! Connections to a node of the target. Each has a thread that sends the pipelines' requests and returns the answers.
//!
//! ```text
//! Driver ─► Job, Job, … ─► thread of the link: sends as many as fit one round ─► answers in order ─► Driver
//! ```
//!
//! A broken round leaves requests without answers. The driver receives [`Event::LinkLost`] and the pipelines send the
//! requests again: every request is idempotent.

use crate::inbox::{Event, Inbox};
use crate::wire::{self, STATISTICS, State};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use nacre_client::{BASIC_FEATURES, ClusterMap, Connection, Error, Request};
use nacre_protocol::{Feature, Frame, Opcode, Status};
use nacre_types::Vbid;
use nacre_xdcr::{Answer, Found, Input, Lookup, Operation, Over, Run, TargetState, Wanted};
use rustls::ClientConfig;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Approximate maximum of bytes per round. Answers are small and fit the socket buffers until they are read.
const ROUND_BYTES_MAX: usize = 2 << 20;
/// Approximate maximum of requests per round.
const ROUND_REQUESTS_MAX: usize = 4000;
/// Timeout of a node's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause of a link after a failed connection attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Statuses that require the connection to log in again: AUTH_STALE, NO_BUCKET, AUTH_ERROR.
const LOGIN_OVER: [u16; 3] = [0x1f, 0x08, 0x20];

/// Credentials and bucket for the target's nodes.
#[derive(Clone)]
pub(crate) struct Access {
    /// User; empty if a client certificate is the login.
    pub user: String,
    /// Password; empty if a client certificate is the login.
    pub password: String,
    /// True if the client certificate of `tls` is the login.
    pub by_certificate: bool,
    /// Bucket.
    pub bucket: String,
    /// UUID of the bucket.
    pub bucket_uuid: String,
    /// TLS configuration; `None` for plain connections.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Access {
    /// Connects to a node.
    ///
    /// # Errors
    /// Errors of the client. Also fails when the bucket has another UUID: such a bucket may have another owner and must receive
    /// nothing. The Scout reports the change later.
    pub fn connect(&self, address: &str) -> Result<Connection, Error> {
        let features = [BASIC_FEATURES, &[Feature::Xattr, Feature::Snappy, Feature::MutationSeqno]];
        let features = features.concat();
        let mut connection = match &self.tls {
            Some(tls) if self.by_certificate => {
                Connection::connect_by_certificate(address, tls, &self.bucket, &features)?
            }
            tls => {
                let login = [self.user.as_str(), &self.password, &self.bucket];
                Connection::connect(address, tls.as_ref(), login, &features)?
            }
        };
        connection.set_timeout(Some(ANSWER_TIMEOUT))?;
        if connection.bucket_uuid()?.is_some_and(|uuid| uuid != self.bucket_uuid) {
            let reason = format!("the bucket {} was deleted and made again", self.bucket);
            return Err(Error::Invalid(reason));
        }
        Ok(connection)
    }
}

/// A pipeline's request to a node of the target.
pub(crate) struct Job {
    /// vBucket of the pipeline.
    pub source: Vbid,
    /// Its run.
    pub run: Run,
    /// The request.
    pub work: Work,
}

/// Kinds of requests.
pub(crate) enum Work {
    /// Versions to write.
    Write(Vec<Operation>),
    /// Keys to look up.
    LookUp(Wanted, Vec<Lookup>),
    /// vBuckets whose histories to report.
    States(Vec<Vbid>),
}

/// The driver's end of a link.
pub(crate) struct Link {
    /// Unbounded, because the windows of the pipelines bound the jobs. A queue that drops jobs would delay each by the
    /// timeout of its answer: all pipelines send their first versions before the link is connected.
    jobs: Sender<Job>,
}

impl Link {
    /// Starts a thread that connects at the first job and ends when the link is dropped.
    pub fn start(address: String, access: Access, inbox: Arc<Inbox>) -> Link {
        let (link, jobs) = Link::queue();
        let worker = Worker { address, access, inbox, jobs, connection: None };
        let spawned = std::thread::Builder::new().name("xdcr-link".into()).spawn(|| worker.run());
        if let Err(error) = spawned {
            tracing::error!("replication: no thread for a connection: {error}");
        }
        link
    }

    fn queue() -> (Link, Receiver<Job>) {
        let (sender, jobs) = unbounded();
        (Link { jobs: sender }, jobs)
    }

    /// Queues a job. The pipeline sends it again after its timeout if the thread could not be started.
    pub fn push(&self, job: Job) {
        let _ = self.jobs.send(job);
    }
}

/// The subject of the next answer.
enum Expected {
    Written {
        source: Vbid,
        run: Run,
        operation: Box<Operation>,
    },
    Meta {
        source: Vbid,
        run: Run,
        lookup: Lookup,
        wanted: Wanted,
    },
    History {
        source: Vbid,
        run: Run,
        lookup: Lookup,
        wanted: Wanted,
        found: Found,
    },
    Body {
        source: Vbid,
        run: Run,
        lookup: Lookup,
        found: Found,
    },
    Checksum {
        source: Vbid,
        run: Run,
        lookup: Lookup,
    },
    /// A statistic: its vBucket, and whether it is the last one of the vBucket and of the job.
    Statistic {
        vbid: Vbid,
        ends_vbucket: bool,
        ends_job: Option<(Vbid, Run)>,
    },
}

struct Worker {
    address: String,
    access: Access,
    inbox: Arc<Inbox>,
    jobs: Receiver<Job>,
    connection: Option<Connection>,
}

impl Worker {
    fn run(mut self) {
        while let Ok(first) = self.jobs.recv() {
            let round = self.gather(first);
            if let Err(error) = self.carry_out(round) {
                self.connection = None;
                let reason = error.to_string();
                self.report(&reason);
                if self.rest(&reason).is_err() {
                    return;
                }
            }
        }
    }

    fn report(&self, reason: &str) {
        let (address, reason) = (self.address.clone(), reason.to_owned());
        self.inbox.push([Event::LinkLost { address, reason }]);
    }

    /// Pauses before the next connection attempt. Jobs that arrive meanwhile are dropped; the pipelines send them
    /// again.
    fn rest(&self, reason: &str) -> Result<(), ()> {
        match self.jobs.recv_timeout(RETRY_PAUSE) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(()),
            Ok(first) => {
                let lost = std::iter::once(first).chain(self.jobs.try_iter());
                self.inbox.push(lost.filter_map(give_up));
                self.report(reason);
                Ok(())
            }
        }
    }

    /// Takes as many jobs as fit one round.
    fn gather(&self, first: Job) -> Vec<Job> {
        let (mut bytes, mut requests) = size_of(&first);
        let mut round = vec![first];
        while bytes < ROUND_BYTES_MAX && requests < ROUND_REQUESTS_MAX {
            let Ok(job) = self.jobs.try_recv() else { break };
            let size = size_of(&job);
            (bytes, requests) = (bytes + size.0, requests + size.1);
            round.push(job);
        }
        round
    }

    fn carry_out(&mut self, round: Vec<Job>) -> Result<(), Error> {
        if self.connection.is_none() {
            match self.access.connect(&self.address) {
                Ok(connection) => {
                    self.inbox.push([Event::Linked]);
                    self.connection = Some(connection);
                }
                Err(error) => {
                    self.inbox.push(round.into_iter().filter_map(give_up));
                    return Err(error);
                }
            }
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let mut expected = VecDeque::new();
        for job in round {
            send(connection, job, &mut expected);
            // A job can be larger than a round.
            if expected.len() >= ROUND_REQUESTS_MAX {
                connection.flush()?;
                receive(connection, &self.inbox, &mut expected)?;
            }
        }
        connection.flush()?;
        receive(connection, &self.inbox, &mut expected)
    }
}

/// Returns the answer to a job that was not sent. Writes need none, because [`Event::LinkLost`] covers them.
fn give_up(job: Job) -> Option<Event> {
    match job.work {
        Work::States(_) => {
            let input = Input::Target { run: job.run, states: None };
            Some(Event::States { source: job.source, run: job.run, input: Box::new(input) })
        }
        _ => None,
    }
}

fn size_of(job: &Job) -> (usize, usize) {
    match &job.work {
        Work::Write(operations) => (operations.iter().map(wire::bytes_of).sum(), operations.len()),
        Work::LookUp(wanted, keys) => {
            let each = match wanted {
                Wanted::Meta | Wanted::Checksum => 1,
                Wanted::History => 2,
                Wanted::Whole => 3,
            };
            (keys.iter().map(|lookup| lookup.key.len() + 64).sum(), each * keys.len())
        }
        // Each question is answered with a few dozen frames.
        Work::States(vbids) => (2048 * vbids.len(), STATISTICS.len() * vbids.len()),
    }
}

fn send(connection: &mut Connection, job: Job, expected: &mut VecDeque<Expected>) {
    let Job { source, run, work } = job;
    match work {
        Work::Write(operations) => {
            for operation in operations {
                wire::write(&operation, true, |request| connection.send(request));
                let operation = Box::new(Operation {
                    version: nacre_xdcr::Arriving {
                        meta: operation.version.meta,
                        value: Vec::new(),
                    },
                    ..operation
                });
                expected.push_back(Expected::Written { source, run, operation });
            }
        }
        Work::LookUp(Wanted::Checksum, keys) => {
            for lookup in keys {
                wire::look_up_checksum(&lookup, |request| connection.send(request));
                expected.push_back(Expected::Checksum { source, run, lookup });
            }
        }
        Work::LookUp(wanted, keys) => {
            let with_history = wanted != Wanted::Meta;
            for lookup in keys {
                wire::look_up_meta(&lookup, |request| connection.send(request));
                if with_history {
                    wire::look_up_history(&lookup, |request| connection.send(request));
                }
                if wanted == Wanted::Whole {
                    wire::look_up_body(&lookup, |request| connection.send(request));
                }
                expected.push_back(Expected::Meta { source, run, lookup, wanted });
            }
        }
        Work::States(vbids) => {
            let last = vbids.last().copied();
            for vbid in vbids {
                for (index, group) in STATISTICS.into_iter().enumerate() {
                    let key = format!("{group} {}", vbid.0);
                    let opcode = Opcode::Stat as u8;
                    connection.send(Request { opcode, key: key.as_bytes(), ..Request::default() });
                    let ends_vbucket = index + 1 == STATISTICS.len();
                    let is_last = ends_vbucket && Some(vbid) == last;
                    let ends_job = is_last.then_some((source, run));
                    expected.push_back(Expected::Statistic { vbid, ends_vbucket, ends_job });
                }
            }
        }
    }
}

/// Reads the answers to all requests sent.
fn receive(
    connection: &mut Connection,
    inbox: &Inbox,
    expected: &mut VecDeque<Expected>,
) -> Result<(), Error> {
    let mut events = Vec::new();
    let mut outcome = Ok(());
    let mut state = State::default();
    let mut states: Option<Vec<(Vbid, TargetState)>> = Some(Vec::new());
    while let Some(next) = expected.pop_front() {
        let answered = answer(connection, next, expected, &mut state, &mut states, &mut events);
        if let Err(error) = answered {
            outcome = Err(error);
            break;
        }
        if events.len() >= 256 {
            inbox.push(events.drain(..));
        }
    }
    inbox.push(events);
    outcome
}

fn answer(
    connection: &mut Connection,
    next: Expected,
    expected: &mut VecDeque<Expected>,
    state: &mut State,
    states: &mut Option<Vec<(Vbid, TargetState)>>,
    events: &mut Vec<Event>,
) -> Result<(), Error> {
    let address = connection.address().to_owned();
    let is_encrypted = connection.is_encrypted();
    let is_login_over = std::cell::Cell::new(false);
    let map = |frame: &Frame<'_>| {
        is_login_over.set(LOGIN_OVER.contains(&frame.vbid));
        let is_stray = frame.vbid == Status::NotMyVbucket as u16 && !frame.value.is_empty();
        let map = is_stray.then(|| ClusterMap::read(frame.value, &address, is_encrypted).ok());
        map.flatten().map(|map| Event::Map(Box::new(map)))
    };
    match next {
        Expected::Written { source, run, operation } => {
            let is_conditional = operation.over != Over::Anything;
            let (answer, map) =
                connection.receive(|frame| (wire::written(frame, is_conditional), map(frame)))?;
            if is_login_over.get() {
                return Err(Error::Malformed("the login is no longer valid".to_owned()));
            }
            events.extend(map);
            let (id, number) = (operation.id, operation.number);
            events.push(Event::Input(source, Box::new(Input::Written { run, id, number, answer })));
        }
        Expected::Meta { source, run, lookup, wanted } => {
            let (found, map) = connection.receive(|frame| (wire::meta(frame), map(frame)))?;
            if is_login_over.get() {
                return Err(Error::Malformed("the login is no longer valid".to_owned()));
            }
            events.extend(map);
            if wanted != Wanted::Meta {
                expected.push_front(Expected::History { source, run, lookup, wanted, found });
            } else {
                events.push(looked_up(source, run, &lookup, found));
            }
        }
        Expected::History { source, run, lookup, wanted, found } => {
            let found = connection.receive(|frame| wire::with_history(found, frame))?;
            if wanted == Wanted::Whole {
                expected.push_front(Expected::Body { source, run, lookup, found });
            } else {
                events.push(looked_up(source, run, &lookup, found));
            }
        }
        Expected::Body { source, run, lookup, found } => {
            let found = connection.receive(|frame| wire::with_body(found, frame))?;
            events.push(looked_up(source, run, &lookup, found));
        }
        Expected::Checksum { source, run, lookup } => {
            let (found, map) = connection.receive(|frame| (wire::checksum(frame), map(frame)))?;
            events.extend(map);
            events.push(looked_up(source, run, &lookup, found));
        }
        Expected::Statistic { vbid, ends_vbucket, ends_job } => {
            // A group ends with a frame without key; a refusal is a single frame.
            while connection.receive(|frame| {
                state.take(vbid, frame.key, frame.value);
                !frame.key.is_empty() && frame.vbid == Status::Success as u16
            })? {}
            if ends_vbucket {
                match (std::mem::take(state).finish(), &mut *states) {
                    (Some(state), Some(states)) => states.push((vbid, state)),
                    (Some(_), None) => {}
                    (None, states) => *states = None,
                }
            }
            if let Some((source, run)) = ends_job {
                let states = states.replace(Vec::new()).map(|states| states.into_iter().collect());
                let input = Box::new(Input::Target { run, states });
                events.push(Event::States { source, run, input });
            }
        }
    }
    Ok(())
}

fn looked_up(source: Vbid, run: Run, lookup: &Lookup, found: Found) -> Event {
    let found = match found {
        Found::Failed(Answer::Changed) => Found::Failed(Answer::Busy),
        found => found,
    };
    let (id, number) = (lookup.id, lookup.number);
    Event::Input(source, Box::new(Input::LookedUp { run, id, number, found }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_all_vbuckets_is_queued_before_the_link_is_connected() {
        let (link, jobs) = Link::queue();
        let burst = 1024 * 32;
        for number in 0..burst {
            let source = Vbid(number % 1024);
            link.push(Job { source, run: Run::default(), work: Work::States(vec![source]) });
        }
        assert_eq!(jobs.len(), usize::from(burst));
    }
}
