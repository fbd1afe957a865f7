//! What a plugin runs with.

use crate::capability::{Documents, Grants, Http, NoDocuments, NoHttp, NoQueries, Queries};
use crate::{Budgets, Limits};
use nacre_state::IndexForm;
use std::sync::Arc;

/// A deployment as the host sees it: what the plugin is configured with, what it may do, and through whom.
#[derive(Clone)]
pub struct Setup {
    /// What messages call the deployment.
    pub name: String,
    /// JSON for `lifecycle.init`.
    pub config: String,
    /// `scope.collection` that the plugin means when it names no other.
    pub keyspace: String,
    /// What an index keeps.
    pub index: IndexForm,
    /// What it may use up.
    pub limits: Limits,
    /// What it may do.
    pub grants: Grants,
    /// Whether the plugin runs a script, whose wishes are not among its imports: what it is not granted is then refused
    /// when it is used, and not when it is deployed.
    pub runs_script: bool,
    /// The documents behind `kv`.
    pub documents: Arc<dyn Documents>,
    /// The connections behind `http-out`.
    pub http: Arc<dyn Http>,
    /// What answers behind `query`.
    pub queries: Arc<dyn Queries>,
    /// What its memory is taken from, below `limits`.
    pub budgets: Budgets,
}

impl Setup {
    /// A deployment on the default collection, with default limits, that may do what concerns nobody else.
    pub fn new(name: impl Into<String>, config: impl Into<String>) -> Setup {
        Setup {
            name: name.into(),
            config: config.into(),
            keyspace: "_default._default".into(),
            index: IndexForm::default(),
            limits: Limits::default(),
            grants: Grants::own(),
            runs_script: false,
            documents: Arc::new(NoDocuments),
            http: Arc::new(NoHttp),
            queries: Arc::new(NoQueries),
            budgets: Budgets::default(),
        }
    }
}
