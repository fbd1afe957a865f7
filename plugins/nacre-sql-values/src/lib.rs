//! Values of SQL++, byte keys in the same order, and errors.
//!
//! nacre-sql re-exports everything under the same names; crates that need no statements depend only on this
//! one.

mod error;
pub mod key;
mod value;

pub use error::{AMBIGUOUS, EXECUTION, Error, MEMORY, PLAN, Result, SEMANTICS, SYNTAX};
pub use value::{DEPTH_MAX, Name, Object, Value, position, sorted, write_string};
