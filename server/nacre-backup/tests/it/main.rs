//! Tests of backups: a simulated source, and a store that fails.

mod failures;
mod golden;
mod merging;
mod moments;
mod simulation;
mod source;
mod unreliable;
