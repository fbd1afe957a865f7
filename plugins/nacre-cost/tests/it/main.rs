//! Compares shares with counts of values, and join orders with an exhaustive search.

mod joins;
mod shares;
