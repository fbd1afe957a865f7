//! Functions: one deployment per function.

use super::{AgreedState, WorkloadKind};
use crate::shipped::{EVENTING, QUERY};
use crate::spec::{Code, Spec};
use crate::{Runtime, functions};
use nacre_auth::Privilege;
use nacre_bucket::Bucket;
use nacre_cluster::{Cluster, FunctionState};
use nacre_node::Node;
use nacre_node::service::Service;
use nacre_sandbox::{Error, Partition};
use std::sync::Arc;

/// The kind.
pub(crate) struct Functions;

impl WorkloadKind for Functions {
    fn name(&self) -> &'static str {
        "functions"
    }

    fn specs(&self, agreed: &AgreedState<'_>, _runtime: Option<&Runtime>) -> Vec<Spec> {
        let bucket = agreed.bucket;
        let listening = agreed.cluster.functions.iter().filter(|(_, function)| {
            function.definition.source.bucket == bucket.name
                && function.state != FunctionState::Undeployed
        });
        listening.map(|(id, function)| functions::spec(&id, function, bucket)).collect()
    }

    /// The component of queries comes first, because functions with queries would wait for it.
    fn components(&self, cluster: &Cluster, _: &[Arc<dyn Service>]) -> Vec<Code> {
        let deployed = || {
            let all = cluster.functions.iter().map(|(_, function)| function);
            all.filter(|function| function.state != FunctionState::Undeployed)
        };
        let has_queries = deployed().any(|function| functions::queries(&function.definition));
        let is_there = |bucket: &String| cluster.buckets.contains_key(bucket);
        let has_any = deployed().any(|function| is_there(&function.definition.source.bucket));
        let codes = [has_queries.then_some(QUERY), has_any.then_some(EVENTING)];
        codes.into_iter().flatten().collect()
    }

    fn is_fold(&self, _spec: &Spec) -> bool {
        false
    }

    fn has_effects(&self, _spec: &Spec) -> bool {
        true
    }

    fn owns_timers(&self) -> bool {
        true
    }

    fn runs_script(&self, _spec: &Spec) -> bool {
        true
    }

    fn bypass(&self) -> Option<Privilege> {
        Some(Privilege::AdministerEventing)
    }

    fn resume_advice(&self) -> &'static str {
        "resume the function with ?from=now or ?from=everything"
    }

    fn begin(&self, node: &Node, bucket: &Bucket, partition: &mut Partition) -> Result<(), Error> {
        let cluster = node.cluster();
        let config = cluster.buckets.get(&bucket.name);
        let leads = config.is_some_and(|config| functions::leads(config, node.id()));
        functions::launch(partition, leads)
    }
}
