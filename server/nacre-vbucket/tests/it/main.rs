//! Tests of the vBucket from outside: scripts of commands with their transcripts, and laws over random
//! histories.

mod model;
mod script;
mod stored;
