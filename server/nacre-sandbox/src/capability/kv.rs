//! `kv`: documents, through the embedder.

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

/// Documents that one call of `get-many` gives.
const GET_MANY_MAX: usize = 1024;

/// A document as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The body, without extended attributes, not compressed.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// The version.
    pub cas: Cas,
    /// Flags of clients for the format of the body.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// True if the body is JSON.
    pub is_json: bool,
}

/// A document to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The body.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// Flags of clients.
    pub flags: u32,
    /// Expiry as clients send it: seconds from now up to 30 days, or since the Unix epoch; 0 for never. `None` keeps
    /// that of the document, which is never for a new one.
    pub expiry: Option<u32>,
}

/// Condition for storing a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreMode {
    /// The document must not exist.
    Insert,
    /// Anything or nothing.
    Upsert,
    /// A document, of that version when one is given.
    Replace(Option<Cas>),
}

/// A counter after it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The value.
    pub value: u64,
    /// The version of its document.
    pub cas: Cas,
}

/// Why a document was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum KvError {
    /// The document does not exist.
    #[error("there is no such document")]
    NotFound,
    /// There is one already.
    #[error("there is such a document already")]
    Exists,
    /// The document has another version.
    #[error("the document has another version")]
    CasMismatch,
    /// Key or body are too large.
    #[error("key or body are too large")]
    TooLarge,
    /// A client holds its lock.
    #[error("the document is locked")]
    Locked,
    /// The same call may succeed later.
    #[error("{0}")]
    Temporary(String),
    /// Another node serves it. An embedder with several nodes asks that one.
    #[error("another node serves the document")]
    Elsewhere,
    /// The keyspace does not exist, or not for this deployment.
    #[error("{0}")]
    Denied(String),
    /// The document or key is not of the kind that is needed.
    #[error("{0}")]
    Invalid(String),
    /// A part of a mutation cannot be done.
    #[error("{0}")]
    Path(String),
}

/// An operation on a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentCall {
    /// Read it.
    Get,
    /// Store it.
    Store(Content, StoreMode),
    /// Delete it, of that version when one is given.
    Remove(Option<Cas>),
    /// Adds to a counter, which stops at 0; a missing one is created with the second value, and the third as its
    /// expiry.
    Count(i64, Option<u64>, u32),
    /// Set when it expires.
    Touch(u32),
    /// Read parts of it.
    Lookup(Vec<PathLookup>),
    /// Change parts of it.
    Mutate(Vec<PathMutation>, MutateOptions),
    /// Read parts of it or of its tombstone.
    LookupAny(Vec<PathLookup>),
    /// Change parts of it or of its tombstone.
    MutateAny(Vec<PathMutation>, MutateOptions, TombstoneUse),
}

impl DocumentCall {
    /// Returns true if it changes the document.
    pub fn writes(&self) -> bool {
        !matches!(self, DocumentCall::Get | DocumentCall::Lookup(_) | DocumentCall::LookupAny(_))
    }
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentReply {
    /// The document, of [`DocumentCall::Get`].
    Found(Found),
    /// The new version, or that of its tombstone; of [`DocumentCall::Store`], `Remove` and `Touch`.
    Stored(Cas),
    /// The counter.
    Counted(Counted),
    /// The parts.
    Looked(Looked),
    /// Result of the mutation.
    Mutated(Mutated),
    /// The parts, and true if they are those of a tombstone; of [`DocumentCall::LookupAny`].
    LookedAny(Looked, bool),
}

type Outcome<T> = std::result::Result<T, KvError>;

/// Documents as a plugin may use them; implemented by the embedder.
///
/// `keyspace` is `scope.collection` of the deployment's bucket or `bucket.scope.collection`, and has been granted. A call may wait, but no longer than `left`: it then gives
/// [`KvError::Temporary`], and the call of the plugin ends anyway.
pub trait Documents: Send + Sync {
    /// Does something with the document at `key`.
    ///
    /// # Errors
    /// Why it is not done; so for all methods.
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

    /// The document at `key`.
    fn get(&self, keyspace: &str, key: &[u8], left: Duration) -> Outcome<Found> {
        match self.call(keyspace, key, &DocumentCall::Get, left)? {
            DocumentReply::Found(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    /// Does something that gives the document a new version.
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

/// No documents at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDocuments;

impl Documents for NoDocuments {
    fn call(&self, _: &str, _: &[u8], _: &DocumentCall, _: Duration) -> Outcome<DocumentReply> {
        Err(KvError::Denied("there are no documents here".into()))
    }
}

/// Result of a capability of documents: the outer error ends the call of the plugin.
type Answered<T> = Result<std::result::Result<T, abi::Error>>;

impl Data {
    /// Does something with a document of `keyspace` when that is granted, and writes the answer into the journal.
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
        // Time that a call waits for is time of the deadline.
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

/// The error of a call, or that its reply is of another kind.
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
            error @ KvError::Elsewhere => abi::Error::Temporary(error.to_string()),
            KvError::Temporary(why) => abi::Error::Temporary(why),
            KvError::Denied(why) => abi::Error::Denied(why),
            KvError::Invalid(why) => abi::Error::Invalid(why),
            KvError::Path(why) => abi::Error::Path(why),
        }
    }
}
