//! Logins: passwords are hashed on threads for that purpose, and answers to failed logins are delayed.
//!
//! ```text
//! KV  AUTH PLAIN ──┐                ┌─ queue of 127.0.0.1 ─┐  in turns  ┌─ right ─────────────► callback
//! HTTP Basic ──────┴─► Logins::check┼─ queue of 10.0.0.7   ├───────────►│ LoginTask
//!                                   └─ …                  ─┘            └─ wrong ─► held back ─► callback
//! KV  SCRAM, wrong ──► Logins::fail ────────────────────────────────────────────┘
//! ```
//!
//! Hashing a password takes milliseconds, and strangers may ask for it, so the threads of connections never do it.
//! These threads run in the background, so that a flood of logins costs clients nothing. Each address has a queue,
//! served in turns, so that one address cannot delay the logins of others. [`Throttle`] decides per address for how
//! long an answer is delayed.
//!
//! Invariants: at most [`QUEUE_MAX`] passwords wait, and at most [`ADDRESS_QUEUE_MAX`] of one address; a full queue
//! refuses.

use crate::{BucketEnv, Next, Signal, Task};
use nacre_auth::{Login, PasswordCheck, Throttle};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

/// Threads that hash passwords.
const THREADS: usize = 2;
/// Passwords that may wait: what two threads hash in half a second.
const QUEUE_MAX: usize = 512;
/// Passwords of one address that may wait: what two threads hash in a tenth of a second when no other address is
/// served.
const ADDRESS_QUEUE_MAX: usize = 128;
/// Answers that may be delayed at a time; further ones are given at once. A connection waits for each, so there are
/// rarely as many.
const HELD_MAX: usize = 16 << 10;
/// Characters of a user name that are logged.
const NAME_CHARS_MAX: usize = 64;

/// The outcome of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The password is right.
    Granted(Login),
    /// The password is wrong, or there is no such user.
    Denied,
    /// Too many passwords wait to be hashed; the client may try again.
    Busy,
}

/// Called once with the outcome, on a thread of the pool or at once. Must not block.
pub type LoginCallback = Box<dyn FnOnce(LoginOutcome) + Send>;

enum Job {
    Password(Box<PasswordCheck>, LoginCallback),
    Other(Box<dyn FnOnce() + Send>),
}

/// The passwords that wait to be hashed, and the answers that are delayed.
#[derive(Default)]
pub struct Logins {
    state: Mutex<State>,
    signals: [Signal; THREADS],
}

#[derive(Default)]
struct State {
    /// By address; none is empty.
    queues: BTreeMap<IpAddr, VecDeque<Job>>,
    /// The address that was served last.
    served: Option<IpAddr>,
    waiting: usize,
    /// By when each is due, in monotonic nanoseconds, and a number that makes the key unique.
    held: BTreeMap<(u64, u64), LoginCallback>,
    held_count: u64,
    throttle: Throttle,
    failed: u64,
    is_closed: bool,
}

impl State {
    fn push(&mut self, from: IpAddr, job: Job) -> Result<(), Job> {
        let own = self.queues.get(&from).map_or(0, VecDeque::len);
        if self.is_closed || self.waiting >= QUEUE_MAX || own >= ADDRESS_QUEUE_MAX {
            return Err(job);
        }
        self.queues.entry(from).or_default().push_back(job);
        self.waiting += 1;
        Ok(())
    }

    /// Takes the next job, of the address whose turn it is.
    fn pop(&mut self) -> Option<(IpAddr, Job)> {
        let after = self.served.map_or(Unbounded, Excluded);
        let next = self.queues.range((after, Unbounded)).next().or(self.queues.iter().next());
        let from = *next?.0;
        let queue = self.queues.get_mut(&from)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&from);
        }
        self.served = Some(from);
        self.waiting -= 1;
        Some((from, job?))
    }

    /// Takes the answers that are due.
    fn due(&mut self, now_ns: u64) -> Vec<LoginCallback> {
        let later = match self.is_closed {
            true => BTreeMap::new(),
            false => self.held.split_off(&(now_ns.saturating_add(1), 0)),
        };
        std::mem::replace(&mut self.held, later).into_values().collect()
    }
}

/// Returns the address to account for; peers without one, as in a simulation, share an address.
fn address(from: Option<IpAddr>) -> IpAddr {
    from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).to_canonical()
}

