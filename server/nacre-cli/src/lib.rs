//! Commands of the binary `nacre` that are clients: they talk to a node as any application does.
//!
//! ```text
//! bucket, scope, collection      where documents are           sh       statements of SQL++
//! doc, import, sample            documents                     context  nodes and logins under names
//! user, token, index, function   what there is besides         xdcr     buckets that follow those of other clusters
//! cluster, ping                  nodes, and a look at them     mcp      all of it for agents
//! backup, restore, export        copies of a running cluster   sdk      types for programs
//! ```
//!
//! `bench` and `plugin` are crates of their own: nacre-bench and nacre-plugin-tools.
//!
//! Each module has an `Options` (or the command's name) for the command line, and a function that runs it and returns a sentence for the
//! person at the terminal if it fails. [`target`] has the options that all of them share: which node, and as whom.
//!
//! *Invariant:* nothing here knows how a node works. Of the server's crates the commands use the words and the wire format.
#![expect(
    clippy::disallowed_methods,
    reason = "tools of the command line read files, clocks and sockets"
)]

pub mod account;
mod address;
pub mod backup;
pub mod cluster;
pub mod context;
pub mod contexts;
pub mod document;
pub mod export;
mod failure;
pub mod function;
pub mod import;
pub mod index;
pub mod keyspace;
mod listing;
mod loader;
pub mod mcp;
mod parquet_writer;
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
pub use target::Server;
