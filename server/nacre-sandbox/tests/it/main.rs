//! Tests of the host with real components, which `cargo xtask plugins` builds.

mod answers;
mod attacks;
mod blobs;
mod capabilities;
mod capsules;
mod commits;
mod database;
mod eventing;
mod fixture;
mod grants;
mod hostile;
mod index;
mod js;
mod memory;
mod page;
mod pure;
mod queries;
mod search;
mod segments;
mod timers;
