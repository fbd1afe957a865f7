//! HTTP infrastructure for REST: a service describes its endpoints in a table of routes, and the server looks up
//! requests in it.
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
//! A row contains everything that the server needs before the handler runs: method, path, required privilege, and maximum body
//! size. The check of privileges, the answer to other methods, and the documented list of endpoints all derive from the rows.
//!
//! Stream wrappers below the HTTP parser correct malformed requests ([`request_target`]), and close connections whose client does
//! not read ([`patient`]) or still sends ([`linger`]). [`body`] creates replies, [`pieces`] streams bodies, [`streams`] limits
//! long answers, and [`blocking_yield`] runs the threads that read and answer requests themselves. [`origin`] keeps pages of other sites
//! out, [`strangers`] limits connections without a login, [`memory`] the bytes of bodies; [`documents`] and [`problem`] are shared by
//! all APIs for documents, [`tokens`] by all APIs with tokens, and [`websocket`] is the handshake of devices.
//!
//! *Invariants:* no two rows have the same method and shape of path. The order of rows does not decide which row answers: literal
//! segments take precedence over parameters, and parameters over the rest of a path. A handler runs only after [`Access::check`]. This
//! crate knows no service and no node, and opens no socket: connections are arguments.

mod access;
pub mod blocking_yield;
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
pub mod tokens;
pub mod websocket;

pub use access::{Access, Caller};
pub use pattern::{Parameters, Pattern};
pub use table::{Allow, BODY_BYTES_MAX, Found, Lookup, Method, Route, Table};

/// Maximum size of a request's first line and headers, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
