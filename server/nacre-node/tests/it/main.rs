//! A node without sockets, threads or disks: its tasks are stepped by the test.

mod flusher;
mod rights;
mod session;
mod world;
