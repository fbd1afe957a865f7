//! Full-text search: definitions, analysis, indexing and queries, on a store of blobs that the caller supplies.
//!
//! ```text
//! Definition::parse ─► Definition ─ map ─► fields ─► Index::apply ─► segments in Blobs ─ commit ─► Commit
//! Request::parse ─► Request ─ search, on each partition ─► Partial ─ merge ─► Response
//! ```
//!
//! [`SearchService`] combines both for one partition, as a plugin of the world `service`; [`SearchComponent`] runs it on the blobs of a
//! deployment.
//!
//! Invariants: the crate uses no clock, thread, file or random numbers. A document, or a value, that is not JSON or does not suit the
//! mapping is skipped and counted; it never fails the batch. A query is either executed exactly or refused in the words of the vendor.
//!
//! Differences from the vendor: the "light" stemmers of languages are the Snowball stemmers. The member `sort` of a hit contains the
//! values, not their encoding. The ID breaks ties. Token filters do not see across the borders of the 256-KiB parts into which texts
//! above 1 MiB are split. A document has at most 10,000 field names. Synonyms are words, of the terms of a query
//! but not of its patterns. Not implemented yet: `nested`, `custom_filter` and `custom_score`, attributes.

mod blobs;
mod component;
mod definition;
mod directory;
mod document;
mod error;
mod evaluate;
mod geo;
mod index;
mod query;
mod randomness;
mod search;
mod service;
mod vector;

pub use blobs::{Blobs, MemoryBlobs};
pub use component::SearchComponent;
pub use definition::Definition;
pub use document::Place;
pub use error::{Error, Result};
pub use index::{Applied, Change, Commit, Index};
pub use nacre_text::Token;
pub use search::{
    Cancelled, Explanation, Nearest, Partial, PartialHit, RESULT_WINDOW, Request, Response,
    Thesaurus, merge, nearest, search, search_knowing, search_with, thesaurus,
};
pub use service::{Platform, SearchService};
