//! The commands of the binary `nacre` that are clients: they talk to a node like any application.
//!
//! ```text
//! bucket, scope, collection      keyspaces                     sh       statements of SQL++
//! doc, sample                    documents                     context  named nodes and logins
//! user, token, index, function   definitions                   xdcr     replication to other clusters
//! cluster, ping                  nodes                         mcp      tools for agents
//! sdk                            types for application code
//! ```
//!
//! Other commands are in crates that depend on this one: `backup`, `restore`, `export` and `import` in nacre-backup-tools, `plugin` in
//! nacre-plugin-tools, `bench` in nacre-bench.
//!
//! Each module has an `Options` type (or one with the command's name) for the command line, and a function that runs the command
//! and returns a message for the user if it fails. All commands share [`Server`], the options that name a node and a user,
//! [`Cluster`] for connections to the key-value service of its nodes, [`Listing`] for answers with rows, and [`Failure`].
//!
//! *Invariant:* nothing here depends on how a node works. Of the server's crates, the commands use only the words and the wire
//! format.
#![expect(
    clippy::disallowed_methods,
    reason = "tools of the command line read files, clocks and sockets"
)]

pub mod account;
mod address;
pub mod cluster;
pub mod context;
pub mod contexts;
pub mod document;
mod failure;
pub mod function;
pub mod index;
pub mod keyspace;
mod listing;
pub mod mcp;
pub mod ping;
mod reach;
pub mod sample;
pub mod sdk;
pub mod sh;
mod statement;
mod target;
pub mod token;
mod trust;
pub mod xdcr;

pub use failure::{Failure, Kind};
pub use listing::{Format, Listing};
pub use reach::Cluster;
pub use statement::rows as query;
pub use target::Server;
