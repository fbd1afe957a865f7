//! Workloads of services: one deployment each, of a component that comes with the binary.

use super::{AgreedState, WorkloadKind};
use crate::Runtime;
use crate::spec::{Code, Spec, numbers};
use nacre_cluster::Cluster;
use nacre_node::service::{Service, Workload};
use std::sync::Arc;

/// The kind.
pub(super) struct Services;

impl WorkloadKind for Services {
    fn name(&self) -> &'static str {
        "services"
    }

    fn specs(&self, agreed: &AgreedState<'_>, _runtime: Option<&Runtime>) -> Vec<Spec> {
        let mut specs = Vec::new();
        for service in agreed.services {
            let workloads = service.workloads(agreed.cluster, agreed.bucket);
            let id = service.spec().id;
            specs.extend(workloads.into_iter().map(|workload| spec(id, agreed.bucket, workload)));
        }
        specs
    }

    fn names(&self, agreed: &AgreedState<'_>) -> Vec<String> {
        self.specs(agreed, None).into_iter().map(|spec| spec.name).collect()
    }

    fn components(&self, cluster: &Cluster, services: &[Arc<dyn Service>]) -> Vec<Code> {
        let of_bucket = |bucket| {
            let workloads = services.iter().flat_map(|service| service.workloads(cluster, bucket));
            workloads.map(|workload| Code::Shipped(workload.component)).collect::<Vec<_>>()
        };
        cluster.buckets.values().flat_map(of_bucket).collect()
    }

    fn is_fold(&self, _spec: &Spec) -> bool {
        true
    }

    fn keeps_serving(&self, _spec: &Spec) -> bool {
        true
    }
}

fn spec(service: &str, bucket: &nacre_cluster::Bucket, workload: Workload) -> Spec {
    let Workload { name, component, state_version, form, identity, source, config, paused } =
        workload;
    let found = numbers(&bucket.manifest, &source);
    let space = format!(
        "services/{service}/{}-{}/{identity}/{}/{:08x}-{}/{state_version}",
        bucket.uuid,
        bucket.flushes,
        found.clone().unwrap_or_else(|_| "none".into()),
        nacre_value::crc32c(config.as_bytes()),
        config.len(),
    );
    let source = found.map(|_| source);
    let code = Code::Shipped(component);
    Spec { config, paused, form: Some(form), ..Spec::new(&Services, name, code, source, space) }
}
