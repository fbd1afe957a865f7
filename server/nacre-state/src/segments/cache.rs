//! The cache of blocks and pages: one for all segments and blobs of a node, bounded in bytes.

use super::block::Block;
use quick_cache::{Weighter, sync};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are taken for the usual block, to size the tables of the cache.
const BLOCK_BYTES_USUAL: u64 = 4 << 10;

/// A cached item.
#[derive(Clone)]
enum Cached {
    Block(Arc<Block>),
    Page(Arc<[u8]>),
}

/// A block by its segment, which has a number in the cache, and its offset there.
type Key = (u64, u64);

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Cached> for ByBytes {
    fn weight(&self, _: &Key, cached: &Cached) -> u64 {
        match cached {
            Cached::Block(block) => block.bytes() as u64,
            Cached::Page(bytes) => bytes.len() as u64,
        }
    }
}

/// Keeps blocks that were read lately, up to a number of bytes. Clones share it.
///
/// A block that somebody holds lives on when the cache lets it go. Hashes are the same in each process, so that a simulation
/// reads the same blocks each time.
#[derive(Clone)]
pub struct BlockCache(Arc<Inner>);

struct Inner {
    blocks: sync::Cache<Key, Cached, ByBytes, BuildHasherDefault<DefaultHasher>>,
    bytes_max: usize,
    files: AtomicU64,
    reads: AtomicU64,
    hits: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> BlockCache {
        let bytes = bytes_max as u64;
        let items = (bytes / BLOCK_BYTES_USUAL).max(1) as usize;
        let hasher = BuildHasherDefault::default();
        BlockCache(Arc::new(Inner {
            blocks: sync::Cache::with(items, bytes, ByBytes, hasher, Default::default()),
            bytes_max,
            files: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }))
    }

    /// Bytes that it may have.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Bytes that it has.
    pub fn bytes(&self) -> usize {
        self.0.blocks.weight() as usize
    }

    /// Returns how many blocks were requested, and how many of them were cached.
    pub fn counts(&self) -> (u64, u64) {
        (self.0.reads.load(Ordering::Relaxed), self.0.hits.load(Ordering::Relaxed))
    }

    /// A number for a file that is opened, which no other has.
    pub(crate) fn number(&self) -> u64 {
        self.0.files.fetch_add(1, Ordering::Relaxed)
    }

    fn cached(&self, file: u64, offset: u64) -> Option<Cached> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        let found = self.0.blocks.get(&(file, offset));
        self.0.hits.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found
    }

    pub(super) fn get(&self, file: u64, offset: u64) -> Option<Arc<Block>> {
        match self.cached(file, offset)? {
            Cached::Block(block) => Some(block),
            Cached::Page(_) => None,
        }
    }

    pub(super) fn insert(&self, file: u64, offset: u64, block: &Arc<Block>) {
        self.0.blocks.insert((file, offset), Cached::Block(Arc::clone(block)));
    }

    pub(crate) fn get_page(&self, file: u64, page: u64) -> Option<Arc<[u8]>> {
        match self.cached(file, page)? {
            Cached::Page(bytes) => Some(bytes),
            Cached::Block(_) => None,
        }
    }

    pub(crate) fn insert_page(&self, file: u64, page: u64, bytes: &Arc<[u8]>) {
        self.0.blocks.insert((file, page), Cached::Page(Arc::clone(bytes)));
    }
}

impl Default for BlockCache {
    /// 16 MiB.
    fn default() -> BlockCache {
        BlockCache::new(16 << 20)
    }
}
