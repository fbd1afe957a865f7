//! Input that no client should send: each gets its status or a closed connection, the node serves on, and no written
//! document is lost.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Header of a request: opcode, key length, extras length, body length.
fn header(opcode: u8, key: u16, extras: u8, body: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend(key.to_be_bytes());
    bytes.extend([extras, 0, 0, 0]);
    bytes.extend(body.to_be_bytes());
    bytes.extend([0; 12]);
    bytes
}

/// Returns true if the server closes a connection on which `bytes` arrive.
fn closes(address: &str, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may close while this side still writes.
    let _ = stream.write_all(bytes);
    let mut answer = [0; 64];
    matches!(stream.read(&mut answer), Ok(0) | Err(_))
}

#[test]
fn malformed_frames_close_only_their_connection() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    client.set(b"kept", b"{\"a\":1}").unwrap();
    let address = server.kv_address();
    assert!(closes(&address, b"GET / HTTP/1.1\r\n\r\n"), "an unknown magic");
    assert!(closes(&address, &[0x81; 24]), "an answer instead of a request");
    assert!(closes(&address, &header(0x00, 0, 0, u32::MAX)), "a body of 4 GiB");
    assert!(closes(&address, &header(0x00, 9, 4, 5)), "parts longer than the body");
    let mut too_large = header(0x01, 4, 8, 32_000_000);
    too_large.resize(32_000_024, b'x');
    assert!(closes(&address, &too_large), "a frame of 32 MB");
    assert!(client.get(b"kept").unwrap().is_success());
}

#[test]
fn invalid_requests_get_their_status() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    client.set(b"kept", b"{\"a\":1}").unwrap();
    let key = client.wire_key(0, b"k");
    let mut status = |opcode: u8, key: &[u8], extras: &[u8], value: &[u8]| {
        client.request(opcode, 0, key, extras, value, 0).unwrap().status
    };
    assert_eq!(status(0xf7, b"", b"", b""), 0x81, "an unknown opcode");
    assert_eq!(status(0x00, b"", b"", b""), 0x04, "no key");
    assert_eq!(status(0x00, &[&b"\0"[..], &[b'k'; 251]].concat(), b"", b""), 0x04, "a long key");
    assert_eq!(status(0x00, &[0xff; 6], b"", b""), 0x04, "a collection that is no number");
    assert_eq!(status(0x01, &key, b"short", b""), 0x04, "extras of the wrong length");
    assert_eq!(
        status(0x01, &key, &[0; 8], &vec![b'x'; 20 * 1024 * 1024 + 1]),
        0x03,
        "a value over 20 MiB"
    );
    assert_eq!(status(0x01, &key, &[0; 8], &vec![b'x'; 30_000_000]), 0x03, "a frame of 30 MB");
    assert_eq!(status(0xd0, &key, b"", b"\xc5\0\xff\xffa"), 0x04, "a path longer than the request");
    assert_eq!(status(0xd1, &key, b"", b""), 0xcb, "no operation");
    assert_eq!(status(0x91, b"", b"", b"x"), 0x04, "a UUID of one byte");
    assert_eq!(
        client.request(0x00, 5000, &key, b"", b"", 0).unwrap().status,
        0x07,
        "a vBucket that is not there"
    );
    assert!(client.get(b"kept").unwrap().is_success());
}

#[test]
fn rest_names_the_fault_of_a_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let buckets = "/pools/default/buckets";
    let ask = |method: &str, path: &str, form: &str| {
        let answer = server.rest(method, path, form).unwrap();
        (answer.status, answer.text())
    };
    let (status, text) = ask("POST", buckets, "name=default&ramQuotaMB=100");
    assert_eq!(
        (status, text.contains("Bucket with given name already exists")),
        (400, true),
        "{text}"
    );
    let (status, text) = ask("POST", buckets, "name=a%20b&ramQuotaMB=100");
    assert_eq!((status, text.contains("can only contain")), (400, true), "{text}");
    let (status, text) = ask("POST", buckets, "name=b&ramQuotaMB=lots");
    assert_eq!((status, text.contains("integer")), (400, true), "{text}");
    let (status, text) = ask("POST", "/pools/default/buckets/default/controller/doFlush", "");
    assert_eq!((status, text.contains("Flush is disabled")), (400, true), "{text}");
    assert_eq!(ask("GET", "/pools/default/buckets/nobody", "").0, 404);
    assert_eq!(ask("DELETE", "/pools/default/buckets/default/scopes/nobody", "").0, 404);

    let address = format!("127.0.0.1:{}", server.port_base);
    let stranger =
        nacre_conformance::http::request(&address, "GET", "/pools/default", None, "", b"").unwrap();
    assert_eq!(stranger.status, 401);
    let wrong = nacre_conformance::http::request(
        &address,
        "GET",
        "/pools/default",
        Some((USER, "guess")),
        "",
        b"",
    )
    .unwrap();
    assert_eq!(wrong.status, 401);
    assert!(
        nacre_conformance::kv::KvClient::connect(server.kv_address(), USER, "guess", BUCKET)
            .is_err()
    );
    assert!(
        nacre_conformance::kv::KvClient::connect(server.kv_address(), USER, PASSWORD, "nobody")
            .is_err()
    );
}
