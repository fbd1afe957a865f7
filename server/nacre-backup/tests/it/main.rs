//! Backups of a simulated source, into a store that fails.

mod failures;
mod golden;
mod merging;
mod moments;
mod simulation;
mod source;
mod unreliable;
