//! Clients that are slow, idle or greedy: they cost the node little, and others nothing.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use base64::Engine;
use nacre_conformance::kv::{Request, vbid};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// A request without parts.
fn bare(opcode: u8) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[..2].copy_from_slice(&[0x80, opcode]);
    bytes
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A node whose plugins are loaded: from here on its memory grows for its clients alone.
fn settled(directory: &Path) -> Server {
    let server = Server::start(directory);
    server.put_design("warm_up", r#"{"views": {"all": {"map": "function (doc) {}"}}}"#);
    server
}

#[test]
fn a_node_with_nothing_to_hold_takes_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = settled(directory.path()).own_memory_bytes();
    assert!(bytes < 32 << 20, "{bytes} bytes with an empty bucket and an empty view");
}

#[test]
fn idle_connections_cost_little_memory() {
    const COUNT: usize = 2000;
    let directory = tempfile::tempdir().unwrap();
    let server = settled(directory.path());
    let address = server.kv_address();
    let greet = |stream: &mut TcpStream| {
        stream.write_all(&bare(0x0a)).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
    };
    // The cost of the first clients is paid once.
    let mut first: Vec<TcpStream> = (0..50).map(|_| connect(&address)).collect();
    first.iter_mut().for_each(greet);
    let before = server.memory_bytes();
    let mut idle: Vec<TcpStream> = (0..COUNT).map(|_| connect(&address)).collect();
    idle.iter_mut().for_each(greet);
    let each = server.memory_bytes().saturating_sub(before) / COUNT as u64;
    assert!(each < 8 << 10, "{each} bytes for an idle connection");
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    const COUNT: usize = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let server = settled(directory.path());
    let burst = bare(0x0a).repeat(COUNT);
    let send = |stream: &mut TcpStream, sent: &mut usize| {
        while *sent < burst.len() {
            match stream.write(&burst[*sent..]) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let finish = |stream: &mut TcpStream, mut sent: usize| {
        let mut answers = 0;
        let mut buffer = vec![0; 1 << 20];
        while answers < COUNT * 24 {
            send(stream, &mut sent);
            match stream.read(&mut buffer) {
                Ok(0) => panic!("closed after {answers} bytes"),
                Ok(count) => answers += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(answers, COUNT * 24, "every request has its answer");
    };
    // The cost of reused buffers is paid once: by clients that read, one for each thread.
    let mut readers: Vec<TcpStream> = (0..2).map(|_| connect(&server.kv_address())).collect();
    for reader in &mut readers {
        reader.set_nonblocking(true).unwrap();
        finish(reader, 0);
    }

    let mut stream = connect(&server.kv_address());
    stream.set_nonblocking(true).unwrap();
    let before = server.memory_bytes();
    let mut sent = 0;
    // As much as the node and the sockets between take. The node serves others meanwhile, which shows that it has had
    // time.
    let mut stalled = 0;
    while stalled < 20 {
        let already = sent;
        send(&mut stream, &mut sent);
        stalled = if sent == already { stalled + 1 } else { 0 };
        assert!(server.client().get(b"missing").is_ok());
    }
    assert!(sent < burst.len(), "the node has taken all without giving an answer");
    let grown = server.memory_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for a client that does not read");

    finish(&mut stream, sent);
}

#[test]
fn frames_that_arrive_byte_by_byte_delay_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut slow: Vec<TcpStream> = (0..20).map(|_| connect(&server.kv_address())).collect();
    let mut client = server.client();
    for byte in bare(0x0a) {
        slow.iter_mut().for_each(|stream| stream.write_all(&[byte]).unwrap());
        assert!(client.set(b"k", b"1").unwrap().is_success());
    }
    for stream in &mut slow {
        let mut answer = [0; 24];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..2], [0x81, 0x0a]);
    }
}

#[test]
fn long_frames_that_come_in_pieces_are_put_together_between_short_ones() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    // No two parts of a text are the same, so that one in another's place is seen.
    let text = |bytes: usize| {
        let numbers: String = (0..).map(|n| format!("{n},")).take(bytes / 2 + 1).collect();
        format!("\"{}\"", &numbers[..bytes]).into_bytes()
    };
    let set = |key: &str, value: Vec<u8>| Request {
        opcode: 0x01,
        vbid: vbid(key.as_bytes(), 1024),
        key: key.into(),
        extras: vec![0; 8],
        value,
        ..Request::default()
    };
    let login = |opcode, key: &str, value: String| Request {
        opcode,
        key: key.into(),
        value: value.into(),
        ..Request::default()
    };
    let mut requests = vec![
        login(0x21, "PLAIN", format!("\0{USER}\0{PASSWORD}")),
        login(0x89, BUCKET, String::new()),
    ];
    let lengths = [60_000, 65_450, 65_512, 131_000, 3_000_000, 70_000, 200_000, 10];
    for (number, bytes) in lengths.into_iter().enumerate() {
        requests.push(set(&format!("k{number}"), text(bytes)));
        requests
            .extend(std::iter::repeat_n(Request { opcode: 0x0a, ..Request::default() }, number));
    }
    let frames = (0..).zip(&requests).map(|(opaque, request)| request.encode(opaque));
    let frames: Vec<u8> = frames.flatten().collect();
    for piece in [1 << 20, 100_003, 8191] {
        let mut stream = connect(&server.kv_address());
        let mut answers = vec![0; requests.len() * 24];
        std::thread::scope(|scope| {
            let mut stream = stream.try_clone().unwrap();
            let frames = &frames;
            scope.spawn(move || {
                frames.chunks(piece).for_each(|bytes| stream.write_all(bytes).unwrap());
            });
        });
        stream.read_exact(&mut answers).unwrap();
        for (number, answer) in answers.chunks(24).enumerate() {
            assert_eq!(answer[..8], [0x81, requests[number].opcode, 0, 0, 0, 0, 0, 0]);
            assert_eq!(answer[12..16], (number as u32).to_be_bytes());
        }
        // All of them at once, and between them others that are answered with a few bytes.
        let get = |number: usize| {
            let key = format!("k{number}").into_bytes();
            Request { opcode: 0x00, vbid: vbid(&key, 1024), key, ..Request::default() }
        };
        let asked: Vec<Request> = (0..lengths.len())
            .flat_map(|number| [get(number), Request { opcode: 0x0a, ..Request::default() }])
            .collect();
        let frames: Vec<u8> = asked.iter().flat_map(|request| request.encode(7)).collect();
        stream.write_all(&frames).unwrap();
        for bytes in lengths {
            let mut answer = vec![0; 24 + 4 + bytes + 2 + 24];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..2], [0x81, 0x00]);
            assert!(answer[28..].starts_with(&text(bytes)), "{bytes} bytes");
            assert_eq!(answer[28 + bytes + 2..][..2], [0x81, 0x0a], "behind {bytes} bytes");
        }
        let mut client = server.client();
        for (number, bytes) in lengths.into_iter().enumerate() {
            let key = format!("k{number}").into_bytes();
            assert_eq!(client.get(&key).unwrap().value, text(bytes), "{number}, pieces of {piece}");
            assert!(client.delete(&key, 0).unwrap().is_success());
        }
    }

    // A frame that is cut off is not written, and delays no other client.
    let whole = set("cut", text(1_000_000)).encode(0);
    let mut begun: Vec<TcpStream> = (0..3).map(|_| connect(&server.kv_address())).collect();
    for stream in &mut begun {
        for request in &requests[..2] {
            stream.write_all(&request.encode(0)).unwrap();
            stream.read_exact(&mut [0; 24]).unwrap();
        }
        stream.write_all(&whole[..700_000]).unwrap();
    }
    let mut client = server.client();
    assert!(client.set(b"other", b"1").unwrap().is_success());
    drop(begun);
    assert_eq!(client.get(b"cut").unwrap().status, 0x01);
    server.stop();
}

