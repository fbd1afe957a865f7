//! The Rust guest SDK: everything a plugin needs to fold the change stream into a state and answer from it.
//!
//! A plugin implements [`Service`] and names the type in [`export!`]. The same type runs as plain Rust over a
//! [`MemoryState`], which is how its logic is tested and measured; the WebAssembly component adds nothing but
//! the sandbox. It is built for `wasm32-unknown-unknown`: there is no WASI, no clock, no randomness, and what
//! the host grants is exactly what `plugins/wit` imports.
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
//!         Ok(Some(seqno))
//!     }
//!     fn handle(&mut self, _: &Request, state: &dyn State) -> Result<Response, Fault> {
//!         Ok(Response::json(200, format!("{:?}", state.get(b"n"))))
//!     }
//! }
//!
//! nacre_plugin::export!(Counter);
//! ```

#[cfg(target_arch = "wasm32")]
pub mod bindings;
pub mod btree;
pub mod collate;
mod event;
mod service;
mod state;

pub use event::{DATATYPE_JSON, DecodeError, Event, EventKind, Events, pack};
pub use service::{DocumentError, Fault, Request, Response, Service};
pub use state::{Entry, MemoryState, State, StateMut, successor};

/// Adds a line to the log of the deployment. Outside the sandbox there is none, and the line is dropped.
pub fn log(message: &str) {
    #[cfg(target_arch = "wasm32")]
    bindings::log_info(message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}
