//! A server that returns the requests that it receives, for functions that send requests.
//!
//! `/text`, `/form` and `/bytes` answer with a body of that type, `/gzip` and `/deflate` with a compressed text, `/nothing` with
//! an empty body, `/status/N` with that status, `/broken` with half of a JSON text, `/never` not at all; `/redirect` redirects to
//! `/moved`, `/elsewhere` to a host that is never granted; `/digest` requires digest authentication of `ann` with the password
//! `secret`, `/cookies` sets cookies; any other path returns the request as JSON.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Maximum size of a request body.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// The text `plain`, compressed with gzip.
const GZIPPED: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03+\xc8I\xcc\xcc\x03\0\xcfb \x19\x05\0\0\0";
/// The text `plain`, compressed with zlib.
const DEFLATED: &[u8] = b"x\x9c+\xc8I\xcc\xcc\x03\0\x06H\x02\x15";

/// The server; its thread ends with the process.
pub(super) struct Echo(SocketAddr);

impl Echo {
    pub fn start() -> io::Result<Echo> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may close the connection early.
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
    if path == "/never" {
        // Waits until the client gives up.
        return reader.read_to_end(&mut body).map(drop);
    }
    let (status, head, text) = reply(&method, &path, headers, &body);
    let head = format!(
        "HTTP/1.1 {status} X\r\n{head}Connection: close\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let body = if method == "HEAD" { &[] } else { &text[..] };
    reader.get_mut().write_all(&[head.as_bytes(), body].concat())
}

/// Returns true if the request has the digest that RFC 7616 requires.
fn knows_the_password(method: &str, path: &str, headers: &Map<String, Value>) -> bool {
    let header = headers.get("authorization").and_then(Value::as_str).unwrap_or_default();
    let Some(rest) = header.strip_prefix("Digest ") else { return false };
    let field = |name: &str| {
        let start = rest.find(&format!("{name}="))? + name.len() + 1;
        let text = &rest[start..];
        let quoted = text.strip_prefix('"').and_then(|text| Some(text.split_once('"')?.0));
        quoted.or_else(|| text.split(',').next())
    };
    let hex = |text: String| {
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let secret = hex("ann:echo:secret".into());
    let asked = hex(format!("{method}:{path}"));
    let (Some(nonce), Some(found)) = (field("cnonce"), field("response")) else { return false };
    let expected = hex(format!("{secret}:n, \"1\":00000001:{nonce}:auth:{asked}"));
    let is_complete = field("username") == Some("ann") && field("uri") == Some(path);
    is_complete && field("opaque") == Some("o") && found == expected
}

fn reply(
    method: &str,
    path: &str,
    headers: Map<String, Value>,
    body: &[u8],
) -> (u16, String, Vec<u8>) {
    let typed = |kind: &str| format!("Content-Type: {kind}\r\n");
    let coded = |coding: &str| format!("{}Content-Encoding: {coding}\r\n", typed("text/plain"));
    match path {
        "/text" => (200, typed("text/plain; charset=utf-8"), "plain".into()),
        "/form" => (200, typed("application/x-www-form-urlencoded"), "a=b+c&d=%C3%A9".into()),
        "/bytes" => (200, typed("application/octet-stream"), "\u{1}\u{2}".into()),
        "/broken" => (200, typed("application/json"), "{".into()),
        "/gzip" => (200, coded("gzip"), GZIPPED.into()),
        "/deflate" => (200, coded("deflate"), DEFLATED.into()),
        "/nothing" => (200, typed("application/json"), Vec::new()),
        "/redirect" => (302, "Location: /moved\r\n".into(), Vec::new()),
        "/elsewhere" => (302, "Location: http://example.invalid/\r\n".into(), Vec::new()),
        "/circle" => (302, "Location: /circle\r\n".into(), Vec::new()),
        "/digest" if !knows_the_password(method, path, &headers) => {
            let challenge = "Digest realm=\"echo\", qop=\"auth\", algorithm=SHA-256, nonce=\"n, \\\"1\\\"\", opaque=\"o\"";
            (
                401,
                format!(
                    "WWW-Authenticate: Basic realm=\"echo\"\r\nWWW-Authenticate: {challenge}\r\n"
                ),
                Vec::new(),
            )
        }
        "/cookies" => {
            let cookies =
                ["session=abc; Path=/; HttpOnly", "deep=1; Path=/deep", "old=1; Max-Age=0"];
            let lines = cookies.map(|cookie| format!("Set-Cookie: {cookie}\r\n"));
            (200, typed("text/plain") + &lines.concat(), "baked".into())
        }
        _ => {
            let status = path.strip_prefix("/status/").and_then(|status| status.parse().ok());
            let body = String::from_utf8_lossy(body);
            let said = json!({"method": method, "path": path, "headers": headers, "body": body});
            (status.unwrap_or(200), typed("application/json"), said.to_string().into())
        }
    }
}
