//! A client of a node or a cluster on blocking sockets, for the command line and for services that copy data between
//! clusters.
//!
//! ```text
//! Rest          any of several hosts, Basic or Bearer     management, settings, ports of services
//! Connection    one node: HELLO, SCRAM, bucket, TLS       any number of requests in flight
//! Bucket        all nodes of a bucket, by its cluster map documents, with retries when a vBucket has moved
//! DcpConsumer   one node: streams of history              handles flow control and heartbeats
//! ```
//!
//! ```no_run
//! use nacre_client::{Bucket, Key, Login, StoreOptions};
//! let login = Login { user: "ann".into(), password: "secret".into(), bucket: "travel".into() };
//! let mut bucket = Bucket::connect(&["127.0.0.1:11210".into()], None, login)?;
//! let stored = bucket.set(Key::of_default(b"k"), br#"{"a":1}"#, StoreOptions::default())?;
//! let document = bucket.get(Key::of_default(b"k"))?.expect("it was stored");
//! assert_eq!(document.cas, stored.cas);
//! # Ok::<(), nacre_client::Error>(())
//! ```
//!
//! *Invariants:* no data from a server makes a client panic, and memory grows with the bytes that arrive, never with an
//! announced length. A password is never sent over the key-value port: client and server exchange proofs
//! (SCRAM-SHA256). A write whose connection breaks is not repeated: [`Error::is_ambiguous`].
//!
//! The crate has no runtime and starts no threads. The conformance suite deliberately does not use it: the suite's
//! client must not share code with the server under test.
#![expect(
    clippy::disallowed_methods,
    reason = "a client opens sockets and bounds its retries by the clock"
)]

mod bucket;
mod connection;
mod dcp;
mod error;
mod frame;
mod map;
mod rest;
mod subdoc;
mod tls;

pub use bucket::{
    Bucket, Document, Durability, Key, Login, Metadata, Mutation, StoreOptions, Version,
};
pub use connection::{BASIC_FEATURES, Connection};
pub use dcp::{DcpConsumer, Event, EventKind, FailoverEntry, StreamRange, StreamReply};
pub use error::{Error, describe_status};
pub use frame::{Request, Response};
pub use map::ClusterMap;
pub use rest::{Rest, RestError, RestReply};
pub use subdoc::{Lookup, PathMutation, PathOperation, PathResult};
pub use tls::{ClientIdentity, IdentityError, TrustedRoots};
