//! A store with injected faults.

use crate::{Commit, Error, HistorySize, Scan, Store, Usage, Which};
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::Mutex;

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full: commits fail and write nothing.
    Full,
    /// The process has no descriptors left: commits fail and write nothing.
    Exhausted,
    /// The disk fails in the middle of a commit: the first half is written and the call fails.
    Torn,
    /// The stored history of this vBucket cannot be scanned.
    Unreadable(Vbid),
}

/// Forwards all calls to another store until a fault is injected.
pub struct FaultStore<S> {
    inner: S,
    fault: Mutex<Option<Fault>>,
}

impl<S: Store> FaultStore<S> {
    /// Creates a store without a fault.
    pub fn new(inner: S) -> FaultStore<S> {
        FaultStore { inner, fault: Mutex::new(None) }
    }

    /// Returns the underlying store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Sets the fault that the following commits or scans meet.
    pub fn inject(&self, fault: Option<Fault>) {
        *self.fault.lock() = fault;
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        match *self.fault.lock() {
            None | Some(Fault::Unreadable(_)) => self.inner.commit(commits),
            Some(Fault::Full) => Err(Error::Full),
            Some(Fault::Exhausted) => Err(Error::Exhausted {
                what: "create a segment".into(),
                source: std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()),
            }),
            Some(Fault::Torn) => {
                self.inner.commit(&commits[..commits.len() / 2])?;
                Err(Error::io("commit")(std::io::ErrorKind::Other.into()))
            }
        }
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        self.inner.records()
    }

    fn scan(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error> {
        if *self.fault.lock() == Some(Fault::Unreadable(vbid)) {
            return Err(Error::io("scan")(std::io::ErrorKind::Other.into()));
        }
        self.inner.scan(vbid, after, which)
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        self.inner.get(vbid, key)
    }

    fn visit(&self, each: &mut dyn FnMut(Vbid, Document)) -> Result<(), Error> {
        self.inner.visit(each)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn compact(&self, fragmentation_percent: u8) -> Result<u64, Error> {
        self.inner.compact(fragmentation_percent)
    }

    fn previous(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<Document>, Error> {
        self.inner.previous(vbid, seqno)
    }

    fn keeps_history(&self) -> bool {
        self.inner.keeps_history()
    }

    fn history(&self) -> Vec<(Vbid, HistorySize)> {
        self.inner.history()
    }

    fn history_within(&self, vbid: Vbid, limit: HistorySize) -> Seqno {
        self.inner.history_within(vbid, limit)
    }
}
