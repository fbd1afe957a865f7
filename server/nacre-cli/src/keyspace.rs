//! `nacre bucket`, `nacre scope` and `nacre collection`.

use crate::failure::Failure;
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand, ValueEnum};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

const BUCKETS: &str = "/pools/default/buckets";
/// The scope of collections that are named without a scope.
const SCOPE_DEFAULT: &str = "_default";

/// The bucket that a command concerns.
#[derive(Args, Clone, Debug)]
pub struct InBucket {
    /// Bucket
    #[arg(short, long, env = "NACRE_BUCKET", default_value = "default", global = true)]
    pub bucket: String,
}

/// Options of `nacre bucket`.
#[derive(Args, Clone, Debug)]
pub struct Buckets {
    #[command(subcommand)]
    action: BucketAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum BucketAction {
    /// List the buckets
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Show a bucket
    Show {
        /// Name
        name: String,
        #[command(flatten)]
        format: Format,
    },
    /// Create a bucket
    Create {
        /// Name
        name: String,
        /// Memory on each node, in MiB, at least 100
        #[arg(long, default_value_t = 256, value_name = "MIB")]
        ram_mb: u64,
        /// Replicas of each document
        #[arg(long, default_value_t = 0, value_name = "N")]
        replicas: u8,
        /// Storage type
        #[arg(long, value_enum, default_value = "persistent")]
        kind: BucketKind,
        /// Keep every version of a document for so many seconds, not only the newest
        #[arg(long, default_value_t = 0, value_name = "SECONDS")]
        history: u64,
        /// Allow `nacre bucket flush`
        #[arg(long)]
        allow_flush: bool,
    },
    /// Delete a bucket with all of its documents
    Rm {
        /// Name
        name: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
    /// Delete all documents of a bucket that allows it
    Flush {
        /// Name
        name: String,
        /// Delete them without asking
        #[arg(short, long)]
        yes: bool,
    },
    /// Compact the files of a bucket, which frees the disk space of old versions
    Compact {
        /// Name
        name: String,
    },
}

/// Kind of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BucketKind {
    /// In memory and on disk
    Persistent,
    /// In memory alone
    Ephemeral,
}

/// Runs `nacre bucket`.
///
/// # Errors
/// A message for the user.
pub fn run_buckets(options: &Buckets) -> Result<(), Failure> {
    let server = &options.server;
    let path = |name: &str| format!("{BUCKETS}/{}", escaped(name));
    match &options.action {
        BucketAction::List { format } => {
            let all = server.call("GET", BUCKETS, b"")?;
            let mut listing = Listing::new(&BUCKET_COLUMNS);
            for bucket in all.as_array().into_iter().flatten() {
                listing.add(row_of_bucket(bucket));
            }
            format.show(&listing);
        }
        BucketAction::Show { name, format } => {
            let bucket = server.call("GET", &path(name), b"").map_err(about_bucket(name))?;
            let members = BUCKET_COLUMNS.into_iter().zip(row_of_bucket(&bucket));
            format.show_one(&members.map(|(name, value)| (name.to_owned(), value)).collect());
        }
        BucketAction::Create { name, ram_mb, replicas, kind, history, allow_flush } => {
            let kind = match kind {
                BucketKind::Persistent => "membase",
                BucketKind::Ephemeral => "ephemeral",
            };
            let flush = u8::from(*allow_flush);
            let mut form = format!(
                "name={}&ramQuotaMB={ram_mb}&replicaNumber={replicas}&bucketType={kind}&flushEnabled={flush}",
                escaped(name)
            );
            if *history > 0 {
                form.push_str(&format!("&storageBackend=magma&historyRetentionSeconds={history}"));
            }
            server.call("POST", BUCKETS, form.as_bytes())?;
            println!("created the bucket {name}");
        }
        BucketAction::Rm { name, yes } => {
            confirm(*yes, &format!("delete the bucket {name} with all of its documents"))?;
            server.call("DELETE", &path(name), b"").map_err(about_bucket(name))?;
            println!("deleted the bucket {name}");
        }
        BucketAction::Flush { name, yes } => {
            confirm(*yes, &format!("delete all documents of the bucket {name}"))?;
            let path = format!("{}/controller/doFlush", path(name));
            server.call("POST", &path, b"").map_err(about_bucket(name))?;
            println!("deleted all documents of the bucket {name}");
        }
        BucketAction::Compact { name } => {
            let path = format!("{}/controller/compactBucket", path(name));
            server.call("POST", &path, b"").map_err(about_bucket(name))?;
            println!("the nodes compact the bucket {name}");
        }
    }
    Ok(())
}

const BUCKET_COLUMNS: [&str; 7] =
    ["name", "kind", "documents", "memory_used_mb", "memory_quota_mb", "disk_used_mb", "replicas"];

fn row_of_bucket(bucket: &Value) -> [Value; 7] {
    let mib = |value: &Value| value.as_u64().map_or(Value::Null, |bytes| (bytes >> 20).into());
    let kind = match bucket["bucketType"].as_str() {
        Some("membase") => "persistent",
        kind => kind.unwrap_or_default(),
    };
    let stats = &bucket["basicStats"];
    [
        bucket["name"].clone(),
        kind.into(),
        stats["itemCount"].clone(),
        mib(&stats["memUsed"]),
        mib(&bucket["quota"]["ram"]),
        mib(&stats["diskUsed"]),
        bucket["replicaNumber"].clone(),
    ]
}

/// Adds the bucket's name to a failure that lacks it: the answer for an unknown bucket does not
/// mention buckets.
fn about_bucket(name: &str) -> impl Fn(Failure) -> Failure {
    let name = name.to_owned();
    move |failure| {
        let is_unknown = failure.reason.contains("not found");
        failure.map(|reason| match is_unknown {
            true => {
                format!("there is no bucket {name}: `nacre bucket list` shows those that exist")
            }
            false => reason,
        })
    }
}

/// Options of `nacre scope`.
#[derive(Args, Clone, Debug)]
pub struct Scopes {
    #[command(subcommand)]
    action: ScopeAction,
    #[command(flatten)]
    place: InBucket,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum ScopeAction {
    /// List the scopes of a bucket
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Create a scope
    Create {
        /// Name
        name: String,
    },
    /// Delete a scope with all of its collections
    Rm {
        /// Name
        name: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
}

/// Runs `nacre scope`.
///
/// # Errors
/// A message for the user.
pub fn run_scopes(options: &Scopes) -> Result<(), Failure> {
    let (server, bucket) = (&options.server, options.place.bucket.as_str());
    match &options.action {
        ScopeAction::List { format } => {
            let mut listing = Listing::new(&["scope", "collections"]);
            for scope in scopes(server, bucket)? {
                let collections = scope["collections"].as_array().map_or(0, Vec::len);
                listing.add([scope["name"].clone(), collections.into()]);
            }
            format.show(&listing);
        }
        ScopeAction::Create { name } => {
            let form = format!("name={}", escaped(name));
            server.call("POST", &scopes_path(bucket), form.as_bytes())?;
            println!("created the scope {bucket}.{name}");
        }
        ScopeAction::Rm { name, yes } => {
            confirm(*yes, &format!("delete the scope {bucket}.{name} with all of its documents"))?;
            let path = format!("{}/{}", scopes_path(bucket), escaped(name));
            server.call("DELETE", &path, b"")?;
            println!("deleted the scope {bucket}.{name}");
        }
    }
    Ok(())
}

/// Options of `nacre collection`.
#[derive(Args, Clone, Debug)]
pub struct Collections {
    #[command(subcommand)]
    action: CollectionAction,
    #[command(flatten)]
    place: InBucket,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum CollectionAction {
    /// List the collections of a bucket
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Create a collection, and its scope if it does not exist
    Create {
        /// Name, as scope.collection; without a scope it is in _default
        name: String,
    },
    /// Delete a collection with all of its documents
    Rm {
        /// Name, as scope.collection
        name: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
}

/// Runs `nacre collection`.
///
/// # Errors
/// A message for the user.
pub fn run_collections(options: &Collections) -> Result<(), Failure> {
    let (server, bucket) = (&options.server, options.place.bucket.as_str());
    match &options.action {
        CollectionAction::List { format } => {
            let mut listing = Listing::new(&["scope", "collection", "max_ttl_s"]);
            for scope in scopes(server, bucket)? {
                for collection in scope["collections"].as_array().into_iter().flatten() {
                    let [name, ttl] = ["name", "maxTTL"].map(|member| collection[member].clone());
                    listing.add([scope["name"].clone(), name, ttl]);
                }
            }
            format.show(&listing);
        }
        CollectionAction::Create { name } => {
            let (scope, collection) = split(name);
            match create_collection(server, bucket, scope, collection)? {
                true => println!("created the collection {bucket}.{scope}.{collection}"),
                false => println!("the collection {bucket}.{scope}.{collection} exists already"),
            }
        }
        CollectionAction::Rm { name, yes } => {
            let (scope, collection) = split(name);
            let place = format!("{bucket}.{scope}.{collection}");
            confirm(*yes, &format!("delete the collection {place} with all of its documents"))?;
            let [scope, collection] = [scope, collection].map(escaped);
            let path = format!("{}/{scope}/collections/{collection}", scopes_path(bucket));
            server.call("DELETE", &path, b"")?;
            println!("deleted the collection {place}");
        }
    }
    Ok(())
}

/// Creates a missing collection, and its scope. Returns false if the collection exists.
///
/// # Errors
/// The reason, if it cannot be created.
pub fn create_collection(
    server: &Server,
    bucket: &str,
    scope: &str,
    collection: &str,
) -> Result<bool, Failure> {
    let known = scopes(server, bucket)?;
    let named = |all: &[Value], name: &str| all.iter().position(|one| one["name"] == *name);
    let path = scopes_path(bucket);
    match named(&known, scope) {
        None => {
            server.call("POST", &path, format!("name={}", escaped(scope)).as_bytes())?;
        }
        Some(at) => {
            let collections = known[at]["collections"].as_array();
            if collections.is_some_and(|all| named(all, collection).is_some()) {
                return Ok(false);
            }
        }
    }
    let path = format!("{path}/{}/collections", escaped(scope));
    server.call("POST", &path, format!("name={}", escaped(collection)).as_bytes())?;
    Ok(true)
}

fn scopes(server: &Server, bucket: &str) -> Result<Vec<Value>, Failure> {
    let manifest = server.call("GET", &scopes_path(bucket), b"").map_err(about_bucket(bucket))?;
    Ok(manifest["scopes"].as_array().cloned().unwrap_or_default())
}

fn scopes_path(bucket: &str) -> String {
    format!("{BUCKETS}/{}/scopes", escaped(bucket))
}

/// Splits `scope.collection`; a name without a dot is in the default scope.
fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((SCOPE_DEFAULT, name))
}

/// Returns text escaped for a path or a form.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Asks for confirmation at a terminal, unless `--yes` is given.
///
/// # Errors
/// The reason, if there is no terminal or the answer is not yes.
pub fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    use std::io::IsTerminal;
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(format!("this would {what}: repeat it with --yes").into());
    }
    eprint!("Really {what}? [y/N] ");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| error.to_string())?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err("nothing was deleted".into()),
    }
}
