//! A plugin under write load that is upgraded, paused and rebuilt, and whose node is killed, again and again: its state
//! always reflects all documents, each once.
//!
//! `NACRE_ONCE_CYCLES` makes it longer.

use crate::plugins::{CONFIG, ask, deploy, status, sum, upload};
use crate::process::{Server, from_env};
use nacre_conformance::kv::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CYCLES: u64 = 8;
const KEYS: u32 = 400;
/// Range of the time with load before and after each disturbance, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 20..120;

const OP_DELETE: u8 = 0x04;

fn name(key: u32) -> Vec<u8> {
    format!("once_{key}").into_bytes()
}

/// Writes and deletes at random until stopped, or until the node is gone. Some documents fail in the plugin.
fn load(client: &mut KvClient, random: &mut StdRng, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let name = name(random.random_range(0..KEYS));
        let outcome = match random.random_range(0..20) {
            0..3 => {
                let (vbid, key) = (client.vbid(&name), client.wire_key(0, &name));
                client.request(OP_DELETE, vbid, &key, b"", b"", 0)
            }
            3 => client.set(&name, b"{\"fails\":true}"),
            _ => {
                let n = random.random_range(1..100);
                client.set(&name, format!("{{\"n\":{n}}}").as_bytes())
            }
        };
        if outcome.is_err() {
            return;
        }
    }
}

/// The numbers of documents, as their owners read them.
fn expected(server: &Server) -> Value {
    let mut client = server.client();
    let has_number = |key: &u32| {
        let reply = client.get(&name(*key)).unwrap();
        reply.is_success() && reply.value.starts_with(b"{\"n\"")
    };
    match (0..KEYS).filter(has_number).count() {
        0 => Value::Null,
        count => json!(count),
    }
}

/// Disturbs a node once. Returns the node that runs afterwards.
fn disturb(
    server: Server,
    directory: &Path,
    cycle: u64,
    version: &mut u64,
    config: &str,
) -> Server {
    match cycle % 4 {
        0 => {
            server.kill();
            let mut server = Server::start(directory);
            server.wait_for("the deployment", |server| {
                (status(server)["state"] == "running").then_some(())
            });
            return server;
        }
        1 => {
            // The next version goes on with the state.
            *version += 1;
            let state = format!("state_version = \"{}\"", *version / 2);
            let (code, answer) = upload(&server, &version.to_string(), &state);
            assert_eq!(code, 201, "{answer}");
            assert_eq!(deploy(&server, &version.to_string(), config).0, 200);
        }
        2 => {
            assert_eq!(ask(&server, "POST", "/deployments/sums/pause", "", b"").0, 200);
            assert_eq!(ask(&server, "POST", "/deployments/sums/resume", "", b"").0, 200);
        }
        _ => {
            assert_eq!(ask(&server, "POST", "/deployments/sums/replay", "", b"").0, 200);
        }
    }
    server
}

#[test]
fn a_plugin_processes_every_document_once_despite_faults() {
    let cycles = from_env("NACRE_ONCE_CYCLES", CYCLES);
    // A document with `fails` kills nothing, but has no row.
    let config = CONFIG.replace("emit(doc.n, 1)", "if (doc.fails) throw 'no'; emit(doc.n, 1)");
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let mut version = 1;
    assert_eq!(upload(&server, "1", "state_version = \"0\"").0, 201);
    assert_eq!(deploy(&server, "1", &config).0, 200);
    let mut random = StdRng::seed_from_u64(7);
    for cycle in 0..cycles {
        let stop = AtomicBool::new(false);
        let mut pauses = StdRng::seed_from_u64(random.random());
        let mut writer = StdRng::seed_from_u64(random.random());
        let mut client = server.client();
        server = std::thread::scope(|scope| {
            scope.spawn(|| load(&mut client, &mut writer, &stop));
            let mut pause = || {
                std::thread::sleep(Duration::from_millis(pauses.random_range(LOAD_MS)));
            };
            pause();
            let server = disturb(server, directory.path(), cycle, &mut version, &config);
            pause();
            stop.store(true, Ordering::Relaxed);
            server
        });
        assert_eq!(sum(&server), expected(&server), "after cycle {cycle}");
    }
    println!("{cycles} times disturbed, {version} versions, no document twice and none left out");
}
