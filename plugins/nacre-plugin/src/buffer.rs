//! Buffers writes in the component until the host needs them.
//!
//! A call of the host costs as much as parsing a short document. Therefore the writes of a batch are buffered, one value
//! per key, and sent to the host together: at the end of the call, before a scan, and when the buffer is full. The delay is
//! not observable, because the writes of a failed call are never visible.

use crate::{Entry, State, StateMut};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::RefCell;

/// Maximum size of buffered keys and values in bytes; one call of the host may carry 1 MiB.
const BYTES_MAX: usize = 256 << 10;

/// Size in bytes above which a value is not buffered, because copying it would cost as much as the call.
const VALUE_BYTES_MAX: usize = 4 << 10;

/// A key and its new value; `None` removes the entry.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key space that accepts changes.
pub trait Apply: State {
    /// Applies changes, at most one per key.
    fn apply(&self, changes: impl Iterator<Item = Change>);

    /// Stores `value` at `key`.
    fn put(&self, key: &[u8], value: &[u8]);
}

/// A key space that buffers changes.
pub struct Buffered<S> {
    inner: S,
    waiting: RefCell<Waiting>,
}

#[derive(Default)]
struct Waiting {
    changes: HashMap<Vec<u8>, Option<Vec<u8>>, FixedState>,
    /// Size of buffered keys and values, including replaced ones.
    bytes: usize,
}

impl<S: Apply> Buffered<S> {
    /// Creates a buffer in front of `inner`.
    pub fn new(inner: S) -> Buffered<S> {
        Buffered { inner, waiting: RefCell::default() }
    }

    /// Applies the buffered changes.
    pub fn flush(&self) {
        let waiting = &mut *self.waiting.borrow_mut();
        waiting.bytes = 0;
        if !waiting.changes.is_empty() {
            self.inner.apply(waiting.changes.drain());
        }
    }

    fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        let waiting = self.waiting.get_mut();
        match (waiting.changes.get_mut(key), value) {
            (Some(Some(old)), Some(value)) => {
                old.clear();
                old.extend_from_slice(value);
            }
            (Some(old), value) => *old = value.map(<[u8]>::to_vec),
            (None, value) => {
                waiting.changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
            }
        }
        waiting.bytes += key.len() + value.map_or(0, <[u8]>::len);
        if waiting.bytes > BYTES_MAX {
            self.flush();
        }
    }
}

impl<S: Apply> State for Buffered<S> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.waiting.borrow().changes.get(key) {
            Some(value) => value.clone(),
            None => self.inner.get(key),
        }
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry> {
        self.flush();
        self.inner.scan(start, end, limit, reverse)
    }
}

impl<S: Apply> StateMut for Buffered<S> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        if value.len() > VALUE_BYTES_MAX {
            self.waiting.get_mut().changes.remove(key);
            self.inner.put(key, value);
        } else {
            self.change(key, Some(value));
        }
    }

    fn delete(&mut self, key: &[u8]) {
        self.change(key, None);
    }

    fn flush(&mut self) {
        Buffered::flush(self);
    }

    fn reading(&self) -> &dyn State {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryState;
    use proptest::prelude::*;

    /// Counts write calls.
    #[derive(Default)]
    struct Counted {
        state: RefCell<MemoryState>,
        calls: RefCell<usize>,
    }

    impl State for Counted {
        fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
            self.state.borrow().get(key)
        }

        fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry> {
            self.state.borrow().scan(start, end, limit, reverse)
        }
    }

    impl Apply for Counted {
        fn apply(&self, changes: impl Iterator<Item = Change>) {
            *self.calls.borrow_mut() += 1;
            let mut state = self.state.borrow_mut();
            for (key, value) in changes {
                match value {
                    Some(value) => state.put(&key, &value),
                    None => state.delete(&key),
                }
            }
        }

        fn put(&self, key: &[u8], value: &[u8]) {
            self.state.borrow_mut().put(key, value);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, usize),
        Delete(u8),
        Get(u8),
        Scan(u8, u8, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..8_u8, prop_oneof![8 => 0..4_usize, 2 => Just(VALUE_BYTES_MAX), 1 => Just(VALUE_BYTES_MAX + 1)])
                .prop_map(|(key, bytes)| Step::Put(key, bytes)),
            2 => (0..8_u8).prop_map(Step::Delete),
            4 => (0..8_u8).prop_map(Step::Get),
            1 => (0..8_u8, 0..9_u8, any::<bool>())
                .prop_map(|(start, end, reverse)| Step::Scan(start, end, reverse)),
        ]
    }

    proptest! {
        #[test]
        fn reads_include_buffered_writes(steps in prop::collection::vec(step(), 0..60)) {
            let (mut plain, mut buffered) = (MemoryState::default(), Buffered::new(Counted::default()));
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put(key, bytes) => {
                        let value = vec![at as u8; bytes];
                        plain.put(&[key], &value);
                        buffered.put(&[key], &value);
                    }
                    Step::Delete(key) => {
                        plain.delete(&[key]);
                        buffered.delete(&[key]);
                    }
                    Step::Get(key) => prop_assert_eq!(plain.get(&[key]), buffered.get(&[key])),
                    Step::Scan(start, end, reverse) => prop_assert_eq!(
                        plain.scan(&[start], &[end], 5, reverse),
                        buffered.reading().scan(&[start], &[end], 5, reverse)
                    ),
                }
                prop_assert!(buffered.waiting.borrow().bytes <= BYTES_MAX);
            }
            buffered.flush();
            prop_assert_eq!(&plain, &*buffered.inner.state.borrow());
        }
    }

    #[test]
    fn repeated_writes_reach_the_host_once() {
        let mut state = Buffered::new(Counted::default());
        for number in 0..1000_u32 {
            let sum =
                state.get(b"sum").map_or(0, |sum| u32::from_be_bytes(sum.try_into().unwrap()));
            state.put(b"sum", &(sum + number).to_be_bytes());
        }
        assert_eq!(*state.inner.calls.borrow(), 0);
        state.flush();
        state.flush();
        assert_eq!(*state.inner.calls.borrow(), 1);
        assert_eq!(state.inner.get(b"sum"), Some(499_500_u32.to_be_bytes().to_vec()));
    }
}
