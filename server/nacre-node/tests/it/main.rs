//! A node without sockets, threads or disks: its tasks are stepped by the test.

mod flusher;
mod session;
mod world;
