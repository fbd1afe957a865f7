//! Full-text search: definitions, analysis, indexing and queries, over a store of blobs that is handed in.

mod analysis;
mod blobs;
mod definition;
mod directory;
mod document;
mod error;
mod geo;
mod index;
mod query;
mod randomness;
mod search;
mod service;
mod vector;

pub use analysis::Token;
pub use blobs::{Blobs, MemoryBlobs};
pub use definition::Definition;
pub use document::Place;
pub use error::{Error, Result};
pub use index::{Applied, Change, Commit, Index};
pub use search::{
    Cancelled, Explanation, Nearest, Partial, PartialHit, RESULT_WINDOW, Request, Response, merge,
    nearest, search, search_with,
};
pub use service::{Platform, SearchService};
