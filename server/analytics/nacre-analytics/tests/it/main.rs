//! Queries over columns against the project's own evaluator, which reads documents one by one.

mod differential;
mod queries;
mod world;
