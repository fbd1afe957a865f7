//! Compares store engines under the same workload. `cargo xtask bench store` runs this program for each engine and
//! builds the table.
//!
//! Arguments: engine, number of documents, directory, and `work` or `reopen`, which runs as another process. Prints a
//! line of `name=value`. Documents have 1 KB; group commits cover all 1024 vBuckets, and each is synced.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and the directory")]

#[cfg(feature = "fjall")]
use nacre_store::FjallStore;
use nacre_store::{Commit, LogOptions, LogStore, SledStore, Store, load_all};
use nacre_types::{
    Cas, CollectionId, DocKey, Document, FailoverLog, Meta, Seqno, VbRecord, VbState, VbUuid, Vbid,
};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VBUCKETS: u16 = 1024;
const VALUE_BYTES: usize = 1024;
/// The group size of the flusher.
const GROUP_DOCUMENTS: usize = 4096;
const CACHE_BYTES: u64 = 512 << 20;
/// A phase that takes longer is cut off and reports its progress.
const PHASE_MAX: Duration = Duration::from_secs(60);
const COMMITS_MAX: Duration = Duration::from_secs(8);
const GETS_MAX: Duration = Duration::from_secs(4);
const FRAGMENTATION_PERCENT: u8 = 50;

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns letters and digits that barely compress.
    fn value(&mut self) -> Vec<u8> {
        const LETTERS: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
        let mut value = Vec::with_capacity(VALUE_BYTES + 8);
        while value.len() < VALUE_BYTES {
            let mut bits = self.next();
            for _ in 0..10 {
                value.push(LETTERS[(bits & 63) as usize]);
                bits >>= 6;
            }
        }
        value.truncate(VALUE_BYTES);
        value
    }
}

/// Generates the history of a bucket.
struct Source {
    chance: Chance,
    highs: Vec<u64>,
}

fn key(number: u64) -> (Vbid, DocKey) {
    let name = format!("document-{number:010}");
    (Vbid::of(name.as_bytes(), VBUCKETS), DocKey::new(CollectionId(8), name.as_bytes()))
}

impl Source {
    /// Returns one group commit that writes these documents.
    fn commits(&mut self, numbers: impl Iterator<Item = u64>) -> Vec<Commit> {
        let mut groups: BTreeMap<Vbid, BTreeMap<u64, DocKey>> = BTreeMap::new();
        for number in numbers {
            let (vbid, key) = key(number);
            groups.entry(vbid).or_default().insert(number, key);
        }
        let commit = |(vbid, keys): (Vbid, BTreeMap<u64, DocKey>)| {
            let high = &mut self.highs[vbid.index()];
            let mut documents = Vec::with_capacity(keys.len());
            for key in keys.into_values() {
                *high += 1;
                let meta = Meta { seqno: Seqno(*high), cas: Cas(*high << 16), ..Meta::default() };
                documents.push(Document::new(meta, key.prefixed(), &self.chance.value()));
            }
            let record = VbRecord {
                state: VbState::Active,
                failover_log: FailoverLog::new(VbUuid(7)),
                high_seqno: Seqno(*high),
                term: 3,
                snapshot: (Seqno(*high), Seqno(*high)),
                purge_seqno: Seqno::ZERO,
                purged_rev: 0,
                max_cas: Cas(*high << 16),
                document_count: 0,
                history_start: None,
            };
            Commit { vbid, record, documents, erased: Vec::new(), history: Arc::default() }
        };
        groups.into_iter().map(commit).collect()
    }
}

fn open(engine: &str, path: &Path, create: bool) -> Arc<dyn Store> {
    match engine {
        "sled" => Arc::new(SledStore::open(path, create, CACHE_BYTES).unwrap()),
        "log" => Arc::new(LogStore::open(path, create, LogOptions::default()).unwrap()),
        #[cfg(feature = "fjall")]
        "fjall" => Arc::new(FjallStore::open(path, create, CACHE_BYTES).unwrap()),
        other => panic!("there is no engine {other}"),
    }
}

/// Returns the disk usage of a directory in bytes.
fn disk_bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            // Allocated but unwritten space counts.
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Returns a line of `/proc/self/status` in MB.
fn memory_mb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

fn show(name: &str, value: f64) {
    print!("{name}={value:.3} ");
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [engine, documents, path, phase] = &arguments[..] else {
        // `cargo test` runs this program too, without arguments.
        return;
    };
    let documents: u64 = documents.parse().expect("the number of documents is a number");
    match phase.as_str() {
        "work" => work(engine, documents, Path::new(path)),
        "reopen" => reopen(engine, documents, Path::new(path)),
        other => panic!("there is no phase {other}"),
    }
    println!();
}

