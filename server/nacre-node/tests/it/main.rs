//! A node without sockets, threads or disks: its tasks are stepped by the test.

mod agreement;
mod arrears;
mod changes;
mod conflicts;
mod consumer;
mod dcp;
mod durability;
mod flusher;
mod history;
mod indexes;
mod logins;
mod memory;
mod nodes;
mod orchestration;
mod replication;
mod rights;
mod session;
mod transactions;
mod versions;
mod world;
