//! Documents with their revision trees, read and written with the capability `kv`.
//!
//! A document that a key-value client has changed is read as if the change were already a revision: the child of the winner, with
//! an ID derived from its content, so that every importer creates the same revision.

use crate::Config;
use crate::http::Problem;
use crate::index;
use crate::json::readable;
use crate::record::{
    Attachment, Attachments, BYTES_MAX, Content, NAME, Record, cas_text, crc_text,
};
use crate::tree::{Rev, Tree};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use md5::{Digest, Md5};
use nacre_plugin::State;
use nacre_plugin::kv::{
    self, LookupOperation, LookupSpec, Mode, MutateOperation, MutateOptions, MutateSpec,
    TombstoneUse,
};
use std::collections::BTreeSet;

/// Maximum bytes of a document's key.
pub const KEY_BYTES_MAX: usize = 246;
/// Maximum leaves of a tree. CouchDB has no limit, and becomes slow; a client that exceeds the limit gets an error.
pub const LEAVES_MAX: usize = 1000;
/// Bodies of leaves above this size are separate documents.
const NEAR_BYTES_MAX: usize = 4096;
/// Maximum bytes of an attachment.
pub const ATTACHMENT_BYTES_MAX: usize = 16 << 20;
/// Attempts to write a document that others write at the same time.
const ATTEMPTS: usize = 32;
/// The flags of JSON bodies, as set by SDKs.
const JSON_FLAGS: u32 = 0x0200_0006;

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Nothing,
    Tombstone(u64),
    Document(u64),
}

/// A document with its tree.
#[derive(Clone, Debug)]
pub struct Version {
    /// The ID.
    pub id: String,
    presence: Presence,
    /// The tree, and contents of leaves.
    pub record: Record,
    /// The body of the document, and its leaf.
    body: Option<(Rev, String)>,
    /// True if a change without a revision was found.
    pub is_imported: bool,
}

impl Version {
    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.record.tree
    }

    /// Returns the winner, unless there is no revision.
    pub fn winner(&self) -> Option<Rev> {
        self.record.tree.winner()
    }

    /// Returns the winner, if it does not delete the document.
    pub fn alive(&self) -> Option<Rev> {
        self.winner().filter(|winner| !self.tree().is_deleted(winner))
    }

    /// Returns the attachments of a leaf.
    pub fn attachments(&self, rev: &Rev) -> Attachments {
        let content = self.record.contents.get(rev);
        content.map(|content| content.attachments.clone()).unwrap_or_default()
    }

    /// Sets the content of a leaf.
    pub fn set(&mut self, rev: Rev, body: String, attachments: Attachments) {
        let content = Content { body: Some(body), is_far: false, attachments };
        self.record.contents.insert(rev, content);
    }
}

