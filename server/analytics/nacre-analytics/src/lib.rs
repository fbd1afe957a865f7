//! Analytics next to the operational load: columns that follow collections by DCP, and SQL++ over them.
//!
//! ```text
//! node ─ DCP ─► Follower ─► Shadow: segments of columns, deleted bitmaps      (a copy of each collection)
//!                              │ Snapshot
//! POST /analytics/service ─► statement ─► names ─┬─► plan: LogicalPlan over columns ─► rows of JSON
//!                              │ catalog         ├─► rows: the project's evaluator, document by document
//!                                                └─► processes: fragments for the processes that have the other documents
//! ```
//!
//! The process knows only the protocols of a node and its own folder: if it is killed, the node loses only a DCP consumer. Users
//! and rights are those of the node, which is asked for each request.
//!
//! *Invariants:* a query reads snapshots that never change; a value is never converted to another kind; a query without a plan
//! over columns is evaluated document by document, so correct answers take precedence over fast ones.

pub mod answer;
pub mod catalog;
pub mod column;
pub mod engine;
pub mod error;
pub mod fleet;
pub mod follower;
pub mod names;
pub mod node;
pub mod plan;
pub mod processes;
pub mod request;
pub mod rows;
pub mod server;
pub mod shadow;
pub mod statement;
mod unnest;
