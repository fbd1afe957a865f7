//! Language-neutral conformance cases and the runner that plays them against any host.
//!
//! The cases are data (`cases/`, described by `schema/case.schema.json`), so that a runner in another language can
//! play them too. This crate is the reference runner, and the clients it is made of, for other tests to use:
//! [`kv::KvClient`] speaks the binary protocol, [`http`] is a request at a time, and [`slow_link`] is a distance between two places.
//!
//! Nothing here comes from the server's crates: frames are encoded and decoded anew, so that an error on one side
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
