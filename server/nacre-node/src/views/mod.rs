//! Views: for each design document of a bucket a deployment of the views plugin, fed and queried.
//!
//! A deployment's state lives in a space named after bucket, design document and the document's text, so that a
//! changed design document is built anew beside the old rows, and an unchanged one resumes after a restart.

mod feed;
mod storage;

use crate::bucket::Bucket;
use crate::node::Node;
use crate::watermark::Watermarks;
use feed::Feed;
use nacre_plugin_host::{Limits, Partition, Plugin, Reader, Request, Response, Setup, Status};
use nacre_types::{CollectionId, Seqno, Vbid};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::SpaceStorage;

/// What the names of all views' spaces begin with.
const SPACE_PREFIX: &str = "views/";

/// How a deployment is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It follows the bucket.
    Running,
    /// It was replaced or removed.
    Removed,
    /// It cannot go on: the reason, for whoever wrote the design document.
    Failed(String),
}

/// One design document at work.
pub struct Deployment {
    /// `bucket/design document`, as messages name it.
    pub name: String,
    /// Name of its space: identifies the text it runs.
    space: String,
    bucket: Arc<Bucket>,
    reader: Option<Reader>,
    /// Up to where each vBucket is reflected in the rows.
    pub processed: Watermarks,
    progress: Mutex<Progress>,
    /// What the plugin's host counts.
    pub status: Mutex<Status>,
    /// Whether the feed still uses the space.
    feeding: Mutex<bool>,
    fed: Condvar,
    node: std::sync::Weak<Node>,
}

impl Deployment {
    /// How it is doing.
    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    fn is_ended(&self) -> bool {
        *self.progress.lock() != Progress::Running
    }

    fn end(&self, progress: Progress) {
        let mut current = self.progress.lock();
        if *current == Progress::Running {
            *current = progress;
        }
        drop(current);
        self.processed.publish();
        self.bucket.wake_readers();
    }

    /// The feed is gone: the state of a removed deployment goes too.
    fn feed_ended(&self) {
        let removed = *self.progress.lock() == Progress::Removed;
        if let (true, Some(node)) = (removed, self.node.upgrade())
            && let Err(error) = node.platform.spaces().remove(&self.space)
        {
            tracing::warn!("{}: its rows could not be removed: {error}", self.name);
        }
        *self.feeding.lock() = false;
        self.fed.notify_all();
    }

    /// Waits until the feed of a deployment that was removed has ended, and its rows are gone: after the batch at hand.
    /// Not for a thread that others wait for.
    pub fn wait_for_feed(&self) {
        let mut feeding = self.feeding.lock();
        while *feeding {
            self.fed.wait(&mut feeding);
        }
    }

    /// Waits until the rows reflect everything that the bucket held when this was called.
    ///
    /// # Errors
    /// The reason, when the deployment ends before.
    pub async fn catch_up(&self) -> Result<(), String> {
        for (index, high_seqno) in self.bucket.high_seqnos().into_iter().enumerate() {
            let vbid = Vbid(index as u16);
            if high_seqno > Seqno::ZERO
                && !self.processed.reached(vbid, high_seqno, || self.is_ended()).await
            {
                break;
            }
        }
        match self.progress() {
            Progress::Running => Ok(()),
            Progress::Removed => Err("the design document was replaced or deleted".into()),
            Progress::Failed(reason) => Err(reason),
        }
    }

    /// Answers a view request; takes as long as the plugin does, so not for a thread that others wait for.
    ///
    /// # Errors
    /// What stopped the plugin, or why it cannot answer.
    pub fn handle(&self, request: &Request, now: nacre_types::Now) -> Result<Response, String> {
        let stopped = || "the views plugin does not run".to_owned();
        if let Progress::Failed(reason) = self.progress() {
            return Err(reason);
        }
        self.reader
            .as_ref()
            .ok_or_else(stopped)?
            .handle(request, now)
            .and_then(nacre_plugin_host::Answer::whole)
            .map_err(|error| error.to_string())
    }
}

/// The plugin that runs views.
#[derive(Clone)]
struct Runtime {
    plugin: Plugin,
    /// Names the format of its rows: those of another version are built anew.
    state_version: String,
}

