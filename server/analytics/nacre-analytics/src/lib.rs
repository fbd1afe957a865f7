//! Analytics beside the load: columns that follow collections by DCP, and SQL++ over them.
//!
//! ```text
//! node ─ DCP ─► Follower ─► Shadow: segments of columns, deleted bitmaps      (a copy of each collection)
//!                              │ Snapshot
//! POST /analytics/service ─► statement ─► names ─┬─► plan: LogicalPlan over columns ─► rows of JSON
//!                              │ catalog         └─► rows: the project's evaluator, document by document
//! ```
//!
//! The process knows the protocols of a node and its own folder: when it is killed, the node loses a consumer of history and nothing
//! else. Users and rights are the node's, which is asked for each request.
//!
//! *Invariants:* a query reads snapshots that never change; a value is never converted into another kind; what has no plan over columns is
//! evaluated document by document, so that an answer is right before it is fast.

pub mod answer;
pub mod catalog;
pub mod column;
pub mod engine;
pub mod error;
pub mod follower;
pub mod names;
pub mod node;
pub mod plan;
pub mod request;
pub mod rows;
pub mod server;
pub mod shadow;
pub mod statement;
mod unnest;
