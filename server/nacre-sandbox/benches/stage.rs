//! A ticking host, and the components that `cargo xtask plugins` has built.

use nacre_dcp::{Batch, Previous, ResumePoint};
use nacre_sandbox::Host;
use nacre_types::{Cas, CollectionId, DocKey, Document, Kind, Meta, Seqno, Vbid};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Returns a host with a running clock.
pub fn host() -> Host {
    let begun = Instant::now();
    let host = Host::new(move || begun.elapsed().as_nanos() as u64, drop, || {})
        .expect("the engine starts");
    let ticking = host.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(1));
            if !ticking.tick() {
                ticking.await_call();
            }
        }
    });
    host
}

/// Returns the component `name`.
pub fn component(name: &str) -> Vec<u8> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from("../../target"), PathBuf::from);
    let path = target.join("plugins").join(name).with_extension("wasm");
    std::fs::read(&path)
        .unwrap_or_else(|_| panic!("{} is missing: run cargo xtask plugins first", path.display()))
}

/// Returns the first version of a JSON document in the collection that all benchmarks use.
#[allow(dead_code, reason = "each benchmark has its own copy of this module")]
pub fn document(name: &str, body: &str) -> Document {
    let meta = Meta {
        seqno: Seqno(1),
        cas: Cas(1 << 16),
        rev: 1,
        datatype: 1,
        kind: Kind::Alive,
        ..Meta::default()
    };
    let key = DocKey::new(CollectionId(8), name.as_bytes());
    Document::new(meta, key.prefixed(), body.as_bytes())
}

/// Returns a batch of documents that does not advance the plugin's progress.
#[allow(dead_code, reason = "each benchmark has its own copy of this module")]
pub fn batch(documents: impl Iterator<Item = (Vbid, Document)>) -> Batch {
    Batch {
        documents: documents.collect(),
        progress: [(Vbid(0), ResumePoint::default())].into(),
        previous: Previous::new(),
    }
}
