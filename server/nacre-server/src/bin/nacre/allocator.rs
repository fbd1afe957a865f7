//! The allocator of the process.
//!
//! Nearly all that a node allocates are documents, and most writes free a block of the size that they have just taken. Each thread
//! keeps a few such blocks, so that a write takes the memory that the one before it gave back, while it is in the processor's cache.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Configuration that the allocator reads when the process starts. Two arenas for all threads, because free memory of
/// one arena is useless to another; memory that is free for a second goes back to the system, by a background thread;
/// huge pages where `huge_pages` allows them.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 81] =
    b"narenas:2,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,thp:always\0";
