//! Tests of the engine as plugins use it.

mod documents;
mod engine;
