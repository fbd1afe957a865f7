//! The processes that share the documents, and requests between them.
//!
//! ```text
//! process 0 of 3: vBuckets 0, 3, 6, …     process 1: 1, 4, 7, …     process 2: 2, 5, 8, …
//! ```
//!
//! All processes have the same list of addresses. A request is HTTP/1.0, so that the end of the connection ends the answer; an
//! answer is lines of text, and its last line shows that it is complete.

use crate::error::{Error, Result};
use crate::rows::Patience;
use serde_json::Value as Json;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The beginning of the paths of requests between processes.
pub const PATHS: &str = "/analytics/process/";
/// The path of requests for rows.
pub const READ_PATH: &str = "/analytics/process/read";
/// The path of requests that replace the catalog.
pub const CATALOG_PATH: &str = "/analytics/process/catalog";
/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a process to take in more of a request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the reason in a refusal, in bytes.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;
/// Maximum size of a line, in bytes: a document of 20 MB in JSON with escapes.
const LINE_BYTES_MAX: u64 = 128 << 20;
/// Interval at which a waiting request checks whether it must end.
const TURN: Duration = Duration::from_millis(200);

/// The vBuckets that a process follows: those whose number has this remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The remainder.
    pub index: u16,
    /// The divisor, which is the number of parts.
    pub count: u16,
}

impl Part {
    /// All vBuckets.
    pub const ALL: Part = Part { index: 0, count: 1 };

    /// Returns true if the vBucket is in this part.
    pub fn has(self, vbid: u16) -> bool {
        vbid % self.count == self.index
    }
}

/// The processes that share the documents, and the position of this one.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Addresses, `host:port`; none for a single process.
    addresses: Vec<String>,
    own: usize,
}

impl Fleet {
    /// Returns the processes at these addresses, of which `own` is the position of this process.
    ///
    /// # Errors
    /// A message if there is no such position, or there are more addresses than vBuckets.
    pub fn new(addresses: Vec<String>, own: usize) -> std::result::Result<Fleet, String> {
        const VBUCKETS: usize = 1024;
        match addresses.len() {
            0 => Err("the list of processes is empty".to_owned()),
            count if own >= count => Err(format!("process {own} is not one of {count}")),
            count if count > VBUCKETS => Err(format!("at most {VBUCKETS} processes")),
            _ => Ok(Fleet { addresses, own }),
        }
    }

    /// Returns true if this process has all documents.
    pub fn is_alone(&self) -> bool {
        self.addresses.len() < 2
    }

    /// Returns the number of processes.
    pub fn count(&self) -> u16 {
        u16::try_from(self.addresses.len().max(1)).unwrap_or(u16::MAX)
    }

    /// Returns the part of this process.
    pub fn own_part(&self) -> Part {
        self.part(u16::try_from(self.own).unwrap_or(u16::MAX))
    }

    /// Returns the part of a process.
    pub fn part(&self, index: u16) -> Part {
        Part { index, count: self.count() }
    }

    /// Returns true if it is this process.
    pub fn is_own(&self, process: usize) -> bool {
        process == self.own
    }

    /// Returns the address of a process.
    pub fn address(&self, process: usize) -> &str {
        self.addresses.get(process).map_or("", String::as_str)
    }

    /// Returns the addresses of the other processes.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        let others = self.addresses.iter().enumerate().filter(|(at, _)| *at != self.own);
        others.map(|(_, address)| address.as_str())
    }

    /// Returns the two processes that a part is asked from: its own, then the following one.
    pub fn processes_of(&self, part: u16) -> [usize; 2] {
        let first = usize::from(part);
        [first, (first + 1) % usize::from(self.count())]
    }
}

/// The reason why a request to a process has no answer.
#[derive(Debug)]
pub enum Failure {
    /// The process does not answer, or ended in the middle of its answer: another can be asked.
    Lost(String),
    /// The request was refused, or must end.
    Refused(Error),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Lost(error.to_string())
    }
}

