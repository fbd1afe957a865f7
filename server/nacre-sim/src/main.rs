//! `nacre-sim`: runs seeds, on all processors.

#![allow(clippy::disallowed_methods, reason = "it says how long it took")]

use clap::Parser;
use nacre_sim::{Simulation, Summary, clusters};
use rustix::time::{ClockId, clock_gettime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Puts a simulated cluster, or several ones that follow each other, through faults that seeds decide.
#[derive(Parser)]
struct Options {
    /// How many seeds to go through
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// One seed alone
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Replicate between clusters instead: how many, as in `3` or `2..4`
    #[arg(long, value_parser = clusters::parse_range)]
    clusters: Option<(u64, u64)>,
    /// Print the hash of each seed's events
    #[arg(long, conflicts_with = "clusters")]
    hashes: bool,
    /// Print what happens in each seed
    #[arg(long, requires = "clusters")]
    trace: bool,
    /// Threads; as many as there are processors if not given
    #[arg(long)]
    threads: Option<usize>,
}

/// The sum of all runs so far.
#[derive(Default)]
struct Total {
    runs: u64,
    summary: Summary,
}

impl Total {
    fn add(&mut self, summary: &Summary) {
        self.runs += 1;
        let sum = &mut self.summary;
        sum.counts.writes += summary.counts.writes;
        sum.counts.reads += summary.counts.reads;
        sum.counts.unknown += summary.counts.unknown;
        sum.counts.refused += summary.counts.refused;
        sum.events += summary.events;
        sum.virtual_ns += summary.virtual_ns;
        sum.undecided += summary.undecided;
        sum.terms += summary.terms;
    }
}

fn main() {
    let options = Options::parse();
    let begun = Instant::now();
    let has_passed = match options.clusters {
        Some(range) => replicate(&options, range, begun),
        None => run_nodes(&options, begun),
    };
    if !has_passed {
        std::process::exit(1);
    }
}

/// Runs the seeds with one cluster of complete nodes. Returns true if all have passed.
fn run_nodes(options: &Options, begun: Instant) -> bool {
    let total = Mutex::new(Total::default());
    let has_passed = go_through(options, |seed| {
        let summary = Simulation::new(seed).run();
        if options.hashes {
            println!("{seed} {:016x}", summary.hash);
        }
        total.lock().expect("nobody panics with it").add(&summary);
    });
    let total = total.into_inner().expect("nobody panics with it");
    report(&total, begun.elapsed().as_secs_f64());
    has_passed
}

/// Runs the seeds with clusters that replicate to each other. Returns true if all have passed.
fn replicate(options: &Options, range: (u64, u64), begun: Instant) -> bool {
    let total = Mutex::new(clusters::Total::default());
    let has_passed = go_through(options, |seed| {
        let mut simulation = clusters::Simulation::new(seed, range);
        if options.trace {
            simulation.trace();
        }
        let summary = simulation.run();
        total.lock().expect("nobody panics with it").add(seed, &summary);
    });
    let total = total.into_inner().expect("nobody panics with it");
    println!("{total} in {:.1} s", begun.elapsed().as_secs_f64());
    has_passed
}

/// Runs each seed until one panics. Returns true if none has panicked.
fn go_through(options: &Options, run: impl Fn(u64) + Sync) -> bool {
    let (from, count) = options.seed.map_or((options.from, options.seeds), |seed| (seed, 1));
    let threads = options.threads.or(std::thread::available_parallelism().ok().map(usize::from));
    let (next, failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| run(seed))).is_err() {
                eprintln!("seed {seed}");
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads.unwrap_or(1)).for_each(|_| drop(scope.spawn(work)));
    });
    !failed.into_inner()
}

fn report(total: &Total, seconds: f64) {
    let Summary { counts, events, virtual_ns, undecided, terms, .. } = total.summary;
    let virtual_s = virtual_ns / 1_000_000_000;
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let rate = virtual_s as f64 / (spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9);
    println!(
        "{} seeds: {virtual_s} s of the nodes' time in {seconds:.1} s, {rate:.0} s in each of a processor, {events} events",
        total.runs
    );
    println!(
        "{} durable writes, {} reads, {} refused, {} unknown; {terms} vBuckets served by another node",
        counts.writes, counts.reads, counts.refused, counts.unknown
    );
    if undecided > 0 {
        println!("{undecided} histories were too long to be searched");
    }
}
