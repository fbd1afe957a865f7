//! The host with real components: `cargo xtask plugins` builds them.

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
