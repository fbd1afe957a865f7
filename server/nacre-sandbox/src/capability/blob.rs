//! `blob`: the files of a state.
//!
//! Bytes are read directly from the memory of the plugin. A call that has used blobs cannot be replayed from a capsule,
//! because blobs are too large to be stored in it.

use crate::abi::nacre::plugin::blob::{Host, Info};
use crate::capability::Capability;
use crate::instance::{Data, Refused};
use nacre_state::{BlobError, BlobInfo, Blobs};
use wasmtime::Result;

/// Maximum number of blobs in one list.
const LIST_MAX: usize = 1000;

impl Data {
    fn change_blobs<T>(
        &mut self,
        change: impl FnOnce(&mut Blobs) -> std::result::Result<T, BlobError>,
    ) -> Result<T> {
        self.count_blobs()?;
        self.view.change_blobs(change).map_err(Refused::trap)
    }

    fn count_blobs(&mut self) -> Result<()> {
        self.count(Capability::Blob)?;
        self.journal.cut();
        Ok(())
    }
}

impl Host for Data {
    fn create(&mut self, name: String) -> Result<()> {
        self.change_blobs(|blobs| blobs.create(&name))
    }

    fn append(&mut self, name: String, bytes: Vec<u8>) -> Result<()> {
        self.change_blobs(|blobs| blobs.append(&name, &bytes))
    }

    fn seal(&mut self, name: String) -> Result<()> {
        self.change_blobs(|blobs| blobs.seal(&name))
    }

    fn delete(&mut self, name: String) -> Result<bool> {
        self.change_blobs(|blobs| Ok(blobs.delete(&name)))
    }

    fn stat(&mut self, name: String) -> Result<Option<Info>> {
        self.count_blobs()?;
        Ok(self.view.state.blobs.info(&name).map(info))
    }

    fn read(&mut self, name: String, offset: u64, length: u32) -> Result<Option<Vec<u8>>> {
        self.count_blobs()?;
        match self.view.state.blobs.read(&name, offset, length) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(BlobError::Missing(_)) => Ok(None),
            Err(error) => Err(Refused::trap(error.into())),
        }
    }

    fn list(&mut self, prefix: String, after: String, limit: u32) -> Result<Vec<Info>> {
        self.count_blobs()?;
        let found = self.view.state.blobs.list(&prefix, &after, LIST_MAX.min(limit as usize));
        Ok(found.into_iter().map(info).collect())
    }
}

fn info(BlobInfo { name, length, is_sealed }: BlobInfo) -> Info {
    Info { name, length, sealed: is_sealed }
}
