//! Measures the cost of the sandbox: delivery of events, the same code in the sandbox and natively, instances, and how
//! late the sandbox ends a call.
//!
//! `cargo xtask bench plugins`. The compared variants run in turns, so that a noisy machine affects both, and the
//! median of the ratios counts.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod stage;

use nacre_dcp::Batch;
use nacre_js_service::Program;
use nacre_plugin::{Entry, Event, EventKind, Events, MemoryState, Service, State, StateMut, pack};
use nacre_probe::Probe;
use nacre_sandbox::{Grants, Host, KeyspaceGrant, Limits, Partition, Plugin, Setup, validate};
use nacre_state::{Changes, KeySpace, MemoryStorage, StateStorage, Value};
use nacre_types::{Now, Vbid};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
/// Number of events in one measurement.
const EVENTS: usize = 20_480;
const BATCH: usize = 1024;
/// Deadline of the call that never ends.
const DEADLINE: Duration = Duration::from_millis(50);

/// Four steps: two writes, a log line, and a deletion of a missing key.
const SCRIPT: &str =
    r#"[["put","key","value"],["log",""],["delete","none"],["put","key","other"]]"#;
/// The same with the cancellation of a timer. Its result is appended to a text in the state, which is read and written
/// for each document and grows, so that copying it is most of the work.
const TELLING_SCRIPT: &str =
    r#"[["put","key","value"],["log",""],["cancel","none"],["put","key","other"]]"#;

/// Reads three fields of each document, one of them nested, and maintains counts.
const SOURCE: &str = r#"
export function onUpdate(doc, { id }) {
    const key = doc.type + "/" + doc.address.city;
    state.put(key, (state.get(key) ?? 0) + doc.price);
}
"#;

fn setup(config: &str) -> Setup {
    let kv = vec![KeyspaceGrant { keyspace: "*".into(), write: true }];
    let grants = Grants { kv, http_out: vec!["a".into()], ..Grants::own() };
    Setup { grants, runs_script: true, ..Setup::new("bench", config) }
}

fn js_config() -> String {
    serde_json::json!({"source": SOURCE}).to_string()
}

/// Documents of about 0.9 KB.
fn hotel(number: usize) -> String {
    serde_json::json!({
        "id": number,
        "type": "hotel",
        "name": format!("the hotel of number {number}"),
        "address": {"street": "old harbour road", "city": format!("city{}", number % 200), "country": "there"},
        "price": number % 500,
        "ratings": [1, 2, 3, 4, 5, 4, 3, 2],
        "tags": ["quiet", "river", "garden", "station", "grand", "little"],
        "description": "a quiet old house with a little garden beside the river ".repeat(12),
    })
    .to_string()
}

fn documents(count: usize, body: impl Fn(usize) -> String) -> Vec<(String, String)> {
    (0..count).map(|number| (format!("key{number}"), body(number))).collect()
}

fn batches(documents: &[(String, String)], size: usize) -> Vec<Batch> {
    let document = |(key, body): &(String, String)| (Vbid(0), stage::document(key, body));
    let batch = |chunk: &[(String, String)]| stage::batch(chunk.iter().map(document));
    documents.chunks(size).map(batch).collect()
}

fn buffers(documents: &[(String, String)]) -> Vec<Vec<u8>> {
    let event =
        |(key, body): &(String, String)| -> (String, String) { (key.clone(), body.clone()) };
    let buffer = |chunk: &[(String, String)]| {
        let owned: Vec<_> = chunk.iter().map(event).collect();
        let events: Vec<_> = owned
            .iter()
            .map(|(key, body)| Event {
                index: 0,
                vb: 0,
                seqno: 1,
                cas: 1 << 16,
                rev: 1,
                flags: 0,
                expiry: 0,
                collection: 8,
                kind: EventKind::Upsert,
                datatype: 1,
                key: key.as_bytes(),
                xattrs: b"",
                body: body.as_bytes(),
                previous: None,
            })
            .collect();
        pack(&events, 0)
    };
    documents.chunks(BATCH).map(buffer).collect()
}

fn open(plugin: &Plugin, config: &str) -> Partition {
    let storage = Box::new(MemoryStorage::default());
    Partition::open(plugin.clone(), setup(config), storage).expect("the plugin starts")
}

fn sandboxed(plugin: &Plugin, config: &str, batches: &[Batch]) -> Duration {
    let mut partition = open(plugin, config);
    timed(|| {
        for batch in batches {
            let report = partition.on_batch(batch, Now::default()).expect("the plugin works");
            assert!(report.errors.is_empty() && report.dead_letters.is_empty(), "{report:?}");
        }
    })
}

fn native<S: Service>(config: &str, buffers: &[Vec<u8>]) -> Duration {
    let mut service = S::init(config).expect("the plugin starts");
    let mut state = MemoryState::default();
    timed(|| {
        for buffer in buffers {
            fold(&mut service, buffer, &mut state);
        }
    })
}

fn fold<S: Service>(service: &mut S, buffer: &[u8], state: &mut dyn StateMut) {
    let events = Events::decode(buffer).expect("it was packed before");
    let errors = service.on_batch(&events, state).expect("the plugin works");
    assert!(errors.is_empty(), "{errors:?}");
}

/// The state as the host keeps it for a component: entries with a snapshot, a record of the written keys, and a storage
/// that receives them at the end of a batch.
#[derive(Default)]
struct HostState {
    entries: KeySpace,
    snapshot: KeySpace,
    touched: KeySpace,
    storage: MemoryStorage,
}

