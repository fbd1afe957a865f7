//! Logins: a thread pool hashes passwords, and answers to failed logins are delayed.
//!
//! ```text
//! KV  AUTH PLAIN ──┐                ┌─ queue of 127.0.0.1 ─┐  in turns  ┌─ right ─────────────► callback
//! HTTP Basic ──────┴─► Logins::check┼─ queue of 10.0.0.7   ├───────────►│ LoginTask
//!                                   └─ …                  ─┘            └─ wrong ─► delayed ──► callback
//! KV  SCRAM, wrong ──► Logins::fail ────────────────────────────────────────────┘
//! ```
//!
//! Hashing a password takes milliseconds, and unauthenticated peers can request it, so connections' threads never do
//! it. The hashing threads run in the background, so that a flood of logins does not slow other clients down. Each
//! address has a queue, and the queues are served in turns, so that one address cannot delay the logins of others.
//! [`Throttle`] decides the delay of answers per address.
//!
//! Invariants: at most [`QUEUE_MAX`] passwords are queued, and at most [`ADDRESS_QUEUE_MAX`] per address; a full queue
//! refuses.

use crate::{BucketEnv, Next, Signal, Task};
use nacre_auth::{Login, PasswordCheck, Throttle, UserData};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

/// Threads that hash passwords.
const THREADS: usize = 2;
/// Maximum number of queued passwords: two threads hash these in half a second.
const QUEUE_MAX: usize = 512;
/// Maximum number of queued passwords per address: two threads hash these in a tenth of a second when they serve no
/// other address.
const ADDRESS_QUEUE_MAX: usize = 128;
/// Maximum number of delayed answers; further answers are sent at once. Each delayed answer has a waiting connection,
/// so the limit is rarely reached.
const HELD_MAX: usize = 16 << 10;
/// Maximum number of characters of a user name in the log.
const NAME_CHARS_MAX: usize = 64;

/// The outcome of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The password is right.
    Granted(Login),
    /// The password is wrong, or the user does not exist.
    Denied,
    /// Too many passwords are queued; the client may retry.
    Busy,
}

/// Called once with the outcome, at once or on a thread of the pool. Must not block.
pub type LoginCallback = Box<dyn FnOnce(LoginOutcome) + Send>;

enum Job {
    Password(Box<PasswordCheck>, LoginCallback),
    Other(Box<dyn FnOnce() + Send>),
}

/// The queued passwords and the delayed answers.
#[derive(Default)]
pub struct Logins {
    state: Mutex<State>,
    signals: [Signal; THREADS],
}

#[derive(Default)]
struct State {
    /// Jobs by address; no queue is empty.
    queues: BTreeMap<IpAddr, VecDeque<Job>>,
    /// The last address served.
    served: Option<IpAddr>,
    waiting: usize,
    /// Delayed answers by due time in monotonic nanoseconds, with a number that makes the key unique.
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

    /// Takes the next job, from the address whose turn it is.
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

/// Returns the address to charge; peers without an address, as in a simulation, share one.
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

    /// Queues a password for hashing. `callback` receives the outcome; outcomes other than [`LoginOutcome::Granted`]
    /// are delayed by up to one second.
    pub fn check(&self, from: Option<IpAddr>, check: Box<PasswordCheck>, callback: LoginCallback) {
        let refused = self.state.lock().push(address(from), Job::Password(check, callback));
        match refused {
            Ok(()) => self.wake(),
            Err(Job::Password(_, callback)) => callback(LoginOutcome::Busy),
            Err(Job::Other(_)) => {}
        }
    }

    /// Queues other hashing `work`, such as that of a new password. Returns false and drops `work` if the queue is
    /// full.
    #[must_use]
    pub fn run(&self, from: Option<IpAddr>, work: impl FnOnce() + Send + 'static) -> bool {
        let is_queued = self.state.lock().push(address(from), Job::Other(Box::new(work))).is_ok();
        if is_queued {
            self.wake();
        }
        is_queued
    }

    /// Counts a failed login as `name`. Calls `callback` with [`LoginOutcome::Denied`] at once, or after the throttle's
    /// delay.
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
            tracing::warn!(
                "failed logins from {from}: {count}, the last one as {}",
                UserData(name)
            );
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

    /// Ends the tasks once the queues are empty.
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
