//! The interface between queries and a store ([`Datastore`]), and an in-memory store
//! ([`MemoryDatastore`]).
//!
//! ```text
//! nacre-query ─► Datastore ─┬─► the host of the component, which asks the nodes
//!                           └─► MemoryDatastore: tests, and programs with documents but no node
//! ```

mod memory;
pub mod options;
mod sequences;
mod store;

pub use memory::{Authorizer, Evaluator, MemoryDatastore, Searcher};
pub use store::{
    Action, Consistency, Datastore, Document, DocumentRange, Documents, Found, FunctionPath, Index,
    IndexRange, Indexed, Keyspace, Mutation, Notes, Platform, Refusal, Rights, Script, Span,
    Staged, TransactionSettings, TransactionStep, binary,
};