impl State for HostState {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.entries.get_in_memory(key).map(|value| value.bytes().to_vec())
    }

    fn scan(&self, _: &[u8], _: &[u8], _: u32, _: bool) -> Vec<Entry> {
        unreachable!("what is measured here does not scan")
    }
}

impl StateMut for HostState {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.entries.put(key, Value::Here(value));
        self.touched.add(key);
    }

    fn delete(&mut self, key: &[u8]) {
        self.entries.delete(key);
        self.touched.add(key);
    }

    fn reading(&self) -> &dyn State {
        self
    }
}

impl HostState {
    fn commit(&mut self) {
        let (state, touched) = (self.entries.clone(), std::mem::take(&mut self.touched));
        let changes = Changes { state, touched, ..Changes::default() };
        self.storage.commit(&changes).expect("memory takes all");
        self.snapshot = self.entries.clone();
    }
}

/// Runs the same code natively, with a state that is kept like that of a component.
fn native_in_host_state<S: Service>(config: &str, buffers: &[Vec<u8>]) -> Duration {
    let mut service = S::init(config).expect("the plugin starts");
    let mut state = HostState::default();
    timed(|| {
        for buffer in buffers {
            fold(&mut service, buffer, &mut state);
            state.commit();
        }
    })
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn main() {
    let host = stage::host();
    let (probe, js) = (introduce(&host, "probe"), introduce(&host, "js"));

    println!("\ndelivery of an empty document, its commit in memory included");
    let empty = documents(EVENTS, |_| String::new());
    for size in [1, 64, 1024] {
        let batches = batches(&empty, size);
        let times = (0..ROUNDS).map(|_| us(sandboxed(&probe, "", &batches)) * 1000.0);
        let ns = median(times.map(|ns| ns / EVENTS as f64).collect());
        println!(
            "  batches of {size:>4}: {ns:>6.0} ns an event, {:>7.0} ns a batch",
            ns * size as f64
        );
    }

    println!("\nsandbox / native, the same code");
    let hotels = documents(EVENTS, hotel);
    tax::<Probe>("Rust: three fields of 0.9 KB, a read and a write", &probe, "sums", &hotels);
    let scripts = documents(EVENTS, |_| SCRIPT.into());
    tax::<Probe>("Rust: parse four steps, two writes and a line for the log", &probe, "", &scripts);
    let telling = documents(EVENTS, |_| TELLING_SCRIPT.into());
    tax::<Probe>("Rust: the same, and a text that grows", &probe, "", &telling);
    tax::<Program>(
        "JavaScript: three fields of 0.9 KB, a read and a write",
        &js,
        &js_config(),
        &hotels,
    );

    println!("\na call that never ends, deadline {} ms", DEADLINE.as_millis());
    let looping = batches(&documents(1, |_| r#"[["loop"]]"#.into()), 1);
    let late = (0..ROUNDS).map(|_| {
        let limits = Limits { deadline: DEADLINE, ..Limits::default() };
        let storage = Box::new(MemoryStorage::default());
        let mut partition = Partition::open(probe.clone(), Setup { limits, ..setup("") }, storage)
            .expect("it starts");
        let took = timed(|| {
            partition.on_batch(&looping[0], Now::default()).expect("the document is parked");
        });
        us(took.saturating_sub(DEADLINE)) / 1000.0
    });
    let late: Vec<f64> = late.collect();
    let most = late.iter().copied().fold(0.0, f64::max);
    println!("  ends {:.1} ms after it, at most {most:.1} ms", median(late));
}

/// Compiles, loads and starts a plugin, and prints the cost.
fn introduce(host: &Host, name: &str) -> Plugin {
    let component = stage::component(name);
    let mut artefact = Vec::new();
    let compile = timed(|| artefact = host.compile(&component).expect("the component compiles"));
    let load = || {
        // SAFETY: this host has just compiled the bytes.
        unsafe { host.load(name, &artefact) }.expect("the component loads")
    };
    let loads = median((0..ROUNDS).map(|_| us(timed(|| drop(load())))).collect());
    let plugin = load();
    let config = if name == "js" { js_config() } else { String::new() };
    let starts = (0..10 * ROUNDS)
        .map(|_| us(timed(|| validate(&plugin, setup(&config)).expect("the plugin starts"))));
    let starts = median(starts.collect());
    let memory = open(&plugin, &config).status().memory_bytes;
    println!(
        "{name}: compiled in {} ms to {} KB, loaded in {:.2} ms, an instance in {starts:.0} us with {} KB of memory",
        compile.as_millis(),
        artefact.len() / 1024,
        loads / 1000.0,
        memory / 1024
    );
    plugin
}

fn tax<S: Service>(what: &str, plugin: &Plugin, config: &str, documents: &[(String, String)]) {
    let (batches, buffers) = (batches(documents, BATCH), buffers(documents));
    let per_event = |time: Duration| us(time) / documents.len() as f64;
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let native = per_event(native::<S>(config, &buffers));
            let sandboxed = per_event(sandboxed(plugin, config, &batches));
            [native, per_event(native_in_host_state::<S>(config, &buffers)), sandboxed]
        })
        .collect();
    let of = |value: &dyn Fn(&[f64; 3]) -> f64| median(rounds.iter().map(value).collect());
    let (plain, kept) = (of(&|[native, _, it]| it / native), of(&|[_, kept, it]| it / kept));
    println!("  {what}: {plain:.2}, with a state that is kept natively as well {kept:.2}");
    let [native, kept, it] = [0, 1, 2].map(|at| of(&|times| times[at]));
    println!("    {it:.2} us a document, natively {native:.2} and {kept:.2} us");
}
