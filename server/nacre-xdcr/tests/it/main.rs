//! Pipelines step by step, and laws of histories.

mod laws;
mod pipeline;
