//! Looks for inputs that take new paths through the target that `NACRE_FUZZ_TARGET` names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nacre_fuzz::{TARGETS, Target};
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("NACRE_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, ..)| *name == wanted);
    found.map(|(_, target, _)| *target).expect("NACRE_FUZZ_TARGET names a target")
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
