//! Clusters that replicate to each other, in one thread, under faults determined by a seed.
//!
//! ```text
//! client ─► vBucket ─► Pipeline ─► link: late, lost, twice, cut ─► receive / settle ─► vBucket of another cluster
//!              │ ▲                                                    │
//!   replica, disk: what a failover or a restart leaves              resolver, which may fail
//! ```
//!
//! The vBuckets and the pipelines are production code; the clusters around them are simulated. [`Simulation`] is one run: two to
//! four clusters in a mesh, a ring or a star, each with a clock, some vBuckets and a resolver.
//!
//! | condition | checked |
//! | --- | --- |
//! | A version replaces another one without a question only if it accounts for all its writes | each time ([`ledger`]) |
//! | Where conflicts are logged, the side that decides finds the conflict logged, with both bodies | each time |
//! | No CAS is assigned twice to a document | each write |
//! | A resting pipeline has no effects | each step |
//! | Every pair of clusters has the same documents: existence, body, attributes, CAS, revision, flags, expiry, history | at the end |
//! | Each acknowledged write that its own cluster kept exists, was superseded, or was merged | at the end |
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
