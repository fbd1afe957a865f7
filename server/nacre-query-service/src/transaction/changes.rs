//! The uncommitted changes of a transaction: documents by their place, and the undo log.
//!
//! This module reads no documents: the caller passes the committed version. All changes can be undone back to a
//! mark; rollbacks to savepoints and of failed statements use this.

use nacre_sandbox::{Action, DatabaseKeyspace, Mutation, Row, RowRefusal};
use std::collections::BTreeMap;

/// Flags that SDKs use for JSON. Source: Couchbase's common flags.
pub const JSON_FLAGS: u32 = 0x0200_0000;
/// Memory of a change in addition to its document, in bytes.
const OVERHEAD_BYTES: usize = 256;

/// Address of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The collection.
    pub keyspace: DatabaseKeyspace,
    /// The key.
    pub id: String,
}

/// The combined effect of all statements of a transaction on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No document is committed; the transaction inserts one.
    Insert,
    /// A document is committed; the transaction replaces it.
    Replace,
    /// A document is committed; the transaction removes it.
    Remove,
    /// The document is inserted and removed within the transaction.
    Nothing,
}

/// A document as the transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The effect.
    pub kind: Kind,
    /// The body; empty for a removal.
    pub body: Vec<u8>,
    /// Expiry as clients send it; `None` keeps the current one.
    pub expiry: Option<u32>,
    /// The CAS that statements see.
    pub cas: u64,
    /// The CAS that the stored document must have when the change is staged; 0 if it must not exist.
    pub stored_cas: u64,
    /// The effect that is already staged in the store, if any.
    pub stored: Option<Kind>,
    /// True if the stored effect is outdated.
    pub is_dirty: bool,
}

impl Staged {
    /// Returns true if the document exists within the transaction.
    pub fn is_there(&self) -> bool {
        matches!(self.kind, Kind::Insert | Kind::Replace)
    }

    /// Returns true if a document is committed.
    fn is_committed(&self) -> bool {
        matches!(self.kind, Kind::Replace | Kind::Remove)
    }

    /// Returns the number of documents that the change adds to the collection.
    pub fn growth(&self) -> i8 {
        i8::from(self.is_there()) - i8::from(self.is_committed())
    }

    /// Returns the document as queries see it.
    pub fn row(&self, id: &str) -> Option<Row> {
        self.is_there().then(|| Row {
            id: id.to_owned(),
            body: self.body.clone().into(),
            cas: self.cas,
            flags: JSON_FLAGS,
            expiry: 0,
            is_json: true,
        })
    }
}

/// A position in the undo log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// The changes of a transaction.
#[derive(Debug, Default)]
pub struct Changes {
    staged: BTreeMap<Place, Staged>,
    /// Undo log: the value before each change.
    undo: Vec<(Place, Option<Staged>)>,
    savepoints: Vec<(String, Mark)>,
    last_cas: u64,
    bytes: usize,
}

impl Changes {
    /// Creates an empty set of changes. The CAS values of changed documents continue from `cas`.
    pub fn new(cas: u64) -> Changes {
        Changes { last_cas: cas, ..Changes::default() }
    }

    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the transaction has changed the document.
    pub fn knows(&self, keyspace: &DatabaseKeyspace, id: &str) -> bool {
        self.staged.contains_key(&Place { keyspace: keyspace.clone(), id: id.to_owned() })
    }

