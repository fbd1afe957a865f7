//! The cost model of the query planner.
//!
//! ```text
//! condition ─ asked::sarg ─► Sarg ─┐
//!                                  ├─► Table::share ─► Estimate ─► the cheaper index, join or order of joins
//! values of a sample ─ Tally ─► Table
//! ```
//!
//! `WHERE status = "open"` constrains the key `status` to an equal value: a [`Sarg`]. UPDATE STATISTICS counts the values of
//! `status` in a sample, and [`Table`] keeps a histogram of them. If 400 of 10,000 documents are open, the share is 0.04; an
//! index on `status` reads 400 entries and 400 documents for it, which is an [`Estimate`].
//!
//! Invariants: no store, clock or randomness; a share is between 0 and the entries that a document has; an estimate is finite
//! and not negative, whatever the statistics say.

mod asked;
mod distribution;
mod estimate;
mod joins;
mod table;

pub use asked::{Sarg, mentions, rename, renamed, sarg};
pub use distribution::{Distribution, Tally};
pub use estimate::{Estimate, IndexCost, hash_join, lookup_join, loop_join, of_keys, sequential};
pub use joins::{Joining, best_order};
pub use table::Table;
