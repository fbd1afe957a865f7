//! Selects the documents that leave a bucket, and the form in which they leave.

use nacre_types::{DATATYPE_JSON, Document, Kind};
use nacre_value::xattr::Xattrs;
use std::fmt;
use std::sync::Arc;

/// The attribute of conflict records, which never leave the bucket.
const CONFLICT_RECORD: &str = "_xdcr_conflict";
/// The attribute of a document with a staged transactional write.
const TRANSACTION: &str = "txn";
/// Keys of the transactions' own records.
const TRANSACTION_CLIENTS: &[u8] = b"_txn:client-record";
const TRANSACTION_RECORDS: &[u8] = b"_txn:atr-";

/// A condition on documents, such as a filter expression.
pub trait Condition: fmt::Debug + Send + Sync {
    /// Returns true if a document fulfils the condition.
    ///
    /// # Errors
    /// The reason why the condition cannot be evaluated. The document is not sent then.
    fn holds(&self, document: &Document) -> Result<bool, String>;
}

/// The filter of a replication. The default drops only the documents that are never sent.
#[derive(Clone, Default)]
pub struct Filter {
    /// Drops deletions (`filterDeletion`).
    pub drops_deletions: bool,
    /// Drops expirations (`filterExpiration`).
    pub drops_expirations: bool,
    /// Removes the expiry of documents (`filterBypassExpiry`).
    pub strips_expiry: bool,
    /// Drops documents that are not JSON (`filterBinary`).
    pub drops_binary: bool,
    /// Drops documents with a staged transactional write, rather than sending them without that attribute
    /// (`filterBypassUncommittedTxn`).
    pub drops_uncommitted: bool,
    /// Drops deletions for which the condition does not hold (`filterDeletionsWithExpression`). The condition must be about keys only: a
    /// deletion has neither the body nor the attributes of its document.
    pub selects_deletions: bool,
    /// Drops expirations for which the condition does not hold (`filterExpirationsWithExpression`). The condition must be about keys only.
    pub selects_expirations: bool,
    /// Condition on documents that are alive (`filterExpression`), and on the deletions that it selects.
    pub condition: Option<Arc<dyn Condition>>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("drops_deletions", &self.drops_deletions)
            .field("drops_expirations", &self.drops_expirations)
            .field("strips_expiry", &self.strips_expiry)
            .field("drops_binary", &self.drops_binary)
            .field("drops_uncommitted", &self.drops_uncommitted)
            .field("selects_deletions", &self.selects_deletions)
            .field("selects_expirations", &self.selects_expirations)
            .field("has_condition", &self.condition.is_some())
            .finish()
    }
}

/// The decision about a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The document is sent as it is.
    Whole,
    /// The document is sent without the transaction attribute.
    WithoutTransaction,
    /// The document is not sent.
    Dropped,
    /// The document is not sent because the condition could not be evaluated.
    Unclear(String),
}

impl Filter {
    /// Decides about `document`, in Couchbase's order of checks.
    pub fn pass(&self, document: &Document) -> Passage {
        let name = document.name();
        let is_own = name == TRANSACTION_CLIENTS || name.starts_with(TRANSACTION_RECORDS);
        if !document.collection().holds_documents() || is_own || std::str::from_utf8(name).is_err()
        {
            return Passage::Dropped;
        }
        let Ok(attributes) = Xattrs::parse(document.xattrs()) else {
            return Passage::Unclear("its attributes are malformed".to_owned());
        };
        let in_transaction = attributes.get(TRANSACTION).is_some();
        let is_binary = document.is_alive() && document.meta.datatype & DATATYPE_JSON == 0;
        let dropped = attributes.get(CONFLICT_RECORD).is_some()
            || (in_transaction && self.drops_uncommitted)
            || (is_binary && self.drops_binary)
            || (document.meta.kind == Kind::Deleted && self.drops_deletions)
            || (document.meta.kind == Kind::Expired && self.drops_expirations);
        if dropped {
            return Passage::Dropped;
        }
        // Unless the condition is about keys only, it cannot be evaluated for deletions: the version before the deletion is no
        // longer known.
        let is_selected = match document.meta.kind {
            Kind::Deleted => self.selects_deletions,
            Kind::Expired => self.selects_expirations,
            Kind::Alive | Kind::Aborted => document.is_alive(),
        };
        if let Some(condition) = self.condition.as_ref().filter(|_| is_selected) {
            match condition.holds(document) {
                Ok(false) => return Passage::Dropped,
                Err(reason) => return Passage::Unclear(reason),
                Ok(true) => {}
            }
        }
        if in_transaction { Passage::WithoutTransaction } else { Passage::Whole }
    }

