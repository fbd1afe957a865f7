//! Tests queries from text to rows.

mod conformance;
mod costs;
mod explain;
mod indexes;
mod limits;
mod management;
mod naive;
mod nearest;
mod response;
mod rights;
mod search;
mod transactions;
mod world;
