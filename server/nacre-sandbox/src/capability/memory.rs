//! Documents in memory, for use instead of a bucket.

use super::kv::{
    Content, Counted, DocumentCall, DocumentReply, Documents, Found, KvError, StoreMode,
};
use super::paths::{
    Looked, MutateOptions, Mutated, PathLookup, PathMutation, TombstoneUse, path_failure,
};
use nacre_types::Cas;
use nacre_value::multi::{self, Body};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Documents in memory, for tests. They do not expire, are never locked, and lose their extended attributes.
#[derive(Debug, Default)]
pub struct MemoryDocuments {
    content: Mutex<(u64, Keyspaces)>,
}

type Keyspaces = BTreeMap<(String, Vec<u8>), Found>;

impl MemoryDocuments {
    /// Returns the documents of all keyspaces in order: keyspace, key, document.
    pub fn all(&self) -> Vec<(String, Vec<u8>, Found)> {
        let content = self.content.lock();
        let owned = |((keyspace, key), found): (&(String, Vec<u8>), &Found)| {
            (keyspace.clone(), key.clone(), found.clone())
        };
        content.1.iter().map(owned).collect()
    }

    /// Adds a document unchanged, including its CAS.
    pub fn adopt(&self, keyspace: &str, key: &[u8], found: Found) {
        let mut held = self.content.lock();
        held.0 = held.0.max(found.cas.0);
        held.1.insert((keyspace.to_owned(), key.to_vec()), found);
    }

    /// Stores a document whether or not it exists.
    pub fn put(&self, keyspace: &str, key: &[u8], content: Content) {
        let stored = self.store(keyspace, key, content, StoreMode::Upsert);
        stored.expect("an upsert into memory succeeds");
    }
}

impl Documents for MemoryDocuments {
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        _: Duration,
    ) -> Result<DocumentReply, KvError> {
        use DocumentReply::{Counted, Found, Looked, LookedAny, Mutated, Stored};
        match call {
            DocumentCall::Get => self.get(keyspace, key).map(Found),
            DocumentCall::Store(content, mode) => {
                self.store(keyspace, key, content.clone(), *mode).map(Stored)
            }
            DocumentCall::Remove(cas) => self.remove(keyspace, key, *cas).map(Stored),
            DocumentCall::Count(delta, initial, expiry) => {
                self.count(keyspace, key, *delta, *initial, *expiry).map(Counted)
            }
            DocumentCall::Touch(expiry) => self.touch(keyspace, key, *expiry).map(Stored),
            DocumentCall::Lookup(specs) => self.lookup(keyspace, key, specs).map(Looked),
            DocumentCall::Mutate(specs, options) => {
                self.mutate(keyspace, key, specs, *options).map(Mutated)
            }
            DocumentCall::LookupAny(specs) => {
                self.lookup(keyspace, key, specs).map(|looked| LookedAny(looked, false))
            }
            // Deleted documents leave no tombstone here.
            DocumentCall::MutateAny(_, _, TombstoneUse::Create | TombstoneUse::Revive) => {
                Err(KvError::Denied("documents in memory have no tombstones".into()))
            }
            DocumentCall::MutateAny(specs, options, TombstoneUse::Keep) => {
                self.mutate(keyspace, key, specs, *options).map(Mutated)
            }
        }
    }
}

impl MemoryDocuments {
    fn get(&self, keyspace: &str, key: &[u8]) -> Result<Found, KvError> {
        let content = self.content.lock();
        content.1.get(&(keyspace.to_owned(), key.to_vec())).cloned().ok_or(KvError::NotFound)
    }

    fn store(
        &self,
        keyspace: &str,
        key: &[u8],
        content: Content,
        mode: StoreMode,
    ) -> Result<Cas, KvError> {
        let mut held = self.content.lock();
        let (last, documents) = &mut *held;
        let at = (keyspace.to_owned(), key.to_vec());
        match (mode, documents.get(&at)) {
            (StoreMode::Insert, Some(_)) => return Err(KvError::Exists),
            (StoreMode::Replace(_), None) => return Err(KvError::NotFound),
            (StoreMode::Replace(Some(cas)), Some(found)) if found.cas != cas => {
                return Err(KvError::CasMismatch);
            }
            _ => {}
        }
        *last += 1;
        let Content { body, flags, expiry } = content;
        let expiry = expiry.or(documents.get(&at).map(|found| found.expiry)).unwrap_or(0);
        let is_json = is_json(&body);
        documents.insert(at, Found { body, cas: Cas(*last), flags, expiry, is_json });
        Ok(Cas(*last))
    }

