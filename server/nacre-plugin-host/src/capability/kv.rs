//! `kv`: documents, through what the embedder gives.

use crate::abi::nacre::plugin::kv as abi;
use crate::capability::{Capability, Looked, MutateOptions, Mutated, PathLookup, PathMutation};
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
    /// What clients say about the format of the body.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// Whether the body is JSON.
    pub is_json: bool,
}

/// A document to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The body.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// What is kept beside it for clients.
    pub flags: u32,
    /// As clients send it: seconds from now up to 30 days, or since the Unix epoch; 0 for never.
    pub expiry: u32,
}

/// What must be there for a document to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreMode {
    /// Nothing.
    Insert,
    /// Anything or nothing.
    Upsert,
    /// A document, of that version when one is given.
    Replace(Option<Cas>),
}

/// A counter after it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its value.
    pub value: u64,
    /// The version of its document.
    pub cas: Cas,
}

/// Why a document was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum KvError {
    /// There is none.
    #[error("there is no such document")]
    NotFound,
    /// There is one already.
    #[error("there is such a document already")]
    Exists,
    /// It has another version.
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
    /// Another node serves it. Whoever has several nodes asks that one.
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

/// Documents as a plugin may use them; implemented by the embedder.
///
/// `keyspace` is `scope.collection` of the deployment's bucket or `bucket.scope.collection`, and has been granted. A call may wait, but no longer than `left`: it then gives
/// [`KvError::Temporary`], and the call of the plugin ends anyway.
pub trait Documents: Send + Sync {
    /// The document at `key`.
    ///
    /// # Errors
    /// Why there is none; so for all methods.
    fn get(
        &self,
        keyspace: &str,
        key: &[u8],
        left: Duration,
    ) -> std::result::Result<Found, KvError>;

    /// Stores a document; gives its version.
    fn store(
        &self,
        keyspace: &str,
        key: &[u8],
        content: Content,
        mode: StoreMode,
        left: Duration,
    ) -> std::result::Result<Cas, KvError>;

    /// Deletes a document, of the version `cas` when that is given; gives the version of its tombstone.
    fn remove(
        &self,
        keyspace: &str,
        key: &[u8],
        cas: Option<Cas>,
        left: Duration,
    ) -> std::result::Result<Cas, KvError>;

    /// Adds to a counter, which stops at 0; where there is none, `initial` becomes one with `expiry`.
    fn count(
        &self,
        keyspace: &str,
        key: &[u8],
        delta: i64,
        initial: Option<u64>,
        expiry: u32,
        left: Duration,
    ) -> std::result::Result<Counted, KvError>;

    /// Sets when a document expires; gives its new version.
    fn touch(
        &self,
        keyspace: &str,
        key: &[u8],
        expiry: u32,
        left: Duration,
    ) -> std::result::Result<Cas, KvError>;

    /// Reads parts of a document.
    fn lookup(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathLookup],
        left: Duration,
    ) -> std::result::Result<Looked, KvError>;

    /// Changes parts of a document.
    fn mutate(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathMutation],
        options: MutateOptions,
        left: Duration,
    ) -> std::result::Result<Mutated, KvError>;

    /// Waits until all that was written through this is on disk, so that a state which tells of it can be kept.
    fn settle(&self) -> std::result::Result<(), KvError> {
        Ok(())
    }
}

/// No documents at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDocuments;

impl NoDocuments {
    fn denied<T>() -> std::result::Result<T, KvError> {
        Err(KvError::Denied("there are no documents here".into()))
    }
}

impl Documents for NoDocuments {
    fn get(&self, _: &str, _: &[u8], _: Duration) -> std::result::Result<Found, KvError> {
        NoDocuments::denied()
    }

    fn store(
        &self,
        _: &str,
        _: &[u8],
        _: Content,
        _: StoreMode,
        _: Duration,
    ) -> std::result::Result<Cas, KvError> {
        NoDocuments::denied()
    }

    fn remove(
        &self,
        _: &str,
        _: &[u8],
        _: Option<Cas>,
        _: Duration,
    ) -> std::result::Result<Cas, KvError> {
        NoDocuments::denied()
    }

    fn count(
        &self,
        _: &str,
        _: &[u8],
        _: i64,
        _: Option<u64>,
        _: u32,
        _: Duration,
    ) -> std::result::Result<Counted, KvError> {
        NoDocuments::denied()
    }

    fn touch(&self, _: &str, _: &[u8], _: u32, _: Duration) -> std::result::Result<Cas, KvError> {
        NoDocuments::denied()
    }

    fn lookup(
        &self,
        _: &str,
        _: &[u8],
        _: &[PathLookup],
        _: Duration,
    ) -> std::result::Result<Looked, KvError> {
        NoDocuments::denied()
    }

    fn mutate(
        &self,
        _: &str,
        _: &[u8],
        _: &[PathMutation],
        _: MutateOptions,
        _: Duration,
    ) -> std::result::Result<Mutated, KvError> {
        NoDocuments::denied()
    }
}

