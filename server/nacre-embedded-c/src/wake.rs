//! The descriptor that becomes readable when there may be news.

use ::nacre::Error;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A pair of sockets, so that any event loop can wait for it, also that of Node. It is created when a
/// caller first asks for the descriptor.
#[derive(Default)]
pub(crate) struct Wake {
    pair: OnceLock<(UnixStream, UnixStream)>,
    has_rung: AtomicBool,
}

impl Wake {
    /// Returns the descriptor to wait for.
    pub fn fd(&self) -> Result<i32, Error> {
        if self.pair.get().is_none() {
            let failed = |error| Error::Io { what: format!("create the wake descriptor: {error}") };
            let (reader, writer) = UnixStream::pair().map_err(failed)?;
            reader.set_nonblocking(true).map_err(failed)?;
            writer.set_nonblocking(true).map_err(failed)?;
            let _ = self.pair.set((reader, writer));
            // Earlier rings had no socket to write to.
            self.has_rung.store(false, Ordering::Release);
            self.ring();
        }
        let (reader, _) = self.pair.get().expect("it was set above");
        Ok(reader.as_raw_fd())
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        let Some((_, writer)) = self.pair.get() else { return };
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            // The socket is full only if it is already readable.
            let _ = (&*writer).write_all(&[1]);
        }
    }

    /// Makes the descriptor unreadable. The caller must look for news afterwards.
    pub fn clear(&self) {
        self.has_rung.store(false, Ordering::Release);
        let Some((reader, _)) = self.pair.get() else { return };
        let mut bytes = [0; 64];
        while matches!((&*reader).read(&mut bytes), Ok(read) if read > 0) {}
    }
}
