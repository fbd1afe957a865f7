//! Devices in step with a node: databases in this process and in another one, over WebSockets to a real node.

use crate::process::{BUCKET, PASSWORD, Server, USER, port_base, until};
use nacre::{Db, SyncEvent, SyncHandle, SyncOptions, SyncState, Verdict, Write};
use nacre_client::{Bucket, Key, Login, StoreOptions};
use nacre_conformance::http::request;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// Tells this program that it is a device, in the folder that it names.
const DEVICE: &str = "NACRE_TEST_DEVICE";
const ORDERS: &str = "shop.orders";

fn options(server: &Server, user: &str, password: &str) -> SyncOptions {
    let url = format!("http://127.0.0.1:{}/{BUCKET}", server.port_base);
    SyncOptions::new(url).login(user, password).collections([ORDERS])
}

fn sync(db: &Db, server: &Server) -> SyncHandle {
    db.sync(options(server, USER, PASSWORD)).unwrap()
}

fn wait(sync: &SyncHandle) {
    sync.wait_in_step(PATIENCE).unwrap_or_else(|error| panic!("{error}: {:?}", sync.status()));
}

fn make_collections(server: &Server, names: &[&str]) {
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    assert_eq!(server.rest("POST", &scopes, "name=shop").unwrap().status, 200);
    for name in names {
        let form = format!("name={name}");
        let made = server.rest("POST", &format!("{scopes}/shop/collections"), &form);
        assert_eq!(made.unwrap().status, 200);
    }
}

fn open(server: &Server) -> Bucket {
    let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: BUCKET.into() };
    Bucket::connect(&[server.kv_address()], None, login).unwrap()
}

fn at_hub(bucket: &mut Bucket, name: &str) -> Option<(Vec<u8>, u64)> {
    let collection = bucket.collection_id(ORDERS).unwrap();
    let found = bucket.get(Key { collection, name: name.as_bytes() }).unwrap()?;
    Some((found.value, found.cas))
}

fn put(bucket: &mut Bucket, name: &str, value: &str) {
    let collection = bucket.collection_id(ORDERS).unwrap();
    let key = Key { collection, name: name.as_bytes() };
    bucket.set(key, value.as_bytes(), StoreOptions::default()).unwrap();
}

fn at_device(db: &Db, name: &str) -> Option<(Vec<u8>, u64)> {
    let found = db.collection(ORDERS).unwrap().get(name).unwrap()?;
    Some((found.body().to_vec(), found.cas().0))
}

fn write(db: &Db, name: &str, value: &str) {
    db.collection(ORDERS).unwrap().upsert(name, value.as_bytes(), Write::new()).unwrap();
}

