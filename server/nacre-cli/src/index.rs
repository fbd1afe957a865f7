//! `nacre index`: SQL++ indexes.

use crate::failure::Failure;
use crate::keyspace::{InBucket, confirm};
use crate::listing::{Format, Listing};
use crate::statement::{keyspace, quoted, rows};
use crate::target::Server;
use clap::{Args, Subcommand};

/// Options of `nacre index`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    place: InBucket,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List the indexes of a bucket
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Create an index
    Create {
        /// Name
        name: String,
        /// Collection, as scope.name
        collection: String,
        /// Expressions of SQL++, such as city or price DESC, in their order
        #[arg(required = true)]
        keys: Vec<String>,
        /// Condition of documents that are indexed
        #[arg(long = "where", value_name = "EXPRESSION")]
        condition: Option<String>,
    },
    /// Delete an index
    Rm {
        /// Name
        name: String,
        /// Collection, as scope.name
        collection: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
}

/// Runs `nacre index`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let (server, bucket) = (&options.server, options.place.bucket.as_str());
    match &options.action {
        Action::List { format } => {
            let all = server.call("GET", "/getIndexStatus", b"")?;
            let columns = ["index", "scope", "collection", "status", "definition"];
            let mut listing = Listing::new(&columns);
            let all = all["status"].as_array().cloned().unwrap_or_default();
            for index in all.iter().filter(|index| index["bucket"] == *bucket) {
                let members = ["indexName", "scope", "collection", "status", "definition"];
                listing.add(members.map(|member| index[member].clone()));
            }
            format.show(&listing);
        }
        Action::Create { name, collection, keys, condition } => {
            let place = keyspace(bucket, collection)?;
            let mut text = format!("CREATE INDEX {} ON {place}({})", quoted(name), keys.join(", "));
            if let Some(condition) = condition {
                text.push_str(&format!(" WHERE {condition}"));
            }
            rows(server, &text, &[])?;
            println!("created the index {name} on {bucket}.{collection}");
        }
        Action::Rm { name, collection, yes } => {
            let place = keyspace(bucket, collection)?;
            confirm(*yes, &format!("delete the index {name} of {bucket}.{collection}"))?;
            rows(server, &format!("DROP INDEX {} ON {place}", quoted(name)), &[])?;
            println!("deleted the index {name} of {bucket}.{collection}");
        }
    }
    Ok(())
}
