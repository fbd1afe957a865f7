//! A store that fails: before or after a write, in the middle of an object, or for good. Its lists may be outdated, and a request may reach
//! it twice.

use crate::source::SeededRandom;
use nacre_backup::{MemoryStore, Store, StoreError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

/// Number of operations for which an object may be missing from lists.
const STALE: u64 = 6;

pub struct UnreliableStore {
    pub objects: MemoryStore,
    state: Mutex<Faults>,
}

struct Faults {
    chance: SeededRandom,
    operation: u64,
    created: BTreeMap<String, u64>,
    /// The operation at which the process that uses the store ends.
    crash_at: Option<u64>,
    is_dead: bool,
    /// On average, one of this many operations fails; 0 for none.
    failures: u64,
    /// True if lists may lack recently created objects.
    is_stale: bool,
}

impl UnreliableStore {
    pub fn new(seed: u64) -> UnreliableStore {
        let state = Faults {
            chance: SeededRandom(seed ^ 0x5707_e500),
            operation: 0,
            created: BTreeMap::new(),
            crash_at: None,
            is_dead: false,
            failures: 0,
            is_stale: false,
        };
        UnreliableStore { objects: MemoryStore::default(), state: Mutex::new(state) }
    }

    /// Starts a process that uses the store: it ends at operation `crash_at`, counted from now.
    pub fn begin(&self, crash_at: Option<u64>, failures: u64, is_stale: bool) {
        let mut state = self.state.lock().unwrap();
        state.crash_at = crash_at.map(|after| state.operation + after);
        (state.is_dead, state.failures, state.is_stale) = (false, failures, is_stale);
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead
    }

    /// Counts an operation; returns true if it fails.
    fn goes_wrong(&self) -> (bool, u64) {
        let mut state = self.state.lock().unwrap();
        state.operation += 1;
        let outcome = state.chance.below(4);
        if state.is_dead {
            return (true, 0);
        }
        if state.crash_at == Some(state.operation) {
            state.is_dead = true;
            return (true, outcome);
        }
        let failures = state.failures;
        (failures > 0 && state.chance.one_in(failures), outcome)
    }
}

fn failure() -> StoreError {
    StoreError::Failed("the store has failed".to_owned())
}

impl Store for UnreliableStore {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (is_wrong, outcome) = self.goes_wrong();
        let kept = match (is_wrong, outcome) {
            (false, _) | (true, 2 | 3) => bytes,
            (true, 1) => &bytes[..bytes.len() / 2],
            (true, _) => return Err(failure()),
        };
        self.objects.create(name, kept)?;
        let mut state = self.state.lock().unwrap();
        let operation = state.operation;
        state.created.insert(name.to_owned(), operation);
        match (is_wrong, outcome) {
            (false, _) => Ok(()),
            // The answer was lost and the request was sent again: it finds the object that it has created.
            (true, 3) => Err(StoreError::Exists(name.to_owned())),
            (true, _) => Err(failure()),
        }
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        if self.goes_wrong().0 { Err(failure()) } else { self.objects.read(name, range) }
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        if self.goes_wrong().0 { Err(failure()) } else { self.objects.size(name) }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        if self.goes_wrong().0 {
            return Err(failure());
        }
        let mut names = self.objects.list(prefix)?;
        let mut state = self.state.lock().unwrap();
        if state.is_stale && state.chance.one_in(3) {
            let since = state.operation.saturating_sub(STALE);
            names.retain(|name| state.created.get(name).is_none_or(|created| *created < since));
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let (is_wrong, outcome) = self.goes_wrong();
        if !is_wrong || outcome > 0 {
            self.objects.remove(name)?;
        }
        if is_wrong { Err(failure()) } else { Ok(()) }
    }
}
