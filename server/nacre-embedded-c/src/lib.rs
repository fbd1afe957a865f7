//! nacre in the process for C: [`nacre.h`](../nacre.h), over the Rust library of the same name.
//!
//! ```text
//! handle        a Box whose address the caller has; it holds a clone of the database
//! bytes in      borrowed for the length of the call
//! bytes out     a document shares the database's memory until it is released; a buffer is a copy until it is freed
//! failure       a number; its text is kept per thread
//! ```
//!
//! Safety of every function here: a pointer to a handle is NULL or was returned by the function that makes such handles and was not
//! freed; a pointer with a size is NULL with size 0 or has that many bytes; a pointer to a struct is NULL or points to one whose `size` is
//! set. NULL where something is needed is refused with `NACRE_INVALID_ARGUMENT`, and a panic ends as `NACRE_INTERNAL`.

mod changes;
mod collection;
mod database;
mod documents;
mod outcome;
mod session;
mod subdocument;
#[cfg(feature = "sync")]
mod sync;
mod wake;
