//! The interface of queries to a store ([`Datastore`]), and a store in memory ([`MemoryDatastore`]).
//!
//! ```text
//! nacre-query ─► Datastore ─┬─► the host of the component, which asks the nodes
//!                           └─► MemoryDatastore: tests, and whoever has documents and no node
//! ```

mod memory;
pub mod options;
mod sequences;
mod store;

pub use memory::{Authorizer, Evaluator, MemoryDatastore, Searcher};
pub use store::{
    Action, Consistency, Datastore, Document, Documents, Found, FunctionPath, Index, IndexRange,
    Indexed, Keyspace, Mutation, Notes, Platform, Refusal, Rights, Script, Span, Staged, Together,
    TransactionSettings, TransactionStep, binary,
};
