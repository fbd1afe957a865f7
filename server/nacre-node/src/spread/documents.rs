//! Documents as plugins use them, wherever they are served.

use super::{Answer, DocumentCall, DocumentReply, Question, Want};
use crate::bucket::Bucket;
use crate::node::Node;
use crate::plugins::BucketDocuments;
use nacre_plugin_host::{
    Content, Counted, Documents, Found, KvError, Looked, MutateOptions, Mutated, PathLookup,
    PathMutation, StoreMode,
};
use nacre_types::{Cas, Seqno, Vbid};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a call that is over may wait for the stores of other nodes.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The documents of a deployment's bucket, and those of others that it names.
pub(crate) struct SpreadDocuments {
    /// Those that this node serves.
    here: BucketDocuments,
    node: Weak<Node>,
    bucket: String,
    /// Up to where vBuckets of other nodes were written since that was settled last.
    written: Mutex<BTreeMap<String, BTreeMap<Vbid, Seqno>>>,
}

impl SpreadDocuments {
    /// Of `bucket` and what is beside it.
    pub fn new(node: &Arc<Node>, bucket: &Arc<Bucket>) -> SpreadDocuments {
        SpreadDocuments {
            here: BucketDocuments::new(node, bucket),
            node: Arc::downgrade(node),
            bucket: bucket.name.clone(),
            written: Mutex::default(),
        }
    }

    fn node(&self) -> Result<Arc<Node>, KvError> {
        self.node.upgrade().ok_or_else(|| KvError::Temporary("the node ends".into()))
    }

    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: DocumentCall,
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
            match perform(&self.here, keyspace, key, &call, left) {
                Err(KvError::Elsewhere) => {}
                outcome => return outcome,
            }
        }
        let (bucket, path) = (bucket.to_owned(), path.to_owned());
        let question = Question::Document { bucket: bucket.clone(), path, key: key.to_vec(), call };
        match node.ask_about(&bucket, vbid, &question, left) {
            Ok(Answer::Document(outcome, written)) => {
                if let Some((vbid, seqno)) = written {
                    self.written.lock().entry(bucket).or_default().insert(vbid, seqno);
                }
                outcome
            }
            Ok(_) => Err(unexpected()),
            Err(reason) => Err(KvError::Temporary(reason)),
        }
    }
}

/// Carries out a call with the documents of this node.
pub(super) fn perform(
    documents: &BucketDocuments,
    keyspace: &str,
    key: &[u8],
    call: &DocumentCall,
    left: Duration,
) -> Result<DocumentReply, KvError> {
    use DocumentReply as Reply;
    match call {
        DocumentCall::Get => documents.get(keyspace, key, left).map(Reply::Found),
        DocumentCall::Store(content, mode) => {
            documents.store(keyspace, key, content.clone(), *mode, left).map(Reply::Stored)
        }
        DocumentCall::Remove(cas) => documents.remove(keyspace, key, *cas, left).map(Reply::Stored),
        DocumentCall::Count(delta, initial, expiry) => {
            documents.count(keyspace, key, *delta, *initial, *expiry, left).map(Reply::Counted)
        }
        DocumentCall::Touch(expiry) => {
            documents.touch(keyspace, key, *expiry, left).map(Reply::Stored)
        }
        DocumentCall::Lookup(specs) => {
            documents.lookup(keyspace, key, specs, left).map(Reply::Looked)
        }
        DocumentCall::Mutate(specs, options) => {
            documents.mutate(keyspace, key, specs, *options, left).map(Reply::Mutated)
        }
    }
}

fn unexpected() -> KvError {
    KvError::Temporary("an unexpected reply".into())
}

impl Documents for SpreadDocuments {
    fn get(&self, keyspace: &str, key: &[u8], left: Duration) -> Result<Found, KvError> {
        match self.call(keyspace, key, DocumentCall::Get, left)? {
            DocumentReply::Found(found) => Ok(found),
            _ => Err(unexpected()),
        }
    }

    fn store(
        &self,
        keyspace: &str,
        key: &[u8],
        content: Content,
        mode: StoreMode,
        left: Duration,
    ) -> Result<Cas, KvError> {
        stored(self.call(keyspace, key, DocumentCall::Store(content, mode), left)?)
    }

    fn remove(
        &self,
        keyspace: &str,
        key: &[u8],
        cas: Option<Cas>,
        left: Duration,
    ) -> Result<Cas, KvError> {
        stored(self.call(keyspace, key, DocumentCall::Remove(cas), left)?)
    }

    fn count(
        &self,
        keyspace: &str,
        key: &[u8],
        delta: i64,
        initial: Option<u64>,
        expiry: u32,
        left: Duration,
    ) -> Result<Counted, KvError> {
        match self.call(keyspace, key, DocumentCall::Count(delta, initial, expiry), left)? {
            DocumentReply::Counted(counted) => Ok(counted),
            _ => Err(unexpected()),
        }
    }

    fn touch(
        &self,
        keyspace: &str,
        key: &[u8],
        expiry: u32,
        left: Duration,
    ) -> Result<Cas, KvError> {
        stored(self.call(keyspace, key, DocumentCall::Touch(expiry), left)?)
    }

    fn lookup(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathLookup],
        left: Duration,
    ) -> Result<Looked, KvError> {
        match self.call(keyspace, key, DocumentCall::Lookup(specs.to_vec()), left)? {
            DocumentReply::Looked(looked) => Ok(looked),
            _ => Err(unexpected()),
        }
    }

    fn mutate(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathMutation],
        options: MutateOptions,
        left: Duration,
    ) -> Result<Mutated, KvError> {
        let call = DocumentCall::Mutate(specs.to_vec(), options);
        match self.call(keyspace, key, call, left)? {
            DocumentReply::Mutated(mutated) => Ok(mutated),
            _ => Err(unexpected()),
        }
    }

    fn settle(&self) -> Result<(), KvError> {
        self.here.settle()?;
        let written = self.written.lock().clone();
        for (bucket, seqnos) in &written {
            let of = |vbid: Vbid| (vbid, seqnos[&vbid]);
            let question = |vbids: &super::Vbids| {
                Question::Stored(bucket.clone(), vbids.iter().map(of).collect())
            };
            let want =
                Want { vbids: seqnos.keys().copied().collect(), question: Box::new(question) };
            let gathered = self.node()?.gather(bucket, &[want], SETTLE_TIMEOUT);
            let answers = gathered.map_err(KvError::Temporary)?;
            if answers.iter().any(|gathered| !matches!(gathered.answer, Answer::Stored(true))) {
                return Err(KvError::Temporary("what was written is not on disk yet".into()));
            }
        }
        // What a reader has written meanwhile is left for the next time.
        let mut left = self.written.lock();
        for (bucket, seqnos) in &written {
            if let Some(left) = left.get_mut(bucket) {
                left.retain(|vbid, seqno| seqnos.get(vbid).is_none_or(|settled| *seqno > *settled));
            }
        }
        Ok(())
    }
}

fn stored(reply: DocumentReply) -> Result<Cas, KvError> {
    match reply {
        DocumentReply::Stored(cas) => Ok(cas),
        _ => Err(unexpected()),
    }
}
