//! The cache of blocks and pages for all segments and blobs of a node, limited by bytes.

use super::block::Block;
use quick_cache::{Weighter, sync};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Assumed size of a typical block, to size the tables of the cache.
const BLOCK_BYTES_USUAL: u64 = 4 << 10;

/// A cached item.
#[derive(Clone)]
enum Cached {
    Block(Arc<Block>),
    Page(Arc<[u8]>),
}

/// The cache's number for the segment, and the offset of the block in it.
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

/// Caches recently read blocks, up to a number of bytes. Clones share the cache.
///
/// Evicted blocks stay valid for their holders. Hashes are the same in each process, so that a simulation reads the same
/// blocks every time.
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
    /// Creates a cache of at most `bytes_max` bytes.
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

    /// Returns the capacity in bytes.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        self.0.blocks.weight() as usize
    }

    /// Returns how many blocks were requested, and how many of them were cached.
    pub fn counts(&self) -> (u64, u64) {
        (self.0.reads.load(Ordering::Relaxed), self.0.hits.load(Ordering::Relaxed))
    }

    /// Returns a unique number for a newly opened file.
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
