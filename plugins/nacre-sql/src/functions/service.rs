//! Functions that the service evaluates, because they need information from outside of an
//! expression.

use super::{Function, MANY, open};
use crate::env::Context;
use crate::{Result, Value};

macro_rules! of_service {
    ($name:literal, $least:literal, $most:expr) => {
        open($name, $least, $most, |args, context| asked($name, args, context))
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    of_service!("ADVISOR", 1, 1),
    of_service!("CURL", 1, 2),
    of_service!("CURRENT_USERS", 0, 0),
    of_service!("DS_VERSION", 0, 0),
    of_service!("EVALUATE", 1, 2),
    of_service!("EXTRACTDDL", 0, 2),
    of_service!("FORMALIZE", 1, 2),
    of_service!("NEXTVAL", 1, 1),
    of_service!("NODE_NAME", 0, 0),
    of_service!("NODE_UUID", 0, 1),
    of_service!("PREVVAL", 1, 1),
    of_service!("QUERY_CONTEXT", 0, 0),
];

/// Returns true if the service evaluates a function.
pub(super) fn is_of_service(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}

fn asked(name: &str, args: &[Value], context: &Context<'_>) -> Result<Value> {
    debug_assert!(args.len() < MANY, "arguments are few");
    context.host.service_function(name, args, context)
}
