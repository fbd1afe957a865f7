//! A segment: an immutable file of sorted entries.
//!
//! ```text
//! file     "nacre segment 1\n" | blocks | footer
//! block    entries of the segment, or of an index: the first key and the location of each block below
//! index    offset u64 | bytes u32 | filter of the keys below, if these are entries of the segment
//! footer   offset of the root u64 | its bytes u32 | levels u32 | entries u64 | bytes of keys and values u64 | crc u32
//! ```
//!
//! Numbers are little-endian. Each block is written when it is full, and index blocks follow the last block that they
//! refer to. A segment of any size is thus written in one pass with one block per level in memory. A filter has ten
//! bits per key and is part of the index: only one percent of look-ups of absent keys read a block of entries.

use super::block::{Block, BlockBuilder};
use super::cache::BlockCache;
use super::filter::Filter;
use nacre_store::{DiskFile, SpaceFiles};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAGIC: &[u8; 16] = b"nacre segment 1\n";
const FOOTER_BYTES: usize = 36;
/// Size of a block at which the next entry starts another one.
const BLOCK_BYTES: usize = if cfg!(test) { 128 } else { 4 << 10 };
/// Bytes that a writer buffers before it writes to the file.
const WRITE_BYTES: usize = 1 << 20;
/// Maximum number of levels; a level above exists only for at least two blocks below.
const LEVELS_MAX: u32 = 40;

/// A lost or unreadable part of a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct Damage {
    /// The path of the file.
    pub file: String,
    /// A description of the damage.
    pub reason: String,
}

/// Description of a segment in the rows of a space. It exposes files that are missing, truncated or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the file.
    pub number: u64,
    /// Orders segments: entries of a segment with a greater age take precedence.
    pub age: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The checksum of its footer.
    pub crc: u32,
}

/// An open segment. Its file is removed with the last handle once it is [retired](Segment::retire).
pub struct Segment {
    record: Record,
    files: SpaceFiles,
    file: Arc<dyn DiskFile>,
    cache: BlockCache,
    /// The segment's number in the cache.
    cached_as: u64,
    /// The root block, which always stays in memory.
    root: Arc<Block>,
    levels: u32,
    content_bytes: u64,
    is_retired: AtomicBool,
}

