//! The host's side of the world `service`, generated from `plugins/wit`.

wasmtime::component::bindgen!({
    path: "../../plugins/wit",
    world: "service",
    imports: { default: trappable },
});
