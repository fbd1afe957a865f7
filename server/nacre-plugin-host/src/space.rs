//! The state of a partition in memory: persistent, so that a snapshot costs nothing.

use crate::capability::{Database, Home, Queries, TIMER_NAME_BYTES_MAX, Timer, Timers};
use crate::instance::Refused;
use imbl::OrdMap;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub type Bytes = Arc<[u8]>;

/// Entries in key order. Clones are snapshots: they share structure and never see later changes.
#[derive(Clone, Default)]
pub struct KeySpace {
    entries: OrdMap<Bytes, Bytes>,
    bytes: usize,
}

impl KeySpace {
    /// The entries with a key in `range`.
    pub fn range<'a>(
        &'a self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a Bytes)> + use<'a> {
        self.entries.range::<_, [u8]>(range)
    }

    /// Adds entries, in place of those with equal keys.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = (Bytes, Bytes)>) {
        for (key, value) in entries {
            self.put(key, value);
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.entries.iter()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn put(&mut self, key: Bytes, value: Bytes) {
        let key_bytes = key.len();
        self.bytes += value.len();
        match self.entries.insert(key, value) {
            Some(old) => self.bytes -= old.len(),
            None => self.bytes += key_bytes,
        }
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(old) = self.entries.remove(key) {
            self.bytes -= key.len() + old.len();
        }
    }
}

/// All that a partition keeps. Clones are snapshots.
#[derive(Clone, Default)]
pub struct State {
    pub space: KeySpace,
    pub timers: Timers,
}

impl State {
    /// Bytes of all keys, values and timers.
    pub fn bytes(&self) -> usize {
        self.space.bytes() + self.timers.bytes()
    }
}

/// Writes of a call or of several: the new value of each key or timer, or none where it was removed.
#[derive(Default)]
pub struct Writes {
    pub entries: BTreeMap<Bytes, Option<Bytes>>,
    pub timers: BTreeMap<(Home, Arc<str>), Option<Arc<Timer>>>,
}

impl Writes {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.timers.is_empty()
    }

    /// Adds writes that were made later.
    pub fn extend(&mut self, later: Writes) {
        self.entries.extend(later.entries);
        self.timers.extend(later.timers);
    }
}

/// The item of a call that is at work, and what the items before it have left.
pub struct Turn {
    /// Which one it is.
    pub index: usize,
    /// The state as they left it.
    pub state: State,
    /// What they wrote.
    pub writes: Writes,
}

/// What an instance sees of a state during one call.
#[derive(Default)]
pub struct View {
    pub state: State,
    /// None for a reader.
    pub writes: Option<Writes>,
    pub bytes_max: usize,
    /// Whose the timers are that are set.
    pub timers_home: Home,
    /// What the request that is answered may see beyond the state.
    pub database: Option<Arc<dyn Database>>,
    /// Who answers what is queried, when that is not the same for the whole deployment.
    pub queries: Option<Arc<dyn Queries>>,
    /// The tick at which the request has to be answered, when that is before the deadline.
    pub ends_tick: Option<u64>,
    /// The items that the call has.
    pub items_count: usize,
    /// The one that is at work, when the plugin has said so. The other writes of the view are those since it began.
    pub turn: Option<Turn>,
}

/// The largest key of a plugin's state.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// One scan gives about this much at most; the plugin scans on from the last key.
pub const SCAN_BYTES_MAX: usize = 4 << 20;

impl View {
    /// A snapshot to read.
    pub fn reading(state: State) -> View {
        View { state, ..View::default() }
    }

    /// A state to change, up to `bytes_max` bytes in all.
    pub fn writing(state: State, bytes_max: usize) -> View {
        View { state, writes: Some(Writes::default()), bytes_max, ..View::default() }
    }

    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.state.space.entries.get(key).cloned()
    }

    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let (key, value) = (key.into(), value.into());
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Refused::Key);
        }
        self.state.space.put(Arc::clone(&key), Arc::clone(&value));
        writes.entries.insert(key, Some(value));
        self.fits()
    }

    pub fn delete(&mut self, key: impl Into<Bytes>) -> Result<(), Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let key = key.into();
        self.state.space.delete(&key);
        writes.entries.insert(key, None);
        Ok(())
    }

    pub fn set_timer(&mut self, name: &str, timer: Timer) -> Result<(), Refused> {
        if name.is_empty() || name.len() > TIMER_NAME_BYTES_MAX {
            return Err(Refused::TimerName);
        }
        // Whoever set one of that name.
        self.cancel_timer(name)?;
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let (name, timer) = (Arc::<str>::from(name), Arc::new(timer));
        let home = self.timers_home.filter(|vbid| self.state.timers.fires(Some(*vbid)));
        self.state.timers.set(home, Arc::clone(&name), Arc::clone(&timer));
        writes.timers.insert((home, name), Some(timer));
        self.fits()
    }

    pub fn cancel_timer(&mut self, name: &str) -> Result<bool, Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let (homes, name) = (self.state.timers.homes(name), Arc::<str>::from(name));
        for home in &homes {
            self.state.timers.cancel(*home, &name);
            writes.timers.insert((*home, Arc::clone(&name)), None);
        }
        Ok(!homes.is_empty())
    }

    fn fits(&self) -> Result<(), Refused> {
        if self.state.bytes() > self.bytes_max { Err(Refused::StateFull) } else { Ok(()) }
    }

    pub fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        reverse: bool,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        if !end.is_empty() && end <= start {
            return Vec::new();
        }
        let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let range = self.state.space.entries.range::<_, [u8]>((Bound::Included(start), upper));
        match reverse {
            true => bounded(range.rev(), limit),
            false => bounded(range, limit),
        }
    }
}

fn bounded<'a>(
    entries: impl Iterator<Item = (&'a Bytes, &'a Bytes)>,
    limit: u32,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut bytes = 0;
    let mut out = Vec::new();
    for (key, value) in entries.take(limit as usize) {
        out.push((key.to_vec(), value.to_vec()));
        bytes += key.len() + value.len();
        if bytes >= SCAN_BYTES_MAX {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_do_not_see_later_writes() {
        let mut view = View::writing(State::default(), 100);
        view.put(b"a".to_vec(), b"1".to_vec()).unwrap();
        let snapshot = View::reading(view.state.clone());
        view.put(b"a".to_vec(), b"22".to_vec()).unwrap();
        view.put(b"b".to_vec(), b"3".to_vec()).unwrap();
        view.delete(b"b".to_vec()).unwrap();
        assert_eq!(
            (snapshot.get(b"a"), view.get(b"a")),
            (Some(Bytes::from(*b"1")), Some(Bytes::from(*b"22")))
        );
        assert_eq!((snapshot.state.bytes(), view.state.bytes()), (2, 3));
        assert_eq!(view.writes.unwrap().entries.len(), 2, "both keys were touched");
    }

    #[test]
    fn what_is_not_granted_is_refused() {
        let mut reader = View::reading(State::default());
        assert_eq!(reader.put(b"a".to_vec(), Vec::new()), Err(Refused::ReadOnly));
        assert_eq!(reader.delete(b"a".to_vec()), Err(Refused::ReadOnly));
        let mut writer = View::writing(State::default(), 3);
        assert_eq!(writer.put(Vec::new(), b"1".to_vec()), Err(Refused::Key));
        assert_eq!(writer.put(b"ab".to_vec(), b"12".to_vec()), Err(Refused::StateFull));
    }
}
