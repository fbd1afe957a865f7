//! Capabilities other than the state: access of a service to the world outside. A component requests a
//! capability by using it.

pub mod blob;
pub mod http;
pub mod kv;
pub mod metrics;
pub mod query;
pub mod timer;
pub mod turn;

#[cfg(target_arch = "wasm32")]
use crate::bindings::outside;
#[cfg(not(target_arch = "wasm32"))]
use crate::testing::outside;
