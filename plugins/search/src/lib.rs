//! Full-text search: definitions, analysis, indexing and queries, over a store of blobs that is handed in.
//!
//! ```text
//! Definition::parse ─► Definition ─ map ─► fields ─► Index::apply ─► segments in Blobs ─ commit ─► Commit
//! Request::parse ─► Request ─ search, on each partition ─► Partial ─ merge ─► Response
//! ```
//!
//! [`SearchService`] has both for one partition, as a plugin of the world `service`; [`SearchComponent`] is that over the blobs of a deployment.
//!
//! Invariants: no clock, thread, file or chance; what is not JSON or does not suit a mapping is left out and counted, never an error of the
//! batch; a query is refused in the words of the vendor or carried out exactly.
//!
//! What is other than with the vendor: the "light" stemmers of languages are those of Snowball; the words of `sort` of a hit are those
//! of the values, not of their encoding; ties are decided by the ID; filters of texts do not look across the borders of the parts, of
//! 256 KiB, that texts above 1 MiB are cut into; a document has at most 10,000 names of fields. Not there yet: `nested`, synonyms,
//! `custom_filter` and `custom_score`, attributes.

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
    Cancelled, Explanation, Nearest, Partial, PartialHit, RESULT_WINDOW, Request, Response, merge,
    nearest, search, search_with,
};
pub use service::{Platform, SearchService};
