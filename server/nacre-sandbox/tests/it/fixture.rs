//! A ticking host, the views plugin, and a scripted change stream.

use nacre_dcp::{Batch, ResumePoint};
use nacre_sandbox::{
    Error, Grants, Host, KeyspaceGrant, Limits, Partition, Plugin, Reader, Report, Request, Setup,
};
use nacre_state::{MemoryStorage, StateStorage};
use nacre_types::{Cas, CollectionId, DocKey, Document, Kind, Meta, Now, Seqno, VbUuid, Vbid};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

pub const NOW: Now = Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 };

thread_local! {
    /// Number of pauses that the host has requested on this thread.
    pub static RESTS: Cell<usize> = const { Cell::new(0) };
}

/// The host of all tests; a separate thread advances its clock.
pub fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "calls are measured in real time")]
        let begun = std::time::Instant::now();
        let rest = |_| RESTS.set(RESTS.get() + 1);
        let host = Host::new(move || begun.elapsed().as_nanos() as u64, rest, || {}).unwrap();
        let ticking = host.clone();
        #[expect(clippy::disallowed_methods, reason = "deadlines are about real time")]
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(1));
                if !ticking.tick() {
                    ticking.await_call();
                }
            }
        });
        host
    })
}

/// Returns the views plugin.
pub fn views() -> Plugin {
    plugin("views")
}

/// Returns the plugin that executes scripted steps; see its crate for the steps.
pub fn probe() -> Plugin {
    plugin("probe")
}

/// Returns a plugin that `cargo xtask plugins` has built, compiled once for all tests.
pub fn plugin(name: &str) -> Plugin {
    static PLUGINS: Mutex<BTreeMap<String, Plugin>> = Mutex::new(BTreeMap::new());
    let mut plugins = PLUGINS.lock().unwrap();
    if let Some(plugin) = plugins.get(name) {
        return plugin.clone();
    }
    let plugin = load(name, &component(name)).unwrap();
    plugins.insert(name.to_owned(), plugin.clone());
    plugin
}

/// Compiles and loads a component.
pub fn load(name: &str, component: &[u8]) -> Result<Plugin, Error> {
    let artefact = host().compile(component)?;
    // SAFETY: this host has just compiled the bytes.
    unsafe { host().load(name, &artefact) }
}

pub fn component(name: &str) -> Vec<u8> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from("../../target"),
    };
    let path = target.join("plugins").join(name).with_extension("wasm");
    #[expect(clippy::disallowed_methods, reason = "the component is a file")]
    std::fs::read(&path)
        .unwrap_or_else(|_| panic!("{} is missing: run cargo xtask plugins first", path.display()))
}

/// Returns a deployment with grants for all imports of the probe.
pub fn granted(config: &str) -> Setup {
    let kv = vec![KeyspaceGrant { keyspace: "*".into(), write: true }];
    let grants = Grants { kv, http_out: vec!["a".into()], ..Grants::own() };
    Setup { grants, ..Setup::new("p", config) }
}

/// Opens the probe with its own state.
pub fn open_probe(setup: Setup) -> Partition {
    Partition::open(probe(), setup, Box::new(MemoryStorage::default())).unwrap()
}

/// Passes scripts to the probe, one per document.
pub fn tell(partition: &mut Partition, scripts: &[&str]) -> Result<Report, Error> {
    let keys: Vec<_> = (0..scripts.len()).map(|number| format!("k{number}")).collect();
    let changes = keys.iter().zip(scripts).map(|(key, script)| (&key[..], Some(*script)));
    partition.on_batch(&Stream::default().batch(changes), NOW)
}

/// Returns the results that the probe has received from the host so far.
pub fn told(partition: &Partition) -> String {
    request(&partition.reader(), "/state", "told")
}

/// Returns [`NOW`] plus some microseconds.
pub fn later(us: u64) -> Now {
    Now { unix_ns: NOW.unix_ns + us * 1000, ..NOW }
}

/// Returns a design document with one view named `v`.
pub fn design(map: &str, reduce: Option<&str>) -> String {
    let mut view = serde_json::json!({"map": map});
    if let Some(reduce) = reduce {
        view["reduce"] = reduce.into();
    }
    serde_json::json!({"name": "d", "views": {"v": view}}).to_string()
}

pub fn open(config: &str, limits: Limits, storage: impl StateStorage + 'static) -> Partition {
    let setup = Setup { limits, ..Setup::new("travel/_design/d", config) };
    Partition::open(views(), setup, Box::new(storage)).unwrap()
}

pub fn open_in_memory(map: &str, reduce: Option<&str>) -> Partition {
    open(&design(map, reduce), Limits::default(), MemoryStorage::default())
}

/// A change stream over few vBuckets.
#[derive(Default)]
pub struct Stream {
    seqnos: BTreeMap<Vbid, u64>,
}

impl Stream {
    pub const VBUCKETS: u16 = 4;

    /// Returns a batch of changes: a new body for a key, or its deletion.
    pub fn batch<'a>(
        &mut self,
        changes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Batch {
        let mut batch = Batch::default();
        for (key, body) in changes {
            let vbid = Vbid::of(key.as_bytes(), Stream::VBUCKETS);
            let seqno = self.seqnos.entry(vbid).or_default();
            *seqno += 1;
            let meta = Meta {
                seqno: Seqno(*seqno),
                cas: Cas(*seqno << 16),
                rev: 1,
                datatype: u8::from(body.is_some()),
                kind: if body.is_some() { Kind::Alive } else { Kind::Deleted },
                ..Meta::default()
            };
            let key = DocKey::new(CollectionId(8), key.as_bytes());
            let body = body.unwrap_or_default().as_bytes();
            batch.documents.push((vbid, Document::new(meta, key.prefixed(), body)));
        }
        batch.progress = self.seqnos.iter().map(|(vbid, seqno)| (*vbid, point(*seqno))).collect();
        batch
    }
}

/// Returns a resume point at the end of a snapshot.
pub fn point(seqno: u64) -> ResumePoint {
    let seqno = Seqno(seqno);
    ResumePoint { vb_uuid: VbUuid(7), seqno, snapshot_start: seqno, snapshot_end: seqno }
}

/// Returns the reply to a query of view `v`, with its rows on separate lines.
pub fn query(reader: &Reader, query: &str) -> String {
    request(reader, "/v", query)
}

pub fn request(reader: &Reader, path: &str, query: &str) -> String {
    let request = Request {
        method: "GET".into(),
        path: path.into(),
        query: query.into(),
        ..Request::default()
    };
    let response = reader.handle(&request, NOW).unwrap().collect().unwrap();
    let body = String::from_utf8(response.body).unwrap();
    if response.status == 200 { body } else { format!("{} {body}", response.status) }
}