impl Segment {
    /// Opens the segment of `record`.
    ///
    /// # Errors
    /// Fails when the file is missing, has another length, or its footer or root does not read back.
    pub fn open(files: &SpaceFiles, record: Record, cache: &BlockCache) -> Result<Segment, Damage> {
        let damage = |reason: String| Damage { file: files.path(record.number), reason };
        let file = match files.open(record.number) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damage("the segment is missing".into()));
            }
            Err(error) => return Err(damage(error.to_string())),
        };
        let bytes = file.bytes().map_err(|error| damage(error.to_string()))?;
        if bytes != record.file_bytes {
            let reason = format!("the segment has {bytes} bytes instead of {}", record.file_bytes);
            return Err(damage(reason));
        }
        let mut footer = [0; FOOTER_BYTES];
        let at = bytes.checked_sub(FOOTER_BYTES as u64);
        let at = at.ok_or_else(|| damage("the segment is too short".into()))?;
        SpaceFiles::read(&*file, &mut footer, at).map_err(|error| damage(error.to_string()))?;
        let footer = Footer::read(&footer, record.crc).map_err(|reason| damage(reason.into()))?;
        let root = read(&*file, footer.root_at, footer.root_bytes).map_err(damage)?;
        Ok(Segment {
            record,
            files: files.clone(),
            file,
            cache: cache.clone(),
            cached_as: cache.number(),
            root: Arc::new(root),
            levels: footer.levels,
            content_bytes: footer.content_bytes,
            is_retired: AtomicBool::new(false),
        })
    }

    /// Returns the record in the row that names the segment.
    pub fn record(&self) -> Record {
        self.record
    }

    /// Returns the bytes of all keys and values.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns the memory size outside the cache.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Segment>() + self.root.bytes()
    }

    /// Schedules the removal of the file once no reader uses it.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    fn damage(&self, reason: String) -> Damage {
        Damage { file: self.files.path(self.record.number), reason }
    }

    /// Reads a block. Adds it to the cache only if `keeps` is set.
    fn block(&self, place: Place, keeps: bool) -> Result<Arc<Block>, Damage> {
        if let Some(block) = self.cache.get(self.cached_as, place.offset) {
            return Ok(block);
        }
        let block = read(&*self.file, place.offset, place.bytes);
        let block = Arc::new(block.map_err(|reason| self.damage(reason))?);
        if keeps {
            self.cache.insert(self.cached_as, place.offset, &block);
        }
        Ok(block)
    }

    fn place(&self, block: &Block, index: usize) -> Result<Place, Damage> {
        let place = block.value(index).and_then(Place::read);
        place.ok_or_else(|| self.damage("an index lacks the position of a block".into()))
    }

    /// Returns the entry of a key; `None` if the segment has none. The entry of a removed key has no value.
    pub fn get(&self, key: &[u8]) -> Result<Option<Slot>, Damage> {
        let mut block = Arc::clone(&self.root);
        for level in (0..self.levels).rev() {
            let index = match block.find(key) {
                Ok(index) => index,
                Err(0) => return Ok(None),
                Err(index) => index - 1,
            };
            if level == 0 {
                let filter = block.value(index).and_then(|value| value.get(PLACE_BYTES..));
                if !Filter::may_have(filter.unwrap_or_default(), key) {
                    return Ok(None);
                }
            }
            block = self.block(self.place(&block, index)?, true)?;
        }
        Ok(block.find(key).ok().map(|index| Slot { block, index }))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if *self.is_retired.get_mut() {
            // If the removal fails, the next open of the space removes the file, because no row names it.
            let _ = self.files.remove(self.record.number);
        }
    }
}

fn read(file: &dyn DiskFile, offset: u64, bytes: u32) -> Result<Block, String> {
    let mut buffer = vec![0; bytes as usize];
    SpaceFiles::read(file, &mut buffer, offset)
        .map_err(|error| format!("the block at byte {offset} cannot be read: {error}"))?;
    Block::read(buffer.into()).map_err(|reason| format!("{reason}, at byte {offset}"))
}

/// An entry in a block.
#[derive(Clone, Debug)]
pub struct Slot {
    block: Arc<Block>,
    index: usize,
}

impl Slot {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.block.key(self.index)
    }

    /// Returns the value; `None` if the key is removed.
    pub fn value(&self) -> Option<&[u8]> {
        self.block.value(self.index)
    }
}

/// The location of a block.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    bytes: u32,
}

const PLACE_BYTES: usize = 12;

impl Place {
    fn read(bytes: &[u8]) -> Option<Place> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (length, _) = rest.split_first_chunk()?;
        Some(Place { offset: u64::from_le_bytes(*offset), bytes: u32::from_le_bytes(*length) })
    }

    fn bytes(self) -> Vec<u8> {
        [&self.offset.to_le_bytes()[..], &self.bytes.to_le_bytes()].concat()
    }
}

struct Footer {
    root_at: u64,
    root_bytes: u32,
    levels: u32,
    entries: u64,
    content_bytes: u64,
}

impl Footer {
    fn bytes(&self) -> ([u8; FOOTER_BYTES], u32) {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..8].copy_from_slice(&self.root_at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.root_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.levels.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.entries.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.content_bytes.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    fn read(bytes: &[u8; FOOTER_BYTES], crc: u32) -> Result<Footer, &'static str> {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        if crc32fast::hash(&bytes[..32]) != short(32) {
            return Err("the footer of the segment does not have its checksum");
        }
        if short(32) != crc {
            return Err("it is another segment than the one that was stored");
        }
        let footer = Footer {
            root_at: long(0),
            root_bytes: short(8),
            levels: short(12),
            entries: long(16),
            content_bytes: long(24),
        };
        if footer.levels > LEVELS_MAX { Err("the segment has too many levels") } else { Ok(footer) }
    }
}