/// The views of all buckets.
#[derive(Default)]
pub struct Views {
    plugin: RwLock<Option<Runtime>>,
    deployments: RwLock<BTreeMap<(String, String), Arc<Deployment>>>,
    /// Held while deployments are brought in line: loading a state takes time, and queries go on meanwhile.
    deploying: Mutex<()>,
    /// Deployments that were removed and whose feeds may still use their spaces.
    leaving: Mutex<Vec<Arc<Deployment>>>,
}

impl Views {
    /// Limits of each deployment.
    pub fn limits() -> Limits {
        Limits::default()
    }

    /// Whether the plugin that runs views is there: compiling it takes seconds after a first start.
    pub fn is_ready(&self) -> bool {
        self.plugin.read().is_some()
    }

    /// Takes the plugin that runs views, and deploys what waits for it.
    ///
    /// # Errors
    /// When the plugin does not say what it is.
    pub fn install(&self, node: &Arc<Node>, plugin: Plugin) -> Result<(), String> {
        let description = plugin.describe(Views::limits()).map_err(|error| error.to_string())?;
        let description: serde_json::Value = serde_json::from_str(&description).unwrap_or_default();
        let state_version =
            description["state_version"].as_str().ok_or("it has no state_version")?.to_owned();
        let runtime = Runtime { plugin, state_version };
        let cluster = node.cluster();
        // Before anything can be deployed, so that nothing new is taken for a leftover.
        if let Err(error) = remove_leftovers(node, &cluster, &runtime) {
            tracing::warn!("rows of design documents that are gone could not be removed: {error}");
        }
        *self.plugin.write() = Some(runtime);
        for config in node.cluster().buckets.values() {
            if let Some(bucket) = node.bucket(&config.name) {
                self.redeploy(node, &bucket, config);
            }
        }
        Ok(())
    }

