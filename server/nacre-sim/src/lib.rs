//! A cluster in one thread, put through faults that a seed decides.
//!
//! The nodes are whole [`nacre_node`] nodes; their clocks, disks and connections, and Raft's messages, are made here.
//! [`Simulation`] is one run: clients write, read and follow a bucket of several nodes while processes are killed,
//! paused and cut off, disks fill up or tear a commit, clocks run apart, leaders change and operators move copies.
//!
//! | What must be true | where |
//! | --- | --- |
//! | No two nodes serve a vBucket at once; maps never go back; nothing counts as stored that is not there | each 25 ms |
//! | Once nothing is broken the copies are made whole, and every key answers | at the end of each fault, and of the run |
//! | Of the copies that have said how far they are, one serves that has acknowledged as much as any | with each decision about lost nodes |
//! | Most copies have what is acknowledged as durable, and it is stored where its level says | with each acknowledgement |
//! | Whoever counts as a copy of a term has all that was acknowledged as durable before it; most copies have what is of it, and have stored it where its level says | each 100 ms |
//! | What clients saw of each key, one document could have shown them, at every level where nothing is lost; versions only grow ([`history`]) | at the end |
//! | All copies have the same documents, and so have their disks; a consumer that followed, resumed and rolled back knows just these | at the end |
//! | What is stored is there after all nodes have lost their power | at the end, in some runs |
//! | No node panics | always |
//!
//! [`clusters`] is another world: buckets of several clusters that follow each other.

#![allow(clippy::disallowed_methods, reason = "the command reads the clock of the machine")]

mod chance;
pub mod cluster;
pub mod clusters;
mod council;
pub mod faults;
mod frame;
pub mod history;
mod promise;
mod reader;
mod services;
mod simulation;
mod workload;
mod world;

pub use chance::Chance;
pub use cluster::{Cluster, Happening};
pub use council::Council;
pub use simulation::{Simulation, Summary};
pub use workload::Counts;
pub use world::{Clock, Disk, World};
