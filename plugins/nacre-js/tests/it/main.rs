//! The engine as plugins use it.

mod documents;
mod engine;
