//! Sub-document commands: the version they work on, the metadata they see, and the value they write back.

use crate::command::{Command, Condition, Refusal, Reply};
use crate::vbucket::Vbucket;
use nacre_types::{Cas, DATATYPE_JSON, DATATYPE_XATTR, Document, Kind, Meta, Now};
use nacre_value::multi::{self, Body, Failure, LookupSpec, Macros, MutationSpec, Source};
use nacre_value::xattr::Xattrs;
use nacre_value::{Error, crc32c};
use serde_json::json;

impl Vbucket {
    pub(crate) fn lookup(
        &mut self,
        key: &[u8],
        specs: &[LookupSpec<'_>],
        access_deleted: bool,
        sees_system: bool,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let document = match self.alive(key, now) {
            Err(Refusal::NotFound) if access_deleted => {
                self.find(key).cloned().ok_or(Refusal::NotFound)?
            }
            found => found?,
        };
        self.note_read(&document);
        let deleted = !document.is_alive();
        let virtuals = |name: &str| self.virtual_attribute(&document, name, sees_system, now);
        let results = multi::lookup(&source(&document), specs, &virtuals)
            .map_err(|error| Refusal::Subdoc { failure: Failure::Request(error), deleted })?;
        let results =
            results.into_iter().map(|result| result.map(|value| value.into_owned())).collect();
        Ok(Reply::Looked { results, cas: self.shown_cas(&document, now), deleted })
    }

    pub(crate) fn mutate(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let Command::Mutate {
            specs,
            condition,
            access_deleted,
            create_as_deleted,
            revive,
            cas,
            expiry,
            expiry_when_new,
            flags,
            keep_expiry,
        } = *command
        else {
            return Err(Refusal::Invalid);
        };
        let alive = self.peek(key, now);
        let current = match &alive {
            Some(document) => Some(document.clone()),
            None => self.find(key).filter(|d| access_deleted && !d.is_alive()).cloned(),
        };
        // A client that sees tombstones cannot add over one: it may hold the staged version of another transaction.
        if current.is_some() && condition == Condition::Absent {
            return Err(Refusal::Exists);
        }
        if revive && current.as_ref().is_none_or(|document| document.is_alive()) {
            return Err(Refusal::NotDeleted);
        }
        if current.is_none() && condition == Condition::Present {
            return Err(Refusal::NotFound);
        }
        self.check_cas(key, current.as_ref(), cas, now)?;
        current.iter().for_each(|document| self.note_read(document));

        let creates = current.is_none();
        let source = match &current {
            Some(document) if revive => {
                Source { xattrs: document.xattrs(), ..Source::missing(specs) }
            }
            Some(document) => source(document),
            None if create_as_deleted => Source { deleted: true, ..Source::missing(specs) },
            None => Source::missing(specs),
        };
        let source = if source.deleted { Source { body: b"", ..source } } else { source };
        // Creating a document implies creating the parents of each path.
        let implied: Vec<MutationSpec<'_>>;
        let specs = if condition == Condition::Present {
            specs
        } else {
            implied = specs.iter().map(|spec| with_parents(*spec)).collect();
            &implied
        };
        let (next_cas, next_seqno) = self.upcoming(now);
        let virtuals = |name: &str| {
            current.as_ref().and_then(|document| self.virtual_attribute(document, name, true, now))
        };
        let macros = Macros { cas: next_cas.0, seqno: next_seqno.0 };
        let made = multi::mutate(&source, specs, &virtuals, macros)
            .map_err(|failure| Refusal::Subdoc { failure, deleted: source.deleted && !creates })?;

        let (body, removed) = match &made.body {
            Body::Unchanged => (source.body, false),
            Body::Set(text) => (&text[..], false),
            Body::Removed => (&b""[..], true),
        };
        let deleted = removed || source.deleted;
        let new = Meta { expiry: expiry_when_new, ..Meta::default() };
        let old = alive.as_ref().map_or(new, |document| document.meta);
        let meta = if deleted {
            Meta { expiry: now.unix_s(), kind: Kind::Deleted, ..Meta::default() }
        } else {
            Meta {
                flags: flags.unwrap_or(old.flags),
                expiry: expiry.filter(|_| alive.is_none() || !keep_expiry).unwrap_or(old.expiry),
                kind: Kind::Alive,
                ..Meta::default()
            }
        };
        let document = self.write_parts(key, &made.xattrs, body, meta, now)?;
        let token = self.token(&document);
        Ok(Reply::Mutated {
            results: made.results,
            cas: document.meta.cas,
            token,
            deleted: source.deleted,
        })
    }

    /// The JSON text of an attribute that is computed: `$document`, `$XTOC` or `$vbucket`.
    fn virtual_attribute(
        &self,
        document: &Document,
        name: &str,
        sees_system: bool,
        now: Now,
    ) -> Option<Vec<u8>> {
        let value = match name {
            "$document" => self.document_attribute(document),
            "$vbucket" => json!({"HLC": {
                "now": (self.max_cas().unix_ns().max(now.unix_ns) / 1_000_000_000).to_string(),
                "mode": if self.max_cas().unix_ns() > now.unix_ns { "logical" } else { "real" },
            }}),
            "$XTOC" => {
                return Some(Xattrs::parse(document.split().0).ok()?.names_json(sees_system));
            }
            _ => return None,
        };
        Some(value.to_string().into_bytes())
    }

    fn document_attribute(&self, document: &Document) -> serde_json::Value {
        let Meta { seqno, cas, rev, flags, expiry, datatype, .. } = document.meta;
        let mut datatypes = Vec::new();
        datatypes.push(if datatype & DATATYPE_JSON != 0 { "json" } else { "raw" });
        if datatype & DATATYPE_XATTR != 0 {
            datatypes.push("xattr");
        }
        json!({
            "CAS": format!("0x{:016x}", cas.0),
            "vbucket_uuid": format!("0x{:016x}", self.failover_log().current().0),
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

/// Failures that concern the request as a whole, or only one of its operations.
impl Refusal {
    /// The error of a sub-document refusal and the position of the operation it concerns.
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
