//! Sub-document commands: the metadata that they see, and the versions that they create.

use crate::command::{Command, Condition, Refusal};
use nacre_types::{Cas, DATATYPE_JSON, DATATYPE_XATTR, Document, Kind, Meta, Now, VbUuid};
use nacre_value::multi::{self, Body, Failure, LookupSpec, Macros, MutationSpec, Source};
use nacre_value::xattr::Xattrs;
use nacre_value::{Error, crc32c, json};
use serde_json::json;
use std::borrow::Cow;

/// Inputs of computed attributes, besides the document.
#[derive(Clone, Copy)]
pub(crate) struct Computed {
    /// The greatest CAS of the vBucket.
    pub max_cas: Cas,
    /// The branch of history.
    pub vb_uuid: VbUuid,
    pub now: Now,
}

impl Computed {
    /// Returns the JSON text of a computed attribute: `$document`, `$XTOC` or `$vbucket`.
    fn attribute(self, document: &Document, name: &str, sees_system: bool) -> Option<Vec<u8>> {
        let Computed { max_cas, now, .. } = self;
        let value = match name {
            "$document" => self.of_document(document),
            "$vbucket" => json!({"HLC": {
                "now": (max_cas.unix_ns().max(now.unix_ns) / 1_000_000_000).to_string(),
                "mode": if max_cas.unix_ns() > now.unix_ns { "logical" } else { "real" },
            }}),
            "$XTOC" => {
                return Some(Xattrs::parse(document.split().0).ok()?.names_json(sees_system));
            }
            _ => return None,
        };
        Some(value.to_string().into_bytes())
    }

    fn of_document(self, document: &Document) -> serde_json::Value {
        let Meta { seqno, cas, rev, flags, expiry, datatype, .. } = document.meta;
        let mut datatypes = Vec::new();
        datatypes.push(if datatype & DATATYPE_JSON != 0 { "json" } else { "raw" });
        if datatype & DATATYPE_XATTR != 0 {
            datatypes.push("xattr");
        }
        json!({
            "CAS": format!("0x{:016x}", cas.0),
            "vbucket_uuid": format!("0x{:016x}", self.vb_uuid.0),
            "seqno": format!("0x{:016x}", seqno.0),
            "revid": rev.to_string(),
            "exptime": if document.is_alive() { expiry } else { 0 },
            "flags": flags,
            "value_bytes": document.body().len(),
            "datatype": datatypes,
            "deleted": !document.is_alive(),
            "last_modified": (Cas::unix_ns(cas) / 1_000_000_000).to_string(),
            "value_crc32c": format!("0x{:08x}", crc32c(document.body())),
        })
    }
}

/// Carries out the operations of a lookup in a document or a tombstone.
pub(crate) fn lookup(
    document: &Document,
    specs: &[LookupSpec<'_>],
    computed: Computed,
    sees_system: bool,
) -> Result<Vec<Result<Vec<u8>, Error>>, Refusal> {
    let virtuals = |name: &str| computed.attribute(document, name, sees_system);
    let deleted = !document.is_alive();
    let results = multi::lookup(&source(document), specs, &virtuals)
        .map_err(|error| Refusal::Subdoc { failure: Failure::Request(error), deleted })?;
    Ok(results.into_iter().map(|result| result.map(|value| value.into_owned())).collect())
}

/// The versions that exist under the key of a mutation.
pub(crate) struct Found {
    /// The document, if it exists now.
    pub alive: Option<Document>,
    /// The version to change: the document, or a tombstone if the client accesses tombstones.
    pub current: Option<Document>,
}

/// The result of a mutation.
pub(crate) struct Edited<'a> {
    pub xattrs: Vec<u8>,
    pub body: Cow<'a, [u8]>,
    pub body_is_json: bool,
    pub meta: Meta,
    /// Results of operations, with their positions in the request.
    pub results: Vec<(u8, Vec<u8>)>,
    /// True if a tombstone was changed or created.
    pub was_deleted: bool,
}

