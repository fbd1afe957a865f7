//! Queries from text to rows.

mod conformance;
mod world;
