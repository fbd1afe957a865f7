//! A plugin that does what it is told: for the tests of the host. No node runs it.
//!
//! A document, the payload of a timer and the body of a request are scripts: JSON arrays of steps, each an array of a
//! word and its arguments. What a step that asks for something is told goes into the state at `told`, a line a step.

#[cfg(feature = "functions")]
mod functions;
#[cfg(feature = "index-type")]
mod index_type;
#[cfg(feature = "resolver")]
mod resolver;
#[cfg(not(any(feature = "resolver", feature = "functions", feature = "index-type")))]
mod service;

#[cfg(not(any(feature = "resolver", feature = "functions", feature = "index-type")))]
pub use service::Probe;
