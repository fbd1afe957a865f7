//! Serves the sessions of an embedded database on a port of this machine: `serve-embedded FOLDER`.
//!
//! The cases of `conformance` reach the database through this program. It prints the port, and ends when its standard input ends.
#![expect(clippy::disallowed_methods, reason = "the example is an application: it opens a port")]

use nacre::{Db, Session};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Bytes that are read from a connection at once.
const PIECE_BYTES: usize = 64 << 10;

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
    println!("{}", listener.local_addr().expect("the port is bound").port());
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
