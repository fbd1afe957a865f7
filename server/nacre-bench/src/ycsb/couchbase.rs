//! Records as documents of a bucket: access by key over the key-value port, scans over the query service.

use super::store::{Login, Scans, Step, Store};
use crate::http::QueryClient;
use memchr::memmem;
use nacre_client::{BASIC_FEATURES, Connection, Request};
use nacre_protocol::{Opcode, Status};
use serde_json::{Value, json};
use std::time::Duration;

/// Pause before a request is repeated after a temporary failure.
pub const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Number of requests in flight while records are loaded.
const LOAD_DEPTH: usize = 64;
const SUCCESS: u16 = Status::Success as u16;
const NOT_FOUND: u16 = Status::KeyNotFound as u16;
/// Flags of JSON as SDKs send them, and no expiry.
const JSON: [u8; 8] = [0x02, 0, 0, 0, 0, 0, 0, 0];
const BUSY: [u16; 4] = [
    Status::TemporaryFailure as u16,
    Status::Busy as u16,
    Status::NoMemory as u16,
    Status::SyncWriteInProgress as u16,
];

/// Connections of one client.
pub struct Couchbase {
    keys: Connection,
    /// The connection for scans.
    queries: Option<QueryClient>,
    scans: Scans,
    bucket: String,
    /// The framing extra for durability; empty for none.
    framing: Vec<u8>,
}

impl Couchbase {
    /// Connects and logs in. `level` is the durability of writes, 0 for none.
    ///
    /// # Errors
    /// A message for the terminal.
    pub fn connect(login: &Login, level: u8) -> Result<Couchbase, String> {
        let Login { server, query, user, password, database, scans } = login;
        let keys = Connection::connect(server, None, [user, password, database], BASIC_FEATURES)?;
        let queries = scans.map(|_| QueryClient::connect(query, user, password)).transpose()?;
        // Framing extra 1 (durability), with a length of one byte.
        let framing = if level == 0 { Vec::new() } else { vec![0x11, level] };
        let scans = scans.unwrap_or(Scans::Documents);
        let mut store = Couchbase { keys, queries, scans, bucket: database.clone(), framing };
        store.prepare()?;
        Ok(store)
    }

    fn name(&self) -> &'static str {
        match self.scans {
            Scans::Documents => "ycsb_documents",
            Scans::Keys => "ycsb_keys",
        }
    }

    /// Prepares the statement of scans, if there are any.
    fn prepare(&mut self) -> Result<(), String> {
        let (name, bucket) = (self.name(), &self.bucket);
        let result = match self.scans {
            Scans::Documents => "RAW u",
            Scans::Keys => "RAW META(u).id",
        };
        let statement = format!(
            "PREPARE FORCE {name} AS SELECT {result} FROM `{bucket}` AS u \
             WHERE META(u).id >= $1 ORDER BY META(u).id LIMIT $2"
        );
        let Some(queries) = &mut self.queries else { return Ok(()) };
        // The primary index is created first, so that the prepared plan can use it.
        let index = format!("CREATE PRIMARY INDEX IF NOT EXISTS ON `{bucket}`");
        for statement in [index, statement] {
            queries.rows(&json!({ "statement": statement }).to_string())?;
        }
        Ok(())
    }

    /// Accepts answers in any order.
    ///
    /// # Errors
    /// Fails if the connection breaks.
    pub fn allow_any_order(&mut self) -> Result<(), String> {
        Ok(self.keys.allow_any_order()?)
    }

    /// Adds a request to those that the next waiting [`Couchbase::answer`] sends; its answer has the same `number`.
    pub fn send(&mut self, number: u32, key: &str, step: Step<'_>) {
        let vbid = self.keys.map().vbucket_of(key.as_bytes());
        // The key is prefixed with the ID of the default collection.
        let key = [&[0], key.as_bytes()].concat();
        let all = Request { vbid, opaque: number, key: &key, ..Request::default() };
        let framing = &self.framing;
        match step {
            Step::Read => self.keys.send(Request { opcode: Opcode::Get as u8, ..all }),
            Step::Insert(record) => {
                let (opcode, value) = (Opcode::Set as u8, record.as_bytes());
                self.keys.send(Request { opcode, framing, extras: &JSON, value, ..all });
            }
            Step::Update(field, value) => {
                let (opcode, path) = (Opcode::SubdocDictUpsert as u8, format!("field{field}"));
                let [high, low] = (path.len() as u16).to_be_bytes();
                // The length of the path, and no flags.
                let extras = &[high, low, 0];
                let value = format!("{path}\"{value}\"");
                let value = value.as_bytes();
                self.keys.send(Request { opcode, framing, extras, value, ..all });
            }
        }
    }

    /// Returns the next answer: the number of its request, and true if the key exists; `None` for a temporary refusal.
    ///
    /// # Errors
    /// Fails if the connection breaks, or a request is refused.
    pub fn answer(&mut self) -> Result<(u32, Option<bool>), String> {
        if !self.keys.has_answer()? {
            self.keys.flush()?;
        }
        match self.keys.receive(|frame| (frame.opaque, frame.vbid))? {
            (number, SUCCESS) => Ok((number, Some(true))),
            (number, NOT_FOUND) => Ok((number, Some(false))),
            (number, status) if BUSY.contains(&status) => Ok((number, None)),
            (_, status) => Err(format!("the server refused a request: status 0x{status:02x}")),
        }
    }

    /// Sends many requests at once. Returns how many keys exist.
    fn pipeline<'a>(
        &mut self,
        requests: impl ExactSizeIterator<Item = (&'a str, Step<'a>)>,
    ) -> Result<usize, String> {
        let count = requests.len();
        requests.for_each(|(key, step)| self.send(0, key, step));
        let mut found = 0;
        for _ in 0..count {
            let is_found = self.answer()?.1.ok_or("the server has no memory left for records")?;
            found += usize::from(is_found);
        }
        Ok(found)
    }
}

