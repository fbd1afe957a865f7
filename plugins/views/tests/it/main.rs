//! The views plugin as plain Rust, without the sandbox.

mod fixture;
mod model;
mod parameters;
mod rows;
