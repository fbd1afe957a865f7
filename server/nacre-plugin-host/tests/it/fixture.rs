//! A host that ticks, the views plugin, and a scripted change stream.

use nacre_dcp::{Batch, ResumePoint};
use nacre_plugin_host::{
    Host, Limits, MemoryStorage, Partition, Plugin, Reader, Request, Setup, StateStorage,
};
use nacre_types::{Cas, CollectionId, DocKey, Document, Kind, Meta, Now, Seqno, VbUuid, Vbid};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub const NOW: Now = Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 };

/// The host of all tests; a thread of its own lets its time pass.
pub fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "calls are measured in real time")]
        let begun = std::time::Instant::now();
        let host = Host::new(move || begun.elapsed().as_nanos() as u64).unwrap();
        let ticking = host.clone();
        #[expect(clippy::disallowed_methods, reason = "deadlines are about real time")]
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(1));
                ticking.tick();
            }
        });
        host
    })
}

/// The views plugin, compiled once for all tests.
pub fn views() -> Plugin {
    static VIEWS: OnceLock<Plugin> = OnceLock::new();
    let load = || {
        let artefact = host().compile(&component()).unwrap();
        // SAFETY: the bytes were compiled by this host just now.
        unsafe { host().load("views", &artefact) }.unwrap()
    };
    VIEWS.get_or_init(load).clone()
}

fn component() -> Vec<u8> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    };
    let path = target.join("plugins/views.wasm");
    #[expect(clippy::disallowed_methods, reason = "the component is a file")]
    std::fs::read(&path)
        .unwrap_or_else(|_| panic!("{} is missing: run cargo xtask plugins first", path.display()))
}

/// A design document with one view called `v`.
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

    /// A batch of changes: a new body for a key, or its deletion.
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
            batch.documents.push((vbid, Arc::new(Document::new(meta, key.prefixed(), body))));
        }
        batch.progress = self.seqnos.iter().map(|(vbid, seqno)| (*vbid, point(*seqno))).collect();
        batch
    }
}

/// A resume point at the end of a snapshot.
pub fn point(seqno: u64) -> ResumePoint {
    let seqno = Seqno(seqno);
    ResumePoint { vb_uuid: VbUuid(7), seqno, snapshot_start: seqno, snapshot_end: seqno }
}

/// The answer to a query of view `v`, with its rows on lines.
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
    let response = reader.handle(&request, NOW).unwrap().whole().unwrap();
    let body = String::from_utf8(response.body).unwrap();
    if response.status == 200 { body } else { format!("{} {body}", response.status) }
}