/// The block of one level that is being built.
#[derive(Default)]
struct Level {
    block: BlockBuilder,
    first_key: Vec<u8>,
    filter: Filter,
}

/// Writes a segment.
pub struct SegmentWriter {
    files: SpaceFiles,
    number: u64,
    file: Arc<dyn DiskFile>,
    /// Bytes not yet written to the file.
    buffer: Vec<u8>,
    /// Bytes written to the file.
    at: u64,
    /// From the entries upwards.
    levels: Vec<Level>,
    entries: u64,
    content_bytes: u64,
}

impl SegmentWriter {
    /// Begins the file `number`.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn create(files: &SpaceFiles, number: u64) -> io::Result<SegmentWriter> {
        Ok(SegmentWriter {
            file: files.create(number)?,
            files: files.clone(),
            number,
            buffer: MAGIC.to_vec(),
            at: 0,
            levels: vec![Level::default()],
            entries: 0,
            content_bytes: 0,
        })
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Appends an entry with a greater key than all before; `None` marks the key as removed.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        self.entries += 1;
        self.content_bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.add_to(0, key, value)
    }

    fn add_to(&mut self, at: usize, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let level = &self.levels[at];
        let added = key.len() + value.map_or(0, <[u8]>::len);
        // An index block refers to at least two blocks, so that each level is shorter than the one below.
        let is_full = level.block.len() >= if at == 0 { 1 } else { 2 };
        if is_full && level.block.bytes() + added > BLOCK_BYTES {
            self.end_block(at)?;
        }
        let level = &mut self.levels[at];
        if level.block.len() == 0 {
            level.first_key = key.to_vec();
        }
        level.block.add(key, value);
        if at == 0 {
            level.filter.add(key);
        }
        Ok(())
    }

    /// Writes the block of a level, and adds it to the level above.
    fn end_block(&mut self, at: usize) -> io::Result<()> {
        let (key, place) = self.write_block(at)?;
        if self.levels.len() == at + 1 {
            self.levels.push(Level::default());
        }
        self.add_to(at + 1, &key, Some(&place))
    }

    /// Writes the block of a level. Returns its first key and its location.
    fn write_block(&mut self, at: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let level = &mut self.levels[at];
        let bytes = level.block.take();
        let mut place = Place { offset: self.bytes(), bytes: bytes.len() as u32 }.bytes();
        let level = &mut self.levels[at];
        if at == 0 {
            place.extend_from_slice(&level.filter.take());
        }
        let key = std::mem::take(&mut level.first_key);
        self.buffer.extend_from_slice(&bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok((key, place))
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Completes the segment, and waits until its content survives a power cut; its name also needs [`SpaceFiles::sync_names`].
    /// The segment must have an entry.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn finish(mut self, age: u64) -> io::Result<Record> {
        let mut at = 0;
        while at + 1 < self.levels.len() {
            if self.levels[at].block.len() > 0 {
                self.end_block(at)?;
            }
            at += 1;
        }
        let root_at = self.bytes();
        let levels = at as u32;
        // The only block of a segment needs no filter: a reader of the index has the block in memory.
        self.write_block(at)?;
        let root_bytes = (self.bytes() - root_at) as u32;
        let (entries, content_bytes) = (self.entries, self.content_bytes);
        let footer = Footer { root_at, root_bytes, levels, entries, content_bytes };
        let (footer, crc) = footer.bytes();
        self.buffer.extend_from_slice(&footer);
        self.write()?;
        self.file.sync()?;
        Ok(Record { number: self.number, age, file_bytes: self.at, crc })
    }

    /// Abandons the segment and removes its file.
    pub fn abandon(self) {
        let _ = self.files.remove(self.number);
    }
}

/// A position in a segment, which moves over its entries in either direction.
pub struct Cursor {
    segment: Arc<Segment>,
    /// The blocks from the root down, each with the position in it; empty beyond either end.
    path: Vec<(Arc<Block>, usize)>,
    keeps: bool,
}

