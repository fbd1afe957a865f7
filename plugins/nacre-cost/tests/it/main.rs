//! Shares of values against counting, and orders of joins against trying all of them.

mod joins;
mod shares;