    /// Checks a design document without deploying it.
    ///
    /// # Errors
    /// What is wrong with it, for its author.
    pub fn validate(&self, name: &str, document: &str) -> Result<(), String> {
        let runtime =
            self.plugin.read().clone().ok_or("the views plugin is not ready yet: try again")?;
        let config = config_of(name, document).ok_or("a design document is a JSON object")?;
        let setup = Setup { limits: Views::limits(), ..Setup::new("views", config) };
        nacre_plugin_host::validate(&runtime.plugin, setup).map_err(|error| match error {
            nacre_plugin_host::Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// The deployment of a design document.
    pub fn deployment(&self, bucket: &str, name: &str) -> Option<Arc<Deployment>> {
        self.deployments.read().get(&(bucket.to_owned(), name.to_owned())).cloned()
    }

    /// Brings the deployments of a bucket in line with its design documents; those that failed get another try.
    pub(crate) fn redeploy(
        &self,
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        config: &nacre_cluster::Bucket,
    ) {
        let Some(runtime) = self.plugin.read().clone() else { return };
        let _deploying = self.deploying.lock();
        let wanted: BTreeMap<&String, (String, &String)> = config
            .design_documents
            .iter()
            .map(|(name, document)| {
                (name, (space_of(config, name, document, &runtime.state_version), document))
            })
            .collect();
        self.deployments.write().retain(|(owner, name), deployment| {
            let kept = *owner != config.name
                || Arc::ptr_eq(&deployment.bucket, bucket)
                    && deployment.progress() == Progress::Running
                    && wanted.get(name).is_some_and(|(space, _)| *space == deployment.space);
            if !kept {
                self.leave(deployment);
            }
            kept
        });
        for (name, (space, document)) in wanted {
            let key = (config.name.clone(), name.clone());
            let deployed = self.deployments.read().contains_key(&key);
            if !deployed {
                self.wait_for_space(&space);
                let deployment =
                    deploy(node, bucket, config, &runtime.plugin, name, space, document);
                self.deployments.write().insert(key, deployment);
            }
        }
    }

    pub(crate) fn undeploy_bucket(&self, bucket: &Arc<Bucket>) {
        self.deployments.write().retain(|_, deployment| {
            let kept = !Arc::ptr_eq(&deployment.bucket, bucket);
            if !kept {
                self.leave(deployment);
            }
            kept
        });
    }

    fn leave(&self, deployment: &Arc<Deployment>) {
        deployment.end(Progress::Removed);
        self.leaving.lock().push(Arc::clone(deployment));
    }

    /// Two feeds never share a space: a text that was replaced and comes back waits until its old rows are gone.
    fn wait_for_space(&self, space: &str) {
        let mut leaving = self.leaving.lock();
        leaving.retain(|deployment| *deployment.feeding.lock());
        leaving
            .iter()
            .filter(|deployment| deployment.space == space)
            .for_each(|deployment| deployment.wait_for_feed());
    }

    /// Wakes all feeds so that they see their buckets closed.
    pub(crate) fn stop(&self) {
        for deployment in self.deployments.read().values() {
            deployment.bucket.wake_readers();
        }
    }
}

/// The configuration of the plugin: the design document with its name.
fn config_of(name: &str, document: &str) -> Option<String> {
    let mut config: serde_json::Value = serde_json::from_str(document).ok()?;
    config.as_object_mut()?.insert("name".into(), name.into());
    Some(config.to_string())
}

/// The collection that a design document indexes: `"collection": "scope.name"`, or the default one.
fn collection_of(config: &nacre_cluster::Bucket, document: &str) -> Result<CollectionId, String> {
    let document: serde_json::Value = serde_json::from_str(document).unwrap_or_default();
    match document.get("collection").and_then(serde_json::Value::as_str) {
        None => Ok(CollectionId::DEFAULT),
        Some(path) => config.manifest.resolve(path).map_err(|refusal| refusal.to_string()),
    }
}

/// Removes the spaces of design documents that were removed when the node could not finish.
fn remove_leftovers(
    node: &Node,
    cluster: &nacre_cluster::Cluster,
    runtime: &Runtime,
) -> Result<(), nacre_store::Error> {
    let wanted: Vec<String> = cluster
        .buckets
        .values()
        .flat_map(|config| {
            config
                .design_documents
                .iter()
                .map(|(name, document)| space_of(config, name, document, &runtime.state_version))
        })
        .collect();
    let spaces = node.platform.spaces();
    for name in spaces
        .names()?
        .iter()
        .filter(|name| name.starts_with(SPACE_PREFIX) && !wanted.contains(name))
    {
        spaces.remove(name)?;
    }
    Ok(())
}

/// Names the space of a deployment by all that its rows depend on.
fn space_of(
    config: &nacre_cluster::Bucket,
    name: &str,
    document: &str,
    state_version: &str,
) -> String {
    let collection = collection_of(config, document).map_or("none".to_owned(), |id| id.to_string());
    let text = nacre_value::crc32c(document.as_bytes());
    format!(
        "views/{}/{}/{name}/{collection}/{text:08x}-{}/{state_version}",
        config.uuid,
        config.flushes,
        document.len()
    )
}

fn deploy(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    config: &nacre_cluster::Bucket,
    plugin: &Plugin,
    name: &str,
    space: String,
    document: &str,
) -> Arc<Deployment> {
    let full_name = format!("{}/{name}", config.name);
    let opened = collection_of(config, document).and_then(|collection| {
        let storage =
            SpaceStorage(node.platform.spaces().open(&space).map_err(|error| error.to_string())?);
        let config = config_of(name, document).ok_or("a design document is a JSON object")?;
        let setup = Setup { limits: Views::limits(), ..Setup::new(&*full_name, config) };
        Partition::open(plugin.clone(), setup, Box::new(storage))
            .map(|partition| (collection, partition))
            .map_err(|error| error.to_string())
    });
    let (reader, status, progress) = match &opened {
        Ok((_, partition)) => (Some(partition.reader()), partition.status(), Progress::Running),
        Err(reason) => {
            tracing::error!("{full_name} cannot be deployed: {reason}");
            (None, Status::default(), Progress::Failed(reason.clone()))
        }
    };
    let deployment = Arc::new(Deployment {
        name: full_name,
        space,
        bucket: Arc::clone(bucket),
        reader,
        processed: Watermarks::new(usize::from(bucket.vbucket_count())),
        progress: Mutex::new(progress),
        status: Mutex::new(status),
        feeding: Mutex::new(opened.is_ok()),
        fed: Condvar::new(),
        node: Arc::downgrade(node),
    });
    if let Ok((collection, partition)) = opened {
        let platform = Arc::clone(&node.platform);
        let feed =
            Feed::new(platform, Arc::clone(bucket), Arc::clone(&deployment), collection, partition);
        node.platform.run(Box::new(feed));
    }
    deployment
}
