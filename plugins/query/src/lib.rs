//! SQL++ queries: executes statements over a given datastore, clock and source of randomness.
//!
//! ```text
//! Request ─ nacre_sql::parse ─► Statement ─ resolve ─ nacre_planner::plan ─► Node ─ exec ─► rows ─► Response, in pieces
//!                                                              │                      │
//!                                                       Datastore::indexes   Datastore::{fetch, scan, scan_index}
//! ```
//!
//! Invariants: no clock, randomness, store or thread except those that are passed in; rows are pulled, so nothing is
//! read that is not requested; kept data (sorts, groups, joins, sets) is charged to the request's quota; a statement
//! that changes documents finds all of them before it changes the first.

mod admin;
mod administer;
mod catalog;
#[cfg(target_arch = "wasm32")]
mod component;
mod controls;
mod curl;
mod dml;
mod exec;
mod function;
#[cfg(target_arch = "wasm32")]
mod host;
mod infer;
mod lines;
mod object_text;
mod prepared_key;
mod prepared_use;
mod request;
mod resolve;
mod response;
mod rights;
mod run;
mod script;
mod search;
mod service;
mod service_functions;
mod signature;
mod statistics;
mod style;
mod transaction;
mod vectors;
mod watch;

pub use admin::{AdminReply, admin};
pub use nacre_datastore::{
    Action, Authorizer, Consistency, Datastore, Document, Evaluator, Found, FunctionPath, Index,
    IndexRange, Indexed, Keyspace, MemoryDatastore, Mutation, Notes, Platform, Refusal, Rights,
    Script, Searcher, Span, Staged, TransactionSettings, TransactionStep,
};
pub use request::Request;
pub use response::{Piece, Response, Status};
pub use run::Settings;
pub use service::Service;
pub use style::Style;
pub use transaction::Transaction;
