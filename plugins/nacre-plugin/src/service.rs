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

/// A request, in the words of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// The path below the deployment, starting with `/`, percent-decoded.
    pub path: String,
    /// The query string as it came, without `?`.
    pub query: String,
    /// The body.
    pub body: Vec<u8>,
    /// When the request arrived, in microseconds since the Unix epoch.
    pub now_us: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// An HTTP status.
    pub status: u16,
    /// The media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A JSON answer.
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Response {
        Response { status, content_type: "application/json".into(), body: body.into() }
    }
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

    /// Folds a batch into the state. Documents that fail are returned, not fatal.
    ///
    /// # Errors
    /// [`Fault`] when the batch as a whole could not be taken; its writes are dropped then.
    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault>;

    /// Removes what came from vBucket `vb` after `seqno`; gives the seqno (`<= seqno`) reached, or none to be
    /// called again for the rest. A call that gives none must have removed something.
    ///
    /// # Errors
    /// [`Fault`] when the state could not be cut back.
    fn rollback(
        &mut self,
        vb: u16,
        seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault>;

    /// Answers a request from a snapshot of the state.
    ///
    /// # Errors
    /// [`Fault`] when there is no answer; an HTTP error status is an answer.
    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault>;
}

/// Exports a [`Service`] as the component's `lifecycle`, `feed` and `reader`. Does nothing outside Wasm.
#[macro_export]
macro_rules! export {
    ($service:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::nacre::plugin::{feed, lifecycle, reader};
            use $crate::bindings::nacre::plugin::types::Fault;

            struct Component;

            ::std::thread_local! {
                static SERVICE: ::std::cell::RefCell<Option<$service>> =
                    const { ::std::cell::RefCell::new(None) };
            }

            fn with<T>(call: impl FnOnce(&mut Option<$service>) -> T) -> T {
                SERVICE.with_borrow_mut(call)
            }

            impl lifecycle::Guest for Component {
                fn describe() -> String {
                    <$service as $crate::Service>::describe()
                }
                fn init(config: String) -> Result<(), Fault> {
                    with(|service| $crate::bindings::init(service, &config))
                }
            }

            impl feed::Guest for Component {
                fn on_batch(buffer: Vec<u8>) -> Result<feed::Outcome, Fault> {
                    with(|service| $crate::bindings::on_batch(service, &buffer))
                }
                fn rollback(vb: u16, seqno: u64) -> Result<Option<u64>, Fault> {
                    with(|service| $crate::bindings::rollback(service, vb, seqno))
                }
            }

            impl reader::Guest for Component {
                fn handle(request: reader::Request) -> Result<reader::Response, Fault> {
                    with(|service| $crate::bindings::handle(service, request))
                }
            }

    $crate::bindings::export_service!(Component with_types_in $crate::bindings);
        };
    };
}
