//! Queries from text to rows.

mod conformance;
mod explain;
mod limits;
mod management;
mod response;
mod transactions;
mod world;
