//! Tests of the language without plans: values, keys, parsing and printing, indexes.

mod functions;
mod index;
mod keys;
mod syntax;
