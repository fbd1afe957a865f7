//! Generates the load: as many threads as processors, each with its share of the connections.

use super::wire::{Answer, Connection};
use super::{Cell, Kv, Popularity};
use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Skew of the zipfian distribution of keys, as in YCSB.
const ZIPF: f64 = 0.99;
/// Maximum bytes and requests in flight per connection, and number of connections, while keys are loaded.
const FILL_BYTES: usize = 1 << 20;
const FILL_DEPTH: usize = 64;
const FILL_CONNECTIONS: usize = 4;
/// Pause before a request is repeated after a temporary failure.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Time limit for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum recorded latency in nanoseconds: one hour. Latencies are kept with three significant digits.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Number of positions in random text from which values are cut, so that they differ.
const VALUE_STARTS: usize = 4096;
/// Number of operations that a thread draws before the clock starts, and then repeats: drawing one takes longer than some
/// servers take to answer it.
const DRAWS: usize = 1 << 20;

/// Result of a load.
pub struct Outcome {
    /// Latencies of successful requests, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Time from the first request to the last answer.
    pub elapsed: Duration,
    /// Number of requests that were repeated after a temporary failure.
    pub retries: u64,
}

/// A request; its start time is kept when it is sent again.
#[derive(Clone, Copy)]
struct Operation {
    rank: u32,
    read: bool,
    begun: Instant,
}

/// The requests that a thread sends.
enum Work {
    /// Writes each of these keys once.
    Fill(std::ops::Range<u32>),
    /// Reads and writes keys as drawn, until this time.
    Draw { until: Instant, draws: Vec<Draw>, next: usize },
}

/// A key, and true if it is read.
#[derive(Clone, Copy)]
struct Draw {
    rank: u32,
    read: bool,
}

/// A connection and its requests in flight.
struct Lane {
    connection: Connection,
    sent: VecDeque<Operation>,
    again: VecDeque<(Instant, Operation)>,
    /// In an open loop: the time at which the next request is due.
    due: Instant,
}

/// A thread: its connections and results.
struct Worker<'a> {
    options: &'a Kv,
    value_bytes: usize,
    depth: usize,
    /// In an open loop: the interval between two requests of one connection.
    interval: Option<Duration>,
    text: &'a [u8],
    /// The position at which the next value is cut.
    start: usize,
    work: Work,
    lanes: Vec<Lane>,
    latencies: Histogram<u64>,
    retries: u64,
}

/// Returns the load that writes all keys with values of `value_bytes`.
pub fn filling(value_bytes: usize) -> Cell {
    let depth = (FILL_BYTES / value_bytes.max(1)).clamp(1, FILL_DEPTH);
    Cell { connections: FILL_CONNECTIONS, depth, value_bytes }
}

/// Writes every key once.
///
/// # Errors
/// The first refused request, or the error of the connection.
pub fn fill(options: &Kv, value_bytes: usize) -> Result<Outcome, String> {
    run(options, filling(value_bytes), None, |thread, threads, _| {
        let bound =
            |thread: usize| (u64::from(options.keys) * thread as u64 / threads as u64) as u32;
        Work::Fill(bound(thread)..bound(thread + 1))
    })
    .map_err(|reason| format!("loading failed: {reason}"))
}

/// Reads and writes for the requested time.
///
/// # Errors
/// The first refused request, or the error of the connection.
pub fn measure(options: &Kv, cell: Cell) -> Result<Outcome, String> {
    let zipf = match options.popularity {
        Popularity::Zipfian => {
            Some(Zipf::new(f64::from(options.keys), ZIPF).map_err(|error| error.to_string())?)
        }
        Popularity::Uniform => None,
    };
    let draw = |random: &mut StdRng| Draw {
        rank: match zipf {
            // Ranks of the distribution begin at 1.
            Some(zipf) => zipf.sample(random) as u32 - 1,
            None => random.random_range(0..options.keys),
        },
        read: random.random_range(0..100) < options.read_percent,
    };
    let interval = options.rate.map(|rate| Duration::from_secs_f64(cell.connections as f64 / rate));
    let mut drawn: Vec<Vec<Draw>> = (0..threads_of(cell))
        .map(|thread| {
            let mut random = StdRng::seed_from_u64(thread as u64);
            (0..DRAWS).map(|_| draw(&mut random)).collect()
        })
        .collect();
    run(options, cell, interval, |thread, _, begun| Work::Draw {
        until: begun + Duration::from_secs_f64(options.seconds),
        draws: std::mem::take(&mut drawn[thread]),
        next: 0,
    })
}

