//! Views: one deployment per design document.

use super::{AgreedState, WorkloadKind};
use crate::Runtime;
use crate::shipped::VIEWS;
use crate::spec::{Code, Spec, numbers};
use nacre_cluster::{Cluster, Refusal, Source};
use nacre_node::service::Service;
use std::sync::Arc;
use std::time::Duration;

/// Prefix of the names of development design documents.
const DEVELOPMENT: &str = "dev_";

/// Number of lanes among which a node divides the vBuckets of a design document, each with its own writer and tree. Answers are
/// merged from lanes as from nodes, so more lanes build faster and answer slower. The number does not depend on the machine, so a
/// state that moves to a larger machine is not rebuilt.
const LANES: u16 = 2;

/// Defaults of a pace of which a design document sets only a part. Source: Couchbase's defaults.
const PACE_INTERVAL: Duration = Duration::from_secs(5);
const PACE_CHANGES_MIN: u64 = 5000;

/// Options of deployments of design documents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ViewOptions {
    /// True if the design document is in development and answers from a part of the vBuckets.
    pub is_development: bool,
    /// Interval at which new changes are processed; `None` for immediately.
    pub pace: Option<Pace>,
}

/// How long a deployment lets changes gather. A query that needs them requests an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Interval of checks for changes.
    pub interval: Duration,
    /// Number of changes from which they are processed.
    pub changes_min: u64,
}

/// The kind.
pub(super) struct Views;

impl WorkloadKind for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    fn component(&self) -> Option<Code> {
        Some(VIEWS)
    }

    fn specs(&self, agreed: &AgreedState<'_>, runtime: Option<&Runtime>) -> Vec<Spec> {
        let Some(runtime) = runtime else { return Vec::new() };
        let config = agreed.bucket;
        let one = |(name, document): (&String, &String)| {
            let space = view_space(config, name, document, &runtime.state_version);
            let view = ViewOptions {
                is_development: name.starts_with(DEVELOPMENT),
                pace: pace_of(document),
            };
            Spec {
                config: view_config(name, document, true).unwrap_or_default(),
                view: Some(view),
                ..Spec::new(
                    &Views,
                    view_name(&config.name, name),
                    VIEWS,
                    view_source(config, document),
                    space,
                )
            }
        };
        config.design_documents.iter().map(one).collect()
    }

    fn names(&self, agreed: &AgreedState<'_>) -> Vec<String> {
        let documents = agreed.bucket.design_documents.keys();
        documents.map(|name| view_name(&agreed.bucket.name, name)).collect()
    }

    /// Always includes the component, because a design document is checked before any exists.
    fn components(&self, _: &Cluster, _: &[Arc<dyn Service>]) -> Vec<Code> {
        vec![VIEWS]
    }

    fn lanes(&self) -> u16 {
        LANES
    }

    fn is_fold(&self, _spec: &Spec) -> bool {
        true
    }
}

/// Returns the name of a design document's deployment.
pub(crate) fn view_name(bucket: &str, name: &str) -> String {
    format!("{bucket}/{name}")
}

/// Returns the configuration of the views plugin: the design document with its name, and whether the plugin has accepted it
/// before.
pub(crate) fn view_config(name: &str, document: &str, is_checked: bool) -> Option<String> {
    let mut config: serde_json::Value = serde_json::from_str(document).ok()?;
    let members = config.as_object_mut()?;
    members.insert("name".into(), name.into());
    members.insert("checked".into(), is_checked.into());
    Some(config.to_string())
}

/// Returns the keyspace that a design document indexes: `"collection": "scope.name"`, or the default one.
///
/// # Errors
/// Fails if the collection does not exist.
pub(crate) fn view_source(
    config: &nacre_cluster::Bucket,
    document: &str,
) -> Result<Source, Refusal> {
    let document: serde_json::Value = serde_json::from_str(document).unwrap_or_default();
    let path = document.get("collection").and_then(serde_json::Value::as_str).unwrap_or(".");
    config.manifest.resolve(path)?;
    let (scope, collection) = path.split_once('.').expect("what resolves has a dot");
    let or_default =
        |name: &str| Some(if name.is_empty() { "_default".to_owned() } else { name.to_owned() });
    Ok(Source {
        bucket: config.name.clone(),
        scope: or_default(scope),
        collection: or_default(collection),
    })
}

/// Returns the pace of a design document: `"options": {"updateInterval": milliseconds, "updateMinChanges": count}`.
fn pace_of(document: &str) -> Option<Pace> {
    let document: serde_json::Value = serde_json::from_str(document).ok()?;
    let number = |name: &str| document["options"][name].as_u64();
    let (interval, changes) = (number("updateInterval"), number("updateMinChanges"));
    if interval.is_none() && changes.is_none() {
        return None;
    }
    Some(Pace {
        interval: interval.map_or(PACE_INTERVAL, Duration::from_millis),
        changes_min: changes.unwrap_or(PACE_CHANGES_MIN),
    })
}

/// Returns the name of a design document's space, which encodes everything that its rows depend on.
fn view_space(
    config: &nacre_cluster::Bucket,
    name: &str,
    document: &str,
    state_version: &str,
) -> String {
    let collection = view_source(config, document)
        .and_then(|source| numbers(&config.manifest, &source))
        .unwrap_or_else(|_| "none".into());
    let text = nacre_value::crc32c(document.as_bytes());
    format!(
        "views/{}/{}/{name}/{collection}/{text:08x}-{}/{state_version}",
        config.uuid,
        config.flushes,
        document.len()
    )
}
