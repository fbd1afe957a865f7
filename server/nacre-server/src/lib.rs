//! The node's real world as a library: sockets, threads, clock, files, configuration, REST.
//!
//! [`serve()`] runs a node from its options until it is stopped. [`SystemPlatform`] is the platform of such a node:
//! clocks of the machine, a data directory, a thread for each task. Properties of the process as a whole are not
//! changed here, but requested from a [`Process`]; the binary `nacre` implements it with a panic hook, limits and
//! priorities, [`Embedded`] leaves everything as it is.
//!
//! *Invariants:* no code of the node but this crate, nacre-links and nacre-store opens sockets or files or reads a clock; this crate
//! installs no panic hook, signal handler, allocator or log.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate is the node's real world: clock, chance, files, sockets"
)]

mod dev;
mod memory;
mod ports;
mod process_usage;
mod serve;
mod services;

pub use dev::{Dev, dev};
pub use nacre_links::platform::SystemPlatform;
pub use nacre_links::process::{Embedded, Priority, Process};
pub use nacre_links::vital::{depend_on_this_thread, is_vital_thread};
pub use serve::{Serve, serve, serve_with};
pub use services::all as services;
