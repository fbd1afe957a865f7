//! Commands of the binary `nacre` that are clients: they talk to a node as any application does, or work on plugins without one.
//!
//! ```text
//! sh       statements of SQL++          import   documents from a file
//! cluster  nodes, and a look at them    bench    load, and figures
//! plugin   projects, packages, deployments
//! xdcr     buckets that follow buckets of other clusters
//! backup   copies of a running cluster      restore   back from them       export   documents as lines
//! ```
//!
//! Each module has an `Options` (or the command's name) for the command line, and a function that runs it and returns a sentence for the
//! person at the terminal if it fails. [`target`] has the options that all of them share: which node, and as whom.
//!
//! *Invariant:* nothing here knows how a node works. Of the server's crates the commands use the words, the wire format, and the engine
//! of plugins, so that a plugin is tested in the host that a node runs.
#![expect(
    clippy::disallowed_methods,
    reason = "tools of the command line read files, clocks and sockets"
)]

pub mod backup;
pub mod bench;
pub mod cluster;
pub mod export;
pub mod import;
mod loader;
pub mod plugin;
pub mod sh;
mod target;
mod trust;
pub mod xdcr;
