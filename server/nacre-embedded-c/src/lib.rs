//! The C interface of embedded nacre: [`nacre.h`](../nacre.h), over the Rust library of the same name.
//!
//! ```text
//! handle        a Box whose address the caller has; it contains a clone of the database
//! bytes in      borrowed for the duration of the call
//! bytes out     a document shares the database's memory until it is released; a buffer is a copy until it is freed
//! failure       a number; its text is stored per thread
//! ```
//!
//! Safety contract of every function: a pointer to a handle is NULL or was returned by the function that creates such handles and
//! has not been freed; a pointer with a size is NULL with size 0 or points to that many bytes; a pointer to a struct is NULL or
//! points to a struct whose `size` is set. A required pointer that is NULL is refused with `NACRE_INVALID_ARGUMENT`, and a panic
//! returns `NACRE_INTERNAL`.

mod changes;
mod collection;
mod database;
mod documents;
mod outcome;
#[cfg(feature = "query")]
mod query;
mod session;
mod subdocument;
#[cfg(feature = "sync")]
mod sync;
#[cfg(feature = "views")]
mod views;
mod wake;
