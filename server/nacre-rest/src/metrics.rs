//! `GET /metrics`: the metrics of a node, in the text format of Prometheus.
//!
//! The node keeps nothing for this: for each request it reads buckets and deployments.

use super::Call;
use super::body::{Reply, ok, reply};
use super::routes::{Route, get, ready};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_bucket::{Bucket, OperationCounts, SlowService};
use nacre_cluster::Endpoints;
use nacre_http::Access;
use nacre_links::strangers::{Counts, Limits};
use nacre_node::service::{Metric, MetricKind};
use nacre_node::{Node, NodeMemory, Problem, ProblemKind, problems};
use nacre_plugins_service::{Deployment, NodePlugins, Progress, Pure};
use nacre_sandbox::{Budget, Histogram, Purpose, Status, Usage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::{Error, Result as FmtResult};

/// A number of a bucket.
type BucketNumber = fn(&BucketCounts) -> u64;

/// The media type of the format.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Beginnings of Couchbase's names for metrics of services, which keep them.
const COUCHBASE_PREFIXES: [&str; 2] = ["n1ql_", "fts_"];

const READ_STATS: Access = Access::Cluster(Privilege::ReadStats);

pub(super) const ROUTES: &[Route] = &[
    get("/metrics", READ_STATS, |call| ready(metrics(&call))),
    get("/prometheus_sd_config", READ_STATS, |call| ready(targets(&call))),
];

fn metrics(call: &Call) -> Result<Reply, Reply> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot::of(call)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes any text");
    Ok(reply(StatusCode::OK, CONTENT_TYPE, text))
}

/// Returns the addresses of the nodes' metrics, in the format of Prometheus' HTTP service discovery. With `port=secure`
/// these are TLS ports.
fn targets(call: &Call) -> Result<Reply, Reply> {
    let is_secure = call.form().iter().any(|field| *field == ("port".into(), "secure".into()));
    let cluster = call.node.cluster();
    let nodes = call.node.local_node().nodes(&cluster);
    let target = |endpoints: &Endpoints| {
        let ports = if is_secure { endpoints.tls.as_ref() } else { Some(&endpoints.plain) };
        ports.map(|ports| call.authority(endpoints, ports.mgmt()))
    };
    let targets: Vec<String> = nodes.values().filter_map(target).collect();
    Ok(ok(&json!([{"targets": targets, "labels": {"cluster": cluster.name}}])))
}

/// The metrics at a point in time.
#[derive(Debug)]
struct Snapshot {
    buckets: Vec<BucketCounts>,
    /// Problems of buckets.
    problems: Vec<Problem>,
    deployments: Vec<DeploymentCounts>,
    /// Number of queries from other nodes, by subject.
    questions: BTreeMap<&'static str, u64>,
    /// Metrics of services.
    services: Vec<Metric>,
    memory: MemoryCounts,
    door: DoorCounts,
}