/// A device in a process of its own, which takes orders line by line.
struct Device {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

impl Device {
    fn start(folder: &Path) -> Device {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sync::a_device_in_another_process", "--nocapture"]);
        command.env(DEVICE, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Device { process, orders, answers }
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.answers.read_line(&mut line).unwrap() > 0,
                "the device has ended: {order}"
            );
            if let Some((_, answer)) = line.split_once("> ") {
                return answer.trim().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does nothing unless this process was started as a [`Device`].
#[test]
fn a_device_in_another_process() {
    let Some(folder) = std::env::var_os(DEVICE) else { return };
    let db = Db::open(folder).unwrap();
    let mut sync = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            ["put", name, value] => {
                write(&db, name, value);
                println!("\n> done");
            }
            ["flush"] => {
                db.flush().unwrap();
                println!("\n> done");
            }
            ["get", name] => {
                let found = at_device(&db, name);
                println!(
                    "\n> {}",
                    found.map_or("-".into(), |(value, _)| String::from_utf8(value).unwrap())
                );
            }
            ["sync", port] => {
                let options = SyncOptions::new(format!("http://127.0.0.1:{port}/{BUCKET}"));
                sync = Some(db.sync(options.login(USER, PASSWORD).collections([ORDERS])).unwrap());
                println!("\n> done");
            }
            ["wait"] => {
                let sync: &SyncHandle = sync.as_ref().unwrap();
                println!("\n> {:?}", sync.wait_in_step(PATIENCE));
            }
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn edits_made_offline_on_two_devices_and_at_the_node_converge_despite_kills() {
    let (data, here, there) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let port_base = port_base();
    let server = Server::start_at(data.path(), port_base);
    make_collections(&server, &["orders"]);
    put(&mut open(&server), "shared", r#"{"by":"hub"}"#);
    let db = Db::open(here.path()).unwrap();
    let mut device = Device::start(there.path());
    let handle = sync(&db, &server);
    device.order(&format!("sync {port_base}"));
    wait(&handle);
    assert_eq!(device.order("wait"), "Ok(())");
    assert_eq!(at_device(&db, "shared"), at_hub(&mut open(&server), "shared"));
    // Everybody is offline: the node is gone.
    let mut hub = open(&server);
    put(&mut hub, "of-hub", r#"{"n":1}"#);
    wait(&handle);
    server.kill();
    for n in 0..100 {
        write(&db, &format!("here-{n}"), &format!(r#"{{"n":{n}}}"#));
        device.order(&format!(r#"put there-{n} {{"n":{n}}}"#));
    }
    write(&db, "shared", r#"{"by":"here"}"#);
    device.order(r#"put shared {"by":"there"}"#);
    device.order("flush");
    device.kill();
    let mut device = Device::start(there.path());
    let mut server = Server::start_at(data.path(), port_base);
    server.wait_for("the bucket", |server| {
        let found = server.rest("GET", &format!("/pools/default/buckets/{BUCKET}"), "").ok()?;
        (found.status == 200).then_some(())
    });
    handle.retry_now();
    device.order(&format!("sync {port_base}"));
    // In the middle of it.
    until(|| (handle.status().pushed > 10).then_some(()));
    device.kill();
    let mut device = Device::start(there.path());
    device.order(&format!("sync {port_base}"));
    for _ in 0..2 {
        wait(&handle);
        assert_eq!(device.order("wait"), "Ok(())");
    }
    wait(&handle);
    let mut hub = open(&server);
    for n in 0..100 {
        for name in [format!("here-{n}"), format!("there-{n}")] {
            let expected = format!(r#"{{"n":{n}}}"#);
            let (value, cas) = at_hub(&mut hub, &name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(value, expected.as_bytes(), "{name}");
            assert_eq!(at_device(&db, &name), Some((value, cas)), "{name}");
            assert_eq!(device.order(&format!("get {name}")), expected);
        }
    }
    let (value, cas) = at_hub(&mut hub, "shared").unwrap();
    assert_eq!(at_device(&db, "shared"), Some((value.clone(), cas)));
    let value = String::from_utf8(value).unwrap();
    assert_eq!(device.order("get shared"), value);
    assert!([r#"{"by":"here"}"#, r#"{"by":"there"}"#].contains(&value.as_str()), "{value}");
    let (of_hub, _) = at_hub(&mut hub, "of-hub").expect("the device has what the node lost");
    assert_eq!(of_hub, br#"{"n":1}"#);
}

#[test]
fn the_loser_of_a_conflict_is_parked_or_joined() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    make_collections(&server, &["orders"]);
    let mut hub = open(&server);
    put(&mut hub, "o", r#"{"n":0}"#);
    let (first, second) = (Db::open(":memory:").unwrap(), Db::open(":memory:").unwrap());
    wait(&sync(&first, &server));
    wait(&sync(&second, &server));
    write(&first, "o", r#"{"n":1}"#);
    put(&mut hub, "o", r#"{"n":2}"#);
    write(&second, "o", r#"{"n":4}"#);
    let handle = sync(&first, &server);
    wait(&handle);
    let conflict = std::iter::from_fn(|| handle.next_event(Duration::ZERO))
        .any(|event| matches!(event, SyncEvent::Conflict { .. }));
    assert!(conflict && handle.status().conflicts == 1, "{:?}", handle.status());
    assert_eq!(at_device(&first, "o"), at_hub(&mut hub, "o"));
    let parked = first.parked().unwrap();
    let parked: serde_json::Value = serde_json::from_slice(&parked[0]).unwrap();
    assert_eq!((&parked["reason"], &parked["key"]), (&"conflict".into(), &"o".into()));
    let (kept, _) = at_hub(&mut hub, "o").unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["n"].as_u64().unwrap() + parked["body"]["n"].as_u64().unwrap(), 3);
    let sum = |body: &[u8]| {
        let json: serde_json::Value = serde_json::from_slice(body).unwrap();
        json["n"].as_u64().unwrap()
    };
    let joins = options(&server, USER, PASSWORD).resolver(move |conflict| {
        let n = sum(&conflict.device.body) + sum(&conflict.hub.body);
        Verdict::Merged(format!(r#"{{"n":{n}}}"#).into_bytes())
    });
    let handle = second.sync(joins).unwrap();
    wait(&handle);
    assert_eq!(sum(&at_hub(&mut hub, "o").unwrap().0), 4 + kept["n"].as_u64().unwrap());
    assert_eq!(at_device(&second, "o"), at_hub(&mut hub, "o"));
    assert!(second.parked().unwrap().is_empty());
}

#[test]
fn deletions_go_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    make_collections(&server, &["orders"]);
    let mut hub = open(&server);
    put(&mut hub, "a", "1");
    put(&mut hub, "b", "1");
    let db = Db::open(":memory:").unwrap();
    wait(&sync(&db, &server));
    db.collection(ORDERS).unwrap().remove("a", Write::new()).unwrap();
    let collection = hub.collection_id(ORDERS).unwrap();
    hub.delete(Key { collection, name: b"b" }, StoreOptions::default()).unwrap();
    wait(&sync(&db, &server));
    for name in ["a", "b"] {
        assert_eq!((at_device(&db, name), at_hub(&mut hub, name)), (None, None), "{name}");
    }
}

fn put_user(server: &Server, name: &str, roles: &str) {
    let form = format!("password=secret&roles={roles}");
    let made = server.rest("PUT", &format!("/settings/rbac/users/local/{name}"), &form).unwrap();
    assert_eq!(made.status, 200, "{}", made.text());
}

#[test]
fn a_user_gets_readable_changes_as_long_as_the_right_lasts() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    make_collections(&server, &["orders", "prices"]);
    let mut hub = open(&server);
    put(&mut hub, "o", "1");
    let prices = hub.collection_id("shop.prices").unwrap();
    let key = Key { collection: prices, name: b"p" };
    hub.set(key, b"7", StoreOptions::default()).unwrap();
    put_user(&server, "ann", "data_sync[default:shop:orders]");
    let db = Db::open(":memory:").unwrap();
    let both = options(&server, "ann", "secret").collections([ORDERS, "shop.prices"]);
    let handle = db.sync(both).unwrap();
    wait(&handle);
    assert_eq!(at_device(&db, "o").unwrap().0, b"1");
    assert_eq!(db.collection("shop.prices").unwrap().get("p").unwrap(), None);
    let events: Vec<_> = std::iter::from_fn(|| handle.next_event(Duration::ZERO)).collect();
    assert!(events.contains(&SyncEvent::NoCollection("shop.prices".into())), "{events:?}");
    // The right to write goes away: what is written is parked, and what is read goes on.
    put_user(&server, "ann", "data_dcp_reader[default:shop:orders]");
    write(&db, "mine", "2");
    put(&mut hub, "o2", "3");
    until(|| (handle.status().parked > 0 && at_device(&db, "o2").is_some()).then_some(()));
    assert_eq!(at_hub(&mut hub, "mine"), None);
    // All rights go away: so does the stream.
    put_user(&server, "ann", "data_reader[default:shop:prices]");
    let stopped = until(|| match handle.status().state {
        SyncState::Stopped(reason) => Some(reason),
        _ => None,
    });
    assert!(stopped.contains("access denied"), "{stopped}");
    put(&mut hub, "o3", "4");
    assert_eq!(at_device(&db, "o3"), None);
    assert_eq!(at_device(&db, "o").unwrap().0, b"1", "what is on the device stays");
}

#[test]
fn strangers_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let other = "name=other&ramQuotaMB=100&replicaNumber=0";
    assert_eq!(server.rest("POST", "/pools/default/buckets", other).unwrap().status, 202);
    put_user(&server, "bob", "data_sync[other]");
    let address = format!("127.0.0.1:{}", server.port_base);
    let path = format!("/_sync/{BUCKET}");
    let status = |login| request(&address, "GET", &path, login, "text/plain", b"").unwrap().status;
    assert_eq!(status(None), 401);
    assert_eq!(status(Some((USER, "wrong"))), 401);
    assert_eq!(status(Some(("bob", "secret"))), 403);
    assert_eq!(status(Some((USER, PASSWORD))), 426, "no WebSocket");
    let db = Db::open(":memory:").unwrap();
    for (user, password, reason) in
        [(USER, "wrong", "password is wrong"), ("bob", "secret", "no right")]
    {
        let handle = db.sync(options(&server, user, password)).unwrap();
        let stopped = until(|| match handle.status().state {
            SyncState::Stopped(reason) => Some(reason),
            _ => None,
        });
        assert!(stopped.contains(reason), "{stopped}");
    }
    assert!(matches!(
        db.sync(SyncOptions::new("http://127.0.0.1:1/b")),
        Err(nacre::Error::InvalidArgument(_))
    ));
}

/// What a client sends after the handshake, and what becomes of the connection.
#[test]
fn a_malformed_session_ends_only_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let login = "QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
    for (mask_and_bytes, what) in [
        // A text, a frame that is not masked, a message that is too long, and bytes that are no frames.
        (vec![0x81, 0x81, 0, 0, 0, 0, b'x'], "text"),
        (vec![0x82, 0x01, b'x'], "not masked"),
        ([&[0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0][..], &[0; 4]].concat(), "too long"),
        ([&[0x82, 0x98, 0, 0, 0, 0][..], &[0xff; 24]].concat(), "no frame"),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port_base)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET /_sync/{BUCKET} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {login}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: nacre-sync-1\r\n\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        stream.write_all(&mask_and_bytes).unwrap();
        let mut rest = Vec::new();
        // Closed or reset: over in any case.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.windows(11).any(|part| part == b"\"bucketUuid"), "{what}");
    }
    assert_eq!(server.rest("GET", "/pools/default", "").unwrap().status, 200);
}
