//! Serves the sessions of an embedded database on a port of this machine, and its views on another: `serve-embedded FOLDER`.
//!
//! The cases of `conformance` reach the database through this program. It prints both ports, and ends when its standard input ends.
#![expect(clippy::disallowed_methods, reason = "the example is an application: it opens ports")]

use nacre::{Db, Session};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Bytes that are read from a connection at once.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum bytes of the body of an HTTP request.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Everything that can happen on a connection.
enum Event {
    /// The client has sent bytes.
    Bytes(Vec<u8>),
    /// The session may have more responses.
    Wake,
    /// The client has closed the connection.
    End,
}

fn main() {
    let folder = std::env::args().nth(1).expect("the first argument is a folder");
    let db = Db::open(&folder).expect("the folder opens");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let views = TcpListener::bind("127.0.0.1:0").expect("a second port is free");
    let port = |of: &TcpListener| of.local_addr().expect("the port is bound").port();
    println!("{} {}", port(&listener), port(&views));
    let served = db.clone();
    thread::spawn(move || {
        for stream in views.incoming().map_while(Result::ok) {
            let db = served.clone();
            // A client that leaves early is no failure.
            thread::spawn(move || drop(respond(&db, &stream)));
        }
    });
    let served = db.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let db = served.clone();
            // A connection ends with its client or with the database, both of which are no failure.
            thread::spawn(move || drop(converse(&db, &stream)));
        }
    });
    let mut ignored = Vec::new();
    io::stdin().read_to_end(&mut ignored).expect("the standard input can be read");
    db.close().expect("the database closes");
}

/// Answers one HTTP request.
fn respond(db: &Db, mut stream: &TcpStream) -> Result<(), Box<dyn Error>> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut body: Vec<u8> = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(size) = header.strip_prefix("content-length:") {
            let size = size.trim().parse::<usize>()?;
            if size > BODY_BYTES_MAX {
                return Err("the body is too large".into());
            }
            body.resize(size, 0);
        }
    }
    reader.read_exact(&mut body)?;
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, text) = db.manage(method, target, &body)?;
    let size = text.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all((head + &text).as_bytes())?;
    Ok(())
}

/// Passes bytes between a client and a session until one of them ends.
fn converse(db: &Db, stream: &TcpStream) -> Result<(), Box<dyn Error>> {
    stream.set_nodelay(true)?;
    let (sender, events) = channel();
    let wakes = sender.clone();
    let mut session = db.session(move || drop(wakes.send(Event::Wake)))?;
    let incoming = stream.try_clone()?;
    thread::spawn(move || read(incoming, &sender));
    let outcome = answer(&mut session, &events, stream);
    // The reading thread ends, too.
    stream.shutdown(Shutdown::Both)?;
    outcome
}

fn read(mut stream: TcpStream, events: &Sender<Event>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if events.send(Event::Bytes(buffer[..count].to_vec())).is_err() {
            return;
        }
    }
    drop(events.send(Event::End));
}

fn answer(
    session: &mut Session,
    events: &Receiver<Event>,
    mut stream: &TcpStream,
) -> Result<(), Box<dyn Error>> {
    let mut out = Vec::new();
    for event in events {
        let outcome = match event {
            Event::Bytes(bytes) => session.receive(&bytes, &mut out),
            Event::Wake => session.poll(&mut out),
            Event::End => return Ok(()),
        };
        // The responses before the end of a session are sent, too.
        stream.write_all(&out)?;
        out.clear();
        outcome?;
    }
    Ok(())
}
