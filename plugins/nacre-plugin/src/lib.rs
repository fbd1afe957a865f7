//! The Rust guest SDK: event buffer, state, collation, B-tree with reductions.
