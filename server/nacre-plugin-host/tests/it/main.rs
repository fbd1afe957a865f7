//! The host with the real views component: `cargo xtask plugins` builds it.

mod attacks;
mod commits;
mod fixture;
mod grants;
mod queries;
