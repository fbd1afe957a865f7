//! The official DCP client for Java, which maintains a copy of a bucket: `conformance/sdk/java/Follow.java`.
//!
//! [`moves`] lets it follow a bucket during a rebalance and the loss of a node.
//!
//! The client makes the copy from the beginning, is killed on the way, and continues from its file; it follows changes and
//! deletions; and it rolls back with a bucket whose history has changed: the node is killed, its data saved, and restored
//! after further writes.

mod moves;

use super::limit::{self, End};
use super::report::{Outcome, Report, Test};
use super::{BUCKET, Prepared, copy_package, folder};
use nacre_conformance::kv::{KvClient, Request};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask_setup::command::workspace;
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

const LIBRARY: &str = "com.couchbase.client:dcp-client:0.56.0";
/// Time limit of one run of the client.
const LIMIT: Duration = Duration::from_secs(120);
/// Ports of the node that is killed, in addition to the one of all suites.
const PORT_BASE: u16 = 19_300;
const DOCUMENTS: u32 = 100_000;
/// Changes after which the client is first killed.
const KILLED_AT: u32 = 60_000;
/// Requests sent before answers are read.
const BURST: usize = 1000;

/// The documents of the bucket or the copy.
type Documents = BTreeMap<String, String>;

/// The client, and the server that it follows.
pub(super) struct Follower {
    archives: PathBuf,
    binary: PathBuf,
    port_base: u16,
}

/// Installs the client.
pub(super) fn prepare(binary: &Path) -> Result<Follower, String> {
    let archives = tools::java("dcp-client-0.56.0", &[LIBRARY])?;
    Ok(Follower { archives, binary: binary.into(), port_base: PORT_BASE })
}

/// Runs all parts; the error says which part failed.
pub(crate) fn check(binary: &Path) -> Result<(), String> {
    let failed = prepare(binary)?.play()?.into_iter().find_map(|test| match test.outcome {
        Outcome::Failed(said) => Some(format!("{}: {said}", test.name)),
        _ => None,
    });
    failed.map_or(Ok(()), Err)
}

impl Prepared for Follower {
    fn run(&self, _: &Node, nodes: usize) -> Result<Report, String> {
        Ok(Report {
            title: "Java DCP client, copy of a bucket".into(),
            version: "dcp-client 0.56.0".into(),
            command: "cargo xtask conformance --only java-dcp".into(),
            nodes,
            remarks: Vec::new(),
            is_ours: true,
            tests: self.play()?,
        })
    }
}

impl Follower {
    fn play(&self) -> Result<Vec<Test>, String> {
        let mut node = Node::start(&self.binary, Some(self.port_base), &[BUCKET], &[])?;
        let file = folder()?.join("follow.state");
        let _ = std::fs::remove_file(&file);
        let mut documents = Documents::new();
        let mut tests = Vec::new();
        let mut test = |name: &str, outcome: Result<(), String>| {
            let outcome = outcome.map_or_else(Outcome::Failed, |()| Outcome::Passed);
            tests.push(Test { name: name.into(), outcome });
        };

        write(&node, &mut documents, 0..DOCUMENTS, "first")?;
        let (end, _) = self.follow(&node, &file, &["die", &KILLED_AT.to_string()])?;
        let killed = matches!(end, End::Exited { success: false }) && file.exists();
        test("it is killed on its way", killed.then_some(()).ok_or("it was not".into()));
        test("it goes on where it was killed", self.catch_up(&node, &file, &documents, 0));

        write(&node, &mut documents, 0..DOCUMENTS / 10, "second")?;
        delete(&node, &mut documents, DOCUMENTS / 20..DOCUMENTS / 5)?;
        test("it follows changes and deletions", self.catch_up(&node, &file, &documents, 0));

        node.kill()?;
        let aside = node.data_dir().with_extension("aside");
        let _ = std::fs::remove_dir_all(&aside);
        copy_package(node.data_dir(), &aside)?;
        restart(&mut node)?;
        let before = documents.clone();
        write(&node, &mut documents, DOCUMENTS / 2..DOCUMENTS, "lost")?;
        test("it goes on after a crash", self.catch_up(&node, &file, &documents, 0));
        node.kill()?;
        let cannot = |error: std::io::Error| format!("cannot put data back: {error}");
        std::fs::remove_dir_all(node.data_dir()).map_err(cannot)?;
        std::fs::rename(&aside, node.data_dir()).map_err(cannot)?;
        documents = before;
        restart(&mut node)?;
        write(&node, &mut documents, DOCUMENTS..DOCUMENTS + DOCUMENTS / 10, "third")?;
        test("it rolls back with the bucket", self.catch_up(&node, &file, &documents, 1));
        node.stop()?;
        test("it follows a rebalance and a failover", moves::play(self));
        Ok(tests)
    }

