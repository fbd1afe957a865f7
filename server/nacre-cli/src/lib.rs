//! Commands of the binary `nacre` that are clients: they talk to a node as any application does.
//!
//! ```text
//! bucket, scope, collection      where documents are           sh       statements of SQL++
//! doc, sample                    documents                     context  nodes and logins under names
//! user, token, index, function   what there is besides         xdcr     buckets that follow those of other clusters
//! cluster, ping                  nodes, and a look at them     mcp      all of it for agents
//! sdk                            types for programs
//! ```
//!
//! Other commands are in crates that depend on this one: `backup`, `restore`, `export` and `import` in nacre-backup-tools, `plugin` in
//! nacre-plugin-tools, `bench` in nacre-bench.
//!
//! Each module has an `Options` (or the command's name) for the command line, and a function that runs it and returns a sentence for the
//! person at the terminal if it fails. All commands share [`Server`], the options that name a node and a user, [`Cluster`] for connections
//! to the key-value service of its nodes, [`Listing`] for answers that are rows, and [`Failure`].
//!
//! *Invariant:* nothing here knows how a node works. Of the server's crates the commands use the words and the wire format.
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
pub use target::Server;