impl Found {
    /// Checks the conditions of a mutation except the CAS.
    pub fn check(&self, condition: Condition, revive: bool) -> Result<(), Refusal> {
        let current = self.current.as_ref();
        // A client that accesses tombstones cannot add over one: it may contain a staged version of another
        // transaction.
        if current.is_some() && condition == Condition::Absent {
            return Err(Refusal::Exists);
        }
        if revive && current.is_none_or(|document| document.is_alive()) {
            return Err(Refusal::NotDeleted);
        }
        if current.is_none() && condition == Condition::Present {
            return Err(Refusal::NotFound);
        }
        Ok(())
    }

    /// Carries out the operations of a mutation whose conditions are met.
    pub fn edit(
        &self,
        command: &Command<'_>,
        computed: Computed,
        macros: Macros,
    ) -> Result<Edited<'_>, Refusal> {
        let Command::Mutate {
            specs,
            condition,
            create_as_deleted,
            revive,
            expiry,
            expiry_when_new,
            flags,
            keep_expiry,
            ..
        } = *command
        else {
            return Err(Refusal::Invalid);
        };
        let Found { alive, current } = self;
        let creates = current.is_none();
        let source = match current {
            Some(document) if revive => {
                Source { xattrs: document.xattrs(), ..Source::missing(specs) }
            }
            Some(document) => source(document),
            None if create_as_deleted => Source { deleted: true, ..Source::missing(specs) },
            None => Source::missing(specs),
        };
        let source = match source.deleted {
            true => Source { body: b"", body_is_json: false, ..source },
            false => source,
        };
        // Creating a document implies creating the parents of each path.
        let implied: Vec<MutationSpec<'_>>;
        let specs = if condition == Condition::Present {
            specs
        } else {
            implied = specs.iter().map(|spec| with_parents(*spec)).collect();
            &implied
        };
        let virtuals = |name: &str| {
            current.as_ref().and_then(|document| computed.attribute(document, name, true))
        };
        let made = multi::mutate(&source, specs, &virtuals, macros)
            .map_err(|failure| Refusal::Subdoc { failure, deleted: source.deleted && !creates })?;

        let removed = made.body == Body::Removed;
        // A large body is scanned only if it is not known whether it is JSON.
        let (body, body_is_json) = match made.body {
            Body::Unchanged => (Cow::Borrowed(source.body), source.body_is_json),
            Body::Edited(text) => (Cow::Owned(text), true),
            Body::Set(text) => {
                let is_json = json::is_json(&text);
                (Cow::Owned(text), is_json)
            }
            Body::Removed => (Cow::Borrowed(&b""[..]), false),
        };
        let deleted = removed || source.deleted;
        let new = Meta { expiry: expiry_when_new, ..Meta::default() };
        let old = alive.as_ref().map_or(new, |document| document.meta);
        let meta = if deleted {
            Meta { expiry: computed.now.unix_s(), kind: Kind::Deleted, ..Meta::default() }
        } else {
            Meta {
                flags: flags.unwrap_or(old.flags),
                expiry: expiry.filter(|_| alive.is_none() || !keep_expiry).unwrap_or(old.expiry),
                kind: Kind::Alive,
                ..Meta::default()
            }
        };
        let (xattrs, results) = (made.xattrs, made.results);
        Ok(Edited { xattrs, body, body_is_json, meta, results, was_deleted: source.deleted })
    }
}

fn source(document: &Document) -> Source<'_> {
    let (xattrs, body) = document.split();
    Source {
        xattrs,
        body,
        body_is_json: document.meta.datatype & DATATYPE_JSON != 0,
        deleted: !document.is_alive(),
    }
}

fn with_parents(mut spec: MutationSpec<'_>) -> MutationSpec<'_> {
    spec.flags.create_path = true;
    spec
}

/// Access to failures that concern the whole request or one of its operations.
impl Refusal {
    /// Returns the error of a sub-document refusal, and the position of the failed operation if there is one.
    pub fn subdoc_error(&self) -> Option<(Option<u8>, Error)> {
        match self {
            Refusal::Subdoc { failure: Failure::Request(error), .. } => Some((None, *error)),
            Refusal::Subdoc { failure: Failure::Spec { index, error }, .. } => {
                Some((Some(*index), *error))
            }
            _ => None,
        }
    }
}
