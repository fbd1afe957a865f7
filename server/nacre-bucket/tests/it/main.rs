//! A bucket without a node: its tasks are stepped by the test.

mod store;
mod watermarks;
mod world;
