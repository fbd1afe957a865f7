//! The commit of a transaction into the stored documents, and its rollback.
//!
//! ```text
//! record: PENDING ─► each document is staged ─► record: COMMITTED ─► each document is unstaged ─► entry forgotten
//!                         │
//!                         └── refused ─► record: ABORTED ─► staged changes are removed ─► entry forgotten
//! ```
//!
//! Before COMMITTED no reader sees a change, and afterwards any node that finds the entry can complete the rest. So a
//! crash at any point leaves all changes or none, as soon as the entry is [finished](Attempt::finish). Every write
//! requires the CAS of the version that it replaces, so it never overwrites a change that another transaction, a client
//! or a cleanup has made in between.

use super::changes::{Changes, JSON_FLAGS, Kind, Place, Staged};
use super::record::{self, Entry, Names, state};
use super::step::{BodyFormat, Documents, Durability, Edit, LookupResult, Step};
use nacre_sandbox::{DatabaseKeyspace, KvError};
use std::time::Duration;

/// How often the unstaging of a document is retried because the document has changed.
const ROUNDS: usize = 8;

/// Why a transaction did not commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A concurrent write; the same statements may succeed the next time.
    Conflict(String),
    /// The transaction has expired.
    Expired,
    /// It is unknown whether the transaction has committed. If it has, all of it will become visible.
    Ambiguous(String),
    /// Another reason.
    Failed(String),
}

/// An attempt to commit a transaction; a transaction of statements has only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The ID of the transaction.
    pub transaction: String,
    /// The ID of the attempt.
    pub id: String,
    /// Collection for the records, if one was chosen.
    pub records: Option<DatabaseKeyspace>,
    /// Place of its record, once it has one.
    pub record: Option<Place>,
    /// Durability of its writes.
    pub durability: Durability,
}

/// A document with a staged change.
struct StagedPlace<'a> {
    place: &'a Place,
    staged: &'a Staged,
    /// CAS of the version with the staged change.
    cas: u64,
}

impl Attempt {
    /// Commits all changes, or none. `left` returns the time until the decision must be made.
    ///
    /// Returns true if nothing is left to do; otherwise a cleanup finishes the transaction.
    ///
    /// # Errors
    /// The reason why no change was made, except for [`Stopped::Ambiguous`].
    pub fn commit(
        &mut self,
        changes: &Changes,
        documents: &dyn Documents,
        left: &dyn Fn() -> Duration,
    ) -> Result<bool, Stopped> {
        let wanted: Vec<_> = changes
            .iter()
            .filter(|(_, staged)| staged.kind != Kind::Nothing || staged.stored.is_some())
            .collect();
        let Some((first, _)) = wanted.first() else { return Ok(true) };
        let record = self.begin(first, documents, left)?;
        let names = self.names(&record);
        let mut moved = Vec::new();
        let staged = self.stage(&names, &wanted, &mut moved, documents, left);
        // The edit of the record decides: it is one write of one document, so there is no intermediate state.
        let committed = staged.and_then(|()| self.decide(&names, &moved, documents));
        match committed {
            Ok(()) => Ok(self.unstage(&moved, documents)),
            // The transaction is neither undone nor finished here, because the record may say COMMITTED. A cleanup
            // decides once the transaction has expired.
            Err(stopped @ Stopped::Ambiguous(_)) => Err(stopped),
            Err(stopped) => {
                self.abort(&wanted, documents);
                Err(stopped)
            }
        }
    }

    /// Removes changes that an SDK has staged before it handed the transaction over.
    pub fn roll_back(&self, changes: &Changes, documents: &dyn Documents) {
        let staged: Vec<_> = changes.iter().filter(|(_, staged)| staged.stored.is_some()).collect();
        if !staged.is_empty() {
            self.abort(&staged, documents);
        }
    }

    /// Ensures that the transaction has an entry, and returns the place of its record.
    fn begin(
        &mut self,
        first: &Place,
        documents: &dyn Documents,
        left: &dyn Fn() -> Duration,
    ) -> Result<Place, Stopped> {
        if let Some(record) = &self.record {
            return Ok(record.clone());
        }
        let record = record::record_of(first, self.records.as_ref());
        let edit = self.names(&record).pending(left(), self.durability);
        documents
            .write(&record, Step::Edit(edit, self.durability))
            .map_err(|error| failed(&error))?;
        self.record = Some(record.clone());
        Ok(record)
    }

