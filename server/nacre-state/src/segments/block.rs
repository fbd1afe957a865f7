//! Blocks: the units in which a segment is read and cached.
//!
//! ```text
//! entry   length of the key u32 | 0 if removed, or length of the value + 1, u32 | key | value
//! block   sorted entries | offset of each entry u32 | count u32 | crc u32 of everything before
//! ```
//!
//! Numbers are little-endian. A block is verified as a whole when it is read, so its entries need no further checks.

use std::ops::Range;

/// Bytes before the key of an entry.
const ENTRY_HEAD_BYTES: usize = 8;
/// Bytes after the offsets.
const TAIL_BYTES: usize = 8;

/// A verified block.
#[derive(Debug)]
pub struct Block {
    bytes: Box<[u8]>,
    /// Offset of the array of offsets.
    offsets_at: usize,
    count: usize,
}

impl Block {
    /// Verifies the bytes of a block.
    ///
    /// # Errors
    /// A description of the damage.
    pub fn read(bytes: Box<[u8]>) -> Result<Block, &'static str> {
        let body_bytes = bytes.len().checked_sub(4).ok_or("a block is too short")?;
        if number(&bytes, body_bytes) != crc32fast::hash(&bytes[..body_bytes]) {
            return Err("a block does not have its checksum");
        }
        let count_at = body_bytes.checked_sub(4).ok_or("a block is too short")?;
        let count = number(&bytes, count_at) as usize;
        let offsets_at = count.checked_mul(4).and_then(|bytes| count_at.checked_sub(bytes));
        let offsets_at = offsets_at.ok_or("a block has more entries than bytes")?;
        let block = Block { bytes, offsets_at, count };
        let is_whole = (0..count).all(|index| block.parts(index).is_some());
        if is_whole && count > 0 { Ok(block) } else { Err("an entry of a block is not whole") }
    }

    /// Returns the number of entries, at least one.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the memory size of the block.
    pub fn bytes(&self) -> usize {
        size_of::<Block>() + self.bytes.len()
    }

    fn parts(&self, index: usize) -> Option<(Range<usize>, Option<Range<usize>>)> {
        let at = number(&self.bytes, self.offsets_at + 4 * index) as usize;
        let key_at = at.checked_add(ENTRY_HEAD_BYTES).filter(|end| *end <= self.offsets_at)?;
        let key_end = key_at.checked_add(number(&self.bytes, at) as usize)?;
        let value_bytes = (number(&self.bytes, at + 4) as usize).checked_sub(1);
        let end = key_end.checked_add(value_bytes.unwrap_or(0))?;
        if end > self.offsets_at {
            return None;
        }
        Some((key_at..key_end, value_bytes.map(|_| key_end..end)))
    }

    /// Returns the key of an entry.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.parts(index).expect("it was checked").0]
    }

    /// Returns the value of an entry; `None` if the key is removed.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        let (_, value) = self.parts(index).expect("it was checked");
        Some(&self.bytes[value?])
    }

    /// Returns the position of `key`, or the position where it would be inserted.
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("it has four bytes"))
}

/// A block under construction.
#[derive(Default)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl BlockBuilder {
    /// Appends an entry; `None` marks the key as removed.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.offsets.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        let length = value.map_or(0, |value| value.len() as u32 + 1);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns the size of the block so far.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + 4 * self.offsets.len() + TAIL_BYTES
    }

    /// Returns the finished block, and empties the builder.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for offset in &self.offsets {
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        self.offsets.clear();
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_records_and_any_damage_is_found() {
        let mut builder = BlockBuilder::default();
        builder.add(b"a", Some(b"1"));
        builder.add(b"bb", None);
        builder.add(b"c", Some(b""));
        let bytes = builder.take();
        let block = Block::read(bytes.clone().into()).unwrap();
        let all: Vec<_> =
            (0..block.len()).map(|index| (block.key(index), block.value(index))).collect();
        assert_eq!(all, [(&b"a"[..], Some(&b"1"[..])), (b"bb", None), (b"c", Some(b""))]);
        assert_eq!(
            [&b""[..], b"a", b"b", b"bb", b"d"].map(|key| block.find(key)),
            [Err(0), Ok(0), Err(1), Ok(1), Err(3)]
        );
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::read(damaged.into()).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(Block::read(bytes[..end].into()).is_err(), "{end} bytes");
        }
    }
}
