//! A session of the key-value protocol in process: what a client of the server speaks, without a socket.

use crate::host::USER;
use crate::{Db, Error, Sync};
use nacre_bucket::Waiter;
use nacre_bucket::kv::{self, Next, Peer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes of requests that wait for others, at most.
const INPUT_BYTES_MAX: usize = 64 << 20;

struct Bell(Box<dyn Fn() + Send + std::marker::Sync>);

impl Waiter for Bell {
    fn wake(&self) {
        // On the thread of a writer, which goes on whatever the application does.
        let _ = catch_unwind(AssertUnwindSafe(&self.0));
    }
}

/// A session: frames in, frames out. It is logged in as the owner of the database, which is the bucket `default`.
pub struct Session {
    db: Db,
    session: kv::Session,
    /// Requests that must wait for those before them, or are not whole yet.
    input: Vec<u8>,
    must_wait: bool,
    ended: Option<String>,
}

impl Session {
    pub(crate) fn new(db: &Db, wake: Box<dyn Fn() + Send + std::marker::Sync>) -> Session {
        let peer = Peer { confidential: true, user: Some(USER.into()), ..Peer::default() };
        let host = Arc::clone(&db.inner().host) as Arc<dyn kv::KvEnv>;
        let session = kv::Session::new(host, peer, Arc::new(Bell(wake)));
        Session { db: db.clone(), session, input: Vec::new(), must_wait: false, ended: None }
    }

    /// Takes requests, of which the last may be cut anywhere, and appends responses to `out`. More of them may come later: see
    /// [`Session::poll`].
    ///
    /// # Errors
    /// [`Error::SessionEnded`] when the bytes are no frames or the client has said goodbye, [`Error::Closed`], [`Error::Forked`],
    /// [`Error::Full`] and [`Error::Broken`] when writes cannot be stored that [`Sync::Always`] promises.
    pub fn receive(&mut self, requests: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.check()?;
        self.input.extend_from_slice(requests);
        let before = out.len();
        self.advance(out)?;
        // What a request has begun, such as a stream, is ready without a wake.
        self.resume(out)?;
        self.help(out)?;
        if self.input.len() > INPUT_BYTES_MAX {
            return self.end("more requests wait than a session may hold".into());
        }
        self.settle(before, out)
    }

    /// Appends responses that have become ready. Called when the session's `wake` was.
    ///
    /// # Errors
    /// As for [`Session::receive`].
    pub fn poll(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.check()?;
        let before = out.len();
        self.resume(out)?;
        self.help(out)?;
        self.settle(before, out)
    }

    fn check(&self) -> Result<(), Error> {
        self.db.inner().check()?;
        self.ended.clone().map_or(Ok(()), |why| Err(Error::SessionEnded(why)))
    }

    fn end(&mut self, why: String) -> Result<(), Error> {
        self.ended = Some(why.clone());
        Err(Error::SessionEnded(why))
    }

    /// Handles requests until one must wait.
    fn advance(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.must_wait = false;
        let mut consumed = 0;
        let next = loop {
            let now = self.session.now();
            let (bytes, next) = self.session.receive(&self.input[consumed..], out, now);
            consumed += bytes;
            match next {
                Next::Flush => {}
                next => break next,
            }
        };
        self.input.drain(..consumed);
        match next {
            Next::Wait => self.must_wait = true,
            Next::Close(why) => {
                return self.end(why.unwrap_or_else(|| "its client said goodbye".into()));
            }
            Next::More | Next::Flush => {}
        }
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        while self.session.is_ready() {
            let now = self.session.now();
            if let Next::Close(why) = self.session.resume(out, now) {
                return self.end(why.unwrap_or_else(|| "it was ended".into()));
            }
            if self.must_wait {
                self.advance(out)?;
            }
        }
        Ok(())
    }

    /// Does what requests wait for, on this thread: it is mostly a read of the disk.
    fn help(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        // Each round ends a request at least; what another thread does already wakes the session.
        while self.session.has_parked() {
            self.resume(out)?;
            self.db.inner().runner.help();
            if !self.session.is_ready() {
                self.db.inner().runner.flush();
            }
            if !self.session.is_ready() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stores what the responses promise.
    fn settle(&mut self, before: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let inner = self.db.inner();
        if out.len() == before || inner.options.sync != Sync::Always {
            return Ok(());
        }
        inner.flush().inspect_err(|_| out.truncate(before))
    }
}
