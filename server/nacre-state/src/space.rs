//! The state of a partition, and a view of it for one call.
//!
//! A view records only the keys that it has written, because the resulting state has the new values.

use crate::blobs::{BlobError, Blobs};
use crate::key_space::{Found, KeySpace, Row, is_key};
use crate::segments::Damage;
use crate::timers::{Home, TIMER_NAME_BYTES_MAX, Timer, Timers};
use crate::tree::{KEY_BYTES_MAX, Value};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The complete data of a partition. Clones are snapshots.
#[derive(Clone, Default)]
pub struct State {
    /// The ordered key space.
    pub space: KeySpace,
    /// Scheduled calls.
    pub timers: Timers,
    /// Named files.
    pub blobs: Blobs,
}

impl State {
    /// Returns the memory of keys, values and timers in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.space.memory_bytes() + self.timers.bytes()
    }

    /// Returns the bytes of all keys, values, timers and blobs.
    pub fn bytes(&self) -> usize {
        self.space.bytes() + self.timers.bytes() + self.blobs.bytes() as usize
    }
}

/// A key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// The writes of one or more calls.
#[derive(Default)]
pub struct Writes {
    /// The keys written or removed.
    pub touched: KeySpace,
    /// The new timer of each name, or `None` where it was removed.
    pub timers: BTreeMap<(Home, Arc<str>), Option<Arc<Timer>>>,
    /// True if a blob was created, extended, sealed or removed.
    pub blobs: bool,
}

impl Writes {
    /// Returns true if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.timers.is_empty() && !self.blobs
    }

    /// Adds later writes.
    pub fn extend(&mut self, later: Writes) {
        if self.touched.is_empty() {
            self.touched = later.touched;
        } else {
            for key in later.touched.keys() {
                self.touched.add(key);
            }
        }
        self.timers.extend(later.timers);
        self.blobs |= later.blobs;
    }
}

/// The reason why a change of a state is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The view is a snapshot and cannot be changed.
    #[error("a reader cannot write")]
    ReadOnly,
    /// The state would exceed its limit.
    #[error("the state is full")]
    StateFull,
    /// The key is empty or too long.
    #[error("a state key must have 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    /// The name of a timer is empty or too long.
    #[error("the name of a timer must have 1 to {TIMER_NAME_BYTES_MAX} bytes")]
    TimerName,
    /// A change of a blob was refused.
    #[error("{0}")]
    Blob(BlobError),
    /// A segment cannot be read.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

impl From<BlobError> for Refused {
    fn from(error: BlobError) -> Refused {
        match error {
            BlobError::Damaged(damage) => Refused::Damaged(damage),
            error => Refused::Blob(error),
        }
    }
}

/// A state as seen and changed by one call.
#[derive(Default)]
pub struct View {
    /// The state including the writes of the call.
    pub state: State,
    /// The writes of the call; `None` for a reader.
    pub writes: Option<Writes>,
    /// The limit of the state's size in bytes.
    pub bytes_max: usize,
    /// The vBucket that owns the timers set by the call.
    pub timers_home: Home,
}

/// Bytes after which a scan ends; the plugin continues after the last key.
pub const SCAN_BYTES_MAX: usize = 4 << 20;

impl View {
    /// Creates a read-only view of a snapshot.
    pub fn reading(state: State) -> View {
        View { state, ..View::default() }
    }

    /// Creates a view for changes, up to `bytes_max` bytes of state.
    pub fn writing(state: State, bytes_max: usize) -> View {
        View { state, writes: Some(Writes::default()), bytes_max, ..View::default() }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`Refused::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Found<'_>>, Refused> {
        Ok(self.state.space.get(key)?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`], [`Refused::Key`] or [`Refused::StateFull`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        if !is_key(key) {
            return Err(Refused::Key);
        }
        self.state.space.put(key, Value::Here(value));
        writes.touched.add(key);
        self.fits()
    }

