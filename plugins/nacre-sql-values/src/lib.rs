//! Values of SQL++, keys of bytes in the same order, and errors.
//!
//! nacre-sql exports all of it under the same names; crates that need no statements depend on this one alone.

mod error;
pub mod key;
mod value;

pub use error::{AMBIGUOUS, EXECUTION, Error, MEMORY, PLAN, Result, SEMANTICS, SYNTAX};
pub use value::{DEPTH_MAX, Name, Object, Value, position, sorted, write_string};
