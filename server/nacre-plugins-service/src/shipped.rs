//! The components that come with the binary.

use super::spec::Code;

/// Runs the views of design documents.
pub(super) const VIEWS: Code = Code::Shipped("views");
/// Makes the entries of indexes.
pub(super) const INDEX: Code = Code::Shipped("index");
/// Runs packages in JavaScript.
pub(super) const JS: Code = Code::Shipped("js");
/// Runs functions.
pub(super) const EVENTING: Code = Code::Shipped("eventing");
/// Takes types out of code.
pub(super) const TYPESCRIPT: Code = Code::Shipped("typescript");
/// Answers queries.
pub const QUERY: Code = Code::Shipped("query");
/// Runs the functions of queries that are written in JavaScript.
pub const EVALUATOR: Code = Code::Shipped("evaluator");
