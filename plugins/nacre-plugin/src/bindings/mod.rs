//! The generated ABI of one world, and the conversions between it and the traits that plugins implement.
//!
//! The generator names its output by interface, once per crate, and all worlds have `lifecycle`. Therefore a build of this
//! crate for Wasm contains one world: `service`, or another one selected by a feature.

// The generator documents items from the WIT, but not every item that it derives.
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

/// Calls `lifecycle.init` and stores the plugin in `slot`.
pub fn init<P>(
    slot: &mut Option<P>,
    start: impl FnOnce() -> Result<P, Fault>,
) -> Result<(), types::Fault> {
    // A panic aborts without a message, so the hook writes the message to the log first.
    std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string())));
    *slot = Some(start().map_err(fault)?);
    Ok(())
}

/// Returns the plugin that `init` has stored in `slot`.
pub fn ready<P>(slot: &mut Option<P>) -> Result<&mut P, types::Fault> {
    slot.as_mut().ok_or_else(|| types::Fault::Fatal("init was not called, or failed".into()))
}
