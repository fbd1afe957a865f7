//! `timer`: calls at a later time, as part of the state.

use crate::abi::nacre::plugin::timer::Host;
use crate::capability::Capability;
use crate::instance::Data;
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;
use wasmtime::Result;

/// Bytes of a timer's name at most.
pub const TIMER_NAME_BYTES_MAX: usize = 1024;
/// What a timer takes beside its name and payload.
const TIMER_BYTES: usize = 64;

/// When a timer fires, and what it then gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// Microseconds since the Unix epoch.
    pub due_us: u64,
    /// What was given when it was set.
    pub payload: Vec<u8>,
}

/// The timers of a partition. Clones are snapshots.
#[derive(Clone, Default)]
pub struct Timers {
    by_name: OrdMap<Arc<str>, Arc<Timer>>,
    by_due: OrdSet<(u64, Arc<str>)>,
    bytes: usize,
}

impl Timers {
    /// Bytes of all timers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<u64> {
        self.by_due.get_min().map(|(due_us, _)| *due_us)
    }

    /// Those due at `now_us`, at most `count` of them, by time and then name.
    pub fn due(&self, now_us: u64, count: usize) -> Vec<(Arc<str>, Arc<Timer>)> {
        self.by_due
            .iter()
            .take_while(|(due_us, _)| *due_us <= now_us)
            .take(count)
            .filter_map(|(_, name)| Some((Arc::clone(name), Arc::clone(self.by_name.get(name)?))))
            .collect()
    }

    /// All of them, by time.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Timer)> {
        self.by_due.iter().filter_map(|(_, name)| Some((&**name, self.get(name)?)))
    }

    pub fn get(&self, name: &str) -> Option<&Timer> {
        self.by_name.get(name).map(|timer| &**timer)
    }

    pub fn set(&mut self, name: Arc<str>, timer: Arc<Timer>) {
        self.cancel(&name);
        self.bytes += TIMER_BYTES + name.len() + timer.payload.len();
        self.by_due.insert((timer.due_us, Arc::clone(&name)));
        self.by_name.insert(name, timer);
    }

    pub fn cancel(&mut self, name: &str) -> bool {
        let Some((name, timer)) = self.by_name.remove_with_key(name) else { return false };
        self.bytes -= TIMER_BYTES + name.len() + timer.payload.len();
        self.by_due.remove(&(timer.due_us, name));
        true
    }
}

impl Host for Data {
    fn set(&mut self, name: String, due_us: u64, payload: Vec<u8>) -> Result<()> {
        self.count(Capability::Timer)?;
        self.view.set_timer(&name, Timer { due_us, payload }).map_err(wasmtime::Error::new)
    }

    fn cancel(&mut self, name: String) -> Result<bool> {
        self.count(Capability::Timer)?;
        self.journal.timer(&name);
        self.view.cancel_timer(&name).map_err(wasmtime::Error::new)
    }

    fn is_set(&mut self, name: String) -> Result<bool> {
        self.count(Capability::Timer)?;
        self.journal.timer(&name);
        Ok(self.view.state.timers.get(&name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_by_time_and_the_last_setting_counts() {
        let mut timers = Timers::default();
        let mut set = |name: &str, due_us| {
            let payload = name.as_bytes().to_vec();
            timers.set(name.into(), Arc::new(Timer { due_us, payload }));
        };
        for (name, due_us) in [("c", 30), ("a", 20), ("b", 20), ("d", 10), ("d", 40)] {
            set(name, due_us);
        }
        let names = |timers: &Timers, now, count| -> String {
            timers.due(now, count).iter().map(|(name, _)| &**name).collect()
        };
        assert_eq!((timers.next(), &names(&timers, 30, 9)[..]), (Some(20), "abc"));
        assert_eq!(names(&timers, 100, 2), "ab");
        assert!(timers.cancel("a") && !timers.cancel("a"));
        assert_eq!(names(&timers, 100, 9), "bcd");
        for name in ["b", "c", "d"] {
            timers.cancel(name);
        }
        assert_eq!((timers.bytes(), timers.next()), (0, None));
    }
}
