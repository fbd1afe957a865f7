//! Sub-document operations: scripts whose transcripts are snapshots, and laws.

mod laws;
mod multi;
mod script;
