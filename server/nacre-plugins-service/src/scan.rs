//! Scans of indexes: each node returns the next entries of the vBuckets that it serves, and they are merged here without a call
//! of the plugin.

use super::Deployment;
use super::message::{PluginMessage, PluginReply, ScanPart};
use super::part::{Missing, ask, no_bucket, not_loaded};
use crate::NodePlugins;
use crate::consistency::Wanted;
use nacre_cluster::Manifest;
use nacre_node::Node;
use nacre_node::scatter_gather::{NoReply, PeerFailure, ScatterRequest, Vbids};
use nacre_state::{Indexed, Page, Scan};
use nacre_types::{CollectionId, Vbid};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A page of an index over all nodes, with the data needed to encode it.
pub struct Scanned {
    page: Page,
    /// True if its entries name collections.
    names_collections: bool,
    manifest: Arc<Manifest>,
}

impl Scanned {
    /// Returns the page as JSON.
    pub fn answer(&self, scan: &Scan) -> serde_json::Value {
        let name_of = |collection: CollectionId| {
            self.manifest.scopes.iter().find_map(|scope| {
                let mut collections = scope.collections.iter();
                let found = collections.find(|known| known.id == collection.0)?;
                Some(format!("{}.{}", scope.name, found.name))
            })
        };
        scan.answer(&self.page, self.names_collections, name_of)
    }
}

/// Answers another node's scan of a part.
pub(crate) fn answer_scan(
    node: &Node,
    part: &ScanPart,
    left: Duration,
) -> Result<PluginReply, NoReply> {
    let found = node.plugins().deployment(&part.deployment).ok_or_else(not_loaded)?;
    Ok(PluginReply::Page(page_of(&found, &part.vbids, &part.scan, left)?))
}

/// Returns the next entries of an index over all nodes. Blocks: do not call it on a thread for which others wait.
///
/// # Errors
/// [`Missing`], except [`Missing::NotOwner`].
pub fn scan(
    node: &Arc<Node>,
    name: &str,
    scan: &Scan,
    patience: Duration,
) -> Result<Scanned, Missing> {
    ask(node, name, patience, |deployment| {
        Ok(Scanned {
            page: page_of_all(node, deployment, scan, patience)?,
            names_collections: deployment.spec.spans_collections(),
            manifest: deployment.bucket.manifest(),
        })
    })
}

/// Returns the next entries of documents in `vbids`, all of which this node must serve.
fn page_of(
    deployment: &Deployment,
    vbids: &Vbids,
    scan: &Scan,
    left: Duration,
) -> Result<Page, Missing> {
    let wanted = if scan.fresh { Wanted::Everything } else { Wanted::Anything };
    let vbucket_count = deployment.bucket.vbucket_count();
    deployment.read(vbids, &wanted, left, |_| {
        let reader = deployment.readers.first().ok_or("the index does not run")?;
        let node = deployment.node.upgrade().ok_or("the node stops")?;
        let begun_ns = node.now().monotonic_ns;
        let snapshot = reader.index().map_err(|error| error.to_string())?;
        let kept = collections_of(deployment);
        let is_wanted = |found: &Indexed| {
            // The entries of a dropped collection are not removed from the index.
            found.collection.is_none_or(|collection| kept.contains(&collection))
                && vbids.contains(Vbid::of(&found.id, vbucket_count))
        };
        let page = snapshot.page(scan, is_wanted);
        reader.count_scan(node.now().monotonic_ns.saturating_sub(begun_ns));
        Ok::<_, String>(page)
    })
}

/// Returns the existing collections of the deployment's source.
fn collections_of(deployment: &Deployment) -> BTreeSet<CollectionId> {
    let Ok(source) = &deployment.spec.source else { return BTreeSet::new() };
    let manifest = deployment.bucket.manifest();
    let found = manifest.collections(source.scope.as_deref(), source.collection.as_deref());
    found.unwrap_or_default().into_iter().collect()
}

/// Returns a page over all vBuckets.
fn page_of_all(
    node: &Arc<Node>,
    deployment: &Arc<Deployment>,
    scan: &Scan,
    patience: Duration,
) -> Result<Page, Missing> {
    let bucket = &deployment.bucket.name;
    let owners = node.owners(bucket).ok_or_else(no_bucket)?;
    if owners.only() == Some(node.id()) {
        match page_of(deployment, &owners.all(), scan, patience) {
            // vBuckets have just moved.
            Err(Missing::NotOwner) => {}
            page => return page,
        }
    }
    let question = |vbids: &Vbids| {
        let (deployment, vbids) = (deployment.name.clone(), vbids.clone());
        PluginMessage::Scan(ScanPart { deployment, vbids, scan: scan.clone() })
    };
    let want = ScatterRequest { vbids: owners.all(), message: Box::new(question) };
    let gathered = node.gather(bucket, &[want], patience).map_err(Missing::NotYet)?;
    let page = |reply| match reply {
        Ok(PluginReply::Page(page)) => Ok(page),
        Err(PeerFailure { message, .. }) => Err(Missing::Failed(message)),
        _ => Err(Missing::Failed("a node sent an unexpected reply".into())),
    };
    let parts = gathered.into_iter().map(|part| page(part.reply));
    scan.merge(parts.collect::<Result<_, _>>()?).map_err(Missing::Failed)
}
