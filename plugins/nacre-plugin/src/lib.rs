//! The Rust guest SDK: everything that a plugin needs to fold the change stream into a state and to answer requests from it.
//!
//! A plugin implements [`Service`] and passes the type to [`export!`]. The same type runs as plain Rust in a
//! [`testing::Harness`], so its logic can be tested without Wasm; the WebAssembly component adds only the sandbox. Components are
//! built for `wasm32-unknown-unknown`: there is no WASI, no clock and no randomness. Access to the outside is through [`kv`],
//! [`timer`], [`http`], [`query`], [`metrics`] and [`log`]; each is a capability that a component requests by using it.
//!
//! Plugins of the other worlds implement [`Resolver`], [`Functions`] or [`IndexType`]. Their crates enable the feature of that
//! name and are built one at a time, because a build of this crate for Wasm has one world.
//!
//! ```
//! use nacre_plugin::{Events, Fault, MemoryState, Request, Response, Service, State, StateMut};
//!
//! /// Counts the changes it has seen.
//! struct Counter;
//!
//! impl Service for Counter {
//!     fn describe() -> String {
//!         r#"{"name":"counter","version":"0.1.0","limits":{}}"#.into()
//!     }
//!     fn init(_config: &str) -> Result<Counter, Fault> {
//!         Ok(Counter)
//!     }
//!     fn on_batch(
//!         &mut self,
//!         events: &Events<'_>,
//!         state: &mut dyn StateMut,
//!     ) -> Result<Vec<nacre_plugin::DocumentError>, Fault> {
//!         let seen = state.get(b"n").map_or(0, |n| u64::from_le_bytes(n.try_into().unwrap()));
//!         state.put(b"n", &(seen + events.len() as u64).to_le_bytes());
//!         Ok(Vec::new())
//!     }
//!     fn rollback(
//!         &mut self,
//!         _vb: u16,
//!         seqno: u64,
//!         _: &mut dyn StateMut,
//!     ) -> Result<Option<u64>, Fault> {
//!         Ok(Some(seqno)) // The counter still includes the removed changes.
//!     }
//!     fn handle(&mut self, _: &Request, state: &dyn State) -> Result<Response, Fault> {
//!         Ok(Response::json(200, format!("{:?}", state.get(b"n"))))
//!     }
//! }
//!
//! nacre_plugin::export!(Counter);
//! ```

#[cfg(any(all(target_arch = "wasm32", feature = "allocator"), test))]
mod allocator;
#[cfg(target_arch = "wasm32")]
pub mod bindings;
pub mod btree;
#[cfg(any(
    all(
        target_arch = "wasm32",
        not(any(feature = "resolver", feature = "functions", feature = "index-type"))
    ),
    test
))]
mod buffer;
// A pure plugin has no capabilities; plain Rust has all of them, so that tests need no features.
#[cfg(not(all(
    target_arch = "wasm32",
    any(feature = "resolver", feature = "functions", feature = "index-type")
)))]
mod capability;
pub mod collate;
#[cfg(any(target_arch = "wasm32", test))]
mod compare;
mod event;
mod export;
mod pure;
mod service;
mod state;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[cfg(not(all(
    target_arch = "wasm32",
    any(feature = "resolver", feature = "functions", feature = "index-type")
)))]
pub use capability::{blob, http, kv, metrics, query, timer, turn};
pub use event::{DATATYPE_JSON, DecodeError, Event, EventKind, Events, Previous, pack};
pub use pure::{Conflict, Functions, History, IndexEntry, IndexType, Resolver, Verdict, Version};
pub use service::{Chunk, DocumentError, Fault, Header, Request, Response, Service, Timer};
pub use state::{Entry, MemoryState, State, StateMut, successor};

#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
#[global_allocator]
static ALLOCATOR: allocator::Allocator<std::alloc::System> =
    allocator::Allocator::new(std::alloc::System);

/// Writes an informational line to the log of the deployment.
pub fn log(message: &str) {
    #[cfg(target_arch = "wasm32")]
    bindings::log_info(message);
    #[cfg(not(target_arch = "wasm32"))]
    testing::outside::with(|outside| outside.log.push(message.to_owned()));
}
