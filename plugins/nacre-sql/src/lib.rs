//! SQL++ (N1QL) without plans and stores: the part that queries and indexes share.
//!
//! ```text
//! text ─ parse ─► Statement ─ resolve ─► names are variables or fields ─ eval(expr, env) ─► Value
//!                     │                                                                      │
//!                  Display: canonical text                                   key::encode: ordered bytes
//! ```
//!
//! Invariants: no clock, randomness or store except those that a [`Host`] provides; parsing and evaluation never
//! panic, and recurse no deeper than [`HEIGHT_MAX`]; printing a tree and parsing the text returns the same tree.

pub mod ast;
mod condition;
mod env;
mod eval;
pub mod functions;
pub mod index;
pub mod inline;
mod lexer;
mod multikey;
mod parser;
mod pattern;
mod print;
mod scope;
mod search;
mod visit;

pub use condition::Condition;
pub use env::{Caches, Content, Context, Env, HeldBodies, HeldBody, Host, Json, Meta, NoHost};
pub use eval::{bindings_of, eval, position_name};
pub use nacre_sql_values::{
    AMBIGUOUS, DEPTH_MAX, EXECUTION, Error, MEMORY, Name, Object, PLAN, Result, SEMANTICS, SYNTAX,
    Value, key, position, sorted, write_string,
};
pub use parser::{HEIGHT_MAX, parse, parse_analytics, parse_expr, parse_path};
pub use pattern::prefix as like_prefix;
pub use scope::{RESULT, Scope, resolve_expr, resolve_projection, resolve_select, resolve_source};
pub use search::{Hits, Searched, out_of, target as search_target};
pub use visit::{any_in, each_child, each_in_select};
