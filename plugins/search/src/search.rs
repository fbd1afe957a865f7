//! Executes requests on an index: matching, sorting, and the data of hits.
//!
//! ```text
//! Request ─ plan ─► Node, with terms expanded and weighted over all segments
//!                     │ each segment: scorer ─► documents ─► facets, best documents by sort order
//!                     └ best documents: fields, positions, fragments ─► Partial ─ merge of all partitions ─► Response
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
mod synonyms;

pub use knn::{Nearest, nearest};
pub use request::{RESULT_WINDOW, Request};
pub use response::{Response, merge};
pub use run::{Cancelled, Partial, PartialHit, search, search_knowing, search_with};
pub use scorer::Explanation;
pub use synonyms::{Thesaurus, thesaurus};
