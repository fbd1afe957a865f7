//! The trait of plugins of the world `service`.

use crate::{Events, State, StateMut};

/// Why a call failed as a whole; the variant decides who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The same call may succeed later.
    #[error("{0}")]
    Retry(String),
    /// The caller's request is invalid.
    #[error("{0}")]
    Reject(String),
    /// The plugin cannot continue with this state.
    #[error("{0}")]
    Fatal(String),
}

/// A document that could not be processed; the feed continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// Position of the event within the batch, from 0.
    pub index: u32,
    /// The reason, for the author of the failing code.
    pub message: String,
}

/// A timer that is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// Its vBucket, if any.
    pub vb: Option<u16>,
    /// Its name.
    pub name: String,
    /// Its due time in microseconds since the Unix epoch.
    pub due_us: u64,
    /// The payload with which it was set.
    pub payload: Vec<u8>,
}

/// Name and value of an HTTP header.
pub type Header = (String, String);

/// A request, in terms of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// The path below the deployment, percent-decoded; begins with `/`.
    pub path: String,
    /// The raw query string without `?`.
    pub query: String,
    /// Headers that the host passes on; names are in lower case.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Vec<u8>,
    /// Time at which the request arrived, in microseconds since the Unix epoch.
    pub now_us: u64,
}

/// A response, or its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// An HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    /// The body, or the first piece of it.
    pub body: Vec<u8>,
    /// The argument of [`Service::more`] for the rest of the body; `None` if the body is complete.
    pub cursor: Option<Vec<u8>>,
}

impl Response {
    /// Returns a JSON response.
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
    /// The argument of the next call of [`Service::more`]; `None` if the body is complete.
    pub cursor: Option<Vec<u8>>,
}

/// Folds the change stream into a state and answers requests from it.
///
/// Invariants that the host relies on: all data that must survive is in the state, because an instance may be
/// replaced between any two calls; `init` does not depend on the state; equal calls make equal writes.
pub trait Service: Sized {
    /// Returns a description of the plugin: a JSON object with at least `name`, `version` and `limits`.
    fn describe() -> String;

    /// Prepares an instance for the deployment that `config` describes.
    ///
    /// # Errors
    /// [`Fault::Reject`] if the configuration cannot be deployed; the message is for its author.
    fn init(config: &str) -> Result<Self, Fault>;

    /// Folds a batch into the state. Documents that fail are returned and are not fatal. The default ignores all
    /// events.
    ///
    /// # Errors
    /// [`Fault`] if the batch as a whole could not be processed; its writes are then dropped.
    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let _ = (events, state);
        Ok(Vec::new())
    }

    /// Removes the changes of vBucket `vb` after `seqno`. Returns the resulting seqno (`<= seqno`), or `None` to
    /// be called again for the rest. A call that returns `None` must have removed something.
    ///
    /// With the default, the host rebuilds the state from the first document.
    ///
    /// # Errors
    /// [`Fault`] if the state could not be cut back.
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

    /// Answers a request from a snapshot of the state. The default responds with 404.
    ///
    /// # Errors
    /// [`Fault`] if there is no response; an HTTP error status is a response.
    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        let _ = (request, state);
        Ok(Response::json(404, r#"{"error":"not_found","reason":"missing"}"#))
    }

    /// Returns the next piece of a response with a cursor: on the same snapshot, in the same instance.
    ///
    /// # Errors
    /// [`Fault`] if the response cannot be continued.
    fn more(&mut self, cursor: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        let _ = (cursor, state);
        Err(Fault::Reject("this plugin does not answer in pieces".into()))
    }

    /// Merges the responses of several partitions into one.
    ///
    /// # Errors
    /// [`Fault`] if they cannot be merged.
    fn merge(&mut self, request: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        let _ = (request, partials);
        Err(Fault::Reject("this plugin cannot merge answers".into()))
    }

    /// Processes due timers. They have been removed and can be set again.
    ///
    /// # Errors
    /// [`Fault`] if they could not be processed; the call then has no effect.
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
