//! What SQL++ computes with: values, the bytes that order as they do, and errors.
//!
//! nacre-sql has all of it under the same names; this crate is for what needs no statements.

mod error;
pub mod key;
mod value;

pub use error::{AMBIGUOUS, EXECUTION, Error, MEMORY, PLAN, Result, SEMANTICS, SYNTAX};
pub use value::{DEPTH_MAX, Name, Object, Value, position, sorted, write_string};