#[test]
fn a_login_out_of_order_is_refused_and_may_be_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = nacre_conformance::kv::KvClient::open(server.kv_address()).unwrap();
    let mut status = |opcode: u8, key: &[u8], value: &[u8]| {
        client.request(opcode, 0, key, b"", value, 0).unwrap().status
    };
    let first = b"n,,n=Administrator,r=abc";
    assert_eq!(
        status(0x22, b"SCRAM-SHA512", b"c=biws,r=abc,p="),
        0x20,
        "a proof without a beginning"
    );
    assert_eq!(status(0x21, b"SCRAM-SHA512", first), 0x21);
    assert_eq!(status(0x21, b"SCRAM-SHA512", first), 0x21, "a second beginning");
    assert_eq!(status(0x22, b"SCRAM-SHA512", b"c=biws,r=abc,p=AAAA"), 0x20);
    assert_eq!(status(0x22, b"SCRAM-SHA512", b"c=biws,r=abc,p=AAAA"), 0x20, "a second proof");
    assert_eq!(status(0x21, b"SCRAM-SHA9", first), 0x20, "an unknown mechanism");
    assert_eq!(status(0x21, b"PLAIN", &vec![0; 8 << 10]), 0x20);
    assert_eq!(status(0x89, b"default", b""), 0x24, "still nobody");
    let message = format!("\0{USER}\0{PASSWORD}");
    assert_eq!(status(0x21, b"PLAIN", message.as_bytes()), 0x00);
}

/// The status line that answers `request`, or nothing when the connection is closed without one.
fn http(server: &Server, request: &[u8]) -> String {
    let mut stream = connect(&format!("127.0.0.1:{}", server.port_base));
    // The node may answer and close before all is sent.
    let _ = stream.write_all(request);
    let mut answer = [0; 1024];
    let count = stream.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn oversized_http_requests_are_refused_and_cost_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let before = server.memory_bytes();
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let login = format!("Authorization: Basic {login}\r\n");
    let request = |headers: &str| {
        http(
            &server,
            format!("POST /pools/default HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes(),
        )
    };
    let long = format!("X: {}\r\n", "x".repeat(10 << 20));
    assert!(request(&long).contains(" 431 "), "a header of 10 MiB");
    assert!(request(&"X: y\r\n".repeat(10_000)).contains(" 431 "), "ten thousand headers");
    let huge = format!("Content-Length: {}\r\n", 10_u64 << 30);
    assert!(request(&huge).contains(" 401 "), "a body of a stranger is not read");
    assert!(request(&format!("{login}{huge}")).contains(" 413 "), "a body of 10 GiB");
    // Clients that send all of their body before they read can read the answer, too.
    let body = "x".repeat(33 << 20);
    let large = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let login_and_large = format!("{login}{large}");
    for (request, status) in [(&large, "401"), (&login_and_large, "413")] {
        let head = "POST /pools/default HTTP/1.1\r\nHost: x\r\n";
        let mut stream = connect(&format!("127.0.0.1:{}", server.port_base));
        stream.write_all(format!("{head}{request}").as_bytes()).expect("the node takes it all");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let smuggled = format!("{login}Content-Length: 5\r\nContent-Length: 6\r\n");
    assert!(request(&smuggled).contains(" 400 "), "a body of two lengths");
    assert!(http(&server, b"\x16\x03\x01 hello").contains(" 400 "), "TLS on a plain port");
    let grown = server.memory_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    assert_eq!(server.rest("GET", "/pools", "").unwrap().status, 200);
}