/// Returns the number of threads: as many as processors, but at most one per connection.
fn threads_of(cell: Cell) -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(cell.connections)
}

fn run(
    options: &Kv,
    cell: Cell,
    interval: Option<Duration>,
    mut work: impl FnMut(usize, usize, Instant) -> Work,
) -> Result<Outcome, String> {
    let threads = threads_of(cell);
    let mut random = StdRng::seed_from_u64(7);
    let text: Vec<u8> =
        (0..cell.value_bytes + VALUE_STARTS).map(|_| random.random_range(b'a'..=b'z')).collect();
    let mut shares: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
    for index in 0..cell.connections {
        shares[index % threads].push(options.connect()?);
    }
    let begun = Instant::now();
    let workers: Vec<Worker<'_>> = shares
        .into_iter()
        .enumerate()
        .map(|(thread, share)| {
            let lane = |(index, connection): (usize, Connection)| {
                // The due times of the connections are staggered.
                let turn = (index * threads + thread) as f64 / cell.connections as f64;
                let due = begun + interval.unwrap_or_default().mul_f64(turn);
                Lane { connection, sent: VecDeque::new(), again: VecDeque::new(), due }
            };
            Ok(Worker {
                options,
                value_bytes: cell.value_bytes,
                depth: cell.depth,
                interval,
                text: &text,
                start: 0,
                work: work(thread, threads, begun),
                lanes: share.into_iter().enumerate().map(lane).collect(),
                latencies: latencies()?,
                retries: 0,
            })
        })
        .collect::<Result<_, String>>()?;
    let outcomes: Vec<Result<Worker<'_>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.run())).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        threads.into_iter().map(join).collect()
    });
    let elapsed = begun.elapsed();
    let mut outcome = Outcome { latencies: latencies()?, elapsed, retries: 0 };
    for worker in outcomes {
        let worker = worker?;
        outcome.latencies.add(worker.latencies).map_err(|error| error.to_string())?;
        outcome.retries += worker.retries;
    }
    Ok(outcome)
}

/// Returns an empty histogram of latencies in nanoseconds.
pub fn latencies() -> Result<Histogram<u64>, String> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|error| error.to_string())
}

impl Work {
    fn is_over(&self, now: Instant) -> bool {
        match self {
            Work::Fill(ranks) => ranks.is_empty(),
            Work::Draw { until, .. } => now >= *until,
        }
    }

    /// Returns true if requests that failed temporarily must be repeated even though the work is over.
    fn is_owed(&self) -> bool {
        matches!(self, Work::Fill(_))
    }
}

