//! What a plugin of the world `service` implements.

use crate::{Events, State, StateMut};

/// Why a call as a whole did not succeed, by who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The same call may succeed later.
    #[error("{0}")]
    Retry(String),
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Reject(String),
    /// The plugin cannot go on with this state.
    #[error("{0}")]
    Fatal(String),
}

/// A document that could not be processed; the feed goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// Position of the event within the batch, from 0.
    pub index: u32,
    /// What went wrong, for the author of the code that failed.
    pub message: String,
}

/// A timer that is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// The vBucket that it belongs to, if any.
    pub vb: Option<u16>,
    /// Its name.
    pub name: String,
    /// When it was to fire, in microseconds since the Unix epoch.
    pub due_us: u64,
    /// What was given when it was set.
    pub payload: Vec<u8>,
}

/// Name and value of a header of HTTP.
pub type Header = (String, String);

/// A request, in the words of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// The path below the deployment, starting with `/`, percent-decoded.
    pub path: String,
    /// The query string as it came, without `?`.
    pub query: String,
    /// Headers that the host passes on, their names in lower case.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Vec<u8>,
    /// When the request arrived, in microseconds since the Unix epoch.
    pub now_us: u64,
}

/// The answer to a request, or its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// An HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    /// The body, or the first piece of it.
    pub body: Vec<u8>,
    /// When there is more of the body: what [`Service::more`] is called with.
    pub cursor: Option<Vec<u8>>,
}

impl Response {
    /// A JSON answer.
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Response {
        let headers = vec![("content-type".into(), "application/json".into())];
        Response { status, headers, body: body.into(), cursor: None }
    }
}

/// A piece of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes.
    pub body: Vec<u8>,
    /// When there is more: what [`Service::more`] is called with.
    pub cursor: Option<Vec<u8>>,
}

/// A fold over the change stream, plus readers of its state.
///
/// Invariants the host relies on: nothing that must survive lies outside the state, since an instance may be
/// replaced between any two calls; `init` does not depend on the state; equal calls give equal writes.
pub trait Service: Sized {
    /// What this plugin is: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the deployment that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] when the configuration cannot be deployed; the message is for its author.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Folds a batch into the state. Documents that fail are returned, not fatal. Without it, nothing is folded.
    ///
    /// # Errors
    /// [`Fault`] when the batch as a whole could not be taken; its writes are dropped then.
    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let _ = (events, state);
        Ok(Vec::new())
    }

    /// Removes what came from vBucket `vb` after `seqno`; gives the seqno (`<= seqno`) reached, or none to be
    /// called again for the rest. A call that gives none must have removed something.
    ///
    /// Without it, the host builds the state anew from the first document on.
    ///
    /// # Errors
    /// [`Fault`] when the state could not be cut back.
    fn rollback(
        &mut self,
        vb: u16,
        seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        let _ = state;
        Err(Fault::Fatal(format!(
            "vBucket {vb} was cut back to {seqno}, and this plugin cannot be"
        )))
    }

    /// Answers a request from a snapshot of the state. Without it, there is nothing to be found.
    ///
    /// # Errors
    /// [`Fault`] when there is no answer; an HTTP error status is an answer.
    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        let _ = (request, state);
        Ok(Response::json(404, r#"{"error":"not_found","reason":"missing"}"#))
    }

    /// The next piece of an answer that had a cursor: on the same snapshot, in the same instance.
    ///
    /// # Errors
    /// [`Fault`] when the answer cannot go on.
    fn more(&mut self, cursor: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        let _ = (cursor, state);
        Err(Fault::Reject("this plugin gives its answers whole".into()))
    }

    /// Makes one answer from the answers of several partitions.
    ///
    /// # Errors
    /// [`Fault`] when they cannot be merged.
    fn merge(&mut self, request: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        let _ = (request, partials);
        Err(Fault::Reject("this plugin cannot merge answers".into()))
    }

    /// Takes timers that are due. They are gone, and may be set again.
    ///
    /// # Errors
    /// [`Fault`] when they could not be taken; nothing has happened then.
    fn on_timer(
        &mut self,
        now_us: u64,
        timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        let _ = (now_us, timers, state);
        Ok(())
    }
}
