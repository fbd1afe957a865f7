//! Buckets and sessions without a node: their tasks are stepped by the test.

mod conflicts;
mod connection;
mod consumer;
mod dcp;
mod durability;
mod history;
mod host;
mod memory;
mod store;
mod versions;
mod watermarks;
mod world;
