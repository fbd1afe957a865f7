//! A store that keeps everything in memory: for tests, simulation and buckets without a disk.

use crate::{Commit, Error, Scan, Store, Usage};
use imbl::OrdMap;
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
struct Stored {
    record: Option<VbRecord>,
    by_key: BTreeMap<Box<[u8]>, Seqno>,
    /// Persistent, so that a scan is a cheap copy.
    by_seqno: OrdMap<u64, Arc<Document>>,
}

/// Keeps vBuckets in memory.
#[derive(Default)]
pub struct MemoryStore(Mutex<BTreeMap<Vbid, Stored>>);

impl Store for MemoryStore {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        let mut vbuckets = self.0.lock();
        for commit in commits {
            let stored = vbuckets.entry(commit.vbid).or_default();
            for document in &commit.documents {
                if let Some(old) = stored.by_key.insert(document.key().into(), document.meta.seqno)
                {
                    stored.by_seqno.remove(&old.0);
                }
                stored.by_seqno.insert(document.meta.seqno.0, Arc::clone(document));
            }
            for (key, seqno) in &commit.erased {
                if stored.by_key.get(key) == Some(seqno) {
                    stored.by_key.remove(key);
                    stored.by_seqno.remove(&seqno.0);
                }
            }
            let document_count = stored.by_key.len() as u64;
            stored.record = Some(VbRecord { document_count, ..commit.record.clone() });
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

    fn scan(&self, vbid: Vbid, after: Seqno) -> Result<Scan, Error> {
        let vbuckets = self.0.lock();
        let stored = vbuckets.get(&vbid);
        let end = stored
            .and_then(|stored| stored.record.as_ref())
            .map_or(after, |record| record.high_seqno);
        let (_, documents) =
            stored.map(|stored| stored.by_seqno.clone()).unwrap_or_default().split(&after.0);
        Ok(Scan {
            end,
            documents: Box::new(documents.into_iter().map(|(_, document)| Ok(document))),
        })
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        let vbuckets = self.0.lock();
        Ok(vbuckets.get(&vbid).and_then(|stored| {
            let seqno = stored.by_key.get(key)?;
            stored.by_seqno.get(&seqno.0).map(|document| Document::clone(document))
        }))
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn compact(&self, _fragmentation_percent: u8) -> Result<u64, Error> {
        Ok(0)
    }
}
