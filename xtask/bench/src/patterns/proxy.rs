//! A road between two places: connections whose bytes arrive later, in both directions.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const PORTION_BYTES: usize = 64 << 10;

/// Listens on a port of this machine, and connects to `target` for each connection. Whatever is sent arrives `delay` later, in the
/// order in which it was sent; the throughput is not limited. The threads end with their connections. Returns the address.
///
/// # Errors
/// When there is no port left.
pub fn start(target: String, delay: Duration) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot listen: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client whose target is gone sees its connection closed.
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let pairs = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
            for pair in pairs {
                if let (Ok(from), Ok(to)) = pair {
                    carry(from, to, delay);
                }
            }
        }
    });
    Ok(address)
}

/// Carries one direction of a connection, until it ends.
fn carry(mut from: TcpStream, to: TcpStream, delay: Duration) {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut portion = vec![0; PORTION_BYTES];
        while let Ok(count @ 1..) = from.read(&mut portion) {
            let due = Instant::now() + delay;
            if send.send((due, portion[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || deliver(&receive, to));
}

fn deliver(portions: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    let _ = to.set_nodelay(true);
    let mut waiting = VecDeque::new();
    while let Ok(portion) = portions.recv() {
        waiting.push_back(portion);
        while let Some((due, bytes)) = waiting.pop_front() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
            waiting.extend(portions.try_iter());
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_the_delay_twice_however_much_is_under_way() {
        const DELAY: Duration = Duration::from_millis(30);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        let mut client = TcpStream::connect(start(target, DELAY).unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let begun = Instant::now();
        client.write_all(b"0123456789").unwrap();
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        let took = begun.elapsed();
        assert_eq!(&answer, b"0123456789");
        assert!(took >= 2 * DELAY && took < 20 * DELAY, "{took:?}");
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut answer).unwrap(), 0, "an end is carried, too");
        echo.join().unwrap();
    }
}