    fn remove(&self, keyspace: &str, key: &[u8], cas: Option<Cas>) -> Result<Cas, KvError> {
        let mut held = self.content.lock();
        let (last, documents) = &mut *held;
        let at = (keyspace.to_owned(), key.to_vec());
        let found = documents.get(&at).ok_or(KvError::NotFound)?;
        if cas.is_some_and(|cas| cas != found.cas) {
            return Err(KvError::CasMismatch);
        }
        documents.remove(&at);
        *last += 1;
        Ok(Cas(*last))
    }

    fn count(
        &self,
        keyspace: &str,
        key: &[u8],
        delta: i64,
        initial: Option<u64>,
        expiry: u32,
    ) -> Result<Counted, KvError> {
        let (value, flags, expiry) = match (self.get(keyspace, key), initial) {
            (Ok(found), _) => {
                let value =
                    std::str::from_utf8(&found.body).ok().and_then(|text| text.parse().ok());
                let value: u64 =
                    value.ok_or_else(|| KvError::Invalid("it is not a counter".into()))?;
                (value.saturating_add_signed(delta), found.flags, found.expiry)
            }
            (Err(KvError::NotFound), Some(initial)) => (initial, 0, expiry),
            (Err(error), _) => return Err(error),
        };
        let body = value.to_string().into_bytes();
        let content = Content { body, flags, expiry: Some(expiry) };
        let cas = self.store(keyspace, key, content, StoreMode::Upsert)?;
        Ok(Counted { value, cas })
    }

    fn touch(&self, keyspace: &str, key: &[u8], expiry: u32) -> Result<Cas, KvError> {
        let Found { body, flags, .. } = self.get(keyspace, key)?;
        self.store(keyspace, key, Content { body, flags, expiry: Some(expiry) }, StoreMode::Upsert)
    }

    fn lookup(&self, keyspace: &str, key: &[u8], specs: &[PathLookup]) -> Result<Looked, KvError> {
        let found = self.get(keyspace, key)?;
        let specs: Vec<_> = specs.iter().map(PathLookup::spec).collect();
        let looked = multi::lookup(&source(&found), &specs, &|_| None)
            .map_err(|error| KvError::Path(error.to_string()))?;
        let result = |answer: multi::Answer<'_>| {
            answer.map(Cow::into_owned).map_err(|error| error.to_string())
        };
        Ok(Looked { cas: found.cas, results: looked.into_iter().map(result).collect() })
    }

    fn mutate(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathMutation],
        options: MutateOptions,
    ) -> Result<Mutated, KvError> {
        let MutateOptions { mode, expiry, flags } = options;
        let specs: Vec<_> = specs.iter().map(PathMutation::spec).collect();
        let found = match (self.get(keyspace, key), mode) {
            (Err(KvError::NotFound), StoreMode::Insert | StoreMode::Upsert) => None,
            (found, _) => Some(found?),
        };
        let before = found.as_ref().map_or_else(|| multi::Source::missing(&specs), source);
        let macros = multi::Macros { cas: self.content.lock().0 + 1, seqno: 0 };
        let made = multi::mutate(&before, &specs, &|_| None, macros)
            .map_err(|failure| KvError::Path(path_failure(failure)))?;
        let body = match made.body {
            Body::Unchanged => before.body.to_vec(),
            Body::Set(body) | Body::Edited(body) => body,
            Body::Removed => {
                let cas = self.remove(keyspace, key, None)?;
                return Ok(Mutated { cas, results: made.results });
            }
        };
        let flags = flags.or(found.as_ref().map(|found| found.flags)).unwrap_or(0);
        let content = Content { body, flags, expiry };
        let cas = self.store(keyspace, key, content, mode)?;
        Ok(Mutated { cas, results: made.results })
    }
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

fn source(found: &Found) -> multi::Source<'_> {
    multi::Source { xattrs: b"", body: &found.body, body_is_json: found.is_json, deleted: false }
}
