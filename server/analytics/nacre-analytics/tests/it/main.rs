//! Compares queries over columns with the project's own evaluator, which reads documents one by
//! one.

mod conformance;
mod differential;
mod extremes;
mod limits;
mod processes;
mod queries;
mod world;