/// Returns the ID of a revision: equal edits of equal revisions are the same revision everywhere.
pub fn rev_id(
    parent: Option<&Rev>,
    deleted: bool,
    body: &str,
    attachments: &Attachments,
) -> String {
    let mut hash = Md5::new();
    let parent = parent.map(ToString::to_string).unwrap_or_default();
    hash.update((parent.len() as u32).to_be_bytes());
    hash.update(&parent);
    hash.update([u8::from(deleted)]);
    hash.update((body.len() as u32).to_be_bytes());
    hash.update(body);
    for (name, attachment) in attachments {
        for part in [name, &attachment.content_type, &attachment.digest] {
            hash.update((part.len() as u32).to_be_bytes());
            hash.update(part);
        }
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the ID of a document.
///
/// # Errors
/// 400 for an invalid ID.
pub fn check_id(id: &str) -> Result<(), Problem> {
    if id.is_empty() {
        return Err(Problem::new(400, "illegal_docid", "Document id must not be empty"));
    }
    if id.starts_with('_') && !id.starts_with("_design/") {
        let reason = "Only reserved document ids may start with underscore.";
        return Err(Problem::new(400, "illegal_docid", reason));
    }
    if id.len() > KEY_BYTES_MAX {
        let reason = format!("Document id has {} bytes, more than {KEY_BYTES_MAX}", id.len());
        return Err(Problem::new(400, "illegal_docid", &reason));
    }
    Ok(())
}

/// The documents of the database.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The plugin's state.
    pub state: &'a dyn State,
}

impl Store<'_> {
    /// Reads a document with its tree. A document that never existed has an empty tree.
    ///
    /// # Errors
    /// The reason, if it cannot be read, or cannot be a CouchDB document.
    pub fn load(&self, id: &str) -> Result<Version, Problem> {
        let lookup = |operation, path: &str| LookupSpec {
            operation,
            path: path.to_owned(),
            xattr: operation == LookupOperation::Get,
        };
        let specs = [lookup(LookupOperation::Get, NAME), lookup(LookupOperation::Document, "")];
        let mut version = Version {
            id: id.to_owned(),
            presence: Presence::Nothing,
            record: Record::default(),
            body: None,
            is_imported: false,
        };
        let looked = match kv::lookup_in_any("", id.as_bytes(), &specs) {
            Ok(looked) => looked,
            Err(kv::Error::NotFound) => {
                // Its tombstone was purged.
                let tree = index::tree(self.state, id).unwrap_or_default();
                let is_deleted = tree.winner().is_some_and(|winner| tree.is_deleted(&winner));
                version.record.tree = if is_deleted { tree } else { Tree::default() };
                return Ok(version);
            }
            Err(error) => return Err(error.into()),
        };
        let mut results = looked.results.into_iter();
        let attribute = results.next().and_then(Result::ok);
        let body = results.next().and_then(Result::ok).unwrap_or_default();
        version.record = attribute.as_deref().and_then(Record::read).unwrap_or_default();
        if version.record.tree.is_empty() {
            // A document that replaces a tombstone does not have its attributes.
            let tree = index::tree(self.state, id).unwrap_or_default();
            let is_deleted = tree.winner().is_some_and(|winner| tree.is_deleted(&winner));
            version.record.tree = if is_deleted { tree } else { Tree::default() };
        }
        match looked.deleted {
            true => {
                version.presence = Presence::Tombstone(looked.cas);
                self.import_deletion(&mut version, looked.cas);
                Ok(version)
            }
            false => {
                version.presence = Presence::Document(looked.cas);
                self.import_body(version, looked.cas, &body)
            }
        }
    }

    fn import_body(&self, mut version: Version, cas: u64, body: &[u8]) -> Result<Version, Problem> {
        let unreadable = |reason: &str| Problem::new(403, "forbidden", reason);
        let text = readable(body).map_err(unreadable)?.to_owned();
        let record = &version.record;
        if let Some(winner) = version.alive()
            && (record.cas == cas_text(cas) || record.crc == crc_text(body))
        {
            version.body = Some((winner, text));
            return Ok(version);
        }
        let parent = version.winner();
        let attachments = version.alive().map(|winner| version.attachments(&winner));
        let attachments = attachments.unwrap_or_default();
        let generation = parent.as_ref().map_or(1, |parent| parent.generation + 1);
        let id = rev_id(parent.as_ref(), false, &text, &attachments);
        let rev = Rev { generation, id };
        version.record.tree.add(parent, rev.clone(), false);
        let content = Content { body: None, is_far: false, attachments };
        version.record.contents.insert(rev.clone(), content);
        version.body = Some((rev, text));
        version.is_imported = true;
        Ok(version)
    }

    fn import_deletion(&self, version: &mut Version, cas: u64) {
        let Some(winner) = version.alive() else { return };
        if version.record.cas == cas_text(cas) {
            return;
        }
        let id = rev_id(Some(&winner), true, "{}", &Attachments::new());
        let rev = Rev { generation: winner.generation + 1, id };
        version.record.tree.add(Some(winner), rev, true);
        version.is_imported = true;
    }

    /// Returns the body of a leaf.
    ///
    /// # Errors
    /// 404 for a revision whose body is not stored.
    pub fn body(&self, version: &Version, rev: &Rev) -> Result<String, Problem> {
        if let Some((of, body)) = &version.body
            && of == rev
        {
            return Ok(body.clone());
        }
        match version.record.contents.get(rev) {
            Some(Content { body: Some(body), .. }) => Ok(body.clone()),
            Some(Content { is_far: true, .. }) => {
                let document = kv::get(&self.config.private, &self.far_key(&version.id, rev));
                let document = document.map_err(|error| match error {
                    kv::Error::NotFound => Problem::missing("missing"),
                    error => error.into(),
                })?;
                String::from_utf8(document.body).map_err(|_| Problem::missing("missing"))
            }
            _ if version.tree().is_deleted(rev) && version.tree().leaves().contains(rev) => {
                Ok("{}".into())
            }
            _ => Err(Problem::missing("missing")),
        }
    }

    /// Changes a document, and retries when others change it at the same time. `change` returns its result, and true if something
    /// must be written.
    ///
    /// # Errors
    /// The error of `change`, or the reason why the document is not written.
    pub fn update<T>(
        &self,
        id: &str,
        mut change: impl FnMut(&mut Version) -> Result<(T, bool), Problem>,
    ) -> Result<T, Problem> {
        for _ in 0..ATTEMPTS {
            let mut version = self.load(id)?;
            let (result, is_changed) = change(&mut version)?;
            if !is_changed && !version.is_imported {
                return Ok(result);
            }
            match self.save(version) {
                Ok(_) => return Ok(result),
                Err(Refused::Moved) => {}
                Err(Refused::Problem(problem)) => return Err(problem),
            }
        }
        let reason = "the document is changed by many clients at once: try again";
        Err(Problem::new(503, "service_unavailable", reason))
    }

    /// Writes a key-value client's change as a revision. Returns the tree, or `None` if the document has changed again meanwhile.
    ///
    /// # Errors
    /// The reason, if it is not written.
    pub fn import(&self, id: &str) -> Result<Option<Tree>, Problem> {
        let version = self.load(id)?;
        if version.tree().is_empty() {
            return Ok(None);
        }
        if !version.is_imported {
            return Ok(Some(version.record.tree));
        }
        match self.save(version) {
            Ok(tree) => Ok(Some(tree)),
            Err(Refused::Moved) => Ok(None),
            Err(Refused::Problem(problem)) => Err(problem),
        }
    }

    /// Writes a document with its tree, if it has not changed since it was read.
    fn save(&self, mut version: Version) -> Result<Tree, Refused> {
        version.record.tree.stem(self.config.revs_limit);
        let leaves = version.tree().leaves();
        if leaves.len() > LEAVES_MAX {
            let reason =
                format!("the document has {LEAVES_MAX} conflicting revisions: resolve them");
            return Err(Problem::new(403, "forbidden", &reason).into());
        }
        let winner = version.alive();
        let new_body = match &winner {
            Some(winner) => Some(self.body(&version, winner)?),
            None => None,
        };
        if let Some((rev, body)) = version.body.take() {
            let content = version.record.contents.entry(rev).or_default();
            content.body = Some(body);
        }
        let dropped: Vec<Rev> = self.sort_contents(&mut version, &leaves, winner.as_ref())?;
        let attribute = version.record.write();
        if attribute.len() > BYTES_MAX {
            let reason = "the conflicting revisions of the document are too large: resolve them";
            return Err(Problem::new(413, "document_too_large", reason).into());
        }
        let spec = |operation, path: &str, value: &[u8], expand_macros| MutateSpec {
            operation,
            path: path.to_owned(),
            value: value.to_vec(),
            xattr: !path.is_empty(),
            create_path: false,
            expand_macros,
        };
        let upsert = MutateOperation::Upsert;
        let mut specs = vec![
            spec(upsert, NAME, attribute.as_bytes(), false),
            spec(upsert, &format!("{NAME}.cas"), br#""${Mutation.CAS}""#, true),
            spec(upsert, &format!("{NAME}.crc"), br#""${Mutation.value_crc32c}""#, true),
        ];
        let mut flags = None;
        match (&new_body, version.presence) {
            (Some(body), _) => {
                specs.push(spec(MutateOperation::SetDocument, "", body.as_bytes(), false));
                flags = Some(JSON_FLAGS);
            }
            (None, Presence::Document(_)) => {
                specs.push(spec(MutateOperation::RemoveDocument, "", b"", false));
            }
            (None, _) => {}
        }
        let (mode, tombstone) = match (version.presence, new_body.is_some()) {
            (Presence::Nothing, true) => (Mode::Insert, TombstoneUse::Keep),
            (Presence::Nothing, false) => (Mode::Insert, TombstoneUse::Create),
            (Presence::Tombstone(cas), true) => (Mode::Replace(Some(cas)), TombstoneUse::Revive),
            (Presence::Tombstone(cas) | Presence::Document(cas), _) => {
                (Mode::Replace(Some(cas)), TombstoneUse::Keep)
            }
        };
        let options = MutateOptions { mode, expiry: None, flags };
        match kv::mutate_in_any("", version.id.as_bytes(), &specs, options, tombstone) {
            Ok(_) => {}
            Err(kv::Error::CasMismatch | kv::Error::Exists | kv::Error::NotFound) => {
                return Err(Refused::Moved);
            }
            Err(error) => return Err(Problem::from(error).into()),
        }
        for rev in dropped {
            // A document that remains only costs space.
            drop(kv::remove(&self.config.private, &self.far_key(&version.id, &rev), None));
        }
        Ok(version.record.tree)
    }

    /// Keeps only the contents of leaves, each in its place. Returns revisions whose body document is no longer needed.
    fn sort_contents(
        &self,
        version: &mut Version,
        leaves: &[Rev],
        winner: Option<&Rev>,
    ) -> Result<Vec<Rev>, Problem> {
        let kept: BTreeSet<&Rev> = leaves.iter().collect();
        let mut dropped = Vec::new();
        let id = version.id.clone();
        for (rev, content) in &mut version.record.contents {
            let is_winner = winner == Some(rev);
            if is_winner || !kept.contains(rev) {
                dropped.extend(content.is_far.then(|| rev.clone()));
                content.is_far = false;
                content.body = None;
                continue;
            }
            if content.body.as_deref() == Some("{}") && version.record.tree.is_deleted(rev) {
                content.body = None;
            }
            if let Some(body) = content.body.take_if(|body| body.len() > NEAR_BYTES_MAX) {
                let body = kv::Content { body: body.into_bytes(), flags: JSON_FLAGS, expiry: 0 };
                kv::upsert(&self.config.private, &self.far_key(&id, rev), &body)?;
                content.is_far = true;
            }
        }
        version
            .record
            .contents
            .retain(|rev, content| kept.contains(rev) && (*content != Content::default()));
        Ok(dropped)
    }

    fn far_key(&self, id: &str, rev: &Rev) -> Vec<u8> {
        let digest = hex(&Md5::digest(format!("{rev} {id}")));
        format!("{}/body/{digest}", self.config.database).into_bytes()
    }

    fn attachment_key(&self, id: &str, digest: &str) -> Vec<u8> {
        let id = hex(&Md5::digest(id));
        format!("{}/attachment/{id}/{digest}", self.config.database).into_bytes()
    }

    /// Stores the content of an attachment.
    ///
    /// # Errors
    /// 413 if it is too large, or the reason why it is not stored.
    pub fn put_attachment(
        &self,
        id: &str,
        content_type: &str,
        bytes: Vec<u8>,
        revpos: u64,
    ) -> Result<Attachment, Problem> {
        if bytes.len() > ATTACHMENT_BYTES_MAX {
            let reason = format!(
                "the attachment has {} bytes, more than {ATTACHMENT_BYTES_MAX}",
                bytes.len()
            );
            return Err(Problem::new(413, "attachment_too_large", &reason));
        }
        let digest = BASE64_STANDARD.encode(Md5::digest(&bytes));
        let length = bytes.len() as u64;
        let content = kv::Content { body: bytes, flags: 0, expiry: 0 };
        kv::upsert(&self.config.private, &self.attachment_key(id, &digest), &content)?;
        Ok(Attachment { content_type: content_type.to_owned(), digest, length, revpos })
    }

    /// Returns the content of an attachment.
    ///
    /// # Errors
    /// 404 if it no longer exists.
    pub fn attachment(&self, id: &str, attachment: &Attachment) -> Result<Vec<u8>, Problem> {
        let key = self.attachment_key(id, &attachment.digest);
        match kv::get(&self.config.private, &key) {
            Ok(document) => Ok(document.body),
            Err(kv::Error::NotFound) => Err(Problem::missing("Document is missing attachment")),
            Err(error) => Err(error.into()),
        }
    }
}

/// The reason why a document was not written.
pub enum Refused {
    /// Others have changed it meanwhile.
    Moved,
    /// Another reason.
    Problem(Problem),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        Refused::Problem(problem)
    }
}
