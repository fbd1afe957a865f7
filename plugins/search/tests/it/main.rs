//! Search as plain Rust: no node, no sandbox.

mod bounds;
mod conformance;
mod naive;
mod namesakes;
mod partitions;
mod persistence;
mod recall;
mod service;
mod size;
mod stored;
mod synonyms;
mod world;
