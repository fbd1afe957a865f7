//! `nacre doc`: reads and writes documents by key.

use crate::failure::Failure;
use crate::keyspace::InBucket;
use crate::listing::{Format, Listing};
use crate::statement;
use crate::target::Server;
use clap::{Args, Subcommand};
use nacre_client::{Bucket, Key, StoreOptions};
use nacre_protocol::Status;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{Read, Write};

/// Maximum size of a value, in bytes: the limit of the server.
const VALUE_BYTES_MAX: u64 = 20 << 20;

/// Options of `nacre doc`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    place: InBucket,
    /// Collection, as scope.name
    #[arg(
        short = 'C',
        long,
        env = "NACRE_COLLECTION",
        default_value = "_default._default",
        global = true
    )]
    collection: String,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Print a document
    Get {
        /// Key
        key: String,
    },
    /// Write a document, whether it exists or not
    Set(Document),
    /// Write a document that does not exist yet
    Insert(Document),
    /// Write a document that exists
    Replace(Document),
    /// Delete a document
    Rm {
        /// Key
        key: String,
        /// CAS that the document must have
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        cas: u64,
    },
    /// List keys in their order
    List {
        /// Keys that begin with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
        /// Maximum number of keys
        #[arg(long, default_value_t = 100)]
        limit: u64,
        #[command(flatten)]
        format: Format,
    },
}

/// A write.
#[derive(Args, Clone, Debug)]
struct Document {
    /// Key
    key: String,
    /// JSON; - reads standard input
    value: String,
    /// Seconds until it expires, or the Unix time if that is more than 30 days (default: never)
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "SECONDS")]
    expiry: u32,
    /// CAS that the document must have
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    cas: u64,
}

/// Runs `nacre doc`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let place = format!("{}.{}", options.place.bucket, options.collection);
    if let Action::List { prefix, limit, format } = &options.action {
        return list(options, prefix, *limit, *format);
    }
    let mut bucket = options.server.bucket(&options.place.bucket)?;
    let collection = bucket.collection_id(&options.collection)?;
    let key = |name: &'_ str| -> Result<(), Failure> {
        match name.is_empty() {
            true => Err("a key has at least one byte".into()),
            false => Ok(()),
        }
    };
    match &options.action {
        Action::List { .. } => {}
        Action::Get { key: name } => {
            key(name)?;
            let document = bucket.get(Key { collection, name: name.as_bytes() })?;
            let document = document.ok_or_else(|| missing(name, &place))?;
            let mut out = std::io::stdout().lock();
            let written = out.write_all(&document.value).and_then(|()| out.write_all(b"\n"));
            written.map_err(|error| format!("cannot write: {error}"))?;
        }
        Action::Set(write) => store(&mut bucket, collection, &place, write, Bucket::set)?,
        Action::Insert(write) => store(&mut bucket, collection, &place, write, Bucket::add)?,
        Action::Replace(write) => store(&mut bucket, collection, &place, write, Bucket::replace)?,
        Action::Rm { key: name, cas } => {
            key(name)?;
            let store = StoreOptions { cas: *cas, ..StoreOptions::default() };
            bucket
                .delete(Key { collection, name: name.as_bytes() }, store)
                .map_err(|error| refused(error, name, &place))?;
            println!("deleted {name}");
        }
    }
    Ok(())
}

type StoreFn = fn(
    &mut Bucket,
    Key<'_>,
    &[u8],
    StoreOptions,
) -> Result<nacre_client::Mutation, nacre_client::Error>;

fn store(
    bucket: &mut Bucket,
    collection: u32,
    place: &str,
    write: &Document,
    store: StoreFn,
) -> Result<(), Failure> {
    let value = match write.value.as_str() {
        "-" => {
            let mut text = String::new();
            let mut input = std::io::stdin().take(VALUE_BYTES_MAX + 1);
            input.read_to_string(&mut text).map_err(|error| format!("standard input: {error}"))?;
            text
        }
        text => text.to_owned(),
    };
    let value = value.trim();
    serde_json::from_str::<&RawValue>(value).map_err(|error| {
        format!("the value is not JSON: {error}; a text has quotes, as '\"text\"'")
    })?;
    let options = StoreOptions { cas: write.cas, expiry: write.expiry, ..StoreOptions::default() };
    let key = Key { collection, name: write.key.as_bytes() };
    let mutation = store(bucket, key, value.as_bytes(), options);
    let mutation = mutation.map_err(|error| refused(error, &write.key, place))?;
    println!("wrote {} with CAS {}", write.key, mutation.cas);
    Ok(())
}

fn missing(name: &str, place: &str) -> Failure {
    format!("{place} has no document {name}").into()
}

/// Describes a refusal by its status and the document.
fn refused(error: nacre_client::Error, name: &str, place: &str) -> Failure {
    const NOT_FOUND: u16 = Status::KeyNotFound as u16;
    const EXISTS: u16 = Status::KeyExists as u16;
    match error.status() {
        Some(NOT_FOUND) => missing(name, place),
        Some(EXISTS) => {
            format!("{place} has a document {name} already, or another version than that CAS")
                .into()
        }
        _ => error.into(),
    }
}

fn list(options: &Options, prefix: &str, limit: u64, format: Format) -> Result<(), Failure> {
    let place = statement::keyspace(&options.place.bucket, &options.collection)?;
    let rows = statement::rows(
        &options.server,
        &format!(
            "SELECT META(d).id AS id FROM {place} AS d WHERE META(d).id LIKE $1 ORDER BY META(d).id LIMIT {limit}"
        ),
        &[Value::from(like(prefix))],
    )?;
    let mut listing = Listing::new(&["key"]);
    for row in rows {
        listing.add([row["id"].clone()]);
    }
    format.show(&listing);
    Ok(())
}

/// Returns a LIKE pattern for keys with a prefix.
fn like(prefix: &str) -> String {
    let mut pattern = String::new();
    for character in prefix.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "%"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_a_prefix_are_literal() {
        assert_eq!(like(""), "%");
        assert_eq!(like("a_1%"), "a\\_1\\%%");
    }
}
