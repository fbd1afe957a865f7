//! `cargo xtask bench idle`: the effect of idle and very slow connections on busy ones.

use super::load::{self, median};
use super::{Limit, PORT_BASE};
use nacre_conformance::kv::Request;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xtask_setup::node::{self, Node, PASSWORD, USER};

const RATIO: Limit = Limit { what: "p99 beside / alone", unit: "", max: 1.5 };
/// Connections of the client that sends a byte at a time, and its pause between bytes.
const SLOW_CONNECTIONS: usize = 20;
const SLOW_EVERY: Duration = Duration::from_millis(10);
/// Open files of a process in addition to its connections.
const FILES: u64 = 200;

/// Measures pairs with and without the other connections.
///
/// # Errors
/// Fails when the system does not allow so many files, or the limit is exceeded.
pub fn run(connections: usize, rounds: usize, seconds: f64) -> Result<(), String> {
    allow_files(connections as u64 + FILES)?;
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &[])?;
    load::create_bucket(&node, "ephemeral", 512)?;
    let (target, seconds) = (load::target(&node), seconds.to_string());
    let options = ["--connections", "16", "--depth", "1", "--seconds", &seconds];
    // Exclude the cost of the first requests.
    load::measure(&binary, &[], &target, &options)?;
    println!(
        "16 connections, alone and beside {connections} idle and {SLOW_CONNECTIONS} slow ones"
    );
    let (mut ratios, mut each) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let alone = load::measure(&binary, &[], &target, &options)?;
        let before = node::memory_bytes(node.id())?;
        let idle = (0..connections).map(|_| log_in(&node)).collect::<Result<Vec<_>, _>>()?;
        let grown = node::memory_bytes(node.id())?.saturating_sub(before);
        each.push(grown as f64 / connections as f64);
        let beside = with_slow_clients(&node, || load::measure(&binary, &[], &target, &options))?;
        drop(idle);
        println!(
            "  alone {:.0}/s p99 {:.0} us, beside {:.0}/s p99 {:.0} us",
            alone.ops, alone.p99, beside.ops, beside.p99
        );
        ratios.push(beside.p99 / alone.p99);
    }
    node.stop()?;
    // Later rounds reuse memory of earlier ones.
    println!("memory of an idle connection: {:.0} B", each[0]);
    RATIO.check(median(ratios))
}

/// Runs `work` while a client sends requests a byte at a time.
fn with_slow_clients<T>(
    node: &Node,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let mut slow =
        (0..SLOW_CONNECTIONS).map(|_| log_in(node)).collect::<Result<Vec<TcpStream>, _>>()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dribble = scope.spawn(|| {
            let request = Request { opcode: 0x0a, ..Request::default() }.encode(0);
            for byte in request.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                for stream in &mut slow {
                    stream.write_all(&[*byte]).map_err(|error| format!("slow client: {error}"))?;
                }
                std::thread::sleep(SLOW_EVERY);
            }
            Ok::<(), String>(())
        });
        let outcome = work();
        over.store(true, Ordering::Relaxed);
        let dribbled = dribble.join().unwrap_or_else(|_| Err("the slow client panicked".into()));
        outcome.and_then(|outcome| dribbled.map(|()| outcome))
    })
}

/// Returns an authenticated connection, because others are closed.
fn log_in(node: &Node) -> Result<TcpStream, String> {
    let exchange = || {
        let mut stream = TcpStream::connect(("127.0.0.1", node.kv_port()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let value = format!("\0{USER}\0{PASSWORD}").into_bytes();
        let request = Request { opcode: 0x21, key: b"PLAIN".to_vec(), value, ..Request::default() };
        stream.write_all(&request.encode(0))?;
        let mut header = [0; 24];
        stream.read_exact(&mut header)?;
        let body = nacre_conformance::kv::frame::body_bytes(&header)?;
        stream.read_exact(&mut vec![0; body])?;
        if header[6..8] == [0, 0] { Ok(stream) } else { Err(std::io::Error::other("refused")) }
    };
    exchange().map_err(|error| format!("cannot log in: {error}"))
}

/// Allows this process and its children to open `count` files.
fn allow_files(count: u64) -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives as long as each call, which accesses only that structure.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    if raised && limit.rlim_max >= count {
        return Ok(());
    }
    Err(format!("{count} open files are needed: raise the limit with `ulimit -Hn {count}`"))
}
