//! Plans of SQL++ queries.
//!
//! ```text
//! Select ─ plan ─► SelectPlan: a tree of Nodes ─┬─► nacre-query runs it
//!            │                                  └─► explain shows it, hints reports what became of optimizer hints
//!      PlanContext: keyspaces, indexes, statistics, parameters
//! ```
//!
//! `SELECT name FROM people WHERE age > 30 ORDER BY age` with an index on `age` is a scan of the index from 30 on, then a projection: the
//! entries have the order, so that nothing is sorted.
//!
//! Invariants: nothing is read but by [`PlanContext`], which gives no documents; a plan that asks it for a parameter holds for one request.

pub mod explain;
pub mod hints;
mod plan;
mod plan_context;
mod planner;
mod pushed_text;
mod span_text;

pub use plan::{
    Access, Costs, Group, IndexScan, Join, Nearest, Node, Page, Passing, Project, Pushed, Sarg,
    Scan, ScanSource, SearchScan, SelectPlan, Strategy,
};
pub use plan_context::PlanContext;
pub use planner::{attributes_in, conjuncts, literal, name_terms, plan, plan_merge, plan_term};