    /// Removes a key if it exists.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`].
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        if self.state.space.delete(key) {
            writes.touched.add(key);
        }
        Ok(())
    }

    /// Sets a timer; replaces the timers with this name that fire on this node.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`], [`Refused::TimerName`] or [`Refused::StateFull`].
    pub fn set_timer(&mut self, name: &str, timer: Timer) -> Result<(), Refused> {
        if name.is_empty() || name.len() > TIMER_NAME_BYTES_MAX {
            return Err(Refused::TimerName);
        }
        // Removes the timers with this name of all vBuckets.
        self.cancel_timer(name)?;
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let (name, timer) = (Arc::<str>::from(name), Arc::new(timer));
        let home = self.timers_home.filter(|vbid| self.state.timers.fires(Some(*vbid)));
        self.state.timers.set(home, Arc::clone(&name), Arc::clone(&timer));
        writes.timers.insert((home, name), Some(timer));
        self.fits()
    }

    /// Removes the timers with this name that fire on this node. Returns true if there were any.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`].
    pub fn cancel_timer(&mut self, name: &str) -> Result<bool, Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let (homes, name) = (self.state.timers.homes(name), Arc::<str>::from(name));
        for home in &homes {
            self.state.timers.cancel(*home, &name);
            writes.timers.insert((*home, Arc::clone(&name)), None);
        }
        Ok(!homes.is_empty())
    }

    /// Changes the blobs.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`], [`Refused::Blob`], [`Refused::StateFull`] or [`Refused::Damaged`].
    pub fn change_blobs<T>(
        &mut self,
        change: impl FnOnce(&mut Blobs) -> Result<T, BlobError>,
    ) -> Result<T, Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        let done = change(&mut self.state.blobs)?;
        writes.blobs = true;
        self.fits()?;
        Ok(done)
    }

    fn fits(&self) -> Result<(), Refused> {
        if self.state.bytes() > self.bytes_max { Err(Refused::StateFull) } else { Ok(()) }
    }

    /// Returns the entries from `start` to before `end` (no bound if empty): at most `limit` entries, and no more after
    /// [`SCAN_BYTES_MAX`] bytes. With `reverse`, in descending order.
    ///
    /// # Errors
    /// [`Refused::Damaged`].
    pub fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<KeyValue>, Refused> {
        let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let rows = self.state.space.scan((Bound::Included(start), upper), reverse)?;
        let mut bytes = 0;
        let mut out = Vec::new();
        for row in rows.take(limit as usize) {
            let row: Row<'_> = row?;
            bytes += row.key().len() + row.value().len();
            out.push((row.key().to_vec(), row.value().to_vec()));
            if bytes >= SCAN_BYTES_MAX {
                break;
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_do_not_see_later_writes() {
        let mut view = View::writing(State::default(), 100);
        view.put(b"a", b"1").unwrap();
        let snapshot = View::reading(view.state.clone());
        view.put(b"a", b"22").unwrap();
        view.put(b"b", b"3").unwrap();
        view.delete(b"b").unwrap();
        let value = |view: &View| view.get(b"a").unwrap().map(|value| value.bytes().to_vec());
        assert_eq!((value(&snapshot), value(&view)), (Some(b"1".to_vec()), Some(b"22".to_vec())));
        assert_eq!((snapshot.state.bytes(), view.state.bytes()), (2, 3));
        assert_eq!(view.writes.unwrap().touched.keys().count(), 2, "both keys were touched");
    }

    #[test]
    fn ungranted_accesses_are_refused() {
        let mut reader = View::reading(State::default());
        assert_eq!(reader.put(b"a", b""), Err(Refused::ReadOnly));
        assert_eq!(reader.delete(b"a"), Err(Refused::ReadOnly));
        let mut writer = View::writing(State::default(), 3);
        assert_eq!(writer.put(b"", b"1"), Err(Refused::Key));
        assert!(KeySpace::load([(&b""[..], &b"1"[..])].into_iter()).is_err(), "nobody wrote it");
        assert_eq!(writer.put(b"ab", b"12"), Err(Refused::StateFull));
    }
}
