//! Queries in SQL++: what a statement does, over a datastore, a clock and chance that are handed in.
//!
//! ```text
//! Request ─ nacre_sql::parse ─► Statement ─ resolve ─ nacre_planner::plan ─► Node ─ exec ─► rows ─► Response, in pieces
//!                                                              │                      │
//!                                                       Datastore::indexes   Datastore::{fetch, scan, scan_index}
//! ```
//!
//! Invariants: no clock, chance, store or thread but those that are handed in; rows are pulled, so that nothing is read
//! that nobody asks for; what is kept (sorts, groups, joins, sets) is charged to the request's quota; a statement that
//! changes documents has found them all before it changes the first.

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
