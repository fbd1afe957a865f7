//! The clock of user code: the time of the batch or request, set from outside.

use std::sync::atomic::{AtomicU64, Ordering};

// One number for the whole module: in the sandbox QuickJS requests the time through a C function without
// context, and there is only one engine.
static NOW_US: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set(now_us: u64) {
    NOW_US.store(now_us, Ordering::Relaxed);
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn now_ms() -> f64 {
    (NOW_US.load(Ordering::Relaxed) / 1000) as f64
}

/// The function that QuickJS calls for the time of day when it is built for `wasm32-unknown-unknown`.
#[cfg(target_arch = "wasm32")]
#[unsafe(no_mangle)]
extern "C" fn __rquickjs_host_now_us() -> f64 {
    NOW_US.load(Ordering::Relaxed) as f64
}
