//! A bucket on one node, and the tasks that serve it.
//!
//! ```text
//! command ──► Bucket::apply ──► Vbucket (one short lock)
//!                  │ note, wake
//!                  ├──► Flusher ──► Store   raises `Bucket::persisted`
//!                  └──► readers: streams, plugins, copies on other nodes
//! ```
//!
//! No sockets, no clock, no files: a [`BucketEnv`] gives time and random numbers and runs the [`Task`]s, and the store is handed to
//! [`Bucket::open`].

mod bucket;
pub mod compactor;
pub mod conflict;
mod copies;
pub mod durability;
mod env;
pub mod events;
mod flusher;
mod keeper;
mod lease;
mod line;
pub mod prefetch;
pub mod range_scan;
mod reader;
mod retention;
mod tap;
mod task;
mod ticket;
mod waits;
mod warmup;
mod watermark;
mod worker;

pub use bucket::{Bucket, Event, Home};
pub use copies::{CopyRetention, Trouble};
pub use env::BucketEnv;
pub use lease::Lease;
pub use line::{Line, Lines};
pub use reader::{News, Readers};
pub use tap::Tap;
pub use task::{Next, Signal, Task, about_to_hold_up, before_holding_up};
pub use ticket::{Ticket, Waiter, Watchers};
pub use watermark::Watermarks;
pub use worker::Jobs;
