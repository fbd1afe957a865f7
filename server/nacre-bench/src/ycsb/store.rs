//! The interface between a workload and a database.

use clap::ValueEnum;

/// How scans find their records.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scans {
    /// One statement gives whole documents
    Documents,
    /// A statement gives keys, and the documents are read by key, as YCSB's binding for Couchbase does
    Keys,
}

/// The addresses and credentials of a database.
pub struct Login {
    /// Address of the key-value port, or of the whole database.
    pub server: String,
    /// Address of the query service.
    pub query: String,
    /// User.
    pub user: String,
    /// Password.
    pub password: String,
    /// The bucket or database.
    pub database: String,
    /// Kind of scans, if there are any.
    pub scans: Option<Scans>,
}

/// A request for one record.
#[derive(Clone, Copy)]
pub enum Step<'a> {
    /// Reads all fields.
    Read,
    /// Writes one field, given by its number.
    Update(usize, &'a str),
    /// Writes a new record, given as JSON.
    Insert(&'a str),
}

/// A client of a database.
///
/// All functions fail with the message of the server, or the error of the connection.
pub trait Store: Send {
    /// Writes records, many at a time.
    fn load(&mut self, records: &mut dyn Iterator<Item = (String, String)>) -> Result<(), String>;

    /// Waits until all loaded records can be found.
    fn ready(&mut self) -> Result<(), String>;

    /// Executes one step. Returns true if the key exists.
    fn call(&mut self, key: &str, step: Step<'_>) -> Result<bool, String>;

    /// Reads at most `records` records in key order, starting at `from`. Returns their number.
    fn scan(&mut self, from: &str, records: usize) -> Result<usize, String>;
}