    /// Returns the attributes without the transaction attribute.
    pub(crate) fn without_transaction(xattrs: &[u8]) -> Vec<u8> {
        let mut attributes = Xattrs::parse(xattrs).unwrap_or_default();
        attributes.remove(TRANSACTION);
        attributes.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{CollectionId, DATATYPE_XATTR, DocKey, Meta};

    fn document(name: &[u8], kind: Kind, attribute: Option<&str>) -> Document {
        let mut attributes = Xattrs::default();
        attribute.iter().for_each(|key| attributes.set(key, b"1").unwrap());
        let datatype = if attribute.is_some() { DATATYPE_XATTR } else { 0 };
        let meta = Meta { kind, datatype, ..Meta::default() };
        let key = DocKey::new(CollectionId::DEFAULT, name);
        Document::new(meta, key.prefixed(), &[&attributes.encode()[..], b"text"].concat())
    }

    #[test]
    fn attributes_of_one_cluster_stay_there() {
        let filter = Filter::default();
        for name in [&b"_txn:client-record"[..], b"_txn:atr-12-#a1", b"\xff"] {
            assert_eq!(filter.pass(&document(name, Kind::Alive, None)), Passage::Dropped);
        }
        let record = document(b"k", Kind::Alive, Some("_xdcr_conflict"));
        assert_eq!(filter.pass(&record), Passage::Dropped);
        let event = Document::new(Meta::default(), b"\x01scope:8", b"{}");
        assert_eq!(filter.pass(&event), Passage::Dropped);
        let staged = document(b"k", Kind::Alive, Some("txn"));
        assert_eq!(filter.pass(&staged), Passage::WithoutTransaction);
        assert!(Filter::without_transaction(staged.xattrs()).is_empty());
    }

    #[test]
    fn each_switch_leaves_out_what_it_names() {
        type Case = (fn(&mut Filter), Kind, Option<&'static str>);
        let cases: [Case; 4] = [
            (|filter| filter.drops_deletions = true, Kind::Deleted, None),
            (|filter| filter.drops_expirations = true, Kind::Expired, None),
            (|filter| filter.drops_binary = true, Kind::Alive, None),
            (|filter| filter.drops_uncommitted = true, Kind::Alive, Some("txn")),
        ];
        for (index, (switch, kind, attribute)) in cases.into_iter().enumerate() {
            let mut filter = Filter::default();
            let document = document(b"k", kind, attribute);
            assert_ne!(filter.pass(&document), Passage::Dropped, "{index}");
            switch(&mut filter);
            assert_eq!(filter.pass(&document), Passage::Dropped, "{index}");
        }
    }

    #[derive(Debug)]
    struct Fails;

    impl Condition for Fails {
        fn holds(&self, document: &Document) -> Result<bool, String> {
            if document.name() == b"bad" { Err("too deep".to_owned()) } else { Ok(false) }
        }
    }

    #[test]
    fn conditions_apply_only_to_live_documents() {
        let filter = Filter { condition: Some(Arc::new(Fails)), ..Filter::default() };
        assert_eq!(filter.pass(&document(b"k", Kind::Alive, None)), Passage::Dropped);
        assert_eq!(filter.pass(&document(b"k", Kind::Deleted, None)), Passage::Whole);
        let unclear = filter.pass(&document(b"bad", Kind::Alive, None));
        assert_eq!(unclear, Passage::Unclear("too deep".to_owned()));
    }

    #[test]
    fn a_condition_about_keys_selects_deletions_on_request() {
        type Switch = fn(&mut Filter);
        let switches: [(Switch, Kind, Kind); 2] = [
            (|filter| filter.selects_deletions = true, Kind::Deleted, Kind::Expired),
            (|filter| filter.selects_expirations = true, Kind::Expired, Kind::Deleted),
        ];
        for (switch, selected, other) in switches {
            let mut filter = Filter { condition: Some(Arc::new(Fails)), ..Filter::default() };
            switch(&mut filter);
            assert_eq!(filter.pass(&document(b"k", selected, None)), Passage::Dropped);
            assert_eq!(filter.pass(&document(b"k", other, None)), Passage::Whole);
            filter.condition = None;
            assert_eq!(filter.pass(&document(b"k", selected, None)), Passage::Whole);
        }
    }
}