    /// Returns all changes.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Staged)> {
        self.staged.iter()
    }

    /// Returns the changes of a collection.
    pub fn of<'a>(
        &'a self,
        keyspace: &'a DatabaseKeyspace,
    ) -> impl Iterator<Item = (&'a str, &'a Staged)> {
        let first = Place { keyspace: keyspace.clone(), id: String::new() };
        let from = self.staged.range(first..);
        let those = from.take_while(move |(place, _)| place.keyspace == *keyspace);
        those.map(|(place, staged)| (place.id.as_str(), staged))
    }

    /// Adds a change that is already staged in the store.
    pub fn take_over(&mut self, place: Place, staged: Staged) {
        self.put(place, staged);
    }

    /// Applies a mutation to a document whose stored version is `committed`. Returns the new CAS.
    ///
    /// # Errors
    /// The reason why the change is refused.
    pub fn apply(
        &mut self,
        keyspace: &DatabaseKeyspace,
        mutation: Mutation,
        committed: Option<u64>,
    ) -> Result<u64, RowRefusal> {
        let place = Place { keyspace: keyspace.clone(), id: mutation.id };
        let known = self.staged.get(&place);
        let seen = match known {
            Some(staged) => staged.is_there().then_some(staged.cas),
            None => committed,
        };
        match (mutation.action, seen) {
            (Action::Insert, Some(_)) => return Err(RowRefusal::Exists),
            (Action::Replace | Action::Remove, None) => return Err(RowRefusal::NotFound),
            (Action::Replace | Action::Remove, Some(seen))
                if mutation.cas != 0 && mutation.cas != seen =>
            {
                return Err(RowRefusal::CasMismatch);
            }
            _ => {}
        }
        let is_committed = known.map_or(committed.is_some(), Staged::is_committed);
        let kind = match (mutation.action, is_committed) {
            (Action::Remove, true) => Kind::Remove,
            (Action::Remove, false) => Kind::Nothing,
            (_, true) => Kind::Replace,
            (_, false) => Kind::Insert,
        };
        let kept = known.filter(|known| known.is_there()).and_then(|known| known.expiry);
        self.last_cas += 1;
        let staged = Staged {
            kind,
            body: if mutation.action == Action::Remove { Vec::new() } else { mutation.body },
            expiry: mutation.expiry.or(kept),
            cas: self.last_cas,
            stored_cas: known.map_or(committed.unwrap_or(0), |known| known.stored_cas),
            stored: known.and_then(|known| known.stored),
            is_dirty: true,
        };
        self.put(place, staged);
        Ok(self.last_cas)
    }

    fn put(&mut self, place: Place, staged: Staged) {
        self.bytes += size_of(&place, &staged);
        let before = self.staged.insert(place.clone(), staged);
        self.undo.push((place, before));
    }

    /// Returns the current position of the undo log.
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Undoes everything after `mark`, including later savepoints.
    pub fn back_to(&mut self, mark: Mark) {
        while self.undo.len() > mark.0
            && let Some((place, before)) = self.undo.pop()
        {
            let gone = match before {
                Some(before) => self.staged.insert(place.clone(), before),
                None => self.staged.remove(&place),
            };
            self.bytes -= gone.map_or(0, |gone| size_of(&place, &gone));
        }
        self.savepoints.retain(|(_, savepoint)| *savepoint <= mark);
    }

    /// Sets a savepoint at the current position. An existing savepoint with the same name is moved.
    pub fn set_savepoint(&mut self, name: String) {
        self.savepoints.retain(|(known, _)| *known != name);
        self.savepoints.push((name, self.mark()));
    }

    /// Undoes everything after a savepoint, which remains. Returns false if no savepoint has this name.
    pub fn back_to_savepoint(&mut self, name: &str) -> bool {
        let found = self.savepoints.iter().find(|(known, _)| known == name);
        let Some(mark) = found.map(|(_, mark)| *mark) else { return false };
        self.back_to(mark);
        true
    }
}

