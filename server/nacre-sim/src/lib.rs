//! A cluster in one thread, under faults determined by a seed.
//!
//! The nodes are complete [`nacre_node`] nodes; their clocks, disks and connections, and Raft's messages, are simulated.
//! [`Simulation`] is one run: clients write, read and stream a bucket of several nodes while processes are killed, paused and cut
//! off, disks fill up or tear a commit, clocks drift, leaders change and operators move copies.
//!
//! | condition | checked |
//! | --- | --- |
//! | No two nodes serve a vBucket at once; maps never go back; no watermark claims more than is stored | each 25 ms |
//! | Without faults the copies become complete, and every key answers | at the end of each fault, and of the run |
//! | Of the polled copies, one is activated that has acknowledged as much as any | with each failover decision |
//! | A majority of copies has each acknowledged durable write, persisted as its level requires | with each acknowledgement |
//! | Each copy of a term has all durable writes of earlier terms; a majority has those of the term, persisted as their levels require | each 100 ms |
//! | The history of each key is linearizable, at every level at which nothing may be lost; CAS values only grow ([`history`]) | at the end |
//! | All copies and their disks have the same documents; a consumer that followed, resumed and rolled back has exactly these | at the end |
//! | Persisted writes survive a power cut of all nodes | at the end, in some runs |
//! | No node panics | always |
//!
//! [`clusters`] is another world: buckets of several clusters that replicate to each other.

#![allow(clippy::disallowed_methods, reason = "the command reads the clock of the machine")]

mod chance;
pub mod cluster;
pub mod clusters;
pub mod faults;
mod frame;
pub mod history;
mod promise;
mod raft;
mod reader;
mod services;
mod simulation;
mod workload;
mod world;

pub use chance::Chance;
pub use cluster::{ClientEvent, Cluster};
pub use raft::SimulatedRaft;
pub use simulation::{Simulation, Summary};
pub use workload::Counts;
pub use world::{Clock, Disk, World};
