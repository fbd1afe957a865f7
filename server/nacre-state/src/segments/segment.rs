//! A segment: an immutable file of sorted entries.
//!
//! ```text
//! file     "nacre segment 1\n" | blocks | footer
//! block    entries of the segment, or of an index: the first key and the place of each block below
//! index    offset u64 | bytes u32 | filter of the keys below, where these are entries of the segment
//! footer   offset of the root u64 | its bytes u32 | levels u32 | entries u64 | bytes of keys and values u64 | crc u32
//! ```
//!
//! Numbers are little-endian. Blocks are written as they are filled, those of an index after the last one that they
//! name, so that a segment of any size is written in one pass with one block a level in memory. A filter has ten bits a
//! key and is in the index: only one look-up in a hundred of an absent key reads a block of entries.

use super::block::{Block, BlockBuilder};
use super::cache::BlockCache;
use super::filter::Filter;
use nacre_store::{DiskFile, SpaceFiles};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAGIC: &[u8; 16] = b"nacre segment 1\n";
const FOOTER_BYTES: usize = 36;
/// Bytes of a block beyond which the next entry goes into another one.
const BLOCK_BYTES: usize = if cfg!(test) { 128 } else { 4 << 10 };
/// Bytes that a writer collects before they go to the file.
const WRITE_BYTES: usize = 1 << 20;
/// Levels of blocks at most; each has at least two blocks for one above.
const LEVELS_MAX: u32 = 40;

/// A part of a state that is lost or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct Damage {
    /// The path of the file.
    pub file: String,
    /// The damage.
    pub reason: String,
}

/// Description of a segment in the rows of a space. It reveals a file that is missing, torn or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the file.
    pub number: u64,
    /// Orders segments: an entry of a greater one counts.
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
    /// The number in the cache.
    cached_as: u64,
    /// Never leaves memory.
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

    /// Returns the content of the row that names it.
    pub fn record(&self) -> Record {
        self.record
    }

    /// Bytes of all keys and values.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Bytes that it takes in memory outside of the cache.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Segment>() + self.root.bytes()
    }

    /// Removes the file once no reader uses it any more.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    fn damage(&self, reason: String) -> Damage {
        Damage { file: self.files.path(self.record.number), reason }
    }

    /// A block. Unless `keeps` is set the cache is left as it is.
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
        place.ok_or_else(|| self.damage("an index does not say where a block is".into()))
    }

    /// The entry of a key: none where the segment has none, `Some(None)` where it is removed there.
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
            // A leftover is removed when the space is opened again, as no row names it.
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
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.block.key(self.index)
    }

    /// The value; none where the key is removed.
    pub fn value(&self) -> Option<&[u8]> {
        self.block.value(self.index)
    }
}

/// Place of a block.
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

/// Blocks of one level that are being written.
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
    /// Bytes that are not in the file yet.
    buffer: Vec<u8>,
    /// Bytes of the file.
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

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds an entry behind all before; `None` says that the key is removed.
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
        // An index has two blocks below it at least, so that each level is shorter than the one below.
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

    /// Writes the block of a level, and names it in the level above.
    fn end_block(&mut self, at: usize) -> io::Result<()> {
        let (key, place) = self.write_block(at)?;
        if self.levels.len() == at + 1 {
            self.levels.push(Level::default());
        }
        self.add_to(at + 1, &key, Some(&place))
    }

    /// Writes the block of a level. Returns its first key, and where it is.
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

    /// Ends the segment, and waits until its content survives a power cut; its name needs [`SpaceFiles::sync_names`]. There must be
    /// an entry.
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
        // A filter of the only block is useless: a reader of the index has the block in memory.
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

    /// Removes the output.
    pub fn abandon(self) {
        let _ = self.files.remove(self.number);
    }
}

/// A place in a segment, from which its entries are gone through in either direction.
pub struct Cursor {
    segment: Arc<Segment>,
    /// The blocks from the root down, each with the position that leads on; empty behind either end.
    path: Vec<(Arc<Block>, usize)>,
    keeps: bool,
}

impl Cursor {
    /// Moves to the first entry whose key is `key` or greater; to the first of all if there is no key. Its blocks go to
    /// the cache if `keeps` is set.
    ///
    /// # Errors
    /// Fails when a block cannot be read; so for all methods.
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

    /// At the last entry whose key is less than `key`; at the last of all when there is no key.
    pub fn before(
        segment: &Arc<Segment>,
        key: Option<&[u8]>,
        keeps: bool,
    ) -> Result<Cursor, Damage> {
        let mut cursor = Cursor { segment: Arc::clone(segment), path: Vec::new(), keeps };
        // One behind the entry that is wanted, and back from there.
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

    /// The entry; none behind either end.
    pub fn slot(&self) -> Option<Slot> {
        let (block, index) = self.path.last()?;
        Some(Slot { block: Arc::clone(block), index: *index })
    }

    /// The key of the entry.
    pub fn key(&self) -> Option<&[u8]> {
        let (block, index) = self.path.last()?;
        Some(block.key(*index))
    }

    /// Goes to the next entry.
    pub fn advance(&mut self) -> Result<(), Damage> {
        if let Some((_, index)) = self.path.last_mut() {
            *index += 1;
        }
        self.settle()
    }

    /// Goes on to the next block while the position is behind the end of one.
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

    /// Goes to the entry before.
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