/// Counters of connections and logins.
#[derive(Debug)]
struct DoorCounts {
    connections: Counts,
    limits: Limits,
    /// Refused logins since the start.
    failed_logins: u64,
    /// Slow operations since the start, by service.
    slow: [(&'static str, u64); SlowService::ALL.len()],
    /// Seconds since the start.
    uptime_s: u64,
    /// When the node's certificate expires, in seconds of Unix time.
    certificate_expiry_s: u64,
}

#[derive(Debug)]
struct MemoryCounts {
    /// Memory limit of the node, if known.
    limit_bytes: Option<u64>,
    /// For each budget, its limit if it has one, and the number of refused allocations.
    budgets: Vec<(&'static str, Option<u64>, u64)>,
    /// Memory in use, by purpose, and by buckets.
    used: Vec<(&'static str, u64)>,
}

impl MemoryCounts {
    fn of(memory: &NodeMemory, buckets: &[BucketCounts]) -> MemoryCounts {
        let named = memory.budgets().all();
        let limit = |budget: &Budget| {
            Some(budget.limit()).filter(|limit| *limit < usize::MAX).map(|limit| limit as u64)
        };
        let held = |purpose: Purpose| {
            let bytes: usize = named.iter().map(|(_, budget)| budget.held_for(purpose)).sum();
            (purpose.name(), bytes as u64)
        };
        let of_buckets = buckets.iter().map(|bucket| bucket.memory_bytes).sum();
        let budgets = named.map(|(name, budget)| (name, limit(budget), budget.refusals()));
        MemoryCounts {
            limit_bytes: memory.limit_bytes(),
            budgets: budgets.into(),
            used: Purpose::ALL.map(held).into_iter().chain([("buckets", of_buckets)]).collect(),
        }
    }
}

#[derive(Debug)]
struct BucketCounts {
    name: String,
    documents: u64,
    memory_bytes: u64,
    quota_bytes: u64,
    disk_bytes: u64,
    live_bytes: u64,
    operations: OperationCounts,
}

#[derive(Debug)]
struct DeploymentCounts {
    name: String,
    version: String,
    is_running: bool,
    /// True if a part of the state is lost and the operator must decide how to continue.
    is_damaged: bool,
    /// True if the deployment receives documents and keeps state.
    follows: bool,
    lags: Vec<(u16, u64)>,
    status: Status,
}

impl Snapshot {
    fn of(call: &Call) -> Snapshot {
        let (node, connections) = (&call.node, &call.front.connections);
        let (certificate, _) = call.tls.certificate();
        let cluster = node.cluster();
        let buckets = cluster.buckets.keys().filter_map(|name| node.bucket(name));
        let buckets: Vec<_> = buckets.map(|bucket| BucketCounts::of(&bucket)).collect();
        let door = DoorCounts {
            connections: connections.counts(),
            limits: connections.limits(),
            failed_logins: node.logins().failed(),
            slow: SlowService::ALL.map(|of| (of.name(), node.slow_log().count(of))),
            uptime_s: node.now().monotonic_ns / 1_000_000_000,
            certificate_expiry_s: u64::try_from(certificate.not_after).unwrap_or_default(),
        };
        Snapshot {
            door,
            memory: MemoryCounts::of(node.memory(), &buckets),
            buckets,
            problems: problems(node),
            deployments: DeploymentCounts::all(node),
            questions: node.questions(),
            services: node.services().iter().flat_map(|service| service.metrics(node)).collect(),
        }
    }
}

impl BucketCounts {
    fn of(bucket: &Bucket) -> BucketCounts {
        let (documents, memory_bytes) = bucket.usage();
        let disk = bucket.disk_usage();
        BucketCounts {
            name: bucket.name.clone(),
            documents,
            memory_bytes,
            quota_bytes: bucket.quota_bytes(),
            disk_bytes: disk.disk_bytes,
            live_bytes: disk.live_bytes,
            operations: bucket.operation_counts(),
        }
    }
}

impl DeploymentCounts {
    fn all(node: &Node) -> Vec<DeploymentCounts> {
        let plugins = node.plugins();
        let following = plugins.deployments();
        let following = following.iter().map(|deployment| DeploymentCounts::of(deployment));
        following
            .chain(plugins.pure().all().iter().map(|pure| DeploymentCounts::of_pure(pure)))
            .collect()
    }

    fn of_pure(pure: &Pure) -> DeploymentCounts {
        DeploymentCounts {
            name: pure.name().to_owned(),
            version: pure.version().to_owned(),
            is_running: pure.failure().is_none(),
            is_damaged: false,
            follows: false,
            lags: Vec::new(),
            status: pure.status(),
        }
    }

    fn of(deployment: &Deployment) -> DeploymentCounts {
        // Up-to-date vBuckets are omitted: a node may have a thousand of them for each deployment.
        let lags = deployment.lags().filter(|(_, lag)| *lag > 0);
        DeploymentCounts {
            name: deployment.name.clone(),
            version: deployment.version().to_owned(),
            is_running: deployment.progress() == Progress::Running,
            is_damaged: matches!(deployment.progress(), Progress::Damaged(_)),
            follows: true,
            lags: lags.map(|(vbid, lag)| (vbid.0, lag)).collect(),
            status: deployment.status(),
        }
    }
}

/// Writes one family of metrics, with its name and help text.
struct Family<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl Family<'_, '_> {
    /// Writes one value for each item, with the labels that `labels` returns.
    fn each<T, M: EncodeMetric, const N: usize>(
        &mut self,
        (name, help, unit): (&str, &str, Option<&Unit>),
        kind: MetricType,
        items: impl Iterator<Item = T>,
        measure: impl Fn(T) -> ([(&'static str, String); N], M),
    ) -> FmtResult {
        let mut items = items.peekable();
        if items.peek().is_none() {
            return Ok(());
        }
        let mut descriptor = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for item in items {
            let (labels, metric) = measure(item);
            metric.encode(descriptor.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn counter(value: u64) -> ConstCounter<u64> {
    ConstCounter::new(value)
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_door(&mut encoder)?;
        self.encode_memory(&mut encoder)?;
        self.encode_buckets(&mut encoder)?;
        self.encode_couchbase(&mut encoder)?;
        self.encode_problems(&mut encoder)?;
        self.encode_questions(&mut encoder)?;
        self.encode_services(&mut encoder)?;
        self.encode_deployments(&mut encoder)?;
        self.encode_calls(encoder)
    }
}

impl Snapshot {
    /// Couchbase's names begin with `kv_`.
    fn encode_door(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        let mut family = Family { encoder };
        let DoorCounts { connections, limits, failed_logins, uptime_s, slow, .. } = &self.door;
        let expiry_s = self.door.certificate_expiry_s;
        let expiry = "nacre_certificate_expiry_timestamp";
        let open = connections.descriptors as u64;
        let (most, strangers) = (limits.descriptors_max as u64, connections.strangers as u64);
        for (name, help, unit, value) in [
            ("nacre_uptime", "Time since the start", Some(&Unit::Seconds), *uptime_s),
            (expiry, "When the node's certificate expires", Some(&Unit::Seconds), expiry_s),
            ("kv_curr_connections", "Open connections", None, open),
            ("nacre_connections_limit", "Connections that may be open", None, most),
            ("nacre_connections_without_login", "Connections without a login", None, strangers),
        ] {
            let level = |value: &u64| ([], gauge(*value));
            family.each((name, help, unit), MetricType::Gauge, [value].iter(), level)?;
        }
        let Counts { refused, displaced, .. } = connections;
        for (name, help, value) in [
            ("nacre_connections_refused", "Connections refused at the limit", *refused),
            ("nacre_connections_displaced", "Connections closed for newer ones", *displaced),
            ("kv_auth_errors", "Refused logins", *failed_logins),
        ] {
            let count = |value: &u64| ([], counter(*value));
            family.each((name, help, None), MetricType::Counter, [value].iter(), count)?;
        }
        let name = "nacre_slow_operations";
        let help = "Operations that took longer than --slow-op-ms or --slow-query-ms";
        family.each((name, help, None), MetricType::Counter, slow.iter(), |(service, count)| {
            ([("service", (*service).to_owned())], counter(*count))
        })
    }

    fn encode_memory(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        let mut family = Family { encoder };
        let MemoryCounts { limit_bytes, budgets, used } = &self.memory;
        family.each(
            ("nacre_memory_limit", "Memory that the node may use", Some(&Unit::Bytes)),
            MetricType::Gauge,
            limit_bytes.iter(),
            |bytes| ([], gauge(*bytes)),
        )?;
        family.each(
            ("nacre_memory_budget", "Part of it that a budget may use", Some(&Unit::Bytes)),
            MetricType::Gauge,
            budgets.iter().filter_map(|(name, limit, _)| limit.map(|limit| (*name, limit))),
            |(name, limit)| ([("budget", name.to_owned())], gauge(limit)),
        )?;
        family.each(
            ("nacre_memory_used", "Memory in use, by purpose", Some(&Unit::Bytes)),
            MetricType::Gauge,
            used.iter(),
            |(name, bytes)| ([("for", (*name).to_owned())], gauge(*bytes)),
        )?;
        family.each(
            ("nacre_memory_refusals", "How often a budget had no memory left", None),
            MetricType::Counter,
            budgets.iter(),
            |(name, _, refusals)| ([("budget", (*name).to_owned())], counter(*refusals)),
        )
    }

    fn encode_buckets(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        let mut family = Family { encoder };
        let mut of_buckets = |name: &str, help: &str, unit, value: fn(&BucketCounts) -> u64| {
            family.each((name, help, unit), MetricType::Gauge, self.buckets.iter(), |bucket| {
                ([("bucket", bucket.name.clone())], gauge(value(bucket)))
            })
        };
        of_buckets("nacre_bucket_documents", "Documents", None, |bucket| bucket.documents)?;
        of_buckets("nacre_bucket_memory", "Memory in use", Some(&Unit::Bytes), |bucket| {
            bucket.memory_bytes
        })?;
        of_buckets(
            "nacre_bucket_quota",
            "Memory that may be used",
            Some(&Unit::Bytes),
            |bucket| bucket.quota_bytes,
        )?;
        of_buckets("nacre_bucket_disk", "Disk in use", Some(&Unit::Bytes), |bucket| {
            bucket.disk_bytes
        })?;
        of_buckets(
            "nacre_bucket_disk_live",
            "Part of it that is needed",
            Some(&Unit::Bytes),
            |bucket| bucket.live_bytes,
        )?;
        let operations = self.buckets.iter().flat_map(|bucket| {
            let OperationCounts { reads, writes, deletes } = bucket.operations;
            let kinds = [("read", reads), ("write", writes), ("delete", deletes)];
            kinds.map(|(kind, count)| (&bucket.name, kind, count))
        });
        family.each(
            ("nacre_bucket_operations", "Requests of clients for documents", None),
            MetricType::Counter,
            operations,
            |(bucket, kind, count)| {
                ([("bucket", bucket.clone()), ("kind", kind.to_owned())], counter(count))
            },
        )
    }

    /// The numbers of buckets by Couchbase's names, for its dashboards. There, `kv_ops` counts up and has no `_total`.
    fn encode_couchbase(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        let mut family = Family { encoder };
        let values: [(&str, &str, BucketNumber); 4] = [
            ("kv_curr_items", "Documents", |bucket| bucket.documents),
            ("kv_mem_used_bytes", "Memory in use, in bytes", |bucket| bucket.memory_bytes),
            ("kv_ep_max_size", "Memory that may be used, in bytes", |bucket| bucket.quota_bytes),
            ("couch_docs_actual_disk_size", "Disk in use, in bytes", |bucket| bucket.disk_bytes),
        ];
        for (name, help, value) in values {
            family.each((name, help, None), MetricType::Gauge, self.buckets.iter(), |bucket| {
                ([("bucket", bucket.name.clone())], gauge(value(bucket)))
            })?;
        }
        let operations = self.buckets.iter().flat_map(|bucket| {
            let OperationCounts { reads, writes, deletes } = bucket.operations;
            let kinds = [("get", reads), ("set", writes), ("delete", deletes)];
            kinds.map(|(op, count)| (&bucket.name, op, count))
        });
        family.each(
            ("kv_ops", "Requests of clients for documents since the start", None),
            MetricType::Gauge,
            operations,
            |(bucket, op, count)| {
                ([("bucket", bucket.clone()), ("op", op.to_owned())], gauge(count))
            },
        )
    }

    /// Families without a value are omitted: a value may trigger an alert.
    fn encode_problems(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        let mut family = Family { encoder };
        let mut each = |name: &str, help: &str, value: fn(&ProblemKind) -> Option<u64>| {
            let found =
                self.problems.iter().filter_map(|problem| Some((problem, value(&problem.kind)?)));
            family.each((name, help, None), MetricType::Gauge, found, |(problem, value)| {
                ([("bucket", problem.bucket.clone())], gauge(value))
            })
        };
        each(
            "nacre_bucket_read_only_vbuckets",
            "vBuckets that take no writes after a failed write until the node is started again",
            |kind| if let ProblemKind::ReadOnly(count) = kind { Some(*count as u64) } else { None },
        )?;
        each(
            "nacre_bucket_damaged",
            "Buckets that are not served, as their files are damaged",
            |kind| matches!(kind, ProblemKind::Damaged(_)).then_some(1),
        )?;
        each(
            "nacre_bucket_store_waiting",
            "Buckets that refuse writes until the disk has space and the process has descriptors",
            |kind| (*kind == ProblemKind::Waiting).then_some(1),
        )
    }

    fn encode_questions(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        Family { encoder }.each(
            ("nacre_questions_answered", "Questions of other nodes", None),
            MetricType::Counter,
            self.questions.iter(),
            |(subject, count)| ([("subject", (*subject).to_owned())], counter(*count)),
        )
    }

    fn encode_services(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        for metric in &self.services {
            let is_couchbase = COUCHBASE_PREFIXES.iter().any(|of| metric.name.starts_with(of));
            let prefix = if is_couchbase { "" } else { "nacre_" };
            let name = format!("{prefix}{}", metric.name);
            match metric.kind {
                MetricKind::Counter => encoder
                    .encode_descriptor(&name, metric.help, None, MetricType::Counter)
                    .and_then(|descriptor| counter(metric.value).encode(descriptor))?,
                MetricKind::Gauge => encoder
                    .encode_descriptor(&name, metric.help, None, MetricType::Gauge)
                    .and_then(|descriptor| gauge(metric.value).encode(descriptor))?,
            }
        }
        Ok(())
    }

    fn encode_deployments(&self, encoder: &mut DescriptorEncoder<'_>) -> FmtResult {
        let mut family = Family { encoder };
        let all = || self.deployments.iter();
        let following = || all().filter(|one| one.follows);
        let label = |one: &DeploymentCounts| ("deployment", one.name.clone());
        family.each(
            ("nacre_plugin_running", "1 if it processes documents or calls", None),
            MetricType::Gauge,
            all(),
            |one| ([label(one), ("version", one.version.clone())], gauge(one.is_running.into())),
        )?;
        family.each(
            (
                "nacre_plugin_damaged",
                "1 if a part of its state is lost and it waits for the operator",
                None,
            ),
            MetricType::Gauge,
            following(),
            |one| ([label(one)], gauge(one.is_damaged.into())),
        )?;
        let mut count = |name: &str, help: &str, value: fn(&Status) -> u64| {
            family.each((name, help, None), MetricType::Counter, following(), |one| {
                ([label(one)], counter(value(&one.status)))
            })
        };
        count("nacre_plugin_documents", "Documents taken", |status| status.documents)?;
        count("nacre_plugin_document_errors", "Documents that failed", |status| status.errors)?;
        count("nacre_plugin_dead_letters", "Documents that were skipped", |status| {
            status.dead_letter_count
        })?;
        count("nacre_plugin_timers", "Timers that fired", |status| status.timers)?;
        family.each(
            ("nacre_plugin_traps", "Calls that cost a plugin its instance", None),
            MetricType::Counter,
            all(),
            |one| {
                let status = &one.status;
                ([label(one)], counter(status.writer.failures + status.readers.failures))
            },
        )?;
        family.each(
            ("nacre_plugin_behind", "Seqnos of all vBuckets yet to be processed", None),
            MetricType::Gauge,
            following(),
            |one| ([label(one)], gauge(one.lags.iter().map(|(_, lag)| lag).sum::<u64>())),
        )?;
        family.each(
            (
                "nacre_plugin_lag",
                "Seqnos of a vBucket yet to be processed, where there are any",
                None,
            ),
            MetricType::Gauge,
            all().flat_map(|one| one.lags.iter().map(move |lag| (one, lag))),
            |(one, (vbid, lag))| ([label(one), ("vbucket", vbid.to_string())], gauge(*lag)),
        )?;
        family.each(
            ("nacre_plugin_state", "Keys and values of its state", Some(&Unit::Bytes)),
            MetricType::Gauge,
            following(),
            |one| ([label(one)], gauge(one.status.state_bytes as u64)),
        )?;
        family.each(
            ("nacre_plugin_memory", "Linear memory of its instances", Some(&Unit::Bytes)),
            MetricType::Gauge,
            all(),
            |one| ([label(one)], gauge(one.status.memory_bytes as u64)),
        )?;
        family.each(
            ("nacre_plugin_metric", "Values that a plugin reports", None),
            MetricType::Gauge,
            all().flat_map(|one| one.status.metrics.iter().map(move |metric| (one, metric))),
            |(one, (name, value))| {
                ([label(one), ("name", name.clone())], ConstGauge::<f64>::new(*value))
            },
        )
    }

    /// Writes the calls of writers and of readers separately.
    fn encode_calls(&self, mut encoder: DescriptorEncoder<'_>) -> FmtResult {
        let usages = || {
            self.deployments.iter().flat_map(|one| {
                let writer = one.follows.then_some((one, "writer", &one.status.writer));
                writer.into_iter().chain([(one, "reader", &one.status.readers)])
            })
        };
        let labels = |one: &DeploymentCounts, role: &str| {
            [("deployment", one.name.clone()), ("role", role.to_owned())]
        };
        let mut family = Family { encoder: &mut encoder };
        family.each(
            ("nacre_plugin_call_failures", "Calls that failed", None),
            MetricType::Counter,
            usages(),
            |(one, role, usage)| (labels(one, role), counter(usage.failures)),
        )?;
        family.each(
            ("nacre_sandbox_calls", "Calls of a plugin into the host", None),
            MetricType::Counter,
            usages().flat_map(|(one, role, usage)| {
                usage.host_calls().map(move |(capability, count)| (one, role, capability, count))
            }),
            |(one, role, capability, count)| {
                let [deployment, role] = labels(one, role);
                ([deployment, role, ("capability", capability.to_string())], counter(count))
            },
        )?;
        let mut descriptor = encoder.encode_descriptor(
            "nacre_plugin_call",
            "Calls by the time they took",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (one, role, usage) in usages() {
            let buckets = buckets(usage);
            descriptor.encode_family(&labels(one, role))?.encode_histogram::<NoLabelSet>(
                usage.elapsed_ns as f64 / 1e9,
                usage.calls,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

/// Returns the number of calls in each bucket of a histogram, with its upper bound in seconds.
fn buckets(usage: &Usage) -> Vec<(f64, u64)> {
    let bound = |index: usize| {
        Histogram::bound_ns(index).map_or(f64::MAX, |nanoseconds| nanoseconds as f64 / 1e9)
    };
    usage.latency.counts.iter().enumerate().map(|(index, count)| (bound(index), *count)).collect()
}
