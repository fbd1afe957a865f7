//! An object store in the process of the tests: as much of S3's protocol as backups need, and what goes wrong with such stores.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The bucket that exists.
pub const BUCKET: &str = "archive";
/// A request is at most a little more than an object of a backup.
const BODY_BYTES_MAX: usize = 80 << 20;

/// Trouble of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Requests that are answered before those that fail.
    pub answers: u32,
    /// Requests that are carried out or not, and not answered or with 503.
    pub failures: u32,
    /// Objects with blocks that are stored before every request is answered with 503.
    pub objects_until_down: Option<u32>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    trouble: Trouble,
    /// Requests that were answered with 503, or not at all.
    failed: u64,
}

/// A running store. Its threads end with the tests.
pub struct ObjectStore {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    /// Name of the object; empty for requests about the bucket.
    name: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
}

impl ObjectStore {
    pub fn start() -> ObjectStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<Mutex<State>> = Arc::default();
        let own = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&own);
                // A client that closes its connection ends this.
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        ObjectStore { port, state }
    }

    /// Variables by which commands find the store.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        vec![
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "k".into()),
            ("AWS_SECRET_ACCESS_KEY", "s".into()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }

    pub fn set(&self, trouble: Trouble) {
        self.state.lock().unwrap().trouble = trouble;
    }

    pub fn trouble(&self) -> Trouble {
        self.state.lock().unwrap().trouble
    }

    pub fn failed(&self) -> u64 {
        self.state.lock().unwrap().failed
    }

    pub fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let Some(Answer { status, headers, body }) = answer(&request, &mut state.lock().unwrap())
        else {
            return Ok(());
        };
        let mut head = format!("HTTP/1.1 {status} -\r\n");
        for header in headers {
            head.push_str(&format!("{header}\r\n"));
        }
        // In one piece: a second one would wait until the first is acknowledged.
        let mut writer = stream;
        writer.write_all(&[format!("{head}\r\n").as_bytes(), &body].concat())?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut parts = line.split_whitespace();
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.trim_start_matches('/');
    let name = path.strip_prefix(BUCKET).unwrap_or(path).trim_start_matches('/');
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    assert!(length <= BODY_BYTES_MAX);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (method, name, query) = (method.to_owned(), name.to_owned(), query.replace("%2F", "/"));
    Ok(Some(Request { method, name, query, headers, body }))
}

/// Answers a request; `None` to close the connection instead.
fn answer(request: &Request, state: &mut State) -> Option<Answer> {
    let is_block = request.method == "PUT" && request.name.ends_with(".nbk");
    match &mut state.trouble {
        Trouble { objects_until_down: Some(0), .. } => {
            state.failed += 1;
            return Some(plain(503, b""));
        }
        Trouble { objects_until_down: Some(left), .. } if is_block => *left -= 1,
        Trouble { failures: 0, .. } => {}
        Trouble { answers, .. } if *answers > 0 => *answers -= 1,
        Trouble { failures, .. } => {
            *failures -= 1;
            let turn = *failures % 3;
            state.failed += 1;
            match turn {
                0 => return Some(plain(503, b"")),
                // The answer is lost, and what was asked for has happened.
                1 => drop(carry_out(request, &mut state.objects)),
                _ => {}
            }
            return None;
        }
    }
    Some(carry_out(request, &mut state.objects))
}

fn plain(status: u16, body: &[u8]) -> Answer {
    let headers = vec![format!("Content-Length: {}", body.len()), "ETag: \"e\"".to_owned()];
    Answer { status, headers, body: body.to_vec() }
}

fn carry_out(request: &Request, objects: &mut BTreeMap<String, Vec<u8>>) -> Answer {
    let name = &request.name;
    match (request.method.as_str(), name.is_empty()) {
        ("PUT", false) => {
            let is_new = request.headers.get("if-none-match").is_some_and(|value| value == "*");
            if is_new && objects.contains_key(name) {
                return plain(412, b"");
            }
            objects.insert(name.clone(), request.body.clone());
            plain(200, b"")
        }
        ("GET", true) => plain(200, list(&request.query, objects).as_bytes()),
        ("GET" | "HEAD", false) => match objects.get(name) {
            None => plain(404, b""),
            Some(bytes) if request.method == "HEAD" => {
                Answer { body: Vec::new(), ..plain(200, bytes) }
            }
            Some(bytes) => part(request.headers.get("range"), bytes),
        },
        ("POST", true) => {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            let keys = text.split("<Key>").skip(1).filter_map(|rest| rest.split('<').next());
            let mut deleted = String::new();
            for key in keys {
                objects.remove(key);
                deleted.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
            }
            plain(200, format!("<DeleteResult>{deleted}</DeleteResult>").as_bytes())
        }
        _ => plain(501, b""),
    }
}

/// A range of an object, as `bytes=2-5` or `bytes=2-`.
fn part(range: Option<&String>, bytes: &[u8]) -> Answer {
    let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
        return plain(200, bytes);
    };
    let (start, end) = range.split_once('-').unwrap();
    let start: usize = start.parse().unwrap();
    let end = end.parse().map_or(bytes.len(), |last: usize| (last + 1).min(bytes.len()));
    if start >= bytes.len() {
        return plain(416, b"");
    }
    let mut answer = plain(206, &bytes[start..end]);
    answer.headers.push(format!("Content-Range: bytes {start}-{}/{}", end - 1, bytes.len()));
    answer
}

fn list(query: &str, objects: &BTreeMap<String, Vec<u8>>) -> String {
    let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or("");
    let entry = |(name, bytes): (&String, &Vec<u8>)| {
        let (time, size) = ("2026-11-28T12:00:00.000Z", bytes.len());
        format!(
            "<Contents><Key>{name}</Key><LastModified>{time}</LastModified><ETag>\"e\"</ETag><Size>{size}</Size></Contents>"
        )
    };
    let found = objects.iter().filter(|(name, _)| name.starts_with(prefix)).map(entry);
    format!("<ListBucketResult>{}</ListBucketResult>", found.collect::<String>())
}
