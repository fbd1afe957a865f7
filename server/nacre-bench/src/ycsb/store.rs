//! Interface of a database to a workload.

use clap::ValueEnum;

/// Way in which scans find their records.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scans {
    /// One statement gives whole documents
    Documents,
    /// A statement gives keys, and the documents are read by key, as YCSB's binding for Couchbase does
    Keys,
}

/// Where a database is, and as whom it is used.
pub struct Login {
    /// Address for keys, or for everything.
    pub server: String,
    /// Address for queries.
    pub query: String,
    /// User.
    pub user: String,
    /// Password.
    pub password: String,
    /// Bucket, or database.
    pub database: String,
    /// Kind of scans, if there are any.
    pub scans: Option<Scans>,
}

/// One request for one record.
#[derive(Clone, Copy)]
pub enum Step<'a> {
    /// All fields are read.
    Read,
    /// One field, given by its number, is written.
    Update(usize, &'a str),
    /// A record of JSON that was not there is written.
    Insert(&'a str),
}

/// One client of a database.
///
/// All fail with what the server said, or what the connection broke of.
pub trait Store: Send {
    /// Writes records, many at a time.
    fn load(&mut self, records: &mut dyn Iterator<Item = (String, String)>) -> Result<(), String>;

    /// Waits until all that was loaded can be found.
    fn ready(&mut self) -> Result<(), String>;

    /// Takes one step, and says whether there was such a key.
    fn call(&mut self, key: &str, step: Step<'_>) -> Result<bool, String>;

    /// Reads up to so many records in the order of their keys, and says how many there were.
    fn scan(&mut self, from: &str, records: usize) -> Result<usize, String>;
}
