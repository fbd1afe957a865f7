//! The components that come with the binary.

use super::spec::Code;

/// Runs the views of design documents.
pub(super) const VIEWS: Code = Code::Shipped("views");
/// Creates the entries of indexes.
pub(super) const INDEX: Code = Code::Shipped("index");
/// Runs JavaScript packages.
pub(super) const JS: Code = Code::Shipped("js");
/// Runs functions.
pub(super) const EVENTING: Code = Code::Shipped("eventing");
/// Removes types from TypeScript code.
pub(super) const TYPESCRIPT: Code = Code::Shipped("typescript");
/// Answers queries.
pub const QUERY: Code = Code::Shipped("query");
/// Runs the JavaScript functions of queries.
pub const EVALUATOR: Code = Code::Shipped("evaluator");