impl Cursor {
    /// Moves to the first entry whose key is `key` or greater; without a key, to the first entry. Adds blocks to the
    /// cache if `keeps` is set.
    ///
    /// # Errors
    /// Fails when a block cannot be read; the same holds for all methods.
    pub fn at_or_after(
        segment: &Arc<Segment>,
        key: Option<&[u8]>,
        keeps: bool,
    ) -> Result<Cursor, Damage> {
        let mut cursor = Cursor { segment: Arc::clone(segment), path: Vec::new(), keeps };
        let key = key.unwrap_or_default();
        cursor.descend(|block, level| match block.find(key) {
            Ok(index) => index,
            Err(index) if level == 0 => index,
            Err(index) => index.saturating_sub(1),
        })?;
        cursor.settle()?;
        Ok(cursor)
    }

    /// Moves to the last entry whose key is less than `key`; without a key, to the last entry.
    pub fn before(
        segment: &Arc<Segment>,
        key: Option<&[u8]>,
        keeps: bool,
    ) -> Result<Cursor, Damage> {
        let mut cursor = Cursor { segment: Arc::clone(segment), path: Vec::new(), keeps };
        // Find the position after the wanted entry, and step back.
        cursor.descend(|block, level| {
            let Some(key) = key else {
                return if level == 0 { block.len() } else { block.len() - 1 };
            };
            let index = block.find(key).unwrap_or_else(|index| index);
            match (level, block.find(key).is_ok()) {
                (0, _) | (_, true) => index,
                _ => index.saturating_sub(1),
            }
        })?;
        cursor.back()?;
        Ok(cursor)
    }

    fn descend(&mut self, choose: impl Fn(&Block, u32) -> usize) -> Result<(), Damage> {
        let mut block = Arc::clone(&self.segment.root);
        for level in (0..=self.segment.levels).rev() {
            let index = choose(&block, level);
            let below = match level {
                0 => None,
                _ => {
                    let place = self.segment.place(&block, index)?;
                    Some(self.segment.block(place, self.keeps)?)
                }
            };
            self.path.push((block, index));
            let Some(below) = below else { break };
            block = below;
        }
        Ok(())
    }

    /// Returns the entry; `None` beyond either end.
    pub fn slot(&self) -> Option<Slot> {
        let (block, index) = self.path.last()?;
        Some(Slot { block: Arc::clone(block), index: *index })
    }

    /// Returns the key of the entry.
    pub fn key(&self) -> Option<&[u8]> {
        let (block, index) = self.path.last()?;
        Some(block.key(*index))
    }

    /// Moves to the next entry.
    pub fn advance(&mut self) -> Result<(), Damage> {
        if let Some((_, index)) = self.path.last_mut() {
            *index += 1;
        }
        self.settle()
    }

    /// Moves to the next block while the position is past the end of one.
    fn settle(&mut self) -> Result<(), Damage> {
        let height = self.segment.levels as usize + 1;
        while self.path.last().is_some_and(|(block, index)| *index >= block.len()) {
            self.path.pop();
            if let Some((_, index)) = self.path.last_mut() {
                *index += 1;
            }
        }
        while !self.path.is_empty() && self.path.len() < height {
            self.enter(|_| 0)?;
        }
        Ok(())
    }

    /// Moves to the previous entry.
    pub fn back(&mut self) -> Result<(), Damage> {
        let height = self.segment.levels as usize + 1;
        while let Some((_, index)) = self.path.last_mut() {
            if let Some(before) = index.checked_sub(1) {
                *index = before;
                break;
            }
            self.path.pop();
        }
        while !self.path.is_empty() && self.path.len() < height {
            self.enter(|block| block.len() - 1)?;
        }
        Ok(())
    }

    fn enter(&mut self, choose: impl Fn(&Block) -> usize) -> Result<(), Damage> {
        let (block, index) = self.path.last().expect("there is a block above");
        let place = self.segment.place(block, *index)?;
        let block = self.segment.block(place, self.keeps)?;
        let index = choose(&block);
        self.path.push((block, index));
        Ok(())
    }
}
