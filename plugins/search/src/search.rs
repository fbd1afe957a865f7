//! Requests over an index: what matches, in which order, and what of it is returned.
//!
//! ```text
//! Request ─ plan ─► Node, terms expanded and weighed over all segments
//!                     │ each segment: scorer ─► documents ─► facets, the best by the sort
//!                     └ the best: fields, places, fragments ─► Partial ─ merge of all partitions ─► Response
//! ```

mod expand;
mod facet;
mod highlight;
mod histogram;
mod knn;
mod locate;
mod phrase;
mod plan;
mod request;
mod response;
mod run;
mod scorer;
mod sort;
mod suggest;

pub use knn::{Nearest, nearest};
pub use request::{RESULT_WINDOW, Request};
pub use response::{Response, merge};
pub use run::{Cancelled, Partial, PartialHit, search, search_with};
pub use scorer::Explanation;
