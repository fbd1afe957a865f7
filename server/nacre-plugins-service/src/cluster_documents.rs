//! Access of plugins to documents on any node of the cluster.

use super::BucketDocuments;
use super::message::{PluginMessage, PluginReply};
use nacre_bucket::Bucket;
use nacre_node::Node;
use nacre_node::scatter_gather::{ScatterRequest, Vbids};
use nacre_node::service::WriteListener;
use nacre_sandbox::{DocumentCall, DocumentReply, Documents, KvError};
use nacre_types::{Seqno, Vbid};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time limit for the stores of other nodes after a call.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The documents of a deployment's bucket, and of other buckets that a keyspace names.
pub(crate) struct ClusterDocuments {
    /// The documents that this node serves.
    here: BucketDocuments,
    node: Weak<Node>,
    bucket: String,
    /// The last unsettled seqnos written to vBuckets of other nodes.
    written: Mutex<BTreeMap<String, BTreeMap<Vbid, Seqno>>>,
}

impl ClusterDocuments {
    /// Creates access to the documents of `bucket` and of the other buckets on its node.
    pub fn new(node: &Arc<Node>, bucket: &Arc<Bucket>) -> ClusterDocuments {
        ClusterDocuments {
            here: BucketDocuments::new(node, bucket),
            node: Arc::downgrade(node),
            bucket: bucket.name.clone(),
            written: Mutex::default(),
        }
    }

    fn note(&self, bucket: &str, vbid: Vbid, seqno: Seqno) {
        let mut written = self.written.lock();
        let known = written.entry(bucket.to_owned()).or_default().entry(vbid).or_default();
        *known = seqno.max(*known);
    }

    fn node(&self) -> Result<Arc<Node>, KvError> {
        self.node.upgrade().ok_or_else(|| KvError::Temporary("the node ends".into()))
    }
}

impl WriteListener for ClusterDocuments {
    fn has_written(&self, bucket: &str, vbid: Vbid) {
        self.note(bucket, vbid, Seqno(u64::MAX));
    }
}

impl Documents for ClusterDocuments {
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Result<DocumentReply, KvError> {
        let node = self.node()?;
        // Only a bucket's name may have dots.
        let (bucket, path) = match keyspace.rmatch_indices('.').nth(1) {
            Some((at, _)) => (&keyspace[..at], &keyspace[at + 1..]),
            None => (&self.bucket[..], keyspace),
        };
        let missing = || KvError::Denied(format!("there is no bucket {bucket}"));
        let owners = node.owners(bucket).ok_or_else(missing)?;
        let vbid = owners.vbid_of(key);
        if owners.of(vbid) == Some(node.id()) {
            match self.here.call(keyspace, key, call, left) {
                Err(KvError::NotMyVbucket) => {}
                outcome => return outcome,
            }
        }
        let (bucket, path, call) = (bucket.to_owned(), path.to_owned(), call.clone());
        let question =
            PluginMessage::Document { bucket: bucket.clone(), path, key: key.to_vec(), call };
        match node.ask_about(&bucket, vbid, &question, left) {
            Ok(Ok(PluginReply::Document(outcome, written))) => {
                if let Some((vbid, seqno)) = written {
                    self.note(&bucket, vbid, seqno);
                }
                outcome
            }
            Ok(_) => Err(KvError::Temporary("an unexpected answer".into())),
            Err(reason) => Err(KvError::Temporary(reason)),
        }
    }

    fn settle(&self) -> Result<(), KvError> {
        match self.here.settle() {
            Err(KvError::NotMyVbucket) => {
                for (bucket, seqnos) in self.here.take_written() {
                    seqnos.into_iter().for_each(|(vbid, seqno)| self.note(&bucket, vbid, seqno));
                }
            }
            outcome => outcome?,
        }
        let written = self.written.lock().clone();
        for (bucket, seqnos) in &written {
            let of = |vbid: Vbid| (vbid, seqnos[&vbid]);
            let message = |vbids: &Vbids| {
                PluginMessage::Stored(bucket.clone(), vbids.iter().map(of).collect())
            };
            let want = ScatterRequest {
                vbids: seqnos.keys().copied().collect(),
                message: Box::new(message),
            };
            let gathered = self.node()?.gather(bucket, &[want], SETTLE_TIMEOUT);
            let answers = gathered.map_err(KvError::Temporary)?;
            if answers
                .iter()
                .any(|gathered| !matches!(gathered.reply, Ok(PluginReply::Stored(true))))
            {
                return Err(KvError::Temporary("the write is not on disk yet".into()));
            }
        }
        // Later writes by a reader remain for the next call.
        let mut left = self.written.lock();
        for (bucket, seqnos) in &written {
            if let Some(left) = left.get_mut(bucket) {
                left.retain(|vbid, seqno| seqnos.get(vbid).is_none_or(|settled| *seqno > *settled));
            }
        }
        Ok(())
    }
}
