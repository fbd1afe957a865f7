//! Sorted keys, each followed by a tail, in one block of memory.

/// Maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a tail, in bytes.
pub const TAIL_BYTES_MAX: usize = u16::MAX as usize;

/// The location of a key.
#[derive(Clone, Copy)]
struct Slot {
    /// The first bytes after the common prefix of all keys, as a number that distinguishes most keys.
    head: u64,
    /// Offset in the heap.
    at: u32,
    /// Length of the key minus one; there is no empty key.
    key_bytes_less_one: u16,
    tail_bytes: u16,
}

impl Slot {
    fn key_bytes(self) -> usize {
        usize::from(self.key_bytes_less_one) + 1
    }

    fn bytes(self) -> usize {
        self.key_bytes() + usize::from(self.tail_bytes)
    }
}

/// Sorted keys, each with a tail.
#[derive(Default)]
pub struct Keys {
    slots: Vec<Slot>,
    /// Keys and tails in insertion order.
    heap: Vec<u8>,
    /// Length of the prefix common to all keys.
    shared: usize,
    /// Bytes of the heap that no slot refers to.
    garbage: usize,
}

impl Clone for Keys {
    /// Reserves spare capacity, because the clone is made for a write.
    fn clone(&self) -> Keys {
        let mut slots = Vec::with_capacity(self.slots.len() + 8);
        slots.extend_from_slice(&self.slots);
        let mut heap = Vec::with_capacity(self.heap.len() + 256);
        heap.extend_from_slice(&self.heap);
        Keys { slots, heap, ..*self }
    }
}

impl Keys {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the bytes of all keys and tails.
    pub fn bytes(&self) -> usize {
        self.heap.len() - self.garbage
    }

    pub fn key(&self, index: usize) -> &[u8] {
        let slot = self.slots[index];
        &self.heap[slot.at as usize..][..slot.key_bytes()]
    }

    pub fn tail(&self, index: usize) -> &[u8] {
        let slot = self.slots[index];
        &self.heap[slot.at as usize + slot.key_bytes()..][..usize::from(slot.tail_bytes)]
    }

    /// Returns the index of `key`, or the index where it would be inserted.
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(first) = self.slots.first() else { return Err(0) };
        let shared = &self.heap[first.at as usize..][..self.shared];
        let (start, rest) = key.split_at(self.shared.min(key.len()));
        match start.cmp(shared) {
            std::cmp::Ordering::Less => return Err(0),
            std::cmp::Ordering::Greater => return Err(self.slots.len()),
            std::cmp::Ordering::Equal => {}
        }
        let head = head(rest);
        self.slots.binary_search_by(|slot| {
            slot.head.cmp(&head).then_with(|| {
                let end = slot.at as usize + slot.key_bytes();
                self.heap[slot.at as usize + self.shared..end].cmp(rest)
            })
        })
    }

    /// Inserts a key at the index that [`Keys::find`] returned.
    pub fn insert(&mut self, index: usize, key: &[u8], tail: &[u8]) {
        debug_assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && tail.len() <= TAIL_BYTES_MAX);
        match self.slots.is_empty() {
            true => self.shared = key.len(),
            false => {
                let shared = common(&self.key(0)[..self.shared], key);
                if shared < self.shared {
                    self.share(shared);
                }
            }
        }
        let slot = Slot {
            head: head(&key[self.shared..]),
            at: self.heap.len() as u32,
            key_bytes_less_one: (key.len() - 1) as u16,
            tail_bytes: tail.len() as u16,
        };
        self.heap.extend_from_slice(key);
        self.heap.extend_from_slice(tail);
        self.slots.insert(index, slot);
    }

    pub fn remove(&mut self, index: usize) {
        self.garbage += self.slots.remove(index).bytes();
        self.tidy();
    }

    /// Replaces the tail of a key.
    pub fn set_tail(&mut self, index: usize, tail: &[u8]) {
        debug_assert!(tail.len() <= TAIL_BYTES_MAX);
        let slot = self.slots[index];
        let at = slot.at as usize;
        if tail.len() == usize::from(slot.tail_bytes) {
            self.heap[at + slot.key_bytes()..][..tail.len()].copy_from_slice(tail);
            return;
        }
        self.slots[index].at = self.heap.len() as u32;
        self.slots[index].tail_bytes = tail.len() as u16;
        self.heap.extend_from_within(at..at + slot.key_bytes());
        self.heap.extend_from_slice(tail);
        self.garbage += slot.bytes();
        self.tidy();
    }

    /// Removes and returns the keys from `index` on.
    pub fn split_off(&mut self, index: usize) -> Keys {
        let mut right = Keys::default();
        right.take(self, index..self.len());
        let mut left = Keys::default();
        left.take(self, 0..index);
        *self = left;
        right
    }

    /// Appends keys that are greater than all present ones.
    pub fn append(&mut self, right: &Keys) {
        self.take(right, 0..right.len());
    }

    /// Appends a range of other keys that are greater than all present ones.
    fn take(&mut self, from: &Keys, range: std::ops::Range<usize>) {
        self.slots.reserve(range.len());
        self.heap.reserve(from.slots[range.clone()].iter().map(|slot| slot.bytes()).sum());
        for slot in &from.slots[range] {
            let at = self.heap.len() as u32;
            self.heap.extend_from_slice(&from.heap[slot.at as usize..][..slot.bytes()]);
            self.slots.push(Slot { at, ..*slot });
        }
        if let Some(last) = self.len().checked_sub(1) {
            // The common prefix of the first and the last key is that of all keys between them.
            self.share(common(self.key(0), self.key(last)));
        }
    }

    /// Compacts the heap once most of it is garbage.
    fn tidy(&mut self) {
        if self.garbage > self.heap.len() / 2 {
            let mut tidy = Keys::default();
            tidy.take(self, 0..self.len());
            *self = tidy;
        }
    }

    fn share(&mut self, shared: usize) {
        self.shared = shared;
        for slot in &mut self.slots {
            let end = slot.at as usize + slot.key_bytes();
            slot.head = head(&self.heap[slot.at as usize + shared..end]);
        }
    }
}

/// Returns the first eight bytes as a number in byte order; shorter keys are not always distinguished.
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(chunk)
        }
    }
}

/// Returns the length of the common prefix.
pub fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