    fn follow(&self, node: &Node, file: &Path, mode: &[&str]) -> Result<(End, String), String> {
        self.follow_at(&format!("127.0.0.1:{}=kv", node.kv_port()), file, mode)
    }

    /// Runs the client, which connects to the nodes at `hosts`.
    fn follow_at(&self, hosts: &str, file: &Path, mode: &[&str]) -> Result<(End, String), String> {
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(self.archives.join("*"))
            .arg(workspace().join("conformance/sdk/java/Follow.java"))
            .arg(format!("couchbase://{hosts}"))
            .args([USER, PASSWORD, BUCKET])
            .arg(file)
            .args(mode);
        limit::run(&mut command, LIMIT, &folder()?.join("follow.log"))
    }

    /// Follows until the copy is complete, and compares it. Allows no rollbacks if `rollbacks` is 0, and
    /// requires some otherwise.
    fn catch_up(
        &self,
        node: &Node,
        file: &Path,
        expected: &Documents,
        rollbacks: u32,
    ) -> Result<(), String> {
        let happened = compare(&self.follow(node, file, &["catch-up"])?, file, expected)?;
        if (happened == 0) != (rollbacks == 0) {
            return Err(format!("{happened} rollbacks"));
        }
        Ok(())
    }
}

/// Checks that the client ended successfully, received nothing twice, and has exactly what is `expected`; returns its number
/// of rollbacks.
fn compare((end, said): &(End, String), file: &Path, expected: &Documents) -> Result<u32, String> {
    if !matches!(end, End::Exited { success: true }) {
        return Err(said.lines().last().unwrap_or("it ended without a word").to_owned());
    }
    let count = |what: &str| -> Result<u32, String> {
        let count = said.lines().find_map(|line| line.strip_prefix(what)?.trim().parse().ok());
        count.ok_or_else(|| format!("it does not report the number of {what}"))
    };
    if count("repeated")? > 0 {
        return Err(format!("{} changes were repeated", count("repeated")?));
    }
    let text = std::fs::read_to_string(file).map_err(|error| format!("no copy: {error}"))?;
    let copy: Documents = text.lines().filter_map(document).collect();
    let differs = expected.iter().find(|(key, body)| copy.get(*key) != Some(body));
    match differs {
        Some((key, body)) => Err(format!("{key} is {:?}, not {body}", copy.get(key))),
        None if copy.len() != expected.len() => {
            Err(format!("{} documents, not {}", copy.len(), expected.len()))
        }
        None => count("rollbacks"),
    }
}

/// Parses a line `document vBucket key content`.
fn document(line: &str) -> Option<(String, String)> {
    let mut words = line.strip_prefix("document ")?.splitn(3, ' ').skip(1);
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

fn restart(node: &mut Node) -> Result<(), String> {
    node.respawn()?;
    node.wait_until_ready()
}

fn write(
    node: &Node,
    documents: &mut Documents,
    numbers: Range<u32>,
    what: &str,
) -> Result<(), String> {
    change(node, numbers, |key, number| {
        let body = format!("{{\"n\":{number},\"what\":\"{what}\"}}");
        documents.insert(key, body.clone());
        (0x01, body)
    })
}

fn delete(node: &Node, documents: &mut Documents, numbers: Range<u32>) -> Result<(), String> {
    change(node, numbers, |key, _| {
        documents.remove(&key);
        (0x04, String::new())
    })
}

/// Sends a request for each number: `make` returns its opcode and body.
fn change(
    node: &Node,
    numbers: Range<u32>,
    mut make: impl FnMut(String, u32) -> (u8, String),
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write documents: {error}");
    let address = ("127.0.0.1", node.kv_port());
    let mut client = KvClient::connect(address, USER, PASSWORD, BUCKET).map_err(failed)?;
    let numbers: Vec<u32> = numbers.collect();
    for burst in numbers.chunks(BURST) {
        for number in burst {
            let name = format!("key-{number}");
            let (vbid, key) = (client.vbid(name.as_bytes()), client.wire_key(0, name.as_bytes()));
            let (opcode, body) = make(name, *number);
            let extras = if body.is_empty() { Vec::new() } else { vec![0; 8] };
            let value = body.into_bytes();
            let request = Request { opcode, vbid, key, extras, value, ..Request::default() };
            client.send(&request).map_err(failed)?;
        }
        for _ in burst {
            let reply = client.receive().map_err(failed)?;
            if !reply.is_success() {
                return Err(format!("a write was refused with status 0x{:02x}", reply.status));
            }
        }
    }
    Ok(())
}
