//! REST plumbing. A service describes its endpoints in a table of routes; the server looks requests up in it.
//!
//! ```
//! use nacre_auth::Privilege;
//! use nacre_http::{Access, Lookup, Method, Route, Table};
//!
//! fn list() -> &'static str { "all groups" }
//! fn drop_one() -> &'static str { "dropped" }
//!
//! const GROUPS: &[Route<fn() -> &'static str>] = &[
//!     Route::new(Method::Get, "/groups", Access::Cluster(Privilege::ReadCluster), list),
//!     Route::new(Method::Delete, "/groups/{group}", Access::Cluster(Privilege::AdministerCluster), drop_one),
//! ];
//! let table = Table::new([GROUPS]);
//! let Lookup::Found(found) = table.find("DELETE", &["groups", "a/b"]) else { panic!() };
//! assert_eq!((found.route.handler)(), "dropped");
//! assert_eq!(found.parameters.get("group"), Some("a/b"));
//! ```
//!
//! One row has everything that is known of an endpoint before its handler runs: method, path, the right that a user
//! needs, the largest body. The check of rights, the answer to other methods, and the documented list of endpoints
//! derive from the rows.
//!
//! Streams beneath the HTTP parser correct what clients send ([`request_target`]), and end connections whose client takes nothing
//! ([`patient`]) or still sends ([`linger`]). [`body`] has the texts of replies, [`pieces`] bodies that are sent as they come,
//! [`streams`] the bounds of answers that take long, and [`apart`] the threads that answer the requests that they read. [`origin`]
//! keeps pages of other sites out, [`strangers`] bounds connections without a login, [`memory`] the bytes of bodies; [`documents`] and
//! [`problem`] have what all APIs for documents share, [`websocket`] the handshake of devices.
//!
//! *Invariants:* no two rows have the same method and shape of a path, and which row answers does not depend on their order: literal
//! segments come before parameters, and those before the rest of a path. A handler runs only after [`Access::check`]. This crate knows no
//! service and no node, and opens no socket: connections are arguments.

mod access;
pub mod apart;
pub mod body;
pub mod dates;
pub mod documents;
pub mod linger;
pub mod memory;
pub mod origin;
pub mod patient;
mod pattern;
pub mod pieces;
pub mod problem;
pub mod request_target;
pub mod strangers;
pub mod streams;
mod table;
pub mod websocket;

pub use access::{Access, Caller};
pub use pattern::{Parameters, Pattern};
pub use table::{Allow, BODY_BYTES_MAX, Found, Lookup, Method, Route, Table};

/// The largest line and headers of a request, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