impl Worker<'_> {
    fn run(mut self) -> Result<Self, String> {
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut polled: Vec<libc::pollfd> = Vec::with_capacity(lanes.len());
        let mut heard = Instant::now();
        loop {
            let now = Instant::now();
            for lane in &mut lanes {
                self.top_up(lane, now);
                lane.connection.flush()?;
            }
            let over = self.work.is_over(now);
            let nothing_owed = |lane: &Lane| {
                lane.sent.is_empty() && (lane.again.is_empty() || !self.work.is_owed())
            };
            if over && lanes.iter().all(nothing_owed) {
                return Ok(self);
            }
            if lanes.iter().all(|lane| lane.sent.is_empty()) {
                heard = now;
            }
            if now.duration_since(heard) > PATIENCE {
                return Err(format!("the server has been silent for {} s", PATIENCE.as_secs()));
            }
            polled.clear();
            polled.extend(lanes.iter().map(|lane| {
                let writing = if lane.connection.is_writing() { libc::POLLOUT } else { 0 };
                libc::pollfd {
                    fd: lane.connection.fd(),
                    events: libc::POLLIN | writing,
                    revents: 0,
                }
            }));
            wait(&mut polled, self.next_event(&lanes, now))?;
            for (lane, polled) in lanes.iter_mut().zip(&polled) {
                if polled.revents & !libc::POLLOUT != 0 {
                    lane.connection.fill()?;
                    heard = Instant::now();
                    self.take_answers(lane, heard)?;
                }
            }
        }
    }

    /// Returns the time to wait if no socket is ready.
    fn next_event(&self, lanes: &[Lane], now: Instant) -> Duration {
        let mut next = now + PATIENCE;
        if let (Work::Draw { until, .. }, false) = (&self.work, self.work.is_over(now)) {
            next = next.min(*until);
        }
        for lane in lanes.iter().filter(|lane| lane.sent.len() < self.depth) {
            if let Some((due, _)) = lane.again.front() {
                next = next.min(*due);
            }
            if self.interval.is_some() && !self.work.is_over(now) {
                next = next.min(lane.due);
            }
        }
        next.saturating_duration_since(now)
    }

    /// Adds requests to a connection while there are any, up to the depth.
    fn top_up(&mut self, lane: &mut Lane, now: Instant) {
        while lane.sent.len() < self.depth {
            let operation = match lane.again.front() {
                Some((due, operation)) if *due <= now => {
                    let operation = *operation;
                    lane.again.pop_front();
                    operation
                }
                // Requests waiting to be repeated count as in flight, so that a busy server does not receive more and more
                // requests.
                Some(_) if lane.sent.len() + lane.again.len() >= self.depth => return,
                _ => match self.next(lane, now) {
                    Some(operation) => operation,
                    None => return,
                },
            };
            self.start = (self.start + 1) % VALUE_STARTS;
            let value = &self.text[self.start..self.start + self.value_bytes];
            lane.connection.send(operation.rank, (!operation.read).then_some(value));
            lane.sent.push_back(operation);
        }
    }

    fn next(&mut self, lane: &mut Lane, now: Instant) -> Option<Operation> {
        let mut begun = now;
        match &mut self.work {
            Work::Fill(ranks) => Some(Operation { rank: ranks.next()?, read: false, begun }),
            Work::Draw { until, draws, next } => {
                if now >= *until {
                    return None;
                }
                if let Some(interval) = self.interval {
                    if lane.due > now {
                        return None;
                    }
                    begun = lane.due;
                    lane.due += interval;
                }
                let Draw { rank, read } = draws[*next];
                *next = (*next + 1) % draws.len();
                Some(Operation { rank, read, begun })
            }
        }
    }

    fn take_answers(&mut self, lane: &mut Lane, now: Instant) -> Result<(), String> {
        while let Some(answer) = lane.connection.answer()? {
            let operation =
                lane.sent.pop_front().ok_or("the server sent an unexpected response")?;
            match answer {
                Answer::Done => {
                    let latency = now.saturating_duration_since(operation.begun);
                    self.latencies.saturating_record(latency.as_nanos() as u64);
                }
                Answer::Busy => {
                    self.retries += 1;
                    lane.again.push_back((now + AGAIN_AFTER, operation));
                }
                Answer::Missing => {
                    return Err(format!(
                        "key_{:012} is not there: load first, and give the server memory for {} keys of {} bytes",
                        operation.rank, self.options.keys, self.value_bytes
                    ));
                }
                Answer::Refused(reason) => {
                    let what = if operation.read { "read" } else { "write" };
                    return Err(format!(
                        "the server refused a {what} of key_{:012}: {reason}",
                        operation.rank
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Waits until a socket is ready or the time is over.
fn wait(polled: &mut [libc::pollfd], time: Duration) -> Result<(), String> {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    };
    // SAFETY: the pointer and length describe a valid array, which outlives the call, as does the time.
    let count = unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &time, std::ptr::null())
    };
    let error = std::io::Error::last_os_error();
    if count < 0 && error.kind() != std::io::ErrorKind::Interrupted {
        return Err(format!("cannot wait for answers: {error}"));
    }
    Ok(())
}