fn size_of(place: &Place, staged: &Staged) -> usize {
    OVERHEAD_BYTES + 2 * place.id.len() + staged.body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace() -> DatabaseKeyspace {
        DatabaseKeyspace {
            bucket: "b".into(),
            scope: "_default".into(),
            collection: "_default".into(),
        }
    }

    fn mutation(action: Action, id: &str, body: &str, cas: u64) -> Mutation {
        Mutation { action, id: id.into(), body: body.into(), cas, expiry: None }
    }

    fn shown(changes: &Changes) -> Vec<String> {
        let one = |(place, staged): (&Place, &Staged)| {
            let body = String::from_utf8_lossy(&staged.body);
            format!("{} {:?} {body} over {}", place.id, staged.kind, staged.stored_cas)
        };
        changes.iter().map(one).collect()
    }

    /// Statements on one key with a committed version: the refusal of each, and their combined effect.
    #[test]
    fn changes_of_several_statements_become_one_change() {
        use Action::{Insert, Remove, Replace, Upsert};
        for (committed, actions, expected) in [
            (None, vec![(Insert, Ok(()))], "k Insert 0 over 0"),
            (None, vec![(Insert, Ok(())), (Replace, Ok(()))], "k Insert 1 over 0"),
            (None, vec![(Insert, Ok(())), (Remove, Ok(()))], "k Nothing  over 0"),
            (None, vec![(Insert, Ok(())), (Insert, Err(RowRefusal::Exists))], "k Insert 0 over 0"),
            (None, vec![(Insert, Ok(())), (Remove, Ok(())), (Upsert, Ok(()))], "k Insert 2 over 0"),
            (None, vec![(Remove, Err(RowRefusal::NotFound))], ""),
            (Some(7), vec![(Insert, Err(RowRefusal::Exists))], ""),
            (Some(7), vec![(Upsert, Ok(()))], "k Replace 0 over 7"),
            (Some(7), vec![(Remove, Ok(())), (Insert, Ok(()))], "k Replace 1 over 7"),
            (
                Some(7),
                vec![(Remove, Ok(())), (Replace, Err(RowRefusal::NotFound))],
                "k Remove  over 7",
            ),
        ] {
            let mut changes = Changes::new(100);
            for (at, (action, outcome)) in actions.into_iter().enumerate() {
                let mutation = mutation(action, "k", &at.to_string(), 0);
                let applied = changes.apply(&keyspace(), mutation, committed).map(drop);
                assert_eq!(applied, outcome, "{action:?} on {committed:?}");
            }
            assert_eq!(shown(&changes).join(", "), expected);
        }
    }

    /// The expiry of each statement on one key, where it sets one, and the combined effect.
    #[test]
    fn a_statement_that_keeps_the_expiry_keeps_that_of_an_earlier_one() {
        use Action::{Insert, Remove, Replace, Upsert};
        for (committed, actions, expected) in [
            (None, vec![(Insert, Some(60)), (Replace, None)], Some(60)),
            (None, vec![(Insert, Some(60)), (Replace, Some(0))], Some(0)),
            (None, vec![(Insert, Some(60)), (Remove, None), (Insert, None)], None),
            (Some(7), vec![(Upsert, None)], None),
            (Some(7), vec![(Upsert, Some(60)), (Replace, None), (Replace, None)], Some(60)),
        ] {
            let mut changes = Changes::new(100);
            for (action, expiry) in actions {
                let mutation = Mutation { expiry, ..mutation(action, "k", "1", 0) };
                changes.apply(&keyspace(), mutation, committed).unwrap();
            }
            let expiry: Vec<_> = changes.iter().map(|(_, staged)| staged.expiry).collect();
            assert_eq!(expiry, [expected], "{committed:?}");
        }
    }

    #[test]
    fn a_version_must_be_the_one_that_the_transaction_sees() {
        let mut changes = Changes::new(100);
        let replace = |cas| mutation(Action::Replace, "k", "1", cas);
        assert_eq!(changes.apply(&keyspace(), replace(8), Some(7)), Err(RowRefusal::CasMismatch));
        assert_eq!(changes.apply(&keyspace(), replace(7), Some(7)), Ok(101));
        assert_eq!(changes.apply(&keyspace(), replace(7), Some(7)), Err(RowRefusal::CasMismatch));
        assert_eq!(changes.apply(&keyspace(), replace(101), Some(7)), Ok(102));
    }

    #[test]
    fn rollback_to_a_savepoint_can_be_repeated_and_returns_memory() {
        let mut changes = Changes::new(0);
        let insert = |changes: &mut Changes, id: &str| {
            changes.apply(&keyspace(), mutation(Action::Insert, id, "{}", 0), None).unwrap();
        };
        insert(&mut changes, "a");
        let bytes = changes.bytes();
        changes.set_savepoint("s".into());
        for _ in 0..2 {
            insert(&mut changes, "b");
            changes.set_savepoint("later".into());
            changes.apply(&keyspace(), mutation(Action::Remove, "a", "", 0), None).unwrap();
            assert_eq!(shown(&changes), ["a Nothing  over 0", "b Insert {} over 0"]);
            assert!(changes.back_to_savepoint("s"));
            assert_eq!(shown(&changes), ["a Insert {} over 0"]);
            assert_eq!(changes.bytes(), bytes);
            assert!(!changes.back_to_savepoint("later"), "it was set after the other");
        }
        changes.back_to(Mark(0));
        assert_eq!((shown(&changes), changes.bytes()), (Vec::new(), 0));
        assert!(!changes.back_to_savepoint("s"));
    }

    #[test]
    fn the_changes_of_a_collection_exclude_those_of_others() {
        let mut changes = Changes::new(0);
        let other =
            |collection: &str| DatabaseKeyspace { collection: collection.into(), ..keyspace() };
        for (collection, id) in [("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")] {
            let insert = mutation(Action::Insert, id, "{}", 0);
            changes.apply(&other(collection), insert, None).unwrap();
        }
        let keyspace = other("b");
        let ids: Vec<&str> = changes.of(&keyspace).map(|(id, _)| id).collect();
        assert_eq!(ids, ["2", "3"]);
    }
}
