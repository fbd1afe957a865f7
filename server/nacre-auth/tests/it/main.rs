//! Tests of users and of who may change them.

mod changes;
mod decoys;
mod rights;
mod tokens;
