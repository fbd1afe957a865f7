//! A store that fails on purpose.

use crate::{Commit, Error, Scan, Store};
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::Mutex;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full: commits fail and leave nothing behind.
    Full,
    /// The disk fails in the middle of a commit: its first half is there, the call fails.
    Torn,
}

/// Passes everything on to another store until told to fail.
pub struct FaultStore<S> {
    inner: S,
    fault: Mutex<Option<Fault>>,
}

impl<S: Store> FaultStore<S> {
    /// A store that works.
    pub fn new(inner: S) -> FaultStore<S> {
        FaultStore { inner, fault: Mutex::new(None) }
    }

    /// From now on, commits meet `fault`.
    pub fn inject(&self, fault: Option<Fault>) {
        *self.fault.lock() = fault;
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        let refused = |kind: std::io::ErrorKind| Error::io("commit")(std::io::Error::from(kind));
        match *self.fault.lock() {
            None => self.inner.commit(commits),
            Some(Fault::Full) => Err(refused(std::io::ErrorKind::StorageFull)),
            Some(Fault::Torn) => {
                self.inner.commit(&commits[..commits.len() / 2])?;
                Err(refused(std::io::ErrorKind::Other))
            }
        }
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        self.inner.records()
    }

    fn scan(&self, vbid: Vbid, after: Seqno) -> Result<Scan, Error> {
        self.inner.scan(vbid, after)
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        self.inner.get(vbid, key)
    }
}
