//! Timers of a partition: scheduled calls, as a part of its state.

use imbl::{OrdMap, OrdSet};
use nacre_types::Vbid;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::Arc;

/// Maximum length of a timer's name, in bytes.
pub const TIMER_NAME_BYTES_MAX: usize = 1024;
/// Memory of a timer besides its name and payload.
const TIMER_BYTES: usize = 128;

/// A timer: its time and its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Microseconds since the Unix epoch.
    pub due_us: u64,
    /// The payload given when the timer was set.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

/// The vBucket that a timer belongs to and moves with; `None` when it stays on its node.
pub type Home = Option<Vbid>;

/// The timers of a partition: those that fire on this node, and copies of others. Clones are snapshots.
#[derive(Clone, Default)]
pub struct Timers {
    all: OrdMap<(Home, Arc<str>), Arc<Timer>>,
    /// The vBuckets whose timers fire on this node.
    served: OrdSet<Vbid>,
    /// Timers that fire on this node, by name.
    by_name: OrdSet<(Arc<str>, Home)>,
    /// Timers that fire on this node, by time.
    by_due: OrdSet<(u64, Arc<str>, Home)>,
    bytes: usize,
}

impl Timers {
    /// Returns the bytes of all timers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the due time of the first timer.
    pub fn next(&self) -> Option<u64> {
        self.by_due.get_min().map(|(due_us, ..)| *due_us)
    }

    /// Returns up to `count` timers due at `now_us`, by time and then name.
    pub fn due(&self, now_us: u64, count: usize) -> Vec<(Home, Arc<str>, Arc<Timer>)> {
        self.by_due
            .iter()
            .take_while(|(due_us, ..)| *due_us <= now_us)
            .take(count)
            .filter_map(|(_, name, home)| {
                let timer = self.all.get(&(*home, Arc::clone(name)))?;
                Some((*home, Arc::clone(name), Arc::clone(timer)))
            })
            .collect()
    }

    /// Returns the timers of a vBucket whose names come after `name`, in order.
    pub fn after(
        &self,
        vbid: Vbid,
        name: Option<&str>,
    ) -> impl Iterator<Item = (&Arc<str>, &Arc<Timer>)> {
        let start = match name {
            Some(name) => Bound::Excluded((Some(vbid), name.into())),
            None => Bound::Included((Some(vbid), "".into())),
        };
        let all = self.all.range::<_, (Home, Arc<str>)>((start, Bound::Unbounded));
        all.take_while(move |((home, _), _)| *home == Some(vbid))
            .map(|((_, name), timer)| (name, timer))
    }

    /// Returns the timer of `home` with this name.
    pub fn get(&self, home: Home, name: &Arc<str>) -> Option<&Timer> {
        self.all.get(&(home, Arc::clone(name))).map(|timer| &**timer)
    }

    /// Returns the homes whose timers with this name fire on this node.
    pub fn homes(&self, name: &str) -> Vec<Home> {
        let start = (Arc::from(name), None);
        let from = self.by_name.range::<_, (Arc<str>, Home)>(start..);
        from.take_while(|(other, _)| **other == *name).map(|(_, home)| *home).collect()
    }

    /// Returns true if the timers of `home` fire on this node.
    pub fn fires(&self, home: Home) -> bool {
        home.is_none_or(|vbid| self.served.contains(&vbid))
    }

    /// Sets a timer; replaces the one with the same home and name.
    pub fn set(&mut self, home: Home, name: Arc<str>, timer: Arc<Timer>) {
        self.cancel(home, &name);
        self.bytes += TIMER_BYTES + name.len() + timer.payload.len();
        if self.fires(home) {
            self.by_name.insert((Arc::clone(&name), home));
            self.by_due.insert((timer.due_us, Arc::clone(&name), home));
        }
        self.all.insert((home, name), timer);
    }

    /// Removes a timer. Returns true if it existed.
    pub fn cancel(&mut self, home: Home, name: &Arc<str>) -> bool {
        let Some(timer) = self.all.remove(&(home, Arc::clone(name))) else { return false };
        self.bytes -= TIMER_BYTES + name.len() + timer.payload.len();
        self.by_name.remove(&(Arc::clone(name), home));
        self.by_due.remove(&(timer.due_us, Arc::clone(name), home));
        true
    }

    /// Starts or stops the timers of a vBucket on this node.
    pub fn serve(&mut self, vbid: Vbid, is_served: bool) {
        let home = Some(vbid);
        let timers: Vec<_> =
            self.after(vbid, None).map(|(name, timer)| (Arc::clone(name), timer.due_us)).collect();
        for (name, due_us) in timers {
            let (by_name, by_due) = ((Arc::clone(&name), home), (due_us, name, home));
            if is_served {
                self.by_name.insert(by_name);
                self.by_due.insert(by_due);
            } else {
                self.by_name.remove(&by_name);
                self.by_due.remove(&by_due);
            }
        }
        match is_served {
            true => self.served.insert(vbid),
            false => self.served.remove(&vbid),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(due_us: u64) -> Arc<Timer> {
        Arc::new(Timer { due_us, payload: b"p".to_vec() })
    }

    fn names(timers: &Timers, now: u64, count: usize) -> String {
        timers.due(now, count).iter().map(|(_, name, _)| &**name).collect()
    }

    #[test]
    fn timers_come_by_time_and_the_last_setting_counts() {
        let mut timers = Timers::default();
        for (name, due_us) in [("c", 30), ("a", 20), ("b", 20), ("d", 10), ("d", 40)] {
            timers.set(None, name.into(), timer(due_us));
        }
        assert_eq!((timers.next(), &names(&timers, 30, 9)[..]), (Some(20), "abc"));
        assert_eq!(names(&timers, 100, 2), "ab");
        assert!(timers.cancel(None, &"a".into()) && !timers.cancel(None, &"a".into()));
        assert_eq!(names(&timers, 100, 9), "bcd");
        for name in ["b", "c", "d"] {
            timers.cancel(None, &name.into());
        }
        assert_eq!((timers.bytes(), timers.next()), (0, None));
    }

    #[test]
    fn timers_of_a_vbucket_fire_while_it_is_served() {
        let mut timers = Timers::default();
        let home = |vbid| Some(Vbid(vbid));
        for (vbid, name) in [(1, "a"), (1, "b"), (2, "a"), (2, "c")] {
            timers.set(home(vbid), name.into(), timer(10));
        }
        assert_eq!((timers.next(), timers.homes("a")), (None, vec![]), "these are copies");
        timers.serve(Vbid(1), true);
        timers.set(home(1), "d".into(), timer(5));
        assert_eq!((timers.next(), &names(&timers, 10, 9)[..]), (Some(5), "dab"));
        timers.serve(Vbid(2), true);
        assert_eq!(
            (timers.homes("a"), &names(&timers, 10, 9)[..]),
            (vec![home(1), home(2)], "daabc")
        );
        timers.serve(Vbid(1), false);
        assert_eq!((timers.homes("a"), &names(&timers, 10, 9)[..]), (vec![home(2)], "ac"));
        let after: String = timers.after(Vbid(1), Some("a")).map(|(name, _)| &**name).collect();
        assert_eq!(after, "bd", "they are still there");
    }
}
