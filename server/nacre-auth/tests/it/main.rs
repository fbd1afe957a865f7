//! Tests of users and of the rights to change them.

mod changes;
mod decoys;
mod rights;
mod tokens;
