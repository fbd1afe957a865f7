//! `nacre bench`: a closed loop of requests against one server, the same for every server that speaks the protocol.
//!
//! Each connection is a thread with a sliding window: as many new requests are sent as answers were received, with
//! one write. Keys are zipfian over a fixed set that is loaded first.

use crate::client::{Client, Request};
use clap::{Args, Subcommand};
use nacre_protocol::Opcode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Options of `nacre bench`.
#[derive(Args, Clone, Debug)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Reads and writes by key; prints one line: operations per second and latency percentiles
    Kv(Kv),
}

#[derive(Args, Clone, Debug)]
struct Kv {
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1:11210")]
    server: String,
    /// Log in as this user; leave out for servers without login
    #[arg(long)]
    user: Option<String>,
    /// Password of the user
    #[arg(long, default_value = "")]
    password: String,
    /// Bucket
    #[arg(long, default_value = "bench")]
    bucket: String,
    /// Connections, each with a thread
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 16)]
    depth: usize,
    /// Seconds to measure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Different keys
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
    /// Share of reads, in percent
    #[arg(long, default_value_t = 50)]
    reads: u32,
}

/// How uneven the popularity of keys is, as in YCSB.
const ZIPF: f64 = 0.99;

/// Runs a benchmark.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn bench(options: &Bench) -> Result<(), String> {
    match &options.what {
        What::Kv(options) => kv(options),
    }
}

impl Kv {
    fn connect(&self) -> Result<Client, String> {
        match &self.user {
            Some(user) => Client::connect(&self.server, user, &self.password, &self.bucket),
            None => Client::plain(&self.server),
        }
    }

    /// The key of rank `rank`; the first byte is the collection prefix where the client logged in.
    fn key(&self, rank: u32, key: &mut Vec<u8>) {
        key.clear();
        if self.user.is_some() {
            key.push(0);
        }
        // Spread so that popular keys do not lie in neighbouring vBuckets.
        key.extend_from_slice(
            format!("key_{:012}", u64::from(rank).wrapping_mul(7_919) % 1_000_000_007).as_bytes(),
        );
    }
}

/// Ranks with the popularity of a zipfian distribution, drawn from a table.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: u32) -> Zipf {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += f64::from(rank).powf(-ZIPF);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|value| *value /= sum);
        Zipf(sums)
    }

    fn draw(&self, random: &mut StdRng) -> u32 {
        let point: f64 = random.random();
        self.0.partition_point(|sum| *sum < point).min(self.0.len() - 1) as u32
    }
}

fn kv(options: &Kv) -> Result<(), String> {
    load(options)?;
    let zipf = Zipf::new(options.keys);
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let outcomes: Vec<Result<Vec<u32>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.connections)
            .map(|index| {
                let (zipf, stop) = (&zipf, &stop);
                scope.spawn(move || run_connection(options, index as u64, zipf, stop))
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err("a connection's thread panicked".into()))
            })
            .collect()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    let mut latencies = Vec::new();
    for outcome in outcomes {
        latencies.extend(outcome?);
    }
    latencies.sort_unstable();
    let percentile = |share: f64| {
        latencies.get(((latencies.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(0)
    };
    println!(
        "connections {} depth {} reads {}% value {} B: {:.0} ops/s, p50 {} us, p99 {} us, p99.9 {} us",
        options.connections,
        options.depth,
        options.reads,
        options.value_bytes,
        latencies.len() as f64 / elapsed,
        percentile(0.5),
        percentile(0.99),
        percentile(0.999)
    );
    Ok(())
}

/// Text that does not compress and is not JSON.
fn value(options: &Kv) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(7);
    (0..options.value_bytes).map(|_| b'a' + random.random_range(0..26)).collect()
}

fn load(options: &Kv) -> Result<(), String> {
    let mut client = options.connect()?;
    let value = value(options);
    let mut key = Vec::new();
    for rank in 0..options.keys {
        options.key(rank, &mut key);
        let vbid = client.vbucket_of(if options.user.is_some() { &key[1..] } else { &key });
        client.send(Request {
            opcode: Opcode::Set as u8,
            vbid,
            extras: &[0; 8],
            key: &key,
            value: &value,
            opaque: 0,
        });
        if rank % 64 == 63 || rank + 1 == options.keys {
            client.flush()?;
            for _ in 0..rank % 64 + 1 {
                let status = client.receive(|frame| frame.vbid)?;
                if status != 0 {
                    return Err(format!("loading failed with status 0x{status:02x}"));
                }
            }
        }
    }
    Ok(())
}

/// Keeps `depth` requests in flight until told to stop; gives each request's latency in microseconds.
fn run_connection(
    options: &Kv,
    index: u64,
    zipf: &Zipf,
    stop: &AtomicBool,
) -> Result<Vec<u32>, String> {
    let mut client = options.connect()?;
    let mut random = StdRng::seed_from_u64(index);
    let value = value(options);
    let mut key = Vec::new();
    let mut latencies = Vec::new();
    let mut sent = std::collections::VecDeque::with_capacity(options.depth);
    let mut wanted = options.depth;
    loop {
        let now = Instant::now();
        for _ in 0..wanted {
            options.key(zipf.draw(&mut random), &mut key);
            let vbid = client.vbucket_of(if options.user.is_some() { &key[1..] } else { &key });
            let read = random.random_range(0..100) < options.reads;
            let (opcode, extras, value) = if read {
                (Opcode::Get, &[][..], &[][..])
            } else {
                (Opcode::Set, &[0; 8][..], &value[..])
            };
            client.send(Request {
                opcode: opcode as u8,
                vbid,
                extras,
                key: &key,
                value,
                opaque: 0,
            });
            sent.push_back(now);
        }
        client.flush()?;
        wanted = 0;
        while !sent.is_empty() && (wanted == 0 || client.has_answer()?) {
            let status = client.receive(|frame| frame.vbid)?;
            if status != 0 {
                return Err(format!("a request failed with status 0x{status:02x}"));
            }
            if let Some(at) = sent.pop_front() {
                latencies.push(u32::try_from(at.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            wanted += 1;
        }
        if stop.load(Ordering::Relaxed) {
            while !sent.is_empty() {
                client.receive(|_| ())?;
                sent.pop_front();
            }
            return Ok(latencies);
        }
    }
}
