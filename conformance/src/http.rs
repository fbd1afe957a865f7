//! Sends one HTTP/1.1 request at a time, each on a separate connection.

use crate::kv::REPLY_TIMEOUT;
use crate::kv::frame::invalid;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, such as 200.
    pub status: u16,
    /// The headers; names are lower-case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when the body is not JSON.
    pub fn json(&self) -> io::Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .map_err(|_| invalid(&format!("no JSON: {}", self.text())))
    }
}

/// Sends a request to `address` (`host:port`) and waits for the whole answer. `path` includes the query; `auth` is a
/// name and a password for Basic authentication.
///
/// # Errors
/// The errors of the socket, and [`io::ErrorKind::InvalidData`] when the answer is not HTTP.
pub fn request(
    address: &str,
    method: &str,
    path: &str,
    auth: Option<(&str, &str)>,
    content_type: &str,
    body: &[u8],
) -> io::Result<Answer> {
    request_within(REPLY_TIMEOUT, address, method, path, auth, content_type, body)
}

/// Like [`request`], with a time limit.
///
/// # Errors
/// As for [`request`].
pub fn request_within(
    patience: Duration,
    address: &str,
    method: &str,
    path: &str,
    auth: Option<(&str, &str)>,
    content_type: &str,
    body: &[u8],
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some((user, password)) = auth {
        head.push_str(&format!("Authorization: {}\r\n", basic(user, password)));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Type: {content_type}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    // One write: a server may answer and close before it has read a second one.
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let reason = format!("no answer within {} s", patience.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, reason)
        }
        _ => error,
    })?;
    parse(&answer)
}

/// Returns the value of the header `Authorization` for a name and a password.
pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Escapes everything except letters, digits and `-._~`, for a part of a path or query.
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Parses a complete answer, which the server ends by closing the connection.
fn parse(answer: &[u8]) -> io::Result<Answer> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.ok_or_else(|| invalid("answer without a head"))?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| invalid("head of an answer"))?;
    let body = &answer[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
    let status = status.and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| invalid("status of an answer"))?;
    let headers: Vec<(String, String)> = head
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let header = |wanted: &str| {
        headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        let body = chunks(body)?;
        return Ok(Answer { status, headers, body });
    }
    let length = header("content-length").and_then(|length| length.parse::<usize>().ok());
    let body = match length {
        Some(length) if length > body.len() => return Err(invalid("answer cut short")),
        Some(length) => body[..length].to_vec(),
        None => body.to_vec(),
    };
    Ok(Answer { status, headers, body })
}

fn chunks(mut rest: &[u8]) -> io::Result<Vec<u8>> {
    let short = || invalid("chunk cut short");
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|bytes| bytes == b"\r\n").ok_or_else(short)?;
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|line| line.split(';').next());
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let size = size.ok_or_else(|| invalid("size of a chunk"))?;
        if size == 0 {
            return Ok(body);
        }
        let chunk = rest.get(end + 2..).and_then(|rest| rest.get(..size)).ok_or_else(short)?;
        body.extend_from_slice(chunk);
        rest = rest.get(end + 2 + size + 2..).ok_or_else(short)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(u16, String), String> {
        let answer = parse(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok((answer.status, answer.text()))
    }

    #[test]
    fn answers_with_a_length_in_chunks_and_until_the_end_are_read() {
        let expected = Ok((200, "hello".to_owned()));
        assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"), expected);
        assert_eq!(
            read(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"
            ),
            expected
        );
        assert_eq!(read("HTTP/1.0 200\r\n\r\nhello"), expected);
        assert_eq!(
            read("HTTP/1.1 404 Object Not Found\r\nContent-Length: 0\r\n\r\n"),
            Ok((404, String::new()))
        );
    }

    #[test]
    fn answers_that_are_cut_short_are_refused() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhe",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhe",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn reserved_characters_of_a_query_are_escaped() {
        assert_eq!(escape(r#"["a b",1]"#), "%5B%22a%20b%22%2C1%5D");
    }
}
