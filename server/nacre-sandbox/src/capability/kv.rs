//! `kv`: access to documents through the embedder.

use crate::abi::nacre::plugin::kv as abi;
use crate::capability::{
    Capability, Looked, MutateOptions, Mutated, PathLookup, PathMutation, TombstoneUse,
};
use crate::instance::{Data, Refused};
use nacre_types::Cas;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Result;

/// Maximum number of documents per `get-many` call.
const GET_MANY_MAX: usize = 1024;

/// A document that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The body, uncompressed and without extended attributes.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// The CAS.
    pub cas: Cas,
    /// Format of the body, set by clients.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// True if the body is JSON.
    pub is_json: bool,
}

/// A document to write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The body.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// Flags of clients.
    pub flags: u32,
    /// Expiry as sent by clients: seconds from now up to 30 days, or since the Unix epoch; 0 for never. `None` keeps
    /// the expiry of the document; a new document then never expires.
    pub expiry: Option<u32>,
}

/// Condition for storing a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreMode {
    /// The document must not exist.
    Insert,
    /// The document may exist or not.
    Upsert,
    /// The document must exist, with this CAS if given.
    Replace(Option<Cas>),
}

/// The result of changing a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The value.
    pub value: u64,
    /// The new CAS of its document.
    pub cas: Cas,
}

/// The reason why a document was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum KvError {
    /// The document does not exist.
    #[error("there is no such document")]
    NotFound,
    /// The document already exists.
    #[error("there is such a document already")]
    Exists,
    /// The document has another CAS.
    #[error("the document has another version")]
    CasMismatch,
    /// The key or the body is too large.
    #[error("key or body are too large")]
    TooLarge,
    /// A client has locked the document.
    #[error("the document is locked")]
    Locked,
    /// The same call may succeed later.
    #[error("{0}")]
    Temporary(String),
    /// Another node serves the document. An embedder with several nodes forwards the call there.
    #[error("another node serves the document")]
    NotMyVbucket,
    /// The keyspace does not exist, or is not granted to this deployment.
    #[error("{0}")]
    Denied(String),
    /// The document or key has the wrong type.
    #[error("{0}")]
    Invalid(String),
    /// A part of a mutation failed.
    #[error("{0}")]
    Path(String),
}

/// An operation on a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentCall {
    /// Reads the document.
    Get,
    /// Stores the document.
    Store(Content, StoreMode),
    /// Deletes the document, which must have this CAS if given.
    Remove(Option<Cas>),
    /// Adds to a counter, which does not go below 0. A missing counter is created with the second value, and with the
    /// third as its expiry.
    Count(i64, Option<u64>, u32),
    /// Sets the expiry.
    Touch(u32),
    /// Reads parts of the document.
    Lookup(Vec<PathLookup>),
    /// Changes parts of the document.
    Mutate(Vec<PathMutation>, MutateOptions),
    /// Reads parts of the document or its tombstone.
    LookupAny(Vec<PathLookup>),
    /// Changes parts of the document or its tombstone.
    MutateAny(Vec<PathMutation>, MutateOptions, TombstoneUse),
}

impl DocumentCall {
    /// Returns true if the call changes the document.
    pub fn writes(&self) -> bool {
        !matches!(self, DocumentCall::Get | DocumentCall::Lookup(_) | DocumentCall::LookupAny(_))
    }
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentReply {
    /// Reply to [`DocumentCall::Get`]: the document.
    Found(Found),
    /// Reply to [`DocumentCall::Store`], `Remove` and `Touch`: the new CAS of the document or its tombstone.
    Stored(Cas),
    /// Reply to [`DocumentCall::Count`].
    Counted(Counted),
    /// Reply to [`DocumentCall::Lookup`]: the parts.
    Looked(Looked),
    /// Reply to [`DocumentCall::Mutate`].
    Mutated(Mutated),
    /// Reply to [`DocumentCall::LookupAny`]: the parts, and true for those of a tombstone.
    LookedAny(Looked, bool),
}

type Outcome<T> = std::result::Result<T, KvError>;

/// The documents that a plugin may use; implemented by the embedder.
///
/// `keyspace` is `scope.collection` of the deployment's bucket or `bucket.scope.collection`, and has been granted. A
/// call may wait for at most `left`. It then returns [`KvError::Temporary`], and the plugin's call ends anyway.
pub trait Documents: Send + Sync {
    /// Carries out an operation on the document at `key`.
    ///
    /// # Errors
    /// The reason for the failure, as for all methods.
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Outcome<DocumentReply>;

