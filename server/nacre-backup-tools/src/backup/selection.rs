//! The selection of a restore: collections by their names, and documents by expressions and conditions.

use super::filter::{self, Filter, body_of};
use clap::Args;
use nacre_backup::{BucketPart, Collection, Manifest, Record};
use regex_lite::Regex;
use std::collections::BTreeSet;

/// Options that select collections and documents.
#[derive(Args, Clone, Debug)]
pub(super) struct Select {
    /// Restore only these buckets, scopes and collections, separated by commas: bucket, bucket.scope or bucket.scope.collection
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    include: Vec<String>,
    /// Do not restore these buckets, scopes and collections, separated by commas
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Restore only documents for which this SQL++ condition holds, such as "type = 'order' AND META().id LIKE 'eu::%'"
    #[arg(long, value_name = "CONDITION", value_parser = filter::checked)]
    filter: Option<String>,
    /// Restore only documents whose key contains a match of this regular expression
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    filter_keys: Option<Regex>,
    /// Restore only documents whose value contains a match of this regular expression
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    filter_values: Option<Regex>,
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

/// The names by which a collection can be selected.
fn paths(bucket: &str, Collection { scope, name, .. }: &Collection) -> [String; 3] {
    [bucket.to_owned(), format!("{bucket}.{scope}"), format!("{bucket}.{scope}.{name}")]
}

impl Select {
    /// Checks that each path names something in the backup, so that a typing error is noticed.
    ///
    /// # Errors
    /// The path that names nothing.
    pub fn check(&self, manifest: &Manifest) -> Result<(), String> {
        let known: BTreeSet<String> = manifest
            .buckets
            .iter()
            .flat_map(|part| part.collections.iter().flat_map(move |one| paths(&part.name, one)))
            .collect();
        match self.include.iter().chain(&self.exclude).find(|path| !known.contains(*path)) {
            None => Ok(()),
            Some(path) => Err(format!(
                "the backup has no bucket, scope or collection {path}: `nacre backup show` lists them"
            )),
        }
    }

    /// Returns true if a collection is selected.
    pub fn has_collection(&self, bucket: &str, collection: &Collection) -> bool {
        let paths = paths(bucket, collection);
        let is_in = |list: &[String]| list.iter().any(|path| paths.contains(path));
        (self.include.is_empty() || is_in(&self.include)) && !is_in(&self.exclude)
    }

    /// Returns true if anything of a bucket is selected.
    pub fn has_bucket(&self, part: &BucketPart) -> bool {
        let is_everything = self.include.is_empty() && self.exclude.is_empty();
        is_everything || part.collections.iter().any(|one| self.has_collection(&part.name, one))
    }
}

/// Selects the documents of a bucket. Each thread has its own, because a condition caches what it has compiled.
pub(super) struct Selection<'a> {
    select: &'a Select,
    filter: Option<Filter>,
    /// IDs of the collections that are not selected.
    excluded: BTreeSet<u32>,
}

