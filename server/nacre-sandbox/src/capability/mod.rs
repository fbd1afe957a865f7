//! Capabilities: abilities of a plugin beyond computation. Each is an interface that the plugin imports.
//!
//! A deployment has the capabilities that its manifest declares, its deployer grants, and its component imports. The
//! embedder provides the first two as [`Grants`]. Nothing else is linked, so nothing else can be called.

mod blob;
mod body;
mod database;
mod held;
mod http_out;
mod kv;
mod log;
mod memory;
mod metrics;
mod paths;
mod query;
mod state;
mod timer;

use crate::abi::nacre::plugin as abi;
use crate::instance::Data;
use crate::manifest::covers;
use std::fmt;
use wasmtime::component::{HasSelf, Linker};

pub use body::Body;
pub use database::{
    Action, Consistency, Database, DatabaseIndex, DatabaseKeyspace, DatabaseRights, Definition,
    Failure, FunctionPath, IndexPage, IndexScan, IndexedRows, Mutation, NewFunction, NewIndex,
    NewPartitioning, Row, RowRefusal, Rows, Script, TransactionSettings, TransactionStep,
};
pub use held::{Filled, Held};
pub use http_out::{Header, Http, HttpError, HttpRequest, HttpResponse, NoHttp, origin};
pub use kv::{
    Content, Counted, DocumentCall, DocumentReply, Documents, Found, KvError, NoDocuments,
    StoreMode,
};
pub use log::LogLine;
pub use memory::MemoryDocuments;
pub use metrics::MetricChanges;
pub use paths::{
    Looked, MutateOptions, Mutated, PathLookup, PathMutation, TombstoneUse, path_failure,
};
pub use query::{NoQueries, OpenQueries, Queries, Query, QueryRows, QueryService};

/// An interface that a plugin may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// The plugin's own key space.
    State,
    /// The plugin's own files.
    Blob,
    /// Log lines for the operator.
    Log,
    /// Access to documents.
    Kv,
    /// Timers: calls at a later time.
    Timer,
    /// HTTP requests to named hosts.
    HttpOut,
    /// Metrics for the operator.
    Metrics,
    /// Queries.
    Query,
    /// The database as seen by queries.
    Database,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Capability; 9] = [
        Capability::State,
        Capability::Blob,
        Capability::Log,
        Capability::Kv,
        Capability::Timer,
        Capability::HttpOut,
        Capability::Metrics,
        Capability::Query,
        Capability::Database,
    ];

    /// Returns the name in manifests and `plugins/wit`.
    pub fn as_str(self) -> &'static str {
        match self {
            Capability::State => "state",
            Capability::Log => "log",
            Capability::Kv => "kv",
            Capability::Timer => "timer",
            Capability::HttpOut => "http-out",
            Capability::Metrics => "metrics",
            Capability::Query => "query",
            Capability::Database => "database",
            Capability::Blob => "blob",
        }
    }

    /// Returns the capability with this name.
    pub fn named(name: &str) -> Option<Capability> {
        Capability::ALL.into_iter().find(|capability| capability.as_str() == name)
    }

    /// Returns the name of the import in a component.
    pub(crate) fn interface(self) -> String {
        format!("nacre:plugin/{self}@0.1.0")
    }

    /// Adds the functions of the interface to a linker.
    pub(crate) fn link(self, linker: &mut Linker<Data>) -> wasmtime::Result<()> {
        fn data(data: &mut Data) -> &mut Data {
            data
        }
        type Own = HasSelf<Data>;
        match self {
            Capability::State => state::link(linker),
            Capability::Log => abi::log::add_to_linker::<Data, Own>(linker, data),
            Capability::Kv => abi::kv::add_to_linker::<Data, Own>(linker, data),
            Capability::Timer => abi::timer::add_to_linker::<Data, Own>(linker, data),
            Capability::HttpOut => abi::http_out::add_to_linker::<Data, Own>(linker, data),
            Capability::Metrics => abi::metrics::add_to_linker::<Data, Own>(linker, data),
            Capability::Query => abi::query::add_to_linker::<Data, Own>(linker, data),
            Capability::Database => abi::database::add_to_linker::<Data, Own>(linker, data),
            Capability::Blob => abi::blob::add_to_linker::<Data, Own>(linker, data),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Documents that a deployment may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceGrant {
    /// `scope.collection`, `scope.*` or `*` of the deployment's bucket; `bucket.scope.collection`, `bucket.scope.*` or
    /// `bucket.*.*` of another.
    pub keyspace: String,
    /// True if the documents may be changed.
    pub write: bool,
}

/// The capabilities of a deployment, as declared by its manifest and granted by its deployer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The plugin's own key space.
    pub state: bool,
    /// The plugin's own files.
    pub blob: bool,
    /// Lines in its log.
    pub log: bool,
    /// Timers.
    pub timer: bool,
    /// Metrics.
    pub metrics: bool,
    /// Documents; empty for none.
    pub kv: Vec<KeyspaceGrant>,
    /// Allowed hosts of HTTP requests, as `host` (on the default port of the scheme) or `host:port`, in lower case;
    /// empty for none.
    pub http_out: Vec<String>,
    /// Queries with the rights of the function's owner. Manifests cannot request this.
    pub query: bool,
    /// The database with the rights of the request's user. Manifests cannot request this.
    pub database: bool,
}

impl Grants {
    /// Returns the grants that concern only the deployment itself: state, blobs, log, timers and metrics.
    pub fn own() -> Grants {
        Grants {
            state: true,
            blob: true,
            log: true,
            timer: true,
            metrics: true,
            ..Grants::default()
        }
    }

    /// Returns true if `capability` is granted, at least in part.
    pub fn allows(&self, capability: Capability) -> bool {
        match capability {
            Capability::State => self.state,
            Capability::Log => self.log,
            Capability::Kv => !self.kv.is_empty(),
            Capability::Timer => self.timer,
            Capability::HttpOut => !self.http_out.is_empty(),
            Capability::Metrics => self.metrics,
            Capability::Query => self.query,
            Capability::Database => self.database,
            Capability::Blob => self.blob,
        }
    }

    /// Returns true if documents of `keyspace` may be read or, with `write`, also written.
    pub(crate) fn allows_keyspace(&self, keyspace: &str, write: bool) -> bool {
        self.kv.iter().any(|grant| covers(&grant.keyspace, keyspace) && (grant.write || !write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granted_scope_covers_its_collections_only() {
        let grant = |keyspace: &str, write| KeyspaceGrant { keyspace: keyspace.into(), write };
        let kv = vec![grant("a.*", false), grant("a.b", true)];
        let grants = Grants { kv, ..Grants::default() };
        assert!(grants.allows_keyspace("a.c", false) && grants.allows_keyspace("a.b", true));
        assert!(!grants.allows_keyspace("a.c", true), "only to be read");
        assert!(!grants.allows_keyspace("ab.c", false) && !grants.allows_keyspace("b.b", false));
        let all = Grants { kv: vec![grant("*", true)], ..Grants::default() };
        assert!(all.allows_keyspace("x.y", true));
        assert!(!all.allows_keyspace("other.x.y", false), "all of its own bucket");
    }

    #[test]
    fn capabilities_are_found_by_name() {
        for capability in Capability::ALL {
            assert_eq!(Capability::named(capability.as_str()), Some(capability));
        }
        assert_eq!(Capability::named("wasi"), None);
    }
}
