//! Derived state: the result of folding the change stream by a plugin, together with the progress that it reflects.
//!
//! ```text
//! Changes ──commit──► StateStorage      entries, timers and progress: one atomic batch
//!    ▲
//! View ── reads and changes ──► State { KeySpace, Timers }      clones are snapshots
//! ```
//!
//! A [`KeySpace`] is an ordered map from bytes to bytes whose clones are snapshots. A writer changes a clone through a
//! [`View`]; after the commit, the clone is published to readers. Indexes are an access method on top ([`fold`],
//! [`IndexSnapshot`]).
//!
//! Invariants:
//! - State and progress are committed atomically.
//! - No snapshot sees a write to another one.
//! - The crate knows no plugin and no sandbox: it does not depend on wasmtime, and has no thread, clock or socket. All its
//!   files belong to nacre-store.

mod blobs;
mod form;
mod index;
mod key_space;
mod progress;
mod scan;
mod segmented;
mod segments;
mod space;
mod space_storage;
mod storage;
mod timers;
mod tree;

pub use blobs::{
    BLOB_NAME_BYTES_MAX, BLOB_READ_BYTES_MAX, BlobError, BlobFiles, BlobInfo, BlobRecord, Blobs,
};
pub use form::{StateForm, StateOptions};
pub use index::{
    Entry, Form as IndexForm, IndexSnapshot, Indexed, IndexedRef, Span, fold, forget, too_large,
};
pub use key_space::{Found, KeySpace, Row, Rows};
pub use progress::{
    FollowerPosition, ProgressDelta, ProgressLog, ProgressStamp, TimerChanges, TimerCopy,
    VbucketProgress,
};
pub use scan::{Page, Scan, ScanEntry};
pub use segmented::{MergeJob, Segmenting};
pub use segments::{BlockCache, Damage, Merge, Merged, Record, Segments, Slot};
pub use space::{Refused, SCAN_BYTES_MAX, State, View, Writes};
pub use space_storage::{DEFERRED_BYTES_MAX, SpaceStorage, SyncCounts};
pub use storage::{Changes, Loaded, MemoryStorage, StateStorage};
pub use timers::{Home, TIMER_NAME_BYTES_MAX, Timer, Timers};
pub use tree::{Bytes, KEY_BYTES_MAX, Range, Value};