    /// Waits until all writes through this object are on disk, so that a state that reflects them can be stored.
    fn settle(&self) -> Outcome<()> {
        Ok(())
    }

    /// Returns the document at `key`.
    fn get(&self, keyspace: &str, key: &[u8], left: Duration) -> Outcome<Found> {
        match self.call(keyspace, key, &DocumentCall::Get, left)? {
            DocumentReply::Found(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    /// Carries out an operation that gives the document a new version.
    fn write(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Outcome<Cas> {
        match self.call(keyspace, key, call, left)? {
            DocumentReply::Stored(cas) => Ok(cas),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &DocumentReply) -> KvError {
    KvError::Temporary(format!("an unexpected reply: {reply:?}"))
}

/// Rejects access to all documents.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDocuments;

impl Documents for NoDocuments {
    fn call(&self, _: &str, _: &[u8], _: &DocumentCall, _: Duration) -> Outcome<DocumentReply> {
        Err(KvError::Denied("there are no documents here".into()))
    }
}

/// Result of a document operation: the outer error ends the plugin's call.
type Answered<T> = Result<std::result::Result<T, abi::Error>>;

impl Data {
    /// Carries out an operation on a document of `keyspace` if it is granted, and records the reply in the journal.
    fn on_document(
        &mut self,
        keyspace: String,
        key: &[u8],
        call: &DocumentCall,
    ) -> Result<Outcome<DocumentReply>> {
        self.count(Capability::Kv)?;
        let context = Arc::clone(&self.context);
        let keyspace = if keyspace.is_empty() { context.setup.keyspace.clone() } else { keyspace };
        if !context.setup.grants.allows_keyspace(&keyspace, call.writes()) {
            let what = if call.writes() { "writing" } else { "reading" };
            return Ok(Err(KvError::Denied(format!("{what} {keyspace:?} is not granted"))));
        }
        let left = self.time_left()?;
        let answer = context.setup.documents.call(&keyspace, key, call, left);
        self.journal.answer(answer.clone().into());
        // Waiting for the call counts towards the deadline.
        self.time_left()?;
        Ok(answer)
    }

    fn written(&mut self, keyspace: String, key: &[u8], call: &DocumentCall) -> Answered<u64> {
        Ok(match self.on_document(keyspace, key, call)? {
            Ok(DocumentReply::Stored(cas)) => Ok(cas.0),
            other => Err(refused(other)),
        })
    }
}

/// Returns the error of a call, or the error for a reply of the wrong kind.
fn refused(outcome: Outcome<DocumentReply>) -> abi::Error {
    outcome.map_or_else(Into::into, |reply| unexpected(&reply).into())
}

impl From<abi::Content> for Content {
    fn from(abi::Content { body, flags, expiry }: abi::Content) -> Content {
        Content { body, flags, expiry: Some(expiry) }
    }
}

impl abi::Host for Data {
    fn get(&mut self, keyspace: String, key: Vec<u8>) -> Answered<abi::Document> {
        Ok(match self.on_document(keyspace, &key, &DocumentCall::Get)? {
            Ok(DocumentReply::Found(found)) => Ok(found.into()),
            other => Err(refused(other)),
        })
    }

    fn get_many(
        &mut self,
        keyspace: String,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<std::result::Result<abi::Document, abi::Error>>> {
        if keys.len() > GET_MANY_MAX {
            return Err(wasmtime::Error::new(Refused::Keys));
        }
        keys.into_iter().map(|key| abi::Host::get(self, keyspace.clone(), key)).collect()
    }

    fn insert(&mut self, keyspace: String, key: Vec<u8>, content: abi::Content) -> Answered<u64> {
        let call = DocumentCall::Store(content.into(), StoreMode::Insert);
        self.written(keyspace, &key, &call)
    }

    fn upsert(&mut self, keyspace: String, key: Vec<u8>, content: abi::Content) -> Answered<u64> {
        let call = DocumentCall::Store(content.into(), StoreMode::Upsert);
        self.written(keyspace, &key, &call)
    }

    fn replace(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        content: abi::Content,
        cas: Option<u64>,
    ) -> Answered<u64> {
        let call = DocumentCall::Store(content.into(), StoreMode::Replace(cas.map(Cas)));
        self.written(keyspace, &key, &call)
    }

    fn remove(&mut self, keyspace: String, key: Vec<u8>, cas: Option<u64>) -> Answered<u64> {
        self.written(keyspace, &key, &DocumentCall::Remove(cas.map(Cas)))
    }

    fn counter(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        delta: i64,
        initial: Option<u64>,
        expiry: u32,
    ) -> Answered<abi::Counted> {
        let call = DocumentCall::Count(delta, initial, expiry);
        Ok(match self.on_document(keyspace, &key, &call)? {
            Ok(DocumentReply::Counted(Counted { value, cas })) => {
                Ok(abi::Counted { value, cas: cas.0 })
            }
            other => Err(refused(other)),
        })
    }

    fn touch(&mut self, keyspace: String, key: Vec<u8>, expiry: u32) -> Answered<u64> {
        self.written(keyspace, &key, &DocumentCall::Touch(expiry))
    }

    fn lookup_in(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        specs: Vec<abi::LookupSpec>,
    ) -> Answered<abi::Looked> {
        let call = DocumentCall::Lookup(specs.into_iter().map(Into::into).collect());
        Ok(match self.on_document(keyspace, &key, &call)? {
            Ok(DocumentReply::Looked(looked)) => Ok(looked.into()),
            other => Err(refused(other)),
        })
    }

    fn mutate_in(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        specs: Vec<abi::MutateSpec>,
        options: abi::MutateOptions,
    ) -> Answered<abi::Mutated> {
        let specs = specs.into_iter().map(Into::into).collect();
        let call = DocumentCall::Mutate(specs, options.into());
        Ok(match self.on_document(keyspace, &key, &call)? {
            Ok(DocumentReply::Mutated(mutated)) => Ok(mutated.into()),
            other => Err(refused(other)),
        })
    }

    fn lookup_in_any(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        specs: Vec<abi::LookupSpec>,
    ) -> Answered<abi::LookedAny> {
        let call = DocumentCall::LookupAny(specs.into_iter().map(Into::into).collect());
        Ok(match self.on_document(keyspace, &key, &call)? {
            Ok(DocumentReply::LookedAny(Looked { cas, results }, deleted)) => {
                Ok(abi::LookedAny { cas: cas.0, deleted, results })
            }
            other => Err(refused(other)),
        })
    }

    fn mutate_in_any(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        specs: Vec<abi::MutateSpec>,
        options: abi::MutateOptions,
        tombstone: abi::TombstoneUse,
    ) -> Answered<abi::Mutated> {
        let specs = specs.into_iter().map(Into::into).collect();
        let call = DocumentCall::MutateAny(specs, options.into(), tombstone.into());
        Ok(match self.on_document(keyspace, &key, &call)? {
            Ok(DocumentReply::Mutated(mutated)) => Ok(mutated.into()),
            other => Err(refused(other)),
        })
    }
}

impl From<Found> for abi::Document {
    fn from(found: Found) -> abi::Document {
        let Found { body, cas, flags, expiry, is_json } = found;
        abi::Document { body, cas: cas.0, flags, expiry, datatype: u8::from(is_json) }
    }
}

impl From<KvError> for abi::Error {
    fn from(error: KvError) -> abi::Error {
        match error {
            KvError::NotFound => abi::Error::NotFound,
            KvError::Exists => abi::Error::Exists,
            KvError::CasMismatch => abi::Error::CasMismatch,
            KvError::TooLarge => abi::Error::TooLarge,
            KvError::Locked => abi::Error::Locked,
            error @ KvError::NotMyVbucket => abi::Error::Temporary(error.to_string()),
            KvError::Temporary(why) => abi::Error::Temporary(why),
            KvError::Denied(why) => abi::Error::Denied(why),
            KvError::Invalid(why) => abi::Error::Invalid(why),
            KvError::Path(why) => abi::Error::Path(why),
        }
    }
}
