//! Commands of the binary `nacre` that move documents in and out of a running cluster.
//!
//! ```text
//! backup, restore     copies of a cluster in a repository: a folder, or a bucket of an object store      backup/
//! export              documents as lines of JSON, CSV or Parquet                                         export.rs, parquet_writer.rs
//! import              documents from such files                                                          import.rs, import/rows.rs, key_pattern.rs,
//!                                                                                                        loader.rs, parquet_reader.rs
//! ```
//!
//! The format of a repository is in nacre-backup. The options that name a node are those of all commands, in [`nacre_cli`].
#![expect(
    clippy::disallowed_methods,
    reason = "tools of the command line read files, clocks and sockets"
)]

pub mod backup;
pub mod export;
pub mod import;
mod key_pattern;
mod loader;
mod parquet_reader;
mod parquet_writer;