impl Logins {
    /// Spawns the tasks that hash passwords.
    pub fn start(self: &Arc<Logins>, env: &Arc<dyn BucketEnv>) {
        for number in 0..THREADS {
            env.spawn(Box::new(LoginTask::new(Arc::clone(self), Arc::clone(env), number)));
        }
    }

    /// Has a password hashed. `callback` gets the outcome, which is delayed for up to a second unless it is
    /// [`LoginOutcome::Granted`].
    pub fn check(&self, from: Option<IpAddr>, check: Box<PasswordCheck>, callback: LoginCallback) {
        let refused = self.state.lock().push(address(from), Job::Password(check, callback));
        match refused {
            Ok(()) => self.wake(),
            Err(Job::Password(_, callback)) => callback(LoginOutcome::Busy),
            Err(Job::Other(_)) => {}
        }
    }

    /// Has `work` done that hashes a password, such as a new one. Returns false if too many wait: `work` is dropped
    /// then.
    #[must_use]
    pub fn run(&self, from: Option<IpAddr>, work: impl FnOnce() + Send + 'static) -> bool {
        let is_queued = self.state.lock().push(address(from), Job::Other(Box::new(work))).is_ok();
        if is_queued {
            self.wake();
        }
        is_queued
    }

    /// Counts a failed login as `name`. Calls `callback` with [`LoginOutcome::Denied`] when the client may learn of
    /// it, which may be at once.
    pub fn fail(&self, from: Option<IpAddr>, name: &str, now_ns: u64, callback: LoginCallback) {
        let from = address(from);
        let mut state = self.state.lock();
        state.failed += 1;
        let failure = state.throttle.fail(from, now_ns);
        let holds = failure.delay_ns > 0 && !state.is_closed && state.held.len() < HELD_MAX;
        let due_at_once = if holds {
            state.held_count += 1;
            let place = (now_ns + failure.delay_ns, state.held_count);
            state.held.insert(place, callback);
            None
        } else {
            Some(callback)
        };
        drop(state);
        if let Some(count) = failure.report {
            let name: String = name.chars().take(NAME_CHARS_MAX).collect();
            tracing::warn!("failed logins from {from}: {count}, the last one as {name:?}");
        }
        match due_at_once {
            Some(callback) => callback(LoginOutcome::Denied),
            None => self.wake(),
        }
    }

    /// Returns the number of failed logins since the start.
    pub fn failed(&self) -> u64 {
        self.state.lock().failed
    }

    /// Ends the tasks once nothing waits.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake();
    }

    fn wake(&self) {
        self.signals.iter().for_each(Signal::wake);
    }

    fn do_job(&self, from: IpAddr, job: Job, env: &dyn BucketEnv) {
        match job {
            Job::Other(work) => work(),
            Job::Password(check, callback) => {
                let name = check.name().to_owned();
                match check.run() {
                    Some(login) => callback(LoginOutcome::Granted(login)),
                    None => self.fail(Some(from), &name, env.now().monotonic_ns, callback),
                }
            }
        }
    }
}

/// One of the [`THREADS`].
struct LoginTask {
    logins: Arc<Logins>,
    env: Arc<dyn BucketEnv>,
    number: usize,
}

impl LoginTask {
    /// Creates the task of that number, below [`THREADS`].
    fn new(logins: Arc<Logins>, env: Arc<dyn BucketEnv>, number: usize) -> LoginTask {
        LoginTask { logins, env, number }
    }
}

impl Task for LoginTask {
    fn name(&self) -> &'static str {
        "login"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn step(&mut self) -> Next {
        let now_ns = self.env.now().monotonic_ns;
        let mut state = self.logins.state.lock();
        let due = state.due(now_ns);
        let job = state.pop();
        let next = match state.held.first_key_value() {
            _ if state.is_closed => Next::Done,
            Some(((due_ns, _), _)) => {
                Next::After(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
            }
            None => Next::Wait,
        };
        drop(state);
        due.into_iter().for_each(|callback| callback(LoginOutcome::Denied));
        let Some((from, job)) = job else { return next };
        self.logins.do_job(from, job, &*self.env);
        Next::Again
    }

    fn signal(&self) -> &Signal {
        &self.logins.signals[self.number]
    }
}
