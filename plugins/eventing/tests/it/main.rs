//! Functions as plain Rust, without the sandbox.

mod bindings;
mod fixture;
mod handlers;
mod services;
mod timers;
