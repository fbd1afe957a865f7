//! Tests of the gateway from outside: a real process, real sockets, real signals, and a real node as its
//! upstream.
#![expect(clippy::disallowed_methods, reason = "these tests start processes and wait for them")]

mod documents;
mod gateway;
mod node;
mod refusals;
mod sync;
#[cfg(feature = "views")]
mod views;