impl Store for Couchbase {
    fn load(&mut self, records: &mut dyn Iterator<Item = (String, String)>) -> Result<(), String> {
        // Only measured writes need durability.
        self.framing.clear();
        loop {
            let batch: Vec<_> = records.take(LOAD_DEPTH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.pipeline(batch.iter().map(|(key, record)| (&key[..], Step::Insert(record))))?;
        }
    }

    fn ready(&mut self) -> Result<(), String> {
        let name = self.name();
        let Some(queries) = &mut self.queries else { return Ok(()) };
        // The index must be up to date before the clock starts, as it is in the other database.
        let request =
            json!({"prepared": name, "args": ["", 1], "scan_consistency": "request_plus"});
        queries.rows(&request.to_string()).map(drop)
    }

    fn call(&mut self, key: &str, step: Step<'_>) -> Result<bool, String> {
        loop {
            self.send(0, key, step);
            match self.answer()?.1 {
                Some(found) => return Ok(found),
                None => std::thread::sleep(AGAIN_AFTER),
            }
        }
    }

    fn scan(&mut self, from: &str, records: usize) -> Result<usize, String> {
        let name = self.name();
        let queries = self.queries.as_mut().ok_or("scans were not announced")?;
        let request = format!(
            "{{\"prepared\":\"{name}\",\"args\":[\"{from}\",{records}],\"metrics\":false}}"
        );
        match self.scans {
            Scans::Documents => rows_of(queries.ask(&request)?),
            Scans::Keys => {
                let ids = queries.rows(&request)?;
                let ids: Vec<&str> = ids.iter().filter_map(Value::as_str).collect();
                self.pipeline(ids.into_iter().map(|id| (id, Step::Read)))
            }
        }
    }
}

/// Counts the rows of an answer, each of which begins a line. The work of a client on an answer is not measured, and is as
/// little as for the other database.
fn rows_of(answer: &[u8]) -> Result<usize, String> {
    // The status is in the text after the rows.
    if memmem::rfind(answer, b"\"status\":\"success\"").is_none() {
        return Err(format!("the server refused a scan: {}", String::from_utf8_lossy(answer)));
    }
    Ok(memmem::find_iter(answer, b"\n{").count())
}