impl<'a> Selection<'a> {
    /// Prepares the selection for a bucket.
    ///
    /// # Errors
    /// The first mistake in the condition.
    pub fn new(select: &'a Select, part: &BucketPart) -> Result<Selection<'a>, String> {
        let filter = select.filter.as_deref().map(|text| Filter::read(text, part)).transpose()?;
        let excluded =
            part.collections.iter().filter(|one| !select.has_collection(&part.name, one));
        let excluded = excluded.map(|one| one.id).collect();
        Ok(Selection { select, filter, excluded })
    }

    /// Returns true for a collection that is in the backup and is not selected.
    pub fn excludes(&self, collection: u32) -> bool {
        self.excluded.contains(&collection)
    }

    /// Returns true if a document or tombstone is selected. The value of a deleted document is unknown: no tombstone matches an
    /// expression about values.
    ///
    /// # Errors
    /// A sentence if the condition cannot be evaluated.
    pub fn has(&self, record: &Record<'_>) -> Result<bool, String> {
        if self.excludes(record.collection) {
            return Ok(false);
        }
        if let Some(keys) = &self.select.filter_keys
            && !keys.is_match(&String::from_utf8_lossy(record.key))
        {
            return Ok(false);
        }
        if let Some(values) = &self.select.filter_values {
            let value = body_of(record).unwrap_or_default();
            if !record.is_document() || !values.is_match(&String::from_utf8_lossy(value)) {
                return Ok(false);
            }
        }
        match &self.filter {
            Some(filter) => filter.holds(record),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_backup::{BackupId, RecordKind};
    use std::collections::BTreeMap;

    fn collection(id: u32, scope: &str, name: &str) -> Collection {
        let (scope, name) = (scope.to_owned(), name.to_owned());
        Collection { id, scope, scope_id: None, name, max_ttl: 0, keeps_versions: false }
    }

    /// The bucket `a.b` with the collections `s.c` (8), `s.d` (9) and `t.c` (10).
    fn part() -> BucketPart {
        BucketPart {
            name: "a.b".into(),
            uuid: "u".into(),
            vbuckets: 1,
            parent: None,
            collections: vec![
                collection(8, "s", "c"),
                collection(9, "s", "d"),
                collection(10, "t", "c"),
            ],
            parts: Vec::new(),
            definitions: BTreeMap::new(),
        }
    }

    fn select(include: &[&str], exclude: &[&str]) -> Select {
        let owned = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
        let (include, exclude) = (owned(include), owned(exclude));
        Select { include, exclude, filter: None, filter_keys: None, filter_values: None }
    }

    fn record<'a>(kind: RecordKind, collection: u32, value: &'a [u8]) -> Record<'a> {
        Record {
            kind,
            seqno: 1,
            cas: 7,
            rev: 1,
            flags: 0,
            expiry: 0,
            datatype: 0,
            collection,
            key: b"order::7",
            value,
        }
    }

    #[test]
    fn collections_are_selected_by_bucket_scope_or_name() {
        let part = part();
        let cases: [(&[&str], &[&str], &[u32]); 8] = [
            (&[], &[], &[8, 9, 10]),
            (&["a.b"], &[], &[8, 9, 10]),
            (&["a.b.s"], &[], &[8, 9]),
            (&["a.b.s.d", "a.b.t"], &[], &[9, 10]),
            (&[], &["a.b.s"], &[10]),
            (&["a.b.s"], &["a.b.s.d"], &[8]),
            (&["a.b"], &["a.b"], &[]),
            (&["other"], &[], &[]),
        ];
        for (include, exclude, selected) in cases {
            let select = select(include, exclude);
            let selection = Selection::new(&select, &part).unwrap();
            let has = |id: &u32| selection.has(&record(RecordKind::Set, *id, b"1")).unwrap();
            let found: Vec<u32> = [8, 9, 10].into_iter().filter(has).collect();
            assert_eq!(found, selected, "{include:?} without {exclude:?}");
            assert_eq!(select.has_bucket(&part), !selected.is_empty());
        }
    }

    #[test]
    fn a_path_that_names_nothing_is_an_error() {
        let manifest = Manifest {
            id: BackupId::new(1, 2, None),
            writer: String::new(),
            time_ms: (1, 2),
            buckets: vec![part()],
            objects: Vec::new(),
            definitions: BTreeMap::new(),
            merged: Vec::new(),
        };
        assert_eq!(select(&["a.b", "a.b.t.c"], &["a.b.s"]).check(&manifest), Ok(()));
        for path in ["a", "a.b.x", "a.b.s.x", ""] {
            let refused = select(&[], &[path]).check(&manifest).unwrap_err();
            assert!(refused.contains(&format!("collection {path}: ")), "{refused}");
        }
    }

    #[test]
    fn expressions_match_anywhere_in_keys_and_values() {
        let matches = |keys: Option<&str>, values: Option<&str>, record: &Record<'_>| {
            let compiled = |text: Option<&str>| text.map(|text| regex(text).unwrap());
            let (filter_keys, filter_values) = (compiled(keys), compiled(values));
            let select = Select { filter_keys, filter_values, ..select(&[], &[]) };
            Selection::new(&select, &part()).unwrap().has(record).unwrap()
        };
        let order = record(RecordKind::Set, 8, b"{\"total\":120}");
        assert!(matches(Some("er::\\d$"), None, &order) && !matches(Some("^er"), None, &order));
        assert!(matches(None, Some("total.*0"), &order) && !matches(None, Some("^total"), &order));
        assert!(!matches(Some("order"), Some("none"), &order), "both have to match");
        let tombstone = record(RecordKind::Deletion, 8, b"");
        assert!(matches(Some("order"), None, &tombstone));
        assert!(!matches(None, Some(""), &tombstone), "the document had another value");
        assert!(regex("(").is_err());
    }
}
