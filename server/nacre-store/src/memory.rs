//! A store in memory, for tests, simulation and buckets without a disk.

use crate::{Commit, Error, HistorySize, Scan, Store, Usage, Which};
use foldhash::fast::RandomState;
use nacre_types::{CollectionId, Document, Meta, Seqno, VbRecord, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::mem::replace;

#[derive(Default)]
struct Stored {
    record: Option<VbRecord>,
    by_key: HashMap<Box<[u8]>, Seqno, RandomState>,
    by_seqno: BTreeMap<u64, Document>,
    /// Superseded versions that are kept as history.
    history: BTreeMap<u64, Document>,
}

impl Stored {
    fn find(&self, key: &[u8]) -> Option<&Document> {
        self.by_seqno.get(&self.by_key.get(key)?.0)
    }

    /// Removes a current version, or moves it to the history.
    fn supersede(&mut self, seqno: Seqno, kept: bool) {
        if let Some(old) = self.by_seqno.remove(&seqno.0)
            && kept
        {
            self.history.insert(seqno.0, old);
        }
    }

    fn apply(&mut self, commit: &Commit) {
        for (key, seqno) in &commit.erased {
            if self.by_key.get(key) == Some(seqno) {
                self.by_key.remove(key);
                self.supersede(*seqno, commit.keeps(CollectionId::of_key(key), *seqno));
            }
        }
        for document in &commit.documents {
            let seqno = document.meta.seqno;
            match self.by_key.get_mut(document.key()) {
                Some(known) => {
                    let old = replace(known, seqno);
                    self.supersede(old, commit.keeps(document.collection(), old));
                }
                None => drop(self.by_key.insert(document.key().into(), seqno)),
            }
            self.by_seqno.insert(seqno.0, document.clone());
        }
        let document_count = self.by_key.len() as u64;
        let record = VbRecord { document_count, ..commit.record.clone() };
        let start = record.history_start.unwrap_or(Seqno(u64::MAX));
        while let Some(oldest) = self.history.keys().next().copied()
            && oldest < start.0
        {
            self.history.remove(&oldest);
        }
        self.record = Some(record);
    }

    fn history_size(&self) -> HistorySize {
        let bytes = self.history.values().map(|document| document.memory_bytes() as u64);
        HistorySize { versions: self.history.len() as u64, bytes: bytes.sum() }
    }
}

/// Stores vBuckets in memory.
#[derive(Default)]
pub struct MemoryStore(Mutex<BTreeMap<Vbid, Stored>>);

impl MemoryStore {
    /// Returns the metadata of the newest version of a key, if there is one.
    pub fn meta(&self, vbid: Vbid, key: &[u8]) -> Option<Meta> {
        self.0.lock().get(&vbid)?.find(key).map(|document| document.meta)
    }
}

impl Store for MemoryStore {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        let mut vbuckets = self.0.lock();
        for commit in commits {
            vbuckets.entry(commit.vbid).or_default().apply(commit);
        }
        Ok(())
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        let vbuckets = self.0.lock();
        Ok(vbuckets
            .iter()
            .filter_map(|(vbid, stored)| Some((*vbid, stored.record.clone()?)))
            .collect())
    }

    fn scan(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error> {
        let vbuckets = self.0.lock();
        let stored = vbuckets.get(&vbid);
        let record = stored.and_then(|stored| stored.record.as_ref());
        let end = record.map_or(after, |record| record.high_seqno);
        let mut documents: Vec<Document> = Vec::new();
        if let (Some(stored), Some(next)) = (stored, after.0.checked_add(1)) {
            documents.extend(stored.by_seqno.range(next..).map(|(_, document)| document.clone()));
            if which == Which::All {
                let history = stored.history.range(next..);
                documents.extend(history.map(|(_, document)| document.clone()));
                documents.sort_by_key(|document| document.meta.seqno);
            }
        }
        let history_start = record.and_then(|record| record.history_start);
        Ok(Scan {
            end,
            history_start: history_start.filter(|_| which == Which::All),
            documents: Box::new(documents.into_iter().map(Ok)),
        })
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        let vbuckets = self.0.lock();
        let found = vbuckets.get(&vbid).and_then(|stored| stored.find(key));
        Ok(found.cloned())
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn compact(&self, _fragmentation_percent: u8) -> Result<u64, Error> {
        Ok(0)
    }

    fn previous(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<Document>, Error> {
        let vbuckets = self.0.lock();
        let Some(stored) = vbuckets.get(&vbid) else { return Ok(None) };
        let found = stored.by_seqno.get(&seqno.0).or_else(|| stored.history.get(&seqno.0));
        let Some(found) = found else { return Ok(None) };
        let mut before = stored.history.range(..seqno.0).rev();
        let previous = before.find(|(_, document)| document.key() == found.key());
        Ok(previous.map(|(_, document)| Document::clone(document)))
    }

    fn keeps_history(&self) -> bool {
        true
    }

    fn history(&self) -> Vec<(Vbid, HistorySize)> {
        let vbuckets = self.0.lock();
        let sizes = vbuckets.iter().map(|(vbid, stored)| (*vbid, stored.history_size()));
        sizes.filter(|(_, size)| size.versions > 0).collect()
    }

    fn history_within(&self, vbid: Vbid, limit: HistorySize) -> Seqno {
        let vbuckets = self.0.lock();
        let Some(stored) = vbuckets.get(&vbid) else { return Seqno::ZERO };
        let mut left = limit;
        let mut newest_first = stored.history.values().rev();
        let beyond = newest_first.find(|document| !left.take(document.memory_bytes() as u64));
        beyond.map_or(Seqno::ZERO, |document| document.meta.seqno.next())
    }
}
