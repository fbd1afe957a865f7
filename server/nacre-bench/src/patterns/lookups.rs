//! Users that are found by their e-mail address: by an index of the server, or by lookup documents.
//!
//! The address of user `n` is a hash of `n`, so clients know all addresses without communication.

use super::client::{Client, Pattern};
use super::retry::Failure;
use crate::hash::unsigned_hash;
use serde_json::{Value, json};

/// The transaction of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Writes a user.
    Insert,
    /// Looks up a user.
    Query,
}

/// How users are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupModel {
    /// An index whose entries are on the nodes of their documents: all nodes are asked.
    LocalIndex,
    /// An index that is partitioned by the hash of the address: one node is asked.
    HashIndex,
    /// A document for each address, which contains the key of its user.
    IndexTable,
}

/// Users to write or find.
pub struct Users {
    /// How they are found.
    pub means: LookupModel,
    /// The transaction.
    pub work: Work,
    /// The number of the first user.
    pub first: u64,
    /// Number of users that are loaded before lookups.
    pub loaded: u64,
    /// Size of a user's field in bytes.
    pub field_bytes: usize,
    /// The bucket.
    pub bucket: String,
    /// The consistency of index scans.
    pub consistency: String,
}

impl Users {
    fn address(&self, number: u64) -> String {
        unsigned_hash(self.first + number).to_string()
    }

    /// Returns the name of the index; both kinds can exist at the same time.
    fn index(&self) -> &'static str {
        match self.means {
            LookupModel::LocalIndex => "patterns_email",
            LookupModel::HashIndex | LookupModel::IndexTable => "patterns_email_hash",
        }
    }

    fn write(&self, client: &mut Client, number: u64) -> Result<(), String> {
        let (id, address) = (client.uuid(), self.address(number));
        let more = [("email", format!("\"{address}\""))];
        let (key, user) = (format!("user::{id}"), client.user(&more, self.field_bytes));
        client.transaction("INSERT-USER", |client| {
            client.submit(|connections| connections.upsert(&key, &user))?;
            if self.means == LookupModel::IndexTable {
                let lookup = format!("email::{address}");
                client.submit(|connections| connections.upsert_text(&lookup, &key))?;
            }
            Ok(())
        })
    }

    fn find(&self, client: &mut Client, number: u64) -> Result<(), Failure> {
        let address = self.address(number);
        if self.means == LookupModel::IndexTable {
            let lookup = format!("email::{address}");
            let key = client.submit(|connections| connections.get(&lookup))?;
            let key = String::from_utf8_lossy(&key.value).into_owned();
            return client.submit(|connections| connections.get(&key)).map(drop);
        }
        let request = self.request(&address, &self.consistency);
        let rows = client.submit(|connections| connections.query(&request))?;
        match rows.is_empty() {
            true => Err(Failure::new(
                "answer",
                format!("no user has the address {address}: load first"),
            )),
            false => Ok(()),
        }
    }

    /// Returns the statement of the original workload, which is not prepared, with one address.
    fn request(&self, address: &str, consistency: &str) -> Value {
        let fields: Vec<String> = (1..=20).map(|number| format!("field{number}")).collect();
        let statement = format!(
            "SELECT META().id, email, {} FROM `{}` USE INDEX ({}) WHERE email = $1",
            fields.join(", "),
            self.bucket,
            self.index()
        );
        json!({"statement": statement, "args": [address], "scan_consistency": consistency})
    }
}

impl Pattern for Users {
    fn prepare(&self, client: &mut Client) -> Result<(), Failure> {
        let spread = match self.means {
            LookupModel::LocalIndex => "",
            LookupModel::HashIndex => " PARTITION BY HASH(email)",
            LookupModel::IndexTable => return Ok(()),
        };
        let (index, bucket) = (self.index(), &self.bucket);
        let create = format!("CREATE INDEX {index} IF NOT EXISTS ON `{bucket}`(email){spread}");
        client.connections.query(&json!({ "statement": create })).map(drop)
    }

    fn loads(&self) -> u64 {
        match self.work {
            Work::Insert => 0,
            Work::Query => self.loaded,
        }
    }

    fn load(&self, client: &mut Client, number: u64) -> Result<(), String> {
        self.write(client, number)
    }

    fn settle(&self, client: &mut Client) -> Result<(), Failure> {
        if self.means == LookupModel::IndexTable || self.work == Work::Insert {
            return Ok(());
        }
        let last = self.address(self.loaded - 1);
        client.connections.query(&self.request(&last, "request_plus")).map(drop)
    }

    fn transact(&self, client: &mut Client, number: u64) -> Result<(), String> {
        match self.work {
            Work::Insert => self.write(client, number),
            Work::Query => {
                client.transaction("QUERY-USER", |client| self.find(client, number % self.loaded))
            }
        }
    }
}
