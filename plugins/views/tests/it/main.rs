//! The views plugin as plain Rust, without the sandbox.

mod fixture;
mod model;
mod nodes;
mod parameters;
mod parts;
mod rows;