fn work(engine: &str, documents: u64, path: &Path) {
    let before_mb = memory_mb("VmRSS");
    let store = open(engine, path, true);
    let mut source =
        Source { chance: Chance(88_172_645_463_325_252), highs: vec![0; VBUCKETS.into()] };
    let done = Arc::new(AtomicBool::new(false));
    let most = Arc::new(AtomicU64::new(0));
    let compactor = {
        let (store, done, most, path) =
            (Arc::clone(&store), Arc::clone(&done), Arc::clone(&most), path.to_owned());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(disk_bytes(&path), Ordering::Relaxed);
                if store.compact(FRAGMENTATION_PERCENT).unwrap() == 0 {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        })
    };

    let timed = |store: &dyn Store, commits: &[Commit]| {
        let start = Instant::now();
        store.commit(commits).unwrap();
        start.elapsed()
    };
    let mut spent = Duration::ZERO;
    let mut loaded = 0;
    while loaded < documents {
        let next = documents.min(loaded + GROUP_DOCUMENTS as u64);
        spent += timed(&*store, &source.commits(loaded..next));
        loaded = next;
    }
    show("load_kps", documents as f64 / spent.as_secs_f64() / 1e3);

    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < GETS_MAX {
        let (vbid, key) = key(source.chance.below(documents));
        let before = Instant::now();
        assert!(store.get(vbid, key.prefixed()).unwrap().is_some());
        times.push(before.elapsed());
    }
    show("get_kps", times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64() / 1e3);
    show("get_p50_us", percentile(&mut times, 50).as_secs_f64() * 1e6);

    for size in [100, 1000] {
        let (mut times, mut written) = (Vec::new(), 0);
        let start = Instant::now();
        while start.elapsed() < COMMITS_MAX {
            let numbers: Vec<u64> = (0..size).map(|_| source.chance.below(documents)).collect();
            let commits = source.commits(numbers.into_iter());
            written += commits.iter().map(|commit| commit.documents.len()).sum::<usize>();
            times.push(timed(&*store, &commits));
        }
        let spent = times.iter().sum::<Duration>().as_secs_f64();
        show(&format!("b{size}_kps"), written as f64 / spent / 1e3);
        show(&format!("b{size}_p50_ms"), percentile(&mut times, 50).as_secs_f64() * 1e3);
        show(&format!("b{size}_p99_ms"), percentile(&mut times, 99).as_secs_f64() * 1e3);
    }

    let start = Instant::now();
    let mut seen = 0;
    for (vbid, _) in store.records().unwrap() {
        let scan = store.scan(vbid, Seqno::ZERO, nacre_store::Which::Current).unwrap();
        seen += scan.documents.fold(0, |count, document| count + u64::from(document.is_ok()));
    }
    assert_eq!(seen, documents);
    show("scan_kps", documents as f64 / start.elapsed().as_secs_f64() / 1e3);

    most.store(0, Ordering::Relaxed);
    let (mut spent, mut written) = (Duration::ZERO, 0);
    while written < 3 * documents && spent < PHASE_MAX {
        let numbers: Vec<u64> =
            (0..GROUP_DOCUMENTS).map(|_| source.chance.below(documents)).collect();
        let commits = source.commits(numbers.into_iter());
        written += commits.iter().map(|commit| commit.documents.len() as u64).sum::<u64>();
        spent += timed(&*store, &commits);
    }
    show("overwrite_kps", written as f64 / spent.as_secs_f64() / 1e3);
    show("overwrite_times", written as f64 / documents as f64);
    let live = (documents * (VALUE_BYTES as u64 + 20)) as f64;
    show("disk_per_live_max", most.load(Ordering::Relaxed).max(disk_bytes(path)) as f64 / live);
    done.store(true, Ordering::Relaxed);
    compactor.join().unwrap();
    show("disk_per_live", disk_bytes(path) as f64 / live);
    show("rss_mb", memory_mb("VmRSS").saturating_sub(before_mb) as f64);
}

fn reopen(engine: &str, documents: u64, path: &Path) {
    let before_mb = memory_mb("VmRSS");
    let start = Instant::now();
    let store = open(engine, path, false);
    show("reopen_s", start.elapsed().as_secs_f64());
    let opened = memory_mb("VmRSS").saturating_sub(before_mb);
    show("reopen_rss_mb", opened as f64);
    let start = Instant::now();
    let mut seen = 0;
    load_all(&*store, &mut |_, _| seen += 1).unwrap();
    assert_eq!(seen, documents);
    show("warmup_s", start.elapsed().as_secs_f64());
}
