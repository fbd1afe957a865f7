//! A slow link between two places: a proxy that delivers bytes later, in both directions, and can be cut.

use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes per read.
const PORTION_BYTES: usize = 64 << 10;

/// A link to one port. Its threads end with their connections.
pub struct SlowLink {
    address: SocketAddr,
    traffic: Arc<Mutex<Traffic>>,
}

#[derive(Default)]
struct Traffic {
    is_cut: bool,
    connections: Vec<TcpStream>,
}

fn lock(traffic: &Mutex<Traffic>) -> MutexGuard<'_, Traffic> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SlowLink {
    /// Listens on a local port, and connects to `target` for each connection. Bytes arrive `delay` later, in order; the
    /// throughput is not limited. If the target does not answer, the client's connection is closed.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn open(target: String, delay: Duration) -> Result<SlowLink> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let of_link = Arc::clone(&traffic);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut traffic = lock(&of_link);
                if traffic.is_cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                        forward(from, to, delay);
                    }
                }
                traffic.connections.extend([client, server]);
            }
        });
        Ok(SlowLink { address, traffic })
    }

    /// Returns the address of the link.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts or restores the link. A cut ends all connections and refuses new ones.
    pub fn set_cut(&self, is_cut: bool) {
        let mut traffic = lock(&self.traffic);
        traffic.is_cut = is_cut;
        for connection in traffic.connections.drain(..) {
            // The other side may have closed it.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Forwards one direction of a connection, until it ends.
fn forward(mut from: TcpStream, to: TcpStream, delay: Duration) {
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
    let _ = to.shutdown(Shutdown::Write);
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
        let link = SlowLink::open(target, DELAY).unwrap();
        let mut client = TcpStream::connect(link.address()).unwrap();
        client.set_nodelay(true).unwrap();
        let begun = Instant::now();
        client.write_all(b"0123456789").unwrap();
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        let took = begun.elapsed();
        assert_eq!(&answer, b"0123456789");
        assert!(took >= 2 * DELAY && took < 20 * DELAY, "{took:?}");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut answer).unwrap(), 0, "an end is carried, too");
        echo.join().unwrap();
    }

    #[test]
    fn a_cut_ends_connections_and_refuses_others_until_it_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let link = SlowLink::open(target, Duration::ZERO).unwrap();
        let connect = || TcpStream::connect(link.address()).unwrap();
        let is_closed = |mut client: TcpStream| client.read(&mut [0]).unwrap_or(0) == 0;
        let (client, _server) = (connect(), listener.accept().unwrap());
        link.set_cut(true);
        assert!(is_closed(client));
        assert!(is_closed(connect()));
        link.set_cut(false);
        let (mut client, (mut server, _)) = (connect(), listener.accept().unwrap());
        client.write_all(b"1").unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"1");
    }
}