/// Sends a request to a process, and passes each line of the answer to `take`.
///
/// # Errors
/// The [`Failure`]. The end of the connection is not one: the caller knows the last line.
pub fn post(
    address: &str,
    path: &str,
    authorization: &str,
    body: &[u8],
    patience: &Patience,
    take: &mut dyn FnMut(&str) -> Result<()>,
) -> std::result::Result<(), Failure> {
    let resolved = address.to_socket_addrs()?.next();
    let resolved = resolved.ok_or_else(|| Failure::Lost("the address is unknown".to_owned()))?;
    let mut stream = TcpStream::connect_timeout(&resolved, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TURN))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let head = format!(
        "POST {path} HTTP/1.0\r\nhost: {address}\r\nauthorization: {authorization}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut lines = Lines { reader: BufReader::new(stream), patience };
    let status = lines.line()?.unwrap_or_default();
    let status = status.split(' ').nth(1).unwrap_or_default().to_owned();
    loop {
        let line = lines.line()?;
        let line = line.ok_or_else(|| Failure::Lost("the answer has no body".to_owned()))?;
        if line.trim_end().is_empty() {
            break;
        }
    }
    if status != "200" {
        return Err(refusal(&status, &lines.rest()?));
    }
    while let Some(line) = lines.line()? {
        take(&line).map_err(Failure::Refused)?;
    }
    Ok(())
}

/// Returns the failure of an answer with another status than 200.
fn refusal(status: &str, text: &str) -> Failure {
    let json: Json = serde_json::from_str(text).unwrap_or_default();
    let error = &json["errors"][0];
    let code = error["code"].as_u64().and_then(|code| u32::try_from(code).ok());
    match (code, error["msg"].as_str()) {
        (Some(code), Some(message)) => Failure::Refused(Error::new(code, message)),
        _ => Failure::Lost(format!("the answer has the status {status}")),
    }
}

/// Returns true if a read ended only because nothing has arrived for a [`TURN`].
fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The lines of an answer.
struct Lines<'a> {
    reader: BufReader<TcpStream>,
    patience: &'a Patience,
}

impl Lines<'_> {
    /// Returns the next line without its end; `None` after the last one.
    fn line(&mut self) -> std::result::Result<Option<String>, Failure> {
        let mut line = Vec::new();
        loop {
            let left = LINE_BYTES_MAX.saturating_sub(line.len() as u64);
            match self.reader.by_ref().take(left).read_until(b'\n', &mut line) {
                Ok(_) if line.last() == Some(&b'\n') => {
                    line.pop();
                    let text = String::from_utf8(line);
                    return text.map(Some).map_err(|error| Failure::Lost(error.to_string()));
                }
                Ok(_) if line.is_empty() => return Ok(None),
                Ok(_) if line.len() as u64 == LINE_BYTES_MAX => {
                    return Err(Failure::Lost("a line of the answer is too long".to_owned()));
                }
                Ok(_) => return Err(Failure::Lost("the answer ends in a line".to_owned())),
                // The part of the line that has arrived stays in `line`.
                Err(error) if is_pause(&error) => {
                    self.patience.check().map_err(Failure::Refused)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the rest of a refusal.
    fn rest(&mut self) -> std::result::Result<String, Failure> {
        let mut bytes = Vec::new();
        loop {
            let left = REFUSAL_BYTES_MAX.saturating_sub(bytes.len() as u64);
            match self.reader.by_ref().take(left).read_to_end(&mut bytes) {
                Ok(_) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) if is_pause(&error) => {
                    self.patience.check().map_err(Failure::Refused)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vbucket_is_in_one_part() {
        let addresses: Vec<String> = (0..3).map(|n| format!("127.0.0.1:{n}")).collect();
        let fleet = Fleet::new(addresses, 2).unwrap();
        for vbid in 0..1024 {
            let parts = (0..fleet.count()).filter(|index| fleet.part(*index).has(vbid));
            assert_eq!(parts.count(), 1, "{vbid}");
        }
        assert_eq!(fleet.own_part(), Part { index: 2, count: 3 });
        assert_eq!(fleet.processes_of(2), [2, 0]);
        assert_eq!(fleet.others().collect::<Vec<_>>(), ["127.0.0.1:0", "127.0.0.1:1"]);
        assert!(Fleet::default().is_alone() && Fleet::default().own_part() == Part::ALL);
        assert!(Fleet::new(vec!["a:1".to_owned()], 1).is_err());
        assert!(Fleet::new(Vec::new(), 0).is_err());
    }

    #[test]
    fn a_refusal_has_the_code_of_the_process() {
        let text = r#"{"errors":[{"code":20000,"msg":"Unauthorized user."}],"status":"fatal"}"#;
        match refusal("401", text) {
            Failure::Refused(error) => assert_eq!(error, Error::unauthorized()),
            Failure::Lost(reason) => panic!("{reason}"),
        }
        assert!(matches!(refusal("502", "<html>"), Failure::Lost(_)));
    }
}