impl Data {
    /// Runs `call` on documents of `keyspace` when that is granted, and writes its answer into the journal.
    fn on_documents<T>(
        &mut self,
        keyspace: String,
        write: bool,
        call: impl FnOnce(&dyn Documents, &str, Duration) -> std::result::Result<T, KvError>,
    ) -> Result<std::result::Result<T, KvError>>
    where
        std::result::Result<T, KvError>: Clone + Into<crate::capsule::Answer>,
    {
        self.count(Capability::Kv)?;
        let context = Arc::clone(&self.context);
        let keyspace = if keyspace.is_empty() { context.setup.keyspace.clone() } else { keyspace };
        if !context.setup.grants.allows_keyspace(&keyspace, write) {
            let what = if write { "writing" } else { "reading" };
            return Ok(Err(KvError::Denied(format!("{what} {keyspace:?} is not granted"))));
        }
        let left = self.time_left()?;
        let answer = call(&*context.setup.documents, &keyspace, left);
        self.journal.answer(answer.clone().into());
        // Time that a call waits for is time of the deadline.
        self.time_left()?;
        Ok(answer)
    }

    fn stored(
        &mut self,
        keyspace: String,
        key: &[u8],
        content: abi::Content,
        mode: StoreMode,
    ) -> Result<std::result::Result<u64, abi::Error>> {
        let abi::Content { body, flags, expiry } = content;
        let content = Content { body, flags, expiry };
        let stored = self.on_documents(keyspace, true, |documents, keyspace, left| {
            documents.store(keyspace, key, content, mode, left)
        })?;
        Ok(stored.map(|cas| cas.0).map_err(Into::into))
    }
}

impl abi::Host for Data {
    fn get(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
    ) -> Result<std::result::Result<abi::Document, abi::Error>> {
        let found = self.on_documents(keyspace, false, |documents, keyspace, left| {
            documents.get(keyspace, &key, left)
        })?;
        Ok(found.map(Into::into).map_err(Into::into))
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

    fn insert(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        content: abi::Content,
    ) -> Result<std::result::Result<u64, abi::Error>> {
        self.stored(keyspace, &key, content, StoreMode::Insert)
    }

    fn upsert(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        content: abi::Content,
    ) -> Result<std::result::Result<u64, abi::Error>> {
        self.stored(keyspace, &key, content, StoreMode::Upsert)
    }

    fn replace(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        content: abi::Content,
        cas: Option<u64>,
    ) -> Result<std::result::Result<u64, abi::Error>> {
        self.stored(keyspace, &key, content, StoreMode::Replace(cas.map(Cas)))
    }

    fn remove(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        cas: Option<u64>,
    ) -> Result<std::result::Result<u64, abi::Error>> {
        let removed = self.on_documents(keyspace, true, |documents, keyspace, left| {
            documents.remove(keyspace, &key, cas.map(Cas), left)
        })?;
        Ok(removed.map(|cas| cas.0).map_err(Into::into))
    }

    fn counter(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        delta: i64,
        initial: Option<u64>,
        expiry: u32,
    ) -> Result<std::result::Result<abi::Counted, abi::Error>> {
        let counted = self.on_documents(keyspace, true, |documents, keyspace, left| {
            documents.count(keyspace, &key, delta, initial, expiry, left)
        })?;
        let counted = counted.map(|Counted { value, cas }| abi::Counted { value, cas: cas.0 });
        Ok(counted.map_err(Into::into))
    }

    fn touch(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        expiry: u32,
    ) -> Result<std::result::Result<u64, abi::Error>> {
        let touched = self.on_documents(keyspace, true, |documents, keyspace, left| {
            documents.touch(keyspace, &key, expiry, left)
        })?;
        Ok(touched.map(|cas| cas.0).map_err(Into::into))
    }

    fn lookup_in(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        specs: Vec<abi::LookupSpec>,
    ) -> Result<std::result::Result<abi::Looked, abi::Error>> {
        let specs: Vec<PathLookup> = specs.into_iter().map(Into::into).collect();
        let looked = self.on_documents(keyspace, false, |documents, keyspace, left| {
            documents.lookup(keyspace, &key, &specs, left)
        })?;
        Ok(looked.map(Into::into).map_err(Into::into))
    }

    fn mutate_in(
        &mut self,
        keyspace: String,
        key: Vec<u8>,
        specs: Vec<abi::MutateSpec>,
        options: abi::MutateOptions,
    ) -> Result<std::result::Result<abi::Mutated, abi::Error>> {
        let specs: Vec<PathMutation> = specs.into_iter().map(Into::into).collect();
        let mutated = self.on_documents(keyspace, true, |documents, keyspace, left| {
            documents.mutate(keyspace, &key, &specs, options.into(), left)
        })?;
        Ok(mutated.map(Into::into).map_err(Into::into))
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
