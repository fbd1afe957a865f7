//! Documents for a user interface: a page of a collection, one document by its ID, one write.
//!
//! A small collection is listed by ID. A large one is listed in the order in which it is stored, because a page by ID would have
//! to visit every document: the cost of a page depends on the page, never on the collection.

use super::failure::no_bucket;
use super::session::Session;
use nacre_auth::Privilege;
use nacre_node::scatter_gather::Owners;
use nacre_sandbox::{Action, DatabaseKeyspace, Failure, Mutation, Row, RowRefusal};
use std::time::Duration;

/// Maximum number of documents in a collection that is listed by ID.
const SORTED_MAX: u64 = 5_000;
/// Number of IDs read at a time from a larger collection.
const PAGE_IDS: usize = 1_000;
/// Maximum number of IDs examined for one page of a larger collection: a rare prefix ends a page early.
const LOOKED_AT_MAX: usize = 20_000;

/// A page of a collection.
#[derive(Debug, Default)]
pub struct ListedDocuments {
    /// The documents.
    pub rows: Vec<Row>,
    /// The position after which the next page begins; `None` if there are no more documents.
    pub next: Option<String>,
    /// Number of documents in the collection.
    pub count: u64,
    /// True if pages are ordered by ID.
    pub is_sorted: bool,
}

impl Session {
    /// Lists at most `limit` documents whose IDs begin with `prefix`, after the ID `after`.
    ///
    /// # Errors
    /// Fails if the user may not read the documents, the collection does not exist, or no node serves some vBuckets.
    pub fn list_documents(
        &self,
        keyspace: &DatabaseKeyspace,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        left: Duration,
    ) -> Result<ListedDocuments, Failure> {
        let owners = self.owners(Privilege::ReadData, keyspace)?;
        let count = self.committed().count(&owners, keyspace)?;
        let is_sorted = count <= SORTED_MAX;
        let (ids, next) = match is_sorted {
            true => self.ids_by_name(&owners, keyspace, (prefix, after, limit), left)?,
            false => self.ids_as_stored(&owners, keyspace, (prefix, after, limit), left)?,
        };
        let rows = self.committed().read(&owners, keyspace, &ids, left)?;
        // Documents that were deleted meanwhile are omitted.
        Ok(ListedDocuments { rows: rows.into_iter().flatten().collect(), next, count, is_sorted })
    }

    fn ids_by_name(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        (prefix, after, limit): (&str, Option<&str>, usize),
        left: Duration,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let most = 2 * SORTED_MAX as usize;
        let (rows, _) = self.committed().scan(owners, keyspace, None, false, most, left)?;
        let mut ids: Vec<String> = rows.into_iter().map(|row| row.id).collect();
        ids.retain(|id| id.starts_with(prefix) && after.is_none_or(|after| id.as_str() > after));
        ids.sort_unstable();
        let is_whole = ids.len() <= limit;
        ids.truncate(limit);
        let next = if is_whole { None } else { ids.last().cloned() };
        Ok((ids, next))
    }

    fn ids_as_stored(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        (prefix, after, limit): (&str, Option<&str>, usize),
        left: Duration,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let (mut ids, mut after, mut looked_at) = (Vec::new(), after.map(str::to_owned), 0);
        while ids.len() < limit && looked_at < LOOKED_AT_MAX {
            let (rows, is_whole) =
                self.committed().scan(owners, keyspace, after.as_deref(), false, PAGE_IDS, left)?;
            looked_at += rows.len();
            for row in rows {
                if ids.len() == limit {
                    return Ok((ids, after));
                }
                after = Some(row.id.clone());
                if row.id.starts_with(prefix) {
                    ids.push(row.id);
                }
            }
            if is_whole {
                return Ok((ids, None));
            }
        }
        Ok((ids, after))
    }

    /// Returns a document; `None` if it does not exist.
    ///
    /// # Errors
    /// As for [`Session::list_documents`].
    pub fn find_document(
        &self,
        keyspace: &DatabaseKeyspace,
        id: &str,
        left: Duration,
    ) -> Result<Option<Row>, Failure> {
        let owners = self.owners(Privilege::ReadData, keyspace)?;
        let found = self.committed().read(&owners, keyspace, &[id.to_owned()], left)?;
        Ok(found.into_iter().flatten().next())
    }

    /// Applies a mutation to a document. Returns its new CAS.
    ///
    /// # Errors
    /// The outer error as for [`Session::list_documents`], for the right to write; the inner error if the document does not match
    /// the mutation.
    pub fn write_document(
        &self,
        keyspace: &DatabaseKeyspace,
        mutation: Mutation,
        left: Duration,
    ) -> Result<Result<u64, RowRefusal>, Failure> {
        let privilege = match mutation.action {
            Action::Insert => Privilege::InsertData,
            Action::Upsert | Action::Replace => Privilege::UpsertData,
            Action::Remove => Privilege::DeleteData,
        };
        let owners = self.owners(privilege, keyspace)?;
        let durability = self.terms.lock().durability;
        let mut outcomes =
            self.committed().write(&owners, keyspace, &[mutation], durability, left)?;
        outcomes.pop().ok_or_else(|| no_bucket(keyspace))
    }
}
