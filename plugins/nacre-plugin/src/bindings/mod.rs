//! The generated ABI of one world, and the glue between it and what plugins implement.
//!
//! The generator names what it makes by interface for the whole crate, and all worlds have `lifecycle`: so that a build of
//! this crate for Wasm has the world `service`, or by feature one of the others.

// The generator documents from the WIT, but not every item that it derives from it.
#![allow(missing_docs, reason = "generated from plugins/wit, which is documented")]

#[cfg(not(any(feature = "resolver", feature = "functions", feature = "index-type")))]
pub(crate) mod outside;
#[cfg_attr(feature = "resolver", path = "resolver.rs")]
#[cfg_attr(feature = "functions", path = "functions.rs")]
#[cfg_attr(feature = "index-type", path = "index_type.rs")]
#[cfg_attr(
    not(any(feature = "resolver", feature = "functions", feature = "index-type")),
    path = "service.rs"
)]
pub mod world;

#[cfg(any(
    all(feature = "resolver", feature = "functions"),
    all(feature = "resolver", feature = "index-type"),
    all(feature = "functions", feature = "index-type"),
))]
compile_error!("a component has one world: build plugins of different worlds by themselves");

use crate::Fault;
use world::nacre::plugin::{log, types};

/// Adds an informational line to the log of the deployment.
pub(crate) fn log_info(message: &str) {
    log::write(log::Level::Info, message);
}

pub(crate) fn fault(fault: Fault) -> types::Fault {
    match fault {
        Fault::Retry(message) => types::Fault::Retry(message),
        Fault::Reject(message) => types::Fault::Reject(message),
        Fault::Fatal(message) => types::Fault::Fatal(message),
    }
}

/// `lifecycle.init` for what is kept in `slot`.
pub fn init<P>(
    slot: &mut Option<P>,
    start: impl FnOnce() -> Result<P, Fault>,
) -> Result<(), types::Fault> {
    // A panic aborts, and an abort says nothing: its message goes to the log first.
    std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string())));
    *slot = Some(start().map_err(fault)?);
    Ok(())
}

/// What `init` has put into `slot`.
pub fn ready<P>(slot: &mut Option<P>) -> Result<&mut P, types::Fault> {
    slot.as_mut().ok_or_else(|| types::Fault::Fatal("init was not called, or failed".into()))
}
