//! Language-neutral conformance cases, and the runner that runs them against any host.
//!
//! The cases are data (`cases/`, described by `schema/case.schema.json`), so that runners in other languages can use them too.
//! This crate is the reference runner. Other tests use the clients that it consists of: [`kv::KvClient`] speaks the binary
//! protocol, [`http`] sends one request at a time, and [`slow_link`] simulates a distance between two places.
//!
//! The crate uses none of the server's crates: it has separate code to encode and decode frames, so that an error on one side
//! cannot hide on the other.

#![expect(
    clippy::disallowed_methods,
    reason = "a client of real servers: it opens sockets, and waits for what a server does in its own time"
)]

pub mod case;
pub mod http;
pub mod kv;
pub mod names;
pub mod run;
pub mod slow_link;
