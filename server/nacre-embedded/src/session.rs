//! A session of the key-value protocol in the process: the protocol of the server, without a socket.

use crate::host::USER;
use crate::{Db, Error, Sync};
use nacre_bucket::Waiter;
use nacre_bucket::kv::{self, Next, Peer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Maximum bytes of waiting requests.
const INPUT_BYTES_MAX: usize = 64 << 20;

struct CallbackWaiter(Box<dyn Fn() + Send + std::marker::Sync>);

impl Waiter for CallbackWaiter {
    fn wake(&self) {
        // This runs on the thread of a writer, which must continue even if the application's callback panics.
        let _ = catch_unwind(AssertUnwindSafe(&self.0));
    }
}

/// A session: frames in, frames out. It is logged in as the owner of the database, which is the bucket `default`.
pub struct Session {
    db: Db,
    session: kv::Session,
    /// Requests that wait for earlier requests or are incomplete.
    input: Vec<u8>,
    must_wait: bool,
    ended: Option<String>,
}

impl Session {
    pub(crate) fn new(db: &Db, wake: Box<dyn Fn() + Send + std::marker::Sync>) -> Session {
        let peer = Peer { confidential: true, user: Some(USER.into()), ..Peer::default() };
        let host = Arc::clone(&db.inner().host) as Arc<dyn kv::KvEnv>;
        let session = kv::Session::new(host, peer, Arc::new(CallbackWaiter(wake)));
        Session { db: db.clone(), session, input: Vec::new(), must_wait: false, ended: None }
    }

    /// Accepts requests, the last of which may be incomplete, and appends responses to `out`. Further responses may become ready
    /// later: see [`Session::poll`].
    ///
    /// # Errors
    /// [`Error::SessionEnded`] when the bytes are not valid frames or the client has closed the session, [`Error::Closed`],
    /// [`Error::Forked`], [`Error::Full`] and [`Error::Broken`] when writes that [`Sync::Always`] covers cannot be stored.
    pub fn receive(&mut self, requests: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.check()?;
        self.input.extend_from_slice(requests);
        let before = out.len();
        self.advance(out)?;
        // The result of a request, such as a new stream, may be ready without a wake.
        self.resume(out)?;
        self.help(out)?;
        if self.input.len() > INPUT_BYTES_MAX {
            return self.end("more requests wait than a session may hold".into());
        }
        self.settle(before, out)
    }

    /// Appends responses that have become ready. Call it after each call of the session's `wake`.
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
                return self.end(why.unwrap_or_else(|| "its client has closed it".into()));
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

    /// Does the work that requests wait for, mostly reads of the disk, on this thread.
    fn help(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        // Each round completes at least one request; work of another thread wakes the session when it is done.
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

    /// Makes the writes durable that the responses confirm.
    fn settle(&mut self, before: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let inner = self.db.inner();
        if out.len() == before || inner.options.sync != Sync::Always {
            return Ok(());
        }
        inner.flush().inspect_err(|_| out.truncate(before))
    }
}
