//! A host that ticks, and the components that `cargo xtask plugins` has built.

use nacre_plugin_host::Host;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A host whose time passes.
pub fn host() -> Host {
    let begun = Instant::now();
    let host = Host::new(move || begun.elapsed().as_nanos() as u64).expect("the engine starts");
    let ticking = host.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(1));
            ticking.tick();
        }
    });
    host
}

/// The component called `name`.
pub fn component(name: &str) -> Vec<u8> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let path = target.join("plugins").join(name).with_extension("wasm");
    std::fs::read(&path)
        .unwrap_or_else(|_| panic!("{} is missing: run cargo xtask plugins first", path.display()))
}
