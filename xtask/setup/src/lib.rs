//! Installation, builds and processes for chores: tools, plugins, SDKs, nodes and clusters of them.
//!
//! Each function installs or builds what it needs into folders of the project, or reports in one line what is
//! missing.
#![expect(
    clippy::disallowed_methods,
    reason = "a chore reads and writes files, starts programs and reads the clock"
)]

pub mod cluster;
pub mod command;
pub mod network;
pub mod node;
pub mod plugins;
pub mod sdks;
pub mod tools;
