//! A store that releases its files when the database is closed, although collections, sessions and listeners still hold the
//! bucket.

use nacre_store::{Commit, Error, HistorySize, Scan, Store, Usage, Which};
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::RwLock;
use std::sync::Arc;

/// Forwards all calls to a store until it is shut.
pub(crate) struct Gate(RwLock<Option<Arc<dyn Store>>>);

impl Gate {
    pub fn new(store: Arc<dyn Store>) -> Arc<Gate> {
        Arc::new(Gate(RwLock::new(Some(store))))
    }

    /// Drops the store. The next process that opens its files finds them unlocked, once running scans have ended.
    pub fn shut(&self) {
        *self.0.write() = None;
    }

    fn store(&self) -> Result<Arc<dyn Store>, Error> {
        let closed =
            || Error::io("the database is closed")(std::io::ErrorKind::NotConnected.into());
        self.0.read().clone().ok_or_else(closed)
    }
}

impl Store for Gate {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        self.store()?.commit(commits)
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        self.store()?.records()
    }

    fn scan(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error> {
        self.store()?.scan(vbid, after, which)
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        self.store()?.get(vbid, key)
    }

    fn visit(&self, each: &mut dyn FnMut(Vbid, Document)) -> Result<(), Error> {
        self.store()?.visit(each)
    }

    fn usage(&self) -> Usage {
        self.store().map(|store| store.usage()).unwrap_or_default()
    }

    fn compact(&self, fragmentation_percent: u8) -> Result<u64, Error> {
        self.store()?.compact(fragmentation_percent)
    }

    fn previous(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<Document>, Error> {
        self.store()?.previous(vbid, seqno)
    }

    fn keeps_history(&self) -> bool {
        self.store().is_ok_and(|store| store.keeps_history())
    }

    fn history(&self) -> Vec<(Vbid, HistorySize)> {
        self.store().map(|store| store.history()).unwrap_or_default()
    }

    fn history_within(&self, vbid: Vbid, limit: HistorySize) -> Seqno {
        self.store().map_or(Seqno::ZERO, |store| store.history_within(vbid, limit))
    }
}
