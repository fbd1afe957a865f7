//! Records as rows `(id text PRIMARY KEY, doc jsonb)` of PostgreSQL, over version 3 of its protocol with prepared
//! statements.
//!
//! ```text
//! message = kind (1 byte), length (4 bytes, including itself), body; the first message has no kind
//! ```
//!
//! The server must trust every connection, as is usual for measurements. Source: PostgreSQL's documentation, "Message Flow".

use super::store::{Login, Step, Store};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

const PROTOCOL: i32 = 3 << 16;
/// Maximum size of a message in bytes; longer ones are refused.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Number of rows per transaction while records are loaded.
const LOAD_ROWS: usize = 64;

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS usertable (id text COLLATE \"C\" PRIMARY KEY, doc jsonb NOT NULL)";
/// Statements by name. `load` can be repeated.
const STATEMENTS: [(&str, &str); 5] = [
    ("read", "SELECT doc FROM usertable WHERE id = $1"),
    ("update", "UPDATE usertable SET doc = doc || $2::jsonb WHERE id = $1"),
    ("insert", "INSERT INTO usertable (id, doc) VALUES ($1, $2::jsonb)"),
    (
        "load",
        "INSERT INTO usertable (id, doc) VALUES ($1, $2::jsonb) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc",
    ),
    ("scan", "SELECT id, doc FROM usertable WHERE id >= $1 ORDER BY id LIMIT $2::bigint"),
];

/// A connection.
pub struct Postgres {
    stream: BufReader<TcpStream>,
    output: Vec<u8>,
    body: Vec<u8>,
}

/// The result of a statement.
#[derive(Default)]
struct StatementResult {
    rows: usize,
    /// Number of rows that were read or changed by all statements.
    affected: u64,
}

impl Postgres {
    /// Connects with a session setting, such as `synchronous_commit=off`; empty for none.
    ///
    /// # Errors
    /// A message for the terminal.
    pub fn connect(login: &Login, setting: &str) -> Result<Postgres, String> {
        let Login { server, user, database, .. } = login;
        let stream = TcpStream::connect(server)
            .map_err(|error| format!("cannot connect to {server}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = BufReader::with_capacity(256 << 10, stream);
        let mut postgres = Postgres { stream, output: Vec::new(), body: Vec::new() };
        let options = if setting.is_empty() { String::new() } else { format!("-c {setting}") };
        let settings = [("user", user.as_str()), ("database", database), ("options", &options)];
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for (name, value) in settings {
            body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        postgres.output.extend((body.len() as u32 + 4).to_be_bytes());
        postgres.output.append(&mut body);
        postgres.finish()?;
        postgres.simple(CREATE)?;
        for (name, text) in STATEMENTS {
            postgres.message(b'P', |body| {
                body.extend_from_slice(format!("{name}\0{text}\0").as_bytes());
                body.extend([0; 2]);
            });
        }
        postgres.sync()?;
        Ok(postgres)
    }

    /// Adds a message to the output.
    fn message(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.output.push(kind);
        let start = self.output.len();
        self.output.extend([0; 4]);
        write(&mut self.output);
        let length = (self.output.len() - start) as u32;
        self.output[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Adds the execution of a prepared statement; parameters and results are text.
    fn execute(&mut self, statement: &str, parameters: &[&str]) {
        self.message(b'B', |body| {
            body.push(0);
            body.extend_from_slice(statement.as_bytes());
            body.extend([0; 3]);
            body.extend((parameters.len() as u16).to_be_bytes());
            for parameter in parameters {
                body.extend((parameter.len() as u32).to_be_bytes());
                body.extend_from_slice(parameter.as_bytes());
            }
            body.extend([0; 2]);
        });
        self.message(b'E', |body| body.extend([0; 5]));
    }

    fn simple(&mut self, text: &str) -> Result<StatementResult, String> {
        self.message(b'Q', |body| body.extend_from_slice(format!("{text}\0").as_bytes()));
        self.finish()
    }

    /// Ends the sequence of messages, sends it, and reads all answers.
    fn sync(&mut self) -> Result<StatementResult, String> {
        self.message(b'S', |_| {});
        self.finish()
    }

    /// Sends the output, and reads until the server is ready for more.
    fn finish(&mut self) -> Result<StatementResult, String> {
        let broken = |error: std::io::Error| format!("the connection broke: {error}");
        self.stream.get_mut().write_all(&self.output).map_err(broken)?;
        self.output.clear();
        let (mut done, mut failed) = (StatementResult::default(), None);
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).map_err(broken)?;
            let [kind, length @ ..] = head;
            let length = (u32::from_be_bytes(length) as usize).checked_sub(4);
            let length = length.filter(|length| *length <= MESSAGE_BYTES_MAX);
            let length = length.ok_or("the server's response is not PostgreSQL's")?;
            self.body.resize(length, 0);
            self.stream.read_exact(&mut self.body).map_err(broken)?;
            match kind {
                b'R' if self.body != [0; 4] => return Err("the server requires a password".into()),
                b'E' => failed = Some(reason(&self.body)),
                b'D' => done.rows += 1,
                b'C' => done.affected += affected(&self.body),
                b'Z' => return failed.map_or(Ok(done), Err),
                _ => {}
            }
            // After a fatal error at the start, the server sends nothing else.
            if let (Some(failed), b"FATAL") = (&failed, severity(&self.body)) {
                return Err(failed.clone());
            }
        }
    }
}

/// Returns the fields of an error, each with its kind.
fn fields(body: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    body.split(|byte| *byte == 0)
        .filter_map(|field| field.split_first().map(|(kind, text)| (*kind, text)))
}

fn severity(body: &[u8]) -> &[u8] {
    fields(body).find_map(|(kind, text)| (kind == b'V').then_some(text)).unwrap_or_default()
}

fn reason(body: &[u8]) -> String {
    let message = fields(body).find_map(|(kind, text)| (kind == b'M').then_some(text));
    format!(
        "the server refused a statement: {}",
        String::from_utf8_lossy(message.unwrap_or_default())
    )
}

/// Returns the number at the end of a command tag, such as `INSERT 0 1`.
fn affected(body: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(body);
    text.trim_end_matches('\0').rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

impl Store for Postgres {
    fn load(&mut self, records: &mut dyn Iterator<Item = (String, String)>) -> Result<(), String> {
        loop {
            let mut count = 0;
            for (key, record) in records.take(LOAD_ROWS) {
                self.execute("load", &[&key, &record]);
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            self.sync()?;
        }
    }

    fn ready(&mut self) -> Result<(), String> {
        self.simple("VACUUM ANALYZE usertable").map(drop)
    }

    fn call(&mut self, key: &str, step: Step<'_>) -> Result<bool, String> {
        match step {
            Step::Read => self.execute("read", &[key]),
            Step::Insert(record) => self.execute("insert", &[key, record]),
            Step::Update(field, value) => {
                self.execute("update", &[key, &format!("{{\"field{field}\":\"{value}\"}}")]);
            }
        }
        Ok(self.sync()?.affected == 1)
    }

    fn scan(&mut self, from: &str, records: usize) -> Result<usize, String> {
        self.execute("scan", &[from, &records.to_string()]);
        Ok(self.sync()?.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_the_server_are_parsed() {
        let error = b"SFATAL\0VFATAL\0C28000\0Mno entry for host\0\0";
        assert_eq!(severity(error), b"FATAL");
        assert_eq!(reason(error), "the server refused a statement: no entry for host");
        assert_eq!(
            ["INSERT 0 3\0", "UPDATE 1\0", "CREATE TABLE\0"].map(|tag| affected(tag.as_bytes())),
            [3, 1, 0]
        );
    }
}
