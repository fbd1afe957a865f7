//! Clusters that follow each other, in one thread, put through faults that a seed decides.
//!
//! ```text
//! client ─► vBucket ─► Pipeline ─► link: late, lost, twice, cut ─► receive / settle ─► vBucket of another cluster
//!              │ ▲                                                    │
//!   follower, disk: what a failover or a restart leaves             resolver, which may fail
//! ```
//!
//! The vBuckets and the pipelines are those of the product; the clusters around them are made here. [`Simulation`] is one
//! run: between two and four clusters in a mesh, a ring or a star, each with a clock, some vBuckets and a resolver.
//!
//! | What must be true | where |
//! | --- | --- |
//! | A version replaces another one without a question only if it has taken account of all its writes | each time ([`ledger`]) |
//! | Who decides a conflict finds it logged, with both bodies, where conflicts are logged | each time |
//! | No CAS is assigned twice to a document | each write |
//! | A pipeline that rests wants nothing | each step |
//! | Every pair of clusters has the same: existence, body, attributes, CAS, revision, flags, expiry, history | at the end |
//! | Each acknowledged write that its own cluster kept is there, was superseded, or was merged | at the end |
//! | Deletions that may be missing were reported | at the end |
//! | Replication ends, and sends each version over each link at most once after the last write | at the end |

mod check;
mod conflict_log;
mod copies;
mod faults;
pub mod ledger;
mod plan;
mod resolver;
mod simulation;
mod target;
mod total;

pub use plan::{ClusterPlan, Mix, Plan, Resolver, Topology};
pub use simulation::{Simulation, Summary};
pub use total::{Total, parse_range};
