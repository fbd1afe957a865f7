//! A profile of calls: their stacks, sampled once per tick while a profile is being taken.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use wasmtime::WasmBacktrace;

/// Maximum number of frames of a stack. Of a deeper stack, the innermost frames are kept.
const FRAMES_MAX: usize = 64;
/// Maximum number of distinct stacks.
const STACKS_MAX: usize = 10_000;
/// Name for all further stacks.
const OTHERS: &str = "others";

/// Counts the stacks of all instances of a deployment.
#[derive(Default)]
pub struct Profiler {
    is_on: AtomicBool,
    stacks: Mutex<BTreeMap<String, u64>>,
}

impl Profiler {
    /// Starts counting. Returns false if a profile is already being taken.
    pub fn begin(&self) -> bool {
        let begins = !self.is_on.swap(true, Ordering::AcqRel);
        if begins {
            self.stacks.lock().clear();
        }
        begins
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts the stack of a call.
    pub fn add(&self, backtrace: &WasmBacktrace) {
        let stack = folded(backtrace);
        let mut stacks = self.stacks.lock();
        let known = stacks.len() < STACKS_MAX || stacks.contains_key(&stack);
        *stacks.entry(if known { stack } else { OTHERS.into() }).or_default() += 1;
    }

    /// Stops counting. Returns a line for each stack: its frames from outermost to innermost, and its number of
    /// samples.
    pub fn end(&self) -> String {
        self.is_on.store(false, Ordering::Release);
        let stacks = std::mem::take(&mut *self.stacks.lock());
        let mut lines = String::new();
        for (stack, count) in stacks {
            let _ = writeln!(lines, "{stack} {count}");
        }
        lines
    }
}

fn folded(backtrace: &WasmBacktrace) -> String {
    let frames = backtrace.frames();
    let mut stack = String::new();
    for frame in frames.iter().take(FRAMES_MAX).rev() {
        if !stack.is_empty() {
            stack.push(';');
        }
        match frame.func_name() {
            // Characters that separate frames or lines are replaced.
            Some(name) => stack
                .extend(name.chars().map(|it| if it == ';' || it.is_control() { ':' } else { it })),
            None => {
                let _ = write!(stack, "function {}", frame.func_index());
            }
        }
    }
    stack
}