    fn names<'a>(&'a self, record: &'a Place) -> Names<'a> {
        Names { transaction: &self.transaction, attempt: &self.id, record }
    }

    fn stage<'a>(
        &self,
        names: &Names<'_>,
        wanted: &[(&'a Place, &'a Staged)],
        moved: &mut Vec<StagedPlace<'a>>,
        documents: &dyn Documents,
        left: &dyn Fn() -> Duration,
    ) -> Result<(), Stopped> {
        for (place, staged) in wanted {
            if left().is_zero() {
                return Err(Stopped::Expired);
            }
            let cas = match (staged.stored, staged.is_dirty) {
                (Some(_), false) => staged.stored_cas,
                // An insertion that an SDK staged and that was removed again: its tombstone is restored.
                (Some(_), true) if staged.kind == Kind::Nothing => {
                    let restored = record::restored(staged.stored_cas);
                    self.edit(place, restored, documents)
                        .map_err(|error| conflict(place, &error))?;
                    continue;
                }
                _ => self.stage_one(names, place, staged, moved.len(), documents)?,
            };
            moved.push(StagedPlace { place, staged, cas });
        }
        if left().is_zero() { Err(Stopped::Expired) } else { Ok(()) }
    }

    fn stage_one(
        &self,
        names: &Names<'_>,
        place: &Place,
        staged: &Staged,
        number: usize,
        documents: &dyn Documents,
    ) -> Result<u64, Stopped> {
        // An insertion first tries to create a tombstone with the staged body. If the key exists, it may be the
        // tombstone of a removed document or of another transaction, so it is read like any other document.
        let operation = format!("{}-{number}", self.id);
        let is_new = staged.kind == Kind::Insert && staged.stored_cas == 0;
        let mut cas = staged.stored_cas;
        if is_new {
            let edit = names.staged(staged.kind, &staged.body, &operation, 0);
            match self.edit(place, edit, documents) {
                Err(KvError::Exists | KvError::CasMismatch | KvError::Path(_)) => {}
                outcome => return outcome.map_err(|error| conflict(place, &error)),
            }
        }
        // Another transaction may have staged a change here, before or after this transaction has read the document.
        let paths = [record::STAGED_ATTEMPT, "txn.atr"];
        let looked = documents.lookup(place, &paths).map_err(|error| conflict(place, &error))?;
        let looked = looked.ok_or_else(|| conflict(place, &KvError::NotFound))?;
        if is_new && looked.is_tombstone {
            cas = looked.cas;
        } else if is_new {
            return Err(conflict(place, &KvError::Exists));
        }
        let is_gone = looked.is_tombstone && staged.kind != Kind::Insert;
        if looked.cas != cas || is_gone {
            return Err(conflict(place, &KvError::CasMismatch));
        }
        if self.is_taken(&looked, documents)? {
            let why = format!("another transaction has staged {}", place.id);
            return Err(Stopped::Conflict(why));
        }
        let edit = names.staged(staged.kind, &staged.body, &operation, cas);
        self.edit(place, edit, documents).map_err(|error| conflict(place, &error))
    }

    /// Returns true if another transaction, which has not ended, has staged a change here.
    fn is_taken(&self, looked: &LookupResult, documents: &dyn Documents) -> Result<bool, Stopped> {
        let [Some(attempt), Some(record)] = &looked.found[..] else { return Ok(false) };
        let (Ok(attempt), Ok(record)) = (
            serde_json::from_slice::<String>(attempt),
            serde_json::from_slice::<serde_json::Value>(record),
        ) else {
            return Ok(true);
        };
        if attempt == self.id {
            return Ok(false);
        }
        let text = |field: &str| record.get(field).and_then(serde_json::Value::as_str);
        let (Some(bucket), Some(id)) = (text("bkt"), text("id")) else { return Ok(true) };
        if !record::is_id(&attempt) {
            return Ok(true);
        }
        let keyspace = DatabaseKeyspace {
            bucket: bucket.to_owned(),
            scope: text("scp").unwrap_or("_default").to_owned(),
            collection: text("coll").unwrap_or("_default").to_owned(),
        };
        let place = Place { keyspace, id: id.to_owned() };
        let stated = state_of(&place, &attempt, documents).map_err(|error| failed(&error))?;
        // A transaction without an entry has ended, and left this change behind.
        let is_over = stated
            .is_none_or(|stated| [state::COMPLETED, state::ROLLED_BACK].contains(&stated.as_str()));
        Ok(!is_over)
    }

    /// Marks the transaction as committed: from here on all changes count.
    fn decide(
        &self,
        names: &Names<'_>,
        moved: &[StagedPlace<'_>],
        documents: &dyn Documents,
    ) -> Result<(), Stopped> {
        let places: Vec<_> = moved.iter().map(|moved| (moved.staged.kind, moved.place)).collect();
        let edit = names.committed(&places);
        let Err(error) = self.edit(names.record, edit, documents) else { return Ok(()) };
        // The write may have been applied although it failed.
        let stated = state_of(names.record, &self.id, documents);
        match stated.map_err(|_| Stopped::Ambiguous(error.to_string()))?.as_deref() {
            Some(state::COMMITTED) => Ok(()),
            Some(state::PENDING) if matches!(error, KvError::Temporary(_)) => {
                // A delayed write may still be applied.
                Err(Stopped::Ambiguous(error.to_string()))
            }
            // A cleanup has ended the transaction because it had expired.
            None => Err(Stopped::Expired),
            _ => Err(Stopped::Failed(error.to_string())),
        }
    }

    /// Unstages each document, and removes the entry when that is done.
    fn unstage(&self, moved: &[StagedPlace<'_>], documents: &dyn Documents) -> bool {
        let mut is_whole = true;
        for StagedPlace { place, staged, cas } in moved {
            let step = match staged.kind {
                Kind::Remove => Step::Remove(*cas, self.durability),
                kind => {
                    // JSON is copied within the document, so it need not be sent again.
                    let edit =
                        record::unstaged(kind, *cas, BodyFormat::Json, JSON_FLAGS, staged.expiry);
                    Step::Edit(edit, self.durability)
                }
            };
            let done = documents.write(place, step).map(drop);
            // The transaction has committed, so a changed document is no reason to stop: `settle` reads it and retries.
            is_whole &= done.or_else(|_| self.settle(staged.kind, place, true, documents)).is_ok();
        }
        is_whole && self.forget(documents)
    }

    /// Marks the transaction as aborted and removes staged changes.
    fn abort(&self, staged: &[(&Place, &Staged)], documents: &dyn Documents) {
        let Some(record) = &self.record else { return };
        let places: Vec<_> = staged
            .iter()
            .map(|(place, staged)| (staged.stored.unwrap_or(staged.kind), *place))
            .filter(|(kind, _)| *kind != Kind::Nothing)
            .collect();
        let edit = self.names(record).aborted(&places);
        // Without the aborted state, a cleanup finds an expired entry, which has the same effect.
        let mut is_whole = self.edit(record, edit, documents).is_ok();
        for (kind, place) in places {
            is_whole &= self.settle(kind, place, false, documents).is_ok();
        }
        if is_whole {
            self.forget(documents);
        }
    }

    /// Finishes the entry of an expired transaction according to its state. Returns true if the entry was removed.
    pub fn finish(&self, entry: &Entry, documents: &dyn Documents) -> bool {
        let commits = match entry.state.as_str() {
            state::COMMITTED => true,
            state::ABORTED => false,
            // Its staged changes are not known here, and without the entry they belong to no transaction.
            state::PENDING => return self.give_up(documents),
            // Only the entry is left.
            state::COMPLETED | state::ROLLED_BACK => return self.forget(documents),
            _ => return false,
        };
        let settled = entry.documents.iter();
        let settled = settled.map(|(kind, place)| self.settle(*kind, place, commits, documents));
        // Every document is tried, even if one fails.
        let outcomes: Vec<_> = settled.collect();
        outcomes.iter().all(Result::is_ok) && self.forget(documents)
    }

    fn forget(&self, documents: &dyn Documents) -> bool {
        let Some(record) = &self.record else { return true };
        let edit = self.names(record).forgotten();
        self.edit(record, edit, documents).is_ok()
    }

    fn give_up(&self, documents: &dyn Documents) -> bool {
        let Some(record) = &self.record else { return true };
        let edit = self.names(record).given_up();
        self.edit(record, edit, documents).is_ok()
    }

    /// Finishes one document, if anything is left to do.
    fn settle(
        &self,
        kind: Kind,
        place: &Place,
        commits: bool,
        documents: &dyn Documents,
    ) -> Result<(), KvError> {
        let paths = [
            record::STAGED_ATTEMPT,
            record::STAGED_TYPE,
            record::STAGED_BINARY,
            record::STAGED_FLAGS,
        ];
        let mut last = KvError::CasMismatch;
        for _ in 0..ROUNDS {
            let looked = match documents.lookup(place, &paths) {
                Ok(Some(looked)) => looked,
                // The document or its collection no longer exists.
                Ok(None) | Err(KvError::Denied(_)) => return Ok(()),
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            let [attempt, of_type, binary, flags] = &looked.found[..] else { return Ok(()) };
            let text = |found: &Option<Vec<u8>>| {
                serde_json::from_slice::<String>(found.as_deref().unwrap_or_default()).ok()
            };
            if text(attempt).as_deref() != Some(self.id.as_str()) {
                // The document was finished before.
                return Ok(());
            }
            let kind = text(of_type).and_then(|name| record::kind_of(&name)).unwrap_or(kind);
            let format = if binary.is_some() { BodyFormat::Binary } else { BodyFormat::Json };
            let flags = flags.as_deref().and_then(|flags| serde_json::from_slice(flags).ok());
            let step = match (commits, kind) {
                (true, Kind::Remove) => Step::Remove(looked.cas, self.durability),
                (true, kind) => {
                    // An SDK may have staged an insertion as a document, which then has a body.
                    let kind = if looked.is_tombstone { Kind::Insert } else { rest_of(kind) };
                    let flags = flags.unwrap_or(JSON_FLAGS);
                    let edit = record::unstaged(kind, looked.cas, format, flags, None);
                    Step::Edit(edit, self.durability)
                }
                (false, _) => Step::Edit(record::restored(looked.cas), self.durability),
            };
            match documents.write(place, step) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn edit(&self, place: &Place, edit: Edit, documents: &dyn Documents) -> Result<u64, KvError> {
        documents.write(place, Step::Edit(edit, self.durability))
    }
}

/// Returns the state of an entry; `None` if there is no entry.
fn state_of(
    record: &Place,
    attempt: &str,
    documents: &dyn Documents,
) -> Result<Option<String>, KvError> {
    let path = format!("{}.st", record::entry_path(attempt));
    let looked = documents.lookup(record, &[&path])?;
    let stated = looked.and_then(|looked| looked.found.into_iter().next().flatten());
    Ok(stated.and_then(|stated| serde_json::from_slice(&stated).ok()))
}

/// Returns the remaining operation of an insertion once its document exists.
fn rest_of(kind: Kind) -> Kind {
    if kind == Kind::Insert { Kind::Replace } else { kind }
}

fn conflict(place: &Place, error: &KvError) -> Stopped {
    match error {
        KvError::Exists | KvError::NotFound | KvError::CasMismatch | KvError::Path(_) => {
            Stopped::Conflict(format!("{} was changed: {error}", place.id))
        }
        KvError::Locked | KvError::Temporary(_) => {
            Stopped::Conflict(format!("{} cannot be written: {error}", place.id))
        }
        other => Stopped::Failed(format!("{} cannot be written: {other}", place.id)),
    }
}

fn failed(error: &KvError) -> Stopped {
    match error {
        KvError::Locked | KvError::Temporary(_) => Stopped::Conflict(error.to_string()),
        other => Stopped::Failed(other.to_string()),
    }
}
