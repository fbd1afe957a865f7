//! `cargo xtask bench dcp`: a consumer that streams a whole bucket, compared with a plain copy of as many bytes
//! over a socket.

use super::PORT_BASE;
use super::load::{self, BUCKET, median};
use nacre_conformance::kv::KvClient;
use nacre_conformance::kv::dcp::{Consumer, Event, PRODUCER, Range};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;
use xtask_setup::node::{self, Node, PASSWORD, USER};

const QUOTA_MB: u32 = 2048;
/// Bytes per read and write of the plain copy.
const COPY_BYTES: usize = 64 << 10;

/// Fills a bucket, then streams it and copies in turns.
///
/// # Errors
/// Fails when documents are missing.
pub fn run(documents: u32, rounds: usize) -> Result<(), String> {
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &[])?;
    load::create_bucket(&node, "couchbase", QUOTA_MB)?;
    let keys = documents.to_string();
    let fill = ["--keys", &keys, "--value-bytes", "1024", "--seconds", "0"];
    load::measure(&binary, &[], &load::target(&node), &fill)?;
    println!("{documents} documents of 1 KB over all vBuckets, one connection");
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let begun = Instant::now();
        let bytes = consume(&node, &format!("bench-{round}"), documents)
            .map_err(|error| format!("the consumer: {error}"))?;
        let taken = bytes as f64 / begun.elapsed().as_secs_f64() / 1e6;
        let begun = Instant::now();
        copy(bytes).map_err(|error| format!("the copy: {error}"))?;
        let copied = bytes as f64 / begun.elapsed().as_secs_f64() / 1e6;
        println!("  {taken:.0} MB/s of history, {copied:.0} MB/s copied");
        ratios.push(taken / copied);
    }
    println!("history / copy: {:.2}", median(ratios));
    node.stop()
}

/// Streams every vBucket until all documents have arrived; returns their bytes.
fn consume(node: &Node, name: &str, documents: u32) -> std::io::Result<usize> {
    let address = format!("127.0.0.1:{}", node.kv_port());
    let client = KvClient::connect(address, USER, PASSWORD, BUCKET)?;
    let vbuckets = client.vbucket_count();
    let mut consumer = Consumer::open(client, name, PRODUCER)?;
    for vbid in 0..vbuckets {
        if !consumer.stream(vbid, Range::ALL, "")?.is_success() {
            return Err(std::io::Error::other(format!("vBucket {vbid} is refused")));
        }
    }
    let (mut taken, mut bytes) = (0, 0);
    while taken < documents {
        let (_, event, length) = consumer.next_event()?;
        bytes += length;
        taken += u32::from(matches!(event, Event::Mutation { .. }));
    }
    Ok(bytes)
}

/// Sends `bytes` bytes over a local socket, and reads them.
fn copy(bytes: usize) -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut reader = TcpStream::connect(listener.local_addr()?)?;
    let (mut writer, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let written = scope.spawn(move || -> std::io::Result<()> {
            let block = vec![7; COPY_BYTES];
            let mut left = bytes;
            while left > 0 {
                let count = left.min(COPY_BYTES);
                writer.write_all(&block[..count])?;
                left -= count;
            }
            Ok(())
        });
        let mut block = vec![0; COPY_BYTES];
        let mut left = bytes;
        while left > 0 {
            left -= reader.read(&mut block)?.min(left);
        }
        written.join().map_err(|_| std::io::Error::other("the writer has panicked"))?
    })
}
