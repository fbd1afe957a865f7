//! The setup of a plugin.

use crate::capability::{Documents, Grants, Http, NoDocuments, NoHttp, NoQueries, Queries};
use crate::{Budgets, Limits};
use nacre_state::IndexForm;
use std::sync::Arc;

/// A deployment as seen by the host: configuration, rights, limits, and access to external data.
#[derive(Clone)]
pub struct Setup {
    /// Name of the deployment in messages.
    pub name: String,
    /// JSON for `lifecycle.init`.
    pub config: String,
    /// Default keyspace of the plugin, as `scope.collection`.
    pub keyspace: String,
    /// Form of the index, for index plugins.
    pub index: IndexForm,
    /// Its limits.
    pub limits: Limits,
    /// Its grants.
    pub grants: Grants,
    /// True if the plugin runs a script, whose capabilities do not appear among its imports: a missing grant is then
    /// refused at its use instead of at the deployment.
    pub runs_script: bool,
    /// The documents behind `kv`.
    pub documents: Arc<dyn Documents>,
    /// The connections behind `http-out`.
    pub http: Arc<dyn Http>,
    /// Answers queries.
    pub queries: Arc<dyn Queries>,
    /// Budgets of the node that its memory counts against, in addition to `limits`.
    pub budgets: Budgets,
}

impl Setup {
    /// Creates a setup on the default collection with default limits, and with grants that concern only the deployment
    /// itself.
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
