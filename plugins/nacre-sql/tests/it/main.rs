//! The language without plans: values, keys, text to trees and back, indexes.

mod functions;
mod index;
mod keys;
mod syntax;
