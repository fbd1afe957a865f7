//! A persistent connection to the query service, as SDKs have: sends a statement and receives its answer.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Maximum length of a header line, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// An authenticated connection.
pub struct QueryClient {
    stream: BufReader<TcpStream>,
    head: String,
    output: Vec<u8>,
    body: Vec<u8>,
}

impl QueryClient {
    /// Connects to `address`.
    ///
    /// # Errors
    /// Fails if the connection cannot be established.
    pub fn connect(address: &str, user: &str, password: &str) -> Result<QueryClient, String> {
        let stream = TcpStream::connect(address)
            .map_err(|error| format!("cannot connect to {address}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let head = format!(
            "POST /query/service HTTP/1.1\r\nhost: {address}\r\nauthorization: Basic {login}\r\n\
             content-type: application/json\r\ncontent-length: "
        );
        let stream = BufReader::with_capacity(256 << 10, stream);
        Ok(QueryClient { stream, head, output: Vec::new(), body: Vec::new() })
    }

    /// Sends a JSON request. Returns the body of the answer.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the answer is not valid HTTP.
    pub fn ask(&mut self, request: &str) -> Result<&[u8], String> {
        self.output.clear();
        write!(self.output, "{}{}\r\n\r\n{request}", self.head, request.len())
            .expect("memory takes every write");
        let broken = |error: std::io::Error| format!("the connection broke: {error}");
        self.stream.get_mut().write_all(&self.output).map_err(broken)?;
        self.answer()?;
        Ok(&self.body)
    }

    /// Sends a JSON request. Returns the rows of the answer.
    ///
    /// # Errors
    /// As for [`QueryClient::ask`], and the errors of the statement.
    pub fn rows(&mut self, request: &str) -> Result<Vec<Value>, String> {
        let mut answer: Value = serde_json::from_slice(self.ask(request)?)
            .map_err(|error| format!("the response is not JSON: {error}"))?;
        let is_success = answer["status"] == "success";
        match answer["results"].take() {
            Value::Array(rows) if is_success => Ok(rows),
            _ => Err(format!("the server refused {request}: {}", answer["errors"])),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        match read.map_err(|error| format!("the connection broke: {error}"))? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(line),
        }
    }

    /// Reads an answer into `body`.
    fn answer(&mut self) -> Result<(), String> {
        let status = self.line()?;
        if !status.starts_with("HTTP/1.1 ") {
            return Err(format!("the server's response is not HTTP: {}", status.trim_end()));
        }
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.trim_end().is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse().map_err(|_| format!("no length: {value}"))?);
            }
        }
        self.body.clear();
        match length {
            Some(length) => self.take(length),
            None => self.chunks(),
        }
    }

    fn chunks(&mut self) -> Result<(), String> {
        loop {
            let line = self.line()?;
            let length = u64::from_str_radix(line.trim_end(), 16)
                .map_err(|_| format!("no length of a chunk: {}", line.trim_end()))?;
            self.take(length)?;
            self.line()?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Reads `length` bytes and appends them to the body; memory grows only as they arrive.
    fn take(&mut self, length: u64) -> Result<(), String> {
        match self.stream.by_ref().take(length).read_to_end(&mut self.body) {
            Ok(read) if read as u64 == length => Ok(()),
            Ok(_) => Err("the server closed the connection".into()),
            Err(error) => Err(format!("the connection broke: {error}")),
        }
    }
}
