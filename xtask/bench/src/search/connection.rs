//! A persistent HTTP/1.1 connection, and the processor time of a server.

use nacre_conformance::http::{self, Answer};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A server to measure.
pub struct Server {
    /// `host:port`.
    pub address: String,
    /// The path of queries.
    pub path: String,
    /// Name and password.
    pub login: Option<(&'static str, &'static str)>,
    /// The process.
    pub id: u32,
}

/// A connection to a server.
pub struct Connection {
    stream: TcpStream,
    head: String,
    received: Vec<u8>,
}

impl Server {
    /// Connects for queries.
    ///
    /// # Errors
    /// Fails when the server does not listen.
    pub fn connect(&self) -> Result<Connection, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.address);
        let stream = TcpStream::connect(&self.address).map_err(failed)?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
            .map_err(failed)?;
        let login = self
            .login
            .map(|(user, password)| format!("Authorization: {}\r\n", http::basic(user, password)));
        let (address, path) = (&self.address, &self.path);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\n{}Content-Type: application/json\r\n",
            login.unwrap_or_default()
        );
        Ok(Connection { stream, head, received: Vec::new() })
    }

    /// Sends one request on a separate connection.
    ///
    /// # Errors
    /// Fails when the answer is not a success.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer, String> {
        let answer = http::request_within(
            PATIENCE,
            &self.address,
            method,
            path,
            self.login,
            "application/json",
            body,
        );
        let answer = answer.map_err(|error| format!("{method} {path}: {error}"))?;
        if answer.status == 200 {
            Ok(answer)
        } else {
            Err(format!("{method} {path}: {}", answer.text()))
        }
    }

    /// Returns the processor time used by its process.
    ///
    /// # Errors
    /// Fails when there is no such process.
    pub fn cpu(&self) -> Result<Duration, String> {
        let process = i32::try_from(self.id).map_err(|error| error.to_string())?;
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both functions write only into the variable whose address they get.
        let found = unsafe {
            libc::clock_getcpuclockid(process, &mut clock) == 0
                && libc::clock_gettime(clock, &mut time) == 0
        };
        if !found {
            return Err(format!("the processor time of process {process} cannot be read"));
        }
        Ok(Duration::new(
            time.tv_sec.unsigned_abs(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        ))
    }

    /// Waits until the process is almost idle, and returns the processor time used by then.
    ///
    /// # Errors
    /// Fails when it is still busy after two minutes.
    pub fn cpu_when_quiet(&self) -> Result<Duration, String> {
        let begun = Instant::now();
        let mut before = self.cpu()?;
        while begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(500));
            let now = self.cpu()?;
            // An idle node uses about 1 % of a processor.
            if now - before < Duration::from_millis(15) {
                return Ok(now);
            }
            before = now;
        }
        Err(format!("{} does not become idle", self.address))
    }
}

impl Connection {
    /// Sends a query and waits for the body of its answer.
    ///
    /// # Errors
    /// The errors of the socket, and unsuccessful answers.
    pub fn ask(&mut self, body: &[u8]) -> Result<&[u8], String> {
        let request = format!("{}Content-Length: {}\r\n\r\n", self.head, body.len());
        let answered = self
            .stream
            .write_all(&[request.as_bytes(), body].concat())
            .and_then(|()| self.receive());
        let (status, start, end) = answered.map_err(|error| format!("a query: {error}"))?;
        let answer = &self.received[start..end];
        if status == 200 { Ok(answer) } else { Err(String::from_utf8_lossy(answer).into_owned()) }
    }

    /// Reads an answer: returns its status, and the range of its body in the received bytes.
    fn receive(&mut self) -> io::Result<(u16, usize, usize)> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        self.received.clear();
        let start = loop {
            if let Some(at) = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err(broken("the head of an answer has no end"));
            }
            self.read()?;
        };
        let head = String::from_utf8_lossy(&self.received[..start]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| broken("an answer without a status"))?;
        let header =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if let Some(length) = header("content-length") {
            let length =
                length.trim().parse::<usize>().ok().filter(|length| *length <= ANSWER_BYTES_MAX);
            let end = start + length.ok_or_else(|| broken("the length of an answer"))?;
            while self.received.len() < end {
                self.read()?;
            }
            return Ok((status, start, end));
        }
        // The chunks are joined in place.
        let (mut at, mut end) = (start, start);
        loop {
            let line = loop {
                if let Some(length) =
                    self.received[at..].windows(2).position(|bytes| bytes == b"\r\n")
                {
                    break at + length;
                }
                self.read()?;
            };
            let size = std::str::from_utf8(&self.received[at..line]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.filter(|size| *size <= ANSWER_BYTES_MAX);
            let size = size.ok_or_else(|| broken("the size of a chunk"))?;
            while self.received.len() < line + 2 + size + 2 {
                self.read()?;
            }
            if size == 0 {
                return Ok((status, start, end));
            }
            self.received.copy_within(line + 2..line + 2 + size, end);
            end += size;
            at = line + 2 + size + 2;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut part = [0; 16 << 10];
        match self.stream.read(&mut part)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.received.extend_from_slice(&part[..count]);
                Ok(())
            }
        }
    }
}

/// Returns the bytes of the files in a folder and its subfolders.
///
/// # Errors
/// Fails when it cannot be read.
pub fn folder_bytes(folder: &Path) -> Result<u64, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Files are created and removed while a server merges.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { folder_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
