//! `log`: lines for the operator.

use crate::abi::nacre::plugin::log::{Host, Level};
use crate::capability::Capability;
use crate::instance::Data;
use wasmtime::Result;

/// Maximum number of log lines per call, and of characters per line.
const LINES_MAX: usize = 1024;
const LINE_CHARS_MAX: usize = 2000;

/// A line in a plugin's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// The text.
    pub message: String,
}

impl Host for Data {
    fn write(&mut self, level: Level, message: String) -> Result<()> {
        self.count(Capability::Log)?;
        if self.log.len() < LINES_MAX {
            let level = match level {
                Level::Debug => "debug",
                Level::Info => "info",
                Level::Warn => "warn",
                Level::Error => "error",
            };
            let message = message.chars().take(LINE_CHARS_MAX).collect();
            self.log.push(LogLine { level, message });
        }
        Ok(())
    }
}
