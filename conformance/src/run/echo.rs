//! A server that says what it was asked, for functions that send requests.
//!
//! `/text`, `/form` and `/bytes` answer with something of that type, `/status/N` with that status, `/broken` with half of a
//! JSON text, `/redirect` leads to
//! `/moved`, `/elsewhere` to a host that nobody grants; anything else gives the request as JSON.

use serde_json::{Map, Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The largest body that is read.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// The server; its thread ends with the process.
pub(super) struct Echo(SocketAddr);

impl Echo {
    pub fn start() -> io::Result<Echo> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who hangs up has seen enough.
                std::thread::spawn(move || answer(stream));
            }
        });
        Ok(Echo(address))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.0)
    }
}

fn answer(stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Map::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), Value::from(value.trim()));
    }
    let length = headers.get("content-length").and_then(Value::as_str);
    let length = length.and_then(|length| length.parse::<u64>().ok()).unwrap_or(0);
    let mut body = Vec::new();
    reader.by_ref().take(length.min(BODY_BYTES_MAX)).read_to_end(&mut body)?;
    let (status, head, text) = reply(&method, &path, headers, &body);
    let head = format!(
        "HTTP/1.1 {status} X\r\n{head}Connection: close\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let body = if method == "HEAD" { &[] } else { text.as_bytes() };
    reader.get_mut().write_all(&[head.as_bytes(), body].concat())
}

fn reply(
    method: &str,
    path: &str,
    headers: Map<String, Value>,
    body: &[u8],
) -> (u16, String, String) {
    let typed = |kind: &str| format!("Content-Type: {kind}\r\n");
    match path {
        "/text" => (200, typed("text/plain; charset=utf-8"), "plain".into()),
        "/form" => (200, typed("application/x-www-form-urlencoded"), "a=b+c&d=%C3%A9".into()),
        "/bytes" => (200, typed("application/octet-stream"), "\u{1}\u{2}".into()),
        "/broken" => (200, typed("application/json"), "{".into()),
        "/redirect" => (302, "Location: /moved\r\n".into(), String::new()),
        "/elsewhere" => (302, "Location: http://example.invalid/\r\n".into(), String::new()),
        "/circle" => (302, "Location: /circle\r\n".into(), String::new()),
        _ => {
            let status = path.strip_prefix("/status/").and_then(|status| status.parse().ok());
            let body = String::from_utf8_lossy(body);
            let said = json!({"method": method, "path": path, "headers": headers, "body": body});
            (status.unwrap_or(200), typed("application/json"), said.to_string())
        }
    }
}
