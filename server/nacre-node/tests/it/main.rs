//! Tests of a node without sockets, threads or disks: each test steps the node's tasks.

mod agreement;
mod changes;
#[path = "../../../nacre-bucket/tests/it/connection.rs"]
mod connection;
mod flusher;
mod history;
mod indexes;
mod logins;
mod nodes;
mod orchestration;
mod pending_effects;
mod replication;
mod rights;
mod services;
mod session;
mod transactions;
mod world;
