//! The world `functions`.

use super::{fault, ready};
use crate::Functions;

wit_bindgen::generate!({
    path: "../wit",
    world: "functions",
    pub_export_macro: true,
    export_macro_name: "export_functions",
    default_bindings_module: "nacre_plugin::bindings::world",
});

/// Calls `scalar.call` of the functions in `slot`.
pub fn call<F: Functions>(
    slot: &mut Option<F>,
    name: &str,
    arguments: &str,
) -> Result<String, super::types::Fault> {
    ready(slot)?.call(name, arguments).map_err(fault)
}
