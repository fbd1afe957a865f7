//! Buckets and sessions without a node. The tests step the tasks.

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
